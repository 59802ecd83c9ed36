"""Tells whether anything that a page shows has changed, without reading the data again."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable


class Changes:
    """Counts changes that no database stores, such as the progress of a job. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._last = 0

    def tell(self) -> None:
        """Record a change of something that is shown on pages."""
        self._last = next(self._numbers)

    @property
    def count(self) -> int:
        """Return the number of the latest change; 0 before the first. No two changes have the same number."""
        return self._last


class Revisions:
    """Returns a text that changes when anything shown on a page may have changed. Thread-safe.

    `saved` returns another number after every commit to the database, also by another process. `changes` counts changes
    in memory. The text also changes every minute, since some pages depend on the time of day or on edited files.
    """

    def __init__(self, saved: Callable[[], int], changes: Changes) -> None:
        self._saved, self._changes = saved, changes
        self.start = secrets.token_hex(4)
        """Random text, drawn at each start of the server, so that no text of an earlier start is repeated."""

    def now(self, seconds: float = 60) -> str:
        """Return a text that differs after each change, and at least every `seconds`."""
        return f"{self.start}.{self._saved()}.{self._changes.count}.{int(time.monotonic() / seconds)}"
