"""Makes missing thumbnails while no job runs, those of the newest images first.

New images get their thumbnails when they are saved, and the gallery makes missing thumbnails that it shows. So this
module makes only the thumbnails of older workspaces, imports and restored backups. Once all entries are checked, the
number of the latest is stored. So a start without new entries needs one query and one small file. A start after an
interruption checks quickly which thumbnails exist already.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from core.errors import UserError
from storage.thumbnails import Thumbnails

LOOK_SECONDS = 5.0
"""Seconds between two checks for new entries, or for the end of other work."""
REST_SECONDS = 1.0
"""Seconds to pause after somebody used the gallery, which needs the processor for the thumbnails that it shows."""
_AT_ONCE = 500
"""Maximum number of entries per query. If all have thumbnails, checking them takes some milliseconds."""

log = logging.getLogger(__name__)


class ThumbnailFill:
    """A thread that makes missing thumbnails. All methods may be called from any thread.

    The job queue is not used: pages look for changes after each job, and a million jobs would keep the pages busy. The
    thread pauses while `idle` returns False, and while somebody uses the gallery (`give_way`). `saved`
    returns another number after every commit. The thread has normal priority: a low-priority thread that waits for a
    core may hold Python's global lock, and then every request waits. Decoding and encoding images, nearly all of its
    work, hold no lock.
    """

    def __init__(self, thumbnails: Thumbnails, saved: Callable[[], int], idle: Callable[[], bool]) -> None:
        self._thumbnails, self._saved, self._idle = thumbnails, saved, idle
        self._latest = self._rest = 0
        """`_latest`: newest entry when the check began, 0 between checks. `_rest`: newest entry not checked yet."""
        self._rests_until = 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Make missing thumbnails now and later, until `close`."""
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._serve, name="thumbnails", daemon=True)
            self._thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """Stop the thread, and wait at most `seconds` until the current thumbnail is made."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def give_way(self) -> None:
        """Pause for `REST_SECONDS`, since somebody uses the gallery now."""
        self._rests_until = time.monotonic() + REST_SECONDS

    def fill(self) -> bool:
        """Make thumbnails until none is missing (return True) or the thread must pause or end (return False)."""
        while (checked := self._thumbnails.checked()) < (latest := self._thumbnails.latest_entry()):
            self._latest, self._rest = (self._latest, self._rest) if self._latest else (latest, latest)
            while self._rest > checked:
                self._rest, goes_on = self._look_through(checked + 1, self._rest)
                if not goes_on:
                    return False
            self._thumbnails.set_checked(self._latest)
            self._latest = 0
        return True

    def _look_through(self, first: int, last: int) -> tuple[int, bool]:
        """Check entries from `last` downwards. Return the next to check, and False if the thread must pause or end."""
        pictures = self._thumbnails.pictures(first, last, _AT_ONCE)
        for number, *shas in pictures:
            while (rest := self._rests_until - time.monotonic()) > 0 and not self._closing.wait(rest):
                pass
            if self._closing.is_set() or not self._idle():
                return number, False
            for sha in filter(None, shas):
                try:
                    self._thumbnails.fill(sha)
                except UserError as error:  # the error is shown when somebody opens the image
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
