"""The server's one worker: long work one piece at a time, wherever its page is now. Knows nothing of stages or pages.

A page that is reloaded, or a second one, asks here what is going on. Closing a page stops nothing.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.errors import Cancelled, UserError
from pipeline.progress import Progress
from pipeline.types import StageName

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
KEPT = 200
"""Jobs that are over and still known, for pages that ask late."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobView:
    """A job as it is at one moment."""

    id: int
    run_id: str
    stages: tuple[StageName, ...]
    """What it may change."""
    state: JobState
    stage: StageName | None = None
    """What it is at now, or was when it ended."""
    progress: Progress | None = None
    since: float = 0.0
    """`time.monotonic()` when the stage that it is at began."""
    stopping: bool = False
    """The person asked to stop, and it has not yet."""
    message: str = ""
    """Why it failed, in one sentence."""

    @property
    def active(self) -> bool:
        """Whether it is not over."""
        return self.state in ("waiting", "running")


class JobHandle:
    """What the work is given: it says how far it is, and looks whether it should stop."""

    def __init__(self, jobs: Jobs, job_id: int, cancelled: threading.Event) -> None:
        self._jobs, self._id = jobs, job_id
        self.cancelled = cancelled
        """Set when the work should stop."""

    @property
    def closing(self) -> bool:
        """Whether it is the server that stops, and not the person."""
        return self._jobs.closing

    def at(self, stage: StageName) -> None:
        """The work begins with a stage."""
        self._jobs._update(self._id, stage=stage, progress=None, since=time.monotonic())

    def progress(self, progress: Progress) -> None:
        """How far the stage is; fits `pipeline.progress.OnProgress`."""
        self._jobs._update(self._id, progress=progress)


Work = Callable[[JobHandle], None]


@dataclass
class _Job:
    view: JobView
    work: Work
    cancelled: threading.Event = field(default_factory=threading.Event)


class Jobs:
    """A queue and its one thread. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._jobs: dict[int, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._idle_work: deque[tuple[str, Callable[[], None]]] = deque()
        self._idle_name = ""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.closing = False

    def submit(self, run_id: str, stages: tuple[StageName, ...], work: Work) -> int:
        """Line up `work`. Raises UserError while another job is on the same run."""
        with self._changed:
            if any(job.view.run_id == run_id and job.view.active for job in self._jobs.values()):
                raise UserError("This run is being worked on already: wait for it, or cancel it.")
            job = _Job(JobView(next(self._numbers), run_id, stages, "waiting", since=time.monotonic()), work)
            self._jobs[job.view.id] = job
            self._waiting.append(job)
            self._forget()
            self._start()
            return job.view.id

    def when_idle(self, name: str, work: Callable[[], None]) -> None:
        """Line up something that no person waits for; every job goes first. `name` says what it is, in words."""
        with self._changed:
            self._idle_work.append((name, work))
            self._start()

    def waiting_for(self) -> str:
        """What a job that waits now waits for, in words."""
        with self._changed:
            return self._idle_name or "another run"

    def cancel(self, run_id: str) -> bool:
        """Ask what is waiting or running for a run to stop. False when there is nothing."""
        with self._changed:
            found = [job for job in self._jobs.values() if job.view.run_id == run_id and job.view.active]
            for job in found:
                job.cancelled.set()
                waiting = job.view.state == "waiting"
                job.view = replace(job.view, state="cancelled") if waiting else replace(job.view, stopping=True)
            self._changed.notify_all()
            return bool(found)

    def of_run(self, run_id: str) -> JobView | None:
        """The latest job of a run since the server was started."""
        with self._changed:
            return next((job.view for job in reversed(self._jobs.values()) if job.view.run_id == run_id), None)

    def active(self) -> tuple[JobView, ...]:
        """What is running or waiting, in its order."""
        with self._changed:
            return tuple(job.view for job in self._jobs.values() if job.view.active)

    def close(self, seconds: float = 5.0) -> None:
        """Stop what is running, start nothing more, and wait for the thread at most so long."""
        with self._changed:
            self.closing = True
            self._idle_work.clear()
            for job in self._jobs.values():
                job.cancelled.set()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _start(self) -> None:
        if self._thread is None and not self.closing:
            self._thread = threading.Thread(target=self._serve, name="jobs", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.closing or self._waiting or self._idle_work)
                if self.closing:
                    return
                job = self._waiting.popleft() if self._waiting else None
                name, idle = ("", None) if job is not None else self._idle_work.popleft()
                self._idle_name = name
                if job is not None:
                    if job.cancelled.is_set():
                        continue
                    job.view = replace(job.view, state="running", since=time.monotonic())
            if job is not None:
                self._do(job)
            elif idle is not None:
                try:
                    idle()
                except Exception:  # nobody waits for it, and what is wrong shows again when it is asked for
                    log.exception("work that nobody waits for failed")

    def _do(self, job: _Job) -> None:
        try:
            job.work(JobHandle(self, job.view.id, job.cancelled))
        except Cancelled:
            self._update(job.view.id, state="cancelled", stopping=False)
        except UserError as error:
            self._update(job.view.id, state="failed", stopping=False, message=str(error))
        except Exception as error:  # the worker must outlive a mistake in the work
            log.exception("a job failed")
            message = f"The studio itself failed ({type(error).__name__}: {error}); the terminal says more. Try again."
            self._update(job.view.id, state="failed", stopping=False, message=message)
        else:
            self._update(job.view.id, state="done", stopping=False)

    def _update(self, job_id: int, **changes: object) -> None:
        with self._changed:
            job = self._jobs.get(job_id)
            if job is not None:
                job.view = replace(job.view, **changes)  # type: ignore[arg-type]

    def _forget(self) -> None:
        over = [number for number, job in self._jobs.items() if not job.view.active]
        for number in over[: max(0, len(over) - KEPT)]:
            del self._jobs[number]
