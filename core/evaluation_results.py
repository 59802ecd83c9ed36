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
"""What a table of edits tells the change of: for a classifier, and for a segmenter."""

ORIGINAL, AUGMENTED, CONTROL = "original only", "+ augmentation", "+ reconstructions"
BEFORE = "not trained further"
"""The model as it is: no arm, and shown beside them."""
ON_ORIGINAL, ON_GENERATED, ON_UNSEEN, ON_SHIFT = "original", "generated", "generated, unseen edit type", "natural shift"
"""What every arm is measured on: sources that none has learnt from, and what was made of them."""

FEWEST_SEEDS = 3
"""Trainings of an arm that an interval takes: the variance of two has one degree of freedom, and says nothing."""

Weighing = Literal["source", "case"]
"""What weighs the same in a figure: each source, among whose test cases its weight is shared, or each test case."""

BUDGETS = (0.01, 0.05, 0.10)
"""Shares of the images that are looked at first."""
FEWEST_CASES = 20
"""Test cases of a row of a table. Rows with fewer have no figures, and are folded."""


@dataclass(frozen=True)
class Clustering:
    """How much the cases of one source are alike, and what they are worth."""

    correlation: float | None
    """Intra-class correlation, at most 1; None where it is undefined."""
    design_effect: float | None
    """By how much the variance of a mean is larger than if all cases were independent."""
    effective: float | None
    """As many independent cases would say as much."""
    why: str = ""


@dataclass(frozen=True)
class Flips:
    """What becomes of sources' answers in their test cases."""

    newly_wrong: int
    """Test cases that are wrong, of sources that are right."""
    newly_right: int
    pairs: int
    p_value: float | None
    """McNemar's exact test, where each source has one test case; None where it has more: they are not independent."""


@dataclass(frozen=True)
class Together:
    """Of how many sources all, some and none of the test cases are wrong."""

    all_wrong: int
    some_wrong: int
    none_wrong: int
    by_number: tuple[tuple[int, int, int], ...]
    """Test cases of a source, how many of them are wrong, and of how many sources that is so."""


@dataclass(frozen=True)
class ClassRow:
    """One class of a table. Its intervals are those of `means_of_groups`, since there may be a thousand classes."""

    label: str
    sources: int
    cases: int
    wrong_originals: int
    """Number of originals that the model is wrong about, also where there are too few for a figure."""
    wrong_cases: int
    """Number of test cases that the model is wrong about, also where there are too few for a figure."""
    error_original: Figure
    error_generated: Figure
    difference: Figure
    """Generated less original."""
    p_value: float | None
    """Of the test that it is 0 (t); None where there are too few."""
    p_adjusted: float | None
    """For all classes of the table, by Holm's way."""


@dataclass(frozen=True)
class PairedDifference:
    """Two models on the same test cases. All figures are shares, 0 to 1."""

    weighing: Weighing
    """What weighs the same in all figures."""
    first: Figure
    """The share of test cases that the first model is wrong about."""
    second: Figure
    difference: Figure
    """The second less the first: above 0 where the first model is better."""
    only_first: int
    """Test cases that the first model alone is wrong about."""
    only_second: int
    sources: int
    cases: int
    """Test cases that can be compared with both models."""
    left_out: int
    """Test cases that one model has not read or cannot say the label of."""


@dataclass(frozen=True)
class Confusion:
    """What a model says of the images of each label, in shares of the row; `other` is what is none of the labels."""

    labels: tuple[str, ...]
    shares: Floats
    """(labels, labels + 1), each row adds up to 1, or is NaN where there is no image; the last column is `other`."""
    images: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """Whether a model is as sure as it is right."""

    expected_error: float | None
    """The mean distance between confidence and accuracy, 0 to 1 (ECE); None without images."""
    confidence: tuple[float | None, ...]
    """The mean of each bin; None for an empty one."""
    accuracy: tuple[float | None, ...]
    images: tuple[int, ...]


@dataclass(frozen=True)
class Effectiveness:
    """Where a model breaks, and how sure that is. Errors and differences are shares, 0 to 1."""

    split: str
    """That of all sources; "" where they have none."""
    weighing: Weighing
    """What weighs the same in all errors and differences."""
    sources: int
    cases: int
    left_out: int
    """Images, of all three kinds, that cannot be compared with a label."""
    error_original: Figure
    error_generated: Figure
    difference: Figure
    """Generated less original."""
    factor: Figure
    """Generated over original. Where no original is wrong it has no value, and `low` is the least it may be."""
    controlled: int
    """Sources with a reconstruction, drawn from the unedited caption; the next four figures are of these alone."""
    error_original_controlled: Figure
    error_generated_controlled: Figure
    error_reconstructed: Figure
    """Without a value where there are no reconstructions."""
    excess: Figure
    """Generated less reconstructed: what the edits do beyond what drawing does."""
    flips: Flips
    together: Together
    clustering: Clustering
    classes: tuple[ClassRow, ...]
    confusion: tuple[Confusion, Confusion]
    """Of the originals, and of the generated images."""
    calibration: tuple[Calibration, Calibration]


@dataclass(frozen=True)
class LostClass:
    """How often one protected class is lost."""

    name: str
    cases: int
    """Test cases whose original the segmenter finds the class on."""
    lost: int
    """Those of them on which it loses it."""
    controls: int
    """The same of reconstructions."""
    lost_in_controls: int

    @property
    def share(self) -> float | None:
        """0 to 1; None where it is found on no original."""
        return self.lost / self.cases if self.cases else None


@dataclass(frozen=True)
class LossEffect:
    """How often a segmenter loses a class that it finds on the original. All figures are shares, 0 to 1."""

    sources: int
    cases: int
    """Test cases that count: some protected class is found on their original."""
    left_out: int
    """Test cases whose original it finds no protected class on: they have nothing to lose."""
    missed: Figure
    """Originals on which it misses a protected class of the mask."""
    generated: Figure
    """Test cases on which it loses a class."""
    controlled: int
    """Sources with a reconstruction; the next three figures are of these alone."""
    generated_controlled: Figure
    reconstructed: Figure
    """Reconstructions on which it does, held against the same originals."""
    excess: Figure
    """Generated less reconstructed: what the edits do beyond what drawing does."""
    newly_wrong: int
    """Test cases on which it loses a class, of originals on which it finds all."""
    together: Together
    clustering: Clustering
    classes: tuple[LostClass, ...]


@dataclass(frozen=True)
class SegmentedClass:
    """One class."""

    name: str
    iou_original: float | None
    """0 to 1; None where neither masks nor model have the class."""
    iou_generated: float | None
    iou_reconstructed: float | None
    accuracy_original: float | None
    """The share of its pixels that the model finds, 0 to 1; None where the masks have none."""
    accuracy_generated: float | None


@dataclass(frozen=True)
class SegmentationEffect:
    """Where a segmenter breaks. All figures are shares, 0 to 1; mIoU is the mean over classes that are there."""

    split: str
    weighing: Weighing
    """What weighs the same in all figures."""
    sources: int
    cases: int
    miou_original: Figure
    miou_generated: Figure
    difference: Figure
    """Generated less original."""
    controlled: int
    """Sources with a reconstruction; the next four figures are of these alone."""
    miou_original_controlled: Figure
    miou_generated_controlled: Figure
    miou_reconstructed: Figure
    excess: Figure
    """Generated less reconstructed."""
    miou_where_kept: Figure
    """Generated, of those images whose mask demonstrably holds."""
    kept: int
    classes: tuple[SegmentedClass, ...]
    confusion_original: Floats
    """(classes, classes + 1), in shares of the pixels of a row; NaN for a class that no mask has."""
    confusion_generated: Floats


@dataclass(frozen=True)
class Order:
    """How good an order is."""

    name: str
    apfd: float | None
    """Average percentage of faults detected (Rothermel et al. 2001), by the first image of each, divided by that of the
    best order: 1 is perfect. None without a fault."""
    faults: Mapping[float, int]
    """By budget, how many distinct faults are among the first images."""
    all_faults: int
    images: Mapping[float, int]
    """By budget, how many images those are."""
    ranks: tuple[int, ...] = ()
    """Of each fault, the place of the first image that shows it, from 1 on; ascending."""

    def found(self, images: int) -> int:
        """How many distinct faults the first so many images show."""
        return bisect_right(self.ranks, images)


@dataclass(frozen=True)
class ArmRow:
    """One arm on one set. Accuracies are shares, 0 to 1."""

    arm: str
    set: str
    seeds: int
    accuracy: Figure
    gain: Figure
    """Beside the arm that everything is compared with, seed by seed; without a value for that arm itself."""


@dataclass(frozen=True)
class MappingRow:
    """One label of a report."""

    label: str
    classes: tuple[str, ...]
    """The names of the model's classes; () where it is unmapped."""
    rule: str
    """"" where it is unmapped."""
    note: str
    suggestions: tuple[str, ...] = ()
    marked: bool = False
    """Whether a person should look at what it is taken for: `note` says why."""


@dataclass(frozen=True)
class MappingReport:
    """What somebody sees of a map before anything is computed."""

    summary: str
    """One to five sentences."""
    mapped: tuple[MappingRow, ...]
    unmapped: tuple[MappingRow, ...]
    left_over: tuple[str, ...]
    """Classes of the model that no label has."""
    together: tuple[str, ...]
    """Labels that a segmenter cannot tell apart, and that are measured as one."""
