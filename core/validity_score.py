"""The validity score of images: a fitted regression and its agreement with people, as stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from core.figures import Figure, Floats
from core.types import TaskKind

FEWEST = 20
"""Images of each kind, valid and not, that are needed to learn from."""


@dataclass(frozen=True)
class ValidityScore:
    """A logistic regression, as plain numbers that can be saved and read."""

    names: tuple[str, ...]
    """Of the checks, in the order of the columns."""
    middle: tuple[float, ...]
    """The median of each check, which stands for a value that is missing."""
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[float, ...]
    """Of the checks in units of their spread, then of their being missing."""
    intercept: float
    task: TaskKind | None = None
    """Of the images that it was learnt from, and that it foretells. None of one that an earlier version of the studio
    learnt from images of all tasks together."""

    def __call__(self, checks: Floats) -> Floats:
        """The chance of each image, 0 to 1, of (images, checks); NaN for a value that is missing."""
        away = self._columns(checks) @ np.array(self.weights) + self.intercept
        return 1.0 / (1.0 + np.exp(-away))

    def _columns(self, checks: Floats) -> Floats:
        missing = np.isnan(checks)
        filled = np.where(missing, np.array(self.middle), checks)
        return np.concatenate([(filled - np.array(self.mean)) / np.array(self.spread), missing], axis=1)


@dataclass(frozen=True)
class Agreement:
    """How far a score agrees with people on images whose votes it has not seen."""

    images: int
    valid: int
    auc: Figure
    """The chance that a valid image has a higher score than one that is not (0.5: it knows nothing), with an interval
    over sources."""
    bins: tuple[tuple[float, float, int], ...]
    """A reliability diagram: mean score, share of valid images and number of images, of each bin that has some."""
    threshold: float
    precision: float | None
    """Of the images with a score from the threshold on, how many are valid; None where there are none."""
    recall: float | None
    """Of the valid images, how many have such a score."""


@dataclass(frozen=True)
class ScoreRun:
    """What the scores of the images of one task come from."""

    id: int
    task: TaskKind | None
    """None of scores of an earlier version, which are of images of all tasks."""
    studies: Mapping[str, str]
    """Names by ids: those whose votes it was learnt from."""
    checks: tuple[str, ...]
    """The names of those that it goes by."""
    agreement: Agreement
    images: int
    """That got a score."""
    created: datetime
