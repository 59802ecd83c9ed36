"""The results of an evaluation, as computed, stored and shown.

A difference is the figure of generated images minus that of originals, unless its description says otherwise. An excess
is the figure of generated images minus that of reconstructions (drawn from unedited captions): the effect of the edits
beyond that of drawing. A p value called adjusted is corrected for all rows of its table by Holm's method.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats

OF_TRUE_CLASS, OF_PIXELS = "the probability of the true class", "the share of right pixels"
"""Names of the quantity that a table of edits compares: one for a classifier, one for a segmenter."""

ORIGINAL, AUGMENTED, CONTROL = "original only", "+ augmentation", "+ reconstructions"
BEFORE = "not trained further"
"""Name of the model before further training, in tables that compare choices of training images ("arms")."""
ON_ORIGINAL, ON_GENERATED, ON_UNSEEN, ON_SHIFT = "original", "generated", "generated, unseen edit type", "natural shift"
"""Sets of images on which every arm (choice of training images) is measured: sources that no arm was trained on, their
test cases, test cases of an edit type that no arm was trained on, and images with a natural shift."""

FEWEST_SEEDS = 3
"""Minimum number of trainings on the same images that give an interval. Two would be too few to estimate a variance."""

Weighing = Literal["source", "case"]
"""Things of equal weight in a figure: sources (a source divides its weight among its test cases), or test cases."""

BUDGETS = (0.01, 0.05, 0.10)
"""Shares of all images that people have time to review. Orders of review are compared by faults found in them."""
FEWEST_CASES = 20
"""Minimum number of test cases in a row of a table. Smaller rows have no figures and are folded on the page."""


@dataclass(frozen=True)
class Clustering:
    """Similarity of test cases that have the same source, and its effect on the precision of figures."""

    correlation: float | None
    """Intra-class correlation of the test cases of one source, at most 1; None if undefined."""
    design_effect: float | None
    """Variance of a mean over the test cases, divided by the variance that independent test cases would give."""
    effective: float | None
    """Number of independent test cases that would carry as much information as all test cases."""
    why: str = ""


@dataclass(frozen=True)
class Flips:
    """Changes of a model's correctness from sources to their test cases."""

    newly_wrong: int
    """Number of test cases that the model gets wrong although it gets their source right."""
    newly_right: int
    pairs: int
    p_value: float | None
    """p value of McNemar's exact test; None if a source has several test cases, as these are not independent."""


@dataclass(frozen=True)
class Together:
    """Numbers of sources by whether the model gets all, some or none of their test cases wrong."""

    all_wrong: int
    some_wrong: int
    none_wrong: int


@dataclass(frozen=True)
class ClassRow:
    """Figures of one class. The intervals come from `means_of_groups`, which is fast enough for a thousand classes."""

    label: str
    sources: int
    cases: int
    wrong_originals: int
    """Number of originals of the class that the model gets wrong. It is set even if the other figures are missing."""
    wrong_cases: int
    error_original: Figure
    error_generated: Figure
    difference: Figure
    p_value: float | None
    """p value of the t test that the difference is 0; None with too few test cases."""
    p_adjusted: float | None


@dataclass(frozen=True)
class PairedDifference:
    """A comparison of two models on the same test cases. All figures are shares, 0 to 1."""

    weighing: Weighing
    first: Figure
    """Share of test cases that the first model gets wrong."""
    second: Figure
    difference: Figure
    """Error of the second model minus error of the first: above 0 if the first model is better."""
    only_first: int
    only_second: int
    sources: int
    cases: int
    """Number of test cases for which both models have a prediction that can be compared."""
    left_out: int
    """Number of test cases left out: one model has not predicted them, or does not know their label."""


GateAnswer = Literal["no worse", "worse", "cannot tell"]


@dataclass(frozen=True)
class GateRow:
    """Errors of an old (first) and a new (second) model on the same test cases. All errors are shares, 0 to 1."""

    name: str
    """The class; "" for all test cases."""
    first: Figure
    """Share of test cases that the first model gets wrong, valid or not, with a 95 % interval."""
    second: Figure
    difference: Figure
    """Share of errors, not counting those on invalid images: second model minus first, with one-sided 95 % bounds."""
    answer: GateAnswer
    needed: int | None
    """Approximate number of sources needed for an answer if the difference stays as it is. None if there is an answer
    already, or if the number is too large."""


@dataclass(frozen=True)
class GateResult:
    """Answer to the question whether a new model is worse than an old one by more than a margin."""

    answer: GateAnswer
    """"worse" if any row is, "no worse" if all rows are, otherwise "cannot tell"."""
    margin: float
    weighing: Weighing
    rows: tuple[GateRow, ...]
    few: tuple[str, ...]
    only_first: int
    only_second: int
    judged: int
    """Number of test cases for which people's judgements have a consensus."""
    invalid: int
    """Number of judged test cases that people found invalid. A fault on them does not count."""
    differing_not_judged: int
    """Number of test cases that one model gets wrong and the other right, and that nobody judged."""
    left_out: int = 0


EffectAnswer = Literal["raises", "lowers", "cannot tell"]


@dataclass(frozen=True)
class EffectRow:
    """Effect of one level of a factor (a main effect), or the extra effect of two levels together (an interaction)."""

    parts: tuple[tuple[str, str], ...]
    """Factor and level: one pair for a main effect, two for an interaction."""
    effect: Figure
    """Change of the outcome, with a 95 % interval. A main effect is the change if only one factor is changed. An
    interaction is the change by two levels together, minus the sum of the main effects of the two levels."""
    p_adjusted: float | None
    answer: EffectAnswer
    needed: int | None
    """Approximate number of sources that would give an answer; None if an answer exists or far too many are needed."""
    images: tuple[int, ...]
    """Indices of the images that have all levels in `parts`."""


@dataclass(frozen=True)
class FactorEffects:
    """Main effects and two-way interactions of factors on one outcome."""

    unchanged: Figure
    rows: tuple[EffectRow, ...]
    """Main effects first, then interactions. Each group begins with the effects that have an answer, largest first."""
    few: int
    """Number of combinations of two edits that get no row of the table, since too few sources have both."""
    images: int
    sources: int
    """Number of sources with at least two different combinations of levels."""


@dataclass(frozen=True)
class MixedRow:
    """Unrequested change of a factor (`seen`) in images for which a change of another (`asked`) was requested."""

    asked: str
    seen: str
    effect: Figure
    """Effect, -1 to 1, of changing `asked` on the visible change of `seen`, 0 to 1. It has a 95 % interval."""
    own: Figure
    p_adjusted: float | None

    @property
    def mixes(self) -> bool:
        """True if changing `asked` also changes `seen`: `effect` is above 0 with an adjusted p-value up to 0.05."""
        significant = self.p_adjusted is not None and self.p_adjusted <= 0.05
        return significant and self.effect.value is not None and self.effect.value > 0


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix: a row per true label, a column per answered label, and a last column for other answers."""

    labels: tuple[str, ...]
    shares: Floats
    """Shares of a label's images by the answer, (labels, labels + 1). The last column has answers that are no label."""
    images: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """Agreement between a model's confidence and its accuracy, in bins of confidence."""

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
    """The split that all sources belong to, such as "test"; "" without a split."""
    weighing: Weighing
    sources: int
    cases: int
    left_out: int
    """Number of originals, reconstructions and test cases without a prediction that can be compared with a label."""
    error_original: Figure
    error_generated: Figure
    difference: Figure
    factor: Figure
    """Error on generated images divided by error on originals. If no original is wrong, only its `low` is set."""
    controlled: int
    """Number of sources with a reconstruction, drawn from the unedited caption. The next four figures use only these
    sources."""
    error_original_controlled: Figure
    error_generated_controlled: Figure
    error_reconstructed: Figure
    """Error on reconstructions. It has no value if there are none."""
    excess: Figure
    flips: Flips
    together: Together
    clustering: Clustering
    classes: tuple[ClassRow, ...]
    confusion: tuple[Confusion, Confusion]
    """Confusion matrices of the originals and of the generated images."""
    calibration: tuple[Calibration, Calibration]


@dataclass(frozen=True)
class LostClass:
    """Rate at which a segmenter loses one protected class that it finds on the original."""

    name: str
    cases: int
    """Number of test cases on whose original the segmenter finds the class."""
    lost: int
    controls: int
    """Number of reconstructions on whose original the segmenter finds the class."""
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
    """Number of test cases that count, because the segmenter finds a protected class on their original."""
    left_out: int
    missed: Figure
    """Share of originals on which the segmenter misses a protected class of the mask."""
    generated: Figure
    controlled: int
    """Number of sources with a reconstruction. The next three figures use only these sources."""
    generated_controlled: Figure
    reconstructed: Figure
    """Share of reconstructions on which the segmenter loses a class that it finds on the original."""
    excess: Figure
    newly_wrong: int
    """Number of test cases on which the segmenter loses a class although it finds all classes on their original."""
    together: Together
    clustering: Clustering
    classes: tuple[LostClass, ...]


@dataclass(frozen=True)
class SegmentedClass:
    """Figures of a segmenter for one class."""

    name: str
    iou_original: float | None
    """IoU (intersection over union) on originals, 0 to 1; None if neither masks nor model have the class."""
    iou_generated: float | None
    iou_reconstructed: float | None
    accuracy_original: float | None
    """Share of the class's pixels on originals that the model finds, 0 to 1; None if the masks have none."""
    accuracy_generated: float | None


@dataclass(frozen=True)
class SegmentationEffect:
    """Quality of a segmenter on sources and test cases, in shares, 0 to 1. mIoU is the mean IoU over classes."""

    split: str
    weighing: Weighing
    sources: int
    cases: int
    miou_original: Figure
    miou_generated: Figure
    difference: Figure
    controlled: int
    """Number of sources with a reconstruction. The next four figures use only these sources."""
    miou_original_controlled: Figure
    miou_generated_controlled: Figure
    miou_reconstructed: Figure
    excess: Figure
    miou_where_kept: Figure
    """mIoU on the generated images whose masks still fit, according to a check."""
    kept: int
    classes: tuple[SegmentedClass, ...]
    confusion_original: Floats
    """Confusion matrix on originals, (classes, classes + 1). A row sums to 1, or is NaN for a class in no mask."""
    confusion_generated: Floats


@dataclass(frozen=True)
class Order:
    """Quality of one order for reviewing images. The best order shows all faults early."""

    name: str
    apfd: float | None
    """APFD (average percentage of faults detected, Rothermel et al. 2001), divided by the APFD of the best order. The
    first image that shows a fault detects it. 1 is perfect. None without a fault."""
    faults: Mapping[float, int]
    """Number of distinct faults found, by the share of images that are reviewed (see `BUDGETS`)."""
    all_faults: int
    images: Mapping[float, int]
    ranks: tuple[int, ...] = ()
    """One-based rank of the first image that shows each fault, in ascending order."""

    def found(self, images: int) -> int:
        """Return the number of distinct faults that the first `images` images show."""
        return bisect_right(self.ranks, images)


@dataclass(frozen=True)
class ArmRow:
    """Accuracy on a set of images after training with one choice of images (arm). Accuracies are shares, 0 to 1."""

    arm: str
    set: str
    seeds: int
    accuracy: Figure
    gain: Figure
    """Accuracy minus that of the reference arm with the same seeds. The reference arm itself has no value."""


@dataclass(frozen=True)
class MappingRow:
    """One row of the mapping report: a label and the classes of the model that it maps to."""

    label: str
    classes: tuple[str, ...]
    """Names of the model's classes that count as right for the label; () if the label is not mapped."""
    rule: str
    note: str
    suggestions: tuple[str, ...] = ()
    marked: bool = False
    """True if a person should check the mapping; `note` says why."""


@dataclass(frozen=True)
class MappingReport:
    """Report on how labels map to the classes of a model. It is shown before anything is computed."""

    summary: str
    mapped: tuple[MappingRow, ...]
    unmapped: tuple[MappingRow, ...]
    left_over: tuple[str, ...]
    together: tuple[str, ...]
    """Labels that a segmenter cannot tell apart. They are measured as one class."""
