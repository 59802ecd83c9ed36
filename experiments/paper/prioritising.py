"""Compares orders of reviewing test cases: how soon does each one show the classifier's weaknesses?

A cell is a class in a colour, or under a condition that was left out of training. A cell is weak if the classifier
often errs on rendered scenes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.figures import Figure, Floats
from core.settings import UnderTestSettings
from demo.scene import COLOURS, OBJECT_CLASSES
from evaluation.models import ModelUnderTest
from evaluation.ranking import by_new_faults, by_score, chance_wrong, deep_gini, entropy, judge
from experiments.paper.breaking import right_pixels
from experiments.paper.intervals import mean_of, share_of
from experiments.paper.reading import VALID, Numbers, Read
from experiments.paper.size import Size
from experiments.paper.validity import score_of_each, sides_of, wrong_cases
from experiments.paper.world import ALWAYS, LEFT_OUT, LEFT_OUT_TYPES, TAUGHT_WRONG, cell_scenes, picture_of

WEAK = 0.25
"""Minimum error on rendered scenes that makes a cell weak, about three times the error on sunny or cloudy days."""
BUDGET = 0.05
"""Share of the images that are reviewed first. Goals count the weak cells that are found in them."""
OURS, WRONG_FIRST, LABEL_FIRST = "ours", "wrong images in random order", "least probability of the true class"
RANDOM, ENTROPY, GINI, BEFORE = "random", "softmax entropy", "DeepGini", "ours, before an image is made"
_SHUFFLES = 100
Cell = tuple[str, str]
"""A class, and the word that an edit brings in, such as a colour or a condition."""
Kind = Literal["left out", "taught wrongly", "taught wrongly at times", "not planted"]


@dataclass(frozen=True)
class Found:
    """Weak cells that one order of review finds. A found cell has a seen image that is valid and predicted wrongly."""

    order: str
    apfd: float | None
    images: Mapping[float, int]
    """Number of images reviewed with each budget. A budget is a share of all images, 0 to 1."""
    cells: Mapping[float, Floats]
    """One value per weak cell, for each budget: 1 if the cell is found, else 0. Random orders have mean values."""

    def at(self, budget: float) -> float:
        """Return the number of weak cells found in the first images. `budget` is the share of images that are seen."""
        return float(self.cells[budget].sum())


@dataclass(frozen=True)
class Prioritising:
    """Results of all orders of review, by name. The orders in `orders` sort all test cases. The orders in `before` sort
    the test cases of the test and tune splits, and do not depend on the images of these test cases.
    """

    weak: Mapping[Cell, Kind]
    """All weak cells, even those without an image, each with the origin of its weakness."""
    shown: int
    """Number of weak cells with a valid fault in at least one image. No order can find the other weak cells."""
    orders: Mapping[str, Found]
    before: Mapping[str, Found]
    shown_before: int

    def share_found(self, order: str) -> Figure:
        """Return the share of the weak cells found by a reviewer who sees the first images (`BUDGET`) of an order."""
        cells = self.orders[order].cells[BUDGET]
        return share_of(round(float(cells.sum())), len(cells))

    def more_than(self, other: str) -> Figure:
        """Return a difference: the share of weak cells that the studio's order finds in the first images (`BUDGET`),
        minus the share that the order `other` finds in as many images. The interval is over cells.
        """
        return mean_of(self.orders[OURS].cells[BUDGET] - self.orders[other].cells[BUDGET])


def weak_cells(weights: Path, renders: int) -> dict[Cell, Kind]:
    """Return the cells where the classifier's error on rendered scenes is at least `WEAK`, each with its origin."""
    model = ModelUnderTest(UnderTestSettings(source="file", file=str(weights)))
    weak = dict[Cell, Kind]()
    for label in OBJECT_CLASSES:
        for word in (*LEFT_OUT, *COLOURS):
            pictures = [Image.fromarray(picture_of(scene)) for scene in cell_scenes(label, word, renders)]
            wrong = sum(
                one.top[0].label != label for batch in model.predict_many(pictures) for one in batch.predictions
            )
            if wrong >= WEAK * renders:
                weak[label, word] = _kind(label, word)
    return weak


def _kind(label: str, word: str) -> Kind:
    if word in LEFT_OUT:
        return "left out"
    taught = {(one.label, one.word): one.share for one in TAUGHT_WRONG["object"]}
    if (label, word) not in taught:
        return "not planted"
    return "taught wrongly" if taught[label, word] == ALWAYS else "taught wrongly at times"


def ours(found: Read, rows: Numbers, seed: int = 4) -> Numbers:
    """Sort the cases `rows` in the studio's order. A case comes early if its image is probably valid and its prediction
    is probably wrong. Votes on other sources predict validity. A case moves back if earlier cases share its cell.
    """
    wrong = wrong_cases(found).astype(np.float64)
    score = score_of_each(found, seed)
    valid = score if score is not None else np.ones(len(found.cases))
    cells = cells_of(found)
    # A wrong prediction counts 1. A right one counts up to 0.01 by its uncertainty.
    doubt = 0.01 * deep_gini(found.said[1])
    chance = np.maximum(wrong, doubt)
    return rows[by_new_faults(chance[rows], valid[rows], [cells[row] for row in rows])]


def doubtful_first(found: Read, rows: Numbers) -> Numbers:
    """Return some cases of a segmenter, highest score first. The score is the share of wrong pixels times the
    probability that people judge the image valid.
    """
    score = score_of_each(found, seed=4)
    valid = score if score is not None else np.ones(len(found.cases))
    wrong = 1.0 - right_pixels(found.pixels()[1])
    return rows[by_score((wrong * valid)[rows])]


def cells_of(found: Read) -> list[Cell]:
    """Return the cell of each case."""
    labels = [one.scene.label for one in found.sources]
    return [(labels[one.source], word) for one, word in zip(found.cases, found.alternatives, strict=True)]


def prioritising(found: Read, size: Size) -> Prioritising:
    """Measure how early each order finds the weak cells."""
    weak = weak_cells(found.weights, size.renders)
    cells = cells_of(found)
    wrong, valid = wrong_cases(found), found.truth == VALID
    fault = [cell if cell in weak and shows else None for cell, shows in zip(cells, wrong & valid, strict=True)]
    predictions, rows = found.said[1], np.arange(len(cells))
    true = found.answers()[1][1]
    orders: dict[str, Callable[[np.random.Generator], Numbers]] = {
        RANDOM: lambda chance: chance.permutation(rows),
        WRONG_FIRST: lambda chance: _wrong_first(wrong, chance),
        ENTROPY: lambda _: by_score(entropy(predictions)),
        GINI: lambda _: by_score(deep_gini(predictions)),
        LABEL_FIRST: lambda _: by_score(1.0 - true),
        OURS: lambda _: ours(found, rows),
    }
    others = np.flatnonzero(np.array(sides_of(found)) != "train")
    later = [fault[row] for row in others]
    types = np.array([found.edit_types[row] for row in others])
    before: dict[str, Callable[[np.random.Generator], Numbers]] = {
        RANDOM: lambda chance: chance.permutation(len(others)),
        "edits of weather and time of day, in random order": lambda chance: _wrong_first(
            np.isin(types, LEFT_OUT_TYPES), chance
        ),
        BEFORE: lambda _: _before(found, others),
    }
    return Prioritising(
        weak,
        len({one for one in fault if one is not None}),
        {name: _found(name, order, fault, weak) for name, order in orders.items()},
        {name: _found(name, order, later, weak) for name, order in before.items()},
        len({one for one in later if one is not None}),
    )


def _wrong_first(wrong: NDArray[np.bool_], chance: np.random.Generator) -> Numbers:
    """Return the wrong cases in random order, then the others."""
    order = chance.permutation(len(wrong))
    return np.concatenate([order[wrong[order]], order[~wrong[order]]])


def _before(found: Read, rows: Numbers) -> NDArray[np.int64]:
    """Order cases without a look at their images. Cases come first if similar edits in the train split cause faults."""
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


def _found(
    name: str, order: Callable[[np.random.Generator], Numbers], fault: Sequence[Cell | None], weak: Iterable[Cell]
) -> Found:
    """Measure which weak cells an order finds. For a random order, return the mean of `_SHUFFLES` orders."""
    chance, several = np.random.default_rng(0), "random" in name
    drawn = [order(chance) for _ in range(_SHUFFLES if several else 1)]
    judged = [judge(name, one, fault) for one in drawn]
    apfd = [one.apfd for one in judged if one.apfd is not None]
    images = dict(judged[0].images)
    ranks = np.array([[_first(one, fault).get(cell, np.inf) for cell in weak] for one in drawn])
    return Found(
        f"{name} (mean of {_SHUFFLES})" if several else name,
        float(np.mean(apfd)) if apfd else None,
        images,
        {budget: (ranks <= number).mean(axis=0) for budget, number in images.items()},
    )


def _first(order: Numbers, fault: Sequence[Cell | None]) -> dict[Cell, int]:
    """Return the rank, from 1, of the first image that shows a fault, for each cell that has such an image."""
    first: dict[Cell, int] = {}
    for rank, row in enumerate(order.tolist(), 1):
        cell = fault[row]
        if cell is not None:
            first.setdefault(cell, rank)
    return first
