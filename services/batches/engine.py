"""Brings a batch to its end, pass by pass: what a pass has to do is planned, leased to workers, and recorded.

Lots are made from the order of the sources alone, and an image says at which place of a batch of which size it is
drawn.
So the same plan gives the same images, whoever does which lot, however often and after however many deaths.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.methods import method_of
from pipeline.models import load_models
from pipeline.recipes import recipe_of
from pipeline.seeds import LARGEST
from pipeline.stages.generation import seed_of
from pipeline.types import CounterfactualCaption, CounterfactualCaptions, StageName, Task, to_plain
from services.batches.choosing import rank_of
from services.batches.plan_file import BatchPlan
from services.batches.pools import Pool, Returned
from services.batches.sharing import Shared, share_out
from services.batches.work import Lot, Order, Piece
from storage.batch_types import PASSES, Batch, BatchSource, Claimed, HeldRun, NewWork, Pass
from storage.workspace import Workspace

SOURCES_OF_A_LOT = 8
"""Sources that are captioned together, or that the language model writes for together."""
TOGETHER = 512
"""Sources that are planned together: of their images the last lot of each shape is not full."""
LOOK_EVERY = 0.5
"""Seconds until it is seen that a person wants it to stop."""

Outcome = Literal["done", "approval", "paused", "cancelled"]


@dataclass(frozen=True)
class Told:
    """Something that happened, for whoever watches."""

    batch: Batch
    stage: Pass
    done: int
    failed: int


class Engine:
    """Works on one batch of a workspace. In one thread; `stop` may be set from any other."""

    def __init__(
        self,
        workspace: Workspace,
        batch: int,
        order: Order,
        pool: Callable[[Order], Pool],
        stop: threading.Event | None = None,
        tell: Callable[[Told], None] = lambda told: None,
    ) -> None:
        self._workspace, self._ledger, self._number = workspace, workspace.batches, batch
        self._order, self._pool, self._tell = order, pool, tell
        self._stop = stop or threading.Event()
        self._recipe = recipe_of(order.plan.make.recipe)
        method = method_of(self._recipe.method)
        self._model = method.model_name(load_models(order.profile), method.settings_of(order.settings))

    @property
    def _plan(self) -> BatchPlan:
        return self._order.plan

    def run(self) -> Outcome:
        """Work until the batch is done, waits for a person's yes, or is to stop. Raises UserError where another process
        works on it, and where no worker can work; what was done by then is recorded.
        """
        self._ledger.hold(self._number)
        try:
            return self._run()
        finally:
            self._ledger.let_go(self._number)

    def _run(self) -> Outcome:
        plans = {"captions": self._plan_captions, "language": self._plan_language, "images": self._plan_images}
        for stage in PASSES:
            plans[stage]()  # what an earlier one has left, and what a source lacks that was tried again
            self._ledger.go_on(self._number, stage)
            batch = self._ledger.get(self._number)
            if stage == "images" and batch.approved is None:
                return "approval"
            if (stopped := self._work(batch)) is not None:
                return stopped
        self._ledger.finish(self._number)
        return "done"

    # Lots go out and come back

    def _work(self, batch: Batch) -> Outcome | None:
        """Do what is planned of the batch's pass; why it stopped before the end."""
        lot = self._next(batch)
        if lot is None:
            return None
        pool = self._pool(self._order)
        out: dict[int, Lot] = {}
        try:
            while lot is not None or out:
                if (stopped := self._asked_to_stop()) is not None:
                    return stopped
                while lot is not None and pool.room() > 0:
                    out[id(lot)] = lot
                    pool.send(lot)
                    lot = self._next(batch)
                for returned in pool.wait(LOOK_EVERY):
                    self._take(batch, returned)
                    del out[id(returned.lot)]
                    if lot is None:
                        lot = self._next(batch)  # what has come back may be tried again
            return None
        finally:
            pool.close()
            left = [*out.values(), *([lot] if lot is not None else [])]
            self._ledger.give_back([piece.id for one in left for piece in one.pieces])

    def _asked_to_stop(self) -> Outcome | None:
        if self._stop.is_set():
            return "paused"
        wish = self._ledger.get(self._number).wish
        return {"go": None, "pause": "paused", "cancel": "cancelled"}[wish]  # type: ignore[return-value]

    def _take(self, batch: Batch, returned: Returned) -> None:
        pieces = [piece.id for piece in returned.lot.pieces]
        if returned.died or returned.untouched:
            self._ledger.give_back(pieces, died=returned.died)
        else:
            self._ledger.record(self._number, returned.done, self._plan.images.tries)
        failed = sum(bool(one.failed) for one in returned.done)
        self._tell(Told(batch, batch.stage, len(returned.done) - failed, failed))

    def _next(self, batch: Batch) -> Lot | None:
        claimed = self._ledger.claim(self._number, batch.stage)
        if not claimed:
            return None
        runs = self._ledger.held(list(dict.fromkeys(one.run for one in claimed if one.run)))
        pieces = tuple(_piece(one, runs.get(one.run or "")) for one in claimed)
        return Lot(claimed[0].lot, batch.stage, pieces)

    # What a pass has to do

    def _lacking(self, stage: Pass) -> Iterator[tuple[BatchSource, ...]]:
        """The sources that have nothing to do in a pass yet, as many at a time as are planned together."""
        after = 0
        while some := self._ledger.sources(self._number, stage, after, TOGETHER):
            yield some
            after = some[-1].id

    def _plan_captions(self) -> None:
        for some in self._lacking("captions"):
            self._plan_text("captions", some)

    def _plan_language(self) -> None:
        """For each source that was read; of those that show the same picture for the first."""
        for some in self._lacking("language"):
            self._plan_text("language", some)

    def _plan_text(self, stage: Pass, some: Sequence[BatchSource]) -> None:
        first, work, twice = self._ledger.next_lot(self._number, stage), list[NewWork](), dict[str, str]()
        for place, source in enumerate(some):
            lot, at = divmod(place, SOURCES_OF_A_LOT)
            key, seed = f"{stage}/{source.item.key}", self._seed(source)
            work.append(NewWork(source.id, key, first + lot, at, seed))
            if source.first not in ("", source.item.key):
                twice[key] = f"It shows the same picture as {source.first}."
        self._ledger.plan(self._number, stage, work, twice)

    def _seed(self, source: BatchSource) -> int:
        """That of a source: its place among the others does not count."""
        return rank_of(self._plan.make.seed, source.item.key) & LARGEST

    def _plan_images(self) -> None:
        """The captions that are drawn, of all that were written, in lots of one shape."""
        if next(self._lacking("images"), None) is None:
            return
        shared = share_out(self._written(), self._plan)
        for some in self._lacking("images"):
            self._plan_drawing(some, shared)
        self._ledger.note(self._number, shared.report.sentences())

    def _written(self) -> Iterator[tuple[str, CounterfactualCaptions]]:
        """The captions of all sources. Those that are planned already count too: what is chosen of the others then
        does not hang on when somebody stopped."""
        after = 0
        while some := self._ledger.sources(self._number, None, after, TOGETHER):
            held = self._ledger.held([source.run for source in some if source.run])
            for source in some:
                if source.run and (captions := self._recipe.captions(_bare(held[source.run]))) is not None:
                    yield source.item.key, captions
            after = some[-1].id

    def _plan_drawing(self, some: Sequence[BatchSource], shared: Shared) -> None:
        held = self._ledger.held([source.run for source in some if source.run])
        method, settings = method_of(self._recipe.method), self._order.settings
        own = method.settings_of(settings)
        shapes: dict[Hashable, list[NewWork]] = {}
        without: list[NewWork] = []
        for source in some:
            run = held[source.run or ""]
            captions = self._recipe.captions(_bare(run))
            chosen = shared.chosen.get(source.item.key, ()) if captions is not None else ()
            if captions is None or not chosen:
                without.append(NewWork(source.id, f"images/{source.item.key}", 0, len(without), 0))
                continue
            task = self._plan.task_of(source.item.label)
            first = self._seed(source)
            for place in chosen:
                caption = captions.items[place]
                for number in range(settings.generation.images_per_caption):
                    seed = seed_of(settings.generation, first, place, number)
                    key = _image_key(run, task, caption, method.name, self._model, own.plain(), seed)
                    shape = method.shape(own, run.size)
                    shapes.setdefault(shape, []).append(NewWork(source.id, key, 0, 0, seed, caption))
        lot, work = self._ledger.next_lot(self._number, "images"), list[NewWork]()
        for same in shapes.values():
            for at, one in enumerate(same):
                further, place = divmod(at, self._order.at_once)
                work.append(replace(one, lot=lot + further, place=place))
            lot += -(-len(same) // self._order.at_once)
        work += [replace(one, lot=lot) for one in without]
        why = "None of its captions is drawn: the plan's shares leave them out."
        self._ledger.plan(self._number, "images", work, {one.key: why for one in without})


def _piece(one: Claimed, run: HeldRun | None) -> Piece:
    piece = Piece(
        id=one.id,
        place=one.place,
        key=one.item.key,
        stamp=one.item.stamp,
        label=one.item.label,
        seed=one.seed,
        seeds=one.seeds,
        counterfactual=one.counterfactual,
    )
    if run is None:
        return piece
    return replace(piece, source=run.source_sha, mask=run.mask_sha, mask_classes=run.mask_classes, values=run.values)


def _bare(run: HeldRun) -> dict[StageName, Any]:
    return {name: value.value for name, value in run.values.items()}


def _image_key(
    run: HeldRun,
    task: Task,
    caption: CounterfactualCaption,
    method: str,
    model: str,
    settings: Mapping[str, Any],
    seed: int,
) -> str:
    """A hash of all that an image is made from: 64 hexadecimal digits."""
    made_from = [run.source_sha, run.mask_sha, to_plain(task), to_plain(caption), method, model, dict(settings), seed]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
