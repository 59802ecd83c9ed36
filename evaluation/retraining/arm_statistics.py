"""Compare several trainings by their mean gains on the same images (the paper's RQ3). The intervals account for the
random choice of seeds and of sources. Each source weighs the same, and its images share its weight. Pure.

Every seed meets every source, so the variance of a mean has a part from the seeds and a part from the sources (Searle,
Casella and McCulloch 1992, Variance Components). The half-width of each part uses Student's t with the degrees of
freedom of this part. The squares of the half-widths add up (Howe 1974, Journal of the American Statistical Association
69). A share gets Wilson's interval (1927) with an effective sample size (Korn and Graubard 1998, Survey Methodology
24). If all images are right, or all are wrong, the interval is the exact interval for the number of sources (Clopper
and Pearson 1934). A difference gets its interval from the intervals of its two shares and their correlation (MOVER; Zou
and Donner 2008, Statistics in Medicine 27). A ratio gets Fieller's interval (1954). `experiments.coverage.of_training`
measures how often all these intervals contain the true value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np

from core.evaluation_results import AUGMENTED, CONTROL, FEWEST_SEEDS, ON_GENERATED, ORIGINAL, ArmRow
from core.figures import Figure, Flags, Floats, Numbers
from evaluation.by_source import CONFIDENCE
from study.intervals import wilson_ends

GENERATED, BY_VOTES, RANKED = "+ generated, all", "+ generated, valid", "+ generated, best ranked half"
ARMS = (ORIGINAL, AUGMENTED, CONTROL, GENERATED, BY_VOTES, RANKED)
CONTROLS = (AUGMENTED, CONTROL)
"""Arms (training data sets) without edits. Edits explain a gain only if an arm with generated images beats these."""
FEWEST_SOURCES = 5
RARE = 5
"""Minimum number of sources with a wrong image, and of sources with a right one, to estimate how alike the images of a
source are. With fewer, a source counts as one image."""
FEWEST_SEEDS_OF_RATIO = 5
"""Minimum number of seeds. With fewer, the interval of a recovered share misses the truth in up to 9 % of cases."""
FARTHEST = 1000.0
"""Maximum distance between a figure and an end of its interval. Wider intervals are useless and are not returned."""


@dataclass(frozen=True)
class Measured:
    """Right answers on one set of images, by the models of one training arm. Each seed has its model."""

    source: Numbers
    right: Flags | Floats
    """Right answers, (seeds, images). For a segmenter the share of right pixels of each image, 0 to 1."""
    trained: bool = True
    """False for a single model without seeds, such as the model before training."""


@dataclass(frozen=True)
class WonBack:
    """Part of the baseline's accuracy loss on generated images that one of the trainings (an arm) recovers."""

    arm: str
    share: Figure
    """(arm on generated - baseline on generated) / (baseline on original - baseline on generated). 1 means that the arm
    recovers the whole loss."""


def beside_controls(
    measured: Mapping[str, Mapping[str, Measured]], on: str = ON_GENERATED
) -> dict[tuple[str, str], Figure]:
    """Return the gain of each arm with generated images over each control, by (arm, control), on the set `on`."""
    gains = {}
    for control in (one for one in CONTROLS if on in measured.get(one, {})):
        pairs = {name: {on: sets[on]} for name, sets in measured.items()}
        for row in Arms(pairs, control).rows():
            if row.arm not in (ORIGINAL, *CONTROLS):
                gains[row.arm, control] = row.gain
    return gains


class Arms:
    """Arms (trainings with different data) of a comparison, measured on the same sets with equally many seeds."""

    def __init__(self, measured: Mapping[str, Mapping[str, Measured]], baseline: str) -> None:
        """`measured` is by arm, then by set. Raises ValueError if images or seeds differ from the `baseline`'s."""
        self._baseline = baseline
        base = measured[baseline]
        self.seeds = len(next(iter(base.values())).right)
        for arm, sets in measured.items():
            for name, result in sets.items():
                if result.right.shape != base[name].right.shape or (result.source != base[name].source).any():
                    raise ValueError(
                        f"{arm} was measured on other images of {name}, or by other seeds, than {baseline}"
                    )
        self._means = {arm: {name: _Mean(result) for name, result in sets.items()} for arm, sets in measured.items()}

    def rows(self) -> tuple[ArmRow, ...]:
        """Return the figures of each arm on each set."""
        itself, base = Figure(None, why="the others are compared with it"), self._means[self._baseline]
        return tuple(
            ArmRow(
                *(arm, name, self.seeds, one.figure(one.value, one.ends)),
                gain=itself if arm == self._baseline else _difference(one, base[name]),
            )
            for arm, sets in self._means.items()
            for name, one in sets.items()
        )

    def won_back(self, original: str, generated: str) -> tuple[WonBack, ...]:
        """Return the recovered share of each arm except the baseline. The share has no value with too few seeds or
        sources. It also has no value if the baseline's loss on generated images is not clearly above 0.
        """
        base = self._means[self._baseline]
        others = (arm for arm in self._means if arm != self._baseline)
        return tuple(
            WonBack(arm, _won_back(self._means[arm][generated], base[generated], base[original])) for arm in others
        )


class _Mean:
    def __init__(self, measured: Measured) -> None:
        self.ids, number, size = np.unique(measured.source, return_inverse=True, return_counts=True)
        self.table: Floats = np.stack([np.bincount(number, weights=one) / size for one in measured.right.astype(float)])
        """Share of each source's images that the model gets right, for each seed: (seeds, sources)."""
        self.seeds, self.sources = self.table.shape
        self.images, self.trained = measured.right.shape[1], measured.trained
        self.value = float(self.table.mean())

    @cached_property
    def variances(self) -> Floats:
        return _variances(self.table)

    @cached_property
    def ends(self) -> tuple[float, float]:
        of_sources, share = self.table.mean(axis=0), self.value
        if share in (0.0, 1.0):
            from scipy import stats

            exact = stats.binomtest(round(share * self.sources), self.sources).proportion_ci(CONFIDENCE)
            return float(exact.low), float(exact.high)
        reach = _reach(self.variances, self.seeds, self.sources)
        normal = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        worth = share * (1 - share) * (normal / reach) ** 2 if reach > 0 else float(self.sources)
        if min((of_sources < 1).sum(), (of_sources > 0).sum()) < RARE:
            worth = min(worth, float(self.sources))
        return wilson_ends(share, worth)

    def figure(self, value: float, ends: tuple[float, float], other: _Mean | None = None) -> Figure:
        why = _too_few(self) or (_too_few(other) if other is not None else "")
        if why:
            return Figure(value, n=self.images, sources=self.sources, why=why)
        return Figure(value, *ends, self.images, self.sources)


def _too_few(one: _Mean, seeds: int = FEWEST_SEEDS) -> str:
    if one.seeds < seeds and one.trained:
        return f"too few trainings to say: it takes {seeds} an arm"
    if one.sources < FEWEST_SOURCES:
        return f"too few sources to say: it takes {FEWEST_SOURCES}"
    return ""


def _variances(table: Floats) -> Floats:
    """Return the variance of the mean of `table`, (seeds, sources), in three parts: sources, seeds, and the rest."""
    seeds, sources = table.shape
    of_sources, of_seeds = table.mean(axis=0), table.mean(axis=1)
    by_sources = of_sources.var(ddof=1) / sources if sources > 1 else 0.0
    by_seeds = left = 0.0
    if seeds > 1 and sources > 1:
        by_seeds = of_seeds.var(ddof=1) / seeds
        away = table - of_sources - of_seeds[:, None] + table.mean()
        left = (away**2).sum() / ((seeds - 1) * (sources - 1)) / (seeds * sources)
    return np.array([by_sources, by_seeds, left])


def _reach(variances: Floats, seeds: int, sources: int) -> float:
    by_sources, by_seeds, left = variances
    square = _student(sources - 1) ** 2 * by_sources
    if by_seeds > left:  # the variance by sources already includes the rest
        square += _student(seeds - 1) ** 2 * (by_seeds - left)
    return float(np.sqrt(max(square, 0.0)))


@lru_cache
def _student(freedom: int) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def _difference(one: _Mean, other: _Mean) -> Figure:
    spread = [max(part[0] + max(part[1] - part[2], 0.0), 0.0) for part in (one.variances, other.variances)]
    alike = 0.0
    if one.sources > 1 and min(spread) > 0:
        together = np.cov(one.table.mean(axis=0), other.table.mean(axis=0))[0, 1] / one.sources
        alike = float(np.clip(together / np.sqrt(spread[0] * spread[1]), -1, 1))

    def away(mine: float, others: float) -> float:
        return float(np.sqrt(max(mine**2 + others**2 - 2 * alike * mine * others, 0.0)))

    (low, high), (other_low, other_high) = one.ends, other.ends
    value = one.value - other.value
    down = away(one.value - low, other_high - other.value)
    up = away(high - one.value, other.value - other_low)
    return one.figure(value, (value - down, value + up), other)


def _won_back(arm: _Mean, after: _Mean, before: _Mean) -> Figure:
    """Return (arm - after) / (before - after): the part of the fall from `before` to `after` that `arm` regains."""
    from scipy import optimize

    gain, lost = arm.value - after.value, before.value - after.value
    why = _too_few(before, FEWEST_SEEDS_OF_RATIO) or _too_few(after, FEWEST_SEEDS_OF_RATIO)
    if lost <= 0:
        why = "the model loses nothing on the generated images"
    figure = Figure(None, n=arm.images, sources=arm.sources, why=why)
    if why:
        return figure
    ids, sources = np.union1d(after.ids, before.ids), min(after.sources, before.sources)

    def spread_out(one: _Mean) -> Floats:
        """Return the deviations of `one` from its mean, (seeds, sources in `ids`); 0 for a source that `one` lacks. The
        deviations are scaled up, so that these zeros do not change the mean deviation of a seed.
        """
        found = np.zeros((one.seeds, len(ids)))
        found[:, np.searchsorted(ids, one.ids)] = (one.table - one.value) * len(ids) / one.sources
        return found

    top, bottom = spread_out(arm) - spread_out(after), spread_out(before) - spread_out(after)
    low, none, high = (_variances(top - share * bottom) for share in (-1.0, 0.0, 1.0))

    def reach(share: float) -> float:
        """Return half the width of the interval of `gain - share * lost`. The variance is quadratic in `share`."""
        return _reach(none + share * (high - low) / 2 + share**2 * ((high + low) / 2 - none), arm.seeds, sources)

    def beyond(share: float) -> float:
        """Return a positive number if the data contradict this share."""
        return abs(gain - share * lost) - reach(share)

    def end(direction: int) -> float | None:
        step = 0.01
        while beyond(value + direction * step) <= 0:
            step *= 2
            if step > FARTHEST:
                return None
        return float(optimize.brentq(beyond, value, value + direction * step))

    value = gain / lost
    if lost <= _reach(_variances(bottom), arm.seeds, sources):
        return replace(figure, why="what the model loses on the generated images may be chance")
    if beyond(value) >= 0:
        return replace(figure, value=value, why="no interval, since all sources are alike in it")
    low_end, high_end = end(-1), end(1)
    if low_end is None or high_end is None:
        return replace(figure, value=value, why="too few sources to say: its interval has no end")
    return replace(figure, value=value, low=low_end, high=high_end)
