"""Intervals for figures that the package `evaluation` does not compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats
from study.intervals import wilson

RESAMPLES = 1000
Rows = NDArray[np.int64]


def over_sources(source: Rows, statistic: Callable[[Rows], float], resamples: int = RESAMPLES) -> Figure:
    """Return a figure over all images with a bootstrap interval. `statistic` computes it from row numbers. Sources are
    drawn with replacement, each with all its images (Davison and Hinkley 1997, section 3.8).
    """
    value, (names, place) = statistic(np.arange(len(source))), np.unique(source, return_inverse=True)
    if not np.isfinite(value):
        return Figure(None, n=len(source), sources=len(names), why="there is nothing to count")
    rows = [np.flatnonzero(place == one) for one in range(len(names))]
    chance = np.random.default_rng(0)
    drawn = [
        statistic(np.concatenate([rows[one] for one in chance.integers(0, len(rows), len(rows))]))
        for _ in range(resamples)
    ]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Figure(float(value), float(low), float(high), len(source), len(names))


def mean_of(values: Floats) -> Figure:
    """Return the mean of independent values, with Student's t interval."""
    from scipy import stats

    if len(values) < 2:
        return Figure(None, n=len(values), why="there are fewer than two to compare")
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * spread / len(values) ** 0.5
    return Figure(mean, mean - reach, mean + reach, len(values))


def share_of(count: int, n: int, nothing: str = "there is nothing to count") -> Figure:
    """Return the share `count` / `n` with its Wilson interval. `nothing` is the reason to state if `n` is 0."""
    interval = wilson(count, n)
    return Figure(interval.value, interval.low, interval.high, n, why="" if n else nothing)
