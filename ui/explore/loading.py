"""Text and title of the Explore page until Gradio's scripts have loaded. These bring their own `head` and title."""

from __future__ import annotations

import json
from pathlib import Path

from ui.security.guard import Application, Message, Receive, Scope, Send
from ui.theme import MISSING

STILL_LOADING = "This page is still loading. If it does not appear, check the connection, then reload the page."
PATIENCE = 8
"""Seconds after which a page that is still empty tells the person what to do."""
_PAGE, _HEAD = "/", b"<head>"
# The style is inline because Gradio's scripts also load the style sheets.
_FIRST = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
for _name, _value in (("MISSING_WORDS", MISSING), ("LOADING_WORDS", STILL_LOADING), ("PATIENCE", 1000 * PATIENCE)):
    _FIRST = _FIRST.replace(_name, json.dumps(_value))


class SaysWhatIsMissing:
    """ASGI middleware that inserts `_FIRST` into the Explore page's document. Gradio compresses this document later."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != _PAGE:
            await self.app(scope, receive, send)
            return
        begun: Message = {}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.update(message)
                return
            if begun:
                start = dict(begun)
                begun.clear()
                body = message.get("body", b"")
                message = {**message, "body": body.replace(_HEAD, _HEAD + _FIRST.encode(), 1)}
                more = len(message["body"]) - len(body)
                start["headers"] = [
                    (name, str(int(value) + more).encode() if name.lower() == b"content-length" else value)
                    for name, value in start["headers"]
                ]
                await send(start)
            await send(message)

        await self.app(scope, receive, sending)
