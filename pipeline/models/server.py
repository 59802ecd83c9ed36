"""A client of an OpenAI-compatible server: sends several chat requests at once. After a temporary fault, the request is
sent again. If the server sends anything but a model's reply, the error is one sentence that quotes the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from core.data_files import DataTable
from core.errors import CannotLoad, UnreadableReply, UserError
from core.progress import stop_if, stop_signal
from pipeline.profiles.text_sections import Server
from pipeline.replies import read_reply, whole_letters, with_thoughts

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds between two tries: the first pause, which doubles, and the longest one that a server may ask for."""
CONNECT_SECONDS = 10.0
"""Maximum seconds for connecting, so that a server that is down is noticed before the timeout of a whole answer."""
MOST_BYTES = 8 << 20
"""Maximum bytes of one answer."""
SHOWN = 4_000
"""Maximum number of letters of an answer that are kept with an error."""
MOST_STOPS = 4
"""Maximum number of stop texts that OpenAI's own server takes. The studio cuts replies at further stop texts."""

_FAULTS, _INSTEAD = DataTable(__file__, str, "faults"), DataTable(__file__, str, "instead")

Q = TypeVar("Q")
A = TypeVar("A")

_TOO_LONG = re.compile(r"context[ _](length|size|window)|prompt is too long", re.IGNORECASE)
"""Matches complaints about a long prompt, in the words of vLLM, SGLang, llama-server, LM Studio and OpenAI."""
_FILTERED = re.compile(r"content[ _](filter|management|policy)|input was flagged|moderation_blocked", re.IGNORECASE)
"""Matches refusals of one prompt by a content filter, in the words of Azure, OpenAI and OpenRouter."""
_NO_PICTURES = re.compile(
    r"not a multi-?modal model|mmproj|missing data required for image|no endpoints found that support image"
    r"|(?:image|vision)\w*(?: \w+)? (?:is|are) (?:not (?:supported|enabled)|only supported)"
    r"|not support (?:image|vision|multi-?modal)",
    re.IGNORECASE,
)
"""Matches refusals of all pictures, in the words of vLLM, llama-server, Ollama, OpenRouter, OpenAI and others."""


class ServerFault(UnreadableReply):
    """The server sent no reply of the model to one request. The error's `raw_reply` is what the server sent instead."""

    def __init__(self, message: str, prompt: str = "", raw_reply: str = "") -> None:
        super().__init__(message, prompt, raw_reply, attempts=0)  # no seed is spent: another try takes it again


class NoServer(ServerFault, CannotLoad):
    """The server cannot answer any request, so all other requests would fail in the same way."""


class NothingSaid(ServerFault):
    """The server answered, but its answer contains no reply of the model."""


class Refused(ServerFault):
    """The server rejects this request."""


class _Passing(Exception):
    """A temporary fault: another try may succeed. `told` is the error to report if all tries fail."""

    def __init__(self, fault: ServerFault, wait: float | None = None, most: int = 10) -> None:
        super().__init__(str(fault))
        self.told, self.wait, self.most = fault, wait, most


@dataclass(frozen=True)
class ServerReply:
    """A model's reply, as its server sent it."""

    text: str
    """Raw text of the reply, for `read_reply`. Thoughts that the server sent separately come first."""
    cut: bool
    """True if the reply ended because it reached its maximum length."""
    thought: int
    """Number of tokens that were spent on thoughts, estimated if the server does not report them."""


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):  # the latter for thousands of nested brackets
            return None

    @property
    def is_page(self) -> bool:
        return "html" in self.headers.get("content-type", "") or self.text.lstrip()[:1] == "<"

    @property
    def is_cut(self) -> bool:
        """True if the answer is JSON of a chat completion that breaks off before its end."""
        text = self.text.strip()
        opened = text[-1:] != "}" or text.count("{") > text.count("}")
        return self.json() is None and text[:1] == "{" and opened

    @property
    def is_stream(self) -> bool:
        """True if the answer has the reply in pieces, as server-sent events."""
        return "event-stream" in self.headers.get("content-type", "") or self.text.lstrip().startswith("data:")

    @property
    def said(self) -> str:
        """The server's message about a fault, in one line, or "" without one. It may contain the secret key."""
        content = self.json()
        content = _error_in(content) or content
        behind = content.get("metadata") if isinstance(content, dict) else None
        for key in ("message", "detail"):
            if isinstance(content, dict) and content.get(key):
                content = content[key]
        if self.is_page:
            title = re.search(r"<title>(.*?)</title>", self.text, re.IGNORECASE | re.DOTALL)
            content = title[1].strip().removeprefix(str(self.status)) if title else ""
        elif not content:
            content = self.text if self.json() is None else ""
        words = content if isinstance(content, str) else json.dumps(content)
        if isinstance(behind, dict) and isinstance(raw := behind.get("raw"), str):  # a router quotes its provider
            words = f"{words}: {raw}"
        return " ".join("".join(sign if sign.isprintable() else " " for sign in whole_letters(words)).split())


class ChatServer:
    """One model of one server. Every method may be called from any thread, and by several threads at once."""

    def __init__(self, section: Server, role: str) -> None:
        """`role` names the purpose of the model, such as "language model". Raises CannotLoad if the key is missing."""
        import httpx

        self._section, self._role = section, role
        self._address = section.address
        secure = self._address.startswith("https:")
        self._tls: ssl.SSLContext | bool = httpx.create_ssl_context() if secure else False
        # A proxy from the environment serves other machines, never this one.
        self._local = urlsplit(self._address).hostname in ("localhost", "127.0.0.1", "::1")
        self._key = self._find_key()
        self._without: set[str] = set()
        self._longest_field = "max_tokens"
        self._counts = True
        self._lock = threading.Lock()
        self.thought = 0
        """Number of tokens that were spent on thoughts so far."""
        self.tokens = 0
        """Number of tokens read and written so far, as far as the server reports them."""
        self.told_not_to_think = False
        """True if the model thought against its instructions. Later requests then also set `reasoning_effort`."""

    def _find_key(self) -> str:
        variable = self._section.key_variable
        key = os.environ.get(variable, "").strip() if variable else ""
        if variable and not key:
            raise CannotLoad(self._sentence("key_not_set", variable=variable))
        if not key.isascii() or not key.isprintable():
            raise CannotLoad(self._sentence("no_key", variable=variable))
        if key and not self._local and not self._address.startswith("https:"):
            log.warning(
                "The key in %s goes unencrypted to %s: an address with https keeps it.", variable, self._address
            )
        return key

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        longest: int,
        temperature: float,
        seed: int,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ServerReply:
        """Return the model's answer to `messages`, up to a stop text or `longest` tokens. The `schema`, if any, is sent
        along. Raises ServerFault if this request fails, NoServer if every request would fail, and Cancelled.
        """
        body: dict[str, Any] = {
            "model": self._section.model,
            "messages": list(messages),
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed,
            self._longest_field: longest,
            **self._section.more,
        }
        if stop:
            body["stop"] = list(stop[:MOST_STOPS])
        if schema is not None:
            named_schema = {"name": "reply", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": named_schema}
        if not self._section.thinking:
            body["chat_template_kwargs"] = {"enable_thinking": False, **body.get("chat_template_kwargs", {})}
            if self.told_not_to_think:
                body.setdefault("reasoning_effort", "none")
        body = {name: value for name, value in body.items() if name not in self._without}
        reply = self._tried(body, _words_of(messages))
        read = read_reply(reply.text)
        if ends := [at for s in stop if s and (at := read.answer.find(s)) >= 0]:
            return ServerReply(with_thoughts(read.thoughts, read.answer[: min(ends)].strip()), False, reply.thought)
        return reply

    def _tried(self, body: dict[str, Any], prompt: str) -> ServerReply:
        tries = 0
        while True:
            try:
                return self._once(body, prompt)
            except _Passing as error:
                tries += 1
                if tries >= min(self._section.tries, error.most):
                    raise error.told from error
                log.info("Another try: %s", error)
                doubling = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1) + random.uniform(0, FIRST_WAIT / 2))
                (stop_signal() or threading.Event()).wait(doubling if error.wait is None else error.wait)
                stop_if(stop_signal())

    def _once(self, body: dict[str, Any], prompt: str) -> ServerReply:
        answer = self._send("POST", "/chat/completions", body, prompt)
        while answer.status in (400, 422) and (left := self._left_out(body, answer.said)) is not None:
            body = left
            answer = self._send("POST", "/chat/completions", body, prompt)
        if answer.status // 100 == 2 and (error := _error_in(answer.json())) is not None:
            # Some servers report a failure with status 200.
            code = str(error.get("code")) if isinstance(error, dict) else ""
            answer = replace(answer, status=int(code) if re.fullmatch("[45][0-9][0-9]", code) else 400)
        if answer.status // 100 != 2:
            shows = any(not isinstance(message["content"], str) for message in body["messages"])
            raise self._fault(answer, prompt, shows)
        return self._read(answer, prompt)

    def _left_out(self, body: dict[str, Any], message: str) -> dict[str, Any] | None:
        """Return the request without the field that the server rejected, or None. Later requests omit the field too."""
        if "max_completion_tokens" in message and "max_tokens" in body:
            self._longest_field = "max_completion_tokens"
            return {("max_completion_tokens" if name == "max_tokens" else name): body[name] for name in body}
        for name in ("chat_template_kwargs", "reasoning_effort", "seed", "top_p", "temperature"):
            if name in body and name not in self._section.more and re.search(rf"\b{name}\b", message):
                if name in ("seed", "top_p", "temperature"):
                    log.warning("The server at %s does not take %s: its replies go without.", self._address, name)
                self._without.add(name)
                return {other: value for other, value in body.items() if other != name}
        return None

    def _read(self, answer: _Answer, prompt: str) -> ServerReply:
        data = answer.json()
        nothing = self._sentence("nothing", what="nothing")
        if not answer.text.strip():
            raise _Passing(NothingSaid(nothing, prompt), most=2)
        if data is None and answer.is_page:
            raise NoServer(self._sentence("web_page"), prompt, self._shown(answer.text))
        if answer.is_stream:
            raise NoServer(self._sentence("stream"), prompt, self._shown(answer.text))
        if answer.is_cut:
            raise _Passing(ServerFault(self._sentence("cut"), prompt, self._shown(answer.text)))
        try:
            choice = (data["choices"] or [{"message": None}])[0]
            message = choice["message"] or {}
            content, thoughts = _texts(message.get("content"))
            texts = {name: message.get(name) for name in ("reasoning_content", "reasoning")}
            field = next((name for name, text in texts.items() if text and isinstance(text, str)), "")
            thoughts += message[field] if field else ""
            usage = data.get("usage")
        except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            problem = self._sentence("no_completion", said=self._masked(answer.said)[:120])
            raise NoServer(problem, prompt, self._shown(answer.text)) from error
        text = with_thoughts(thoughts, content)
        read = read_reply(text)
        usage = usage if isinstance(usage, dict) else {}
        thought = _count_thoughts(usage, read.thoughts, read.answer)
        with self._lock:
            self.thought += thought
            self.tokens += _total_tokens(usage)
        if thought:
            log.info("%s spent %d tokens on thoughts.", self._section.model, thought)
            self.told_not_to_think = not self._section.thinking
        end, raw = choice.get("finish_reason"), self._shown(answer.text)
        if end == "content_filter" or not read.answer:
            if why := self._why_nothing(message, end, thought, "" if content.strip() else field):
                raise NothingSaid(f"The {self._role} at {self._address} {why}.", prompt, raw)
            nothing = self._sentence("nothing", what="thoughts alone") if thought else nothing
            raise _Passing(NothingSaid(nothing, prompt, raw), most=2)
        return ServerReply(text, end == "length", thought)

    def _why_nothing(self, message: Mapping[str, Any], end: object, thought: int, thoughts_field: str) -> str:
        """Return a sentence on what came instead of an answer and what to do, or "" if another try may help."""
        if refusal := message.get("refusal"):
            words = self._masked(" ".join(whole_letters(str(refusal)).split()))[:200]
            return _INSTEAD["refusal"].format(words=words)
        if end == "content_filter":
            return _INSTEAD["content_filter"]
        if message.get("tool_calls") or message.get("function_call"):
            return _INSTEAD["tool"]
        if end == "length":
            return _INSTEAD["thoughts_too_long" if thought else "length"]
        return _INSTEAD["wrong_field"].format(field=thoughts_field) if thoughts_field else ""

    def _fault(self, answer: _Answer, prompt: str, shows: bool) -> Exception:
        """Return the error for a response that reports a failure. `shows` is True if the request had pictures."""
        status = answer.status
        quoted = self._masked(answer.said)[:300].rstrip(". ")
        words = f" ({status}: {quoted})" if quoted else f" ({status})"
        raw = self._shown(answer.text)
        if shows and not answer.is_page and _NO_PICTURES.search(answer.said):
            return NoServer(self._sentence("no_pictures", model=self._section.model, words=words), prompt, raw)
        if status in (400, 413, 422, 500) and _TOO_LONG.search(answer.said):
            return ServerFault(self._sentence("prompt_too_long", words=words), prompt, raw)
        if status in (400, 403) and not answer.is_page and _FILTERED.search(answer.text):
            return NothingSaid(f"The {self._role} at {self._address} {_INSTEAD['content_filter']}.", prompt, raw)
        if status == 413:
            return ServerFault(self._sentence("too_large", words=words), prompt, raw)
        variable = self._section.key_variable
        denied = "wrong_key" if variable else "needs_key"
        no_credit = status == 402 or (status == 429 and "insufficient_quota" in answer.text)
        if fault := "no_credit" if no_credit else {401: denied, 403: denied, 407: "proxy"}.get(status):
            return NoServer(self._sentence(fault, words=words, variable=variable), prompt, raw)
        if status in (404, 405, 501):
            known = self.models()
            has = f"; it has {', '.join(sorted(known)[:10])}" if known else ""
            return NoServer(self._sentence("no_model", model=self._section.model, words=words, has=has), prompt, raw)
        if 300 <= status < 400:
            to = self._masked(answer.headers.get("location", "elsewhere"))[:200]
            return NoServer(self._sentence("elsewhere", to=to), prompt, raw)
        if status == 429 or status >= 500 or status in (408, 409, 425):
            full = status in (429, 529) or (status == 503 and "loading" in quoted.lower())
            sentence = self._sentence("too_many" if full else "failed", words=words)
            return self._later(ServerFault(sentence, prompt, raw), answer)
        return Refused(self._sentence("refused", words=words), prompt, raw)

    def _later(self, fault: ServerFault, answer: _Answer) -> Exception:
        """Return an error that leads to another try after the server's pause, or `fault` if the pause is too long."""
        wait, data = _seconds_until(answer.headers.get("retry-after", "")), answer.json()
        if wait is None and isinstance(data, dict) and isinstance(data.get("estimated_time"), int | float):
            wait = max(0.0, data["estimated_time"])
        if wait is None:
            return _Passing(fault)
        return _Passing(fault, wait) if wait <= LONGEST_WAIT else fault

    def _sentence(self, fault: str, **values: str | float) -> str:
        who = f"The server at {self._address}"
        return _FAULTS[fault].format(who=who, address=self._address, role=self._role, **values)

    def _shown(self, raw: str) -> str:
        return self._masked(raw)[:SHOWN]

    def _masked(self, text: str) -> str:
        """Mask the key in a text, since some servers repeat it. Do so before a text is cut, or half a key may stay."""
        return text.replace(self._key, "…") if self._key else text

    # Facts about the server

    def models(self) -> dict[str, Mapping[str, Any]]:
        """Return the server's models by id; empty if it does not list them."""
        try:
            data = self._send("GET", "/models", None, "").json()
        except (_Passing, ServerFault):
            return {}
        rows = data.get("data") if isinstance(data, dict) else None
        return {str(row["id"]): row for row in rows or () if isinstance(row, dict) and "id" in row}

    def context_length(self) -> int:
        """Return the maximum tokens of prompt and reply together, from the profile or the server; 0 if unknown."""
        if self._section.context_length:
            return self._section.context_length
        row = self.models().get(self._section.model, {})
        meta = row.get("meta")
        lengths = [row.get(name) for name in ("max_model_len", "loaded_context_length", "context_length")]
        lengths.append(meta.get("n_ctx") if isinstance(meta, dict) else None)
        return next((value for value in lengths if isinstance(value, int) and value > 0), 0)

    def count(self, text: str) -> int | None:
        """Count the tokens of a prompt if the server can (vLLM, SGLang and llama-server do), else return None."""
        if not self._counts:
            return None
        model, messages = self._section.model, [{"role": "user", "content": text}]
        for fields in ({"messages": messages}, {"content": text, "add_special": True}, {"prompt": text}):
            try:
                answer = self._send("POST", "/tokenize", {"model": model, **fields}, text, root=True)
            except (_Passing, ServerFault):
                break
            data = answer.json()
            if answer.status == 200 and isinstance(data, dict):
                pieces = data.get("tokens")
                count = data.get("count") or (len(pieces) if isinstance(pieces, list) else 0)
                if isinstance(count, int) and count > 0:
                    return count
        self._counts = False
        return None

    # HTTP

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, prompt: str, root: bool = False) -> _Answer:
        import httpx

        address = self._address.removesuffix("/v1") if root else self._address
        try:
            return asyncio.run(self._exchange(method, address + path, body))
        except TimeoutError as error:
            fault = ServerFault(self._sentence("too_slow", seconds=self._section.timeout), prompt)
            # A server that is too slow is not made faster by asking it more often.
            raise _Passing(fault, most=2) from error
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
            raise self._no_answer(error, prompt) from error
        except _TooMuch as error:
            raise NoServer(self._sentence("too_much", most=MOST_BYTES >> 20), prompt) from error

    def _no_answer(self, error: Exception, prompt: str) -> Exception:
        """Return the error for a request without an answer, or with an answer that cannot be read."""
        import httpx

        why = self._masked((str(error) or type(error).__name__).splitlines()[0].rstrip("."))[:120]
        if "[SSL" in why:
            return NoServer(self._sentence("no_tls", why=why), prompt)
        if re.match("illegal (status|request) line", why):  # another protocol than HTTP
            return NoServer(self._sentence("no_completion", said=why), prompt)
        parts = urlsplit(self._address)
        proxied = parts.scheme in getproxies() and not (self._local or proxy_bypass(parts.hostname or ""))
        if isinstance(error, httpx.ProxyError) or (proxied and isinstance(error, httpx.ConnectError)):
            return _Passing(NoServer(self._sentence("proxy", words=f" ({why})"), prompt))
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL):
            return _Passing(NoServer(self._sentence("not_reached", why=why), prompt))
        return _Passing(ServerFault(self._sentence("damaged", why=why), prompt))

    async def _exchange(self, method: str, url: str, body: Mapping[str, Any] | None) -> _Answer:
        """Return the answer to a request. A signal to stop ends the request at once and closes its connection."""
        import httpx

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Timeout(None, connect=min(CONNECT_SECONDS, self._section.timeout))

        async def read() -> _Answer:
            try:
                opened = httpx.AsyncClient(verify=self._tls, trust_env=not self._local, timeout=limits)
            except (ImportError, ValueError) as error:  # the environment names a proxy of a kind that is not known
                raise httpx.ProxyError(str(error)) from error
            async with opened as client, client.stream(method, url, json=body, headers=headers) as response:
                data = bytearray()
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > MOST_BYTES:
                        raise _TooMuch
                return _Answer(response.status_code, response.headers, data.decode("utf-8-sig", errors="replace"))

        stopped, reading = stop_signal(), asyncio.ensure_future(read())
        try:
            async with asyncio.timeout(self._section.timeout):
                while not reading.done():
                    await asyncio.wait({reading}, timeout=0.1)  # seconds until a request to stop is noticed
                    stop_if(stopped)
            return reading.result()
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, httpx.HTTPError, _TooMuch):
                await reading


class _TooMuch(Exception):
    """The answer has more than `MOST_BYTES`."""


def side_by_side(
    requests: Sequence[Q], ask: Callable[[Q], A], parallel: int, on_reply: Callable[[int], None] = lambda _done: None
) -> list[A | UserError]:
    """Return for each request the result of `ask` or its UserError. `parallel` requests run at once. After a NoServer,
    unsent requests get the same error. `on_reply` gets the number of finished requests, in this thread, and may raise
    to stop. Raises Cancelled.
    """
    down: list[NoServer] = []

    def one(request: Q) -> A | UserError:
        if down:
            return down[0]
        stop_if(stop_signal())
        try:
            return ask(request)
        except UserError as error:
            if isinstance(error, NoServer):
                down.append(error)
            return error

    with ThreadPoolExecutor(min(parallel, len(requests) or 1)) as pool:
        # Each request runs in the context of this thread, so that stopping this thread stops the requests.
        sent = [pool.submit(copy_context().run, one, request) for request in requests]
        try:
            for done, reply in enumerate(as_completed(sent), 1):
                reply.result()
                on_reply(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [reply.result() for reply in sent]


def _seconds_until(retry_after: str) -> float | None:
    """Return the seconds of a header Retry-After, which has a number or a date (RFC 9110); None if it has neither."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(retry_after).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


def _error_in(found: Any) -> Any:
    if not isinstance(found, dict):
        return None
    if found.get("error"):
        return found["error"]
    choices = found.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    if choice.get("error") or choice.get("finish_reason") == "error":
        error = choice.get("error") or "it broke off the reply"
        return {"code": 502, **(error if isinstance(error, dict) else {"message": error})}
    return found if found.get("object") == "error" else None


def _texts(content: Any) -> tuple[str, str]:
    """Return the text and the thoughts of a message. Raises TypeError or AttributeError for unknown content."""
    if isinstance(content, list):
        thoughts = [_texts(part["thinking"])[0] for part in content if part.get("thinking")]
        return "".join(part.get("text") or "" for part in content), "".join(thoughts)
    return "" + (content or ""), ""


def _count_thoughts(usage: Mapping[str, Any], thoughts: str, reply: str) -> int:
    details = usage.get("completion_tokens_details")
    reported = details.get("reasoning_tokens") if isinstance(details, dict) else None
    if isinstance(reported, int) and reported > 0:
        return reported
    if not thoughts:
        return 0
    spent = usage.get("completion_tokens")
    if isinstance(spent, int) and spent < 1e9:
        return max(1, round(spent * len(thoughts) / (len(thoughts) + len(reply))))
    return max(1, len(thoughts) // 4)


def _total_tokens(usage: Mapping[str, Any]) -> int:
    total = usage.get("total_tokens")
    parts = [total] if isinstance(total, int) else [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return sum(number for number in parts if isinstance(number, int) and 0 <= number < 1e9)


def _words_of(messages: Sequence[Mapping[str, Any]]) -> str:
    content = messages[-1]["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")
