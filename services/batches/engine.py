"""Runs a batch to its end, pass by pass: leases planned work to workers and records the results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Literal

from core.batches import Batch, Done, Lot, Pass
from core.errors import UserError
from pipeline.recipes import recipe_of
from services.batches.io_workers import Order
from services.batches.planning import Planner
from services.batches.pools import Pool, Returned, work_off
from services.batches.shards import handed_out
from services.batches.work import stages_of
from storage.workspace import Workspace

Outcome = Literal["done", "approval", "paused", "cancelled"]


OnLot = Callable[[Pass, int], None]
"""Called for each lot that comes back, with its pass and the number of finished pieces."""


class Engine:
    """Works on one batch of a workspace, in one thread; any thread may set `stop`."""

    def __init__(
        self,
        workspace: Workspace,
        batch: int,
        order: Order,
        pool: Callable[[Order], Pool],
        stop: threading.Event | None = None,
        tell: OnLot = lambda _stage, _done: None,
    ) -> None:
        self._workspace, self._ledger, self._number = workspace, workspace.batches, batch
        self._order, self._pool, self._tell = order, pool, tell
        self._stop = stop or threading.Event()
        self._recipe = recipe_of(order.plan.make.recipe)
        self._planner = Planner(workspace, batch, order)
        self._ahead: Pool | None = None

    def run(self) -> Outcome:
        """Work until the batch is done, waits for approval, or must stop. Raises UserError if another process or shards
        work on it, or if no worker can work; finished work is recorded.
        """
        if (folder := handed_out(self._workspace.folder, self._number)) is not None:
            number = self._number
            raise UserError(
                f"Its lots are handed out to shards ({folder}): merge what they did with `batch merge {number}`, or "
                f"take the lots back with `batch take-back {number}`."
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
        """Start the workers if there surely is work, so that they load models while the ledger is read."""
        batch = self._ledger.get(self._number)
        waits = batch.stage == "images" and batch.approved is None
        if not waits and self._has_work(batch.stage) and "planned" in self._ledger.counts(self._number)[batch.stage]:
            self._ahead = self._pool(self._order)

    def _has_work(self, stage: Pass) -> bool:
        """Return True if workers have work in a pass. The first pass reads the sources, even without a text stage."""
        return stage != "language" or bool(stages_of(self._recipe, stage))

    def _run(self) -> Outcome:
        while (batch := self._planner.next_pass()) is not None:
            if batch.stage == "images" and batch.approved is None:
                return "approval"
            if (stopped := self._work(batch)) is not None:
                return stopped
        self._ledger.finish(self._number)
        return "done"

    def _work(self, batch: Batch) -> Outcome | None:
        """Do the planned work of the batch's pass. Return why it stopped early, or None."""
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

        # Work still leased at the end is planned again when the batch is let go.
        pool, self._ahead = self._ahead or self._pool(self._order), None
        with closing(work_off(pool, partial(self._next, batch), is_stopped)) as lots:
            for returned in lots:
                self._take(batch, returned)
        return stopped

    def _asked_to_stop(self) -> Outcome | None:
        if self._stop.is_set():
            return "paused"
        wish = self._ledger.get(self._number).wish
        return {"go": None, "pause": "paused", "cancel": "cancelled"}[wish]  # type: ignore[return-value]

    def _take(self, batch: Batch, returned: Returned) -> None:
        pieces = [piece.id for piece in returned.lot.pieces]
        if returned.died:
            self._ledger.worker_died(pieces)
        else:
            self._ledger.record(self._number, returned.done, self._order.plan.images.tries)
        self._tell(batch.stage, sum(not one.failed for one in returned.done))

    def _next(self, batch: Batch) -> Lot | None:
        pieces = self._ledger.claim(self._number, batch.stage)
        return Lot(batch.stage, pieces) if pieces else None
