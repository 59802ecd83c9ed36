"""Measures how often the interval for the AUC of the automatic validity score contains the true AUC. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from core.figures import Floats
from core.validity_score import FEWEST
from evaluation.validity_score import agreement
from experiments.coverage.covered import Covered, Measurement, covered

SOURCES, AREAS, VALID, CORRELATIONS = (20, 50, 100), (0.6, 0.76, 0.9), (0.5, 0.7), (0.0, 0.5)
IMAGES = 100
"""Number of judged images in a simulated study, divided evenly among its sources."""


def measurements(repetitions: int) -> list[Measurement]:
    """Return one measurement for each combination of settings. A measurement simulates `repetitions` studies."""
    return [
        partial(measured, sources, area, valid, correlation, repetitions, seed=0)
        for sources, valid, correlation, area in product(SOURCES, VALID, CORRELATIONS, AREAS)
    ]


def measured(sources: int, area: float, valid: float, correlation: float, repetitions: int, seed: int) -> list[Covered]:
    """Return how often the intervals of simulated studies contain the true AUC `area`. `valid` is the share of valid
    images. `correlation` is how strongly scores and validity correlate between images of one source.
    """
    drawn = _worlds(sources, area, valid, correlation, np.random.default_rng(seed))
    world = {"sources": str(sources), "valid": f"{valid:.0%}", "correlation": f"{correlation:g}"}
    figures = [agreement(*next(drawn)).auc for _ in range(repetitions)]
    return [covered("validity score: area under the curve", world, f"{area:g}", figures, area)]


def _worlds(
    sources: int, area: float, valid: float, correlation: float, fate: np.random.Generator
) -> Iterator[tuple[Floats, np.ndarray, np.ndarray]]:
    """Yield random images: their scores, validity and sources. At least `FEWEST` are valid and `FEWEST` are invalid."""
    from scipy import stats

    source = np.repeat(np.arange(sources), IMAGES // sources)
    apart, rarest = np.sqrt(2) * stats.norm.ppf(area), stats.norm.ppf(valid)

    def noise() -> Floats:
        noise_of_image, shared = fate.normal(size=len(source)), fate.normal(size=sources)[source]
        return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * noise_of_image

    while True:
        good = noise() < rarest
        score = noise() + apart * good
        if min(good.sum(), (~good).sum()) >= FEWEST:
            yield stats.norm.cdf(score / 2), good, source
