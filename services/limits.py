"""Limits failed sign-ins by address and in total. Knows no HTTP.

Trying a password or a code costs an attacker nothing, so a limit must stop guessing. Only failures are counted, each
for a limited time. This module stores the address and time of a failure, never the password or code.
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
"""Maximum number of remembered addresses that signed in. They are not blocked by the failures of other addresses."""


class TooMany(Exception):
    """Raised if an address must wait. The message says how long; `seconds` is for the header Retry-After."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, int(seconds + 0.999))
        words = count_of(self.seconds, "second") if self.seconds < 90 else f"{-(-self.seconds // 60)} minutes"
        super().__init__(f"Too many tries: wait {words}, then try again.")


class Limiter:
    """Refuses an address after `attempts` failures of this address within `seconds`. Thread-safe.

    After `in_all` failures of all addresses within `seconds`, refuses every address that never signed in. This stops a
    person with many addresses. A stranger cannot lock everybody out by failing on purpose. If `in_all` is 0, the limit
    is 30 * `attempts` failures. At most twice `in_all` failures are stored.
    """

    def __init__(
        self, attempts: int, seconds: float, in_all: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if attempts < 1 or seconds <= 0:
            raise ValueError("a Limiter needs at least one attempt and a window of some seconds")
        self.attempts, self.seconds, self.in_all = attempts, seconds, in_all or 30 * attempts
        self._clock = clock
        # Concurrent tries may all pass `check` before one of them fails: then the oldest failures are forgotten.
        self._failures: deque[tuple[float, str]] = deque(maxlen=2 * self.in_all)
        self._known = Latest[bool](REMEMBERED)
        self._lock = threading.Lock()

    def check(self, key: str) -> None:
        """Call this before each try. Raises TooMany if the address `key` must wait."""
        with self._lock:
            now = self._forget()
            mine = [at for at, failed in self._failures if failed == key]
            if len(mine) >= self.attempts:
                raise TooMany(mine[-self.attempts] + self.seconds - now)
            if not self._known.get(key) and len(self._failures) >= self.in_all:
                raise TooMany(self._failures[-self.in_all][0] + self.seconds - now)

    def failed(self, key: str) -> None:
        """Record a failed try."""
        with self._lock:
            self._failures.append((self._forget(), key))

    def passed(self, key: str) -> None:
        """Record a successful try. Earlier failures still count: a person with one code may guess another."""
        self._known.put(key, True)

    def _forget(self) -> float:
        now = self._clock()
        while self._failures and self._failures[0][0] <= now - self.seconds:
            self._failures.popleft()
        return now


def address_key(host: str | None) -> str:
    """Return the key of an address: one per /64 network of IPv6, which one person usually has; "?" if unknown."""
    try:
        address = ipaddress.ip_address((host or "").split("%")[0])
    except ValueError:
        return (host or "?")[:60]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
