"""The batches that this server works on, and the commands on batches.

One batch at a time runs, in its own thread with processes of this machine; others wait in a queue. A batch run by
another process, such as the command line, is shown like any other, and can be asked to stop.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from core.batches import Wish
from core.errors import Cancelled, UserError
from core.progress import OnCount
from services.batches.data_roots import DataRoots
from services.batches.drawn_scenes import DrawnScenes
from services.batches.engine import Choose, Engine
from services.batches.io_workers import Order
from services.batches.plan_file import BatchPlan, named_paths, plan_from_text
from services.batches.pools import Pool, ProcessPool, workers_here
from services.batches.service import BatchDetails, BatchService, BatchStatus, Place, details_facts, facts_of
from services.changes import Changes
from services.commands import Command, does
from services.edit_conflicts import LARGEST_ID
from services.queries import Query
from services.work_queue import WorkQueue, WorkView
from storage.workspace import Workspace

LONGEST_PLAN = 2_000_000
"""Maximum number of characters of a plan: enough for a list of some ten thousand keys."""
CLOSING_SECONDS = 20.0
"""Maximum seconds that a server waits for the running batch to stop when the server shuts down."""
PLANNING_SECONDS = 1.5
"""Maximum seconds that a request waits while its batch is planned. After that, the page asks again."""
PLAN = Path("plan.toml")
"""File name that error messages give to a plan sent as text."""
PLANNING = "planning of a batch"
log = logging.getLogger(__name__)


class PlanBatch(Command):
    """A plan of a batch."""

    plan: str = Field(max_length=LONGEST_PLAN, description="The text of a plan.toml; its data.root is an absolute path")


class PlanByScript(PlanBatch, name="plan-batch", keeps=True):
    """Choose the items of a data set by a plan, and return the batch without beginning it. The data set must be in a
    folder that the studio was started with (`--data-roots`).
    """


class BatchCommand(Command, keeps=True):
    """A command on one batch."""

    batch: int = Field(ge=0, le=LARGEST_ID, description="The batch, as list_batches gives it")


@dataclass
class _Run:
    """A batch that this process is running."""

    number: int
    stop: threading.Event = field(default_factory=threading.Event)
    wish: Wish = "go"
    """A person's last request to stop the batch, "pause" or "cancel"; "go" if nobody asked to stop the batch."""
    choose: Choose | None = None
    """Function that chooses the images to draw; None to draw all."""
    again: bool = False
    """True if failed work is to be retried: the batch begins again after it has ended."""


class BatchRuns:
    """Runs the batches of one workspace. All methods may be called from any thread."""

    def __init__(
        self,
        workspace: Workspace,
        changes: Changes | None = None,
        data_roots: DataRoots | None = None,
        scenes: DrawnScenes | None = None,
    ) -> None:
        """Create the object. A plan sent by a script may name only files in `data_roots`; with None, scripts cannot
        plan batches. If the data set of a plan is a folder of drawn scenes, `scenes` draws the missing scenes.
        """
        workers = partial(workers_here, spare=1)  # leaves one core to the pages
        self._workspace, self._ledger = workspace, workspace.batches
        self._changes, self._data_roots = changes or Changes(), data_roots or DataRoots()
        self._service = BatchService(workspace, workers)
        self.scenes = scenes
        self._lock = threading.RLock()
        self._waiting: deque[int] = deque()
        self._run: _Run | None = None
        self._problems: dict[int, str] = {}
        self._choosing: dict[int, Choose] = {}
        """Functions that choose the images to draw, by number of the waiting batch; absent if it draws all images."""
        self._thread: threading.Thread | None = None
        self._closing = False
        self.pool: Callable[[Order], Pool] = lambda order: ProcessPool(order, order.plan.run.workers or workers())
        self.planning = WorkQueue(self._changes, name=PLANNING)
        """Queue of plans whose items are to be chosen. The result of each is the number of its batch."""

    # Commands of pages and scripts

    @does("begin-batch", BatchCommand)
    def begin(self, batch: int) -> dict[str, Any]:
        """Begin or resume a batch; while another one runs, it waits for its turn. Raises UserError if it is done, waits
        for approval, or another process works on it.
        """
        status = self.status(batch)
        title = f"“{status.batch.name}”"
        with self._lock:
            place = self._place(batch)
            if place == "stopping":
                raise UserError(f"{title} is about to stop: begin it once it has stopped.")
            if not place:
                if status.state in ("running", "stopping"):
                    raise UserError(f"Another process works on {title} already: wait until it ends, or pause it first.")
                if status.state == "done":
                    raise UserError(f"{title} is done: nothing is left to do.")
                if status.state == "unplanned":
                    raise UserError(f"The planning of {title} was interrupted: plan it again.")
                if status.state == "approval" and not any(one.left for one in status.passes[:-1]):
                    raise UserError(f"The captions of {title} wait for your approval: approve them first.")
                self._line_up(batch)
        return facts_of(self.status(batch))

    @does("pause-batch", BatchCommand)
    def pause(self, batch: int) -> dict[str, Any]:
        """Pause a batch; unfinished work is done when it is resumed. Raises UserError if no process works on it."""
        status = self.status(batch)
        if not status.at_work:
            raise UserError(f"Nobody works on “{status.batch.name}” now: there is nothing to pause.")
        return self._stop(batch, "pause")

    @does("cancel-batch", BatchCommand)
    def cancel(self, batch: int) -> dict[str, Any]:
        """Cancel a batch; finished work stays, and the batch can be begun again. Raises UserError if it is
        done or cancelled already.
        """
        status = self.status(batch)
        if status.state in ("done", "cancelled"):
            raise UserError(f"“{status.batch.name}” is {status.state} already.")
        return self._stop(batch, "cancel")

    @does("approve-batch", BatchCommand)
    def approve(self, batch: int) -> dict[str, Any]:
        """Approve the captions of a batch: its images are drawn from then on. Raises UserError if no captions wait."""
        status = self.status(batch)
        if status.at_work:
            raise UserError(f"“{status.batch.name}” is at work: its captions are shown when all of them are written.")
        self._ledger.approve(batch)
        return self.begin(batch)

    @does("retry-batch", BatchCommand)
    def retry(
        self,
        batch: int,
        reason: Annotated[
            str, Field(description="The reason exactly as show_batch gives it; empty to retry all failed work")
        ] = "",
    ) -> dict[str, Any]:
        """Retry failed work of a batch: all, or only work that failed for one reason. Raises UserError if nothing
        has failed.
        """
        status = self.status(batch)
        if status.at_work and not status.place:
            raise UserError(f"Another process works on “{status.batch.name}”: try again when it has stopped.")
        again = self._ledger.retry_failed(batch, reason or None)
        if not again:
            raise UserError("Nothing has failed for this reason." if reason else "Nothing has failed.")
        with self._lock:
            if self._run is not None and self._run.number == batch and not self._run.stop.is_set():
                self._run.again = True
            elif self._place(batch) == "":
                self._line_up(batch)
        return {**facts_of(self.status(batch)), "again": again}

    @does("list-batches", Query)
    def list_batches(self) -> dict[str, Any]:
        """List the batches with their progress, the latest first."""
        return {"batches": [facts_of(status) for status in self.all()]}

    @does("show-batch", BatchCommand, looks=True)
    def show_batch(self, batch: int) -> dict[str, Any]:
        """Show a batch: progress, cost, failures by reason, captions waiting for approval, latest images."""
        return details_facts(self.details(batch))

    # Queries

    def status(self, number: int) -> BatchStatus:
        """Return the status of a batch. Raises UserError for an unknown one."""
        with self._lock:
            place, problem = self._place(number), self._problems.get(number, "")
        try:
            return self._service.status(number, place, problem)
        except UserError as error:
            raise UserError(f"There is no batch {number}: the page Batches lists all batches.") from error

    def details(self, number: int) -> BatchDetails:
        """Return all that pages and scripts show of a batch. Raises UserError for an unknown one."""
        return self._service.details(self.status(number))

    def all(self) -> tuple[BatchStatus, ...]:
        return tuple(self.status(batch.id) for batch in self._ledger.all())

    # Commands

    @does("plan-any-batch", PlanBatch)
    def plan(self, sent: PlanBatch) -> WorkView:
        """Queue a plan: choose items of a data set on this machine, and record them as the sources of a batch. Raises
        UserError for an unusable plan, or a forbidden path in a script's plan.

        Return the progress, which `planning` shows too. The `result` of the finished work is the batch's number. If the
        plan has a batch already, no other is made. If this plan is being worked on, that work continues.
        """
        if isinstance(sent, PlanByScript):
            self._data_roots.require_text(sent.plan)
        plan = _read(sent.plan)
        if isinstance(sent, PlanByScript):
            plan = self._data_roots.require_plan(plan)

        def work(on_count: OnCount) -> int:
            if self.scenes is not None:
                self.scenes.draw(Path(plan.data.root), on_count)
            return self._service.plan(plan, lambda done: on_count(done, 0))

        return self.planning.wait(self.planning.begin(PLANNING, plan.digest, work).id, PLANNING_SECONDS)

    def search(self, number: int, choose: Choose) -> None:
        """Approve the captions of a batch, and queue it to draw the images that `choose` chooses. Raises UserError if
        the batch is running or queued, or some of its captions are not written yet.
        """
        status = self.status(number)
        if status.at_work:
            raise UserError(f"“{status.batch.name}” is at work: pause it first.")
        if status.batch.approved is None:
            self._ledger.approve(number)
        with self._lock:
            self._choosing[number] = choose
            self._line_up(number)

    def stopping(self, number: int) -> bool:
        """Return True if batch `number` runs in this process and was asked to stop."""
        with self._lock:
            return self._place(number) == "stopping"

    def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Stop the running batch (it can be resumed later), and begin no other. Wait at most `seconds` for its end."""
        with self._lock:
            self._closing = True
            self._waiting.clear()
            if self._run is not None:
                self._run.stop.set()
            thread = self._thread
        self.planning.close()
        if thread is not None:
            thread.join(seconds)

    # Implementation

    def _place(self, number: int) -> Place:
        if self._run is not None and self._run.number == number:
            return "stopping" if self._run.stop.is_set() else "running"
        return "waiting" if number in self._waiting else ""

    def _line_up(self, number: int) -> None:
        self._problems.pop(number, None)
        self._ledger.set_wish(number, "go")
        self._waiting.append(number)
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._serve, name="batches", daemon=True)
            self._thread.start()

    def _stop(self, number: int, wish: Wish) -> dict[str, Any]:
        with self._lock:
            if number in self._waiting:
                self._waiting.remove(number)
            if self._run is not None and self._run.number == number:
                self._run.wish, self._run.again = wish, False
                self._run.stop.set()
            self._ledger.set_wish(number, wish)
        return facts_of(self.status(number))

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._closing or not self._waiting:
                    self._thread = None
                    return
                number = self._waiting.popleft()
                self._run = run = _Run(number, choose=self._choosing.pop(number, None))
            self._changes.tell()
            problem = self._work(run)
            with self._lock:
                self._run = None
                if problem:
                    self._problems[run.number] = problem
                if run.wish != "go":  # when it began, "go" was recorded
                    self._ledger.set_wish(run.number, run.wish)
                elif run.again and not problem:
                    self._waiting.appendleft(run.number)
            self._changes.tell()

    def _work(self, run: _Run) -> str:
        try:
            order = self._service.order(run.number)
            Engine(
                self._workspace, run.number, order, self.pool, run.stop, lambda *_: self._changes.tell(), run.choose
            ).run()
        except Cancelled:  # while images were chosen
            return ""
        except UserError as error:
            return str(error)
        except Exception as error:  # the thread must survive a bug in the work
            log.exception("the batch %d failed", run.number)
            return f"The studio itself failed ({type(error).__name__}): the terminal says more."
        return ""


def _read(text: str) -> BatchPlan:
    """Parse a plan's text. Raises UserError if the plan is invalid, or if one of its paths is not absolute."""
    for name, path in named_paths(text).items():
        if not Path(path).is_absolute():
            advice = "write an absolute path on the studio's machine, such as “/data/imagenet”"
            raise UserError(f"{name} is {f'{path!r:.200}' if path else 'empty'}: {advice}.", field="plan")
    try:
        return plan_from_text(text, PLAN)
    except UserError as error:
        raise UserError(str(error), field="plan") from error
