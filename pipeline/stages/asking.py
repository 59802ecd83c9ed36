"""Asks a language model until its reply can be read. What stages 2 to 4 share; knows nothing of what they ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipeline.errors import UnreadableReply
from pipeline.parsing import Unreadable
from pipeline.progress import stop_if
from pipeline.prompting import Prompt
from pipeline.reply_schema import Schema, as_lines
from pipeline.seams import LanguageModel
from pipeline.settings import LanguageSettings
from pipeline.types import Trace

V = TypeVar("V")


@dataclass(frozen=True)
class Answer(Generic[V]):
    """What was read, and how it came about."""

    value: V
    prompt: str
    raw_reply: str
    seed: int
    """Of the attempt that gave the value."""
    attempts: int
    """How often was asked in all."""
    seconds: float

    def trace(self, model: LanguageModel, settings: LanguageSettings) -> Trace:
        """How a value came about that is this answer and nothing else."""
        return Trace(
            author="model",
            model=model.name,
            prompt=self.prompt,
            raw_reply=self.raw_reply,
            settings=settings.model_dump(mode="json"),
            seed=self.seed,
            attempts=self.attempts,
            seconds=self.seconds,
        )


def ask(
    what: str,
    language_model: LanguageModel,
    prompt: Prompt,
    values: dict[str, str | int],
    read: Callable[[str], V],
    settings: LanguageSettings,
    seed: int,
    shortcomings: Callable[[V], int] = lambda _value: 0,
    schema: Schema | None = None,
    cancelled: threading.Event | None = None,
) -> Answer[V]:
    """The first reply without shortcomings, asked for with `seed`, `seed + 1`, ... at most `settings.attempts` times.

    When all were asked for, the readable one with the fewest shortcomings (of two, the earlier). `read` raises
    `Unreadable` for a reply that it cannot use; raises UnreadableReply, with the last reply, when none could be read.
    `schema` is what the model is held to where it can be: its reply may be JSON that fits it, or lines, or neither.
    `what` is what was asked for, in words, for that message. Raises Cancelled between two replies.
    """
    text, start = prompt.evaluate(**values), time.monotonic()
    best: tuple[int, V, str, int] | None = None
    reply, reason, attempt = "", "", 0
    for attempt in range(1, settings.attempts + 1):
        stop_if(cancelled)
        reply = language_model.complete(text, settings, seed + attempt - 1, prompt.stop, schema)
        try:
            value = read(as_lines(reply, schema))
        except Unreadable as error:
            reason = str(error)
            continue
        found = shortcomings(value)
        if best is None or found < best[0]:
            best = (found, value, reply, seed + attempt - 1)
        if found == 0:
            break
    if best is None:
        stop_if(cancelled)
        times = "once" if attempt == 1 else f"{attempt} times"
        message = (
            f"The language model was asked {times} for {what}, but {reason}: run it again, or fill them in yourself."
        )
        raise UnreadableReply(message, text, reply, attempt)
    _, value, reply, used_seed = best
    return Answer(value, text, reply, used_seed, attempt, time.monotonic() - start)
