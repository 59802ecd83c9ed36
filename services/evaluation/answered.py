"""What a model says of the images of a subject, as columns: answers of a classifier, counts of pixels of a segmenter.

All that a model ever said is read once and held; after that only what came since.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.answers import Guesses, Pairs, answers_of, count_pairs, groups_of_numbers
from evaluation.by_source import Floats
from evaluation.class_mapping import ClassMap
from evaluation.effectiveness import Answers
from evaluation.ranking import deep_gini, entropy
from evaluation.segmentation import Pixels
from evaluation.types import TOP
from services.evaluation.subjects import Cases, Images
from storage.case_columns import CaseTable
from storage.models_under_test import NO_CLASS, ProbabilityRows, StoredModel
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


@dataclass
class _Held:
    """All that one classifier said."""

    last: int = 0
    row: dict[str, int] = field(default_factory=dict)
    likeliest: NDArray[Any] = field(default_factory=lambda: np.zeros((0, TOP), np.uint16))
    numbers: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    exact: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    places: tuple[CaseTable, int, Numbers, Numbers] | None = None
    """Of which table, of how many rows here, and the row of each of its images and of each of its sources."""

    def add(self, rows: ProbabilityRows, exact: bool) -> None:
        first = len(self.exact)
        self.row.update(zip(rows.images, range(first, first + len(rows.images)), strict=True))
        self.likeliest = np.concatenate([self.likeliest, rows.likeliest]) if first else rows.likeliest
        self.numbers = np.concatenate([self.numbers, rows.numbers]) if first else rows.numbers
        self.exact = np.concatenate([self.exact, np.full(len(rows.images), exact)])

    def rows_of(self, cases: Cases, images: Images) -> Numbers:
        """The row of each image; -1 where nothing is known of it."""
        table, size = cases.table, len(self.exact)
        if self.places is None or self.places[0] is not table or self.places[1] != size:
            found = [
                np.array([self.row.get(sha, -1) for sha in column.values], np.int64)
                for column in (table.images, table.sources)
            ]
            self.places = table, size, found[0], found[1]
        return (self.places[3] if images is cases.originals else self.places[2])[images.number]


_NO_PAIRS = Pairs(np.zeros(0, np.uint8), np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(1, np.int64))


@dataclass
class _HeldPixels:
    """All that one segmenter said of masks."""

    last: int = 0
    row: dict[tuple[str, str], int] = field(default_factory=dict)
    """By image and mask, the place among the images of `pairs`."""
    pairs: Pairs = field(default_factory=lambda: _NO_PAIRS)

    def add(self, new: Sequence[tuple[str, str, NDArray[Any]]]) -> None:
        first = len(self.pairs.ends) - 1
        self.row.update(((image, mask), first + place) for place, (image, mask, _) in enumerate(new))
        counts = np.concatenate([one for _, _, one in new])
        ends = self.pairs.ends[-1] + np.cumsum([len(one) for _, _, one in new])
        held = self.pairs
        self.pairs = Pairs(
            np.concatenate([held.masks, counts["mask"]]),
            np.concatenate([held.models, counts["said"]]),
            np.concatenate([held.pixels, counts["pixels"].astype(np.int64)]),
            np.concatenate([held.ends, ends]),
        )


class ModelAnswers:
    """The answers of the models under test of one workspace. May be used from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._held: dict[int, _Held] = {}
        self._pixels: dict[int, _HeldPixels] = {}
        self._lock = threading.Lock()

    def classified(self, model: StoredModel, mapping: ClassMap, cases: Cases, images: Images) -> Answered:
        """What a classifier says of images of a subject with a label."""
        with self._lock:
            held = self._all(model, cases)
            row = held.rows_of(cases, images)
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
        """Entropy and DeepGini of what a classifier says of each image; NaN where nothing is known of it."""
        with self._lock:
            held = self._all(model, cases)
            row, numbers = held.rows_of(cases, images), held.numbers
        unsure, gini = np.full(len(row), np.nan), np.full(len(row), np.nan)
        place = np.flatnonzero(row >= 0)
        for first in range(0, len(place), LOOKED_AT_ONCE):
            some = place[first : first + LOOKED_AT_ONCE]
            probabilities = numbers[row[some]].astype(np.float64)
            unsure[some], gini[some] = entropy(probabilities), deep_gini(probabilities)
        return unsure, gini

    def segmented(self, model: StoredModel, mapping: ClassMap, images: Images) -> tuple[Numbers, Pixels]:
        """The places of those images of which a segmenter has said something and that have a mask, and their counts."""
        with self._lock:
            held = self._counts(model)
            pairs, row = held.pairs, held.row
            found = [row.get((sha, mask), -1) for sha, (mask, _) in zip(images.shas, images.masks, strict=True)]
        counted = np.array(found, np.int64)
        place = np.flatnonzero(counted >= 0)
        number: dict[str, int] = {}
        kind = [number.setdefault(images.masks[at][1], len(number)) for at in place.tolist()]
        tables = [
            groups_of_numbers(mapping, {int(one): name for one, name in json.loads(names).items()}) for names in number
        ]
        groups = len(mapping.groups)
        if not len(place):
            return place, Pixels(images.source[place], np.zeros((0, groups, groups + 1)))
        true, said = np.stack([one for one, _ in tables]), tables[0][1]
        counts = count_pairs(true, said, pairs, counted[place], np.array(kind, np.int64), groups)
        return place, Pixels(images.source[place], counts)

    def read_of(self, model: StoredModel, cases: Cases) -> int:
        """How many of the pictures of a subject the model has read; of a segmenter also counted."""
        if model.identity.kind != cases.view.kind:
            known = self._workspace.models_under_test.latest(model.key)
            return sum(sha in known for sha in cases.pictures)
        with self._lock:
            if model.identity.kind == "classification":
                return len(cases.pictures) - len(self._missing(self._all(model, cases), cases))
            counts = self._counts(model).row
            missing = {
                sha
                for images in cases.all_images
                for sha, (mask, _) in zip(images.shas, images.masks, strict=True)
                if mask and (sha, mask) not in counts
            }
        without = {
            sha
            for images in cases.all_images
            for sha, (mask, _) in zip(images.shas, images.masks, strict=True)
            if not mask
        }
        if without:
            missing |= without - self._workspace.models_under_test.latest(model.key).keys()
        return len(cases.pictures) - len(missing)

    def _missing(self, held: _Held, cases: Cases) -> set[str]:
        return {
            images.shas[place]
            for images in cases.all_images
            for place in np.flatnonzero(held.rows_of(cases, images) < 0).tolist()
        }

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

    def _counts(self, model: StoredModel) -> _HeldPixels:
        """All that one segmenter said of masks; what came since the last time is added."""
        held = self._pixels.pop(model.id, None) or _HeldPixels()
        new, held.last = self._workspace.models_under_test.pixel_counts(model.key, held.last)
        if new:
            held.add(new)
        self._pixels[model.id] = held
        while len(self._pixels) > MODELS_HELD:
            del self._pixels[next(iter(self._pixels))]
        return held
