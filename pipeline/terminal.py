"""A terminal's side of a long job: a progress line with the remaining time, and Ctrl-C that stops in good order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.progress import Progress


def remaining(seconds: float | None) -> str:
    """Such as "about 11 s left" or "about 3 min left"; "" when not known."""
    if seconds is None:
        return ""
    return f"about {max(1, round(seconds))} s left" if seconds < 90 else f"about {round(seconds / 60)} min left"


class ProgressLine:
    """Progress on stderr: one line that rewrites itself on a terminal, one line per thing finished elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Shows how far a stage is."""
        parts = [progress.stage, progress.note]
        if self._live:
            counted = f"{progress.done}/{progress.total}" if progress.total > 1 else ""
            line = " · ".join(part for part in (*parts, counted, remaining(progress.seconds_left)) if part)
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif (told := " · ".join(part for part in parts if part)) != self._last:
            self._last = told
            line = " · ".join(part for part in (told, remaining(progress.seconds_left)) if part)
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        """A sentence on a line of its own."""
        self.clear()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Takes the progress line away."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets. The second one ends the program at once."""
    asked = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        sys.stderr.write("\nStopping after this step; once more to stop at once.\n")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
