"""Measures how often the 95 % intervals of Evaluate contain the truth, in simulated worlds where it is known. Pure.

A world has sources with test cases and an error rate. Errors on the same source are correlated. Each world is drawn
many times, and the functions behind the page compute an interval each time. If few outcomes are possible, intervals
contain the truth more often than 95 %. For example, if nothing is ever wrong, every interval contains the error 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from core.figures import Figure, Floats, Numbers
from core.progress import OnCount
from evaluation.by_source import LEAST, MeansOfSources, means_of_groups, ratio_of
from evaluation.segmentation import means_of_overlaps, miou_of_set
from experiments.coverage import of_factors, of_gate, of_score, of_training, of_votes
from experiments.coverage.covered import Covered, Measurement, covered, table

SOURCES = (5, 10, 30, 100, 500)
ERRORS = (0.0, 0.001, 0.005, 0.02, 0.1, 0.5, 0.98, 1.0)
CORRELATIONS = (0.0, 0.3, 0.7)
SIZES: Mapping[str, tuple[int, ...]] = {"equal": (5,), "skewed": (1, 1, 1, 2, 2, 3, 5, 8, 20)}
"""Named lists of how many test cases a source can have. All numbers in a list are equally likely."""
REPETITIONS = 1000
AGAIN = 10
"""Factor that multiplies the number of repetitions when a coverage below the goal is measured again."""
AT_ONCE = 50
"""Number of repetitions that the simulation of the mIoU computes together."""
PARTS = 20
"""Number of parts of an image in the simulation of the mIoU. The segmenter gets each part right or wrong as a whole."""
LARGEST_CHANGE = 0.9
"""Largest loss that an edit causes in the probability of the true class. The loss is random, from 0 to this value."""


@dataclass(frozen=True)
class World:
    """A simulated world in which intervals are tested."""

    sources: int
    cases: str
    """Key of `SIZES`, which lists the possible numbers of test cases of a source."""
    error: float
    correlation: float

    def latent(self, error: float, rank: Floats) -> Floats:
        """Return each source's error probability: a quantile of a beta distribution with the mean `error`. `rank` tells
        which quantile each source gets, 0 to 1. For example, 0.5 is the median.
        """
        if error in (0.0, 1.0) or not self.correlation:
            return np.full(rank.shape, error)
        from scipy import stats

        worth = 1 / self.correlation - 1
        grid = np.linspace(0, 1, 4001)
        return np.interp(rank, grid, stats.beta.ppf(grid, error * worth, (1 - error) * worth))

    def sizes(self, chance: np.random.Generator, shape: tuple[int, int]) -> Numbers:
        """Return random numbers of test cases per source, as an array of this shape."""
        return chance.choice(np.array(SIZES[self.cases]), size=shape)


def _error(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    shares, _ = _drawn(world, chance, repetitions, world.error)
    return _figures(shares), world.error


def _error_by_case(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    shares, sizes = _drawn(world, chance, repetitions, world.error)
    columns = zip(shares.T, sizes.T.astype(np.float64), strict=True)
    return [MeansOfSources(one[:, None], size).figure(lambda of: of[..., 0], 0) for one, size in columns], world.error


def _error_of_class(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    shares, _ = _drawn(world, chance, repetitions, world.error)
    return _groups(shares.T, 0.0), world.error


def _excess(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    """Simulate error on test cases minus error on reconstructions. The true value is 0, as edits do nothing here."""
    return _figures(*_pair(world, chance, repetitions, world.error)), 0.0


def _difference(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    """Simulate the error on test cases minus the error on originals. Edits make half of the right answers wrong."""
    after = (1 + world.error) / 2
    return _figures(*_pair(world, chance, repetitions, after)), after - world.error


def _factor(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    after = (1 + world.error) / 2
    generated, original = _pair(world, chance, repetitions, after)
    means = MeansOfSources(np.concatenate([original, generated], axis=1))
    figures = [ratio_of(means, repetitions + at, at, 0, "none is wrong") for at in range(repetitions)]
    return figures, after / world.error if world.error else np.inf


def _change(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    """Simulate the change of the true class's probability. `world.error` is the share of sources where it changes."""
    changed = chance.random((repetitions, world.sources)) < world.error
    change = -LARGEST_CHANGE * chance.random(changed.shape) * changed
    return _groups(change, -1.0), -LARGEST_CHANGE * world.error / 2


def _miou(world: World, chance: np.random.Generator, repetitions: int) -> tuple[list[Figure], float]:
    """Simulate the mIoU of a model. In each class, the share `world.error` of the pixels gets the number of the next
    class instead. Each part of an image is right or wrong as a whole. Class sizes differ between sources.
    """
    classes, figures = 4, list[Figure]()
    for begin in range(0, repetitions, AT_ONCE):
        some = min(AT_ONCE, repetitions - begin)
        rank = chance.random((world.sources, some))
        parts, hard = PARTS * world.sizes(chance, rank.shape), world.latent(world.error, rank)
        wrong = chance.binomial(parts[..., None], hard[..., None], (*rank.shape, classes)) / parts[..., None]
        area = chance.lognormal(0.0, 0.7, wrong.shape)
        lost = area * wrong
        overlaps = np.concatenate([area - lost, area + np.roll(lost, 1, axis=-1)], axis=-1)
        means = means_of_overlaps([overlaps[:, at] for at in range(some)], np.ones(world.sources))
        figures += [means.figure(lambda of, at=at: miou_of_set(of, at, classes), 0) for at in range(some)]  # type: ignore[misc]
    return figures, (1 - world.error) / (1 + world.error)


Measured = Callable[[World, np.random.Generator, int], tuple[list[Figure], float]]
FIGURES: Mapping[str, Measured] = {
    "error": _error,
    "error, each test case weighs the same": _error_by_case,
    "error of a class": _error_of_class,
    "generated less reconstructed, where edits do nothing": _excess,
    "generated less original": _difference,
    "generated over original": _factor,
    "change by an edit": _change,
    "mean IoU": _miou,
}


def worlds() -> Iterator[World]:
    """Yield all simulated worlds of the table."""
    for cases, correlation, sources, error in product(SIZES, CORRELATIONS, SOURCES, ERRORS):
        yield World(sources, cases, error, correlation)


def measured(figure: str, world: World, repetitions: int, seed: int = 0) -> Covered:
    """Return the coverage of the intervals of one figure in one world."""
    figures, truth = FIGURES[figure](world, np.random.default_rng([seed, world.sources]), repetitions)
    row = {"sources": str(world.sources), "test cases": world.cases, "correlation": f"{world.correlation:g}"}
    return covered(figure, row, f"{100 * world.error:g} %", figures, truth)


def report(repetitions: int = REPETITIONS, on_count: OnCount = lambda _done, _total: None) -> str:
    """Return a Markdown report on all simulations. `on_count` gets the numbers of finished and of all simulations."""
    measurements: list[Measurement] = [
        partial(lambda figure, world: [settled(figure, world, repetitions)], figure, world)
        for figure in FIGURES
        for world in worlds()
    ]
    for module in (of_votes, of_score, of_training):
        measurements += module.measurements(repetitions)
    results = list[Covered]()
    for done, measurement in enumerate(measurements):
        on_count(done, len(measurements))
        results += measurement()
    lines = ["# How often 95 % intervals cover", "", f"{repetitions:,} repetitions of each world.", ""]
    for figure in dict.fromkeys(one.figure for one in results):
        lines += table([one for one in results if one.figure == figure])
    lines += of_gate.table(repetitions) + of_factors.table(repetitions)
    return "\n".join(lines).rstrip("\n")


def settled(figure: str, world: World, repetitions: int) -> Covered:
    """Measure coverage in a simulated world. If the coverage is below the goal, repeat with more repetitions."""
    result = measured(figure, world, repetitions)
    if result.covers is None or result.covers >= LEAST:
        return result
    return replace(measured(figure, world, AGAIN * repetitions, seed=1), again=AGAIN * repetitions)


def _drawn(
    world: World, chance: np.random.Generator, repetitions: int, error: float, rank: Floats | None = None
) -> tuple[Floats, Numbers]:
    """Return two arrays (sources, repetitions): each source's share of wrong test cases, and its number of cases."""
    rank = chance.random((world.sources, repetitions)) if rank is None else rank
    sizes = world.sizes(chance, rank.shape)
    return chance.binomial(sizes, world.latent(error, rank)) / sizes, sizes


def _pair(world: World, chance: np.random.Generator, repetitions: int, error: float) -> tuple[Floats, Floats]:
    """Return two arrays (sources, repetitions). First: the share of a source's test cases that are wrong, at the rate
    `error`. Second: 1 if another image of the source is wrong, at the world's error rate, else 0.
    """
    rank = chance.random((world.sources, repetitions))
    generated, _ = _drawn(world, chance, repetitions, error, rank)
    return generated, chance.binomial(1, world.latent(world.error, rank)).astype(np.float64)


def _figures(shares: Floats, less: Floats | None = None) -> list[Figure]:
    columns = shares.shape[1]
    if less is None:
        means = MeansOfSources(shares)
        return [means.figure(lambda of, at=at: of[..., at], 0) for at in range(columns)]  # type: ignore[misc]
    means = MeansOfSources(np.concatenate([shares, less], axis=1))
    return [
        means.figure(lambda of, at=at: of[..., at] - of[..., columns + at], 0)  # type: ignore[misc]
        for at in range(columns)
    ]


def _groups(values: Floats, lowest: float) -> list[Figure]:
    """Return the mean of each row of `values` (repetitions, sources) with an interval. Values are `lowest` to 1."""
    groups, sources = values.shape
    group, n = np.repeat(np.arange(groups), sources), np.zeros(groups, np.int64)
    return means_of_groups(values.ravel(), np.ones(group.shape), group, groups, n, lowest)[0]
