"""Runs many sources together: all captions, then all requests to the language model, then images in batches that cross
sources. Values and images equal those that `Driver.run` makes of each source alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import cast

from core.errors import Cancelled, CannotLoad, UserError
from core.images import image_sha
from core.progress import stop_if, stoppable
from core.types import CounterfactualCaptions, StageName
from pipeline.driver import Drawing, Driver, EmitOf, FixedWorklist, SourceWork, ignore
from pipeline.freshness import stale_stages
from pipeline.gathering import ModelsTogether
from pipeline.methods import method_of
from pipeline.recipes import recipe_of
from pipeline.request import Event, Request, Store
from pipeline.seams import BatchCaptioner, BatchLanguageModel, Models
from pipeline.stages import generation
from pipeline.stages.generation import PlannedImage

SIDE_BY_SIDE = 32
"""Maximum number of sources whose text stages run at once, and thus of requests that may reach a model at once."""


# Text stages


def run_stages(
    driver: Driver, works: Sequence[SourceWork], emit: EmitOf = ignore, cancelled: threading.Event | None = None
) -> list[Exception | None]:
    """Run the text stages of each work and save the values. Return, for each work, None or the error that ended it.
    Values equal those of `Driver.run` except for floating-point noise. Stages of one kind of model run together, so
    that models can be loaded in turn. A model that takes several requests at once gets the requests of at most
    `SIDE_BY_SIDE` works together. Raises Cancelled and CannotLoad, which end all works. Finished values stay in the
    stores.
    """
    ended: list[Exception | None] = [None] * len(works)
    phases = [list(phases_of(work.request)) for work in works]
    lock = threading.Lock()  # works run in several threads, but `emit` may be called by one at a time

    def tell(number: int, event: Event) -> None:
        with lock:
            emit(number, event)

    for phase in range(max(map(len, phases), default=0)):
        for producer in dict.fromkeys(groups[phase][0] for groups in phases if phase < len(groups)):
            phase_works = [
                (number, replace(work.request, stages=groups[phase][1], images=()), work.store)
                for number, (work, groups) in enumerate(zip(works, phases, strict=True))
                if phase < len(groups) and groups[phase][0] == producer and ended[number] is None
            ]
            for number, error in _run_phase(driver, producer, phase_works, tell, cancelled):
                ended[number] = error
    return ended


def phases_of(request: Request) -> Iterator[tuple[str, tuple[StageName, ...]]]:
    """Split the requested stages where the kind of model changes. Yield each kind with the names of its stages."""
    recipe = recipe_of(request.recipe)
    names = recipe.names if request.stages is None else request.stages
    for producer, group in groupby(names, key=lambda name: recipe.stage(name).producer):
        yield producer, tuple(group)


_Asked = tuple[int, Request, Store]


def _run_phase(
    driver: Driver,
    producer: str,
    phase_works: Sequence[_Asked],
    tell: EmitOf,
    cancelled: threading.Event | None,
) -> list[tuple[int, Exception]]:
    waiting, ended = deque(phase_works), list[tuple[int, Exception]]()
    over: list[Exception] = []
    """Empty, or the error that ends all work."""

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
            except Exception as error:  # noqa: BLE001 - an error of one source does not stop the others
                ended.append((number, error))

    threads = min(SIDE_BY_SIDE, len(phase_works)) if _takes_many(driver, producer, phase_works) else 1
    if threads == 1:
        work_off(driver)
    else:
        together, gathering_driver = ModelsTogether(driver.models, threads), copy(driver)
        gathering_driver.models = cast(Models, together)
        gathering = together.gathering

        def work_off_beside() -> None:
            with gathering.working():
                work_off(gathering_driver, gathering.at)

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


def _takes_many(driver: Driver, producer: str, phase_works: Sequence[_Asked]) -> bool:
    if len(phase_works) < 2 or not any(_is_due(driver, *one[1:]) for one in phase_works):
        return False
    if producer == "captioner":
        return isinstance(driver.models.captioner, BatchCaptioner)
    return producer == "language model" and isinstance(driver.models.language, BatchLanguageModel)


def _is_due(driver: Driver, request: Request, store: Store) -> bool:
    """Return True if a requested stage is stale or has no value. False after an error, which `Driver.run` reports."""
    try:
        recipe, names, values = recipe_of(request.recipe), request.stages or (), store.values()
        if request.anew in names or any(name not in values for name in names):
            return True
        made_by = driver.producers(recipe, driver.prompts(recipe, request.prompts), request.settings)
        sha = image_sha(store.source())
        return bool(set(names) & set(stale_stages(recipe, request.task, sha, values, request.settings, made_by)))
    except (UserError, OSError):
        return False


# Images


def shape_of(driver: Driver, work: SourceWork) -> Hashable:
    """Return a key of output size, settings, method, recipe, prompts and profile. Equal keys allow a common batch."""
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
    """Draw the images that the request of each work lists, and save them in the work's store. `shape_of` must
    be equal for all works. `at_once` is the batch size (default: the size in the settings, or the best for the model).
    `PlannedImage.batch` can fix the batch size and the row of an image. If memory runs out, the batch size is halved.
    If an image or its source fails, ImageFailed is emitted and the other images are drawn. Raises ValueError if shapes
    differ or a request has no list of images. Raises UserError if the profile cannot draw the images. Also raises
    CannotLoad and Cancelled. Images that are finished before an error stay in the stores.
    """
    if any(work.request.images is None for work in works):
        raise ValueError("every request needs its list of images: plan the images first")
    worklist = FixedWorklist(image for work in works for image in work.request.images or ())
    if not worklist.waiting():
        return  # no need to load a generator
    recipe = recipe_of(works[0].request.recipe)
    drawing = Drawing(driver, recipe, works[0].request.prompts, worklist, emit, cancelled)
    shape: Hashable = None
    for number, work in enumerate(works):
        stop_if(cancelled)
        images = worklist.take(len(work.request.images or ()))
        if not images:
            continue
        try:
            own_shape = shape_of(driver, work)
        except Exception as error:  # noqa: BLE001 - such as a file that cannot be read
            for image in images:
                drawing.fail(number, work, image, error)
            continue
        if own_shape != (shape := shape or own_shape):
            raise ValueError("works of different shapes cannot be drawn together: group them by `shape_of` first")
        images = _drawable(drawing, number, work, images)
        try:
            source = drawing.prepare(number, work)
            at_once = at_once or drawing.method.batch(source.prepared, None, watched=False)
            keys = [drawing.method.together(source.prepared, image.counterfactual) for image in images]
        except Cancelled:
            raise
        except Exception as error:
            if drawing.stopped:
                raise
            for image in images:
                drawing.fail(number, work, image, error)
            continue
        drawing.put(source, images, at_once, keys)
    drawing.finish()


def _drawable(
    drawing: Drawing, number: int, work: SourceWork, images: Sequence[PlannedImage]
) -> Sequence[PlannedImage]:
    """Return the images whose task and caption are complete. Report the others as failed."""
    drawable = []
    for image in images:
        ticked = replace(image.counterfactual, used=True)  # a request for its image implies that the caption is used
        try:
            generation.require_ready(work.request.task, CounterfactualCaptions((ticked,)))
        except UserError as error:
            drawing.fail(number, work, image, error)
        else:
            drawable.append(image)
    return drawable
