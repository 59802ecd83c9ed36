"""In which order to look at test cases: which orders show the planted weak cells of the classifier soonest.

A cell is a class under a condition that was left out of training; the renderer says which ones are weak, by scenes that
it draws itself and nobody edits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.evaluation_results import BUDGETS, Order
from core.figures import Floats
from core.settings import UnderTestSettings
from demo.scene import OBJECT_CLASSES
from evaluation.models import ModelUnderTest
from evaluation.ranking import by_new_faults, by_score, chance_wrong, deep_gini, entropy, judge
from experiments.paper.breaking import right_before_edit, right_pixels
from experiments.paper.reading import VALID, WEIGHTS, Numbers, Read
from experiments.paper.size import Size
from experiments.paper.validity import score_of_each, sides_of, wrong_cases
from experiments.paper.world import PLANTED, cell_scenes, picture_of

WEAK = 0.5
"""From this error on scenes of the renderer on, a cell is weak."""
OURS, BEFORE = "ours", "ours, before an image is made"
_SHUFFLES = 20
Cell = tuple[str, str]
"""A class, and a condition or another word that an edit brings in."""


@dataclass(frozen=True)
class Found:
    """How many weak cells an order shows by a valid fault among the first images."""

    order: str
    apfd: float | None
    cells: tuple[tuple[float, float, int], ...]
    """Share of the images, weak cells that are found there (a mean, for the random order), and images."""

    def at(self, budget: float) -> float:
        """Weak cells found at a share of the images."""
        return next(cells for share, cells, _ in self.cells if share == budget)


@dataclass(frozen=True)
class Prioritising:
    """The orders of all test cases, and that of those on the test and tuning sides which is made before any image."""

    weak: tuple[Cell, ...]
    """All that there are, also those of which there is no image."""
    shown: int
    """Of how many of them there is a valid fault among all images."""
    orders: tuple[Found, ...]
    before: tuple[Found, ...]
    shown_before: int

    @property
    def share_found(self) -> float | None:
        """Of the weak cells, how many ours finds at 5 % of the images, 0 to 1; None where none is weak."""
        ours = next(one for one in self.orders if one.order == OURS)
        return ours.at(0.05) / len(self.weak) if self.weak else None


def weak_cells(renders: int) -> tuple[Cell, ...]:
    """The cells on which the classifier is wrong on at least half of the renderer's own scenes."""
    found = []
    for label in OBJECT_CLASSES:
        for condition in PLANTED:
            pictures = [Image.fromarray(picture_of(scene)) for scene in cell_scenes(label, condition, renders)]
            batches = _classifier().predict_many(pictures)
            wrong = sum(one.top[0].label != label for batch in batches for one in batch.predictions)
            if wrong >= WEAK * renders:
                found.append((label, condition))
    return tuple(found)


@lru_cache(maxsize=1)
def _classifier() -> ModelUnderTest:
    return ModelUnderTest(UnderTestSettings(source="file", file=str(WEIGHTS["object"])))


def ours(found: Read, rows: Numbers, seed: int = 4) -> Numbers:
    """Our order of some cases: what the model says is known, and so whether it is wrong; how likely people find an
    image valid is foretold by votes on other sources; and an image whose like was shown comes later.
    """
    wrong = (wrong_cases(found) & right_before_edit(found)).astype(np.float64)
    score = score_of_each(found, seed)
    valid = score if score is not None else np.ones(len(found.cases))
    cells = cells_of(found)
    # A fault that is there counts for nearly one: a little is left for what a model is only unsure about.
    doubt = 0.01 * deep_gini(found.said[1])
    chance = np.maximum(wrong, doubt)
    return rows[by_new_faults(chance[rows], valid[rows], [cells[row] for row in rows])]


def doubtful_first(found: Read, rows: Numbers) -> Numbers:
    """The order of some cases of a segmenter: where it is wrong about most pixels first, as far as people are likely to
    find the image valid.
    """
    score = score_of_each(found, seed=4)
    valid = score if score is not None else np.ones(len(found.cases))
    wrong = 1.0 - right_pixels(found.pixels()[1])
    return rows[by_score((wrong * valid)[rows])]


def cells_of(found: Read) -> list[Cell]:
    """The cell of each case."""
    labels = [one.scene.label for one in found.sources]
    return [(labels[one.source], word) for one, word in zip(found.cases, found.alternatives, strict=True)]


def prioritising(found: Read, size: Size) -> Prioritising:
    """All of it."""
    weak = weak_cells(size.renders)
    cells, valid = cells_of(found), found.truth == VALID
    shows = wrong_cases(found) & valid
    fault = [cell if bad and cell in weak else None for cell, bad in zip(cells, shows, strict=True)]
    rows = np.arange(len(cells))
    orders = [
        judge("softmax entropy", by_score(entropy(found.said[1])), fault),
        judge("DeepGini", by_score(deep_gini(found.said[1])), fault),
        judge(OURS, ours(found, rows), fault),
    ]
    others = np.flatnonzero(np.array(sides_of(found)) != "train")
    later = [fault[row] for row in others]
    foretold = judge(BEFORE, _before(found, others), later)
    return Prioritising(
        weak,
        len({one for one in fault if one is not None}),
        (_random(fault), *(_found(one) for one in orders)),
        (_random(later), _found(foretold)),
        len({one for one in later if one is not None}),
    )


def _before(found: Read, rows: Numbers) -> NDArray[np.int64]:
    """The order of cases that are not made yet, learnt on those of the training side."""
    cells = cells_of(found)
    features = [(kind, word, label) for kind, (label, word) in zip(found.edit_types, cells, strict=True)]
    shows = wrong_cases(found) & (found.truth == VALID)
    known: dict[tuple[str, ...], tuple[int, int]] = {}
    for row, where in enumerate(sides_of(found)):
        if where == "train":
            bad, of = known.get(features[row], (0, 0))
            known[features[row]] = (bad + int(shows[row]), of + 1)
    chance: Floats = chance_wrong(known, [features[row] for row in rows])
    return by_new_faults(chance, np.ones(len(rows)), [cells[row] for row in rows])


def _found(order: Order) -> Found:
    return Found(
        order.name, order.apfd, tuple((share, float(order.faults[share]), order.images[share]) for share in BUDGETS)
    )


def _random(fault: list[Cell | None]) -> Found:
    """The mean of many random orders."""
    chance = np.random.default_rng(0)
    found = [judge("random", chance.permutation(len(fault)), fault) for _ in range(_SHUFFLES)]
    apfd = [one.apfd for one in found if one.apfd is not None]
    return Found(
        f"random (mean of {_SHUFFLES})",
        float(np.mean(apfd)) if apfd else None,
        tuple(
            (share, float(np.mean([one.faults[share] for one in found])), found[0].images[share]) for share in BUDGETS
        ),
    )
