"""The work of a batch's worker: reads and captions sources, asks the language model for text, or draws images.

A worker runs in any process on any machine that sees the data set and the image files of the workspace. It uses no
database: it gets a `Lot` and returns its results, both plain data without pixels. The image files are complete on the
disk under their hashes before the results are returned (`services.batches.io_workers`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from PIL import Image

from core.batches import Done, Lot, Pass, Piece, ReadSource, SourceRun
from core.errors import UnreadableReply, UserError, one_line
from core.images import StoredImage
from core.lineage import DrawnBatch, TestCase
from core.seeds import next_seed
from core.stored_runs import SavedCase
from core.types import CounterfactualCaption, StageName, Task
from pipeline.driver import Driver, SourceWork
from pipeline.lots import draw, run_stages
from pipeline.models import load_models
from pipeline.recipes import Recipe, recipe_of
from pipeline.request import Event, ImageFailed, MemoryStore, Request
from pipeline.seams import Models
from pipeline.stages.generation import PlannedImage
from services.batches.io_workers import FileWork, IoWorkers, OpenedSource, Order, UnreadSource

T = TypeVar("T")
Awaited = Callable[[], T]
"""Function that waits for a result of a thread or another process, and returns it."""
Finish = Callable[[], list[Done]]
"""Function that waits until the files of a `Lot` are on the disk, and returns the results of its work."""
_Sources = Mapping[int, Callable[[], OpenedSource | UnreadSource]]
"""For the id of each piece of work, a function that waits for its source image and returns it."""


def stages_of(recipe: Recipe, stage: Pass) -> tuple[StageName, ...]:
    """Return the text stages of a pass. “captions” has the first stages, which see the source; “language” the rest."""
    names, looking = recipe.names, ("captioner", "segmenter")
    first = next((place for place, one in enumerate(recipe.stages) if one.producer not in looking), len(names))
    return {"captions": names[:first], "language": names[first:], "images": ()}[stage]


class Worker:
    """Does the work of one batch. Loads models at first use, and releases unused models if memory is short.

    Without helper processes, it does one `Lot` at a time and runs the models in the calling thread. With helpers, two
    threads may call `do`: while the models work on one lot, in a thread of their own, the images of the previous lot
    are saved and the sources of the next are read. Both lots are in memory.
    """

    def __init__(self, order: Order, models: Models | None = None) -> None:
        """Create a worker. `models` are used instead of those of the order's profile; None to use the profile's."""
        self._order = order
        self._models = models or load_models(order.profile)
        self._files = FileWork(order)
        self._driver = Driver(order.profile, self._models, inversions=self._files.inversions)
        self._recipe = recipe_of(order.plan.make.recipe)
        self._io = IoWorkers(order, self._files)
        self._at_models = ThreadPoolExecutor(1, "models") if order.helpers else None

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Do a `Lot` (a group of work), and return the result of each piece of work. The `seconds` of each result are
        an equal part of the lot's time. With helper processes, only the lot's time at the models counts.

        Raises UserError for a problem that every lot would meet, such as a full disk or a model that cannot be loaded.
        Raises HelperDied if a helper process died: the worker can then do no more work.
        """
        began = time.monotonic()
        sources = self._sources(lot)
        if self._at_models is None:
            done = self._begun(lot, sources)()
            seconds = time.monotonic() - began
        else:
            finish, seconds = self._at_models.submit(self._timed, lot, sources).result()
            done = finish()
        return tuple(replace(one, seconds=seconds / len(lot.pieces)) for one in done)

    def close(self) -> None:
        """End the helper processes and threads."""
        self._io.close()
        if self._at_models is not None:
            self._at_models.shutdown()

    def _sources(self, lot: Lot) -> _Sources:
        """Begin to read the source image of each piece of work. Images needed by several pieces are loaded once."""
        if lot.stage == "captions":
            return {piece.id: self._io.submit(FileWork.read, piece) for piece in lot.pieces}
        runs = {_run(piece).source_sha: _run(piece) for piece in lot.pieces}
        loading = {sha: self._io.submit(FileWork.load, run) for sha, run in runs.items()}
        return {piece.id: loading[_run(piece).source_sha] for piece in lot.pieces}

    def _timed(self, lot: Lot, sources: _Sources) -> tuple[Finish, float]:
        began = time.monotonic()
        return self._begun(lot, sources), time.monotonic() - began

    def _begun(self, lot: Lot, sources: _Sources) -> Finish:
        return self._images(lot, sources) if lot.stage == "images" else self._text(lot, sources)

    def _text(self, lot: Lot, sources: _Sources) -> Finish:
        stages, done = stages_of(self._recipe, lot.stage), dict[int, Done]()
        read, works = dict[int, ReadSource | None](), dict[int, SourceWork]()
        for piece in lot.pieces:
            source = sources[piece.id]()
            if isinstance(source, UnreadSource):
                done[piece.id] = Done(piece.id, failed=source.failed, final=source.final)
                continue
            read[piece.id], seed = source.kept, next_seed(piece.seed, piece.seeds)
            settings, name = self._order.settings, self._recipe.name
            request = Request(self._task(piece), settings, name, seed, stages=stages, images=())
            values = piece.run.values if piece.run is not None else {}
            works[piece.id] = SourceWork(request, MemoryStore(source.image, values, source.mask))
        for number, error in zip(works, run_stages(self._driver, list(works.values())), strict=True):
            if error is not None:
                unreadable = isinstance(error, UnreadableReply)
                done[number] = Done(number, failed=one_line(error), seed_spent=unreadable)
            else:
                values = works[number].store.values()
                done[number] = Done(number, source=read[number], values={name: values[name] for name in stages})

        def finish() -> list[Done]:
            self._files.settle()
            return [done[piece.id] for piece in lot.pieces]

        return finish

    # Images

    def _images(self, lot: Lot, sources: _Sources) -> Finish:
        failed: dict[int, UnreadSource] = {}
        stores: dict[str, _SavingStore] = {}
        by_source: dict[str, list[Piece]] = {}
        for piece in lot.pieces:
            source, run = sources[piece.id](), _run(piece)
            if isinstance(source, UnreadSource):
                failed[piece.id] = source
                continue
            if run.source_sha not in stores:
                stores[run.source_sha] = _SavingStore(source, run, self._io)
            by_source.setdefault(run.source_sha, []).append(piece)
        works, settings, seed = list[SourceWork](), self._order.settings, self._order.plan.make.seed
        for sha, pieces in by_source.items():
            task, images = self._task(pieces[0]), tuple(self._planned(piece) for piece in pieces)
            request = Request(task, settings, self._recipe.name, seed, stages=(), images=images, watched=False)
            works.append(SourceWork(request, stores[sha]))
        if works:
            numbered = [*stores.values()]
            draw(self._driver, works, lambda number, event: numbered[number].tell(event), at_once=self._order.at_once)

        def finish() -> list[Done]:
            done = [self._drawn(piece, stores, failed) for piece in lot.pieces]
            if works:
                self._files.settle()
            return done

        return finish

    def _planned(self, piece: Piece) -> PlannedImage:
        assert piece.counterfactual is not None
        batch = DrawnBatch(size=self._order.at_once, place=piece.place)
        return PlannedImage(piece.counterfactual, next_seed(piece.seed, piece.seeds), batch=batch)

    def _drawn(self, piece: Piece, stores: Mapping[str, _SavingStore], failed: Mapping[int, UnreadSource]) -> Done:
        if piece.id in failed:
            return Done(piece.id, failed=failed[piece.id].failed, final=True)
        store, seed = stores[_run(piece).source_sha], next_seed(piece.seed, piece.seeds)
        saved, error = store.saved.get((piece.counterfactual, seed)), store.failed.get((piece.counterfactual, seed))
        if saved is None:
            # A UserError is about the image's pixels, so the next try takes another seed. Other errors are accidents.
            words = one_line(error) if error is not None else "The image was not drawn, and nothing says why."
            return Done(piece.id, failed=words, seed_spent=isinstance(error, UserError))
        case = saved()
        for check in case.checks:
            if check.passed is False and check.name in self._order.plan.images.checks:
                why = f"It fails the check “{check.name}”, which the plan asks for."
                return Done(piece.id, failed=why, seed_spent=True)
        return Done(piece.id, case=case)

    def _task(self, piece: Piece) -> Task:
        return self._order.plan.task_of(piece.item.label)


def _run(piece: Piece) -> SourceRun:
    """Return the run of a piece's source image. An earlier pass has begun that run."""
    assert piece.run is not None
    return piece.run


class _SavingStore(MemoryStore):
    """Store of one source image, which saves generated images as soon as they are drawn."""

    def __init__(self, source: OpenedSource, run: SourceRun, io: IoWorkers) -> None:
        super().__init__(source.image, run.values, source.mask)
        self._io = io
        self.saved: dict[tuple[CounterfactualCaption | None, int], Awaited[SavedCase]] = {}
        """For each caption and seed, a function that waits for the saved test case and returns it."""
        self.failed: dict[tuple[CounterfactualCaption | None, int], Exception] = {}
        self._artifacts: dict[int, tuple[Image.Image, Awaited[StoredImage]]] = {}
        """By `id` of a picture: the picture and a function that waits until it is saved. Test cases share artifacts."""

    def save_case(self, case: TestCase) -> None:
        image = self._io.submit(FileWork.save, case.image, in_galleries=True)
        artifacts = {name: self._artifact(picture) for name, picture in case.artifacts.items()}
        lineage, checks = case.lineage, case.checks

        def saved() -> SavedCase:
            return SavedCase(lineage, checks, image(), {name: awaited() for name, awaited in artifacts.items()})

        self.saved[lineage.counterfactual, lineage.seed] = saved

    def _artifact(self, picture: Image.Image) -> Awaited[StoredImage]:
        if id(picture) not in self._artifacts:
            self._artifacts[id(picture)] = picture, self._io.submit(FileWork.save, picture, in_galleries=False)
        return self._artifacts[id(picture)][1]

    def tell(self, event: Event) -> None:
        """Record the error if `event` says that an image could not be made. Ignore other events."""
        if isinstance(event, ImageFailed):
            self.failed[event.image.counterfactual, event.image.seed] = event.error
