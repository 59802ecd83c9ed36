"""What a worker does with a lot: reads sources and captions them, has the language model write, draws images.

A worker runs in any process on any machine that sees the data set and the image files of the workspace. It knows no
database: a lot comes in and what became of it goes out, both plain data without pixels. The image files are whole on
the disk under their hashes before anybody hears of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.driver import Driver, Event, ImageFailed, MemoryStore, Request
from pipeline.errors import UnreadableReply, UserError, one_line
from pipeline.images import Picture, read_image
from pipeline.lineage import Batch, TestCase
from pipeline.lots import Work, draw, run_stages
from pipeline.masks import Mask, NamedMask, read_mask
from pipeline.models import load_models
from pipeline.profile import Profile
from pipeline.recipes import Recipe, recipe_of
from pipeline.seams import Models
from pipeline.seeds import next_seed
from pipeline.settings import Settings
from pipeline.stages.generation import PlannedImage
from pipeline.types import CounterfactualCaption, StageName, StageValue, Task
from services.batches.plan_file import BatchPlan
from services.data_sets.reading import open_data_set
from services.data_sets.types import DataSet
from storage.batch_types import Done, Pass, ReadSource
from storage.images import ImageFiles
from storage.test_cases import SavedCase, save_cases
from storage.thumbnails import ThumbnailFiles


@dataclass(frozen=True)
class Order:
    """What a worker needs to know of a batch. It may be pickled and sent to another machine."""

    plan: BatchPlan
    profile: Profile
    settings: Settings
    at_once: int
    """Images of a full lot."""
    images: Path
    thumbnails: Path
    process: int
    """The number of the process that works on the batch: half files carry it."""


@dataclass(frozen=True)
class Piece:
    """One piece of the work of a lot."""

    id: int
    place: int
    key: str
    """The name of its source in the data set."""
    stamp: str
    """Tells when its file is changed."""
    label: str
    seed: int
    seeds: int = 0
    """How many seeds failed tries have spent: it takes the next one."""
    source: str = ""
    """The hash of the source image, once it is read."""
    mask: str = ""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    values: Mapping[StageName, StageValue[Any]] = field(default_factory=dict)
    """Of the text stages, as far as they are there."""
    counterfactual: CounterfactualCaption | None = None
    """What an image is to show."""


@dataclass(frozen=True)
class Lot:
    """Work that is done together."""

    number: int
    stage: Pass
    pieces: tuple[Piece, ...]


def data_set_of(plan: BatchPlan) -> DataSet:
    """The data set of a plan. Raises UserError as `open_data_set` does."""
    part = plan.data
    options = {name: str(value) for name, value in part.options.items()}
    return open_data_set(Path(part.root), part.layout, part.split, **options)


def stages_of(recipe: Recipe, stage: Pass) -> tuple[StageName, ...]:
    """The text stages of a pass: those that the captioner says first, then all others."""
    names = recipe.names
    first = next((place for place, one in enumerate(recipe.stages) if one.producer != "captioner"), len(names))
    return {"captions": names[:first], "language": names[first:], "images": ()}[stage]


class Worker:
    """Does lots of one batch, one after another. Models are loaded when they are first needed, and those of another
    pass let go.
    """

    def __init__(self, order: Order, models: Models | None = None) -> None:
        """`models` stand in for those of the order's profile."""
        self._order = order
        self._models = models or load_models(order.profile)
        self._driver = Driver(order.profile, self._models)
        self._recipe = recipe_of(order.plan.make.recipe)
        self._files = ImageFiles(order.images)
        self._files.process = order.process
        self._thumbnails = ThumbnailFiles(order.thumbnails, self._files)

    @cached_property
    def _data(self) -> DataSet:
        return data_set_of(self._order.plan)

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """What became of each of its pieces.

        Raises UserError for what no other lot would be spared, such as a full disk or a model that cannot be loaded.
        """
        began = time.monotonic()
        do = {"captions": self._captions, "language": self._language, "images": self._images}[lot.stage]
        done = do(lot)
        share = (time.monotonic() - began) / len(lot.pieces)
        return tuple(replace(one, seconds=share) for one in done)

    # Captions

    def _captions(self, lot: Lot) -> list[Done]:
        read: dict[int, ReadSource] = {}
        works: dict[int, Work] = {}
        unread: dict[int, Done] = {}
        for piece in lot.pieces:
            try:
                picture, mask, task = self._read(piece)
            except OSError as error:  # a disk or a share that is away may be there again
                unread[piece.id] = Done(piece.id, failed=f"The data set cannot be read: {error.strerror or error}.")
            except UserError as error:
                unread[piece.id] = Done(piece.id, failed=str(error), final=True)
            else:
                read[piece.id] = self._kept(picture, mask, task)
                named = NamedMask(mask.image, mask.classes) if mask is not None else None
                works[piece.id] = self._work(piece, lot.stage, MemoryStore(picture.image, mask=named), task)
        self._files.settle()
        return self._run(lot, works, unread, read)

    def _read(self, piece: Piece) -> tuple[Picture, Mask | None, Task]:
        content = self._data.read(piece.key, piece.stamp)
        task = self._task(piece)
        picture, mask = read_image(content.image), None
        if task.kind == "segmentation" and content.mask is not None:
            mask = read_mask(content.mask, picture.image.size, self._data.mask_classes)
        return picture, mask, task

    def _kept(self, picture: Picture, mask: Mask | None, task: Task) -> ReadSource:
        """The source with its files on the disk. Raises UserError for a full one."""
        image = self._thumbnails.save(picture.image, settled=False)
        if mask is None:
            return ReadSource(image, task, picture.notes)
        stored = self._files.save(mask.image, settled=False)
        return ReadSource(image, task, (*picture.notes, *mask.notes), stored, mask.classes)

    # Language

    def _language(self, lot: Lot) -> list[Done]:
        works: dict[int, Work] = {}
        unread: dict[int, Done] = {}
        for piece in lot.pieces:
            try:
                works[piece.id] = self._work(piece, lot.stage, self._held(piece), self._task(piece))
            except UserError as error:
                unread[piece.id] = Done(piece.id, failed=str(error), final=True)
        return self._run(lot, works, unread, {})

    def _run(
        self, lot: Lot, works: Mapping[int, Work], unread: Mapping[int, Done], read: Mapping[int, ReadSource]
    ) -> list[Done]:
        """Run the text stages of a lot, but of those pieces that could not be read; what came of each piece."""
        ended = dict(zip(works, run_stages(self._driver, list(works.values())), strict=True))
        done = []
        for piece in lot.pieces:
            if piece.id in unread:
                done.append(unread[piece.id])
                continue
            if (error := ended[piece.id]) is not None:
                unreadable = isinstance(error, UnreadableReply)
                done.append(Done(piece.id, failed=one_line(error), seed_spent=unreadable))
                continue
            held = works[piece.id].store.values()
            values = {name: held[name] for name in stages_of(self._recipe, lot.stage)}
            done.append(Done(piece.id, source=read.get(piece.id), values=values))
        return done

    # Images

    def _images(self, lot: Lot) -> list[Done]:
        failed: dict[int, str] = {}
        stores: dict[str, _Saving] = {}
        wanted: dict[str, list[Piece]] = {}
        for piece in lot.pieces:
            try:
                if piece.source not in stores:
                    stores[piece.source] = _Saving(self._held(piece), self._files, self._thumbnails)
            except UserError as error:
                failed[piece.id] = str(error)
                continue
            wanted.setdefault(piece.source, []).append(piece)
        works = [
            Work(
                Request(
                    self._task(pieces[0]),
                    self._order.settings,
                    self._recipe.name,
                    self._order.plan.make.seed,
                    stages=(),
                    images=tuple(self._planned(piece) for piece in pieces),
                    watched=False,
                ),
                stores[source],
            )
            for source, pieces in wanted.items()
        ]
        if works:
            held = [stores[source] for source in wanted]
            draw(self._driver, works, lambda number, event: held[number].tell(event), at_once=self._order.at_once)
            self._files.settle()
        return [self._drawn(piece, stores.get(piece.source), failed.get(piece.id, "")) for piece in lot.pieces]

    def _planned(self, piece: Piece) -> PlannedImage:
        assert piece.counterfactual is not None
        batch = Batch(size=self._order.at_once, place=piece.place)
        return PlannedImage(piece.counterfactual, next_seed(piece.seed, piece.seeds), batch=batch)

    def _drawn(self, piece: Piece, store: _Saving | None, failed: str) -> Done:
        seed = next_seed(piece.seed, piece.seeds)
        if store is None:
            return Done(piece.id, failed=failed, final=True)
        case, error = store.saved.get((piece.counterfactual, seed)), store.failed.get((piece.counterfactual, seed))
        if case is None:
            # What is refused of an image, it is for its pixels; anything else is a mishap.
            words = one_line(error) if error is not None else "The image was not drawn, and nothing says why."
            return Done(piece.id, failed=words, seed_spent=isinstance(error, UserError))
        for check in case.checks:
            if check.passed is False and check.name in self._order.plan.images.checks:
                why = f"It fails the check “{check.name}”, which the plan asks for."
                return Done(piece.id, failed=why, seed_spent=True)
        return Done(piece.id, case=case)

    # What all of them need

    def _held(self, piece: Piece) -> MemoryStore:
        """What is there of the source of a piece. Raises UserError for an image that is missing or damaged."""
        mask = NamedMask(self._files.load(piece.mask), piece.mask_classes) if piece.mask else None
        return MemoryStore(self._files.load(piece.source), piece.values, mask)

    def _task(self, piece: Piece) -> Task:
        return self._order.plan.task_of(piece.label)

    def _work(self, piece: Piece, stage: Pass, store: MemoryStore, task: Task) -> Work:
        stages, seed = stages_of(self._recipe, stage), next_seed(piece.seed, piece.seeds)
        request = Request(task, self._order.settings, self._recipe.name, seed, stages=stages, images=())
        return Work(request, store)


class _Saving(MemoryStore):
    """The store of a source whose images go to the disk at once."""

    def __init__(self, held: MemoryStore, files: ImageFiles, thumbnails: ThumbnailFiles) -> None:
        super().__init__(held.source(), held.values(), held.mask())
        self._files, self._thumbnails = files, thumbnails
        self.saved: dict[tuple[CounterfactualCaption | None, int], SavedCase] = {}
        """By caption and seed."""
        self.failed: dict[tuple[CounterfactualCaption | None, int], Exception] = {}

    def save_case(self, case: TestCase) -> None:
        (saved,) = save_cases(self._files, self._thumbnails, [case])
        self.saved[case.lineage.counterfactual, case.lineage.seed] = saved

    def tell(self, event: Event) -> None:
        """Hears of an image that could not be made."""
        if isinstance(event, ImageFailed):
            self.failed[event.image.counterfactual, event.image.seed] = event.error
