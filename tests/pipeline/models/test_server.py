"""Models on an OpenAI-compatible server that answers as a test says. `test_server_faults.py` has its faults, and
`test_captioners.py` uses real servers.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from core.errors import Cancelled, CannotLoad, UnreadableReply, UserError
from core.model_sections import ROOT
from core.progress import stoppable
from core.settings import (
    AlternativeSettings,
    CaptionSettings,
    CounterfactualSettings,
    KeywordSettings,
    LanguageSettings,
    Settings,
)
from core.types import Caption, Task
from experiments.driving import produce
from pipeline.driver import Driver, SourceWork
from pipeline.lots import run_stages
from pipeline.models import Models, load_models, server
from pipeline.models.captioner_chat import ServedChatModel, fitting
from pipeline.models.server import ChatServer, NoServer, ServerFault
from pipeline.models.server_language import ServedLanguage
from pipeline.profiles.profile import PROFILES, Profile, load_profile
from pipeline.profiles.text_sections import (
    Blip2Captioner,
    ChatCaptioner,
    Florence2Captioner,
    ServerCaptioner,
    ServerJudge,
    ServerLanguage,
)
from pipeline.recipes import DILLEMA
from pipeline.replies import read_reply
from pipeline.request import MemoryStore, Request
from pipeline.seams import BatchCaptioner, BatchLanguageModel, CaptionRequest, LanguageRequest
from tests.support.misbehaving import Answer, Misbehaving, completion
from tests.support.scripted import ScriptedModels
from tests.support.serving import until
from tests.support.stages import run_caption, run_keywords

BIRD = Task("classification", label="bird")
COLD = LanguageSettings(temperature=0, max_new_tokens=50)
SCHEMA = {"type": "object", "properties": {"words": {"type": "array"}}}
HELD = '{"colour": "red", "empty": false}'


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Misbehaving]:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.01)
    made = Misbehaving()
    yield made
    made.close()


def language(peer: Misbehaving, probed: str = "", **section: Any) -> ServedLanguage:
    """Return the model on this server, whose first question got the answer `probed`. Then forget the recorded
    requests.
    """
    after, peer.answers = peer.answers, [(200, {}, completion(probed or "Hello!"))]
    model = ServedLanguage(ServerLanguage(kind="openai", address=peer.address, model="m", **section))
    peer.answers = after
    peer.asked.clear()
    peer.headers.clear()
    return model


# How the server handles a schema


@pytest.mark.parametrize(
    ("answer", "holds", "requests"),
    [
        (lambda request: completion(HELD if "response_format" in request else "Hello!"), "held", 1),
        (
            lambda request: completion(f"```json\n{HELD}\n```" if "JSON schema" in str(request) else "Hello!"),
            "asked",
            2,
        ),
        (lambda request: completion("Hello!"), "none", 2),
        (lambda request: completion('{"colour": "green", "empty": false}'), "none", 2),
    ],
)
def test_what_becomes_of_a_schema_is_tried_and_stands_in_the_name(
    peer: Misbehaving, answer: Answer, holds: str, requests: int
) -> None:
    peer.answers = [answer]
    model = ServedLanguage(ServerLanguage(kind="openai", address=peer.address, model="Qwen/Qwen3-8B"))
    assert (model.holds, model.name) == (holds, f"Qwen/Qwen3-8B by a server, schema {holds}")
    assert len(peer.asked) == requests
    assert peer.asked[0]["response_format"]["json_schema"]["strict"] is True and peer.asked[0]["temperature"] == 0


def test_a_server_that_refuses_schemas_is_asked_in_words(peer: Misbehaving) -> None:
    peer.answers = [(400, {}, {"error": {"message": "response_format is not supported"}}), (200, {}, completion(HELD))]
    model = ServedLanguage(ServerLanguage(kind="openai", address=peer.address, model="m"))
    assert model.holds == "asked" and "JSON schema" in peer.asked[1]["messages"][0]["content"]


def test_a_schema_is_held_asked_for_in_words_or_left_out(peer: Misbehaving) -> None:
    model = language(peer, HELD)
    assert model.complete(LanguageRequest("Which words?", 7, ("\n",), SCHEMA), COLD) == "a reply"
    assert peer.asked[-1]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "stop" not in peer.asked[-1], "it would end the JSON in its middle"
    model.complete(LanguageRequest("Which words?", 7, ("\n",)), COLD)
    assert "response_format" not in peer.asked[-1] and peer.asked[-1]["stop"] == ["\n"]

    model.holds, peer.answers = "asked", [(200, {}, completion('```json\n{"words": []}\n```'))]
    assert "```" in model.complete(LanguageRequest("Which words?", 7, ("\n",), SCHEMA), COLD), (
        "the stage sees what the model wrote"
    )
    said = peer.asked[-1]["messages"][0]["content"]
    assert said.startswith("Which words?") and said.endswith(json.dumps(SCHEMA))

    model.holds = "none"
    model.complete(LanguageRequest("Which words?", 7, ("\n",), SCHEMA), COLD)
    assert peer.asked[-1]["messages"][0]["content"] == "Which words?" and "response_format" not in peer.asked[-1]


def test_a_schema_that_the_server_does_not_take_goes_into_the_prompt(peer: Misbehaving) -> None:
    model = language(peer, HELD)
    peer.answers = [(400, {}, {"error": {"message": "Unsupported keyword: maxLength"}}), (200, {}, completion("{}"))]
    assert model.complete(LanguageRequest("Which words?", 7, schema=SCHEMA), COLD) == "{}"
    assert "response_format" not in peer.asked[1] and "JSON schema" in str(peer.asked[1])


# Fields of a request


def test_a_request_holds_the_settings_and_the_key(peer: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    model = language(peer, key_variable="MY_KEY", system="Be brief.", more={"reasoning_effort": "none"})
    settings = LanguageSettings(temperature=0.7, top_p=0.8, max_new_tokens=99)
    model.complete(LanguageRequest("Which words?", 12, ("</s>", "", "[INST]")), settings)
    sent = peer.asked[0]
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Which words?"},
    ]
    assert (sent["model"], sent["seed"], sent["max_tokens"], sent["stop"]) == ("m", 12, 99, ["</s>", "[INST]"])
    assert (sent["temperature"], sent["top_p"], sent["reasoning_effort"]) == (0.7, 0.8, "none")
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert peer.headers[0]["authorization"] == "Bearer sk-very-secret"
    model.complete(LanguageRequest("Which words?", 12), COLD)
    assert (peer.asked[1]["temperature"], peer.asked[1]["top_p"]) == (0, 1), "the likeliest text"


def test_stops_hold_where_the_server_does_not_know_them(peer: Misbehaving) -> None:
    peer.answers = [(200, {}, completion("red | attribute\nTask: another"))]
    stops = ("1", "2", "3", "4", "\nTask:")
    assert language(peer).complete(LanguageRequest("Which words?", 0, stops), COLD) == "red | attribute"
    assert len(peer.asked[0]["stop"]) == 4


def test_fields_that_a_server_does_not_know_are_left_out_from_then_on(peer: Misbehaving) -> None:
    model = language(peer)
    peer.answers = [
        (422, {}, {"detail": "Unexpected fields in the request: {'chat_template_kwargs'}"}),
        (400, {}, {"error": {"message": "Use 'max_completion_tokens' instead of 'max_tokens'."}}),
        (200, {}, completion("red")),
    ]
    assert (
        model.complete(LanguageRequest("Which words?", 0), COLD)
        == model.complete(LanguageRequest("Which words?", 0), COLD)
        == "red"
    )
    for sent in peer.asked[2:]:
        assert "chat_template_kwargs" not in sent and "max_tokens" not in sent
        assert sent["max_completion_tokens"] == 50 and sent["seed"] == 0
    assert len(peer.asked) == 4


# Faults


@pytest.mark.parametrize("answer", [(503, {"retry-after": "50"}, {}), None])
def test_stopping_a_stage_does_not_wait_for_the_server(
    peer: Misbehaving, tmp_path: Path, answer: Answer | None
) -> None:
    profile, stop = load_profile(str(served(tmp_path, peer.address))), threading.Event()
    probed: Answer = (200, {}, completion("Hello!"))
    peer.answers = [probed, probed, answer or peer.never]

    def stop_when_asked() -> None:
        until(lambda: len(peer.asked) == 3)
        stop.set()

    thread = threading.Thread(target=stop_when_asked)
    thread.start()
    driver, values = Driver(profile, load_models(profile)), {"caption": Caption("A red bird.")}
    with pytest.raises(Cancelled):
        produce(driver, DILLEMA, "keywords", Image.new("RGB", (8, 8)), BIRD, values, cancelled=stop)
    thread.join()
    assert len(peer.asked) == 3


def test_the_key_never_shows(peer: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    model = language(peer, key_variable="MY_KEY")
    for long in (0, 285, 3960):  # in the last two the message, or the raw reply, is cut within the key
        peer.answers = [(401, {}, {"error": {"message": f"{'x' * long} Incorrect: sk-very-secret"}})]
        with pytest.raises(NoServer, match="environment variable MY_KEY") as caught:
            model.complete(LanguageRequest("Which words?", 0), COLD)
        assert "sk-" not in f"{caught.value} {caught.value.raw_reply}"
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(CannotLoad, match=r"variable MY_KEY, which is not set"):
        language(peer, key_variable="MY_KEY")


def test_the_stage_shows_the_raw_reply(peer: Misbehaving) -> None:
    model, prompt = language(peer), DILLEMA.prompts("paper")["keywords"]
    caption = Caption("A red bird.")
    peer.answers = [(200, {}, completion("red | attribute"))]
    made = run_keywords(caption, BIRD, model, prompt, KeywordSettings(), 3)
    assert [item.text for item in made.value.items] == ["red"] and made.trace.model == "m by a server, schema none"
    peer.answers = [(200, {}, completion("Sorry."))]
    with pytest.raises(UnreadableReply, match="asked 2 times") as unread:
        run_keywords(caption, BIRD, model, prompt, KeywordSettings(attempts=2), 3)
    assert unread.value.raw_reply == "Sorry."
    peer.answers = [(400, {}, "I am no teapot")]
    with pytest.raises(UnreadableReply, match="refuses the request") as refused:
        run_keywords(caption, BIRD, model, prompt, KeywordSettings(), 3)
    assert (refused.value.raw_reply, refused.value.attempts) == ("I am no teapot", 0), "no seed is spent"


def test_a_stage_reads_the_json_that_a_server_holds(peer: Misbehaving) -> None:
    model, prompt = language(peer, HELD), DILLEMA.prompts("paper")["keywords"]
    said = '{"keywords": [{"keyword": "red", "edit_type": "attribute"}]}'
    peer.answers = [(200, {}, completion(said))]
    made = run_keywords(Caption("A red bird."), BIRD, model, prompt, KeywordSettings(), 3)
    assert [item.text for item in made.value.items] == ["red"] and made.trace.raw_reply == said
    asked = peer.asked[-1]["response_format"]["json_schema"]["schema"]["properties"]["keywords"]
    offered = asked["items"]["properties"]["keyword"]["enum"]
    assert "red" in offered and "bird" not in offered, "the label stays"


def said_at_once(request: dict[str, Any]) -> dict[str, Any]:
    """Return a reply that fits the schema, to a request of one of three stages or of all three."""
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    if set(fields) == {"keywords", "captions"}:
        one = {"keyword": "red", "edit_type": "attribute", "alternatives": ["blue", "green"]}
        assert "red" in fields["keywords"]["items"]["properties"]["keyword"]["enum"]
        new = {"edits": ["red -> blue"], "caption": "A blue bird."}
        return completion(json.dumps({"keywords": [one], "captions": [new]}))
    said = {"keywords": [{"keyword": "red", "edit_type": "attribute"}], "red": ["white"], "caption": "A white bird."}
    return completion(json.dumps({name: said[name] for name in fields}))


def test_one_request_is_held_to_its_schema_and_a_server_that_cuts_it_is_asked_stage_by_stage(
    peer: Misbehaving,
) -> None:
    profile = load_profile("demo").model_copy(update={"prompts": "paper"})
    models: Any = ScriptedModels()
    models.language = language(peer, HELD)
    settings = Settings(
        keywords=KeywordSettings(together=True, max_new_tokens=100),
        alternatives=AlternativeSettings(max_new_tokens=200),
        counterfactuals=CounterfactualSettings(captions=1, max_new_tokens=300),
    )
    request = Request(BIRD, settings, stages=DILLEMA.names[1:], images=())
    peer.answers, driver = [said_at_once], Driver(profile, models)
    for cut, alternative, asked in ((False, "blue", 1), (True, "white", 4)):
        if cut:
            peer.answers = [lambda _request: completion('{"keywords": [{"keyw', finish="length"), said_at_once]
        peer.asked.clear()
        store = MemoryStore(Image.new("RGB", (8, 8)), {"caption": Caption("A red bird.")})
        driver.run(request, store)
        values = store.values()
        assert [item.text for item in values["counterfactuals"].value.items] == [f"A {alternative} bird."]
        assert len(peer.asked) == asked and peer.asked[0]["max_tokens"] == 600, "as long as all three may be"
        notes = values["keywords"].trace.notes
        assert ["cut off after 600 tokens" in note for note in notes] == [True] * cut


def test_half_a_reply_to_a_schema_is_told_as_that(peer: Misbehaving) -> None:
    model = language(peer, HELD)
    peer.answers = [(200, {}, completion('{"words": ["re', finish="length"))]
    with pytest.raises(UnreadableReply, match="cut off after 50 tokens: raise the longest reply") as caught:
        model.complete(LanguageRequest("Which words?", 0, schema=SCHEMA), COLD)
    assert caught.value.raw_reply == '{"words": ["re'
    assert model.complete(LanguageRequest("Which words?", 0), COLD) == '{"words": ["re', (
        "as other models give what they have"
    )


# Several at once


def test_requests_are_sent_side_by_side_and_answered_in_order(peer: Misbehaving) -> None:
    model = language(peer, parallel=3)
    assert isinstance(model, BatchLanguageModel)
    together = threading.Barrier(3)

    def echo(request: dict[str, Any]) -> dict[str, Any]:
        together.wait(30)  # the barrier breaks, and the test fails, if fewer requests run at once
        return completion(f"{request['messages'][-1]['content']} {request['seed']}")

    peer.answers, told = [echo], list[int]()
    asked = [LanguageRequest(f"number {n}", seed=n) for n in range(6)]
    assert list(model.complete_many(asked, COLD, told.append)) == [f"number {n} {n}" for n in range(6)]
    assert told == [1, 2, 3, 4, 5, 6]


def test_pictures_are_sent_side_by_side_and_the_fault_of_one_is_its_own(peer: Misbehaving) -> None:
    captioner = ServedChatModel(ServerCaptioner(kind="openai", address=peer.address, model="m", parallel=3))
    assert isinstance(captioner, BatchCaptioner)
    together = threading.Barrier(3)

    def see(request: dict[str, Any]) -> dict[str, Any]:
        together.wait(30)  # the barrier breaks, and the test fails, if fewer requests run at once
        if request["seed"] == 4:
            return {"error": {"code": 400, "message": "not that"}}
        return completion(f"It has seed {request['seed']}.")

    peer.answers = [see]
    asked = [CaptionRequest(Image.new("RGB", (40, 40)), BIRD, seed) for seed in range(6)]
    said = captioner.caption_many(asked, CaptionSettings())
    assert isinstance(said[4], ServerFault) and "not that" in str(said[4]) and len(peer.asked) == 6
    captions = [one[0] for one in said if not isinstance(one, UserError)]
    assert captions == [f"It has seed {seed}." for seed in (0, 1, 2, 3, 5)]


def test_one_picture_that_a_server_refuses_fails_its_source_alone(peer: Misbehaving) -> None:
    models = ScriptedModels()
    models.captioner = cast(Any, ServedChatModel(ServerCaptioner(kind="openai", address=peer.address, model="m")))

    def see(request: dict[str, Any]) -> dict[str, Any]:
        if request["seed"] == 1:
            return {"error": {"code": 400, "message": "not that"}}
        return completion("A red bird in sunny weather.")

    peer.answers = [see]
    works = [
        SourceWork(
            Request(BIRD, Settings(), seed=seed, stages=("caption",), images=()), MemoryStore(Image.new("RGB", (9, 9)))
        )
        for seed in range(3)
    ]
    ended = run_stages(Driver(load_profile("demo"), models), works)
    assert isinstance(ended[1], ServerFault) and ended[0] is ended[2] is None
    assert len(peer.asked) == 3, "each once"
    assert [len(work.store.values()) for work in works] == [1, 0, 1]


def test_stopping_does_not_wait_for_requests_that_are_on_their_way(peer: Misbehaving) -> None:
    model, stop = language(peer, parallel=2), threading.Event()
    peer.answers = [peer.never]

    def stop_when_asked() -> None:
        until(lambda: len(peer.asked) == 2)
        stop.set()

    thread = threading.Thread(target=stop_when_asked)
    thread.start()
    with stoppable(stop), pytest.raises(Cancelled):
        model.complete_many([LanguageRequest(str(n), 0) for n in range(5)], COLD)
    thread.join()
    assert len(peer.asked) == 2


# Length of the context


@pytest.mark.parametrize(
    "count",
    [
        lambda sent: {"count": len(sent["messages"][0]["content"].split())},  # vLLM
        lambda sent: {"tokens": sent.get("content", "").split()},  # llama-server
        lambda sent: (
            {"tokens": sent["prompt"].split()} if "prompt" in sent else {"error": "prompt is missing"}
        ),  # SGLang
    ],
)
def test_a_prompt_that_is_too_long_is_counted_before(peer: Misbehaving, count: Answer) -> None:
    peer.others = {"/v1/models": (200, {}, {"data": [{"id": "m", "max_model_len": 300}]}), "/tokenize": count}
    model = language(peer)
    with pytest.raises(UserError, match=r"300 tokens long and the reply may take 50 more.*at most 300 tokens"):
        model.complete(LanguageRequest("word " * 300, 0), COLD)
    assert peer.asked == []
    assert model.complete(LanguageRequest("word " * 200, 0), COLD) == "a reply"


def test_without_a_count_the_server_has_the_word(peer: Misbehaving) -> None:
    assert language(peer, context_length=300).complete(LanguageRequest("word " * 300, 0), COLD) == "a reply"


# Thinking


def test_thoughts_are_counted(peer: Misbehaving) -> None:
    model = language(peer, thinking=True)
    assert model.server.thought == 0
    peer.answers = [
        (200, {}, completion("red", reasoning_content="hm " * 9, usage={"completion_tokens": 10})),
        (200, {}, completion("red", reasoning="hm", usage={"completion_tokens_details": {"reasoning_tokens": 40}})),
    ]
    replies = [read_reply(model.complete(LanguageRequest("Which words?", 0), COLD)) for _ in range(2)]
    assert [reply.answer for reply in replies] == ["red", "red"] and model.server.thought == 9 + 40
    assert [reply.thoughts for reply in replies] == [("hm " * 9).strip(), "hm"], "the trace keeps them"
    assert "chat_template_kwargs" not in peer.asked[0]
    language(peer, more={"chat_template_kwargs": {"thinking": False}}).complete(
        LanguageRequest("Which words?", 0), COLD
    )
    assert peer.asked[0]["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}


def test_a_model_that_thinks_nevertheless_is_told_in_another_way(peer: Misbehaving) -> None:
    def thinking(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("reasoning_effort") == "none":
            return completion(HELD)
        return completion("", reasoning="The user wants", finish="length", usage={"completion_tokens": 60})

    peer.answers = [thinking]
    model = ServedLanguage(ServerLanguage(kind="openai", address=peer.address, model="qwen3:8b"))
    assert (model.holds, model.server.thought, len(peer.asked)) == ("held", 60, 2)
    assert model.complete(LanguageRequest("Which words?", 0), COLD) == HELD


def test_a_stop_within_thoughts_ends_nothing(peer: Misbehaving) -> None:
    peer.answers = [(200, {}, completion("<think>Task: words</think>red | attribute\nTask: another"))]
    reply = read_reply(language(peer).complete(LanguageRequest("Which words?", 0, ("Task:",)), COLD))
    assert (reply.answer, reply.thoughts) == ("red | attribute", "Task: words")


def test_half_a_letter_goes_into_no_record(peer: Misbehaving) -> None:
    captioner = ServedChatModel(ServerCaptioner(kind="openai", address=peer.address, model="m"))
    peer.answers = [(200, {}, completion("A red bird in the sun. \ud83d"))]
    made = run_caption(Image.new("RGB", (40, 40)), BIRD, captioner, CaptionSettings(), 0)
    assert made.value.text == "A red bird in the sun."
    assert made.trace.raw_reply.encode() == "A red bird in the sun. \ufffd".encode()


# A captioner on a server


def seen(request: dict[str, Any]) -> Image.Image:
    """Return the picture in the request."""
    url = request["messages"][0]["content"][0]["image_url"]["url"]
    return Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))


def test_a_served_captioner_sees_the_picture(peer: Misbehaving) -> None:
    peer.answers = [lambda request: completion(f"It is {seen(request).getpixel((0, 0))} of {seen(request).size}.")]
    section = ServerCaptioner(kind="openai", address=peer.address, model="Qwen/Qwen3-VL-4B", max_pixels=5000)
    captioner = ServedChatModel(section)
    assert peer.asked == [] and captioner.name == "Qwen/Qwen3-VL-4B by a server"
    settings = CaptionSettings(max_new_tokens=70)
    caption, prompt = captioner.caption(Image.new("RGB", (97, 33), (1, 2, 3)), BIRD, settings, 4)
    assert caption == "It is (1, 2, 3) of (97, 33)."
    assert BIRD.describe() in prompt and prompt == peer.asked[0]["messages"][0]["content"][1]["text"]
    sent = peer.asked[0]
    assert (sent["max_tokens"], sent["temperature"], sent["seed"]) == (70, 0, 4) and "response_format" not in sent
    caption, _ = captioner.caption(Image.new("RGB", (1000, 500)), BIRD, settings, 4)
    assert caption == "It is (0, 0, 0) of (100, 50).", "within the limit of pixels"
    peer.answers = [(400, {}, {"error": {"message": "no images here"}})]
    with pytest.raises(ServerFault, match=r"refuses the request \(400: no images here\)"):
        captioner.caption(Image.new("RGB", (8, 8)), BIRD, settings, 4)


@pytest.mark.parametrize(
    ("size", "becomes"),
    [((640, 480), (640, 480)), ((2000, 1000), (1414, 707)), ((1, 1), (32, 32)), ((9000, 3), (9000, 90))],
)
def test_pictures_fit_any_processor(size: tuple[int, int], becomes: tuple[int, int]) -> None:
    assert fitting(Image.new("RGB", size), 1_000_000).size == becomes
    assert fitting(Image.new("RGB", size[::-1]), 1_000_000).size == becomes[::-1]


# The profile


def served(folder: Path, address: str, **replaced: str) -> Path:
    """Write the demo profile with its captioner and language model on a server. Return its path."""
    text = (PROFILES / "demo.toml").read_text()
    start, end = text.index("[captioner]"), text.index("[sentences]")
    section = f'kind = "openai"\naddress = "{address}"\nmodel = "m"\n'
    text = f"{text[:start]}[captioner]\n{section}\n[language]\n{section}\n{text[end:]}"
    for old, new in replaced.items():
        text = text.replace(old, new, 1)
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def test_a_profile_names_servers(peer: Misbehaving, tmp_path: Path) -> None:
    profile = load_profile(str(served(tmp_path, f"{peer.address}/chat/completions/")))
    models: Models = load_models(profile)
    models.check()
    written = profile.model_dump(mode="json")
    assert peer.address not in json.dumps(written), "records are handed on"
    assert Profile.model_validate(written).model_dump(mode="json") == written
    assert {"captioner", "language model"}.isdisjoint(profile.weights())
    assert isinstance(models.captioner, ServedChatModel)
    assert models.language.complete(LanguageRequest("Which words?", 0), COLD) == "a reply"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "m"', "", r"lacks captioner.model:"),
        ('model = "m"', 'model = "m"\nkey = "sk-secret"', r"unknown key: captioner.key; take it out"),
        ('model = "m"', 'model = "m"\nkey_variable = "sk-secret"', r"key_variable must be the name of an environment"),
        ("http://", "", r'address must be a URL such as "http'),
        ("http://", "http://me:secret@", r"address must have no user name, no password"),
        ('model = "m"', 'model = "m"\nmore = { seed = 3 }', r"seed is set by the studio itself"),
        ('model = "m"', 'model = "m"\nprompt = "$label!"', r"may contain \$task and no other"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load_profile(str(served(tmp_path, "http://127.0.0.1:9/v1", **{old: new})))
    assert "secret" not in str(caught.value)


def test_the_sections_of_the_guide_are_read() -> None:
    guide = (ROOT / "docs" / "captioners-and-servers.md").read_text()
    blocks = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)]
    kinds = set()
    for block in blocks:
        data = tomllib.loads((PROFILES / "paper.toml").read_text())
        for name, section in block.items():
            data[name] = {**data[name], **section} if name == "settings" else section
        profile = Profile.model_validate(data)
        kinds |= {type(getattr(profile, name)) for name in block if name != "settings"}
    assert kinds == {Blip2Captioner, Florence2Captioner, ChatCaptioner, ServerCaptioner, ServerLanguage, ServerJudge}


def test_several_ask_at_once(peer: Misbehaving) -> None:
    peer.answers = [lambda request: completion(request["messages"][-1]["content"])]
    chat = ChatServer(ServerLanguage(kind="openai", address=peer.address, model="m"), "model")

    def ask(number: int) -> str:
        messages = [{"role": "user", "content": f"number {number}"}]
        return chat.chat(messages, longest=9, temperature=0, seed=0).text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [f"number {number}" for number in range(8)]
