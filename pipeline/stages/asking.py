"""Asks a language model until its reply can be read. Shared by stages 2 to 4. Knows nothing of their questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PIL import Image

from core.csv_tables import cells
from core.errors import CannotLoad, UnreadableReply, UserError
from core.progress import stop_if
from core.settings import LanguageSettings
from core.types import Trace
from pipeline.prompting import Prompt
from pipeline.replies import REPAIRED, is_refusal, read_reply, whole_letters, with_json_repaired
from pipeline.seams import BatchLanguageModel, LanguageModel, LanguageRequest
from pipeline.stages.base import EarlyReply
from pipeline.stages.parsing import Unreadable
from pipeline.stages.reply_schema import Schema, as_lines

V = TypeVar("V")
BETWEEN = "\n\n----\n\n"
"""Separator of the prompts, and of the replies, in a trace of more than one call."""


@dataclass(frozen=True)
class Answer(Generic[V]):
    """A value read from a reply, with the prompt, the seed and the number of attempts."""

    value: V
    prompt: str
    raw_reply: str
    """The whole reply, thoughts included."""
    seed: int
    """Seed of the attempt that gave the value."""
    attempts: int
    seconds: float
    notes: tuple[str, ...] = ()
    """Remarks for a person about the reply, one sentence each."""

    def trace(self, model: LanguageModel, settings: LanguageSettings) -> Trace:
        """Return the trace of a value that consists of this answer alone."""
        read = cells(self, "prompt raw_reply seed attempts seconds notes")
        return Trace("model", model.name, settings=settings.model_dump(mode="json"), **read)


@dataclass(frozen=True)
class NoAnswer:
    """Result of an inquiry if all attempts failed: the error, and the prompt and reply of the last attempt."""

    error: UserError
    prompt: str
    raw_reply: str
    attempts: int
    reason: str = ""
    """Why no reply could be read, as a clause; "" if no reply came."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inquiry(Generic[V]):
    """The request for one reply."""

    values: Mapping[str, str | int]
    read: Callable[[str], V]
    """Parses a reply. Raises `Unreadable` for a reply that it cannot use."""
    seed: int
    """Seed of the first attempt. Later attempts take the next seeds."""
    shortcomings: Callable[[V], int] = lambda _value: 0
    schema: Schema | None = None
    """Schema that constrains the model if possible. The reply may be JSON that fits it, or lines, or neither."""
    pictures: tuple[Image.Image, ...] = ()
    """RGB pictures that the prompt is about, for a model that sees."""


def joined_trace(
    model: str,
    sent: Sequence[Answer[Any] | NoAnswer | EarlyReply | UnreadableReply],
    settings: LanguageSettings,
    seed: int,
    start: float,
    notes: Iterable[str],
) -> Trace:
    """Return one trace for a value made from several requests, the first sent at `start` (a `time.monotonic`)."""
    return Trace(
        author="model",
        model=model,
        prompt=BETWEEN.join(each.prompt for each in sent),
        raw_reply=BETWEEN.join(each.raw_reply for each in sent),
        settings=settings.model_dump(mode="json"),
        seed=seed,
        attempts=max((each.attempts for each in sent), default=1),
        seconds=time.monotonic() - start,
        notes=tuple(dict.fromkeys(notes)),
    )


def ask(
    what: str,
    language_model: LanguageModel,
    prompt: Prompt,
    inquiry: Inquiry[V],
    settings: LanguageSettings,
    cancelled: threading.Event | None = None,
) -> Answer[V]:
    """Ask until a reply has no shortcomings, at most `settings.attempts` times. Return the readable reply with the
    fewest shortcomings. The first attempt takes `inquiry.seed`, each further attempt the next seed. Messages call
    the requested thing `what`. Raises UnreadableReply if no reply is readable, and Cancelled between two replies.
    """
    attempts = _Attempts(what, prompt, inquiry, settings)
    while attempts.wanted:
        stop_if(cancelled)
        attempts.take(language_model.complete(attempts.request(), settings))
    stop_if(cancelled if attempts.best is None else None)
    return attempts.answer()


def ask_all(
    what: str,
    language_model: LanguageModel,
    prompt: Prompt,
    inquiries: Sequence[Inquiry[V]],
    settings: LanguageSettings,
    on_done: Callable[[int], None] = lambda _done: None,
    cancelled: threading.Event | None = None,
) -> list[Answer[V] | NoAnswer]:
    """Return the answer to each inquiry (see `ask`), or its NoAnswer. A model that takes several requests gets all of
    them together. Inquiries without a good reply are then sent again, except after CannotLoad, which would occur again.
    `on_done` is called with the number of finished inquiries, beginning with 0. Raises Cancelled.
    """
    every = [_Attempts(what, prompt, inquiry, settings) for inquiry in inquiries]
    if not isinstance(language_model, BatchLanguageModel):
        for_all: CannotLoad | None = None
        for number, attempts in enumerate(every):
            on_done(number)
            while attempts.wanted:
                stop_if(cancelled)
                try:
                    if for_all is not None:
                        raise for_all
                    attempts.take(language_model.complete(attempts.request(), settings))
                except UserError as error:
                    attempts.fail(error)
                    for_all = error if isinstance(error, CannotLoad) else None
            stop_if(cancelled if attempts.best is None else None)
        on_done(len(every))
        return [attempts.result() for attempts in every]
    settled = most = 0

    def told(replies: int) -> None:
        nonlocal most
        stop_if(cancelled)
        if settled + replies > most:  # replies to repeated requests were counted already
            most = settled + replies
            on_done(min(most, len(every) - 1))

    stop_if(cancelled)
    on_done(0)
    while unfinished := [attempts for attempts in every if attempts.wanted]:
        settled = len(every) - len(unfinished)
        replies = language_model.complete_many([attempts.request() for attempts in unfinished], settings, told)
        for attempts, reply in zip(unfinished, replies, strict=True):
            if isinstance(reply, UserError):
                attempts.fail(reply)
            else:
                attempts.take(reply)
        stop_if(cancelled)
    on_done(len(every))
    return [attempts.result() for attempts in every]


def require_one(results: Sequence[Answer[V] | NoAnswer]) -> None:
    """Raise an error if all inquiries failed: the first CannotLoad, or the first error if none is a CannotLoad."""
    errors = [result.error for result in results if isinstance(result, NoAnswer)]
    if errors and len(errors) == len(results):
        raise next((error for error in errors if isinstance(error, CannotLoad)), errors[0])


def unanswered(results: Sequence[Answer[V] | NoAnswer]) -> list[str]:
    """Return a list with one sentence on the inquiries without an answer. The list is empty if all have an answer."""
    errors = [result.error for result in results if isinstance(result, NoAnswer)]
    return [f"{len(errors)} of {len(results)} requests have no reply to use. {errors[0]}"] if errors else []


class _Attempts(Generic[V]):
    """The attempts of one inquiry: the next seed, the best reply, and when to stop."""

    def __init__(self, what: str, prompt: Prompt, inquiry: Inquiry[V], settings: LanguageSettings) -> None:
        self._what, self._inquiry, self._most = what, inquiry, settings.attempts
        self._text, self._stop = prompt.evaluate(**inquiry.values), prompt.stop
        self._start, self._made, self._reply, self._reason = time.monotonic(), 0, "", ""
        self.best: tuple[int, V, str, int, tuple[str, ...]] | None = None
        """The best reply as (number of shortcomings, value, text, seed, notes). None until a reply could be read."""
        self._seconds = 0.0
        self._error: UserError | None = None

    @property
    def wanted(self) -> bool:
        if isinstance(self._error, CannotLoad):
            return False
        return self._made < self._most and (self.best is None or self.best[0] > 0)

    def request(self) -> LanguageRequest:
        one = self._inquiry
        return LanguageRequest(self._text, one.seed + self._made, self._stop, one.schema, one.pictures)

    def take(self, reply: str) -> None:
        seed, self._error = self._inquiry.seed + self._made, None
        self._made, self._reply, self._seconds = self._made + 1, whole_letters(reply), time.monotonic() - self._start
        parsed, schema = read_reply(reply), self._inquiry.schema
        answer = with_json_repaired(parsed.answer, (schema or {}).get("properties", ()))
        try:
            value = self._inquiry.read(as_lines(answer, schema))
        except Unreadable as error:
            thoughts_alone = parsed.thoughts and not parsed.answer
            self._reason = "it replied with thoughts alone" if thoughts_alone else str(error)
            if is_refusal(parsed.answer):
                self._reason = f"it refused ({self._reason})"
            return
        shortcomings = self._inquiry.shortcomings(value)
        if self.best is None or shortcomings < self.best[0]:
            notes = (REPAIRED,) if answer != parsed.answer else ()
            self.best = (shortcomings, value, self._reply, seed, notes)

    def fail(self, error: UserError) -> None:
        """Count an attempt without a reply. It is the last one if the model cannot be loaded."""
        self._made, self._error, self._reply = self._made + 1, error, ""
        if isinstance(error, UnreadableReply):
            self._reply = error.raw_reply

    def result(self) -> Answer[V] | NoAnswer:
        try:
            return self.answer()
        except UserError as error:
            return NoAnswer(error, self._text, self._reply, self._made, "" if self._error else self._reason)

    def answer(self) -> Answer[V]:
        if self.best is None and self._error is not None:
            raise self._error
        if self.best is None:
            times = "once" if self._made == 1 else f"{self._made} times"
            message = (
                f"The language model was asked {times} for {self._what}, but {self._reason}: run it again, or fill "
                "them in yourself."
            )
            raise UnreadableReply(message, self._text, self._reply, self._made)
        _, value, reply, seed, notes = self.best
        return Answer(value, self._text, reply, seed, self._made, self._seconds, notes)
