"""Stored predictions for the images of a subject, as columns: answers of a classifier, pixel counts of a segmenter.

All predictions of a model are read once and cached; later reads add only new ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.figures import Flags, Floats, Numbers
from evaluation.answers import answers_of, count_pairs, groups_of_numbers, pairs_of_images
from evaluation.class_mapping import ClassMap
from evaluation.effectiveness import Answers
from evaluation.ranking import deep_gini, entropy
from evaluation.segmentation import Pixels
from services.evaluation.subjects import Cases, Images
from storage.curation.case_columns import Texts
from storage.evaluation.models_under_test import StoredModel
from storage.workspace import Workspace

if TYPE_CHECKING:
    from scipy import sparse

NONE: Numbers = np.zeros(0, np.int64)
K = TypeVar("K")
T = TypeVar("T")
MODELS_HELD = 2
"""Maximum number of cached models of a task. A model with 1,000 classes needs 250 MB for 125,000 images."""

LOOKED_AT_ONCE = 4096
"""Number of images whose probabilities are processed at a time."""


@dataclass(frozen=True, eq=False)
class ClassifierAnswers:
    """Answers of a classifier for some images. Images that it has not read, or that have no label, are left out."""

    place: Numbers
    """Position of each answer's image in the requested `Images`."""
    answers: Answers
    true: Floats
    """Probability of the true class; NaN if the answer cannot be compared with the label."""
    inexact: int
    """Number of images for which only the top classes are stored."""


@dataclass(frozen=True)
class SegmenterCounts:
    """Pixel counts for the originals, the test cases or the reconstructions of a subject."""

    place: Numbers
    """Position of each counted image. The other images were not read, or have no mask."""
    pixels: Pixels


class _ReadImages:
    """Images that a model has read, each with the index of its latest row. Finds the rows of a subject's images."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self._rows = 0
        self._columns: tuple[Texts, Numbers, Numbers] | None = None

    def add(self, images: Collection[str]) -> None:
        """Record further rows, one for each image, with consecutive numbers."""
        self.number.update(zip(images, range(self._rows, self._rows + len(images)), strict=True))
        self._rows += len(images)
        self._columns = None

    def of(self, cases: Cases, images: Images) -> Numbers:
        """Return the row number of each image; -1 for one that the model has not read."""
        table = cases.table
        # `table.images` is the same object until images are added.
        if self._columns is None or self._columns[0] is not table.images:
            of_images, of_sources = (
                np.array([self.number.get(sha, -1) for sha in column.values], np.int64)
                for column in (table.images, table.sources)
            )
            self._columns = table.images, of_images, of_sources
        return (self._columns[2] if images is cases.originals else self._columns[1])[images.number]


@dataclass
class _Rows:
    """A table with one row for each image that one model has read. Each column is an array."""

    columns: tuple[NDArray[Any], ...]
    images: _ReadImages = field(default_factory=_ReadImages)
    last: int = 0
    """Id of the last row read from the workspace. `_PixelCounts` has the same attribute."""

    def add(self, images: Collection[str], *columns: NDArray[Any]) -> None:
        if self.images.number:
            columns = tuple(np.concatenate(both) for both in zip(self.columns, columns, strict=True))
        self.images.add(images)
        self.columns = columns


@dataclass
class _PixelCounts:
    """Stored counts of the pixels that one segmenter predicted on masks."""

    last: int = 0
    images: _ReadImages = field(default_factory=_ReadImages)
    mask: dict[str, int] = field(default_factory=dict)
    """Number of each mask, by SHA-256."""
    both: Numbers = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Numbers of image and mask for each row of `pairs`."""
    pairs: sparse.csr_array = field(default_factory=lambda: pairs_of_images(NONE, NONE, NONE, []))
    order: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """Indexes of the rows, sorted by image, mask and time of arrival."""
    keys: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """For each row in `order`, one number that stands for the pair of image and mask. The numbers ascend."""
    _numbers: tuple[list[str], Numbers] | None = None
    """Last lookup: SHA-256 of the masks, then the number of each mask; -1 if `mask` lacks the mask."""

    def add(self, new: Sequence[tuple[str, str, NDArray[Any]]]) -> None:
        from scipy import sparse

        number = self.images.number
        self.images.add(dict.fromkeys(image for image, *_ in new if image not in number))
        both = [(number[image], self.mask.setdefault(mask, len(self.mask))) for image, mask, _ in new]
        self.both = np.concatenate([self.both, np.array(both, np.int64)])
        counts, sizes = np.concatenate([one for *_, one in new]), [len(one) for *_, one in new]
        came = pairs_of_images(counts["mask"], counts["said"], counts["pixels"], sizes)
        self.pairs = sparse.vstack([self.pairs, came], format="csr")
        keys = self._keys(*self.both.T)
        self.order = np.argsort(keys, kind="stable")
        self.keys, self._numbers = keys[self.order], None

    def rows_of(self, cases: Cases, images: Images) -> Numbers:
        """Return for each image the latest row with counts of the image and its mask; -1 if there is no such row."""
        image, mask = self.images.of(cases, images), self._masks_of(images)
        keys = self._keys(image, mask)
        at = np.searchsorted(self.keys, keys, side="right") - 1
        matched = np.flatnonzero((image >= 0) & (mask >= 0) & (at >= 0))
        matched = matched[self.keys[at[matched]] == keys[matched]]
        row = np.full(len(keys), -1)
        row[matched] = self.order[at[matched]]
        return row

    def _masks_of(self, images: Images) -> Numbers:
        shas = images.masks.shas  # one list for all images of a subject
        if self._numbers is None or self._numbers[0] is not shas:
            self._numbers = shas, np.array([*(self.mask.get(sha, -1) for sha in shas), -1], np.int64)
        return self._numbers[1][images.masks.numbers]

    def _keys(self, image: Numbers, mask: Numbers) -> Numbers:
        return image * len(self.mask) + mask


class ModelAnswers:
    """The answers of the models under test of one workspace. Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._probabilities: dict[int, _Rows] = {}
        self._pixels: dict[str, _PixelCounts] = {}
        self._doubts: dict[str, _Rows] = {}
        self._lock = threading.Lock()

    def classified(self, model: StoredModel, mapping: ClassMap, cases: Cases, images: Images) -> ClassifierAnswers:
        """Return a classifier's answers for the labelled images of a subject."""
        with self._lock:
            stored = self._probabilities_of(model, cases)
            row = stored.images.of(cases, images)
            likeliest, numbers, exact = stored.columns
        place = np.flatnonzero((row >= 0) & (images.label >= 0))
        row = row[place]
        label, source = images.label[place], images.source[place]
        answers, true = answers_of(mapping, label, source, likeliest[row].astype(np.int64), numbers, row)
        return ClassifierAnswers(place, answers, true, int((~exact[row]).sum()))

    def doubts(self, model: StoredModel, cases: Cases, images: Images) -> tuple[Floats, Floats]:
        """Return entropy and DeepGini of each image, means over pixels for a segmenter; NaN if unknown."""
        if model.identity.kind == "segmentation":
            return self._doubts_of_segmenter(model.key, cases, images)
        with self._lock:
            stored = self._probabilities_of(model, cases)
            row, numbers = stored.images.of(cases, images), stored.columns[1]
        unsure, gini = np.full(len(row), np.nan), np.full(len(row), np.nan)
        place = np.flatnonzero(row >= 0)
        for first in range(0, len(place), LOOKED_AT_ONCE):
            some = place[first : first + LOOKED_AT_ONCE]
            probabilities = numbers[row[some]].astype(np.float64)
            unsure[some], gini[some] = entropy(probabilities), deep_gini(probabilities)
        return unsure, gini

    def _doubts_of_segmenter(self, key: str, cases: Cases, images: Images) -> tuple[Floats, Floats]:
        with self._lock, _latest(self._doubts, key, lambda: _Rows((np.zeros((0, 2)),))) as stored:
            shas, both, stored.last = self._workspace.models_under_test.doubts(key, stored.last)
            if shas:
                stored.add(shas, both)
            row, known = stored.images.of(cases, images), stored.columns[0]
        doubts = np.full((len(row), 2), np.nan)
        doubts[row >= 0] = known[row[row >= 0]]
        return doubts[:, 0], doubts[:, 1]

    def segmented(self, model: StoredModel, mapping: ClassMap, cases: Cases, images: Images) -> SegmenterCounts:
        """Return a segmenter's pixel counts for a subject's images with a mask."""
        pairs, row = self.pairs(model.key, cases, images)
        place, groups = np.flatnonzero(row >= 0), len(mapping.groups)
        if not len(place):
            return SegmenterCounts(place, Pixels(images.source[place], np.zeros((0, groups, groups + 1))))
        names = images.masks.names
        used, kind = np.unique(names.numbers[place], return_inverse=True)
        tables = [
            groups_of_numbers(mapping, {int(one): name for one, name in json.loads(names.values[number]).items()})
            for number in used.tolist()
        ]
        true, predicted = np.stack([one for one, _ in tables]), tables[0][1]
        counts = count_pairs(true, predicted, pairs[row[place]], kind, groups)
        return SegmenterCounts(place, Pixels(images.source[place], counts))

    def pairs(self, key: str, cases: Cases, images: Images) -> tuple[sparse.csr_array, Numbers]:
        """Return the pixel counts of the segmenter `key`, and each image's row in these counts; -1 for no row."""
        with self._lock:
            stored = self._counts(key)
            return stored.pairs, stored.rows_of(cases, images)

    def read_of(self, model: StoredModel, cases: Cases) -> int:
        """Return how many pictures of a subject a model has read. A picture with a mask also needs pixel counts."""
        if model.identity.kind != cases.view.kind:
            known = self._workspace.models_under_test.latest(model.key)
            return sum(sha in known for sha in cases.pictures)
        with self._lock:
            if model.identity.kind == "classification":
                return len(cases.pictures) - len(_not_read(self._probabilities_of(model, cases), cases))
            stored = self._counts(model.key)
            missing = _shas(
                (images, images.masks.there & (stored.rows_of(cases, images) < 0)) for images in cases.all_images
            )
        without = _shas((images, ~images.masks.there) for images in cases.all_images)
        if without:
            missing |= without - self._workspace.models_under_test.latest(model.key).keys()
        return len(cases.pictures) - len(missing)

    def _probabilities_of(self, model: StoredModel, cases: Cases) -> _Rows:
        """Return the stored answers of a classifier, after adding those saved since the last call. The columns are the
        likeliest class, the probabilities, and a flag that is True if all classes have a probability.
        """
        nothing = np.zeros(0, np.uint16), np.zeros((0, 0), np.float16), np.zeros(0, bool)
        with _latest(self._probabilities, model.id, lambda: _Rows(nothing)) as stored:
            rows, stored.last = self._workspace.models_under_test.probabilities(model, stored.last)
            if len(rows.images):
                stored.add(rows.images, rows.likeliest, rows.numbers, np.ones(len(rows.images), bool))
            missing = _not_read(stored, cases)
            if missing:
                self._add_likeliest(model, stored, sorted(missing))
        return stored

    def _add_likeliest(self, model: StoredModel, stored: _Rows, shas: Sequence[str]) -> None:
        """Add predictions that were made image by image. They hold only the top classes: all others count as 0."""
        known = self._workspace.models_under_test.latest(model.key)
        predictions = [known[sha] for sha in shas if sha in known]
        place = {name: number for number, name in reversed(list(enumerate(model.identity.classes)))}
        images: list[str] = []
        likeliest, numbers = [], []
        for image, top in self._workspace.models_under_test.guesses(predictions):
            guesses = [(place[one["label"]], one["probability"]) for one in top if one["label"] in place]
            if not guesses or len(guesses) < len(top):
                continue  # a prediction of an earlier model under this key
            row = np.zeros(len(model.identity.classes), np.float16)
            for number, probability in guesses:
                row[number] = probability
            images.append(image)
            likeliest.append(guesses[0][0])
            numbers.append(row)
        if images:
            stored.add(images, np.array(likeliest, np.uint16), np.stack(numbers), np.zeros(len(images), bool))

    def _counts(self, key: str) -> _PixelCounts:
        """Return the stored counts of a segmenter, after adding those saved since the last call."""
        with _latest(self._pixels, key, _PixelCounts, MODELS_HELD + 1) as stored:  # and the checks' segmenter
            new, stored.last = self._workspace.models_under_test.pixel_counts(key, stored.last)
            if new:
                stored.add(new)
        return stored


@contextmanager
def _latest(cache: dict[K, T], key: K, make: Callable[[], T], most: int = MODELS_HELD) -> Iterator[T]:
    """Yield the cached value of a key, or a new one from `make`. If the `with` block fails, the value is not kept."""
    value = cache.pop(key, None) or make()
    yield value
    cache[key] = value
    while len(cache) > most:
        del cache[next(iter(cache))]


def _not_read(stored: _Rows, cases: Cases) -> set[str]:
    return _shas((images, stored.images.of(cases, images) < 0) for images in cases.all_images)


def _shas(flagged: Iterable[tuple[Images, Flags]]) -> set[str]:
    return {images.shas[place] for images, flags in flagged for place in np.flatnonzero(flags).tolist()}
