"""Stage 5, counterfactual captions to test cases: the plan behind the gate, and drawing image by image."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from PIL import Image

from core.errors import Cancelled, CannotLoad, UserError, out_of_memory
from core.lineage import DrawnBatch, Failure, TestCase
from core.progress import OnProgress, Progress, StepTimer, stop_if
from core.seeds import LARGEST, derive_seed, next_seed
from core.settings import GenerationSettings
from core.types import GENERATION, CounterfactualCaption, CounterfactualCaptions, Task
from core.words import tokens
from pipeline.checks.texts import require, task_checks
from pipeline.drawing_speed import SideTime
from pipeline.seams import BatchMethod, CaseRequest, Method, OnStep, P

PREVIEW_SHARE = 0.04
"""Maximum share of drawing time for previews. A preview that would exceed it is left out."""

FORGOTTEN_TRIES = 5
"""Number of further tries that count as the same image if its failures are forgotten."""

OnFailure = Callable[["PlannedImage", Exception], None]
"""Called with an image that could not be made, and its error. An error raised there ends the work."""
OnPreview = Callable[[Image.Image], None]
"""Called with a preview of the image that is being made."""


@dataclass(frozen=True)
class PlannedImage:
    """An image to be made."""

    counterfactual: CounterfactualCaption
    seed: int
    failed: Failure | None = None
    """The failure of earlier tries with other seeds, or None."""
    batch: DrawnBatch | None = None
    """The batch in which it has to be drawn to repeat an image bit by bit, or None for any."""

    def failure(self, message: str) -> Failure:
        """Return the failure to note if this try fails too."""
        if self.failed is None:
            return Failure(GENERATION, 1, message, self.counterfactual, self.seed)
        return replace(self.failed, tries=self.failed.tries + 1, message=message)


@dataclass(frozen=True)
class Plan:
    """The work that a yes at the gate starts."""

    images: tuple[PlannedImage, ...]
    captions: int
    """Number of captions that they are made from."""
    steps: int
    """Total number of denoising steps."""
    seconds: float | None
    """Estimated time, or None if nothing was measured yet."""


class Worklist(Protocol):
    """The images to be made. The list may change meanwhile, but not a `FixedWorklist`."""

    def take(self, most: int = 1) -> Sequence[PlannedImage]:
        """Take at most `most` images, which are begun now. Empty if none is left."""
        ...

    def dropped(self) -> Collection[int]:
        """Return the zero-based places of images taken last that are no longer wanted. Called after every step and at
        the end.
        """
        ...

    def waiting(self) -> int:
        """Return the number of images that are not begun."""
        ...


class FixedWorklist:
    """A worklist that does not change."""

    def __init__(self, images: Iterable[PlannedImage]) -> None:
        self._images = deque(images)

    def take(self, most: int = 1) -> Sequence[PlannedImage]:
        return [self._images.popleft() for _ in range(min(most, len(self._images)))]

    def dropped(self) -> Collection[int]:
        return ()

    def waiting(self) -> int:
        return len(self._images)


def plan(
    counterfactuals: CounterfactualCaptions,
    settings: GenerationSettings,
    seed: int,
    seconds_per_image: float | None = None,
    made: Collection[tuple[CounterfactualCaption, int]] = (),
    failures: Collection[Failure] = (),
) -> Plan:
    """Plan the images of every used caption, without those already `made` (caption and seed).

    Seeds come from `seed_of`, so that using or dropping a caption changes no image of the others. An image among the
    `failures` gets the seed of its next try.
    """
    failed = {(failure.counterfactual, failure.seed): failure for failure in failures}
    images = tuple(
        _next_try(item, image_seed, failed.get((item, image_seed)))
        for place, item in enumerate(counterfactuals.items)
        for image_seed in (seed_of(settings, seed, place, i) for i in range(settings.images_per_caption))
        if item.used and not _is_made(item, image_seed, failed.get((item, image_seed)), made)
    )
    steps = len(images) * settings.steps
    seconds = None if seconds_per_image is None else seconds_per_image * len(images)
    return Plan(images, len({id(image.counterfactual) for image in images}), steps, seconds)


def _next_try(caption: CounterfactualCaption, seed: int, failed: Failure | None) -> PlannedImage:
    return PlannedImage(caption, seed if failed is None else next_seed(seed, failed.tries), failed)


def _is_made(
    caption: CounterfactualCaption,
    seed: int,
    failed: Failure | None,
    made: Collection[tuple[CounterfactualCaption, int]],
) -> bool:
    last = failed.tries if failed is not None else FORGOTTEN_TRIES
    return bool(made) and any((caption, next_seed(seed, tries)) in made for tries in range(last + 1))


def seed_of(settings: GenerationSettings, seed: int, place: int, number: int) -> int:
    """Return the seed of an image: the `number`th of the caption at `place`, unused captions included.

    A fixed seed belongs to every caption's first image and counts up from there, so that captions can be compared on
    the same noise. Otherwise each image has its own seed, derived from the run's `seed`.
    """
    if settings.seed_mode == "fixed":
        return (settings.seed + number) & LARGEST
    return derive_seed(seed, place, number)


def run(
    method: Method[P],
    prepared: P,
    images: Worklist,
    progress: OnProgress | None = None,
    cancelled: threading.Event | None = None,
    seconds_per_step: float | None = None,
    on_preview: OnPreview | None = None,
    on_failure: OnFailure | None = None,
    together: int = 1,
    watched: bool = True,
) -> Iterator[TestCase]:
    """Yield the test cases of a worklist from a prepared source, each as soon as it is finished.

    Pixels depend only on the image's seed and the batch size. The method chooses how many are drawn at once, more if
    nobody watches; `together` images are taken at once if images with a given batch may share one.

    Raises Cancelled within one denoising step after being asked to stop; earlier test cases are whole. An image that is
    dropped meanwhile stops as fast, and the next one begins. With `on_failure`, it is called for an image that cannot
    be made and the next one begins; without it, the error ends the work.
    """
    timer, steps_each = StepTimer(seconds_per_step), prepared.settings.steps or 1
    at_once = method.batch(prepared, images.waiting(), watched) if isinstance(method, BatchMethod) else 1
    number = made = 0
    while True:
        stop_if(cancelled)
        taken = images.take(max(at_once, together))
        if not taken:
            break
        later = len(taken)
        for places, size in _batches(taken, at_once):
            batch = [taken[place] for place in places]
            later -= len(batch)
            drawing = _BatchDrawing(
                method, steps_each, number + 1, places, later, images, timer, progress, cancelled, on_preview
            )
            number += len(batch)
            drawing.tell(0)
            try:
                finishing = _begun(method, prepared, batch, size, drawing.on_step)
            except _Dropped:
                number -= len(batch)
                continue
            except Cancelled:
                raise
            except Exception as error:
                if on_failure is None or drawing.stopped:
                    raise
                for image in batch:
                    on_failure(image, error)
                continue
            for place, finish in zip(places, finishing, strict=True):
                try:
                    case = finish()
                    drawing.stop_if_unwanted(place)  # its checks come after its last step
                except _Dropped:
                    number -= 1
                    continue
                except Cancelled:
                    raise
                except Exception as error:
                    if on_failure is None or drawing.stopped:
                        raise
                    on_failure(taken[place], error)
                    continue
                made += 1
                yield case
    if progress is not None and number:
        steps = number * steps_each
        progress(Progress("generation", steps, steps, 0.0, f"{made} of {number} images"))


def _batches(taken: Sequence[PlannedImage], at_once: int) -> Iterator[tuple[list[int], int]]:
    """Yield the places of images that share a batch, and its size: images with a given batch as given, the others
    `at_once`.
    """
    free = [place for place, image in enumerate(taken) if image.batch is None]
    for first in range(0, len(free), at_once):
        yield free[first : first + at_once], at_once
    open_ones: list[tuple[list[int], int]] = []
    for at, image in enumerate(taken):
        if image.batch is None:
            continue
        for places, size in open_ones:
            if size == image.batch.size and all(_place(taken[other], 0) != image.batch.place for other in places):
                places.append(at)
                break
        else:
            open_ones.append(([at], image.batch.size))
    yield from open_ones


def _place(image: PlannedImage, otherwise: int) -> int:
    return otherwise if image.batch is None else image.batch.place


def _begun(
    method: Method[P], prepared: P, batch: Sequence[PlannedImage], size: int, on_step: OnStep
) -> Sequence[Callable[[], TestCase]]:
    """Return the functions that give the test cases of a batch, one after another."""
    if size > 1 and isinstance(method, BatchMethod):
        planned = [CaseRequest(image.counterfactual, image.seed, _place(image, at)) for at, image in enumerate(batch)]
        return method.make_batch(prepared, planned, size, on_step)
    return [partial(method.make, prepared, image.counterfactual, image.seed, on_step) for image in batch]


class _Dropped(Cancelled):
    """The images being made are no longer wanted, but later ones are."""


class _BatchDrawing:
    """A batch that is being drawn: reports progress, shows previews, and checks whether to stop."""

    def __init__(
        self,
        method: Method[Any],
        steps: int,
        number: int,
        places: Collection[int],
        later: int,
        images: Worklist,
        timer: StepTimer,
        progress: OnProgress | None,
        cancelled: threading.Event | None,
        on_preview: OnPreview | None,
    ) -> None:
        self._method, self._steps, self._number, self._images = method, steps, number, images
        self._places, self._later = frozenset(places), later
        self._timer, self._progress, self._cancelled, self._on_preview = timer, progress, cancelled, on_preview
        self._before = timer.steps
        self._previews = SideTime()
        self.stopped = False
        """True if the progress callback stopped the work, False if the method failed."""

    def stop_if_unwanted(self, place: int | None = None) -> None:
        """Raise _Dropped if the image at `place` is no longer wanted, or without a place, none of the batch."""
        stop_if(self._cancelled)
        asked = self._places if place is None else {place}
        if asked <= set(self._images.dropped()):
            raise _Dropped

    def on_step(self, done: int, total: int) -> None:
        self.stopped = True
        self._step(done, total)
        self.stopped = False

    def _step(self, done: int, total: int) -> None:
        self.stop_if_unwanted()
        # A scheduler may take a few more steps than the settings say; the bar still ends at its end.
        step = min(done, total) * self._steps / max(total, 1)
        self._timer.at(self._before + step * len(self._places))
        self.tell(step)
        if self._on_preview is not None and done < total and self._previews.affordable(PREVIEW_SHARE):
            with self._previews.measured():
                shown = self._method.preview()
                if shown is not None:
                    self._on_preview(shown)

    def tell(self, step: float) -> None:
        if self._progress is None:
            return
        count, waiting = len(self._places), self._later + self._images.waiting()
        last = self._number + count - 1
        done, total = (self._number - 1) * self._steps + int(step * count), (last + waiting) * self._steps
        which = f"image {self._number}" if count == 1 else f"images {self._number} to {last}"
        left = self._timer.seconds_left(total - done)
        waits = getattr(self._method, "waits", "")  # for methods whose models get ready with the first image
        note = f"{which} of {last + waiting}{f' ({waits})' if waits else ''}"
        self._progress(Progress("generation", done, total, left, note, int(step)))


def explained(error: Exception) -> Exception:
    """Return the error of an image, as a UserError if its meaning is known. Raises CannotLoad, which would stop every
    other image too.
    """
    if isinstance(error, CannotLoad):
        raise error
    if not isinstance(error, UserError) and out_of_memory(error):
        return UserError(
            "The machine ran out of memory while it drew: end other programs that use it, or draw smaller images (the "
            "setting short_side)."
        )
    return error


def require_ready(task: Task, counterfactuals: CounterfactualCaptions) -> None:
    """Raise UserError if no image can be made of these captions."""
    require(task_checks(task))
    if not any(item.used for item in counterfactuals.items):
        raise UserError("No counterfactual caption is ticked: tick at least one.")
    if any(item.used and not tokens(item.text) for item in counterfactuals.items):
        raise UserError("A counterfactual caption is empty: write it, or untick it.")
