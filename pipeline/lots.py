"""Runs many source images together, stage by stage: all captions, then all requests to the language model, then images
in batches that cross sources. Values and images are those that `Driver.run` makes of each source alone.

Every batch has one size, the last one filled up. The pixels of an image depend on its own seed, caption and control
image, on the size of its batch and its place there, and never on the images beside it. So `Driver.run` draws it again
alone from the `DrawnBatch` in its lineage. Knows no page and no database.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, cast

from core.errors import Cancelled, CannotLoad, UserError, one_line
from core.images import image_sha
from core.lineage import TestCase
from core.progress import Progress, StepTimer, stop_if, stoppable
from core.types import GENERATION, CounterfactualCaptions, StageName
from pipeline.driver import DrawingBegan, Driver, Event, ImageDone, ImageFailed, Placed, Request, Store
from pipeline.freshness import stale_stages
from pipeline.gathering import ModelsTogether, takes_many_images, takes_many_texts
from pipeline.methods import method_of
from pipeline.recipes import Recipe, recipe_of
from pipeline.seams import CaseRequest, LotMethod, Models, Prepared, Source
from pipeline.stages import generation
from pipeline.stages.generation import PlannedImage

SIDE_BY_SIDE = 32
"""Number of sources whose text stages run at the same time, and so of requests that may reach a model at once."""
MOST_OPEN = 8
"""Maximum number of batches that wait to be filled. Images with prompts of different length, or for the same place of
a batch, need different batches.
"""

EmitOf = Callable[[int, Event], None]
"""Called with every event and the index of its work, one at a time. An error raised at an event of a stage ends that
work, at an event of the drawing all work. Cancelled always ends all work."""


@dataclass(frozen=True)
class SourceWork:
    """One source image and the request for it."""

    request: Request
    store: Store


def ignore(_number: int, _event: Event) -> None:
    """Ignore an event."""


# Text stages


def run_stages(
    driver: Driver, works: Sequence[SourceWork], emit: EmitOf = ignore, cancelled: threading.Event | None = None
) -> list[Exception | None]:
    """Run the text stages of each work and save them as `Driver.run` does. Return for each work None or its error.

    Stages of one kind of model run one after another, so that models that do not fit into memory together still run.
    A model that takes several requests gets those of `SIDE_BY_SIDE` works at once. The values are the same as alone,
    apart from floating-point noise. Raises Cancelled, and CannotLoad, which stops every work. The stores keep what was
    finished.
    """
    ended: list[Exception | None] = [None] * len(works)
    phases = [list(_phases(work.request)) for work in works]
    lock = threading.Lock()

    def tell(number: int, event: Event) -> None:
        with lock:
            emit(number, event)

    for phase in range(max(map(len, phases), default=0)):
        for producer in dict.fromkeys(own[phase][0] for own in phases if phase < len(own)):
            asked = [
                (number, replace(work.request, stages=own[phase][1], images=()), work.store)
                for number, (work, own) in enumerate(zip(works, phases, strict=True))
                if phase < len(own) and own[phase][0] == producer and ended[number] is None
            ]
            for number, error in _run_phase(driver, producer, asked, tell, cancelled):
                ended[number] = error
    return ended


def _phases(request: Request) -> Iterator[tuple[str, tuple[StageName, ...]]]:
    """Yield the requested stages in groups of one kind of model: its name, and the names of the stages."""
    recipe = recipe_of(request.recipe)
    names = recipe.names if request.stages is None else request.stages
    for producer, group in groupby(names, key=lambda name: recipe.stage(name).producer):
        yield producer, tuple(group)


_Asked = tuple[int, Request, Store]


def _run_phase(
    driver: Driver,
    producer: str,
    asked: Sequence[_Asked],
    tell: EmitOf,
    cancelled: threading.Event | None,
) -> list[tuple[int, Exception]]:
    """Run the stages of one kind of model. Return the works that failed, with their errors."""
    waiting, ended = deque(asked), list[tuple[int, Exception]]()
    over: list[Exception] = []
    """The error that ends all work."""

    def work_off(driver: Driver, begin: Callable[[int], None] = lambda _number: None) -> None:
        while not over:
            try:
                number, request, store = waiting.popleft()
            except IndexError:
                return
            begin(number)
            try:
                driver.run(request, store, partial(tell, number), cancelled)
            except (Cancelled, CannotLoad) as error:
                over.append(error)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one source, the others go on
                ended.append((number, error))

    threads = min(SIDE_BY_SIDE, len(asked)) if _takes_many(driver, producer, asked) else 1
    if threads == 1:
        work_off(driver)
    else:
        together, beside = ModelsTogether(driver.models, threads), copy(driver)
        beside.models = cast(Models, together)
        gathering = together.gathering

        def work_off_beside() -> None:
            with gathering.working():
                work_off(beside, gathering.at)

        with ThreadPoolExecutor(threads, "lots") as pool, stoppable(cancelled):
            futures = [pool.submit(work_off_beside) for _ in range(threads)]
            try:
                gathering.serve()
            finally:  # after Ctrl-C the threads finish their present request
                waiting.clear()
            for future in futures:
                future.result()
    if over:
        raise over[0]
    return sorted(ended, key=lambda one: one[0])


def _takes_many(driver: Driver, producer: str, asked: Sequence[_Asked]) -> bool:
    """Return True if the model of these stages takes several requests at once. Loads it if there is work for it."""
    if len(asked) < 2 or not any(_is_due(driver, *one[1:]) for one in asked):
        return False
    if producer == "captioner":
        return takes_many_images(driver.models.captioner)
    return producer == "language model" and takes_many_texts(driver.models.language)


def _is_due(driver: Driver, request: Request, store: Store) -> bool:
    """Return True if a model would be asked. False if that cannot be told, as `Driver.run` then reports the error."""
    try:
        recipe, names, held = recipe_of(request.recipe), request.stages or (), store.values()
        if request.anew in names or any(name not in held for name in names):
            return True
        made_by = driver.producers(recipe, driver.prompts(recipe, request.prompts), request.settings)
        sha = image_sha(store.source())
        return bool(set(names) & set(stale_stages(recipe, request.task, sha, held, request.settings, made_by)))
    except (UserError, OSError):
        return False


# Images


def shape_of(driver: Driver, work: SourceWork) -> Hashable:
    """Return a key that is equal for works that fit into one batch: output size, settings, method, recipe, profile."""
    request = work.request
    method = method_of(recipe_of(request.recipe).method)
    own = method.settings_of(request.settings)
    prompts = tuple(sorted(request.prompts.items()))
    return driver.profile.name, request.recipe, prompts, method.name, method.shape(own, work.store.source().size)


def draw(
    driver: Driver,
    works: Sequence[SourceWork],
    emit: EmitOf = ignore,
    cancelled: threading.Event | None = None,
    at_once: int | None = None,
) -> None:
    """Draw the images of works of one shape, `at_once` in a batch, and save each as `Driver.run` does.

    By default the batch has the size of the settings, or the best one for the model. An image with a `batch` of its own
    gets its place in a batch of that size; the others get the lowest free place. Every batch is filled up to its size.
    It is halved if memory does not suffice, which progress and lineages then tell. ImageFailed tells of an image that
    cannot be made, and of all images of a source that cannot be prepared; the others go on. A method or model that
    takes one source at a time draws the sources one after another.

    Raises ValueError for works of several shapes or without given images, UserError if the profile cannot draw them,
    CannotLoad, and Cancelled within one denoising step after being asked to stop. The stores keep what was finished.
    """
    if any(work.request.images is None for work in works):
        raise ValueError("a lot is drawn from images that are given: plan them first")
    total = sum(len(work.request.images or ()) for work in works)
    if not total:
        return  # nothing to do is no reason to load a generator
    first = works[0].request
    recipe = recipe_of(first.recipe)
    if refused := recipe.cannot_draw(driver.profile):
        raise UserError(refused)
    method = method_of(recipe.method).with_models(
        driver.models, driver.prompts(recipe, first.prompts), driver.profile.tasks.labels
    )
    drawing = _LotDrawing(driver, recipe, method, total, emit, cancelled, at_once)
    for number, work in enumerate(works):
        stop_if(cancelled)
        if work.request.images:
            drawing.take(number, work)
    drawing.finish()


@dataclass(frozen=True)
class _LotImage:
    """One image of a lot."""

    number: int
    """Index of its work."""
    work: SourceWork
    planned: PlannedImage
    prepared: Prepared


@dataclass
class _Batch:
    """A batch that is being filled."""

    size: int
    length: int
    taken: dict[int, _LotImage] = field(default_factory=dict)
    """Images by place."""

    def place_for(self, image: PlannedImage) -> int | None:
        """Return the place of an image, or None if there is no room for it."""
        if image.batch is not None:
            return None if image.batch.place in self.taken else image.batch.place
        return next((place for place in range(self.size) if place not in self.taken), None)


class _LotDrawing:
    """The state of a lot that is being drawn."""

    def __init__(
        self,
        driver: Driver,
        recipe: Recipe,
        method: Any,
        total: int,
        emit: EmitOf,
        cancelled: threading.Event | None,
        at_once: int | None,
    ) -> None:
        """`total` is the number of images of all works."""
        self._driver, self._recipe, self._method = driver, recipe, method
        self._description = method_of(recipe.method)
        self._total, self._emit, self._cancelled, self._at_once = total, emit, cancelled, at_once
        self._shape: Hashable = None
        self._size = 0
        """Size of a batch, 0 if each source is drawn alone."""
        self._open: list[_Batch] = []
        self._timer: StepTimer | None = None
        self._done = self._steps = 0
        self._smaller = 0
        """Reduced size of a batch for lack of memory, 0 if none was reduced."""
        self._stopped = False
        """True if the progress callback stopped the work, False if the method failed."""

    def take(self, number: int, work: SourceWork) -> None:
        """Prepare a source, put its images into batches, and draw full batches."""
        try:
            shape, size = shape_of(self._driver, work), work.store.source().size
        except Exception as error:  # noqa: BLE001 - such as a file that cannot be read
            self._fail_all(number, work, error)
            return
        own = self._description.settings_of(work.request.settings)
        if self._shape is None:
            self._shape = shape
            most = self._method.lot(own, size) if isinstance(self._method, LotMethod) else 0
            self._size = most and (self._at_once or most)
        if shape != self._shape:
            raise ValueError("works of several shapes are drawn in lots of their own (`shape_of`)")
        ready = self._ready(number, work)
        if not self._size:
            self._take_alone(number, replace(work, request=replace(work.request, images=ready)))
            return
        self._told(number, DrawingBegan())
        if placing := getattr(self._method, "placing", ""):
            self._told(number, Placed(placing))
        try:
            prepared = self._prepared(number, work)
            lengths = [self._method.reading_length(prepared, image.counterfactual) for image in ready]
        except Cancelled:
            raise
        except Exception as error:
            if self._stopped:
                raise
            self._fail_all(number, replace(work, request=replace(work.request, images=ready)), error)
            return
        for image, length in zip(ready, lengths, strict=True):
            self._put(_LotImage(number, work, image, prepared), image.batch.size if image.batch else self._size, length)

    def _ready(self, number: int, work: SourceWork) -> tuple[PlannedImage, ...]:
        """Return the images that can be drawn, and report the others as failed."""
        found = []
        for image in work.request.images or ():
            ticked = replace(image.counterfactual, used=True)  # the request for it implies that
            try:
                generation.require_ready(work.request.task, CounterfactualCaptions((ticked,)))
            except UserError as error:
                self._fail(number, work, image, error)
            else:
                found.append(image)
        return tuple(found)

    def _take_alone(self, number: int, work: SourceWork) -> None:
        """Draw the images of a source in batches of its own, as `Driver.run` does."""
        begun = self._done

        def tell(event: Event) -> None:
            self._done += isinstance(event, ImageFailed | ImageDone)
            self._told(number, event)

        try:
            request = replace(work.request, stages=(), watched=False)
            self._driver.run(request, work.store, tell, self._cancelled)
        except Cancelled:
            raise
        except Exception as error:
            if self._stopped or self._done > begun:  # failed images are reported, so this error is not of an image
                raise
            self._fail_all(number, work, error)

    def finish(self) -> None:
        """Draw the remaining batches, each filled up."""
        while self._open:
            self._draw(self._open.pop(0))

    def _prepared(self, number: int, work: SourceWork) -> Prepared:
        own = self._description.settings_of(work.request.settings)
        source, store = work.store.source(), work.store
        caption = self._recipe.source_caption({name: value.value for name, value in store.values().items()})
        given = Source(source, work.request.task, caption, store.mask())
        prepared: Prepared = self._method.prepare(given, own, partial(self._told, number), self._cancelled)
        return prepared

    def _put(self, image: _LotImage, size: int, length: int) -> None:
        for batch in self._open:
            if (batch.size, batch.length) == (size, length) and (place := batch.place_for(image.planned)) is not None:
                break
        else:
            batch = _Batch(size, length)
            place = batch.place_for(image.planned)
            assert place is not None
            self._open.append(batch)
        batch.taken[place] = image
        if len(batch.taken) == size:
            self._open.remove(batch)
            self._draw(batch)
        elif len(self._open) > MOST_OPEN:
            self._draw(self._open.pop(0))

    def _draw(self, batch: _Batch) -> None:
        stop_if(self._cancelled)
        images = [batch.taken[place] for place in sorted(batch.taken)]
        planned = [
            CaseRequest(batch.taken[place].planned.counterfactual, batch.taken[place].planned.seed, place)
            for place in sorted(batch.taken)
        ]
        steps = images[0].prepared.settings.steps or 1
        on_step = self._on_step(images, batch.size, steps)
        on_step(0, steps)
        try:
            finishing = self._method.make_lot([one.prepared for one in images], planned, batch.size, on_step)
        except Cancelled:
            raise
        except Exception as error:
            if self._stopped:
                raise
            self._draw_apart(batch, error)
            return
        self._steps += len(images) * steps
        for image, finish in zip(images, finishing, strict=True):
            stop_if(self._cancelled)
            try:
                case = finish()
            except Cancelled:
                raise
            except Exception as error:  # noqa: BLE001 - told of this image; the others go on
                self._fail(image.number, image.work, image.planned, error)
                continue
            self._keep(image, case, batch.size)

    def _draw_apart(self, batch: _Batch, error: Exception) -> None:
        """After a failed batch, draw each of its images alone at its place, to find the one that fails."""
        if len(batch.taken) == 1:
            (image,) = batch.taken.values()
            self._fail(image.number, image.work, image.planned, error)
            return
        for place, image in sorted(batch.taken.items()):
            self._draw(_Batch(batch.size, batch.length, {place: image}))

    def _on_step(self, images: Sequence[_LotImage], size: int, steps: int) -> Callable[[int, int], None]:
        if self._timer is None:
            effort = self._description.effort(images[0].prepared.settings, images[0].prepared.source.image.size)
            known = self._driver.speeds.seconds(effort)
            self._timer = StepTimer(None if known is None else known / steps)
        timer, first, last = self._timer, self._done + 1, self._done + len(images)
        waits = getattr(self._method, "waits", "")
        notes = [waits] if waits else []
        if self._smaller and self._smaller < size:
            notes.append(f"{self._smaller} at once, as there is too little memory for {size}")
        which = f"image {first}" if len(images) == 1 else f"images {first} to {last}"
        beside = f" ({', '.join(notes)})" if notes else ""
        note = f"{which} of {self._total}{beside}"
        numbers = dict.fromkeys(image.number for image in images)

        def on_step(done: int, total: int) -> None:
            stop_if(self._cancelled)
            step = min(done, total) * steps / max(total, 1)
            timer.at(self._steps + step * len(images))
            at = self._done * steps + int(step * len(images))
            left = timer.seconds_left(max(0, self._total * steps - at))
            for number in numbers:
                self._told(number, Progress(GENERATION, at, self._total * steps, left, note, int(step)))

        return on_step

    def _told(self, number: int, event: Event) -> None:
        self._stopped = True
        self._emit(number, event)
        self._stopped = False

    def _keep(self, image: _LotImage, case: TestCase, size: int) -> None:
        self._done += 1
        own, request = image.prepared.settings, image.work.request
        self._driver.speeds.add(self._description.effort(own, image.prepared.source.image.size), case.lineage.seconds)
        lineage = replace(case.lineage, recipe=self._recipe.name, task=request.task)
        if lineage.settings.drawn_in is not None and lineage.settings.drawn_in.size < size:
            self._smaller = lineage.settings.drawn_in.size
        image.work.store.save_case(replace(case, lineage=lineage))
        self._emit(image.number, ImageDone(lineage))

    def _fail_all(self, number: int, work: SourceWork, error: Exception) -> None:
        for image in work.request.images or ():
            self._fail(number, work, image, error)

    def _fail(self, number: int, work: SourceWork, image: PlannedImage, error: Exception) -> None:
        told = generation.explained(error)
        self._done += 1
        work.store.save_failure(image.failure(one_line(told)))
        self._emit(number, ImageFailed(image, told))
