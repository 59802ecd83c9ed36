"""What a stage says while it works, and how long the rest will take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from core.errors import Cancelled
from core.types import StageName


@dataclass(frozen=True)
class Progress:
    """How far a stage is. Counts the smallest steps there are: captions in stage 4, denoising steps in stage 5."""

    stage: StageName
    done: int
    total: int
    seconds_left: float | None = None
    """None as long as nothing was measured."""
    note: str = ""
    """In words, such as "image 2 of 6"."""
    step: int = 0
    """Of the images that are drawn now: how many denoising steps they have behind them."""


OnProgress = Callable[[Progress], None]


class Pace:
    """Measures steps as they are done and tells the rest; `seconds_per_step`, when known, serves until the first."""

    def __init__(self, total: int, seconds_per_step: float | None = None) -> None:
        self.total, self._known, self._start = total, seconds_per_step, time.monotonic()

    def seconds_left(self, done: int) -> float | None:
        """Seconds until all steps are done, or None when nothing was measured yet."""
        if done <= 0:
            return None if self._known is None else self._known * self.total
        return (time.monotonic() - self._start) / done * (self.total - done)


class StepTimer:
    """Tells how long steps take, of however many there are: `known`, until the first was taken here."""

    def __init__(self, known: float | None = None) -> None:
        self.steps = 0.0
        """Steps done since the beginning, also those of images that were dropped."""
        self._known, self._start = known, time.monotonic()

    def at(self, steps: float) -> None:
        """So many are done."""
        self.steps = steps

    def seconds_left(self, steps: int) -> float | None:
        """Seconds that so many more take, or None when nothing was measured yet."""
        if self.steps <= 0:
            return None if self._known is None else self._known * steps
        return (time.monotonic() - self._start) / self.steps * steps


_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable(cancelled: threading.Event | None) -> Iterator[None]:
    """While it holds, a model that waits in this thread can ask by `stop_signal` whether it has to go on waiting."""
    before = _STOP.set(cancelled)
    try:
        yield
    finally:
        _STOP.reset(before)


def stop_signal() -> threading.Event | None:
    """What is set when the person asks to stop the work of this thread; None where nobody can."""
    return _STOP.get()


def stop_if(cancelled: threading.Event | None) -> None:
    """Raises Cancelled when the person asked to stop."""
    if cancelled is not None and cancelled.is_set():
        raise Cancelled("Stopped. What was finished is kept.")
