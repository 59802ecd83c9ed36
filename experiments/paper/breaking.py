"""RQ2: where the models under test break, how much of that the edits do, and whether it is where it was planted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import Effectiveness, SegmentationEffect
from core.figures import Figure, Floats
from demo.scene import OBJECT_CLASSES, SEMANTIC_CLASSES
from evaluation.effectiveness import RIGHT, WRONG, effectiveness
from evaluation.segmentation import Pixels, segmentation_effect
from evaluation.sensitivity import Changes, SensitivityRow, sensitivity
from experiments.paper.reading import Read
from experiments.paper.world import PLANTED, PLANTED_TYPES, SPLIT


@dataclass(frozen=True)
class TypeRow:
    """One edit type. Figures of a classifier are errors, those of a segmenter mIoU; shares, 0 to 1."""

    name: str
    cases: int
    planted: bool
    """Whether it brings about what was left out of the training."""
    generated: Figure
    excess: Figure
    """Beyond reconstruction."""


@dataclass(frozen=True)
class Breaking:
    """All of RQ2 for one family; only one of the first two is there."""

    classifier: Effectiveness | None
    segmenter: SegmentationEffect | None
    types: tuple[TypeRow, ...]
    """The weakest first."""
    by_type: tuple[SensitivityRow, ...]
    """The change of the probability of the true class, or of the share of right pixels, beside the reconstruction."""
    by_alternative: tuple[SensitivityRow, ...]

    @property
    def weakest_types(self) -> tuple[str, ...]:
        """As many of the types that hurt, the weakest first, as were planted."""
        return tuple(row.name for row in self.by_type if row.hurts)[: len(PLANTED_TYPES)]

    @property
    def planted_rows(self) -> tuple[SensitivityRow, ...]:
        """Of the alternatives with a figure, as many of the weakest as were planted among them."""
        known = [row for row in self.by_alternative if row.change.value is not None]
        return tuple(known[: sum(row.name in PLANTED for row in known)])


def breaking(found: Read) -> Breaking:
    """All of it."""
    return _classifier(found) if found.family == "object" else _segmenter(found)


def _masks(found: Read) -> list[tuple[str, NDArray[np.bool_]]]:
    types = np.array(found.edit_types)
    return [(str(name), types == name) for name in sorted(set(found.edit_types))]


def _classifier(found: Read) -> Breaking:
    (original, _), (generated, true), (control, true_control) = found.answers()
    splits = [SPLIT] * len(found.sources)
    whole = effectiveness(original, generated, control, found.label, OBJECT_CLASSES, splits)
    rows = []
    for name, own in _masks(found):
        part = effectiveness(original, generated.where(own), control, found.label, OBJECT_CLASSES, splits)
        rows.append(TypeRow(name, part.cases, name in PLANTED_TYPES, part.error_generated, part.excess))
    before = _of_controls(found, true_control)
    wrong_before = _of_controls(found, (control.right == WRONG).astype(np.float64))
    changes = Changes(found.of_case, true, before, (generated.right == WRONG) & (wrong_before == 0))
    return Breaking(
        whole,
        None,
        tuple(sorted(rows, key=lambda row: -(row.generated.value or 0.0))),
        by_name(changes, [(one,) for one in found.edit_types]),
        by_name(changes, [(one,) for one in found.alternatives]),
    )


def _segmenter(found: Read) -> Breaking:
    original, generated, control = found.pixels()
    splits = [SPLIT] * len(found.sources)
    whole = segmentation_effect(original, generated, control, found.kept, SEMANTIC_CLASSES, splits)
    rows = []
    for name, own in _masks(found):
        part = segmentation_effect(original, generated.where(own), control, found.kept[own], SEMANTIC_CLASSES, splits)
        rows.append(TypeRow(name, part.cases, name in PLANTED_TYPES, part.miou_generated, part.excess))
    after, before = right_pixels(generated), _of_controls(found, right_pixels(control))
    changes = Changes(found.of_case, after, before, np.zeros(len(after), bool))
    return Breaking(
        None,
        whole,
        tuple(sorted(rows, key=lambda row: row.generated.value or 0.0)),
        by_name(changes, [(one,) for one in found.edit_types]),
        by_name(changes, [(one,) for one in found.alternatives]),
    )


def by_name(changes: Changes, names: Sequence[Sequence[str]]) -> tuple[SensitivityRow, ...]:
    """A row for each name of the test cases, such as their edit types: one with several counts in each."""
    number: dict[str, int] = {}
    pairs = [(case, number.setdefault(name, len(number))) for case, own in enumerate(names) for name in own]
    case, group = np.array(pairs, np.int64).reshape(-1, 2).T
    return sensitivity(changes, case, group, tuple(number))


def right_pixels(pixels: Pixels) -> Floats:
    """The share of the pixels of each image that a segmenter is right about."""
    hit = np.diagonal(pixels.counts, axis1=1, axis2=2).sum(axis=1)
    shares: Floats = hit / pixels.counts.sum(axis=(1, 2))
    return shares


def _of_controls(found: Read, values: Floats) -> Floats:
    """What is known of the reconstruction of each case's source; NaN where there is none."""
    held = np.full(len(found.sources), np.nan)
    held[found.of_control] = values
    return held[found.of_case]


def right_before_edit(found: Read) -> NDArray[np.bool_]:
    """Whether the classifier is right about the source of each case."""
    return np.asarray(found.answers()[0][0].right[found.of_case] == RIGHT)


def factor_of(whole: Effectiveness) -> tuple[float | None, str]:
    """How many times the error on originals that on generated images is, with its interval; as `times_of` where the
    model is right about every original.
    """
    factor = whole.factor
    if factor.value is None:
        return times_of(whole.error_original, whole.error_generated.value)
    ends = f" ({factor.low:.1f} to {factor.high:.1f})" if factor.low is not None and factor.high is not None else ""
    return factor.value, f"{factor.value:.1f} times{ends}"


def times_of(original: Figure, error: float | None) -> tuple[float | None, str]:
    """How many times the error on originals another error is. Where the model is right about every original, the upper
    end of the exact interval of its error (Clopper and Pearson 1934) stands for it: the factor is at least that.
    """
    if original.value is None or error is None:
        return None, f"cannot tell: {original.why or 'there is nothing to compare'}"
    if original.value > 0:
        return error / original.value, f"{error / original.value:.1f} times"
    most = 1 - 0.025 ** (1 / original.n)
    words = (
        f"at least {error / most:.1f} times: right about all {original.n:,} originals, so at most {most:.2%} are wrong"
    )
    return error / most, words


def named_planted(rows: Sequence[SensitivityRow]) -> int:
    """How many of some rows are of planted conditions."""
    return sum(row.name in PLANTED for row in rows)
