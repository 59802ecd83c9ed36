"""Estimates how long a retraining takes, from the speed of the same model's earlier trainings in the workspace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from evaluation.retraining.stored_training import KeptState
from evaluation.retraining.training import TrainingRecipe
from services.evaluation.texts import TEXTS


@dataclass(frozen=True)
class TrainingPace:
    """Speed of a model's training."""

    an_image: float
    """Seconds to learn from one image in one update."""
    other: float | None
    """Seconds of a training besides its updates: to load the model, tune and measure. None if unknown."""


@dataclass(frozen=True)
class ExpectedTime:
    """Estimated duration of a retraining."""

    trainings: int
    recipe: TrainingRecipe
    seconds: float | None
    """Expected seconds, or None if the model was never trained here."""
    at_least: bool = False
    """True if only the time of the updates is known."""
    measured: str = ""
    """Time of the speed measurement: ISO 8601, UTC."""

    @property
    def words(self) -> str:
        """Return the estimate in a sentence or two."""
        return TEXTS.paragraph("expected-time.txt", time=self)


def pace_of(trainings: Iterable[KeptState]) -> TrainingPace | None:
    """Return the median speed of trainings, or None if none was measured."""
    states = tuple(trainings)
    paces = [one.update_seconds / one.batch for one in states if one.update_seconds is not None]
    others = [one.other_seconds for one in states if one.other_seconds is not None]
    return TrainingPace(median(paces), median(others) if others else None) if paces else None
