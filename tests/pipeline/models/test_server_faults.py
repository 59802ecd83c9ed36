"""Every fault of an OpenAI-compatible server that we know of, from a server that has it: each is reported in one true
sentence, tried again where that may help, and costs no other request its reply.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from PIL import Image

from core.errors import UnreadableReply
from core.settings import CaptionSettings, KeywordSettings, LanguageSettings
from core.types import Caption, Task
from pipeline.models import server
from pipeline.models.captioner_chat import ServedChatModel
from pipeline.models.server import NoServer, ServerFault
from pipeline.models.server_language import ServedLanguage
from pipeline.profiles.text_sections import ServerCaptioner, ServerLanguage
from pipeline.recipes import DILLEMA
from pipeline.replies import read_reply
from pipeline.seams import CaptionRequest, LanguageRequest
from tests.support.misbehaving import PAGE, Answer, Misbehaving, Raw, completion
from tests.support.server_process import free_port
from tests.support.stages import run_keywords

BIRD = Task("classification", label="bird")
COLD = LanguageSettings(temperature=0, max_new_tokens=50)
GOOD = json.dumps(completion("red"))


@pytest.fixture(scope="module")
def peer() -> Iterator[Misbehaving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "FIRST_WAIT", 0.01)
        made = Misbehaving()
        made.others["/v1/models"] = (200, {}, {"data": [{"id": "small"}, {"id": "big"}]})
        yield made
        made.close()


@pytest.fixture(scope="module")
def language(peer: Misbehaving) -> ServedLanguage:
    """Model on this server, which sends each request at most three times, and one request after another."""
    return ServedLanguage(ServerLanguage(kind="openai", address=peer.address, model="m", tries=3, parallel=1))


@pytest.fixture(scope="module")
def captioner(peer: Misbehaving) -> ServedChatModel:
    return ServedChatModel(ServerCaptioner(kind="openai", address=peer.address, model="m", tries=3, parallel=1))


def said(sentence: str, peer: Misbehaving) -> re.Pattern[str]:
    """Return the pattern of a sentence of this table. In it, {at} is the server's address, and … any words."""
    return re.compile(re.escape(sentence.replace("{at}", peer.address)).replace("…", ".+"))


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def ok(head: str = "", body: bytes = b"") -> bytes:
    """Return the bytes of an answer with status 200 and these further headers."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}\r\n".encode() + body


def chunked(*pieces: str) -> bytes:
    return "".join(f"{len(piece):x}\r\n{piece}\r\n" for piece in pieces).encode()


class Fault(NamedTuple):
    answer: Answer
    sentence: str
    requests: int = 1
    """Number of times that the request with the fault is sent."""
    for_all: bool = False
    """True if every other request would fail in the same way, so that none is sent."""


def for_all(answer: Answer, sentence: str) -> Fault:
    return Fault(answer, sentence, 1, True)


AT = "The server at {at}"
MODEL = "The language model at {at}"
LONG = "This model's maximum context length is 9 tokens"
LATER = "Wed, 21 Oct 2065 07:28:00 GMT"

DAMAGED = f"{AT} broke off or damaged its answer (…): look at its log, and run it again."
CUT = f"{AT} broke off its answer in the middle: look at its log, and run it again."
TOO_MUCH = f"{AT} sends an answer of more than 8 MB: check which program runs there."
STREAM = (
    f"{AT} streams its reply in pieces although a whole one was asked for: switch streaming off there, or take the "
    "address without it."
)
WEB_PAGE = (
    f"{AT} answered with a web page and not with a reply: correct the address in the profile, which usually ends in "
    "/v1."
)
FILTERED = "had its reply held back by the server's content filter: change the caption or the prompt."
NOTHING = "replied with nothing: run it again, or fill it in yourself."
REFUSED = "refused to reply (“No people.”): change the caption or the prompt, or take another model."


def refuses(words: str) -> str:
    return f"{AT} refuses the request ({words}): correct the profile or the settings."


def denies(words: str) -> str:
    key = "name the environment variable that holds its key as key_variable in the profile."
    return f"{AT} denies access ({words}): {key}"


def no_credit(words: str) -> str:
    return f"{AT} wants to be paid first ({words}): add credit to its account, or take another server."


def no_model(words: str) -> str:
    return (
        f"{AT} has no model 'm', or no chat at this address ({words}); it has big, small: correct model or address in "
        "the profile."
    )


def too_long(words: str, role: str = "language model") -> str:
    return (
        f"The prompt and the longest reply together are more than the {role} reads ({words}): shorten the caption or "
        "the longest reply."
    )


def too_large(words: str) -> str:
    return f"{AT} does not take a request of this size ({words}): raise its limit, or lower max_pixels in the profile."


def busy(words: str) -> str:
    return f"{AT} takes no more requests for now ({words}): wait a while and run the stage again."


def failed(words: str) -> str:
    return f"{AT} failed ({words}): look at its log, and run the stage again."


def redirects(to: str) -> str:
    return f"{AT} redirects to {to}: put the right address into the profile."


def no_chat(words: str) -> str:
    end = "correct the address in the profile, or check which program runs there."
    return f"{AT} sent an answer that is no chat completion ({words}): {end}"


FAULTS = {
    # The connection
    "closed without an answer": Fault(Raw(b""), DAMAGED, 3),
    "reset without an answer": Fault(Raw(b"", reset=True), DAMAGED, 3),
    "closed within the headers": Fault(Raw(ok()[:30]), DAMAGED, 3),
    "reset within the body": Fault(Raw(ok("Content-Length: 900\r\n", b'{"choi'), reset=True), DAMAGED, 3),
    "another protocol": for_all(Raw(b"-ERR unknown command\r\n\r\n"), no_chat("…")),
    "a port with TLS asked without": for_all(Raw(b"\x15\x03\x03\0\x02\x02\x46"), no_chat("…")),
    "a redirect elsewhere": for_all((307, {"location": "https://there/v1"}, ""), redirects("https://there/v1")),
    "a redirect to itself": for_all((302, {"location": "/v1/chat/completions"}, ""), redirects("/v1/chat/completions")),
    "a redirect to nowhere": for_all((301, {}, ""), redirects("elsewhere")),
    # Status
    "400": Fault((400, {}, error("n has to be 1.")), refuses("400: n has to be 1")),
    "400 in other fields": Fault((400, {}, {"message": "No"}), refuses("400: No")),
    "400 without words": Fault((400, {}, ""), refuses("400")),
    "400 by a web server": Fault(
        (400, PAGE, "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"),
        refuses("400: The plain HTTP request was sent to HTTPS port"),
    ),
    "400 for a long prompt": Fault((400, {}, error(LONG)), too_long(f"400: {LONG}")),
    "400 of a content filter": Fault(
        (400, {}, error("The prompt triggered our content management policy.", code="content_filter")),
        f"{MODEL} {FILTERED}",
    ),
    "401": for_all((401, {}, error("Bad key")), denies("401: Bad key")),
    "402": for_all((402, {}, error("No credits")), no_credit("402: No credits")),
    "403": for_all((403, {}, error("Not in your country")), denies("403: Not in your country")),
    "403 of a content filter": Fault(
        (403, {}, error("The chosen model requires moderation and your input was flagged")), f"{MODEL} {FILTERED}"
    ),
    "403 of a proxy": for_all((403, PAGE, "<title>Content Filter</title>"), denies("403: Content Filter")),
    "404 of an address": for_all((404, PAGE, "<html>Not Found</html>"), no_model("404")),
    "404 of a model": for_all((404, {}, {"detail": "no such model"}), no_model("404: no such model")),
    "405": for_all((405, {}, {"detail": "Method Not Allowed"}), no_model("405: Method Not Allowed")),
    "408": Fault((408, {}, ""), failed("408"), 3),
    "409": Fault((409, {}, error("Being replaced")), failed("409: Being replaced"), 3),
    "413": Fault(
        (413, PAGE, "<title>413 Request Entity Too Large</title>"), too_large("413: Request Entity Too Large")
    ),
    "415": Fault((415, {}, error("No JSON")), refuses("415: No JSON")),
    "422": Fault(
        (422, {}, {"detail": [{"loc": ["body", "n"], "msg": "Input should be 1"}]}),
        refuses('422: [{"loc": ["body", "n"], "msg": "Input should be 1"}]'),
    ),
    "429 for no time": Fault((429, {"retry-after": "0"}, error("Slow down.")), busy("429: Slow down"), 3),
    "429 without a time": Fault((429, {}, {}), busy("429"), 3),
    "429 for an hour": Fault((429, {"retry-after": "3600"}, ""), busy("429")),
    "429 until a past date": Fault((429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, ""), busy("429"), 3),
    "429 until a far date": Fault((429, {"retry-after": LATER}, ""), busy("429")),
    "429 until the end of time": Fault((429, {"retry-after": "Fri, 31 Dec 9999 23:59:59 -1200"}, ""), busy("429"), 3),
    "429 for an absurd time": Fault((429, {"retry-after": "1e999"}, ""), busy("429")),
    "429 for a time in words": Fault((429, {"retry-after": "soon"}, ""), busy("429"), 3),
    "429 by a router's provider": Fault(
        (429, {"retry-after": "0"}, error("Provider error", metadata={"raw": "rate-limited"})),
        busy("429: Provider error: rate-limited"),
        3,
    ),
    "429 for want of credit": for_all(
        (429, {}, error("You exceeded your current quota", code="insufficient_quota")),
        no_credit("429: You exceeded your current quota"),
    ),
    "500": Fault((500, {}, {"error": "CUDA error"}), failed("500: CUDA error"), 3),
    "500 for a long prompt": Fault(
        (500, {}, error("Context size has been exceeded.")), too_long("500: Context size has been exceeded")
    ),
    "501": for_all((501, PAGE, "<title>Unsupported method</title>"), no_model("501: Unsupported method")),
    "502": Fault((502, PAGE, "<html>Bad gateway</html>"), failed("502"), 3),
    "503": Fault((503, {}, error("No backend")), failed("503: No backend"), 3),
    "503 for an hour": Fault((503, {"retry-after": "3600"}, ""), failed("503")),
    "503 while a model is loaded": Fault(
        (503, {}, {"error": "Model m is currently loading", "estimated_time": 0.01}),
        busy("503: Model m is currently loading"),
        3,
    ),
    "503 while a model is loaded for long": Fault(
        (503, {}, {"error": "Model m is currently loading", "estimated_time": 900.0}),
        busy("503: Model m is currently loading"),
    ),
    "504": Fault((504, {}, ""), failed("504"), 3),
    "520": Fault((520, PAGE, "<title>Web server error</title>"), failed("520: Web server error"), 3),
    "529": Fault((529, {}, error("Overloaded")), busy("529: Overloaded"), 3),
    # The body
    "an empty body": Fault((200, {}, ""), f"{MODEL} {NOTHING}", 2),
    "no content": Fault((204, {}, ""), f"{MODEL} {NOTHING}", 2),
    "a web page": for_all((200, PAGE, "<!doctype html><p>Log in"), WEB_PAGE),
    "plain words": for_all((200, {}, "plain words"), no_chat("plain words")),
    "JSON cut off": Fault((200, {}, '{"choices": [{"message": {"content": "A re'), CUT, 3),
    "JSON cut off behind a bracket": Fault((200, {}, '{"choices": [{"message": {"content": "A red"}'), CUT, 3),
    "a length that is too long": Fault(Raw(ok("Content-Length: 900\r\n", GOOD.encode())), DAMAGED, 3),
    "a length that is too short": Fault((200, {"content-length": "60"}, GOOD), CUT, 3),
    "broken chunks": Fault(Raw(ok("Transfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n")), DAMAGED, 3),
    "chunks without an end": Fault(Raw(ok("Transfer-Encoding: chunked\r\n", chunked('{"choi'))), DAMAGED, 3),
    "broken gzip": Fault((200, {"content-encoding": "gzip"}, GOOD), DAMAGED, 3),
    "gzip cut off": Fault((200, {"content-encoding": "gzip"}, gzip.compress(GOOD.encode() * 9)[:60]), CUT, 3),
    "a bomb of gzip": for_all(
        (200, {"content-encoding": "gzip"}, gzip.compress(b" " * (server.MOST_BYTES + 1))), TOO_MUCH
    ),
    "an endless body": for_all((200, {}, " " * (server.MOST_BYTES + 1)), TOO_MUCH),
    "UTF-16": for_all((200, {}, GOOD.encode("utf-16")), no_chat("…")),
    "other JSON": for_all((200, {}, {"hello": "world"}), no_chat('{"hello": "world"}')),
    "a list": for_all((200, {}, [1]), no_chat("[1]")),
    "nested deeply": for_all((200, {}, "[" * 100_000), no_chat("[[…")),
    "nested deeply and whole": for_all((200, {}, '{"a":' * 100_000 + "1" + "}" * 100_000), no_chat("…")),
    "thoughts nested deeply": Fault(
        (200, {}, json.dumps(completion("?")).replace('"?"', '[{"thinking":' * 400 + '"hm"' + "}]" * 400)),
        f"{MODEL} {NOTHING}",
        2,
    ),
    "a stream": for_all((200, {}, 'data: {"choices": []}\n\ndata: [DONE]\n'), STREAM),
    "a stream that begins with a remark": for_all(
        (200, {"content-type": "text/event-stream"}, ': waiting\n\ndata: {"choices": []}\n\n'), STREAM
    ),
    "an error inside": Fault((200, {}, error("no credits")), refuses("400: no credits")),
    "an error inside with its status": Fault((200, {}, error("broken", code=500)), failed("500: broken"), 3),
    "an error inside with its status as text": Fault((200, {}, error("broken", code="500")), failed("500: broken"), 3),
    "an error inside without choices": Fault(
        (200, {}, {"choices": [], **error("Provider returned error", code=503)}),
        failed("503: Provider returned error"),
        3,
    ),
    "an error inside as an object": Fault(
        (200, {}, {"object": "error", "message": "Only one model can be loaded", "code": 40303}),
        refuses("400: Only one model can be loaded"),
    ),
    "an error inside a choice": Fault(
        (200, {}, {"choices": [{**error("Provider disconnected", code=502), "message": {}}]}),
        failed("502: Provider disconnected"),
        3,
    ),
    "an error as the end of a choice": Fault(
        (200, {}, completion("A red", finish="error")), failed("502: it broke off the reply"), 3
    ),
    "half a letter in an error": Fault(
        (200, {}, {"error": "half a letter \ud83d"}), refuses("400: half a letter \ufffd")
    ),
    "signs for a terminal in an error": Fault((400, {}, error("\x1b[31mNo\0 way")), refuses("400: [31mNo way")),
    "no choices": Fault((200, {}, {"choices": []}), f"{MODEL} {NOTHING}", 2),
    "choices that are null": Fault((200, {}, {"choices": None}), f"{MODEL} {NOTHING}", 2),
    "no message": for_all((200, {}, {"choices": [{"text": "A red"}]}), no_chat("…")),
    "a message that is null": Fault((200, {}, {"choices": [{"message": None}]}), f"{MODEL} {NOTHING}", 2),
    "content of an unknown kind": for_all((200, {}, completion(5)), no_chat("…")),
    "content that is null": Fault((200, {}, completion(None)), f"{MODEL} {NOTHING}", 2),
    "empty content": Fault((200, {}, completion("")), f"{MODEL} {NOTHING}", 2),
    "an empty list of parts": Fault((200, {}, completion([])), f"{MODEL} {NOTHING}", 2),
    "no reply within the length": Fault(
        (200, {}, completion(None, finish="length")),
        f"{MODEL} spent its longest reply and said nothing: raise the longest reply.",
    ),
    "thoughts longer than the length": Fault(
        (200, {}, completion("<think>hm", finish="length")),
        f"{MODEL} spent its longest reply on thoughts and said nothing: switch thinking off in the profile, or raise "
        "the longest reply.",
    ),
    "thoughts alone": Fault(
        (200, {}, completion("<think>hm</think>")),
        f"{MODEL} replied with thoughts alone: run it again, or fill it in yourself.",
        2,
    ),
    "a reply among the thoughts": Fault(
        (200, {}, completion(None, reasoning_content="red | attribute")),
        f"{MODEL} put its whole reply into reasoning_content, where thoughts belong, and none into content: correct "
        "the reasoning parser of the server, or take another model.",
    ),
    "a refusal": Fault((200, {}, completion(None, refusal="No people.")), f"{MODEL} {REFUSED}"),
    "a tool that is called": Fault(
        (200, {}, completion(None, finish="tool_calls", tool_calls=[{"function": {"name": "reply"}}])),
        f"{MODEL} called a tool instead of replying: switch tools off on the server, or take another model.",
    ),
    "a content filter": Fault((200, {}, completion("", finish="content_filter")), f"{MODEL} {FILTERED}"),
    "a content filter in the middle": Fault(
        (200, {}, completion("A red", finish="content_filter")), f"{MODEL} {FILTERED}"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_true_sentence_and_costs_no_other_reply(
    peer: Misbehaving, language: ServedLanguage, name: str
) -> None:
    fault = FAULTS[name]

    def answer(request: dict[str, Any]) -> Any:
        asked = request["messages"][-1]["content"]
        return fault.answer if asked == "two" else completion(f"a reply to {asked}")

    peer.answers = [answer]
    peer.asked.clear()
    one, two, three = language.complete_many([LanguageRequest(text, 0) for text in ("one", "two", "three")], COLD)
    assert isinstance(two, ServerFault) and said(fault.sentence, peer).fullmatch(str(two)), str(two)
    prompts = [request["messages"][-1]["content"] for request in peer.asked]
    assert prompts == ["one", *["two"] * fault.requests, *["three"] * (not fault.for_all)]
    assert (one, three) == ("a reply to one", two if fault.for_all else "a reply to three")
    assert isinstance(two, NoServer) == fault.for_all and two.prompt == "two"
    if isinstance(fault.answer, tuple) and isinstance(fault.answer[2], str) and fault.answer[2].strip():
        whole = "content-length" not in fault.answer[1] and "content-encoding" not in fault.answer[1]
        assert not whole or two.raw_reply == fault.answer[2][: server.SHOWN]


PICTURE_FAULTS = {
    "no pictures": Fault((400, {}, error("no images here")), refuses("400: no images here")),
    "a picture that is too large": Fault((413, PAGE, "<title>Too Large</title>"), too_large("413: Too Large")),
    "a picture that is too long": Fault((400, {}, error(LONG)), too_long(f"400: {LONG}", "captioner")),
    "a picture that is refused": Fault(
        (200, {}, completion(None, refusal="No people.")), f"The captioner at {{at}} {REFUSED}"
    ),
    "a picture that is filtered": Fault(
        (200, {}, completion("", finish="content_filter")), f"The captioner at {{at}} {FILTERED}"
    ),
    "a picture that ends the server": Fault(Raw(b""), DAMAGED, 3),
    "no words": Fault((200, {}, completion("")), f"The captioner at {{at}} {NOTHING}", 2),
    "no credit": for_all((402, {}, error("Pay")), no_credit("402: Pay")),
}


@pytest.mark.parametrize("name", PICTURE_FAULTS)
def test_a_fault_with_one_picture_costs_no_other_caption(
    peer: Misbehaving, captioner: ServedChatModel, name: str
) -> None:
    fault = PICTURE_FAULTS[name]

    def answer(request: dict[str, Any]) -> Any:
        return fault.answer if request["seed"] == 2 else completion(f"It has seed {request['seed']}.")

    peer.answers = [answer]
    peer.asked.clear()
    picture = Image.new("RGB", (40, 40))
    one, two, three = captioner.caption_many([CaptionRequest(picture, BIRD, n) for n in (1, 2, 3)], CaptionSettings())
    assert isinstance(two, ServerFault) and said(fault.sentence, peer).fullmatch(str(two)), str(two)
    assert [request["seed"] for request in peer.asked] == [1, *[2] * fault.requests, *[3] * (not fault.for_all)]
    assert not isinstance(one, Exception) and one[0] == "It has seed 1."
    assert three == two if fault.for_all else not isinstance(three, Exception) and three[0] == "It has seed 3."


# Servers that give no answer to any request

Surroundings = Callable[[Misbehaving, pytest.MonkeyPatch, ExitStack], str]
"""Arrange a test's surroundings and return the address of a server."""


def nobody(_peer: Misbehaving, _patch: pytest.MonkeyPatch, _stack: ExitStack) -> str:
    return f"http://127.0.0.1:{free_port()}/v1"


def unknown_name(_peer: Misbehaving, patch: pytest.MonkeyPatch, _stack: ExitStack) -> str:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    patch.setattr(socket, "getaddrinfo", unknown)
    return "http://models.invalid/v1"


def no_name(_peer: Misbehaving, _patch: pytest.MonkeyPatch, _stack: ExitStack) -> str:
    return "http://m\u00fcller\u00b7\u2603..models/v1"


def full_queue(_peer: Misbehaving, patch: pytest.MonkeyPatch, stack: ExitStack) -> str:
    """Listen at a port whose queue of connections is full, as at a machine that hangs."""
    patch.setattr(server, "CONNECT_SECONDS", 0.05)
    listening = stack.enter_context(socket.socket())
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    for _ in range(4):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(listening.getsockname())
    return f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def no_tls(peer: Misbehaving, _patch: pytest.MonkeyPatch, _stack: ExitStack) -> str:
    return peer.address.replace("http:", "https:")


def proxy(name: str, url: str = "", scheme: str = "http") -> Surroundings:
    def arranged(peer: Misbehaving, patch: pytest.MonkeyPatch, _stack: ExitStack) -> str:
        for variable in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            patch.delenv(variable, raising=False)
            patch.delenv(variable.upper(), raising=False)
        patch.setenv(name, url or peer.root)
        peer.answers = [(407, PAGE, "<title>Proxy Authentication Required</title>")]
        return f"{scheme}://models.invalid/v1"

    return arranged


NOT_REACHED = "{who} cannot be reached (…): start it, or correct the address in the profile."
PROXY = (
    "{who} cannot be reached by the proxy that the environment names (%s): correct HTTP_PROXY and HTTPS_PROXY, or put "
    "the server's host into NO_PROXY."
)
SURROUNDINGS: dict[str, tuple[Surroundings, str]] = {
    "nobody listens": (nobody, NOT_REACHED),
    "the name is not known": (
        unknown_name,
        "{who} cannot be reached (…not known): start it, or correct the address in the profile.",
    ),
    "the name is none": (no_name, NOT_REACHED),
    "the machine hangs": (full_queue, NOT_REACHED),
    "there is no TLS": (
        no_tls,
        "{who} cannot be reached by https (…SSL…): write http in the address if it has no certificate, or have this "
        "machine trust its certificate (SSL_CERT_FILE).",
    ),
    "the proxy wants a password": (proxy("HTTP_PROXY"), PROXY % "407: Proxy Authentication Required"),
    "the proxy makes no tunnel": (proxy("HTTPS_PROXY", scheme="https"), PROXY % "501 Unsupported method…"),
    "the proxy is away": (proxy("HTTP_PROXY", f"http://127.0.0.1:{free_port()}"), PROXY % "…"),
    "the proxy is of another kind": (proxy("HTTP_PROXY", "gopher://127.0.0.1:70"), PROXY % "Unknown scheme…"),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_server_that_is_not_reached_is_told(peer: Misbehaving, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arranged, sentence = SURROUNDINGS[name]
    with ExitStack() as stack:
        address = arranged(peer, monkeypatch, stack)
        section = ServerLanguage(kind="openai", address=address, model="m", tries=2)
        with pytest.raises(NoServer) as caught:
            ServedLanguage(section)
    sentence = sentence.replace("{who}", f"The server at {section.address}")
    assert said(sentence, peer).fullmatch(str(caught.value)), str(caught.value)
    assert caught.value.raw_reply == "" or name == "the proxy wants a password"


def test_a_server_that_is_too_slow_is_asked_twice(peer: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    section = ServerLanguage(kind="openai", address=peer.address, model="m", timeout=0.1)
    peer.answers = [peer.never, Raw(ok("Content-Length: 900\r\n", b'{"choi'), waits=True)]
    chat, messages = server.ChatServer(section, "model"), [{"role": "user", "content": "one"}]
    sent, exchange = list[str](), chat._exchange

    def counted(method: str, url: str, body: Any) -> Any:
        sent.append(url)  # the server may not have read a request before its time is over
        return exchange(method, url, body)

    monkeypatch.setattr(chat, "_exchange", counted)
    with pytest.raises(ServerFault) as caught:
        chat.chat(messages, longest=9, temperature=0, seed=0)
    assert len(sent) == 2 and not isinstance(caught.value, NoServer)
    assert said(
        f"{AT} gave no whole answer within 0.1 seconds: try again when it is less busy, or raise timeout in the "
        "profile.",
        peer,
    ).fullmatch(str(caught.value))


# Answers that are odd and hold a reply, and faults that pass

THINKING = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
HARMLESS: dict[str, tuple[list[Answer], str]] = {
    "an error that passes": (
        [(429, {"retry-after": "0"}, {}), (503, PAGE, "<html>"), (200, {}, completion("red"))],
        "red",
    ),
    "a loading model": ([(503, {}, {"error": "loading", "estimated_time": 0}), (200, {}, GOOD)], "red"),
    "an answer cut off once": ([(200, {}, GOOD[:50]), (200, {}, GOOD)], "red"),
    "a connection reset once": ([Raw(b"", reset=True), (200, {}, GOOD)], "red"),
    "a connection closed once": ([Raw(ok("Content-Length: 900\r\n", b"{")), (200, {}, GOOD)], "red"),
    "nothing said once": ([(200, {}, completion("")), (200, {}, GOOD)], "red"),
    "no choices once": ([(200, {}, {"choices": []}), (200, {}, GOOD)], "red"),
    "another good status": ([(201, {}, GOOD)], "red"),
    "a byte order mark": ([(200, {}, f"\ufeff{GOOD}")], "red"),
    "blanks that keep the connection open": ([(200, {}, f"\n \n{GOOD}\n")], "red"),
    "another type": ([(200, {"content-type": "text/plain"}, GOOD)], "red"),
    "a wrong charset": (
        [
            (
                200,
                {"content-type": "application/json; charset=latin-1"},
                json.dumps(completion("café"), ensure_ascii=False),
            )
        ],
        "café",
    ),
    "invalid UTF-8": ([(200, {}, GOOD.replace("red", "caf?").encode().replace(b"?", b"\xe9"))], "caf\ufffd"),
    "gzip": ([(200, {"content-encoding": "gzip"}, gzip.compress(GOOD.encode()))], "red"),
    "chunks": ([Raw(ok("Transfer-Encoding: chunked\r\n", chunked(GOOD[:9], GOOD[9:]) + b"0\r\n\r\n"))], "red"),
    "no length": ([Raw(ok("", GOOD.encode()))], "red"),
    "keys twice": ([(200, {}, '{"choices": [], ' + GOOD[1:])], "red"),
    "unknown fields": ([(200, {}, {**completion("red", annotations=[]), "timings": {}})], "red"),
    "numbers that are none": (
        [(200, {}, GOOD.replace("null", '{"completion_tokens": NaN, "total": -Infinity}'))],
        "red",
    ),
    "a huge number of tokens": (
        [(200, {}, completion("<think>hm</think>red", usage={"completion_tokens": 10**400}))],
        "red",
    ),
    "counts in a list": ([(200, {}, completion("red", usage=[1]))], "red"),
    "counts in words": ([(200, {}, completion("red", usage="unknown"))], "red"),
    "thoughts as objects": ([(200, {}, completion("red", reasoning=[{"text": "hm"}]))], "red"),
    "no end": ([(200, {}, completion("red", finish=None))], "red"),
    "no tools": ([(200, {}, completion("red", tool_calls=[], refusal=None))], "red"),
    "parts": ([(200, {}, completion([*THINKING, {"text": "red"}, {"text": None}]))], "red"),
    "a cut reply": ([(200, {}, completion("red and", finish="length"))], "red and"),
    "half a letter": ([(200, {}, completion("red \ud83d"))], "red"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_an_odd_answer_with_a_reply_is_read_and_a_fault_that_passes_is_not_seen(
    peer: Misbehaving, language: ServedLanguage, name: str
) -> None:
    answers, reply = HARMLESS[name]
    peer.answers = list(answers)
    peer.asked.clear()
    read = read_reply(language.complete(LanguageRequest("Which words?", 5), COLD))
    assert read.answer == reply and read.thoughts in ("", "hm")
    assert [request["seed"] for request in peer.asked] == [5] * len(answers)


# Replies that a schema should hold

JSON = '{"keywords": [{"keyword": "red", "edit_type": "attribute"}]}'
REPLIES = {
    "as asked": JSON,
    "in a fence": f"```json\n{JSON}\n```",
    "with words around": f"Here you are:\n{JSON}\nAnything else?",
    "after thoughts": f"<think>The {{bird}} is red.</think>\n{JSON}",
    "after thoughts without a beginning": f"The bird is red.</think>{JSON}",
    "with a comma too many": JSON.replace("}]", "},]"),
    "in Python's notation": JSON.replace('"', "'"),
    "within another object": f'{{"answer": {JSON}}}',
    "with more fields": JSON.replace('{"keyword"', '{"why": null, "keyword"'),
    "in lines": "red | attribute",
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_in_another_form_than_the_schema_is_read(
    peer: Misbehaving, language: ServedLanguage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(language, "holds", "held")
    peer.answers = [(200, {}, completion(REPLIES[name]))]
    peer.asked.clear()
    prompt = DILLEMA.prompts("paper")["keywords"]
    made = run_keywords(Caption("A red bird."), BIRD, language, prompt, KeywordSettings(), 3)
    assert [item.text for item in made.value.items] == ["red"] and made.trace.raw_reply == REPLIES[name]
    assert len(peer.asked) == 1 and "response_format" in peer.asked[0]


@pytest.mark.parametrize(
    ("reply", "finish", "sentence"),
    [
        (
            "Sorry, no.",
            "stop",
            "The language model was asked 2 times for keywords, but it refused (…): run it again, …",
        ),
        ("[]", "stop", "The language model was asked 2 times for keywords, but …: run it again, …"),
        ("[" * 5000, "stop", "The language model was asked 2 times for keywords, but …: run it again, …"),
        (JSON[:30], "length", "The reply was cut off after … tokens: raise the longest reply, or run it again."),
    ],
)
def test_a_reply_without_the_values_of_the_schema_is_told_and_kept(
    peer: Misbehaving, language: ServedLanguage, monkeypatch: pytest.MonkeyPatch, reply: str, finish: str, sentence: str
) -> None:
    monkeypatch.setattr(language, "holds", "held")
    peer.answers = [(200, {}, completion(reply, finish=finish))]
    prompt = DILLEMA.prompts("paper")["keywords"]
    with pytest.raises(UnreadableReply) as caught:
        run_keywords(Caption("A red bird."), BIRD, language, prompt, KeywordSettings(attempts=2), 3)
    assert said(sentence, peer).fullmatch(str(caught.value)), str(caught.value)
    assert caught.value.raw_reply == reply
