"""Measures how often a factor experiment finds planted interactions, in simulated worlds with known effects. Pure.

Goals, set before the first run. At most 5 % of the repetitions should find a false effect. 93 to 98 % of the intervals
should contain the truth. With 200 sources, each with as many captions as there are effects to estimate, at least 90 %
of the repetitions should find an interaction of 25 points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from core.evaluation_results import FactorEffects
from core.figures import Numbers
from core.types import EDIT_TYPES, Edit
from evaluation.by_source import LEAST, MOST
from evaluation.factors import Levels, effects
from experiments.coverage.of_gate import FALSE, FOUND
from pipeline.stages.factorial import factorial

INTERACTION, MAIN = 0.25, 0.10
"""Planted effects on the error: of two certain changes (levels) together, and of the first change alone."""
DESIGNS = 256
"""Number of different designs: combinations of edits for a source's images. Each source gets a random design."""
MOST_BASE = 0.4
"""Maximum error probability of a source's unchanged image. The minimum is 0."""


@dataclass(frozen=True)
class FactorWorld:
    """A simulated world whose model fails on some combinations of edits."""

    sources: int
    factors: int
    alternatives: int
    """Number of alternatives that each factor has besides its unchanged level."""
    captions: int
    """Number of changed captions of each source."""
    error: float
    """Mean error on unchanged images, 0 to 1."""
    planted: bool
    """True if some edits change the error."""

    def truth(self, parts: tuple[tuple[str, str], ...]) -> float:
        """Return the true effect of one change, or of several together. `parts` are pairs of a factor and a level."""
        first, second = ((name, "0") for name in EDIT_TYPES[:2])
        true = {(first,): MAIN, (first, second): INTERACTION}
        return next((effect for planted, effect in true.items() if planted == parts), 0.0) if self.planted else 0.0

    def drawn(self, chance: np.random.Generator) -> FactorEffects:
        """Simulate a model's predictions, and return the effects estimated from them. Sources differ in their error on
        unchanged images and in the size of the planted effects.
        """
        seeds = chance.integers(DESIGNS, size=self.sources).tolist()
        designs = [_design(self.factors, self.alternatives, self.captions, seed) for seed in seeds]
        source = np.repeat(np.arange(self.sources), [len(one) for one in designs])
        levels = np.concatenate(designs)
        base = MOST_BASE * chance.beta(self.error / MOST_BASE, 1 - self.error / MOST_BASE, self.sources)
        size = self.planted * chance.choice([0.5, 1.5], self.sources)
        first, second = levels[:, 0] == 1, levels[:, 1] == 1
        wrong = base[source] + size[source] * (MAIN * first + INTERACTION * (first & second))
        names = [[str(level) for level in range(self.alternatives)]] * self.factors
        outcome = (chance.random(len(source)) < wrong).astype(np.float64)
        return effects(Levels(source, levels, EDIT_TYPES[: self.factors], names), outcome)


@cache
def _design(factors: int, alternatives: int, captions: int, seed: int) -> Numbers:
    """Return the level of each factor in each image of a source, (images, factors). The first image is unchanged."""
    pools = [[Edit(name, str(level), name) for level in range(alternatives)] for name in EDIT_TYPES[:factors]]
    chosen = factorial(pools, captions, seed)
    levels = np.zeros((1 + len(chosen), factors), np.int64)
    for row, edits in enumerate(chosen):
        for edit in edits:
            levels[row + 1, EDIT_TYPES.index(edit.edit_type)] = int(edit.alternative) + 1
    return levels


WORLDS = (
    *(FactorWorld(sources, 2, 1, 3, 0.1, planted) for sources in (50, 200) for planted in (True, False)),
    *(FactorWorld(sources, 3, 1, 7, 0.1, planted) for sources in (50, 200) for planted in (True, False)),
    FactorWorld(200, 3, 1, 7, 0.005, False),
    *(FactorWorld(200, 4, 1, captions, 0.1, True) for captions in (10, 4)),
    FactorWorld(600, 4, 1, 4, 0.1, True),
    *(FactorWorld(sources, 3, 3, 8, 0.1, True) for sources in (200, 1000)),
)


@dataclass(frozen=True)
class FactorShares:
    """Results of simulating one world (`FactorWorld`) many times, as shares from 0 to 1."""

    found: float | None
    """Share of repetitions that find the planted effect of two changes together. None if no effect is planted."""
    false: float
    """Share of repetitions that find a false effect: its true value is 0 or has the other sign."""
    covers: float
    """Share of intervals that contain the true effect, averaged over all effects."""
    least: float
    """Like `covers`, but for the single effect whose intervals contain the truth least often."""


def shares(world: FactorWorld, repetitions: int, seed: int = 0) -> FactorShares:
    """Simulate a world many times, and return how often effects are found and intervals contain the truth."""
    chance = np.random.default_rng([seed, world.sources, world.factors, world.captions, world.planted])
    found = false = 0
    covered: dict[tuple[tuple[str, str], ...], list[bool]] = {}
    for _ in range(repetitions):
        wrong = False
        for row in world.drawn(chance).rows:
            truth, figure = world.truth(row.parts), row.effect
            if row.answer != "cannot tell":
                wrong |= truth <= 0 or row.answer == "lowers"
                found += len(row.parts) > 1 and truth > 0 and row.answer == "raises"
            if figure.low is not None and figure.high is not None:
                covered.setdefault(row.parts, []).append(figure.low <= truth <= figure.high)
        false += wrong
    each = [sum(one) / len(one) for one in covered.values()]
    return FactorShares(
        found / repetitions if world.planted else None,
        false / repetitions,
        sum(map(sum, covered.values())) / sum(map(len, covered.values())),
        min(each),
    )


def missed(world: FactorWorld, found: FactorShares, repetitions: int) -> str:
    """Describe the goals that the shares miss, or return "". The share of false effects may exceed its goal by two
    standard errors, since such an excess can be chance.
    """
    effects_a_source = world.factors + world.factors * (world.factors - 1) // 2
    plain = world.sources >= 200 and world.alternatives == 1 and world.captions >= effects_a_source
    words = []
    if plain and found.found is not None and found.found < FOUND:
        words.append("found too rarely")
    if found.false > FALSE + 2 * (FALSE * (1 - FALSE) / repetitions) ** 0.5:
        words.append("false too often")
    if found.covers < LEAST:
        words.append("covers too rarely")
    if found.covers > MOST:
        words.append("covers too often")
    return ", ".join(words)


def table(repetitions: int) -> list[str]:
    """Simulate all worlds (`WORLDS`), and return a table of their `FactorShares` in Markdown."""
    lines = [
        "## Factor experiment: which changes break a model together?",
        "",
        "| sources | factors | alternatives of each | captions of a source | error | planted interaction found | "
        "any false effect | intervals cover | least of an effect | missed goal |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for world in WORLDS:
        one = shares(world, repetitions)
        found = "none planted" if one.found is None else f"{100 * one.found:.1f} %"
        design = f"{world.sources} | {world.factors} | {world.alternatives} | {world.captions}"
        figures = " | ".join(f"{100 * share:.1f} %" for share in (one.false, one.covers, one.least))
        goal = missed(world, one, repetitions)
        lines.append(f"| {design} | {100 * world.error:g} % | {found} | {figures} | {goal} |")
    return [*lines, ""]
