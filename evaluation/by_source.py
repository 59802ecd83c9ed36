"""Figures with uncertainty for test cases. Several test cases may share a source. Pure; knows no models.

Test cases of one source are not independent: a model that fails on one fails more often on the others. So sources,
never images, are resampled and counted. Every figure is a mean over sources, with an interval. The intervals also hold
for few sources, rare errors and sources with unequally many images: `experiments.coverage` tests that.

Functions import scipy.stats only when called: it takes half a second, and many callers need only the types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from core.evaluation_results import Clustering
from core.figures import Figure, Flags, Floats, Numbers, ratio

CONFIDENCE = 0.95
LEAST, MOST = 0.93, 0.98
"""Target range of the measured coverage. Coverage is the share of 95 % intervals that contain the true figure."""
SAMPLES = 4_000
"""Number of random samples behind an interval. Chance moves its ends by about 1 % of its width."""
GROUPS = 1_000
"""Maximum number of random weights. If there are more sources, this many random groups of sources get one weight each
(Wolter 2007, Introduction to Variance Estimation, chapter 2). The groups change an interval's width by about 2 %."""
MOST_NEEDED = 100
"""Limit for the number of needed sources, as a multiple of the present number. A larger number is not reported."""
FEWEST_SOURCES = 2
"""Minimum number of sources for an interval. The variance of a single source is unknown."""
ONE_SOURCE = "no interval, since there is one source only"

Statistic = Callable[[Floats], Floats]
"""Function that takes means over sources, (..., k), and returns a figure, (...); NaN where it is undefined."""


def one_split(splits: Sequence[str]) -> str:
    """Return the data split that all sources share, or "". Raises ValueError for several splits: sources that a model
    was trained on must not be mixed with others.
    """
    several = sorted({one or "without a split" for one in splits})
    if len(several) > 1:
        raise ValueError(f"sources of several splits are not mixed: {', '.join(several)}")
    return splits[0] if splits else ""


@dataclass(frozen=True)
class Unseen:
    """Extreme values that a source outside the data may have: the worst and the best value of each column."""

    worst: Floats
    best: Floats
    together: Numbers
    """Group of each column, from 0. Each random sample uses `worst` for all columns of a group, or `best` for all."""


class MeansOfSources:
    """Means of several shares over all sources, and random samples of their possible true values.

    The samples come from the Bayesian bootstrap (Rubin 1981, Annals of Statistics 9): each sample gives the sources
    random weights. One additional source represents the unseen ones: in each sample, each of its shares is 0 or 1 with
    equal chance. So even if a share is 0 in all sources, its interval reaches above 0. If the share of each source is
    0 or 1, the interval is the mid-P form of Clopper and Pearson's exact interval (1934). Otherwise it is the mid-P
    form of Gaffke's bound (Learned-Miller and Thomas 2019, arXiv 1905.06208).
    """

    def __init__(self, shares: Floats, weights: Floats | None = None, unseen: Unseen | None = None) -> None:
        """Takes `shares`, (sources, k), 0 to 1 or in the range of `unseen`, and `weights`, (sources,), or None."""
        columns = np.arange(shares.shape[1])
        self._unseen = unseen or Unseen(np.zeros(len(columns)), np.ones(len(columns)), columns)
        self._sources = len(shares)
        weights = np.ones(len(shares)) if weights is None else weights
        self._sums = np.column_stack([shares * weights[:, None], weights])
        # Not `cached_property`: in Python 3.11 it has one lock for all objects, and threads would wait for each other.
        self._drawn: Floats | None = None

    def figure(self, statistic: Statistic, n: int, counted: int | None = None) -> Figure:
        """Return a figure with its interval. `n`, the number of images, is only reported. `counted` is the number of
        sources, all by default. With fewer than `FEWEST_SOURCES` there is no interval.
        """
        sources = self._sources if counted is None else counted
        if not sources:
            return Figure(None, why="there is nothing to count")
        whole = self._sums.sum(axis=0)
        value = float(statistic(whole[:-1] / whole[-1]))
        if not np.isfinite(value):
            return Figure(None, n=n, sources=sources, why="it is undefined for these images")
        if sources < FEWEST_SOURCES:
            return Figure(value, n=n, sources=sources, why=ONE_SOURCE)
        low, high = self.ends(statistic)
        return Figure(value, min(low, value), max(high, value), n, sources)

    def ends(self, statistic: Statistic) -> tuple[float, float]:
        """Return both ends of a figure's interval, even if the figure itself is undefined. An end may be infinite."""
        drawn = statistic(self.samples)
        low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="closest_observation")
        return float(low), float(high)

    @property
    def samples(self) -> Floats:
        """Random samples of the means, (`SAMPLES`, k)."""
        if self._drawn is None:
            fate = np.random.default_rng(0)
            sums = in_groups(self._sums, fate)
            # The unseen source weighs as much as the source of a typical test case.
            weight_of_unseen = (self._sums[:, -1] ** 2).sum() / self._sums[:, -1].sum()
            # Spread the weights of the unseen source evenly, and the same for shares 0 and 1: they alone decide the
            # interval of something that never happens.
            place = fate.permutation(SAMPLES)
            own = -np.log((place + 0.5) / SAMPLES) * weight_of_unseen
            ends = fate.integers(0, 2, (int(self._unseen.together.max(initial=-1)) + 1, SAMPLES // 2))
            best = ((place & 1)[:, None] ^ ends[:, place >> 1].T)[:, self._unseen.together]
            unseen = np.where(best, self._unseen.best, self._unseen.worst)
            # Columns are contiguous in memory, so that statistics add them up several times faster.
            total = (sums.T @ chance_weights()[:, : len(sums)].T).T
            self._drawn = (total[:, :-1] + own[:, None] * unseen) / (total[:, -1] + own)[:, None]
        return self._drawn


def shares_of_sources(columns: Sequence[Flags | Floats], source: Numbers) -> tuple[Floats, Floats]:
    """Return two arrays: the mean of each column over each source's images, (sources, columns), and each source's
    number of images, (sources,). Each column has one value per image.
    """
    _, place = np.unique(source, return_inverse=True)
    images = np.bincount(place).astype(np.float64)
    return np.stack([np.bincount(place, weights=one) / images for one in columns], axis=1), images


def in_groups(sums: Floats, fate: np.random.Generator) -> Floats:
    """Return `sums`, (sources, k). If there are more than `GROUPS` sources, add them up in `GROUPS` random groups."""
    if len(sums) <= GROUPS:
        return sums
    begins = np.arange(GROUPS) * len(sums) // GROUPS
    return np.add.reduceat(sums[fate.permutation(len(sums))], begins, axis=0)


@lru_cache(maxsize=1)
def chance_weights() -> Floats:
    """Return random weights of sources, (`SAMPLES`, `GROUPS`). They are drawn once and then reused, to save time."""
    weights = np.random.default_rng(1).standard_exponential((SAMPLES, GROUPS))
    weights.flags.writeable = False
    return weights


def matched(source: Numbers, way: Numbers, control_source: Numbers, control_way: Numbers) -> tuple[Flags, Floats]:
    """Return a flag for each test case, and a weight for each control image. `way` and `control_way` are numbers of
    control sets. Control images match test cases that have the same source and the same number. A flag is True if a
    control image matches. The weights make matching control images together weigh as much as their test cases.
    """
    ways = 1 + int(max(way.max(initial=0), control_way.max(initial=0)))
    own, other = source * ways + way, control_source * ways + control_way
    keys, place, controls = np.unique(other, return_inverse=True, return_counts=True)
    has_control = (way >= 0) & np.isin(own, keys)
    cases = np.bincount(np.searchsorted(keys, own[has_control]), minlength=len(keys))
    return has_control, cases[place] / controls[place]


def ratio_of(means: MeansOfSources, above: int, below: int, n: int, zero: str) -> Figure:
    """Return the mean of column `above` divided by the mean of column `below`. If the divisor is 0, the figure has no
    value, only the lower end of its interval. The text `zero` is then its reason.
    """

    def statistic(of: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(of[..., below] > 0, of[..., above] / of[..., below], np.inf)
        return found

    found = means.figure(statistic, n)
    if found.value is not None or not found.sources:
        return found
    if found.sources < FEWEST_SOURCES:
        return replace(found, why=zero)
    low, _ = means.ends(statistic)
    return replace(found, low=low, why=f"{zero}; at least {low:.1f} times")


def means_of_groups(
    values: Floats, weights: Floats, group: Numbers, groups: int, n: Numbers, lowest: float = 0.0
) -> tuple[list[Figure], Floats]:
    """Return the mean value of the sources of each group, such as a class, with an interval. Also return p-values of
    the hypothesis that a mean is 0; NaN with too few sources. `values` has one value per source, from `lowest` to 1.
    `group` is each source's group, and `n` each group's number of images.

    One imagined, additional source has the value `lowest` or 1 with equal chance. The interval comes from the beta
    distribution with the resulting mean and variance. The distribution is widened, as Student's t is wider than the
    normal distribution (Korn and Graubard 1998, Survey Methodology 24). If each source has one image, right or wrong,
    the interval without this widening is a Jeffreys interval.
    """
    from scipy import stats

    place = (values - lowest) / (1 - lowest)
    sources = np.bincount(group, minlength=groups)
    total = np.bincount(group, weights=weights, minlength=groups)
    usual = ratio(np.bincount(group, weights=weights**2, minlength=groups), total)
    weighted = np.bincount(group, weights=weights * place, minlength=groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = (weighted + usual / 2) / (total + usual)
        squares = np.bincount(group, weights=(weights * (place - shrunk[group])) ** 2, minlength=groups)
        away = squares + usual**2 * (shrunk**2 + (1 - shrunk) ** 2) / 2
        variance = away / (total + usual) ** 2 * (sources + 1) / (sources + 2)
        tails = stats.norm.ppf((1 + CONFIDENCE) / 2) / stats.t.ppf((1 + CONFIDENCE) / 2, np.maximum(sources, 1))
        worth = (shrunk * (1 - shrunk) / variance - 1) * tails**2
        parameters = shrunk * worth, (1 - shrunk) * worth
        ends = stats.beta.ppf([[(1 - CONFIDENCE) / 2], [(1 + CONFIDENCE) / 2]], *parameters)
        below = stats.beta.cdf(lowest / (lowest - 1), *parameters)
    mean = lowest + (1 - lowest) * ratio(weighted, total)
    low, high = np.minimum(lowest + (1 - lowest) * ends[0], mean), np.maximum(lowest + (1 - lowest) * ends[1], mean)
    means = []
    for number in range(groups):
        images, of = int(n[number]), int(sources[number])
        if not of:
            means.append(Figure(None, n=images, why="there is nothing to count"))
        elif of < FEWEST_SOURCES:
            means.append(Figure(float(mean[number]), n=images, sources=of, why=ONE_SOURCE))
        else:
            means.append(Figure(float(mean[number]), float(low[number]), float(high[number]), images, of))
    p_values = np.where(sources < FEWEST_SOURCES, np.nan, 2 * np.minimum(below, 1 - below))
    return means, p_values


def clustering(wrong: Floats, source: Numbers) -> Clustering:
    """Return how similar the values of images of one source are: the intra-class correlation (Donner 1986,
    International Statistical Review 54), the design effect 1 + (m - 1) x correlation (Kish 1965), and the effective
    number of images. `wrong` has one value per image. For m, count for each image how many images its source has, and
    take the mean over all images. In the design effect, a correlation below 0 counts as 0.
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


def needed_sources(sources: int, distance: float, reach: float) -> int | None:
    """Return the number of sources that would be enough to exclude a bound from the interval. `distance` is the
    distance of the figure from the bound, `reach` the half-width of the present interval. None if more than
    `MOST_NEEDED` times `sources` are needed. The half-width is taken as proportional to 1 / sqrt(number of sources).
    """
    if reach**2 > MOST_NEEDED * distance**2:
        return None
    return int(np.ceil(sources * (reach / distance) ** 2)) + 1


def adjusted(p_values: Floats) -> Floats:
    """Return p-values adjusted for several tests (Holm 1979, Scandinavian Journal of Statistics 6). NaN stays NaN."""
    order, tests = np.argsort(p_values), np.isfinite(p_values).sum()  # NaN comes last
    steps = np.maximum.accumulate(p_values[order] * (tests - np.arange(len(order))))
    adjusted_values = np.empty(len(order))
    adjusted_values[order] = np.minimum(steps, 1.0)
    return adjusted_values
