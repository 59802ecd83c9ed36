"""Protected classes that a segmenter loses, the images behind pixel figures, and the test cases whose masks hold.

A mask holds (still fits its image) if the image still shows the masked things in place. The segmenter of the checks
decides that, or checks that were imported with a file. The evaluated model never decides it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core.figures import Flags, Floats, Numbers
from core.image_filter import ImageFilter
from core.masks import MASK_KEPT, numbers_of
from core.settings import UnderTestSettings
from evaluation.class_mapping import ClassMap
from evaluation.metrics import hold
from evaluation.segmentation import Losses, at_least, lost_by, missed_by
from pipeline.profiles.profile import CheckSettings
from services.evaluation.stored_predictions import ModelAnswers, SegmenterCounts
from services.evaluation.subjects import Cases, Images
from services.evaluation.types import Cell
from services.runs.predictions import model_key
from storage.curation.case_columns import Texts
from storage.evaluation.models_under_test import StoredModel
from storage.workspace import Workspace

if TYPE_CHECKING:
    from scipy import sparse

AT_ONCE = 4096
"""Number of images whose pixels are processed at a time: the calculation takes several times their memory."""
ProtectedClass = tuple[str, tuple[int, ...]]
"""A protected class: its name, and its positions among the groups of a class map."""
NOBODY = (
    "It is not known which masks still fit their images: the profile names no segmenter that checks this, and the "
    "evaluated model cannot check itself."
)
ITSELF = "It is not known which masks still fit their images: this model checks them, and cannot check itself."


@dataclass(frozen=True, eq=False)
class PixelCells:
    """Flags that select the test cases behind each pixel figure."""

    names: tuple[str, ...]
    """Names of the groups of classes, which are the rows and columns of a confusion matrix."""
    counts: Flags
    """True for each test case in the figures: the pixels of both the test case and its original were read."""
    kept: Flags
    """True for each test case whose mask holds (still fits the image)."""
    there: Flags
    """(test cases, groups): True if the test case's mask has a class of the group."""
    protected: tuple[str, ...]
    """Names of the protected classes, each once."""
    lost: Flags
    """(test cases, protected classes): True if the segmenter loses the class in the test case."""
    said: NDArray[np.uint8]
    """Packed bits of a matrix (true groups, predicted groups + 1) for each test case. The last column is for no group.
    A bit is True if this prediction's share of the true group's pixels is above 0 and not below its mean share."""
    said_before: NDArray[np.uint8]
    """Packed bits as in `said`, but for the originals instead of the test cases."""

    def where(self, cell: Cell, source: Numbers) -> Flags:
        """Return True for each test case that `cell` counts. `source` has the index of each test case's source."""
        if cell.kind == "kept":
            return self.counts & self.kept
        lost = cell.kind == "class" and cell.only_wrong
        names = self.protected if lost else self.names
        if cell.name not in names or (cell.said and cell.said not in self.names):
            return np.zeros(len(source), bool)
        row = names.index(cell.name)
        if cell.kind == "class":
            return self.counts & (self.lost if lost else self.there)[:, row]
        column = self.names.index(cell.said) if cell.said else len(self.names)
        if cell.kind == "confusion":
            return self.counts & self._bit(self.said, row, column)
        return self.counts & self._bit(self.said_before, row, column)[source]

    def _bit(self, packed: NDArray[np.uint8], row: int, column: int) -> Flags:
        byte, bit = divmod(row * (len(self.names) + 1) + column, 8)
        return (packed[:, byte] >> (7 - bit)) & 1 > 0


@dataclass(frozen=True)
class SegmentedLosses:
    """Protected classes that a segmenter loses."""

    names: tuple[str, ...]
    """Names of the protected classes. A name occurs twice if masks have it under two numbers."""
    groups: tuple[tuple[int, ...], ...]
    """For each protected class, its positions among the groups of the class map."""
    originals: Losses
    generated: Losses
    controls: Losses


def losses_of(
    cases: Cases, mapping: ClassMap, first: SegmenterCounts, cased: SegmenterCounts, control: SegmenterCounts
) -> SegmentedLosses:
    """Find the protected classes of each image's task that are missed on originals and lost on the other images."""
    ways = [
        ways_of(cases, images, counts.place) for images, counts in ((cases.generated, cased), (cases.controls, control))
    ]
    classes_by_way = [[classes_of(*way, mapping) for way in own] for own, _ in ways]
    classes = tuple(dict.fromkeys(one for own in classes_by_way for each in own for one in each))
    in_cases, in_controls = (
        np.array([[one in each for one in classes] for each in own], bool).reshape(len(own), len(classes))[number]
        for own, (_, number) in zip(classes_by_way, ways, strict=True)
    )
    of_source = np.zeros((len(cases.originals), len(classes)), bool)
    case, own = np.nonzero(in_cases)
    of_source[cased.pixels.source[case], own] = True
    groups = tuple(own for _, own in classes)
    return SegmentedLosses(
        tuple(name for name, _ in classes),
        groups,
        missed_by(first.pixels, of_source[first.pixels.source], groups),
        lost_by(first.pixels, cased.pixels, in_cases, groups),
        lost_by(first.pixels, control.pixels, in_controls, groups),
    )


def ways_of(cases: Cases, images: Images, place: Numbers) -> tuple[list[tuple[str, str]], Numbers]:
    """Return distinct pairs of JSON texts, in order of appearance, and for each image the index of its pair. A pair has
    the protected classes of an image, then the names of the class numbers in the image's mask.
    """
    protected, names = cases.table.protected, images.masks.of(place).names
    texts = Texts(protected.values, protected.numbers[images.row[place]])
    _, first, number = np.unique(
        texts.numbers * (len(names.values) + 1) + names.numbers, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    ways = list(zip(texts.of(first[order]), names.of(first[order]), strict=True))
    return ways, np.argsort(order)[number]


def classes_of(protected: str, mask_names: str, mapping: ClassMap) -> list[ProtectedClass]:
    """Return an image's protected classes that the map knows. `protected` and `mask_names` are as in `ways_of`."""
    named = {int(number): name for number, name in json.loads(mask_names).items()}
    group_of = {mapping.labels[label].label: at for at, group in enumerate(mapping.groups) for label in group}
    classes = []
    for name in json.loads(protected or "[]") or dict.fromkeys(named.values()):
        groups = {group_of[named[number]] for number in numbers_of(name, named) if named[number] in group_of}
        if groups:
            classes.append((name, tuple(sorted(groups))))
    return classes


def cells_of(
    cases: Cases,
    names: Sequence[str],
    first: SegmenterCounts,
    cased: SegmenterCounts,
    lost: SegmentedLosses,
    mask_holds: Flags,
    shares: tuple[Floats, Floats],
) -> PixelCells:
    """Return the test cases behind each pixel figure. `mask_holds` marks test cases whose mask still fits the image.
    `shares` has the confusion matrix of the originals, then the confusion matrix of the test cases.
    """
    size, sources = len(cases.generated), len(cases.originals)
    protected = tuple(dict.fromkeys(lost.names))
    has_class, is_lost = (np.zeros((size, len(one)), bool) for one in (names, protected))
    has_class[cased.place] = cased.pixels.true > 0
    for name, loses in zip(lost.names, lost.generated.lost.T, strict=True):
        is_lost[cased.place[loses], protected.index(name)] = True
    counts = np.zeros(size, bool)
    counts[cased.place] = np.isin(cased.pixels.source, first.pixels.source)
    absent = np.isnan(shares[1][:, 0])
    return PixelCells(
        *(tuple(names), counts, mask_holds, has_class, protected, is_lost),
        _packed(cased, size, shares[1], absent),
        _packed(first, sources, shares[0], absent),
    )


def _packed(counted: SegmenterCounts, size: int, shares: Floats, absent: Flags) -> NDArray[np.uint8]:
    """Return the packed bits that `PixelCells.said` describes. `absent` marks the groups that no mask has."""
    columns = np.append(absent, True)

    def together(cells: Floats) -> Floats:
        whole: Floats = np.concatenate([cells[..., :-1], cells[..., columns].sum(axis=-1, keepdims=True)], axis=-1)
        return whole

    counts, place, whole = counted.pixels.counts, counted.place, together(shares)
    packed = np.zeros((size, -(-shares.size // 8)), np.uint8)
    for first in range(0, len(place), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        flags = at_least(together(counts[part]), whole, counted.pixels.true[part])
        packed[place[part]] = np.packbits(flags.reshape(len(flags), -1), axis=1)
    return packed


@dataclass(frozen=True, eq=False)
class MaskValidity:
    """Test cases whose masks hold (still fit the image), and masks still to be checked."""

    holds: Flags
    """True for each test case whose mask holds (still fits the image)."""
    unchecked: int = 0
    """Number of test cases whose mask is not checked yet. The profile names the segmenter that checks masks."""
    why: str = ""
    """Sentence on why masks cannot be checked, or on how many masks are not checked yet; "" if all are checked."""


class MaskChecks:
    """Checks which masks still fit their images, with the segmenter of the profile's checks. Thread-safe."""

    def __init__(self, workspace: Workspace, answers: ModelAnswers, checks: CheckSettings) -> None:
        self._workspace, self._answers, self._checks = workspace, answers, checks
        self._lock = threading.Lock()
        self._key, self._warm = "", False
        self._ways: dict[tuple[str, str], int] = {}
        self._known = np.zeros((0, 3), np.int64)
        """Last mask check of each row of predictions: the row of the original, a number for the mask's classes, and
        1 if the mask fits or 0 if not. All evaluations share these checks."""

    @property
    def checker(self) -> UnderTestSettings | None:
        """Return the settings of the segmenter of the checks, or None if the profile names none."""
        return self._checks.own_segmenter()

    def warm(self, cases: Cases) -> None:
        """Check masks before the first evaluation, to make it faster. Uses only predictions that are stored already."""
        if not self._warm and self.checker is not None:
            self._warm = True
            self.of(cases)

    def of(self, cases: Cases, model: StoredModel | None = None, broken: Container[str] = ()) -> MaskValidity:
        """Return which masks of test cases still fit their images. `model`, the evaluated model, never checks masks.
        `broken` has images that could not be read. `MaskValidity.unchecked` does not count their masks.
        """
        images, columns = cases.generated, self._workspace.case_columns
        passed = columns.entries(ImageFilter(checks={MASK_KEPT: ("passed",)}))
        holds = np.isin(cases.table.entry[images.row], passed)
        if self.checker is None:
            return MaskValidity(holds, why=NOBODY)
        key = self._workspace.models_under_test.key_of(model_key(self.checker))
        if model is not None and key == model.key:
            return MaskValidity(holds, why=ITSELF)
        pairs, row = self._answers.pairs(key, cases, images)
        before = self._answers.pairs(key, cases, cases.originals)[1][images.source]
        place = np.flatnonzero((row >= 0) & (before >= 0))
        with self._lock:
            holds[place] |= self._held(key, pairs, row[place], before[place], *ways_of(cases, images, place))
        waiting = np.flatnonzero(images.masks.there & ((row < 0) | (before < 0))).tolist()
        unchecked = sum(images.shas[at] not in broken for at in waiting)
        why = f"{unchecked:,} masks of test cases are not checked yet: whether they hold is not known."
        return MaskValidity(holds, unchecked, why if unchecked else "")

    def _held(
        self,
        key: str,
        pairs: sparse.csr_array,
        row: Numbers,
        before: Numbers,
        ways: Sequence[tuple[str, str]],
        number: Numbers,
    ) -> Flags:
        """Return True for each image whose mask still fits. `row` has the row of each image in `pairs`, and `before`
        the row of the image's original. `ways` and `number` are the result of `ways_of`.
        """
        if key != self._key:  # the checks have another segmenter now
            self._key, self._known = key, self._known[:0]
        more = max(0, pairs.shape[0] - len(self._known))  # another thread may have added rows
        self._known = np.concatenate([self._known, np.full((more, 3), -1)])
        way = np.array([self._ways.setdefault(one, len(self._ways)) for one in ways], np.int64)[number]
        flags: Flags = self._known[row, 2] > 0
        new = np.flatnonzero((self._known[row, 0] != before) | (self._known[row, 1] != way))
        classes = self._workspace.models_under_test.classes_of(key) if len(new) else ()
        for at, (protected, names) in enumerate(ways):
            own = new[number[new] == at]
            if len(own):
                numbered = {int(one): name for one, name in json.loads(names).items()}
                named = json.loads(protected or "[]")
                flags[own] = hold(pairs[before[own]], pairs[row[own]], classes, numbered, named, self._checks.bands)
        self._known[row[new]] = np.stack([before[new], way[new], flags[new]], axis=1)
        return flags
