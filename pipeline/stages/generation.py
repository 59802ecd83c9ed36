"""Stage 5, counterfactual captions to test cases: plans what would be made (the gate), then makes it image by image."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from PIL import Image

from pipeline.checks import require, task_checks
from pipeline.errors import UserError
from pipeline.progress import OnProgress, Pace, Progress, stop_if
from pipeline.seams import Method
from pipeline.seeds import derive_seed
from pipeline.settings import ConditioningSettings, GenerationSettings
from pipeline.types import CounterfactualCaption, CounterfactualCaptions, Task, TestCase
from pipeline.words import tokens


@dataclass(frozen=True)
class PlannedImage:
    """One image that would be made."""

    counterfactual: CounterfactualCaption
    seed: int


@dataclass(frozen=True)
class Plan:
    """What a yes at the gate would start."""

    images: tuple[PlannedImage, ...]
    captions: int
    """From how many captions."""
    steps: int
    """Denoising steps in all."""
    seconds: float | None
    """An estimate; None when nothing was measured yet."""


def plan(
    counterfactuals: CounterfactualCaptions,
    settings: GenerationSettings,
    seed: int,
    seconds_per_step: float | None = None,
    made: Collection[tuple[CounterfactualCaption, int]] = (),
) -> Plan:
    """The images of every caption that is used, caption by caption, without those (caption and seed) already `made`.

    Image i of the caption at place k has the seed `derive_seed(seed, k, i)`, unused captions counted too: ticking or
    unticking one leaves the images of the others as they are.
    """
    images = tuple(
        PlannedImage(item, image_seed)
        for place, item in enumerate(counterfactuals.items)
        for image_seed in (derive_seed(seed, place, i) for i in range(settings.images_per_caption))
        if item.used and (item, image_seed) not in made
    )
    steps = len(images) * settings.steps
    seconds = None if seconds_per_step is None else seconds_per_step * steps
    return Plan(images, len({id(image.counterfactual) for image in images}), steps, seconds)


def seconds_per_step(test_case: TestCase) -> float:
    """What one denoising step took, all the rest of making the image shared out among the steps."""
    return test_case.seconds / max(1, int(test_case.settings.get("steps", 1)))


def run(
    source: Image.Image,
    task: Task,
    counterfactuals: CounterfactualCaptions,
    method: Method,
    conditioning: ConditioningSettings,
    settings: GenerationSettings,
    seed: int,
    progress: OnProgress | None = None,
    cancelled: threading.Event | None = None,
    made: Collection[tuple[CounterfactualCaption, int]] = (),
    seconds_per_step: float | None = None,
) -> Iterator[TestCase]:
    """The test cases of `plan(...)`, each as soon as it is finished; its own pixels hang on its own seed only.

    Raises UserError, before anything is made, when no caption is used or one is empty; Cancelled within one denoising
    step when asked to stop, whatever was given before being whole.
    """
    require_ready(task, counterfactuals)
    todo = plan(counterfactuals, settings, seed, seconds_per_step, made)
    return _make(todo, source, task, method, conditioning, settings, progress, cancelled, seconds_per_step)


def require_ready(task: Task, counterfactuals: CounterfactualCaptions) -> None:
    """Raises UserError when nothing could be made of these captions."""
    require(task_checks(task))
    if not any(item.used for item in counterfactuals.items):
        raise UserError("No counterfactual caption is ticked: tick at least one.")
    if any(item.used and not tokens(item.text) for item in counterfactuals.items):
        raise UserError("A counterfactual caption is empty: write it, or untick it.")


def _make(
    todo: Plan,
    source: Image.Image,
    task: Task,
    method: Method,
    conditioning: ConditioningSettings,
    settings: GenerationSettings,
    progress: OnProgress | None,
    cancelled: threading.Event | None,
    seconds_per_step: float | None,
) -> Iterator[TestCase]:
    pace = Pace(todo.steps, seconds_per_step)
    for number, image in enumerate(todo.images):

        def on_step(done: int, total: int, number: int = number) -> None:
            stop_if(cancelled)
            # A scheduler may take a few more steps than the settings say; the bar still ends at its end.
            tell(number * settings.steps + min(done, total) * settings.steps / max(total, 1), number)

        def tell(steps: float, number: int) -> None:
            if progress is not None:
                note = f"image {number + 1} of {len(todo.images)}"
                progress(Progress("generation", int(steps), todo.steps, pace.seconds_left(int(steps)), note))

        stop_if(cancelled)
        tell(number * settings.steps, number)
        yield method.make(source, task, image.counterfactual, conditioning, settings, image.seed, on_step)
    if progress is not None and todo.images:
        note = f"{len(todo.images)} of {len(todo.images)} images"
        progress(Progress("generation", todo.steps, todo.steps, 0.0, note))
