"""The results of an evaluation, as computed, stored and shown."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats

OF_TRUE_CLASS, OF_PIXELS = "the probability of the true class", "the share of right pixels"
"""The quantity that a table of edits compares: first for a classifier, second for a segmenter."""

ORIGINAL, AUGMENTED, CONTROL = "original only", "+ augmentation", "+ reconstructions"
BEFORE = "not trained further"
"""The model without further training: not an arm, but shown with the arms."""
ON_ORIGINAL, ON_GENERATED, ON_UNSEEN, ON_SHIFT = "original", "generated", "generated, unseen edit type", "natural shift"
"""Sets on which every arm is measured: sources that no arm was trained on, and test cases made of them."""

FEWEST_SEEDS = 3
"""Minimum number of trainings of an arm for an interval. The variance of two says nothing (one degree of freedom)."""

Weighing = Literal["source", "case"]
"""Unit of equal weight: each source, whose weight its test cases share, or each test case."""

BUDGETS = (0.01, 0.05, 0.10)
"""Shares of the images that are reviewed, for comparing orders."""
FEWEST_CASES = 20
"""Minimum number of test cases of a row in a table. Rows with fewer have no figures and are folded."""


@dataclass(frozen=True)
class Clustering:
    """Similarity of the cases of one source, and the number of independent cases that they are worth."""

    correlation: float | None
    """Intra-class correlation, at most 1; None if undefined."""
    design_effect: float | None
    """Factor by which the variance of a mean exceeds that of independent cases."""
    effective: float | None
    """Number of independent cases with the same information."""
    why: str = ""


@dataclass(frozen=True)
class Flips:
    """Changes of a model's correctness from sources to their test cases."""

    newly_wrong: int
    """Number of test cases that are wrong although their source is right."""
    newly_right: int
    pairs: int
    p_value: float | None
    """McNemar's exact test if each source has one test case; None if a source has more, as they are not independent."""


@dataclass(frozen=True)
class Together:
    """Number of sources of which all, some or none of the test cases are wrong."""

    all_wrong: int
    some_wrong: int
    none_wrong: int


@dataclass(frozen=True)
class ClassRow:
    """One class of a table. Its intervals are those of `means_of_groups`, since there may be a thousand classes."""

    label: str
    sources: int
    cases: int
    wrong_originals: int
    """Number of originals that the model gets wrong, also if too few for a figure."""
    wrong_cases: int
    """Number of test cases that the model gets wrong, also if too few for a figure."""
    error_original: Figure
    error_generated: Figure
    difference: Figure
    """Generated minus original."""
    p_value: float | None
    """p value of the t test that the difference is 0; None with too few cases."""
    p_adjusted: float | None
    """p value adjusted for all classes of the table by Holm's method."""


@dataclass(frozen=True)
class PairedDifference:
    """A comparison of two models on the same test cases. All figures are shares, 0 to 1."""

    weighing: Weighing
    """Unit of equal weight in all figures."""
    first: Figure
    """Share of test cases that the first model gets wrong."""
    second: Figure
    difference: Figure
    """Second minus first: above 0 if the first model is better."""
    only_first: int
    """Number of test cases that only the first model gets wrong."""
    only_second: int
    sources: int
    cases: int
    """Number of test cases that can be compared for both models."""
    left_out: int
    """Number of test cases that one model has not predicted, or whose label it does not know."""


@dataclass(frozen=True)
class Confusion:
    """Answers of a model by true label, as shares of the row; `other` collects answers that are none of the labels."""

    labels: tuple[str, ...]
    shares: Floats
    """Shares (labels, labels + 1). A row sums to 1, or is NaN for a label without images. The last column is
    `other`."""
    images: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """Agreement between a model's confidence and its accuracy."""

    expected_error: float | None
    """Expected calibration error (ECE): mean distance between confidence and accuracy, 0 to 1; None without images."""
    confidence: tuple[float | None, ...]
    """Mean confidence of each bin; None for an empty bin."""
    accuracy: tuple[float | None, ...]
    images: tuple[int, ...]


@dataclass(frozen=True)
class Effectiveness:
    """Errors of a model on sources and test cases, with intervals. Errors and differences are shares, 0 to 1."""

    split: str
    """Split of all sources, or ""."""
    weighing: Weighing
    """Unit of equal weight in all errors and differences."""
    sources: int
    cases: int
    left_out: int
    """Number of images of all three kinds that cannot be compared with a label."""
    error_original: Figure
    error_generated: Figure
    difference: Figure
    """Generated minus original."""
    factor: Figure
    """Generated / original. If no original is wrong it has no value, and `low` is its least possible value."""
    controlled: int
    """Number of sources with a reconstruction, drawn from the unedited caption. The next four figures use only
    these."""
    error_original_controlled: Figure
    error_generated_controlled: Figure
    error_reconstructed: Figure
    """Error on reconstructions. Without a value if there are none."""
    excess: Figure
    """Generated minus reconstructed: the effect of the edits beyond that of drawing."""
    flips: Flips
    together: Together
    clustering: Clustering
    classes: tuple[ClassRow, ...]
    confusion: tuple[Confusion, Confusion]
    """Confusion matrices of the originals and of the generated images."""
    calibration: tuple[Calibration, Calibration]


@dataclass(frozen=True)
class LostClass:
    """Loss rate of one protected class."""

    name: str
    cases: int
    """Number of test cases on whose original the segmenter finds the class."""
    lost: int
    """Number of test cases of `cases` on which it loses the class."""
    controls: int
    """Number of reconstructions whose original the segmenter finds the class on."""
    lost_in_controls: int

    @property
    def share(self) -> float | None:
        """lost / cases, 0 to 1; None if the class is found on no original."""
        return self.lost / self.cases if self.cases else None


@dataclass(frozen=True)
class LossEffect:
    """Rate at which a segmenter loses a class that it finds on the original. All figures are shares, 0 to 1."""

    sources: int
    cases: int
    """Number of test cases that count: a protected class is found on their original."""
    left_out: int
    """Number of test cases on whose original no protected class is found, so none can be lost."""
    missed: Figure
    """Share of originals on which it misses a protected class of the mask."""
    generated: Figure
    """Share of test cases on which it loses a class."""
    controlled: int
    """Number of sources with a reconstruction; the next three figures are of these only."""
    generated_controlled: Figure
    reconstructed: Figure
    """Share of reconstructions on which it loses a class, compared with the same originals."""
    excess: Figure
    """Generated minus reconstructed: the effect of the edits beyond that of drawing."""
    newly_wrong: int
    """Number of test cases on which it loses a class although it finds all on their original."""
    together: Together
    clustering: Clustering
    classes: tuple[LostClass, ...]


@dataclass(frozen=True)
class SegmentedClass:
    """Figures of a segmenter for one class."""

    name: str
    iou_original: float | None
    """IoU on originals, 0 to 1; None if neither masks nor model have the class."""
    iou_generated: float | None
    iou_reconstructed: float | None
    accuracy_original: float | None
    """Share of its pixels that the model finds, 0 to 1; None if the masks have none."""
    accuracy_generated: float | None


@dataclass(frozen=True)
class SegmentationEffect:
    """Quality of a segmenter on sources and test cases. All figures are shares, 0 to 1; mIoU averages classes."""

    split: str
    weighing: Weighing
    """Unit of equal weight in all figures."""
    sources: int
    cases: int
    miou_original: Figure
    miou_generated: Figure
    difference: Figure
    """Generated minus original."""
    controlled: int
    """Number of sources with a reconstruction; the next four figures are of these only."""
    miou_original_controlled: Figure
    miou_generated_controlled: Figure
    miou_reconstructed: Figure
    excess: Figure
    """Generated minus reconstructed."""
    miou_where_kept: Figure
    """mIoU of the generated images whose masks still fit, as measured."""
    kept: int
    classes: tuple[SegmentedClass, ...]
    confusion_original: Floats
    """Shares of the pixels of each row, (classes, classes + 1); NaN for a class that no mask has."""
    confusion_generated: Floats


@dataclass(frozen=True)
class Order:
    """Quality of one order of review."""

    name: str
    apfd: float | None
    """Average percentage of faults detected (Rothermel et al. 2001) by the first image of each fault, divided by that
    of the best order: 1 is perfect. None without a fault."""
    faults: Mapping[float, int]
    """Number of distinct faults among the first images, by budget."""
    all_faults: int
    images: Mapping[float, int]
    """Number of reviewed images, by budget."""
    ranks: tuple[int, ...] = ()
    """For each fault, the one-based rank of the first image that shows it; ascending."""

    def found(self, images: int) -> int:
        """Return the number of distinct faults that the first `images` images show."""
        return bisect_right(self.ranks, images)


@dataclass(frozen=True)
class ArmRow:
    """Accuracy of one arm on one set. Accuracies are shares, 0 to 1."""

    arm: str
    set: str
    seeds: int
    accuracy: Figure
    gain: Figure
    """Difference from the reference arm, paired by seed; without a value for the reference arm itself."""


@dataclass(frozen=True)
class MappingRow:
    """One label of a report."""

    label: str
    classes: tuple[str, ...]
    """Names of the model's classes; () if unmapped."""
    rule: str
    """Rule that mapped the label; "" if unmapped."""
    note: str
    suggestions: tuple[str, ...] = ()
    marked: bool = False
    """True if a person should check the mapping; `note` says why."""


@dataclass(frozen=True)
class MappingReport:
    """Summary of a class map, shown before anything is computed."""

    summary: str
    """One to five sentences."""
    mapped: tuple[MappingRow, ...]
    unmapped: tuple[MappingRow, ...]
    left_over: tuple[str, ...]
    """Classes of the model that no label maps to."""
    together: tuple[str, ...]
    """Labels that a segmenter cannot tell apart and that are therefore measured as one."""
