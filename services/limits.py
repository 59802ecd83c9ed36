"""Limits failed tries, by address and in all. Knows no HTTP.

Trying a password or code costs nothing, so counting is what stops guessing. Only failures count, and are forgotten
after the window. Codes and passwords are never stored here, only who failed and when.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable

from core.latest import Latest
from core.words import count_of

REMEMBERED = 1_000
"""Number of addresses that signed in and are remembered: failures of others do not block them."""


class TooMany(Exception):
    """Raised if somebody must wait. The text names the wait in words; `seconds` is for Retry-After."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, int(seconds + 0.999))
        super().__init__(f"Too many tries: wait {waiting(self.seconds)}, then try again.")


class Limiter:
    """Refuses an address after `attempts` failures in `seconds`, and all new addresses after `in_all` failures.

    `in_all` stops a person with many addresses (0: thirty times `attempts`). An address that `passed` before is exempt
    from it: else a stranger could lock everybody out by failing on purpose. Memory is bounded: no more failures than
    `in_all` are counted, as nobody else may then fail. Thread-safe.
    """

    def __init__(
        self, attempts: int, seconds: float, in_all: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if attempts < 1 or seconds <= 0:
            raise ValueError("a Limiter needs at least one attempt and a window of some seconds")
        self.attempts, self.seconds, self.in_all = attempts, seconds, in_all or 30 * attempts
        self._clock = clock
        self._failures: deque[tuple[float, str]] = deque()
        self._times: dict[str, deque[float]] = {}
        self._known = Latest[bool](REMEMBERED)
        self._lock = threading.Lock()

    def check(self, key: str) -> None:
        """Check an address before a try. Raises TooMany if it must wait."""
        with self._lock:
            now = self._forget()
            mine = self._times.get(key)
            if mine is not None and len(mine) >= self.attempts:
                raise TooMany(mine[-self.attempts] + self.seconds - now)
            if not self._known.get(key) and len(self._failures) >= self.in_all:
                raise TooMany(self._failures[-self.in_all][0] + self.seconds - now)

    def failed(self, key: str) -> None:
        """Record a failed try."""
        with self._lock:
            now = self._forget()
            self._times.setdefault(key, deque()).append(now)
            self._failures.append((now, key))
            # Concurrent tries may all fail after one check: the oldest make room.
            while len(self._failures) > 2 * self.in_all:
                self._drop()

    def passed(self, key: str) -> None:
        """Record a successful try. Its earlier failures still count: a person with one code may guess another."""
        self._known.put(key, True)

    def held(self) -> int:
        """Return the number of remembered failures, for tests of the bound."""
        with self._lock:
            return len(self._failures)

    def _forget(self) -> float:
        now = self._clock()
        while self._failures and self._failures[0][0] <= now - self.seconds:
            self._drop()
        return now

    def _drop(self) -> None:
        _, key = self._failures.popleft()
        times = self._times[key]
        times.popleft()
        if not times:
            del self._times[key]


def address_key(host: str | None) -> str:
    """Return the key of an address: one for a whole /64 of IPv6, as one person has all of it. "?" without one."""
    try:
        address = ipaddress.ip_address((host or "").split("%")[0])
    except ValueError:
        return (host or "?")[:60]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def waiting(seconds: int) -> str:
    """Return a wait in words, such as "2 minutes"."""
    if seconds < 90:
        return count_of(seconds, "second")
    minutes = -(-seconds // 60)
    return f"{minutes} minutes"
