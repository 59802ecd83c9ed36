"""Makes the thumbnails that are missing, those of the newest images first, while nothing else is worked on.

New images have theirs already, and what a gallery shows is made as it asks for it. So only images of older workspaces,
and of imports and restored backups, are left for here. What was looked through is kept (`storage.thumbnails.Seen`):
each entry of the catalogue is looked at once, and a start where nothing is new costs one question and one small file.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from core.errors import UserError
from storage.thumbnails import Seen, Thumbnails

LOOK_SECONDS = 5.0
"""So long until it looks again whether something came in, or whether what it makes way for is done."""
REST_SECONDS = 1.0
"""So long it rests after somebody looked at the gallery: what they see is made as they ask for it."""
_AT_ONCE = 500
"""Entries asked for together. Where all have their thumbnails that is some milliseconds of looking."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FillProgress:
    """How far the thumbnails are."""

    left: int
    """Images of the catalogue that were not looked at yet, at most; some of them have their thumbnails."""
    made: int
    """Thumbnails made since the start."""


class ThumbnailFill:
    """One thread that fills in thumbnails. All methods may be called from any thread.

    It is no idle work of the job queue, since after each such piece the pages look whether anything is new, and a
    million pieces would keep them looking. It rests as long as `idle` says that something is worked on, and while
    somebody looks at the gallery (`give_way`); `saved` gives another number after every commit. Its priority is the
    usual one: a thread that is rarely given a core may hold Python's lock meanwhile, and then every request waits for
    it. Decoding and encoding, where nearly all of its time goes, hold no lock.
    """

    def __init__(self, thumbnails: Thumbnails, saved: Callable[[], int], idle: Callable[[], bool]) -> None:
        self._thumbnails, self._saved, self._idle = thumbnails, saved, idle
        self._seen: Seen | None = None
        self._made = 0
        self._rests_until = 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Fill in what is missing now, and what comes in later, until `close`."""
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._serve, name="thumbnails", daemon=True)
            self._thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """Make nothing more; wait for the thumbnail that is being made at most so long."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def give_way(self) -> None:
        """Somebody looks at the gallery now."""
        self._rests_until = time.monotonic() + REST_SECONDS

    def progress(self) -> FillProgress:
        """How far it is."""
        gaps = unseen(self._seen or self._thumbnails.seen(), self._thumbnails.latest_entry()).gaps
        return FillProgress(sum(last - first + 1 for first, last in gaps), self._made)

    def fill(self) -> bool:
        """Fill in what is missing while nobody needs the machine; return True if nothing is. Raises OSError."""
        seen = self._seen or self._thumbnails.seen()
        while (before := unseen(seen, self._thumbnails.latest_entry())).gaps:
            *others, (first, last) = before.gaps
            rest, goes_on = self._look_through(first, last)
            seen = replace(before, gaps=(*others, (first, rest)) if rest >= first else tuple(others))
            if seen != before:
                self._thumbnails.set_seen(seen)
            self._seen = seen
            if not goes_on:
                return False
        return True

    def _look_through(self, first: int, last: int) -> tuple[int, bool]:
        """Some entries from `last` down; the highest number that is left to be looked at, and whether to go on."""
        pictures = self._thumbnails.pictures(first, last, _AT_ONCE)
        for number, *shas in pictures:
            while (rest := self._rests_until - time.monotonic()) > 0 and not self._closing.wait(rest):
                pass
            if self._closing.is_set() or not self._idle():
                return number, False
            for sha in filter(None, shas):
                try:
                    self._made += self._thumbnails.fill(sha)
                except UserError as error:  # whoever looks at the image is told
                    log.info("there is no thumbnail of %s: %s", sha, error)
        return (pictures[-1][0] - 1 if len(pictures) == _AT_ONCE else first - 1), True

    def _serve(self) -> None:
        looked: int | None = None
        try:
            while not self._closing.is_set():
                saved = self._saved()
                if saved != looked and self.fill():
                    looked = saved
                self._closing.wait(LOOK_SECONDS)
        except (OSError, UserError) as error:
            log.warning("Until the next start thumbnails are made as they are asked for only (%s)", error)


def unseen(seen: Seen, latest: int) -> Seen:
    """The same with the entries that came in since as a gap, up to the latest one."""
    if latest <= seen.latest:
        return seen
    gaps = seen.gaps
    new = (seen.latest + 1, latest)
    if gaps and gaps[-1][1] == seen.latest:
        gaps, new = gaps[:-1], (gaps[-1][0], latest)
    return Seen(latest, (*gaps, new))
