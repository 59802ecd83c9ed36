"""Logs refused requests with address and time, so that a lead sees an attack. Limits entries to spare the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from core.errors import UserError
from services.limits import address_key

log = logging.getLogger(__name__)


class Refusals:
    """Logs at most `each` entries per address and `in_all` entries in total within `seconds`. Further ones are counted,
    and their number is logged later.

    Thread-safe. If the log cannot be written, requests are refused all the same.
    """

    def __init__(
        self,
        note: Callable[[str, str, str, str], object],
        each: int = 30,
        in_all: int = 300,
        seconds: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._note, self._each, self._in_all, self._seconds, self._clock = note, each, in_all, seconds, clock
        self._began = clock()
        self._written: Counter[str] = Counter()
        self._left_out = 0
        self._lock = threading.Lock()

    def note(self, event: str, detail: str, address: str | None, study_id: str = "", worker: str = "") -> None:
        """Log an event, unless this address or all addresses together have reached their limit. An event of a worker is
        logged without the address, since annotators were promised that none is stored.
        """
        key = address_key(address)
        with self._lock:
            now, missed = self._clock(), 0
            if now - self._began >= self._seconds:
                missed, self._left_out, self._began = self._left_out, 0, now
                self._written.clear()
            written = self._written[key] < self._each and self._written.total() < self._in_all
            if written:
                self._written[key] += 1
            else:
                self._left_out += 1
        if missed:
            self._write("refusals left out", f"{missed} more within a minute were not written down one by one")
        if written:
            self._write(event, _plain(detail) if worker else f"{_plain(detail)} · from {key}", study_id, worker)

    def _write(self, event: str, detail: str, study_id: str = "", worker: str = "") -> None:
        try:
            self._note(event, detail, study_id, worker)
        except UserError as error:  # such as a full disk: one line, since it may happen at each of many tries
            log.warning("a refusal could not be written down: %s", error)
        except Exception:
            log.exception("a refusal could not be written down")


def _plain(text: str) -> str:
    """Return the first 200 characters on one line: a stranger's text must not look like a separate log entry."""
    return "".join(letter if letter.isprintable() else "�" for letter in text[:200])
