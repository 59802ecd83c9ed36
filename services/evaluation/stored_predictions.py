"""What a model says of the images of a subject, as columns: answers of a classifier, counts of pixels of a segmenter.

All that a model ever said is read once and held; after that only what came since.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from core.figures import Floats
from core.predictions import TOP
from evaluation.answers import PAIRS, Guesses, answers_of, count_pairs, groups_of_numbers, pairs_of_images
from evaluation.class_mapping import ClassMap
from evaluation.effectiveness import Answers
from evaluation.ranking import deep_gini, entropy
from evaluation.segmentation import Pixels
from services.evaluation.subjects import Cases, Images
from storage.curation.case_columns import Texts
from storage.evaluation.models_under_test import NO_CLASS, ProbabilityRows, StoredModel
from storage.workspace import Workspace

Numbers = NDArray[np.int64]
MODELS_HELD = 2
"""Models of a kind whose answers are held in memory: 250 MB each for 125,000 images and 1,000 classes."""

LOOKED_AT_ONCE = 4096
"""Images whose probabilities are worked with at a time."""


@dataclass(frozen=True, eq=False)
class Answered:
    """What a classifier says of some images; those of which nothing is known, or that have no label, are not there."""

    place: Numbers
    """Of each, its place among the images."""
    answers: Answers
    true: Floats
    """The probability of the true class; NaN where it cannot be compared."""
    inexact: int
    """Of how many only the likeliest classes are known."""


class _Numbered:
    """Images that a model has read, by their numbers, and with these also those of a table, column by column."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self._columns: tuple[Texts, Numbers, Numbers] | None = None

    def add(self, numbers: Mapping[str, int]) -> None:
        self.number.update(numbers)
        self._columns = None

    def of(self, cases: Cases, images: Images) -> Numbers:
        """The number of each image; -1 of one that the model has not read."""
        table = cases.table
        # What never changes of images is one object until there are others.
        if self._columns is None or self._columns[0] is not table.images:
            of_images, of_sources = (
                np.array([self.number.get(sha, -1) for sha in column.values], np.int64)
                for column in (table.images, table.sources)
            )
            self._columns = table.images, of_images, of_sources
        return (self._columns[2] if images is cases.originals else self._columns[1])[images.number]


@dataclass
class _Held:
    """All that one classifier said."""

    last: int = 0
    row: _Numbered = field(default_factory=_Numbered)
    likeliest: NDArray[Any] = field(default_factory=lambda: np.zeros((0, TOP), np.uint16))
    numbers: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    exact: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def add(self, rows: ProbabilityRows, exact: bool) -> None:
        first = len(self.exact)
        self.row.add(dict(zip(rows.images, range(first, first + len(rows.images)), strict=True)))
        self.likeliest = np.concatenate([self.likeliest, rows.likeliest]) if first else rows.likeliest
        self.numbers = np.concatenate([self.numbers, rows.numbers]) if first else rows.numbers
        self.exact = np.concatenate([self.exact, np.full(len(rows.images), exact)])


@dataclass
class _HeldPixels:
    """All that one segmenter said of masks."""

    last: int = 0
    image: _Numbered = field(default_factory=_Numbered)
    mask: dict[str, int] = field(default_factory=dict)
    """The number of each mask."""
    both: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Image and mask of each row of `pairs`."""
    pairs: sparse.csr_array = field(default_factory=lambda: sparse.csr_array((0, PAIRS)))
    order: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """The rows by image and mask; of the same ones in the order in which they came."""
    keys: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """Of each of these, a number for its image and mask: ascending."""
    _numbers: tuple[list[str], Numbers] | None = None
    """Of the masks of the subject that was asked last, which these are in `mask`."""

    def add(self, new: Sequence[tuple[str, str, NDArray[Any]]]) -> None:
        known = self.image.number
        first_time = dict.fromkeys(image for image, *_ in new if image not in known)
        self.image.add({image: len(known) + place for place, image in enumerate(first_time)})
        held = [(self.image.number[image], self.mask.setdefault(mask, len(self.mask))) for image, mask, _ in new]
        self.both = np.concatenate([self.both, np.array(held, np.int64)])
        counts, sizes = np.concatenate([one for *_, one in new]), [len(one) for *_, one in new]
        came = pairs_of_images(counts["mask"], counts["said"], counts["pixels"], sizes)
        self.pairs = sparse.vstack([self.pairs, came], format="csr")
        keys = self._keys(*self.both.T)
        self.order = np.argsort(keys, kind="stable")
        self.keys, self._numbers = keys[self.order], None

    def rows_of(self, cases: Cases, images: Images) -> Numbers:
        """The row of each image with its mask, the last that came; -1 where nothing is known of them."""
        image, mask = self.image.of(cases, images), self._masks_of(images)
        wanted = self._keys(image, mask)
        at = np.searchsorted(self.keys, wanted, side="right") - 1
        found = np.flatnonzero((image >= 0) & (mask >= 0) & (at >= 0))
        found = found[self.keys[at[found]] == wanted[found]]
        row = np.full(len(wanted), -1)
        row[found] = self.order[at[found]]
        return row

    def _masks_of(self, images: Images) -> Numbers:
        shas = images.masks.shas  # one list for all images of a subject
        if self._numbers is None or self._numbers[0] is not shas:
            self._numbers = shas, np.array([*(self.mask.get(sha, -1) for sha in shas), -1], np.int64)
        return self._numbers[1][images.masks.numbers]

    def _keys(self, image: Numbers, mask: Numbers) -> Numbers:
        return image * len(self.mask) + mask


@dataclass
class _HeldDoubts:
    """How unsure one segmenter is of images."""

    last: int = 0
    row: _Numbered = field(default_factory=_Numbered)
    both: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """Entropy and DeepGini of each row."""

    def add(self, shas: Sequence[str], both: Floats) -> None:
        first = len(self.both)
        self.row.add(dict(zip(shas, range(first, first + len(shas)), strict=True)))
        self.both = np.concatenate([self.both, both])


class ModelAnswers:
    """The answers of the models under test of one workspace. May be used from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._held: dict[int, _Held] = {}
        self._pixels: dict[str, _HeldPixels] = {}
        self._doubts: dict[str, _HeldDoubts] = {}
        self._lock = threading.Lock()

    def classified(self, model: StoredModel, mapping: ClassMap, cases: Cases, images: Images) -> Answered:
        """What a classifier says of images of a subject with a label."""
        with self._lock:
            held = self._all(model, cases)
            row = held.row.of(cases, images)
            likeliest, numbers, exact = held.likeliest, held.numbers, held.exact
        place = np.flatnonzero((row >= 0) & (images.label >= 0))
        row = row[place]
        label, source = images.label[place], images.source[place]
        if not len(place):
            nothing = np.zeros(0, np.int64)
            none = Answers(nothing, nothing.astype(np.int8), nothing, np.zeros(0))
            return Answered(place, none, np.zeros(0), 0)
        classes = likeliest[row].astype(np.int64)
        classes[classes == NO_CLASS] = -1
        guesses = Guesses(classes, np.zeros(classes.shape))
        answers, true = answers_of(mapping, label, source, guesses, numbers, row)
        return Answered(place, answers, true.probability, int((~exact[row]).sum()))

    def doubts(self, model: StoredModel, cases: Cases, images: Images) -> tuple[Floats, Floats]:
        """Entropy and DeepGini of what a model says of each image, of a segmenter means over pixels; NaN where that is
        not known.
        """
        if model.identity.kind == "segmentation":
            return self._doubts_of_segmenter(model.key, cases, images)
        with self._lock:
            held = self._all(model, cases)
            row, numbers = held.row.of(cases, images), held.numbers
        unsure, gini = np.full(len(row), np.nan), np.full(len(row), np.nan)
        place = np.flatnonzero(row >= 0)
        for first in range(0, len(place), LOOKED_AT_ONCE):
            some = place[first : first + LOOKED_AT_ONCE]
            probabilities = numbers[row[some]].astype(np.float64)
            unsure[some], gini[some] = entropy(probabilities), deep_gini(probabilities)
        return unsure, gini

    def _doubts_of_segmenter(self, key: str, cases: Cases, images: Images) -> tuple[Floats, Floats]:
        with self._lock:
            held = self._doubts.pop(key, None) or _HeldDoubts()
            shas, both, held.last = self._workspace.models_under_test.doubts(key, held.last)
            if shas:
                held.add(shas, both)
            self._doubts[key] = held
            while len(self._doubts) > MODELS_HELD:
                del self._doubts[next(iter(self._doubts))]
            row, known = held.row.of(cases, images), held.both
        found = np.full((len(row), 2), np.nan)
        found[row >= 0] = known[row[row >= 0]]
        return found[:, 0], found[:, 1]

    def segmented(self, model: StoredModel, mapping: ClassMap, cases: Cases, images: Images) -> tuple[Numbers, Pixels]:
        """The places of those images of which a segmenter has said something and that have a mask, and their counts."""
        pairs, row = self.pairs(model.key, cases, images)
        place, groups = np.flatnonzero(row >= 0), len(mapping.groups)
        if not len(place):
            return place, Pixels(images.source[place], np.zeros((0, groups, groups + 1)))
        names = images.masks.names
        used, kind = np.unique(names.numbers[place], return_inverse=True)
        tables = [
            groups_of_numbers(mapping, {int(one): name for one, name in json.loads(names.values[number]).items()})
            for number in used.tolist()
        ]
        true, said = np.stack([one for one, _ in tables]), tables[0][1]
        return place, Pixels(images.source[place], count_pairs(true, said, pairs[row[place]], kind, groups))

    def pairs(self, key: str, cases: Cases, images: Images) -> tuple[sparse.csr_array, Numbers]:
        """All that the segmenter of a key said of masks, as `evaluation.answers.pairs_of_images` has it, and the row of
        each image with its mask; -1 where it was not counted.
        """
        with self._lock:
            held = self._counts(key)
            return held.pairs, held.rows_of(cases, images)

    def read_of(self, model: StoredModel, cases: Cases) -> int:
        """How many of the pictures of a subject the model has read; of a segmenter also counted."""
        if model.identity.kind != cases.view.kind:
            known = self._workspace.models_under_test.latest(model.key)
            return sum(sha in known for sha in cases.pictures)
        with self._lock:
            if model.identity.kind == "classification":
                return len(cases.pictures) - len(self._missing(self._all(model, cases), cases))
            held = self._counts(model.key)
            missing = _shas(
                (images, images.masks.there & (held.rows_of(cases, images) < 0)) for images in cases.all_images
            )
        without = _shas((images, ~images.masks.there) for images in cases.all_images)
        if without:
            missing |= without - self._workspace.models_under_test.latest(model.key).keys()
        return len(cases.pictures) - len(missing)

    def _missing(self, held: _Held, cases: Cases) -> set[str]:
        return _shas((images, held.row.of(cases, images) < 0) for images in cases.all_images)

    def _all(self, model: StoredModel, cases: Cases) -> _Held:
        held = self._held.pop(model.id, None) or _Held()
        rows, held.last = self._workspace.models_under_test.probabilities(model, held.last)
        if len(rows.images):
            held.add(rows, exact=True)
        missing = self._missing(held, cases)
        if missing:
            self._add_earlier(model, held, sorted(missing))
        self._held[model.id] = held
        while len(self._held) > MODELS_HELD:
            del self._held[next(iter(self._held))]
        return held

    def _add_earlier(self, model: StoredModel, held: _Held, shas: Sequence[str]) -> None:
        """What was predicted image by image has the likeliest classes alone: the others count as 0."""
        known = self._workspace.models_under_test.latest(model.key)
        wanted = [known[sha] for sha in shas if sha in known]
        place = {name: number for number, name in reversed(list(enumerate(model.identity.classes)))}
        images: list[str] = []
        likeliest, numbers = [], []
        for image, top in self._workspace.models_under_test.guesses(wanted):
            guesses = [(place[one["label"]], one["probability"]) for one in top if one["label"] in place]
            if not guesses or len(guesses) < len(top):
                continue  # of a model that this one has taken the place of
            first = np.full(TOP, NO_CLASS, np.uint16)
            first[: len(guesses)] = [number for number, _ in guesses][:TOP]
            row = np.zeros(len(model.identity.classes), np.float16)
            for number, probability in guesses:
                row[number] = probability
            images.append(image)
            likeliest.append(first)
            numbers.append(row)
        if images:
            held.add(ProbabilityRows(images, np.stack(likeliest), np.stack(numbers)), exact=False)

    def _counts(self, key: str) -> _HeldPixels:
        """All that one segmenter said of masks; what came since the last time is added."""
        held = self._pixels.pop(key, None) or _HeldPixels()
        new, held.last = self._workspace.models_under_test.pixel_counts(key, held.last)
        if new:
            held.add(new)
        self._pixels[key] = held
        while len(self._pixels) > MODELS_HELD + 1:  # the one of the checks, too
            del self._pixels[next(iter(self._pixels))]
        return held


def _shas(wanted: Iterable[tuple[Images, NDArray[np.bool_]]]) -> set[str]:
    """The SHA-256 of the images that are wanted of each."""
    return {images.shas[place] for images, flags in wanted for place in np.flatnonzero(flags).tolist()}
