"""Plans all work of a pass of a batch (captions, language, images), and records it in the ledger before any is done.

Only the order of the sources decides which work is done together, as a lot. Each image records the size of its lot, and
its position there. So a plan gives the same images with any number of workers and retries.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from core.batches import (
    PASSES,
    Batch,
    BatchSource,
    Candidate,
    Chosen,
    ChosenBy,
    NewWork,
    Pass,
    PlannedDrawing,
    SourceRun,
)
from core.seeds import LARGEST
from core.types import CounterfactualCaption, CounterfactualCaptions, StageName, to_plain
from pipeline.methods import method_of
from pipeline.models import load_models
from pipeline.recipes import Recipe, recipe_of
from pipeline.stages.generation import seed_of
from services.batches.caption_selection import SelectedCaptions, select_captions
from services.batches.io_workers import Order
from services.batches.item_selection import rank_of
from storage.runs.runs import Runs
from storage.workspace import Workspace

SOURCES_OF_A_LOT = 8
"""Number of sources in one group of work for the captioner or the language model."""
TOGETHER = 512
"""Number of sources planned together. Their images of equal shape fill whole lots; only the last may be smaller."""
EDITED = "Its caption was edited before it was drawn: the edited one is drawn."
TAKEN_OUT = "Its caption was taken out before it was drawn."


_Image = TypeVar("_Image", NewWork, Chosen)
_Shapes = defaultdict[Hashable, list[_Image]]
"""Images to plan, by shape: a key from the drawing method. Only images of equal shape can be drawn together."""


def _in_lots(shapes: Mapping[Hashable, list[_Image]], first: int, at_once: int) -> tuple[list[_Image], int]:
    """Put images of equal shape into lots of `at_once`, from lot `first` on. Return the images and the next number."""
    lot, work = first, list[_Image]()
    for same in shapes.values():
        for at, one in enumerate(same):
            further, place = divmod(at, at_once)
            work.append(replace(one, lot=lot + further, place=place))
        lot += -(-len(same) // at_once)
    return work, lot


class Planner:
    """Plans the work of one batch, in the process that works on the batch."""

    def __init__(self, workspace: Workspace, batch: int, order: Order, holds_back: bool = False) -> None:
        """Create a planner. If `holds_back` is True, planned images wait until a search for weaknesses chooses them."""
        self._holds_back = holds_back
        self._ledger, self._runs, self._number, self._order = workspace.batches, workspace.runs, batch, order
        self._recipe = recipe_of(order.plan.make.recipe)
        self._method = method_of(self._recipe.method)
        self._own = self._method.settings_of(order.settings)
        self._model = self._method.model_name(load_models(order.profile), self._own)

    def next_pass(self) -> Batch | None:
        """Plan passes in order until one has work to do. Return the batch at that pass, or None if no pass has work."""
        for stage in PASSES:  # an earlier pass may have work left, or sources to retry
            if stage == "images":
                self._plan_images()
                if self._holds_back:
                    self._ledger.hold_back(self._number)
            else:
                self._plan_text(stage)
            self._ledger.go_on(self._number, stage)
            if "planned" in self._ledger.counts(self._number)[stage]:
                return self._ledger.get(self._number)
        return None

    def _sources(self, stage: Pass | None) -> Iterator[tuple[BatchSource, ...]]:
        """Yield groups of sources to plan together: those without planned work in `stage`, or all if it is None."""
        after = 0
        while some := self._ledger.sources(self._number, stage, after, TOGETHER):
            yield some
            after = some[-1].id

    def _plan_text(self, stage: Pass) -> None:
        """Plan the text stages of each source. Of sources with the same picture, only the first gets text."""
        for some in self._sources(stage):
            first, work, twice = self._ledger.next_lot(self._number, stage), list[NewWork](), dict[str, str]()
            for place, source in enumerate(some):
                lot, at = divmod(place, SOURCES_OF_A_LOT)
                key, seed = f"{stage}/{source.item.key}", self._seed(source)
                work.append(NewWork(source.id, key, first + lot, at, seed))
                if source.first not in ("", source.item.key):
                    twice[key] = f"It shows the same picture as {source.first}."
            self._ledger.plan(self._number, stage, work, twice)

    def _seed(self, source: BatchSource) -> int:
        """Return the seed of a source. It depends only on the plan's seed and the source's key."""
        return rank_of(self._order.plan.make.seed, source.item.key) & LARGEST

    # Images

    def _plan_images(self) -> None:
        self._plan_edited()
        if next(self._sources("images"), None) is None:
            return
        shared = select_captions(self._written(), self._order.plan)
        for some in self._sources("images"):
            self._plan_drawing(some, shared)
        self._ledger.note(self._number, shared.report.sentences())

    def _written(self) -> Iterator[tuple[str, CounterfactualCaptions]]:
        """Yield the key and the captions of each source that has captions. Sources with planned images are included, so
        that pausing a batch does not change which captions are chosen for the rest.
        """
        for some in self._sources(None):
            runs = self._ledger.source_runs([source.run for source in some if source.run])
            for source in some:
                if source.run and (captions := self._recipe.captions(_bare(runs[source.run]))) is not None:
                    yield source.item.key, captions

    def _plan_drawing(self, some: Sequence[BatchSource], shared: SelectedCaptions) -> None:
        runs = self._ledger.source_runs([source.run for source in some if source.run])
        shapes, without = _Shapes[NewWork](list), list[NewWork]()
        planning = self._method.planning(self._order.settings)
        for source in some:
            run = runs[source.run or ""]
            captions = self._recipe.captions(_bare(run))
            chosen = shared.chosen.get(source.item.key, ()) if captions is not None else ()
            if captions is None or not chosen:
                without.append(NewWork(source.id, f"images/{source.item.key}", 0, len(without), 0))
                continue
            for place in chosen:
                for number in range(planning.images_per_caption):
                    seed = seed_of(planning, self._seed(source), place, number)
                    self._add(shapes, source, run, captions.items[place], seed)
        work, lot = _in_lots(shapes, self._ledger.next_lot(self._number, "images"), self._order.at_once)
        work += [replace(one, lot=lot) for one in without]
        why = "None of its captions is drawn: the plan's shares leave them out."
        self._ledger.plan(self._number, "images", work, {one.key: why for one in without})

    def _add(
        self, shapes: _Shapes[NewWork], source: BatchSource, run: SourceRun, caption: CounterfactualCaption, seed: int
    ) -> None:
        task = self._order.plan.task_of(source.item.label)
        drawn_with = self._recipe.drawn_with(self._order.settings, _bare(run)).plain()
        about, method = [run.source_sha, run.mask_sha, to_plain(task), to_plain(caption)], self._method
        made_from = [*about, method.name, self._model, dict(drawn_with), seed]
        key = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
        shapes[method.shape(self._own, run.size)].append(NewWork(source.id, key, 0, 0, seed, caption))

    def choose(self, chosen: Sequence[tuple[Candidate, ChosenBy, str]]) -> None:
        """Plan images that a search chose, in new lots. `chosen` has (image, `Chosen.chosen_by`, `Chosen.asked`)."""
        runs, shapes = self._ledger.source_runs(list({one.run for one, _, _ in chosen})), _Shapes[Chosen](list)
        for one, how, question in chosen:
            shapes[self._method.shape(self._own, runs[one.run].size)].append(Chosen(one.id, 0, 0, how, question))
        work, _ = _in_lots(shapes, self._ledger.next_lot(self._number, "images"), self._order.at_once)
        self._ledger.choose(self._number, work)

    def _plan_edited(self) -> None:
        """Plan images again if their captions were edited in Explore before drawing began. With `holds_back`, also plan
        the captions that a person added there.
        """
        planning = self._method.planning(self._order.settings)
        for source in self._ledger.edited(self._number):
            run = self._ledger.source_runs([source.run or ""])[source.run or ""]
            slots: dict[tuple[int, int], list[PlannedDrawing]] = {}
            captions: dict[tuple[int, int], CounterfactualCaption | None] = {}
            for one in self._ledger.drawings(source.id):
                current = caption_now(self._recipe, self._runs, source.run or "", run, one.counterfactual)
                if current is not None:
                    place, caption = current
                    slots.setdefault((place, one.seed), []).append(one)
                    captions[place, one.seed] = caption
            shapes, left, back = _Shapes[NewWork](list), dict[int, str](), list[int]()
            for slot, drawings in slots.items():
                caption = captions[slot]
                if any(one.begun for one in drawings):
                    continue
                if caption is not None and not any(one.counterfactual == caption for one in drawings):
                    self._add(shapes, source, run, caption, slot[1])
                for one in drawings:
                    if one.counterfactual != caption and (one.waits or not one.skipped):
                        left[one.id] = TAKEN_OUT if caption is None else EDITED
                    elif one.counterfactual == caption and one.skipped and not one.waits:
                        back.append(one.id)
            if self._holds_back:
                for place, caption in self._added(source.run or "", run, {place for place, _ in slots}):
                    for number in range(planning.images_per_caption):
                        self._add(shapes, source, run, caption, seed_of(planning, self._seed(source), place, number))
            work, _ = _in_lots(shapes, self._ledger.next_lot(self._number, "images"), self._order.at_once)
            self._ledger.replan(self._number, left, back, work)

    def _added(
        self, run_id: str, run: SourceRun, planned: Collection[int]
    ) -> Iterator[tuple[int, CounterfactualCaption]]:
        """Yield (index, caption) of each ticked caption that a person wrote in a run. Skip indices in `planned`."""
        captions, written = self._recipe.captions(_bare(run)), set[CounterfactualCaption]()
        for version in self._runs.history(run_id, self._recipe.last.name):
            if version.value.trace.author == "model":
                before = self._recipe.captions({**_bare(run), self._recipe.last.name: version.value.value})
                written.update(before.items if before is not None else ())
        for place, caption in enumerate(captions.items if captions is not None else ()):
            if caption.used and place not in planned and caption not in written:
                yield place, caption


def caption_now(
    recipe: Recipe, runs: Runs, run_id: str, run: SourceRun, caption: CounterfactualCaption
) -> tuple[int, CounterfactualCaption | None] | None:
    """Return the index of a planned caption in its run, and the caption as it is now (None if a person removed it). If
    no version of the run has the planned caption, return None instead of this pair.
    """
    captions_now = recipe.captions(_bare(run))
    now = captions_now.items if captions_now is not None else ()
    if caption in now:
        return now.index(caption), caption if caption.used else None
    for version in reversed(runs.history(run_id, recipe.last.name)):
        captions = recipe.captions({**_bare(run), recipe.last.name: version.value.value})
        before = captions.items if captions is not None else ()
        if caption in before:
            place = before.index(caption)
            taken_out = place >= len(now) or not now[place].used
            # If another caption has moved up to its place, this one was deleted.
            moved = not taken_out and now[place] in before
            return place, None if taken_out or moved else now[place]
    return None


def _bare(run: SourceRun) -> dict[StageName, Any]:
    return {name: value.value for name, value in run.values.items()}
