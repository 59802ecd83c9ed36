"""A language model on an OpenAI-compatible server. A test request shows whether it really enforces a JSON schema."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from core.errors import UnreadableReply, UserError
from core.settings import LanguageSettings
from pipeline.models.captioner_chat import beside_pictures, data_url, fitting
from pipeline.models.language import require_room
from pipeline.models.server import ChatServer, NoServer, NothingSaid, Refused, ServerFault, ServerReply, side_by_side
from pipeline.profiles.text_sections import ServerJudge, ServerLanguage
from pipeline.replies import read_reply, whole_letters
from pipeline.seams import LanguageRequest
from pipeline.stages.reply_schema import object_schema

log = logging.getLogger(__name__)

Holding = Literal["held", "asked", "none"]
"""Way to get replies that fit a schema: the server enforces it, the prompt asks for it, or neither works."""

TEMPLATE_ROOM = 64
"""Number of tokens that a chat template may add to a prompt."""
PROBE_SCHEMA = object_schema({"colour": {"type": "string", "enum": ["red", "blue"]}, "empty": {"type": "boolean"}})
PROBE_PROMPT = "Say hello."
"""Prompt that does not ask for JSON. If the reply still fits the schema, the server enforces schemas."""


class ServedLanguage:
    """A language model on a server."""

    def __init__(self, section: ServerLanguage, role: str = "language model") -> None:
        """Find out if the server enforces schemas, or the model follows them. Raises ServerFault if requests fail."""
        self._section = section
        self.server = ChatServer(section, role)
        self.holds: Holding = self._probe()
        self._context = self.server.context_length()
        self.name = f"{section.title} by a server, schema {self.holds}"

    def _probe(self) -> Holding:
        # The limit is enough for the short reply, and for thoughts before it.
        settings = LanguageSettings(temperature=0, max_new_tokens=1000 if self._section.thinking else 60)
        thinks = True
        while thinks:  # a second time if the model thought, since the next request asks it not to think
            before = self.server.told_not_to_think
            try:
                if fits_probe(self._say(LanguageRequest(PROBE_PROMPT, 0, schema=PROBE_SCHEMA), settings).text):
                    return "held"
            except NoServer:
                raise
            except ServerFault as error:
                log.info("The server did not take a schema: %s", error)
            thinks = self.server.told_not_to_think != before
        try:
            reply = self._say(LanguageRequest(in_words(PROBE_PROMPT, PROBE_SCHEMA), 0), settings)
        except NothingSaid:
            return "none"
        return "asked" if fits_probe(reply.text) else "none"

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """Return the reply to a prompt. If the server enforces the schema, the reply fits. If the server does not, but
        the model follows schemas in prompts, the prompt gets the schema, and the reply may not fit.
        Raises UserError if prompt and longest reply exceed the context, UnreadableReply if a reply with a schema was
        cut off, and the errors of `ChatServer.chat`.
        """
        prompt, schema = request.prompt, request.schema
        if schema is not None and self.holds == "held":
            self._require_room(prompt, settings)
            try:
                return _whole(self._say(replace(request, stop=()), settings), prompt, settings)
            except Refused as error:
                log.warning("The server does not take this schema, so it goes into the prompt: %s", error)
        if schema is not None and self.holds != "none":
            prompt = in_words(prompt, schema)
            self._require_room(prompt, settings)
            in_prompt = replace(request, prompt=prompt, stop=(), schema=None)
            return _whole(self._say(in_prompt, settings), prompt, settings)
        self._require_room(prompt, settings)
        return self._say(replace(request, schema=None), settings).text

    def complete_many(
        self,
        requests: Sequence[LanguageRequest],
        settings: LanguageSettings,
        on_reply: Callable[[int], None] = lambda _done: None,
    ) -> Sequence[str | UserError]:
        """See `BatchLanguageModel.complete_many`. The profile sets the number of parallel requests (`side_by_side`)."""
        return side_by_side(requests, lambda one: self.complete(one, settings), self._section.parallel, on_reply)

    def _say(self, request: LanguageRequest, settings: LanguageSettings) -> ServerReply:
        system = [{"role": "system", "content": self._section.system}] if self._section.system else []
        return self.server.chat(
            [*system, {"role": "user", "content": self._content(request)}],
            longest=settings.max_new_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p if settings.temperature else 1.0,
            seed=request.seed,
            stop=[s for s in request.stop if s],
            schema=request.schema,
        )

    def _content(self, request: LanguageRequest) -> str | list[dict[str, Any]]:
        return request.prompt

    def _require_room(self, prompt: str, settings: LanguageSettings) -> None:
        """Raise UserError if prompt and longest reply exceed the context. Short prompts pass without a token count."""
        text = f"{self._section.system}\n{prompt}" if self._section.system else prompt
        most = len(text.encode(errors="replace")) + settings.max_new_tokens + TEMPLATE_ROOM
        if self._context and most > self._context and (tokens := self.server.count(text)) is not None:
            require_room(tokens, settings, self._context)


class ServedJudge(ServedLanguage):
    """A chat model on a server that sees pictures. They are sent as data URLs."""

    def __init__(self, section: ServerJudge) -> None:
        self._max_pixels = section.max_pixels
        super().__init__(section, "judge")

    @property
    def tokens(self) -> int:
        return self.server.tokens

    def _content(self, request: LanguageRequest) -> str | list[dict[str, Any]]:
        if not request.pictures:
            return super()._content(request)
        urls = [data_url(fitting(picture, self._max_pixels)) for picture in request.pictures]
        return beside_pictures([{"type": "image_url", "image_url": {"url": url}} for url in urls], request.prompt)


def _whole(reply: ServerReply, prompt: str, settings: LanguageSettings) -> str:
    """Return the text of a reply that has to fit a schema. Raises UnreadableReply if it was cut off."""
    if reply.cut:
        raise UnreadableReply(
            f"The reply was cut off after {settings.max_new_tokens} tokens: raise the longest reply, or run it again.",
            prompt,
            whole_letters(reply.text),
            attempts=1,
        )
    return reply.text


def in_words(prompt: str, schema: Mapping[str, Any]) -> str:
    """Return the prompt with a schema at its end, for a server that does not enforce schemas."""
    return (
        f"{prompt}\n\nReply with one JSON value that fits the following JSON schema, and with nothing else:\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )


def fits_probe(text: str) -> bool:
    """Return True if the reply to the test request fits its schema, even within a Markdown code fence."""
    fenced = re.fullmatch(r"```\w*\n(.*?)\n?```", answer := read_reply(text).answer, re.DOTALL)
    try:
        data = json.loads(fenced[1] if fenced else answer)
    except ValueError:
        return False
    return (
        isinstance(data, dict)
        and set(data) == set(PROBE_SCHEMA["required"])
        and data["colour"] in ("red", "blue")
        and isinstance(data["empty"], bool)
    )
