"""What people's votes on a sample make of an error rate on all images: how many faults are valid ones. Pure.

The images are parted into strata, such as "wrong, weather": a sample of each is judged with one question, and the law
of total probability puts them together. Where every image has a score of how likely people find it valid, the score is
used for all images and the votes mend its mistakes (prediction-powered inference, Angelopoulos et al. 2023, Science
382; the weight of the score as in PPI++, 2023). A bad score makes no figure wrong, only its interval wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats, ratio
from evaluation.by_source import CONFIDENCE, MeansOfSources

RESAMPLES = 4000
TOGETHER = 100
"""Resamples that are drawn at a time: how often each source is drawn lies in memory for all of them."""
MANY = 500
"""From so many sources without a judged image on, sums over them are drawn and not the sources."""


@dataclass(frozen=True)
class Judged:
    """Images of which people judged some, column by column; all columns have one length."""

    source: NDArray[np.int64]
    """The number of the source of each image."""
    wrong: NDArray[np.bool_]
    """Whether the model under test is wrong."""
    stratum: NDArray[np.int64]
    """The number of the stratum of each image, from 0. Within one the judged images are a random sample."""
    votes_for: NDArray[np.int64]
    """Of how many votes the image is valid; 0 where nobody voted."""
    votes: NDArray[np.int64]
    """How many votes it has; 0 where it was not judged, or its votes were discarded."""
    score: Floats | None = None
    """How likely people find each image valid, 0 to 1; None where there is no such score."""

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class StratumRow:
    """One stratum: what it is of all images, and how much of it is valid."""

    name: str
    images: int
    judged: int
    valid: int
    share_valid: float | None
    """None where nobody judged any of it."""


@dataclass(frozen=True)
class ValidityEffect:
    """An error rate, and what is left of it when only valid images count. All shares, 0 to 1."""

    as_measured: Figure
    """Wrong images of all."""
    times_valid: Figure
    """The same times the share of judged wrong images that are valid: the paper's way."""
    by_strata: Figure
    """Wrong and valid images of all, by the strata."""
    with_score: Figure
    """The same by the score of all images, mended by the votes; without a value where there is no score."""
    among_valid: Figure
    """Wrong images of the valid ones: the error rate that a perfect reviewer would see."""
    score_weight: float | None
    """How much of the score is used: 0 for nothing, 1 for all of it."""
    judged: int
    not_judged_in: tuple[str, ...]
    """Strata of which nobody judged an image: what holds of them is not known, and the figures leave them out."""
    rows: tuple[StratumRow, ...]


def validity_effect(held: Judged, strata: Sequence[str], seed: int = 0, resamples: int = RESAMPLES) -> ValidityEffect:
    """All of it. `strata` are their names. Intervals by a bootstrap in which sources are drawn with replacement, each
    with its images and their votes: they count how sources differ, and how people do (Davison and Hinkley 1997, section
    3.8). Of a stratum whose judged images are all alike, which a bootstrap would take for certain, the share of valid
    ones is drawn from its Jeffreys posterior.
    """
    judged = held.votes > 0
    valid = np.where(judged, 2 * held.votes_for > held.votes, False)
    rows = tuple(_row(name, held.stratum == number, judged, valid) for number, name in enumerate(strata))
    missing = tuple(row.name for row in rows if row.images and not row.judged)
    known = ~np.isin(held.stratum, [number for number, row in enumerate(rows) if not row.judged])
    if not known.any() or not (judged & held.wrong).any():
        nobody = "nobody judged an image yet" if not judged.any() else "no wrong image was judged"
        none = Figure(None, n=len(held), why=nobody)
        _, number = np.unique(held.source, return_inverse=True)
        wrong = ratio(np.bincount(number, weights=held.wrong), np.bincount(number))
        measured = MeansOfSources(wrong[:, None], seed=seed).figure(lambda of: of[..., 0], len(held))
        return ValidityEffect(measured, none, none, none, none, None, int(judged.sum()), missing, rows)
    part = Judged(
        held.source[known],
        held.wrong[known],
        held.stratum[known],
        held.votes_for[known],
        held.votes[known],
        None if held.score is None else held.score[known],
    )
    weight = _score_weight(part, len(strata))
    sums = _Sums(part, len(strata), weight or 0.0)
    figures, drawn = sums.figures(), sums.resampled(seed, resamples)
    sources = len(np.unique(part.source))

    def figure(place: int) -> Figure:
        value, spread = float(figures[0, place]), drawn[:, place]
        low, high = np.nanquantile(spread, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return Figure(value, min(float(low), value), max(float(high), value), len(part), sources)

    with_score = Figure(None, n=len(part), why="the images have no score") if weight is None else figure(3)
    return ValidityEffect(
        figure(0), figure(1), figure(2), with_score, figure(4), weight, int(judged.sum()), missing, rows
    )


def _row(name: str, own: NDArray[np.bool_], judged: NDArray[np.bool_], valid: NDArray[np.bool_]) -> StratumRow:
    asked, good = int((own & judged).sum()), int((own & valid).sum())
    return StratumRow(name, int(own.sum()), asked, good, good / asked if asked else None)


class _Sums:
    """Sums over sources. Those with judged images are drawn one by one, of the others the sums alone."""

    def __init__(self, held: Judged, strata: int, weight: float) -> None:
        known, number = np.unique(held.source, return_inverse=True)
        self._sources, self._strata, self._weight = len(known), strata, weight
        score = np.zeros(len(held)) if held.score is None else held.score

        def by_stratum(weights: Floats | None) -> Floats:
            cells = np.bincount(number * strata + held.stratum, weights, self._sources * strata)
            return cells.reshape(self._sources, strata).astype(np.float64)

        wrong = np.bincount(number, weights=held.wrong, minlength=self._sources)
        rows = np.column_stack([by_stratum(None), by_stratum(held.wrong * score), wrong])
        """By source: images of each stratum, the scores of the wrong ones of each, and how many are wrong."""
        asked = np.flatnonzero(held.votes)
        own, self._place = np.unique(number[asked], return_inverse=True)
        self._own, self._rest = rows[own], np.delete(rows, own, axis=0)
        self._stratum = (held.stratum[asked][:, None] == np.arange(strata)).astype(np.float64)
        self._wrong, self._score = held.wrong[asked].astype(np.float64), score[asked]
        self._valid = (2 * held.votes_for[asked] > held.votes[asked]).astype(np.float64)
        judged = self._stratum.sum(axis=0)
        good = self._valid @ self._stratum
        self._alike = [
            (number, 0.5 + float(good[number]), 0.5 + float(judged[number] - good[number]))
            for number in range(strata)
            if judged[number] and good[number] in (0, judged[number])
        ]
        """Strata whose judged images are all valid, or all not, with the parameters of their posterior."""

    def figures(self) -> Floats:
        """As they are: (1, 5), see `_of`."""
        return self._of(np.ones((1, len(self._own))), self._rest.sum(axis=0)[None], self._valid[None])

    def resampled(self, seed: int, resamples: int) -> Floats:
        """Of so many resamples: (resamples, 5)."""
        chance, parts = np.random.default_rng(seed), []
        for begin in range(0, resamples, TOGETHER):
            some = min(TOGETHER, resamples - begin)
            valid = np.repeat(self._valid[None], some, axis=0)
            for number, good, bad in self._alike:
                valid[:, self._stratum[:, number] > 0] = chance.beta(good, bad, size=(some, 1))
            draws = chance.binomial(self._sources, len(self._own) / self._sources, size=some)
            times = times_drawn(chance, draws, len(self._own))
            parts.append(self._of(times, self._others(chance, self._sources - draws), valid))
        return np.concatenate(parts)

    def _others(self, chance: np.random.Generator, draws: NDArray[np.int64]) -> Floats:
        """The sums over so many draws of sources of which nobody judged an image, (len(draws), columns). Where those
        are `MANY`, the sums have their normal distribution (central limit theorem), and no source is drawn.
        """
        if len(self._rest) < MANY:
            return times_drawn(chance, draws, len(self._rest)) @ self._rest
        mean, root = self._spread
        away = np.sqrt(draws)[:, None] * (chance.standard_normal((len(draws), len(mean))) @ root)
        return np.maximum(draws[:, None] * mean + away, 0.0)

    @cached_property
    def _spread(self) -> tuple[Floats, Floats]:
        """Mean of the sources without judged images, and a root of their covariance, which may have no Cholesky one."""
        mean: Floats = self._rest.mean(axis=0)
        values, vectors = np.linalg.eigh(self._rest.T @ self._rest / len(self._rest) - np.outer(mean, mean))
        return mean, np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T

    def _of(self, times: Floats, others: Floats, valid: Floats) -> Floats:
        """As measured; times the share that is valid; by the strata; with the score; among the valid ones.

        `times` is how often each source with judged images counts, (resamples, sources), `others` the sums over the
        other sources, (resamples, columns), and `valid` what people say of the judged images, (resamples, judged).
        """
        sums = times @ self._own + others
        size, scores, wrong = sums[:, : self._strata], sums[:, self._strata : -1], sums[:, -1]
        total, counts = size.sum(axis=1), times[:, self._place]
        asked = counts @ self._stratum

        def by_strata(of_judged: Floats, of_all: Floats | None = None) -> Floats:
            """The mean over all images of what is known of the judged ones, and of what is known of all."""
            mean = ratio((counts * of_judged) @ self._stratum, asked)
            if of_all is not None:
                mean = mean + ratio(of_all, size)
            found: Floats = np.nansum(np.where(size > 0, size * mean, 0.0), axis=1) / total
            return found

        good = ratio((counts * self._wrong * valid).sum(axis=1), (counts * self._wrong).sum(axis=1))
        both = by_strata(self._wrong * valid)
        mended = by_strata(self._wrong * (valid - self._weight * self._score), self._weight * scores)
        return np.stack([wrong / total, wrong / total * good, both, mended, ratio(both, by_strata(valid))], axis=1)


def _score_weight(held: Judged, strata: int) -> float | None:
    """How much of the score makes the interval shortest: the covariance of score and votes over the variance of the
    score, times 1 / (1 + judged / all), within strata (PPI++, equation 13); 0 to 1. None without a score.
    """
    if held.score is None:
        return None
    valid, judged = 2 * held.votes_for > held.votes, held.votes > 0
    above = below = 0.0
    for number in range(strata):
        own = held.stratum == number
        asked = own & judged & held.wrong
        if asked.sum() < 2:
            continue
        covariance = np.cov(held.score[asked], valid[asked])
        size = float(own.sum())
        above += size**2 / asked.sum() * covariance[0, 1]
        below += size**2 / asked.sum() * covariance[0, 0] * (1 + asked.sum() / size)
    return float(np.clip(above / below, 0.0, 1.0)) if below > 0 else 0.0


def times_drawn(chance: np.random.Generator, draws: NDArray[np.int64], sources: int) -> Floats:
    """How often each of so many sources is drawn in each resample, which makes `draws` draws: (resamples, sources)."""
    drawn = chance.integers(0, sources, draws.sum(), np.int32) if sources else np.zeros(0, np.int32)
    drawn += np.repeat((np.arange(len(draws)) * sources).astype(np.int32), draws)
    return np.bincount(drawn, minlength=len(draws) * sources).reshape(len(draws), sources).astype(np.float64)


def expected_width(shares: Sequence[float], sizes: Sequence[int], valid: float = 0.8) -> float:
    """Expected width of the interval of wrong and valid images. `shares` are those of the strata of all images."""
    from scipy import stats

    variance = sum(share**2 * valid * (1 - valid) / size for share, size in zip(shares, sizes, strict=True) if size)
    return float(2 * stats.norm.ppf((1 + CONFIDENCE) / 2) * variance**0.5)


def sample_sizes(images: Sequence[int], judged: int, least: int = 5) -> tuple[int, ...]:
    """How many images of each stratum to judge: first `least` of each, the others in proportion to the strata."""
    sizes = [min(number, least) for number in images]
    while (left := judged - sum(sizes)) > 0:
        open_ones = [place for place, number in enumerate(images) if sizes[place] < number]
        if not open_ones:
            break
        total = sum(images[place] for place in open_ones)
        wished = {place: left * images[place] / total for place in open_ones}
        given = 0
        for place in sorted(open_ones, key=lambda one: -wished[one]):
            more = min(images[place] - sizes[place], max(1, int(wished[place])), left - given)
            sizes[place] += more
            given += more
            if given == left:
                break
    return tuple(sizes)
