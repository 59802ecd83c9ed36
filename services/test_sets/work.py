"""Work with test sets that may take minutes, one after the other in a thread of its own, with progress and cancel.

Not the queue of runs (`services.jobs`): a split that waits behind a night of drawing would be no use. Closing a page
stops nothing, and a page that asks late gets the result: it is kept for an hour.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from core.errors import Cancelled, UserError
from core.progress import Pace
from services.changes import Changes
from services.commands import Missing
from services.test_sets.hashes import OnCount

KEPT_SECONDS = 3600.0
LOOK_SECONDS = 60.0
"""Between two looks at whether that is over."""
MOST_WAITING = 20
"""Pieces of work that wait or run; more are refused."""
log = logging.getLogger(__name__)
WorkState = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class WorkView:
    """A piece of work as it is at one moment."""

    id: int
    about: str
    """What it is done with, such as the id of a version."""
    kind: str
    """What is done."""
    state: WorkState = "waiting"
    done: int = 0
    total: int = 0
    """0 as long as it is not known."""
    seconds_left: float | None = None
    error: str = ""
    """Why it failed, in a sentence."""
    field: str = ""
    """The field of a form that the sentence is about; "" for none."""
    result: Any = None
    """What it has given, once it is done."""
    ended: float = 0.0
    """`time.monotonic()` when it was over."""
    stopping: bool = False
    """It was asked to stop: nothing will come of it."""

    @property
    def active(self) -> bool:
        """Whether it is not over."""
        return self.state in ("waiting", "running")


Act = Callable[[OnCount], Any]
"""The work: it tells how many are done, and of how many. Telling raises Cancelled where it should stop."""


@dataclass
class _Work:
    view: WorkView
    act: Act
    cancelled: threading.Event = field(default_factory=threading.Event)


class WorkQueue:
    """All methods may be called from any thread. `drop` is told each result that is kept no longer; `name` is what the
    work is called in the log.
    """

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
        """Line up work; gives its number. Raises UserError where too much waits."""
        self.forget()
        with self._changed:
            if sum(work.view.active for work in self._known.values()) >= MOST_WAITING:
                raise UserError("Too much is waiting already: wait until some of it is done.")
            work = _Work(WorkView(next(self._numbers), about, kind), act)
            self._known[work.view.id] = work
            self._waiting.append(work)
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return work.view.id

    def view(self, number: int) -> WorkView:
        """Work by its number. Raises Missing for what is not known any more."""
        with self._changed:
            if number not in self._known:
                raise Missing("This is not known any more: the studio was started anew, or it is over for an hour.")
            return self._known[number].view

    def wait(self, number: int, seconds: float) -> WorkView:
        """The same, once it is over or so much time has gone by."""
        with self._changed:
            self._changed.wait_for(lambda: number not in self._known or not self._known[number].view.active, seconds)
        return self.view(number)

    def of(self, about: str) -> tuple[WorkView, ...]:
        """All that is known of work with one thing, the latest first."""
        with self._changed:
            return tuple(work.view for work in reversed(self._known.values()) if work.view.about == about)

    def cancel(self, number: int) -> None:
        """Ask work to stop, or let its result go. Raises Missing."""
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
        """Let go what has been over for so many seconds."""
        with self._changed:
            end = time.monotonic() - older_than
            over = [work for work in self._known.values() if not work.view.active and work.view.ended <= end]
            for work in over:
                del self._known[work.view.id]
        for work in over:
            if work.view.state == "done":
                self._drop(work.view.result)

    def close(self, seconds: float = 5.0) -> None:
        """Stop what runs, begin nothing more, wait for the thread at most so long, and let all results go."""
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
                # The hour of what is kept may end while nobody asks for anything.
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

        def on_count(done: int, total: int) -> None:
            nonlocal pace
            if work.cancelled.is_set():
                raise Cancelled
            pace = pace if pace is not None and pace.total == total else Pace(total)
            self._update(work, done=done, total=total, seconds_left=pace.seconds_left(done))

        try:
            result = work.act(on_count)
        except Cancelled:
            self._update(work, state="cancelled", ended=time.monotonic())
        except UserError as error:
            self._update(work, state="failed", error=str(error), field=error.field, ended=time.monotonic())
        except Exception as error:  # the thread must outlive a mistake in the work
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
