"""A queue for work that may take minutes, such as splitting a test set. One thread does one piece of work after
another, with progress and cancellation.

This is not the queue of runs (`services.jobs`): a split must not wait until a night's drawing is done. Closing a page
stops no work. Results are kept for an hour, so that a page opened later still gets them.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from core.errors import Cancelled, UserError
from core.progress import Pace
from services.changes import Changes
from services.commands import Missing

KEPT_SECONDS = 3600.0
LOOK_SECONDS = 60.0
"""Interval in seconds at which the queue discards old results."""
MOST_WAITING = 20
"""Maximum number of pieces of work that wait or run at the same time. Further ones are refused."""
log = logging.getLogger(__name__)
WorkState = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class WorkView:
    """A snapshot of a piece of work."""

    id: int
    about: str
    """Id of the object that is worked on, such as a version of a test set."""
    kind: str
    """Name of the kind of work, such as "split"."""
    state: WorkState = "waiting"
    done: int = 0
    total: int = 0
    """Total amount of work; 0 until it is known."""
    doing: str = ""
    """The current step in words; "" if the work has one step."""
    seconds_left: float | None = None
    error: str = ""
    """One sentence about the failure, or ""."""
    field: str = ""
    """The form field that the error is about, or ""."""
    result: Any = None
    ended: float = 0.0
    """`time.monotonic()` at the end of the work."""
    stopping: bool = False
    """True if the work was asked to stop and will give no result."""

    @property
    def active(self) -> bool:
        """Return True while the work waits or runs."""
        return self.state in ("waiting", "running")


class OnWork(Protocol):
    """Progress callback: called with the amount done, the total amount, and the current step in words."""

    def __call__(self, done: int, total: int, step: str = "", /) -> None: ...


Act = Callable[[OnWork], Any]
"""Function that does the work. Its argument is a progress callback, which raises Cancelled if the work should stop."""


@dataclass
class _Work:
    view: WorkView
    act: Act
    cancelled: threading.Event = field(default_factory=threading.Event)


class WorkQueue:
    """A queue of work done by one thread. Any thread may call it. `drop` is called with each result to discard."""

    def __init__(
        self,
        changes: Changes | None = None,
        drop: Callable[[Any], None] = lambda _result: None,
        name: str = "work with a test set",
    ) -> None:
        self._changes, self._drop, self._name = changes or Changes(), drop, name
        self._numbers = itertools.count(1)
        self._known: dict[int, _Work] = {}
        self._waiting: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def start(self, kind: str, about: str, act: Act) -> int:
        """Queue work on the object `about` and return its number. Raises UserError if too much work waits."""
        self.forget()
        with self._changed:
            if sum(work.view.active for work in self._known.values()) >= MOST_WAITING:
                raise UserError("Too much work is waiting already: wait until some of it is done.")
            work = _Work(WorkView(next(self._numbers), about, kind), act)
            self._known[work.view.id] = work
            self._waiting.append(work)
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return work.view.id

    def going_on(self, kind: str, about: str) -> WorkView | None:
        """Return the waiting or running work of a kind on an object, or None. Work asked to stop does not count."""
        return next((one for one in self.of(about) if one.kind == kind and one.active and not one.stopping), None)

    def begin(self, kind: str, about: str, act: Act) -> WorkView:
        """Return unfinished work of this kind on an object, or queue `act`. Raises UserError if too much work waits."""
        with self._changed:
            return self.going_on(kind, about) or self.view(self.start(kind, about, act))

    def view(self, number: int) -> WorkView:
        """Return the work with this number. Raises Missing if it is unknown or was dropped."""
        with self._changed:
            if number not in self._known:
                raise Missing(
                    "This work is no longer known: it ended more than an hour ago, or the studio was restarted."
                )
            return self._known[number].view

    def wait(self, number: int, seconds: float) -> WorkView:
        """Return work when the work ends, or after `seconds`. Raises Missing if `number` is unknown."""
        with self._changed:
            self._changed.wait_for(lambda: number not in self._known or not self._known[number].view.active, seconds)
        return self.view(number)

    def of(self, about: str) -> tuple[WorkView, ...]:
        """Return all work on the object `about` that is still known, the latest first."""
        with self._changed:
            return tuple(work.view for work in reversed(self._known.values()) if work.view.about == about)

    def cancel(self, number: int) -> None:
        """Ask work to stop, or drop its result if the work is done. Raises Missing if the work is unknown."""
        with self._changed:
            self.view(number)
            work = self._known[number]
            work.cancelled.set()
            work.view = replace(work.view, stopping=True)
            if work in self._waiting:
                self._waiting.remove(work)
                work.view = replace(work.view, state="cancelled", ended=time.monotonic())
            over = self._known.pop(number) if work.view.state == "done" else None
            self._changed.notify_all()
        if over is not None:
            self._drop(over.view.result)

    def forget(self, older_than: float = KEPT_SECONDS) -> None:
        """Drop work that ended at least `older_than` seconds ago."""
        with self._changed:
            end = time.monotonic() - older_than
            over = [work for work in self._known.values() if not work.view.active and work.view.ended <= end]
            for work in over:
                del self._known[work.view.id]
        for work in over:
            if work.view.state == "done":
                self._drop(work.view.result)

    def close(self, seconds: float = 5.0) -> None:
        """Stop all work, wait at most `seconds` for the thread, and drop all results."""
        with self._changed:
            self._closing = True
            self._waiting.clear()
            for work in self._known.values():
                work.cancelled.set()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        self.forget(0.0)

    def _serve(self) -> None:
        while True:
            with self._changed:
                # Results must be dropped after an hour even without requests.
                self._changed.wait_for(lambda: self._closing or self._waiting, LOOK_SECONDS)
                if self._closing:
                    return
                work = self._waiting.popleft() if self._waiting else None
                if work is not None:
                    work.view = replace(work.view, state="running")
            if work is not None:
                self._do(work)
            self.forget()

    def _do(self, work: _Work) -> None:
        pace: Pace | None = None

        def on_count(done: int, total: int, step: str = "", /) -> None:
            nonlocal pace
            if work.cancelled.is_set():
                raise Cancelled
            pace = pace if pace is not None and pace.total == total else Pace(total)
            self._update(work, done=done, total=total, doing=step, seconds_left=pace.seconds_left(done))

        try:
            result = work.act(on_count)
        except Cancelled:
            self._update(work, state="cancelled", ended=time.monotonic())
        except UserError as error:
            self._update(work, state="failed", error=str(error), field=error.field, ended=time.monotonic())
        except Exception as error:  # the thread must survive a bug in the work
            log.exception("%s failed", self._name)
            words = f"The studio itself failed ({type(error).__name__}): the terminal says more."
            self._update(work, state="failed", error=words, ended=time.monotonic())
        else:
            self._update(work, state="done", result=result, ended=time.monotonic())
        self._changes.tell()

    def _update(self, work: _Work, **changes: Any) -> None:
        with self._changed:
            work.view = replace(work.view, **changes)
            self._changed.notify_all()
