"""The validity score of images: a fitted regression and its agreement with people's votes, as stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from core.figures import Figure, Floats
from core.types import TaskKind

FEWEST = 20
"""Minimum number of valid images, and minimum number of invalid images, to fit a score."""


@dataclass(frozen=True)
class ValidityScore:
    """A logistic regression, as plain numbers that can be saved and read."""

    names: tuple[str, ...]
    middle: tuple[float, ...]
    """Median value of each check, used for images without a value."""
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[float, ...]
    """Weights of the checks' values (in units of their spread), then weights of the flags of missing values."""
    intercept: float
    task: TaskKind | None = None
    """Task of the images to which the score was fitted and applies. None in older scores, which apply to all tasks."""

    def __call__(self, checks: Floats) -> Floats:
        """Return the probability of each image, 0 to 1, from (images, checks) with NaN for a missing value."""
        missing = np.isnan(checks)
        filled = np.where(missing, np.array(self.middle), checks)
        columns = np.concatenate([(filled - np.array(self.mean)) / np.array(self.spread), missing], axis=1)
        return 1.0 / (1.0 + np.exp(-(columns @ np.array(self.weights) + self.intercept)))


@dataclass(frozen=True)
class Agreement:
    """Agreement of a score with people's votes, on images that were not used to fit it."""

    images: int
    valid: int
    auc: Figure
    """Probability that a valid image scores above an invalid one (0.5 is chance), with an interval over sources."""
    bins: tuple[tuple[float, float, int], ...]
    """Reliability diagram: mean score, share of valid images and number of images of each bin that is not empty."""
    threshold: float
    precision: float | None
    """Share of valid images among those at or above the threshold; None if there are none."""
    recall: float | None


@dataclass(frozen=True)
class ScoreRun:
    """A computation of the scores of all images of one task."""

    id: int
    task: TaskKind | None
    """Task of the images. None for scores of an earlier version, which cover all tasks."""
    studies: Mapping[str, str]
    """Names of the studies whose votes the score was fitted to, by study id."""
    checks: tuple[str, ...]
    agreement: Agreement
    images: int
    created: datetime
