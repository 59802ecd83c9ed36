"""Measures how often the gate's answers are right in simulated worlds. The gate compares a new model with an old one.

Goals, set before the first run. If both models have the same error, the answer is "worse" in at most 5 % of the
repetitions. If the new model is worse by exactly the margin, the answer is "worse" in at most 5 %, and "no worse" in at
most 5 %. With 500 sources of 4 test cases and a margin of 0, a loss of 3 points is found in at least 90 %. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np

from core.evaluation_results import GateAnswer
from evaluation.gate import INVALID, NOT_JUDGED, VALID, Compared, gate

FALSE, FOUND = 0.05, 0.90
"""Goals: maximum share of false answers, and minimum share of losses that are found."""
ERROR, CHANGED = 0.3, 0.08
"""Error of the old model, and share of test cases where only one of two equally good models is right."""
INVALID_SHARE, JUDGED_SHARE = 0.2, 0.3
"""Share of invalid test cases, and share of judged test cases, in simulated worlds where people vote on test cases. In
these worlds, the new model errs more often on invalid test cases than on valid test cases."""


@dataclass(frozen=True)
class GateWorld:
    """A simulated world with an old and a new model."""

    sources: int
    cases: int
    """Number of test cases of each source."""
    loss: float
    """Number of the new model's additional errors on valid test cases, divided by the number of all test cases."""
    margin: float
    votes: bool = False
    """True if some test cases are invalid, and people have judged a random part of all test cases, valid or not."""
    classes: int = 0
    """Number of classes for which the gate also compares the models, or 0 for none."""

    def drawn(self, chance: np.random.Generator) -> Compared:
        """Simulate the predictions of both models. Test cases of the same source are equally hard."""
        source = np.repeat(np.arange(self.sources), self.cases)
        n = len(source)
        hard = chance.beta(0.5, 0.5 * (1 - ERROR) / ERROR, self.sources)[source]
        first = chance.random(n) < hard
        valid = 1 - INVALID_SHARE if self.votes else 1.0
        lost = chance.random(n) < (CHANGED / 2 + self.loss / valid) / (1 - ERROR)
        won = chance.random(n) < CHANGED / 2 / ERROR
        judged = np.full(n, NOT_JUDGED)
        if self.votes:
            invalid = chance.random(n) < INVALID_SHARE
            lost |= invalid & (chance.random(n) < 2 * CHANGED)
            judged = np.where(chance.random(n) < JUDGED_SHARE, np.where(invalid, INVALID, VALID), NOT_JUDGED)
        names = [str(one) for one in range(self.classes)]
        group = source % self.classes if self.classes else np.full(n, -1)
        return Compared(source, first, np.where(first, ~won, lost), judged, group, names)


WORLDS = (
    *(GateWorld(sources, cases, loss, 0.0) for sources, cases, loss in product((100, 500), (1, 4), (0.0, 0.03))),
    *(GateWorld(500, cases, loss, 0.01) for cases, loss in product((1, 4), (0.0, 0.01, 0.03))),
    *(GateWorld(500, 4, loss, 0.0, votes=True) for loss in (0.0, 0.03)),
    *(GateWorld(500, 4, loss, 0.0, classes=10) for loss in (0.0, 0.03)),
)


def answers(world: GateWorld, repetitions: int, seed: int = 0) -> dict[GateAnswer, float]:
    """Return the share of the repetitions, 0 to 1, in which the gate gave each answer."""
    chance = np.random.default_rng([seed, world.sources, world.cases, round(1000 * world.loss), world.classes])
    counts = Counter(gate(world.drawn(chance), world.margin).answer for _ in range(repetitions))
    return {name: counts[name] / repetitions for name in ("no worse", "worse", "cannot tell")}  # type: ignore[misc]


def missed(world: GateWorld, found: dict[GateAnswer, float], repetitions: int) -> str:
    """Describe the goal that the answers miss, or return "". The share of false answers may exceed its goal by two
    standard errors, since such an excess can be chance.
    """
    most = FALSE + 2 * (FALSE * (1 - FALSE) / repetitions) ** 0.5
    false = [name for name, is_false in _false(world).items() if is_false and found[name] > most]
    if false:
        return f"“{false[0]}” too often"
    plain = world.sources >= 500 and world.cases >= 4 and not world.margin and world.loss >= 0.03
    return "the loss is found too rarely" if plain and found["worse"] < FOUND else ""


def _false(world: GateWorld) -> dict[GateAnswer, bool]:
    return {"worse": world.loss <= world.margin, "no worse": world.loss >= world.margin and world.loss > 0}


def table(repetitions: int) -> list[str]:
    """Simulate all worlds (`WORLDS`), and return how often the gate gives each answer, as a table in Markdown."""
    lines = [
        "## Gate: is a new model worse than an old one?",
        "",
        "| sources | test cases of each | allowed loss | true loss | | no worse | worse | cannot tell | missed goal |",
        "| ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- |",
    ]
    for world in WORLDS:
        found = answers(world, repetitions)
        kind = "with votes" if world.votes else f"{world.classes} classes" if world.classes else ""
        shares = " | ".join(f"{100 * share:.1f} %" for share in found.values())
        losses = " | ".join(f"{100 * one:g} points" for one in (world.margin, world.loss))
        lines.append(
            f"| {world.sources} | {world.cases} | {losses} | {kind} | {shares} | {missed(world, found, repetitions)} |"
        )
    return [*lines, ""]
