"""Stage 5: plans the images to draw from counterfactual captions, chooses their seeds, and explains drawing errors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from core.errors import CannotLoad, UserError, out_of_memory
from core.lineage import DrawnBatch, Failure
from core.seeds import LARGEST, derive_seed, next_seed
from core.settings import GenerationSettings
from core.types import GENERATION, CounterfactualCaption, CounterfactualCaptions, Task
from core.words import tokens
from pipeline.checks.texts import require, task_checks

FORGOTTEN_TRIES = 5
"""Maximum number of unrecorded failed tries that `plan` allows for. Each failed try moves an image to the next seed."""


@dataclass(frozen=True)
class PlannedImage:
    """An image to be made."""

    counterfactual: CounterfactualCaption
    seed: int
    failed: Failure | None = None
    """The failure of earlier tries with other seeds, or None."""
    batch: DrawnBatch | None = None
    """The batch in which the image must be drawn to repeat it bit by bit, or None for any batch."""

    def failure(self, message: str) -> Failure:
        """Return the failure to record if this try fails too."""
        if self.failed is None:
            return Failure(GENERATION, 1, message, self.counterfactual, self.seed)
        return replace(self.failed, tries=self.failed.tries + 1, message=message)


@dataclass(frozen=True)
class Plan:
    """The images that are drawn as soon as a person approves."""

    images: tuple[PlannedImage, ...]
    captions: int
    """Number of captions from which the images are drawn."""
    steps: int
    """Total number of denoising steps."""
    seconds: float | None
    """Estimated seconds of drawing, or None if nothing was measured yet."""


def plan(
    counterfactuals: CounterfactualCaptions,
    settings: GenerationSettings,
    seed: int,
    seconds_per_image: float | None = None,
    made: Collection[tuple[CounterfactualCaption, int]] = (),
    failures: Collection[Failure] = (),
) -> Plan:
    """Plan the images of every used caption, without those `made` (caption and seed). Seeds come from `seed_of`, so
    that ticking one caption does not change the images of others. An image among `failures` gets its next seed.
    """
    failed = {(failure.counterfactual, failure.seed): failure for failure in failures}
    images: list[PlannedImage] = []
    for place, item in enumerate(counterfactuals.items):
        for number in range(settings.images_per_caption if item.used else 0):
            first = seed_of(settings, seed, place, number)
            failure = failed.get((item, first))
            tries = FORGOTTEN_TRIES if failure is None else failure.tries
            if made and any((item, next_seed(first, tried)) in made for tried in range(tries + 1)):
                continue
            images.append(PlannedImage(item, first if failure is None else next_seed(first, tries), failure))
    steps = len(images) * settings.steps
    seconds = None if seconds_per_image is None else seconds_per_image * len(images)
    return Plan(tuple(images), len({id(image.counterfactual) for image in images}), steps, seconds)


def seed_of(settings: GenerationSettings, seed: int, place: int, number: int) -> int:
    """Return the seed of image `number` of the caption at index `place` among all captions. Fixed seeds depend only on
    `number`, so that captions can be compared on the same noise. Other seeds derive from the run's `seed`.
    """
    if settings.seed_mode == "fixed":
        return (settings.seed + number) & LARGEST  # begins again at 0 after the largest seed
    return derive_seed(seed, place, number)


def explained(error: Exception) -> Exception:
    """Return an image's error, as a UserError if its cause is known. Raises CannotLoad, which stops all images."""
    if isinstance(error, CannotLoad):
        raise error
    if not isinstance(error, UserError) and out_of_memory(error):
        return UserError(
            "The machine ran out of memory while it drew: end other programs that use memory, or draw smaller images "
            "(the setting short_side)."
        )
    return error


def require_ready(task: Task, counterfactuals: CounterfactualCaptions) -> None:
    """Raise UserError if the task or the captions do not suffice to draw images."""
    require(task_checks(task))
    if not any(item.used for item in counterfactuals.items):
        raise UserError("No counterfactual caption is ticked: tick at least one.")
    if any(item.used and not tokens(item.text) for item in counterfactuals.items):
        raise UserError("A counterfactual caption is empty: write it, or untick it.")
