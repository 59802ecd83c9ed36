"""The queue of jobs: one thread of the server does long work, one job after another. It knows no stage and no page.

A page that is opened or reloaded can find the running job here. Closing a page stops no job.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from core.errors import Cancelled, UserError
from core.progress import Progress, stop_if
from core.types import StageName
from services.changes import Changes
from services.commands import does
from services.edit_conflicts import LARGEST_ID

KEPT = 200
"""Maximum number of ended jobs that the queue keeps, so that pages can still show their state."""
JobNumber = Annotated[int, Field(ge=0, le=LARGEST_ID, description="The job")]

log = logging.getLogger(__name__)
T = TypeVar("T")

JobPhase = Literal["waiting", "running", "done", "failed", "cancelled"]
PartState = Literal["waiting", "running", "done", "dropped"]


@dataclass(frozen=True)
class Part:
    """One of the things that a job makes, such as an image. A job makes its parts one by one, or a few at a time."""

    id: int
    """Zero-based position that the part had when the job was created."""
    name: str
    state: PartState = "waiting"


@dataclass(frozen=True)
class JobView:
    """A snapshot of a job."""

    id: int
    run_id: str
    stages: tuple[StageName, ...]
    """Stages whose values the job may change."""
    state: JobPhase
    stage: StageName | None = None
    """Current stage, or the last one of an ended job; None before the first."""
    progress: Progress | None = None
    since: float = 0.0
    """`time.monotonic()` at the start of the current stage."""
    stopping: bool = False
    """True from the request to stop until the job has stopped."""
    message: str = ""
    parts: tuple[Part, ...] = ()
    """Parts in the order in which they are made; empty if the job makes one thing."""
    seconds_each: float | None = None
    """Expected seconds per part."""
    preview: str = ""
    """Name of the preview picture of the unfinished image; "" if none exists."""

    @property
    def active(self) -> bool:
        """Return True while the job waits or runs."""
        return self.state in ("waiting", "running")

    @property
    def waiting(self) -> tuple[Part, ...]:
        """Return the parts of the job that are not begun."""
        return tuple(part for part in self.parts if part.state == "waiting")

    @property
    def at_parts(self) -> tuple[Part, ...]:
        """Return the parts that the job is making now, without those that a person removed."""
        return tuple(part for part in self.parts if part.state == "running")

    def seconds_left(self) -> float | None:
        """Return the estimated seconds of work left, without the time in the queue; None if unknown."""
        if self.progress is not None:
            return self.progress.seconds_left
        return None if self.seconds_each is None else self.seconds_each * len(self.waiting)


def _moved_up(line: Iterable[T], moves: Callable[[T], bool], waits: Callable[[T], bool]) -> list[T]:
    """Return a queue of jobs or images in which one item has changed places with the waiting item before it. The moved
    item is the first waiting item for which `moves` returns True. `waits` returns True for items that wait.
    """
    moved = list(line)
    places = [place for place, one in enumerate(moved) if waits(one)]
    for before, at in pairwise(places):
        if moves(moved[at]):
            moved[before], moved[at] = moved[at], moved[before]
            break
    return moved


@dataclass(eq=False)
class JobHandle:
    """A job of a queue. The functions that do its work report progress to it, and ask it whether to stop."""

    queue: JobQueue
    view: JobView
    """The current state of the job."""
    work: deque[Work]
    """Functions that do the work still to begin, in order."""
    unbegun: Callable[[], object]
    """Called if the job is cancelled before it begins."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the work should stop."""

    @property
    def closing(self) -> bool:
        """Return True if the server is stopping. Then the job was not cancelled by a person."""
        return self.queue.closing

    def at(self, stage: StageName) -> None:
        """Report the start of a stage."""
        self.queue.update(self, stage=stage, progress=None, since=time.monotonic())

    def progress(self, progress: Progress) -> None:
        """Report the progress of the current stage. This method can be used as a `core.progress.OnProgress`."""
        self.queue.update(self, progress=progress)

    def preview(self, name: str) -> None:
        """Report the name of a preview picture of the unfinished image."""
        self.queue.update(self, preview=name)

    def take_parts(self, most: int) -> tuple[Part, ...]:
        """Mark the parts made so far as done, and return the next parts to make, at most `most`; () if none is left."""
        return self.queue.take_parts(self, most)


Work = Callable[[JobHandle], None]


class JobQueue:
    """A queue of jobs, done by one thread. All methods may be called from any thread."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._numbers = itertools.count(1)
        self._changes = changes or Changes()
        self._jobs: dict[int, JobHandle] = {}
        self._waiting: deque[JobHandle] = deque()
        self._idle_work: deque[tuple[str, Callable[[], object]]] = deque()
        self._idle_name = ""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.closing = False

    def submit(
        self,
        run_id: str,
        stages: tuple[StageName, ...],
        work: Work,
        parts: Sequence[str] = (),
        seconds_each: float | None = None,
        unbegun: Callable[[], object] = lambda: None,
        later: Sequence[Work] = (),
    ) -> int:
        """Queue `work` as a job on a run and return the id of the job. `stages` are the stages that it may change.
        `parts` names the things that it makes, if it makes several, and `seconds_each` is the expected time for each of
        them. Before each further work in `later`, the job waits again, behind all jobs that wait at that time. If the
        job is cancelled before it begins, `unbegun` is called and `work` is not. Raises UserError while another job on
        the run waits or runs.
        """
        with self._changed:
            self.require_idle(run_id)
            view = JobView(next(self._numbers), run_id, stages, "waiting", since=time.monotonic())
            named = tuple(Part(number, name) for number, name in enumerate(parts))
            view = replace(view, parts=named, seconds_each=seconds_each)
            job = JobHandle(self, view, deque([work, *later]), unbegun)
            self._jobs[job.view.id] = job
            self._waiting.append(job)
            self._forget()
            self._start()
            self._changes.tell()
            return job.view.id

    def require_idle(self, run_id: str) -> None:
        """Raise UserError while a job on this run waits or runs."""
        with self._changed:
            if any(job.view.run_id == run_id and job.view.active for job in self._jobs.values()):
                raise UserError("This run is being worked on already: wait for it, or cancel it.")

    def when_idle(self, name: str, work: Callable[[], object]) -> None:
        """Queue background work, which begins only when no job waits. `name` describes the work in words."""
        with self._changed:
            self._idle_work.append((name, work))
            self._start()

    def waiting_for(self) -> str:
        """Return in words what the thread is doing while a job waits: the name of background work, or "another run"."""
        with self._changed:
            return self._idle_name or "another run"

    def idle(self) -> bool:
        """Return True if no job runs or waits. Background work is not counted."""
        with self._changed:
            return not any(job.view.active for job in self._jobs.values())

    def cancel(self, run_id: str) -> bool:
        """Ask the waiting or running job of a run to stop. Return False if none exists."""
        return self._cancel(lambda view: view.run_id == run_id)

    @does("queue-cancel")
    def cancel_job(self, job: JobNumber) -> bool:
        """Stop a job, or remove it from the queue. Return False if it has ended or is unknown."""
        return self._cancel(lambda view: view.id == job)

    def cancel_all(self) -> bool:
        """Ask all waiting and running jobs to stop. Return False if there are none."""
        return self._cancel(lambda _view: True)

    @does("delete-job-part")
    def delete_part(
        self, job: JobNumber, part: Annotated[int, Field(ge=0, le=LARGEST_ID, description="Image number, from 0")]
    ) -> bool:
        """Remove an image from a job. If the image is being drawn, drawing stops at once and the next image begins.
        Return False if the image is done, was removed before, or is unknown. A waiting job without images is cancelled.
        """
        with self._changed:
            of = self._jobs.get(job)
            found = of is not None and of.view.active and self._mark(of, part, ("waiting", "running"), "dropped")
            empty = of is not None and found and of.view.state == "waiting" and not of.view.waiting
        self._changes.tell()
        if empty:
            self.cancel_job(job)
        return found

    @does("queue-up")
    def move_up(
        self,
        job: JobNumber,
        part: Annotated[int | None, Field(ge=0, le=LARGEST_ID, description="Image number; null: the whole job")] = None,
    ) -> bool:
        """Move a job, or an image of a job, one place up in the queue. Return False if it did not move."""
        with self._changed:
            moved = self._jobs.get(job)
            if moved is None or not moved.view.active:
                return False
            if part is None:
                line = _moved_up(self._waiting, lambda one: one is moved, lambda _other: True)
                is_moved = line != list(self._waiting)
                self._waiting = deque(line)
            else:
                parts = _moved_up(moved.view.parts, lambda one: one.id == part, lambda other: other.state == "waiting")
                is_moved = parts != list(moved.view.parts)
                moved.view = replace(moved.view, parts=tuple(parts))
            self._changes.tell()
            return is_moved

    def view(self, job_id: int) -> JobView | None:
        """Return the current state of a job, or None if unknown."""
        with self._changed:
            job = self._jobs.get(job_id)
            return None if job is None else job.view

    def wait(self, job_id: int, seconds: float) -> JobView | None:
        """Wait until a job ends or `seconds` have passed, and return its state, or None if it is unknown."""
        with self._changed:
            self._changed.wait_for(lambda: (job := self._jobs.get(job_id)) is None or not job.view.active, seconds)
            return self.view(job_id)

    def known(self, job_id: int) -> JobView:
        """Return the state of a job. Raises UserError for an unknown one, such as after a restart of the studio."""
        view = self.view(job_id)
        if view is None:
            message = f"There is no job {job_id}: it ended long ago, or before the studio was restarted."
            raise UserError(message, field="job")
        return view

    def of_run(self, run_id: str) -> JobView | None:
        """Return the latest job of a run since the server started, or None."""
        with self._changed:
            return next((job.view for job in reversed(self._jobs.values()) if job.view.run_id == run_id), None)

    def active(self) -> tuple[JobView, ...]:
        """Return running and waiting jobs, in order."""
        with self._changed:
            running = [job.view for job in self._jobs.values() if job.view.state == "running"]
            return (*running, *(job.view for job in self._waiting))

    def close(self, seconds: float = 5.0) -> None:
        """Ask the running job to stop, begin no other job, and wait at most `seconds` for the thread to end."""
        with self._changed:
            self.closing = True
            self._idle_work.clear()
            for job in self._jobs.values():
                job.cancelled.set()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _cancel(self, affects: Callable[[JobView], bool]) -> bool:
        with self._changed:
            affected = [job for job in self._jobs.values() if job.view.active and affects(job.view)]
            waiting = [job for job in affected if job.view.state == "waiting"]
            for job in affected:
                job.cancelled.set()
                job.view = replace(job.view, stopping=True)
            for job in waiting:
                self._waiting.remove(job)
                job.view = replace(job.view, state="cancelled", stopping=False)
            self._changes.tell()
            self._changed.notify_all()
        for job in waiting:
            job.unbegun()
        return bool(affected)

    @staticmethod
    def _mark(job: JobHandle, part_id: int, before: tuple[PartState, ...], state: PartState) -> bool:
        is_marked = any(part.id == part_id and part.state in before for part in job.view.parts)
        parts = (replace(part, state=state) if part.id == part_id else part for part in job.view.parts)
        if is_marked:
            job.view = replace(job.view, parts=tuple(parts))
        return is_marked

    def take_parts(self, job: JobHandle, most: int) -> tuple[Part, ...]:
        """Mark the parts made so far as done, and return the next parts to make, at most `most`."""
        with self._changed:
            for part in job.view.at_parts:
                self._mark(job, part.id, ("running",), "done")
            taken = job.view.waiting[:most]
            for part in taken:
                self._mark(job, part.id, ("waiting",), "running")
            job.view = replace(job.view, preview="")
            self._changes.tell()
            return taken

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
                    job.view = replace(job.view, state="running", since=time.monotonic())
                self._changes.tell()
            if job is not None:
                self._do(job)
            elif idle is not None:
                try:
                    idle()
                except Exception:  # no request depends on it, and the error shows again when its result is needed
                    log.exception("work that nobody waits for failed")
                with self._changed:
                    self._idle_name = ""
                self._changes.tell()  # such as a prediction, or this machine's drawing speed

    def _do(self, job: JobHandle) -> None:
        state, message = "done", ""
        try:
            job.work.popleft()(job)
            with self._changed:
                if job.work:  # the job waits again, behind all that wait
                    stop_if(job.cancelled)
                    self._waiting.append(job)
                    self.update(job, state="waiting", progress=None, since=time.monotonic())
                    return
        except Cancelled:
            state = "cancelled"
        except UserError as error:
            state, message = "failed", str(error)
        except Exception as error:  # the worker thread must survive a bug in the work
            log.exception("a job failed")
            message = f"The studio itself failed ({type(error).__name__}: {error}); the terminal says more. Try again."
            state = "failed"
        self.update(job, state=state, stopping=False, message=message)

    def update(self, job: JobHandle, **changes: object) -> None:
        """Change the view of a job, and notify pages and the threads that wait for its end."""
        with self._changed:
            job.view = replace(job.view, **changes)  # type: ignore[arg-type]
            self._changes.tell()
            if not job.view.active:
                self._changed.notify_all()

    def _forget(self) -> None:
        over = [number for number, job in self._jobs.items() if not job.view.active]
        for number in over[: max(0, len(over) - KEPT)]:
            del self._jobs[number]
