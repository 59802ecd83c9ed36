"""Middleware between the guard and Gradio, for scripts that use plain HTTP. Gradio takes the values of a call as a
complete list. A script may instead send values by name, and leave out a value that has a default. The reply to a
mistake is one sentence with a fitting status. Gradio alone would answer with status 500, or with several lines.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from core.errors import UserError
from services.commands import Command
from ui.scripts.endpoints import NO_FIELD, endpoint_of, fields_of
from ui.security.guard import Application, Message, Receive, Scope, Send
from ui.security.request_limits import BadRequest, failed, refusal

PREFIX = "/gradio_api/"
_CALL = re.compile(r"/gradio_api/(run|api|call|call/v2)/([^/]+)/?")
_STREAM = re.compile(r"/gradio_api/call/(?:v2/)?[^/]+/([^/]+)/?")
_QUEUE = re.compile(r"/gradio_api/queue/join/?")
_BY_NAME = "call/v2"
"""Path of calls whose body is an object with the fields by name."""
_OF_PAGES = "predict"
"""Path of calls from Gradio's own page. Their body has the number of the function."""
_KEPT = ("session_hash", "trigger_id")
"""Fields of a call, besides its values, that Gradio gets unchanged."""
_ONE_SESSION = "plain-http"
"""Session for callers who name none. Gradio takes longer to make a session than to give most answers."""
_WORDS: Mapping[int, str] = {
    400: "The request has the wrong form: docs/scripting.md shows the right one.",
    404: "Nothing has this name: the page Scripts lists every endpoint.",
    405: "This address does not accept this method: call endpoints by POST.",
    413: "The file is too large: save it smaller.",
    422: "The request has the wrong form: docs/scripting.md shows the right one.",
    500: "The studio itself failed: the terminal says more.",
}
"""Error sentences by status, instead of the messages of Gradio and FastAPI."""
log = logging.getLogger(__name__)


class PlainHttp:
    """ASGI middleware for calls of endpoints. `functions` maps the number of each Gradio function to its command, or to
    None if only a page calls the function. `has_call` returns True for the id of a known call.
    """

    def __init__(
        self, app: Application, functions: Mapping[int, type[Command] | None], has_call: Callable[[str], bool]
    ) -> None:
        self.app, self._functions, self._has_call = app, functions, has_call
        self._numbers = {endpoint_of(command): number for number, command in functions.items() if command is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        reply, gone = _Reply(scope, receive, send), False

        async def listened() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        try:
            if scope["method"] == "POST":
                scope, sent = await self._shaped(scope, listened)
            else:
                self._require_call(scope["path"])
                sent = listened
            await self.app(scope, sent, reply.send)
        except UserError as error:
            await reply.instead(refusal(error))
        except Exception as error:
            if gone:  # the client left before its request was complete
                return
            if reply.begun:
                raise
            log.exception("%s failed", scope["path"])
            await reply.instead(failed(error))

    def _require_call(self, path: str) -> None:
        """Raise BadRequest if the stream of an unknown call is requested. Gradio would begin it and break it off."""
        match = _STREAM.fullmatch(path)
        if match is not None and not self._has_call(match[1]):
            words = f"There is no call “{match[1]:.80}” whose answer waits: it was fetched, or never made."
            raise BadRequest(404, words)

    async def _shaped(self, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
        call = _CALL.fullmatch(scope["path"])
        if call is None and not _QUEUE.fullmatch(scope["path"]):
            return scope, receive
        data = await Request(scope, receive).body()
        body = _json_object(scope, data)
        way, name = call.groups() if call is not None else ("", _OF_PAGES)
        number = self._number(name, {} if way == _BY_NAME else body)
        command = self._functions[number]
        if command is None:
            return _with_body(scope, receive, data)
        if way != _BY_NAME and "data" not in body and body.keys() - {*_KEPT, "fn_index"}:
            raise BadRequest(400, "Send the values as “data”: a list in their order, or an object by name.", "data")
        values = body if way == _BY_NAME else body.get("data", [])
        passed_on = {} if way == _BY_NAME else {key: body[key] for key in _KEPT if key in body}
        if way == _BY_NAME:
            scope = {**scope, "path": f"{PREFIX}call/{name}", "raw_path": f"{PREFIX}call/{name}".encode()}
        if way in ("run", "api"):
            passed_on.setdefault("session_hash", _ONE_SESSION)
        sent = {**passed_on, "data": _in_order(command, values), "fn_index": number}
        return _with_body(scope, receive, json.dumps(sent).encode())

    def _number(self, name: str, body: Mapping[str, Any]) -> int:
        number = body.get("fn_index") if name == _OF_PAGES else self._numbers.get(name)
        if type(number) is int and number in self._functions:
            return number
        shown = name if number is None else number
        raise BadRequest(404, f"There is no endpoint “{shown!s:.80}”: the page Scripts lists them all.")


class _Reply:
    """Sends replies to the client: Gradio's answers unchanged, and refusals as one sentence."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._refused: Message | None = None
        self._body = b""
        self.begun = False

    async def send(self, message: Message) -> None:
        """Pass on a message of Gradio's answer. Collect the messages of a refusal, to send one sentence instead."""
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._refused = message
        elif self._refused is None or self.begun:
            self.begun = True
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.instead(self._words(self._refused["status"]))

    async def instead(self, response: Response) -> None:
        """Send `response`, unless the sending of another response has begun."""
        if not self.begun:
            self.begun = True
            await response(self._scope, self._receive, self._send)

    def _words(self, status: int) -> Response:
        try:
            content = json.loads(self._body)
        except ValueError:
            content = {}
        content = content if isinstance(content, dict) else {}
        if "title" in content:  # `in_sentences` has raised it and noted its status
            status = self._scope["state"].get("status", 400)
            field = {"field": content["title"]} if content["title"] != NO_FIELD else {}
            return JSONResponse({"error": content["error"], "title": content["title"], **field}, status)
        text = content.get("detail", "")
        if not isinstance(text, str) or not text.endswith(".") or "\n" in text:
            text = _WORDS.get(status) or f"The request was refused ({HTTPStatus(status).phrase.lower()})."
        return JSONResponse({"error": text}, status)


def _json_object(scope: Scope, data: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object; an empty body is an empty object. Raises BadRequest for other bodies."""
    if not data:
        return {}
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise BadRequest(400, "Only JSON is accepted: send it with the content-type application/json.")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRequest(400, "The body is not valid JSON.") from error
    if not isinstance(body, dict):
        raise BadRequest(400, "The body is not a JSON object.")
    return body


def _in_order(command: type[Command], values: Any) -> list[Any]:
    """Return the values of a call in the order of the command's fields, None for missing ones. Raises BadRequest."""
    names = list(fields_of(command))
    takes = f"“{endpoint_of(command)}” takes {', '.join(names) or 'no values'}."
    if isinstance(values, list):
        if len(values) > len(names):
            raise BadRequest(400, f"{len(values)} values were sent, and {takes}", "data")
        return [*values, *[None] * (len(names) - len(values))]
    if not isinstance(values, dict):
        raise BadRequest(400, "“data” must be a list of values in their order, or an object of values by name.", "data")
    for name in values:
        if name not in names:
            raise BadRequest(400, f"There is no field “{name[:80]}”: {takes}", name[:80])
    return [values.get(name) for name in names]


def _with_body(scope: Scope, receive: Receive, body: bytes) -> tuple[Scope, Receive]:
    """Return a request with another body. `receive` returns this body first, then the client's further messages."""
    headers = [(name, value) for name, value in scope["headers"] if name not in (b"content-length", b"content-type")]
    headers += [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
    body_sent = False

    async def again() -> Message:
        nonlocal body_sent
        if body_sent:
            return await receive()
        body_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return {**scope, "headers": headers}, again
