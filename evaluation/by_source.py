"""Figures of test cases of which several were made from one source, with their uncertainty. Pure; knows no models.

Cases of one source are not independent: where a model fails on one of them it fails more often on the others. So what
is drawn again, or counted as one, is always the source, never the image.

Functions here import scipy.stats themselves: it takes half a second, and storage and commands need only the types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import Clustering
from core.figures import Figure, Floats

CONFIDENCE = 0.95
SAMPLES = 10_000
"""Resamples of a bootstrap. Sources that are alike are drawn together, so that many cost little."""
ALIKE = 0.1
"""Up to so many kinds of sources, as a share of the sources, kinds are drawn and not the sources one by one."""
GROUPS = 2_000
"""More sources that are not alike are put into so many groups by chance, and groups are drawn: the random groups of
Wolter (2007, Introduction to Variance Estimation, chapter 2). It makes an interval wider or narrower by some 2 %, which
is less than the chance that is in a bootstrap of as many resamples.
"""
TOGETHER = 100
"""Resamples that are drawn at a time: how often each source is drawn lies in memory for all of them."""
FEWEST_SOURCES = 2
"""Of fewer sources nothing can be said of how much they differ."""

Statistic = Callable[[Floats], Floats]
"""Takes sums over sources, (..., k), and gives the figure, (...); NaN where it is undefined."""


def one_split(splits: Sequence[str]) -> str:
    """Return the split of all sources, or "". Raises ValueError for several: seen and unseen ones never mix."""
    several = sorted({one or "without a split" for one in splits})
    if len(several) > 1:
        raise ValueError(f"sources of several splits are not mixed: {', '.join(several)}")
    return splits[0] if splits else ""


class Resampled:
    """Sums over sources, (sources, k), drawn with replacement once for all figures that are made of them."""

    def __init__(self, sums: Floats, seed: int = 0, samples: int = SAMPLES) -> None:
        self._sums, self._seed, self._samples = sums, seed, samples
        # Not `cached_property`: in Python 3.11 that has one lock for all objects, and threads that draw samples of
        # different sums would wait for each other.
        self._kinds: tuple[Floats, NDArray[np.int64]] | None = None  # units that are not alike, and how many of each
        self._drawn: Floats | None = None

    def figure(self, statistic: Statistic, n: int, share: bool = False, counted: int | None = None) -> Figure:
        """A figure with its bias-corrected and accelerated bootstrap interval (Efron 1987, Journal of the American
        Statistical Association 82).

        `n` is the number of images, which is only told; `counted` is how many sources the figure is of, where the
        others add nothing to it. No interval with fewer than two sources, or where all are
        alike: a bootstrap would take that for certain. Of a `share` that is 0 or 1 of all sources the interval is exact
        (Clopper and Pearson 1934, Biometrika 26), and counts a source as one image.
        """
        from scipy import stats

        sources = len(self._sums) if counted is None else counted
        if not sources:
            return Figure(None, why="there is nothing to count")
        value = float(statistic(self._whole))
        if not np.isfinite(value):
            return Figure(None, n=n, sources=sources, why="it is undefined for these images")
        if share and value in (0.0, 1.0) and sources >= FEWEST_SOURCES:
            exact = stats.binomtest(round(value * sources), sources).proportion_ci(CONFIDENCE)
            return Figure(value, float(exact.low), float(exact.high), n, sources)
        if self._kinds is None:
            units = self._units
            one_number = units @ np.random.default_rng(self._seed).random(units.shape[1])  # alike where they are alike
            if len(np.unique(one_number)) == len(units):
                self._kinds = units, np.ones(len(units), np.int64)
            else:
                self._kinds = distinct_rows(units)
        kinds, of_kind = self._kinds
        if sources < FEWEST_SOURCES or len(kinds) == 1:
            why = "there is one source only" if sources < FEWEST_SOURCES else "all sources are alike"
            return Figure(value, n=n, sources=sources, why=f"no interval, since {why}")
        if self._drawn is None:
            self._drawn = self._resampled(kinds, of_kind)
        figures = statistic(self._drawn)
        figures = figures[np.isfinite(figures)]
        if len(figures) < self._samples / 2:
            return Figure(value, n=n, sources=sources, why="no interval, since too few resamples have a figure")
        if not np.ptp(figures):
            return Figure(value, n=n, sources=sources, why="no interval, since all sources are alike in it")
        low, high = _bca(value, figures, statistic(self._whole - kinds), of_kind)
        return Figure(value, low, high, n, sources)

    @cached_property
    def _whole(self) -> Floats:
        whole: Floats = self._sums.sum(axis=0)
        return whole

    @cached_property
    def _units(self) -> Floats:
        """What is drawn one by one: the sources, or groups of them where they are many and hardly two are alike."""
        sources, fate = len(self._sums), np.random.default_rng(self._seed)
        if sources <= GROUPS or len(np.unique(self._sums @ fate.random(self._sums.shape[1]))) <= ALIKE * sources:
            return self._sums
        begins = np.arange(GROUPS) * sources // GROUPS
        grouped: Floats = np.add.reduceat(self._sums[fate.permutation(sources)], begins, axis=0)
        return grouped

    def _resampled(self, kinds: Floats, of_kind: NDArray[np.int64]) -> Floats:
        """The sums of each resample, (samples, k), of the different units `kinds` and how many there are of each."""
        units = len(self._units)
        if len(kinds) <= ALIKE * units:
            fate = np.random.default_rng(self._seed)
            drawn: Floats = fate.multinomial(units, of_kind / units, size=self._samples) @ kinds
            return drawn
        draws = _draws(self._seed, self._samples, units)
        return np.concatenate([times.astype(np.float64) @ self._units for times in draws])


@lru_cache(maxsize=4)
def _draws(seed: int, samples: int, units: int) -> tuple[NDArray[np.uint8], ...]:
    """How often each of so many units, at most `GROUPS`, is drawn in each resample: parts of (`TOGETHER`, units).

    It is the same for all figures of as many units, and to draw takes longer than to add up. That one of them is drawn
    more than 255 times does not happen: it would be less likely than 1 in 10 to the 500.
    """
    fate = np.random.default_rng(seed)
    sizes = [min(TOGETHER, samples - begin) for begin in range(0, samples, TOGETHER)]
    parts = tuple(times_drawn(fate, np.full(size, units), units).astype(np.uint8) for size in sizes)
    for part in parts:
        part.flags.writeable = False
    return parts


def times_drawn(chance: np.random.Generator, draws: NDArray[np.int64], sources: int) -> Floats:
    """How often each of so many sources is drawn in each resample, which makes `draws` draws: (resamples, sources)."""
    drawn = chance.integers(0, sources, draws.sum(), np.int32) if sources else np.zeros(0, np.int32)
    drawn += np.repeat((np.arange(len(draws)) * sources).astype(np.int32), draws)
    return np.bincount(drawn, minlength=len(draws) * sources).reshape(len(draws), sources).astype(np.float64)


def distinct_rows(rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The different rows of (n, k), ascending, and their counts: `numpy.unique` in a tenth of its time. Without NaN."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    first = np.flatnonzero(np.append(len(rows) > 0, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return ordered[first], np.diff(first, append=len(rows))


def _bca(value: float, figures: Floats, without: Floats, of_kind: NDArray[np.int64]) -> list[float]:
    """The ends of the interval; `without` is the figure without one source of each kind."""
    from scipy import stats

    below = float(np.count_nonzero(figures < value) + 0.5 * np.count_nonzero(figures == value))
    share = min(max(below / len(figures), 0.5 / len(figures)), 1 - 0.5 / len(figures))
    bias = stats.norm.ppf(share)
    known = np.isfinite(without)
    weights = of_kind[known]
    acceleration = 0.0
    if weights.sum() > 1:
        away = np.average(without[known], weights=weights) - without[known]
        spread = float((weights * away**2).sum())
        acceleration = float((weights * away**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    ends = stats.norm.ppf([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    moved = stats.norm.cdf(bias + (bias + ends) / (1 - acceleration * (bias + ends)))
    return [float(end) for end in np.quantile(figures, moved)]


def means_of_groups(
    values: Floats, weights: Floats, group: NDArray[np.int64], groups: int, n: NDArray[np.int64]
) -> tuple[list[Figure], Floats]:
    """The mean of one value a source in each of many groups, such as classes, with an interval that counts the
    images of a source as one: the variance of the sums of a source around the mean (the sandwich estimator, with
    Student's t at one less than there are sources; Cameron and Miller 2015, Journal of Human Resources 50). And the
    p-values of the tests that they are 0, NaN with too few sources. `group` numbers the group of each source, and `n`
    is the number of images of each group.
    """
    from scipy import stats

    sources = np.bincount(group, minlength=groups)
    total = np.bincount(group, weights=weights, minlength=groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(group, weights=weights * values, minlength=groups) / total
        away = np.bincount(group, weights=(weights * (values - mean[group])) ** 2, minlength=groups)
        error = np.sqrt(sources / (sources - 1) * away) / total
        reach = stats.t.ppf((1 + CONFIDENCE) / 2, sources - 1) * error
        p_values = 2 * stats.t.sf(np.abs(mean) / error, sources - 1)
    p_values = np.where((error == 0) & (sources > 1), (mean == 0).astype(float), p_values)
    found = []
    for number in range(groups):
        images, of = int(n[number]), int(sources[number])
        if not of:
            found.append(Figure(None, n=images, why="there is nothing to count"))
            continue
        value = float(mean[number])
        if of < FEWEST_SOURCES:
            found.append(Figure(value, n=images, sources=of, why="no interval, since there is one source only"))
        else:
            found.append(Figure(value, value - float(reach[number]), value + float(reach[number]), images, of))
    return found, p_values


def clustering(wrong: Floats, source: NDArray[np.int64]) -> Clustering:
    """The intra-class correlation of one value an image, by the analysis of variance with unequal groups (Donner 1986,
    International Statistical Review 54), the design effect 1 + (m - 1) x correlation of Kish (1965), where m is the
    mean number of images that an image's source has, and what the images are worth. A correlation below 0 counts as 0.
    """
    _, number, size = np.unique(source, return_inverse=True, return_counts=True)
    sources, n = len(size), len(wrong)
    if sources < FEWEST_SOURCES or n == sources:
        why = "there is one source only" if sources < FEWEST_SOURCES else "each source has one test case only"
        return Clustering(None, 1.0 if n == sources and n else None, float(n) if n == sources and n else None, why)
    mean = np.bincount(number, weights=wrong) / size
    between = float((size * (mean - wrong.mean()) ** 2).sum()) / (sources - 1)
    within = float(((wrong - mean[number]) ** 2).sum()) / (n - sources)
    usual = (n - float((size**2).sum()) / n) / (sources - 1)
    spread = between + (usual - 1) * within
    if not spread:
        return Clustering(None, None, None, "all images are alike")
    correlation = (between - within) / spread
    effect = 1 + (float((size**2).sum()) / n - 1) * max(correlation, 0.0)
    return Clustering(correlation, effect, n / effect)


def adjusted(p_values: Floats) -> Floats:
    """P-values for several questions that are asked at once, so that the chance of any false finding is kept (Holm
    1979, Scandinavian Journal of Statistics 6). Those that are NaN stay so, and count as not asked.
    """
    found, asked = np.full(len(p_values), np.nan), np.isfinite(p_values)
    known = p_values[asked]
    order = np.argsort(known)
    steps = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
    back = np.empty(len(known))
    back[order] = np.minimum(steps, 1.0)
    found[asked] = back
    return found
