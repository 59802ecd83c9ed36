"""Runs a batch to its end: captions of all sources, then all text of the language model, then all images. Work comes
from the ledger, the batch's tables in the database. Results are recorded there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Literal

from core.batches import Batch, Done, Lot, Pass
from core.errors import UserError
from pipeline.recipes import recipe_of
from services.batches.io_workers import Order
from services.batches.planning import Planner
from services.batches.pools import Pool, work_off
from services.batches.shards import handed_out
from services.batches.work import stages_of
from storage.workspace import Workspace

Outcome = Literal["done", "approval", "paused", "cancelled"]
Choose = Callable[[Planner], bool]
"""Function that is called whenever no image is left to draw. Returns True if it has planned more images."""
OnLot = Callable[[Pass, int], None]
"""Callback after each group of work. Gets the pass, such as "images", and how many parts of the group succeeded."""


class Engine:
    """Runs one batch of a workspace in the calling thread. Any thread may set `stop` to end the run."""

    def __init__(
        self,
        workspace: Workspace,
        batch: int,
        order: Order,
        pool: Callable[[Order], Pool],
        stop: threading.Event | None = None,
        tell: OnLot = lambda _stage, _done: None,
        choose: Choose | None = None,
    ) -> None:
        """Create the engine. `choose` decides which images are drawn; the others wait. With None, all are drawn."""
        self._workspace, self._ledger, self._number = workspace, workspace.batches, batch
        self._order, self._pool, self._tell, self._stop = order, pool, tell, stop or threading.Event()
        self._recipe = recipe_of(order.plan.make.recipe)
        self._chooses, self._choose = choose is not None, choose or (lambda _planner: False)
        self._planner = Planner(workspace, batch, order, holds_back=self._chooses)
        self._ahead: Pool | None = None

    def run(self) -> Outcome:
        """Work until the batch is done, the batch waits for approval, or a stop was requested. Return the outcome.
        Raises UserError if another process or shards already work on the batch, or if no worker can work.
        """
        number = self._number
        if (folder := handed_out(self._workspace.folder, number)) is not None:
            raise UserError(
                f"The work of batch {number} is handed out to shards ({folder}): merge their results with `batch merge "
                f"{number}`, or take the work back with `batch take-back {number}`."
            )
        self._ledger.hold(self._number)
        try:
            self._begin_ahead()
            return self._run()
        finally:
            if self._ahead is not None:
                self._ahead.close()
            self._ledger.let_go(self._number)

    def _begin_ahead(self) -> None:
        """Start the workers early if work is left, so that they load models while this process plans more work."""
        batch = self._ledger.get(self._number)
        waits = batch.stage == "images" and batch.approved is None
        if not waits and self._has_work(batch.stage) and "planned" in self._ledger.counts(self._number)[batch.stage]:
            self._ahead = self._pool(self._order)

    def _has_work(self, stage: Pass) -> bool:
        """Return True if a pass needs workers. Only "language" may need none: some recipes have no language stages."""
        return stage != "language" or bool(stages_of(self._recipe, stage))

    def _run(self) -> Outcome:
        while (batch := self._planner.next_pass()) is not None or self._choose(self._planner):
            if batch is None:
                continue
            if batch.stage == "images" and batch.approved is None:
                return "approval"
            if (stopped := self._work(batch)) is not None:
                return stopped
        self._ledger.finish(self._number)
        return "done"

    def _work(self, batch: Batch) -> Outcome | None:
        """Do the planned work of the batch's pass. Return "paused" or "cancelled" if it stopped early, else None."""
        if "planned" not in self._ledger.counts(self._number)[batch.stage]:
            return None
        if not self._has_work(batch.stage):  # the recipe has no stage of this pass
            while pieces := self._ledger.claim(self._number, batch.stage):
                done = [Done(piece.id) for piece in pieces]
                self._ledger.record(self._number, done, self._order.plan.images.tries)
            return None
        stopped: Outcome | None = None

        def is_stopped() -> bool:
            nonlocal stopped
            stopped = self._asked_to_stop()
            return stopped is not None

        # `let_go` plans again all work that is still leased at the end.
        pool, self._ahead = self._ahead or self._pool(self._order), None

        def next_lot() -> Lot | None:
            lot = self._next(batch)
            if lot is None and batch.stage == "images" and self._chooses and not pool.out():
                self._planner.next_pass()  # captions may have been edited since
                lot = self._next(batch) or (self._next(batch) if self._choose(self._planner) else None)
            return lot

        with closing(work_off(pool, next_lot, is_stopped)) as lots:
            for returned in lots:
                if returned.died:
                    self._ledger.worker_died([piece.id for piece in returned.lot.pieces])
                else:
                    self._ledger.record(self._number, returned.done, self._order.plan.images.tries)
                self._tell(batch.stage, sum(not one.failed for one in returned.done))
        return stopped

    def _asked_to_stop(self) -> Outcome | None:
        if self._stop.is_set():
            return "paused"
        wish = self._ledger.get(self._number).wish
        return {"go": None, "pause": "paused", "cancel": "cancelled"}[wish]  # type: ignore[return-value]

    def _next(self, batch: Batch) -> Lot | None:
        pieces = self._ledger.claim(self._number, batch.stage)
        return Lot(batch.stage, pieces) if pieces else None
