"""Draws images of prepared sources in batches, reports each step, and saves each test case as soon as it is checked.

A batch has one size, and the last one is filled up. The pixels of an image depend on its own seed, caption and control
image, on the size of its batch and its place there, and never on the images beside it. So `Driver.run` draws it again
alone from the `DrawnBatch` in its lineage. Knows no page and no database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from core.errors import Cancelled, one_line
from core.lineage import TestCase
from core.progress import Progress, StepTimer, stop_if
from core.types import GENERATION
from pipeline.drawing_speed import SideTime, Speeds
from pipeline.methods import method_of
from pipeline.methods.base import Preparations
from pipeline.recipes import Recipe
from pipeline.request import DrawingBegan, Event, ImageDone, ImageFailed, Placed, Preview, Request, Store
from pipeline.seams import CaseRequest, Method, OnStep, Prepared, Source
from pipeline.stages import generation
from pipeline.stages.generation import PlannedImage, Worklist

PREVIEW_SHARE = 0.04
"""Maximum share of drawing time for previews. A preview that would exceed it is left out."""
MOST_OPEN = 8
"""Maximum number of batches that wait to be filled: images with other keys, or for a taken place, need their own."""

EmitOf = Callable[[int, Event], None]
"""Called with every event and the index of its work, one at a time. An error raised at an event of a stage ends that
work, at an event of the drawing all work. Cancelled always ends all work."""


@dataclass(frozen=True)
class SourceWork:
    """One source image and the request for it."""

    request: Request
    store: Store


@dataclass(frozen=True)
class DrawnSource:
    """A source that is ready to be drawn."""

    number: int
    """Index of its work."""
    work: SourceWork
    prepared: Prepared


@dataclass(frozen=True)
class _Image:
    source: DrawnSource
    planned: PlannedImage
    taken: int
    """Zero-based place among the images that were taken from the worklist together."""


@dataclass(eq=False)
class _Batch:
    """A batch that is being filled."""

    size: int
    key: Hashable
    images: dict[int, _Image] = field(default_factory=dict)
    """Images by place."""

    def place_for(self, image: PlannedImage) -> int | None:
        """Return the place of an image, or None if there is no room for it."""
        if image.batch is not None:
            return None if image.batch.place in self.images else image.batch.place
        return next((place for place in range(self.size) if place not in self.images), None)


class _Dropped(Cancelled):
    """The images being made are no longer wanted, but later ones are."""


class Drawing:
    """Images of one recipe that are being drawn."""

    def __init__(
        self,
        recipe: Recipe,
        method: Method[Any],
        speeds: Speeds,
        preparations: Preparations,
        worklist: Worklist,
        emit: EmitOf,
        cancelled: threading.Event | None,
    ) -> None:
        """`worklist` tells how many images are still to come, and which of those that were taken are dropped."""
        self.method, self.done, self.made = method, 0, 0
        """`done` counts images drawn or failed, and `made` the test cases among them."""
        self.stopped = False
        """True if `emit` raised the error that ended the work, False if the method failed."""
        self._description, self._recipe = method_of(recipe.method), recipe
        self._speeds, self._preparations, self._worklist = speeds, preparations, worklist
        self._emit, self._cancelled = emit, cancelled
        self._open: list[_Batch] = []
        self._timer: StepTimer | None = None
        self._smaller = 0
        """Reduced size of a batch for lack of memory, 0 if none was reduced."""

    def prepare(self, number: int, work: SourceWork) -> DrawnSource:
        """Begin with a source. Raises errors of `Method.prepare`."""
        request, store = work.request, work.store
        self.tell(number, DrawingBegan())
        if placing := getattr(self.method, "placing", ""):  # for methods whose models run in several ways
            self.tell(number, Placed(placing))
        caption = self._recipe.source_caption({name: value.value for name, value in store.values().items()})
        source = Source(store.source(), request.task, caption, store.mask())
        settings = self._description.settings_of(request.settings)
        emit = partial(self.tell, number)
        prepared = self._preparations.prepared(self._description, self.method, source, settings, emit, self._cancelled)
        return DrawnSource(number, work, prepared)

    def put(
        self, source: DrawnSource, images: Sequence[PlannedImage], size: int, keys: Sequence[Hashable] | None = None
    ) -> None:
        """Put the images of a source into batches, and draw those that are full.

        An image goes into a batch of its own `batch`, else of `size`. Only images with equal `keys` share one.
        """
        for taken, (image, key) in enumerate(zip(images, keys or [None] * len(images), strict=True)):
            wanted = (size if image.batch is None else image.batch.size, key)
            for batch in self._open:
                if (batch.size, batch.key) == wanted and (place := batch.place_for(image)) is not None:
                    break
            else:
                batch = _Batch(*wanted)
                place = batch.place_for(image)
                assert place is not None
                self._open.append(batch)
            batch.images[place] = _Image(source, image, taken)
        for batch in [batch for batch in self._open if len(batch.images) == batch.size]:
            self._draw_next(batch)
        while len(self._open) > MOST_OPEN:
            self._draw_next(self._open[0])

    def finish(self) -> None:
        """Draw the remaining batches, each filled up."""
        while self._open:
            self._draw_next(self._open[0])

    def fail(self, number: int, work: SourceWork, image: PlannedImage, error: Exception) -> None:
        """Note that an image cannot be made. Raises CannotLoad, which would stop every other image too."""
        error = generation.explained(error)
        self.done += 1
        work.store.save_failure(image.failure(one_line(error)))
        self.tell(number, ImageFailed(image, error))

    def tell(self, number: int, event: Event) -> None:
        """Emit an event, and note if that ends the work."""
        self.stopped = True
        self._emit(number, event)
        self.stopped = False

    def _draw_next(self, batch: _Batch) -> None:
        self._open.remove(batch)
        self._draw(batch)

    def _draw(self, batch: _Batch) -> None:
        images = [image for _, image in sorted(batch.images.items())]
        requests = [
            CaseRequest(image.planned.counterfactual, image.planned.seed, place)
            for place, image in sorted(batch.images.items())
        ]
        try:
            stop_if(self._cancelled)
            on_step = self._on_step(images, batch.size)
            finishing = self.method.make([one.source.prepared for one in images], requests, batch.size, on_step)
        except _Dropped:
            return
        except Cancelled:
            raise
        except Exception as error:
            if self.stopped:
                raise
            if len(images) == 1:
                self._fail(images[0], error)
                return
            for place, image in sorted(batch.images.items()):  # to find the one that fails
                self._draw(_Batch(batch.size, batch.key, {place: image}))
            return
        for image, finish in zip(images, finishing, strict=True):
            try:
                case = finish()
                self._stop_if_dropped([image])  # its checks come after its last step
            except _Dropped:
                continue
            except Cancelled:
                raise
            except Exception as error:  # noqa: BLE001 - reported for this image; the others go on
                self._fail(image, error)
            else:
                self._save(image, case, batch.size)

    def _fail(self, image: _Image, error: Exception) -> None:
        self.fail(image.source.number, image.source.work, image.planned, error)

    def _save(self, image: _Image, case: TestCase, size: int) -> None:
        self.done, self.made = self.done + 1, self.made + 1
        source = image.source
        effort = self._description.effort(source.prepared.settings, source.prepared.source.image.size)
        self._speeds.add(effort, case.lineage.seconds)
        lineage = replace(case.lineage, recipe=self._recipe.name, task=source.work.request.task)
        if lineage.settings.drawn_in is not None and lineage.settings.drawn_in.size < size:
            self._smaller = lineage.settings.drawn_in.size
        source.work.store.save_case(replace(case, lineage=lineage))
        self.tell(source.number, ImageDone(lineage))

    def _stop_if_dropped(self, images: list[_Image]) -> None:
        """Raise _Dropped if none of these images is wanted any more."""
        stop_if(self._cancelled)
        if {image.taken for image in images} <= set(self._worklist.dropped()):
            raise _Dropped

    def _on_step(self, images: list[_Image], size: int) -> OnStep:
        """Report that a batch begins, and return the function that reports its steps."""
        prepared, watched = images[0].source.prepared, images[0].source.work.request.watched
        steps = prepared.settings.steps or 1
        if self._timer is None:
            known = self._speeds.seconds(self._description.effort(prepared.settings, prepared.source.image.size))
            self._timer = StepTimer(None if known is None else known / steps)
        timer, before, previews = self._timer, self._timer.steps, SideTime()
        first, last = self.done + 1, self.done + len(images)
        which = f"image {first}" if len(images) == 1 else f"images {first} to {last}"
        smaller = f"{self._smaller} at once, as there is too little memory for {size}"
        numbers = dict.fromkeys(image.source.number for image in images)

        def tell(step: float) -> None:
            total = last + sum(len(batch.images) for batch in self._open) + self._worklist.waiting()
            at = self.done * steps + int(step * len(images))
            left = timer.seconds_left(total * steps - at)
            # Models of some methods get ready with the first image.
            notes = [getattr(self.method, "waits", ""), smaller if 0 < self._smaller < size else ""]
            beside = ", ".join(filter(None, notes))
            note = f"{which} of {total}{f' ({beside})' if beside else ''}"
            for number in numbers:
                self.tell(number, Progress(GENERATION, at, total * steps, left, note, int(step)))

        def on_step(done: int, of: int) -> None:
            self._stop_if_dropped(images)
            # A scheduler may take a few more steps than the settings say; the bar still ends at its end.
            step = min(done, of) * steps / max(of, 1)
            timer.at(before + step * len(images))
            tell(step)
            if watched and done < of and previews.affordable(PREVIEW_SHARE):
                with previews.measured():
                    if (shown := self.method.preview()) is not None:
                        self.tell(images[0].source.number, Preview(shown))

        tell(0)
        return on_step
