"""How often the interval of a validity score's agreement with people (AUC) holds the truth, in drawn worlds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.figures import Floats
from core.validity_score import FEWEST
from evaluation.validity_score import agreement

SOURCES, AREAS, VALID, CORRELATIONS = (20, 50, 100), (0.6, 0.76, 0.9), (0.5, 0.7), (0.0, 0.5)
IMAGES = 100
"""Judged images of a world, the same number of each source."""


@dataclass(frozen=True)
class ScoreCoverage:
    """One world."""

    sources: int
    area: float
    """What is true."""
    valid: float
    """The share of valid images."""
    correlation: float
    """Of the images of a source, in score and in validity."""
    covered: float | None
    """How often an interval that is shown holds the truth, 0 to 1; None where none is shown."""
    shown: float
    """How often there is an interval, 0 to 1."""


def score_table(repetitions: int, seed: int) -> tuple[ScoreCoverage, ...]:
    """Measure all worlds, each so many times."""
    return tuple(
        measured_score(sources, area, valid, correlation, repetitions, seed)
        for sources in SOURCES
        for area in AREAS
        for valid in VALID
        for correlation in CORRELATIONS
    )


def measured_score(
    sources: int, area: float, valid: float, correlation: float, repetitions: int, seed: int
) -> ScoreCoverage:
    """Measure one world."""
    # A score is learnt from at least so many images of either kind: worlds with fewer are drawn again.
    drawn = _worlds(sources, area, valid, correlation, np.random.default_rng(seed))
    shown = covered = 0
    for _ in range(repetitions):
        found = agreement(*next(drawn)).auc
        if found.low is not None and found.high is not None:
            shown += 1
            covered += found.low <= area <= found.high
    return ScoreCoverage(sources, area, valid, correlation, covered / shown if shown else None, shown / repetitions)


def _worlds(
    sources: int, area: float, valid: float, correlation: float, fate: np.random.Generator
) -> Iterator[tuple[Floats, np.ndarray, np.ndarray]]:
    """Scores, validity and source of images. Scores are normal, and those of valid images lie higher."""
    from scipy import stats

    source = np.repeat(np.arange(sources), IMAGES // sources)
    apart, rarest = np.sqrt(2) * stats.norm.ppf(area), stats.norm.ppf(valid)

    def noise() -> Floats:
        own, shared = fate.normal(size=len(source)), fate.normal(size=sources)[source]
        return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own

    while True:
        good = noise() < rarest
        score = noise() + apart * good
        if min(good.sum(), (~good).sum()) >= FEWEST:
            yield stats.norm.cdf(score / 2), good, source


def score_markdown(found: Sequence[ScoreCoverage]) -> list[str]:
    """The coverage as a table of Markdown: columns are the true area under the curve."""
    cells = {(one.sources, one.valid, one.correlation, one.area): one for one in found}
    areas = sorted({one.area for one in found})
    lines = ["## Validity score: area under the curve", ""]
    lines += [f"| sources | valid | correlation | {' | '.join(f'{one:g}' for one in areas)} |"]
    lines += ["| ---: | ---: | ---: |" + " ---: |" * len(areas)]
    for sources, valid, correlation in dict.fromkeys((one.sources, one.valid, one.correlation) for one in found):
        shown = []
        for area in areas:
            one = cells[sources, valid, correlation, area]
            shown.append("too few" if one.covered is None else f"{100 * one.covered:.1f}")
        lines.append(f"| {sources} | {valid:.0%} | {correlation:g} | {' | '.join(shown)} |")
    return [*lines, ""]
