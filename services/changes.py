"""Tells whether anything shown on a page has changed, without reading it again."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable


class Changes:
    """Counts changes in memory, such as the progress of a job. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._last = 0

    def tell(self) -> None:
        """Count a change."""
        self._last = next(self._numbers)

    @property
    def count(self) -> int:
        """Return a number that differs after every change."""
        return self._last


class Revisions:
    """Names the state of everything that pages show. Thread-safe.

    `saved` returns another number after every commit, also of another process; `changes` counts the rest. What depends
    on the time of day, or on an edited file, is read again every minute.
    """

    def __init__(self, saved: Callable[[], int], changes: Changes) -> None:
        self._saved, self._changes = saved, changes
        self.start = secrets.token_hex(4)
        """Random name of this start of the server, which distinguishes it from others."""

    def now(self, seconds: float = 60) -> str:
        """Return the name of the state, which differs after a change and after this many seconds."""
        return f"{self.start}.{self._saved()}.{self._changes.count}.{int(time.monotonic() / seconds)}"
