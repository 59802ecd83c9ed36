"""Whether anything that a page shows has changed since it was last looked at, told without looking at it again."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable


class Changes:
    """Counts what is changed in memory alone, such as how far a job is. May be used from any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._last = 0

    def tell(self) -> None:
        """Something was changed just now."""
        self._last = next(self._numbers)

    @property
    def count(self) -> int:
        """Another number after every change."""
        return self._last


class Revisions:
    """Names the state of everything that a page of the studio shows. May be used from any thread.

    `saved` gives another number after every commit, also of another process; `changes` counts the rest. What hangs on
    the time of day, or on a file that somebody changed, is looked at again with every minute.
    """

    def __init__(self, saved: Callable[[], int], changes: Changes) -> None:
        self._saved, self._changes = saved, changes
        self.start = secrets.token_hex(4)
        """Tells this start of the server from others."""

    def now(self, seconds: float = 60) -> str:
        """The name of the state, which is another one when it was changed, and after so many seconds."""
        return f"{self.start}.{self._saved()}.{self._changes.count}.{int(time.monotonic() / seconds)}"
