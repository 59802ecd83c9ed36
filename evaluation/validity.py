"""Estimate how many faults are on images that people find valid, from votes on a sample and all errors. Pure.

Each source weighs the same, and its test cases share its weight. The images are divided into strata, such as "wrong,
weather". People judge a sample of each stratum, and the law of total probability combines the strata. Images that the
model gets right have no faults. So the number of faults can be estimated without votes on these images. A stratum of
wrong images without votes gives bounds: none of its images is valid, or all are.

If every image has a score of how likely people find it valid, the score is used for all images and the votes correct
its errors (prediction-powered inference, Angelopoulos et al. 2023, Science 382; the weight of the score as in PPI++,
2023). A bad score does not bias a figure, but widens its interval.

Intervals are quantiles of random draws. Each draw gives sources random weights (the Bayesian bootstrap of Rubin 1981,
Annals of Statistics 9). One imagined source represents unseen sources: the model is right on all its images, or wrong
on all. Its wrong images are all valid, or all invalid. If sources weigh the same and each source's share is 0 or 1, the
interval is the mid-P form of the interval of Clopper and Pearson (1934, Biometrika 26). Otherwise, it is the mid-P form
of the bounds of Gaffke (2005). In each draw, judged images get random true states, based on each worker's votes. Images
of unknown validity are invalid for the lower end, and valid for the upper end (Manski 1989, J. Human Resources 24).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import Weighing
from core.figures import Columns, Figure, Floats, ratio
from evaluation.by_source import CONFIDENCE, SAMPLES, chance_weights, in_groups
from evaluation.samples import FEWEST_OF_STRATUM, Flags, Numbers, in_proportion
from evaluation.worker_errors import HARD, VALID, Ballots, drawn_states

TOGETHER = 100
"""Maximum number of random draws computed at a time, to limit memory."""
FEWEST_FOR_SCORE = 50
"""Minimum number of judged wrong images to use the score. With fewer, its best weight is unknown."""
LIKELY = 0.001
"""Two studies contradict each other if their joint result has a smaller probability."""


@dataclass(frozen=True)
class Judged(Columns):
    """Images with people's votes on some of them, column by column; all columns have one length."""

    source: Numbers
    wrong: Flags
    stratum: Numbers
    """Number of each image's stratum, from 0. Within a stratum, the judged images are a random sample."""
    votes_for: Numbers
    """Number of votes for "valid"; 0 without votes."""
    votes: Numbers
    """Number of all votes; 0 if the image was not judged, or its votes were discarded."""
    score: Floats | None = None
    """Predicted probability that people find the image valid, 0 to 1; None without a score."""
    undecided: Flags | None = None
    """True if people voted on the image without reaching a consensus. None if all votes reached one."""
    ballots: Ballots | None = None
    """Votes of single workers. Their `image` is an index into columns such as `source`. None to trust the consensus."""
    adjudicated: Flags | None = None
    """True if the study lead decided on the image, which overrules all votes. None if the lead decided on none."""
    outside: Flags | None = None
    """True if the sample could not include the image, for example because it was rejected. Its validity is unknown.
    None if the sample could include all images."""
    study: Numbers | None = None
    """Number of the study that judged the image, -1 for none; None if there is only one study."""
    studies: tuple[str, ...] = ()

    @property
    def decided(self) -> Flags:
        return self.votes > 0

    @property
    def valid(self) -> Flags:
        """True for images that people's consensus finds valid."""
        return self.decided & (2 * self.votes_for > self.votes)

    @property
    def without_consensus(self) -> Flags:
        none = np.zeros(len(self), bool)
        return none if self.undecided is None else self.undecided & ~self.decided

    @property
    def asked(self) -> Flags:
        """True for images that the sample could include and that people voted on."""
        voted = self.decided | self.without_consensus
        return voted if self.outside is None else voted & ~self.outside


@dataclass(frozen=True)
class ValidityEffect:
    """Error rate of a model, and estimates of how many errors are on valid images, as shares from 0 to 1. A figure
    without a value gives the reason `why`, and bounds `low` and `high` if the bounds are known.
    """

    as_measured: Figure
    times_valid: Figure
    """Share of wrong images, multiplied by the share of valid images among judged wrong images: the paper's method."""
    by_strata: Figure
    """Share of images that are valid and that the model gets wrong, estimated stratum by stratum."""
    with_score: Figure
    """Like `by_strata`, but estimated from automatic scores of all images. Votes correct the errors of these scores."""
    among_valid: Figure
    """Share of wrong images among the valid images: the error rate if reviewers removed all invalid images."""
    at_least: Figure
    """Smallest possible share of images that are valid and that the model gets wrong. Images without a consensus, and
    images of strata without votes, count as invalid."""
    at_most: Figure
    """Largest possible share of images that are valid and that the model gets wrong. Images without a consensus, and
    images of strata without votes, count as valid."""
    undecided: Figure
    """Share of judged images on which people reached no consensus."""
    score_weight: float | None
    """Weight that the score got, 0 (ignored) to 1. None without a score or with too few votes."""
    judged: int
    """Number of images on which people reached a consensus."""
    discarded: int
    control_answers: int | None
    """Number of answers to control items, which show how often workers err. None without each worker's votes."""
    not_judged_in: tuple[str, ...]
    chosen: str = ""
    """Description of how judged images were chosen; "" if at random within the strata."""


def validity_effect(
    judged: Judged, strata: Sequence[str], seed: int = 0, resamples: int = SAMPLES, weighing: Weighing = "source"
) -> ValidityEffect:
    """Return all figures on images that are valid and on which the model is wrong. `strata` are the strata's names."""
    voted = judged.asked
    own = [judged.stratum == number for number in range(len(strata))]
    missing = tuple(name for name, of in zip(strata, own, strict=True) if of.any() and not voted[of].any())
    table = _Table(judged, len(strata), weighing)
    drawn = _Draws(table, seed, resamples)
    against = contradiction_of(judged)
    why = against
    if not why and judged.wrong.any() and not (voted & judged.wrong).any():
        why = "no wrong image was judged" if voted.any() else "nobody judged an image yet"
    sources, n = len(table.sources), len(judged)
    measured = _figure(table.wrong_share, drawn.wrong, drawn.wrong, n, sources)
    least, most = (
        Figure(one, n=n, sources=sources, why="a bound on the value, without an interval") for one in table.bounds
    )
    discarded = int(judged.without_consensus.sum())
    undecided = Figure(None, why="nobody judged an image yet")
    if votes_on := int(voted.sum()):
        undecided = Figure(discarded / votes_on, n=votes_on, why="of the judged images alone, without an interval")

    times_valid = by_strata = with_score = among_valid = Figure(None, n=n, why=why)
    if not why:
        wrong_unknown, right_unknown = (_not_known(table, strata, wrong) for wrong in (1, 0))
        times_valid = _figure(table.times_valid, drawn.times_valid, drawn.times_valid, n, sources)
        by_strata = _figure(table.value, drawn.low, drawn.high, n, sources, wrong_unknown)
        among_valid = _figure(table.among_valid, *drawn.among_valid, n, sources, wrong_unknown or right_unknown)
        without = "the images have no score" if judged.score is None else wrong_unknown
        if not without and table.score_weight is None:
            without = f"fewer than {FEWEST_FOR_SCORE} wrong images were judged"
        with_score = Figure(None, n=n, why=without)
        if not without:
            with_score = _figure(table.mended, drawn.mended_low, drawn.mended_high, n, sources)
    elif voted.any() and not against:
        by_strata = _figure(table.value, drawn.low, drawn.high, n, sources, why)
    return ValidityEffect(
        *(measured, times_valid, by_strata, with_score, among_valid, least, most, undecided),
        score_weight=None if why else table.score_weight,
        judged=int(judged.decided.sum()),
        discarded=discarded,
        control_answers=None if judged.ballots is None else judged.ballots.controls,
        not_judged_in=missing,
    )


def _figure(value: float, low: Floats, high: Floats, n: int, sources: int, unknown: str = "") -> Figure:
    """Return a figure, without a value if `unknown` gives a reason. In the random draws `low`, images of unknown
    validity count as invalid; in `high`, as valid. The interval goes from a quantile of `low` to a quantile of `high`.
    """
    value = float(np.nanmedian(low)) if unknown else value
    ends = float(np.nanquantile(low, (1 - CONFIDENCE) / 2)), float(np.nanquantile(high, (1 + CONFIDENCE) / 2))
    ends = min(ends[0], value), max(ends[1], value)
    return Figure(None if unknown else value, *ends, n, sources, unknown)


def _not_known(table: _Table, strata: Sequence[str], wrong: int) -> str:
    """Return in words which strata of wrong (`wrong` 1) or right (0) images nobody judged; "" if none are unknown."""
    cells = np.flatnonzero(table.unknown[wrong::2])
    if (cells >= len(strata)).any():
        return "no other image was judged"
    return f"no image of {_listed([strata[one] for one in cells.tolist()])} was judged" if len(cells) else ""


def _listed(names: Sequence[str], most: int = 3) -> str:
    shown = [f"“{name}”" for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} other groups" if len(names) > most + 1 else "another group")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


class _Table:
    """Weights of all images, added up by source, and the judged images. *Cell* 2 * s holds the images of stratum number
    s that the model gets right. Cell 2 * s + 1 holds the stratum's wrong images. Images that the sample cannot include
    have other cells. A *pool* is a group of cells, all right or all wrong, with one estimate of the valid share.
    """

    def __init__(self, columns: Judged, strata: int, weighing: Weighing) -> None:
        self.held = columns
        self.sources, self.source, sizes = np.unique(columns.source, return_inverse=True, return_counts=True)
        self.of_source = sizes / sizes.mean() if weighing == "case" else np.ones(len(sizes))
        """Weight of each source, 1 on average."""
        self.weight = (self.of_source / sizes)[self.source]
        """Weight of each image. The images of a source share its weight equally."""
        self.cell = 2 * columns.stratum + columns.wrong
        cells = 2 * strata
        voted = columns.asked
        inside = np.ones(len(columns), bool) if columns.outside is None else ~columns.outside
        images, judged = (np.bincount(self.cell[one], minlength=cells) for one in (inside, voted))
        self.pool, self.raised = np.full(cells, -1), np.ones(cells)
        pools = list[bool]()
        for wrong in (True, False):
            own = np.arange(int(wrong), cells, 2)
            number, raised = _pools(images[own], judged[own])
            self.pool[own] = np.where(number >= 0, number + len(pools), -1)
            self.raised[own] = raised
            pools += [wrong] * (int(number.max(initial=-1)) + 1)
        self.of_wrong, self.pools = np.array(pools, bool), len(pools)
        """True for pools of wrong images, and the number of pools."""
        if columns.outside is not None:
            self.cell = self.cell + cells * columns.outside
            self.pool, self.raised = np.append(self.pool, np.full(cells, -1)), np.append(self.raised, np.ones(cells))
            images = np.bincount(self.cell, minlength=2 * cells)
        self.unknown = (self.pool < 0) & (images > 0)
        """True for cells whose share of valid images cannot be estimated."""
        self.asked = np.flatnonzero(voted & (self.pool[self.cell] >= 0))
        self.asked_pool = self.pool[self.cell[self.asked]]
        self.asked_weight = self.weight[self.asked] * self.raised[self.cell[self.asked]]
        self.score = np.zeros(len(columns)) if columns.score is None else columns.score

    @cached_property
    def masses(self) -> Floats:
        """Table with a row for each source. Columns: weight of the images in each pool (see `_Table`); weight of wrong
        images in no pool; weight of right images in no pool; sum of weight x score in each pool; weight of the source.
        """
        column = np.where(self.pool[self.cell] >= 0, self.pool[self.cell], self.pools + np.where(self.held.wrong, 0, 1))
        width = self.pools + 2

        def by_source(weights: Floats) -> Floats:
            cells = np.bincount(self.source * width + column, weights, len(self.sources) * width)
            return cells.reshape(len(self.sources), width).astype(np.float64)

        scores = by_source(self.weight * self.score)[:, : self.pools]
        return np.column_stack([by_source(self.weight), scores, self.of_source])

    @cached_property
    def mass(self) -> Floats:
        return self.masses.sum(axis=0) / len(self.sources)

    @cached_property
    def states(self) -> NDArray[np.int8]:
        """Random draws of the judged images' true states, (draws, images); one row if the consensus is trusted."""
        judged = self.held
        known = np.where(judged.valid, VALID, np.where(judged.decided, 0, HARD))[self.asked]
        if judged.ballots is None or not judged.ballots.telling:
            return known[None].astype(np.int8)
        voted = np.isin(self.asked, judged.ballots.image)
        settled = ~voted if judged.adjudicated is None else ~voted | judged.adjudicated[self.asked]
        return drawn_states(judged.ballots, self.asked, self.asked_pool, np.where(settled, known, -1))

    @cached_property
    def chance_valid(self) -> Floats:
        """Probability that each judged image is valid. If true states are drawn from workers' votes (`states`), each
        draw of "hard" (undecidable) counts one half. Otherwise, images without consensus get their pool's valid share.
        """
        valid, hard = (self.states == VALID).mean(axis=0), (self.states == HARD).mean(axis=0)
        if len(self.states) > 1:
            return valid + hard / 2
        known = self._by_pool((1 - hard) * self.asked_weight)
        share = np.where(known > 0, self._by_pool(valid * self.asked_weight) / np.maximum(known, 1e-300), 0.5)
        return valid + hard * share[self.asked_pool]

    def _by_pool(self, values: Floats) -> Floats:
        return np.bincount(self.asked_pool, values, self.pools).astype(np.float64)

    def _share(self, values: Floats) -> Floats:
        """Return, for each pool, the weighted mean of a value of its judged images, (pools,)."""
        return ratio(self._by_pool(values * self.asked_weight), self._by_pool(self.asked_weight))

    @cached_property
    def valid_mass(self) -> Floats:
        return self.mass[: self.pools] * self._share(self.chance_valid)

    @property
    def wrong_share(self) -> float:
        return float(self.mass[: self.pools][self.of_wrong].sum() + self.mass[self.pools])

    @property
    def value(self) -> float:
        return float(self.valid_mass[self.of_wrong].sum())

    @property
    def among_valid(self) -> float:
        """Share of wrong images among the valid images; NaN if no image is valid."""
        return float(ratio(self.valid_mass[self.of_wrong].sum(), self.valid_mass.sum()))

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest possible share of images that are both wrong and valid, if some validity is unknown."""
        wrong, left = self.of_wrong, self.held.without_consensus[self.asked]
        low, high = (self._share(np.where(left, valid, self.chance_valid)) for valid in (0, 1))
        mass, unknown = self.mass[: self.pools][wrong], float(self.mass[self.pools])
        return float((mass * low[wrong]).sum()), float((mass * high[wrong]).sum()) + unknown

    @property
    def times_valid(self) -> float:
        """Share of wrong images x share of valid images among the judged wrong ones."""
        own = self.of_wrong[self.asked_pool]
        return self.wrong_share * float(self.chance_valid[own].mean()) if own.any() else float("nan")

    @cached_property
    def score_weight(self) -> float | None:
        """Weight of the score, 0 to 1, that makes the interval shortest (PPI++, equation 13). In a single pool, the
        weight is cov(score, votes) / (var(score) x (1 + j / n)), if j of n images were judged. None without a score, or
        if too few wrong images were judged.
        """
        if self.held.score is None or self.of_wrong[self.asked_pool].sum() < FEWEST_FOR_SCORE:
            return None
        above = below = 0.0
        sizes = np.bincount(self.pool[self.cell][self.pool[self.cell] >= 0], minlength=self.pools)
        for number in np.flatnonzero(self.of_wrong):
            own = self.asked_pool == number
            if own.sum() < 2:
                continue
            covariance = np.cov(self.score[self.asked[own]], self.chance_valid[own], aweights=self.asked_weight[own])
            share, size = float(self.mass[number]), float(sizes[number])
            above += share**2 / own.sum() * covariance[0, 1]
            below += share**2 / own.sum() * covariance[0, 0] * (1 + own.sum() / size)
        return float(np.clip(above / below, 0.0, 1.0)) if below > 0 else 0.0

    @property
    def mended(self) -> float:
        wrong, pools = self.of_wrong, self.pools
        scored = self.mass[pools + 2 : -1]
        more = (self.score_weight or 0.0) * (scored - self.mass[:pools] * self._share(self.score[self.asked]))
        return float(np.clip(self.value + more[wrong].sum(), 0.0, self.wrong_share))


def _pools(images: Numbers, judged: Numbers) -> tuple[Numbers, Floats]:
    """Group cells into pools. Return the pool of each cell (-1 for none), and the weight of the cell's judged images.
    A cell has its own pool if enough of its images are judged (`FEWEST_OF_STRATUM`, or all). The other cells share one
    pool. This pool includes cells without judged images if the sample looks random.
    """
    number, raised = np.full(len(images), -1), np.ones(len(images))
    if not judged.any():
        return number, raised
    own = (judged > 0) & (judged >= np.minimum(images, FEWEST_OF_STRATUM))
    few = (images > 0) & ~own
    if few.any() and in_proportion(images, judged):
        for place in np.argsort(np.where(own, judged, judged.max() + 1), kind="stable"):
            if judged[few].sum() >= FEWEST_OF_STRATUM or not own.any():
                break
            own[place], few[place] = False, True
    else:
        few &= judged > 0
        raised[few] = images[few] / judged[few]
    number[own] = np.arange(int(own.sum()))
    number[few] = int(own.sum())
    return number, raised


class _Draws:
    """One array (draws,) per figure. Images of unknown validity count as invalid in `low`, and as valid in `high`."""

    def __init__(self, table: _Table, seed: int, draws: int) -> None:
        self._table, self._rng = table, np.random.default_rng(seed)
        own, self._place = np.unique(table.source[table.asked], return_inverse=True)
        self._own = table.masses[own]
        others = in_groups(np.delete(table.masses, own, axis=0), self._rng)
        self._others = (chance_weights()[:, : len(others)] @ others)[np.arange(draws) % SAMPLES]
        """Sums over the sources that have no judged image, (draws, columns)."""
        self._pool = (table.asked_pool[:, None] == np.arange(table.pools)).astype(np.float64)
        judged_sources = np.array([len(np.unique(self._place[table.asked_pool == one])) for one in range(table.pools)])
        weight = np.bincount(table.asked_pool, table.asked_weight, table.pools)
        self._one_more = ratio(weight, judged_sources)
        """Mean weight of a source's judged images in each pool. One imagined, additional source has this weight."""
        wrong_ones = self._place[table.of_wrong[table.asked_pool]]
        self._plain = len(wrong_ones) / max(len(np.unique(wrong_ones)), 1)
        """Mean number of judged images on which the model is wrong, over sources with such images."""
        begins = range(0, draws, TOGETHER)
        figures = np.concatenate([self._some(begin, min(TOGETHER, draws - begin)) for begin in begins], axis=1)
        self.wrong, self.low, self.high, self.mended_low, self.mended_high, self.times_valid = figures[:6]
        self.among_valid = figures[6], figures[7]

    def _some(self, begin: int, draws: int) -> Floats:
        table, rng, pools = self._table, self._rng, self._table.pools
        weights = rng.standard_exponential((draws, len(self._own)))
        sums = self._others[begin : begin + draws] + weights @ self._own
        sums, total = sums[:, :-1], sums[:, -1]
        # One additional source weighs as much as the source of a typical test case.
        more = rng.standard_exponential(draws) * (table.of_source**2).sum() / table.of_source.sum()
        total = total + more
        # All its images are wrong, or all are right. They are divided among pools like the known ones.
        is_wrong = rng.random(draws) < 0.5
        mass = table.mass[: pools + 2]
        of_wrong = np.append(table.of_wrong, [True, False])
        for wrong in (True, False):
            known = np.where(of_wrong == wrong, mass, 0.0)
            if not known.any():
                known[pools if wrong else pools + 1] = 1.0
            added = np.where(is_wrong == wrong, more, 0.0)[:, None] * (known / known.sum())
            sums[:, : pools + 2] += added
            scores = ratio(table.mass[pools + 2 : -1], table.mass[:pools])
            sums[:, pools + 2 :] += added[:, :pools] * np.nan_to_num(scores)
        shares = sums / total[:, None]
        mass_of, unknown, scored = shares[:, :pools], shares[:, pools : pools + 2], shares[:, pools + 2 :]

        state = table.states[np.arange(begin, begin + draws) % len(table.states)]
        counts = weights[:, self._place] * table.asked_weight
        size = counts @ self._pool
        valid, hard = (counts * (state == VALID)) @ self._pool, (counts * (state == HARD)) @ self._pool
        sizes = np.stack([size, size])
        ends = np.stack([valid, valid + hard])
        for wrong in (True, False):
            own = np.flatnonzero(table.of_wrong == wrong)
            if not len(own):
                continue
            # One additional judged source is divided among the pools by their masses: none or all of its images are
            # valid. Each pool then gets the rest of a full source, which is valid as often as all pools are. So a pool
            # with few judged images gets more than its share of uncertainty, but is not drawn to one half.
            share = table.mass[own] / table.mass[own].sum()
            for mass, chance in ((share, np.full((2, draws, 1), 0.5)), (1 - share, None)):
                if not (mass > 1e-9).any():
                    continue
                if chance is None:
                    chance = (ratio(ends[:, :, own], sizes[:, :, own]) @ share)[:, :, None]
                one = rng.gamma(np.maximum(mass, 1e-9), size=(draws, len(own))) * self._one_more[own]
                luck = rng.random((draws, 1 if mass is share else len(own)))
                ends[:, :, own] += one * (luck < chance)
                sizes[:, :, own] += one
        low, high = ratio(ends, sizes)

        own = table.of_wrong
        both_low = (mass_of * low)[:, own].sum(axis=1)
        both_high = (mass_of * high)[:, own].sum(axis=1) + unknown[:, 0]
        right_low = (mass_of * low)[:, ~own].sum(axis=1)
        right_high = (mass_of * high)[:, ~own].sum(axis=1) + unknown[:, 1]
        wrong_share = mass_of[:, own].sum(axis=1) + unknown[:, 0]
        weight = table.score_weight or 0.0
        judged_score = ratio((counts * table.score[table.asked]) @ self._pool, size)
        mend = weight * np.nan_to_num(scored - mass_of * judged_score)[:, own].sum(axis=1)
        plain = weights[:, self._place] * own[table.asked_pool]
        more_judged = rng.standard_exponential(draws) * self._plain
        times = ratio(
            (plain * (state == VALID)).sum(axis=1) + more_judged * (rng.random(draws) < 0.5),
            (plain * (state != HARD)).sum(axis=1) + more_judged,
        )
        return np.stack(
            [
                wrong_share,
                both_low,
                both_high,
                np.clip(both_low + mend, 0.0, wrong_share),
                np.clip(both_high + mend, 0.0, wrong_share),
                wrong_share * times,
                ratio(both_low, both_low + right_high),
                ratio(both_high, both_high + right_low),
            ]
        )


def contradiction_of(judged: Judged) -> str:
    """Return a sentence on why two studies cannot both be true; "" if they can, or if there is only one study.

    If a model is wrong on a share e of all images, and at most a share v of the wrong images is valid, then at most a
    share 1 - e x (1 - v) of all images is valid. Study A gives v. Study B gives e and the number of its valid images.
    The studies contradict each other if study B has too many valid images for this limit (probability below `LIKELY`).
    """
    from scipy import stats

    if judged.study is None or len(judged.studies) < 2:
        return ""
    for judged_all, judged_wrong in permutations(range(len(judged.studies)), 2):
        own = judged.decided & (judged.study == judged_all)
        other = judged.decided & judged.wrong & (judged.study == judged_wrong)
        if not own.any() or not other.any():
            continue
        # The largest likely share of valid images, not the measured one: a small study contradicts nothing.
        good, n = int(judged.valid[other].sum()), int(other.sum())
        valid_of_wrong = float(stats.binomtest(good, n).proportion_ci(1 - 2 * LIKELY).high)
        error, valid, of_all = float(judged.wrong[own].mean()), int(judged.valid[own].sum()), int(own.sum())
        most = 1 - error * (1 - valid_of_wrong)
        if stats.binom.sf(valid - 1, of_all, most) < LIKELY:
            return (
                f"the studies “{judged.studies[judged_wrong]}”, with {good:,} of {n:,} wrong images valid, and "
                f"“{judged.studies[judged_all]}” contradict each other. These figures cannot both be true: if the "
                f"model is wrong on {100 * error:.1f} % of the images, and at most {100 * valid_of_wrong:.1f} % of "
                f"those are valid, at most {100 * most:.1f} % of all images are valid, but {valid:,} of {of_all:,} "
                "were found to be. Were both samples asked the same question?"
            )
    return ""
