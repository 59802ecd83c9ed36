"""Progress of a stage, estimates of the remaining time, and the signal to stop."""

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
    """Progress of a stage, counted in its smallest steps, such as captions in stage 4 or denoising steps in stage 5."""

    stage: StageName
    done: int
    total: int
    seconds_left: float | None = None
    """Estimated seconds left; None until something was measured."""
    note: str = ""
    step: int = 0
    """Number of finished denoising steps of the images that are being drawn."""


OnProgress = Callable[[Progress], None]
OnCount = Callable[[int, int], None]
"""Function that is called with the number of things done and the total."""


class Pace:
    """Estimates the remaining time from the steps done so far, or from `known` seconds per step until one is done."""

    def __init__(self, total: int, known: float | None = None) -> None:
        self.total, self._known, self._start = total, known, time.monotonic()

    def seconds_left(self, done: float) -> float | None:
        """Return the seconds until all steps are done, or None if nothing was measured yet."""
        each = (time.monotonic() - self._start) / done if done > 0 else self._known
        return None if each is None else each * (self.total - done)


_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable(cancelled: threading.Event | None) -> Iterator[None]:
    """Within the `with` block, models that wait in this thread stop waiting when `cancelled` is set."""
    before = _STOP.set(cancelled)
    try:
        yield
    finally:
        _STOP.reset(before)


def stop_signal() -> threading.Event | None:
    """Return the event that stops the work of this thread once it is set; None if none exists."""
    return _STOP.get()


def stop_if(cancelled: threading.Event | None) -> None:
    """Raise Cancelled if the event `cancelled` is set."""
    if cancelled is not None and cancelled.is_set():
        raise Cancelled("Stopped. What was finished is kept.")
