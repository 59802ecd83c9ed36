"""Measures how often intervals of the gain from retraining contain the truth, in worlds with a known gain. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

import numpy as np

from core.figures import Figure, Floats, Numbers
from evaluation.retraining.arm_statistics import Arms, Measured
from experiments.coverage.covered import Covered, Measurement, covered

TrainingFigure = Literal["accuracy", "gain", "won back"]
SEEDS, ACCURACIES = (2, 3, 5), (0.5, 0.8, 0.99, 1.0)
LAYOUTS = ((20, 6), (33, 4), (132, 1))
"""Simulated test sets: number of sources, and number of images of each source."""
BETTER = 0.1
"""True gain in accuracy of the second training over the baseline. It is 0 where the accuracy would exceed 1."""
ORIGINAL_ACCURACY = 0.95
"""Accuracy of each training on original images. If the baseline is less accurate on test cases than on originals, the
second training can win back this loss."""
SHARED = 0.8
"""Weight of random effects that trainings and test sets share. Its square is the correlation of two trainings."""


@dataclass(frozen=True)
class Spread:
    """Shares of the variance of a model's predictions that are due to sources, images and training seeds."""

    name: str
    of_sources: float
    of_images: float
    of_seeds: float


SPREADS = (
    Spread("all images alike", 0.0, 0.5, 0.0),
    Spread("sources differ", 0.6, 0.2, 0.02),
    Spread("seeds differ", 0.3, 0.4, 0.1),
)


def measurements(repetitions: int) -> list[Measurement]:
    """Return one measurement for each combination of settings. A measurement simulates `repetitions` studies."""
    return [
        partial(measured, seeds, accuracy, layout, spread, repetitions, seed=0)
        for seeds, layout, spread, accuracy in product(SEEDS, LAYOUTS, SPREADS, ACCURACIES)
    ]


def measured(
    seeds: int, accuracy: float, layout: tuple[int, int], spread: Spread, repetitions: int, seed: int
) -> list[Covered]:
    """Return the coverage of each figure in one simulated world. `accuracy` is the true accuracy of the baseline."""
    fate = np.random.default_rng(seed)
    source = np.repeat(np.arange(layout[0]), layout[1])
    other = accuracy if accuracy > 1 - BETTER else accuracy + BETTER
    lost = ORIGINAL_ACCURACY - accuracy
    truth: dict[TrainingFigure, float] = {"accuracy": accuracy, "gain": other - accuracy}
    if lost > 0:
        truth["won back"] = (other - accuracy) / lost
    studies = [
        _figures(seeds, (accuracy, other), source, spread, fate, "won back" in truth) for _ in range(repetitions)
    ]
    labels = {"trainings": str(seeds), "sources": str(layout[0]), "images of each": str(layout[1]), "": spread.name}
    return [
        covered(f"retraining: {name}", labels, f"{accuracy:.0%}", [one[name] for one in studies], value)
        for name, value in truth.items()
    ]


def _figures(
    seeds: int,
    accuracies: tuple[float, float],
    source: Numbers,
    spread: Spread,
    fate: np.random.Generator,
    with_loss: bool,
) -> dict[TrainingFigure, Figure]:
    sources, images = int(source.max()) + 1, len(source)
    alike = fate.normal(size=sources)[source], fate.normal(size=images)
    of_seeds = [fate.normal(size=seeds) for _ in accuracies]

    def right(accuracy: float, of_seed: Floats) -> Measured:
        from scipy import stats

        shift = stats.norm.ppf(accuracy)
        rest = np.sqrt(1 - spread.of_sources - spread.of_images - spread.of_seeds)
        own_noise = fate.normal(size=sources)[source], fate.normal(size=images)
        parts = [SHARED * one + np.sqrt(1 - SHARED**2) * mine for one, mine in zip(alike, own_noise, strict=True)]
        of_image = np.sqrt(spread.of_sources) * parts[0] + np.sqrt(spread.of_images) * parts[1]
        noise = rest * fate.normal(size=(seeds, images))
        return Measured(source, shift + of_image + np.sqrt(spread.of_seeds) * of_seed[:, None] + noise > 0)

    arms = {
        name: {"generated": right(one, of_seed)}
        for name, one, of_seed in zip(("base", "arm"), accuracies, of_seeds, strict=True)
    }
    if with_loss:
        for name, of_seed in zip(("base", "arm"), of_seeds, strict=True):
            arms[name]["original"] = right(ORIGINAL_ACCURACY, of_seed)
    compared = Arms(arms, "base")
    rows = {(row.arm, row.set): row for row in compared.rows()}
    figures: dict[TrainingFigure, Figure] = {
        "accuracy": rows["base", "generated"].accuracy,
        "gain": rows["arm", "generated"].gain,
    }
    if with_loss:
        figures["won back"] = compared.won_back("original", "generated")[0].share
    return figures
