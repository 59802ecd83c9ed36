"""RQ2: where models under test fail, how much error the edits cause, and whether known weaknesses are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import Effectiveness, SegmentationEffect
from core.figures import Figure, Floats
from demo.scene import OBJECT_CLASSES, SEMANTIC_CLASSES
from evaluation.effectiveness import WRONG, effectiveness
from evaluation.segmentation import Pixels, segmentation_effect
from evaluation.sensitivity import Changes, SensitivityRow, sensitivity
from experiments.paper.intervals import mean_of, share_of
from experiments.paper.reading import Read
from experiments.paper.size import Family
from experiments.paper.world import LEFT_OUT, LEFT_OUT_TYPES, SPLIT, TAUGHT_WRONG


@dataclass(frozen=True)
class TypeRow:
    """Figures of one edit type, 0 to 1: errors of a classifier, or mIoU of a segmenter."""

    name: str
    cases: int
    left_out: bool
    """True if edits of this type add conditions, such as fog, that were left out of training."""
    generated: Figure
    excess: Figure
    """Error or mIoU on test cases, minus that on reconstructions (the sources redrawn without an edit)."""


@dataclass(frozen=True)
class Breaking:
    """Results of RQ2 for one model under test. Either `classifier` or `segmenter` is set."""

    family: Family
    classifier: Effectiveness | None
    segmenter: SegmentationEffect | None
    errors: tuple[Figure, Figure]
    """Error on originals and on reconstructions. A segmenter's error is the share of wrong pixels."""
    types: tuple[TypeRow, ...]
    """Figures by edit type, beginning with the type on which the model is weakest."""
    by_word: tuple[SensitivityRow, ...]
    """Effect of each word that an edit brings in: the change of the true class's probability (for a segmenter, of the
    share of right pixels) from the reconstruction to the test case."""
    by_thing: tuple[SensitivityRow, ...]
    """Like `by_word`, for each pair of word and class, such as "red bird". For a segmenter, equal to `by_word`."""

    @property
    def taught_wrong(self) -> tuple[str, ...]:
        """Names, such as "red bird", of things that have wrong labels in the training data."""
        return tuple(thing(one.word, one.label if self.classifier else "") for one in TAUGHT_WRONG[self.family])

    @property
    def left_out_named(self) -> Figure:
        """Share of `LEFT_OUT` (the conditions missing from training) for which `by_word` shows harm beyond chance."""
        return _named(self.by_word, LEFT_OUT)

    @property
    def others_named(self) -> Figure:
        """Share of the other words (those without a known weakness) for which `by_word` shows harm beyond chance."""
        planted = {*LEFT_OUT, *self.taught_wrong}
        return _named(self.by_word, [row.name for row in self.by_word if row.name not in planted])

    @property
    def taught_wrong_named(self) -> Figure:
        """Share of `taught_wrong` (the wrongly labelled things) for which `by_thing` shows harm beyond chance."""
        return _named(self.by_thing, self.taught_wrong)

    @property
    def other_things_named(self) -> Figure:
        """Share of the other things (those without a known weakness) for which `by_thing` shows harm beyond chance."""
        names = [row.name for row in self.by_thing if not row.name.startswith(LEFT_OUT)]
        return _named(self.by_thing, [name for name in names if name not in self.taught_wrong])


def _named(rows: Sequence[SensitivityRow], names: Sequence[str]) -> Figure:
    return share_of(sum(row.hurts and row.name in names for row in rows), len(names))


def thing(word: str, label: str) -> str:
    """Join a word and a class label to the name of a thing, such as "red bird"."""
    return f"{word} {label}".strip()


def breaking(found: Read) -> Breaking:
    """Measure where a model under test fails, by edit type, by word and by class."""
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
        rows.append(TypeRow(name, part.cases, name in LEFT_OUT_TYPES, part.error_generated, part.excess))
    before = _of_controls(found, true_control)
    wrong_before = _of_controls(found, (control.right == WRONG).astype(np.float64))
    changes = Changes(found.of_case, true, before, (generated.right == WRONG) & (wrong_before == 0))
    labels = [found.sources[one.source].scene.label for one in found.cases]
    return Breaking(
        found.family,
        whole,
        None,
        (whole.error_original, whole.error_reconstructed),
        tuple(sorted(rows, key=lambda row: -(row.generated.value or 0.0))),
        by_name(changes, [(word,) for word in found.alternatives]),
        by_name(changes, [(thing(word, label),) for word, label in zip(found.alternatives, labels, strict=True)]),
    )


def _segmenter(found: Read) -> Breaking:
    original, generated, control = found.pixels()
    splits = [SPLIT] * len(found.sources)
    whole = segmentation_effect(original, generated, control, found.kept, SEMANTIC_CLASSES, splits)
    rows = []
    for name, own in _masks(found):
        part = segmentation_effect(original, generated.where(own), control, found.kept[own], SEMANTIC_CLASSES, splits)
        rows.append(TypeRow(name, part.cases, name in LEFT_OUT_TYPES, part.miou_generated, part.excess))
    after, before = right_pixels(generated), _of_controls(found, right_pixels(control))
    changes = Changes(found.of_case, after, before, np.zeros(len(after), bool))
    return Breaking(
        found.family,
        None,
        whole,
        (mean_of(1 - right_pixels(original)), mean_of(1 - right_pixels(control))),
        tuple(sorted(rows, key=lambda row: row.generated.value or 0.0)),
        *[by_name(changes, [(word,) for word in found.alternatives])] * 2,
    )


def by_name(changes: Changes, names: Sequence[Sequence[str]]) -> tuple[SensitivityRow, ...]:
    """Return one row for each name. `names` lists the names of each test case, such as the word that its edit brings
    in. A case counts for all its names.
    """
    number: dict[str, int] = {}
    pairs = [(case, number.setdefault(name, len(number))) for case, own in enumerate(names) for name in own]
    case, group = np.array(pairs, np.int64).reshape(-1, 2).T
    return sensitivity(changes, case, group, tuple(number))


def right_pixels(pixels: Pixels) -> Floats:
    """Return the share of pixels that a segmenter gets right, for each image."""
    hit = np.diagonal(pixels.counts, axis1=1, axis2=2).sum(axis=1)
    shares: Floats = hit / pixels.counts.sum(axis=(1, 2))
    return shares


def _of_controls(found: Read, values: Floats) -> Floats:
    """Return for each test case the value of its source's reconstruction, or NaN if it has none."""
    of_source = np.full(len(found.sources), np.nan)
    of_source[found.of_control] = values
    return of_source[found.of_case]
