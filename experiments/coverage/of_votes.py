"""Measures how often the intervals of `validity_effect` contain the truth, in simulated studies. Pure.

Sources have unequal numbers of test cases. A source on which the model is seldom wrong has more test cases. Wrong
answers on images of one source have a correlation of 0.3. The validity of these images has the same correlation. Each
repetition draws new sources, images, judged images and votes.

In two kinds of studies, intervals contain the truth in more than 98 % of the repetitions. If only accepted images are
judged, the bounds allow for any validity of the other images. If ten images are judged, the model is wrong on about
three, so that only few outcomes are possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from core.figures import Floats
from evaluation.samples import Flags, Numbers, sample_sizes
from evaluation.validity import Judged, validity_effect
from evaluation.worker_errors import Ballots
from experiments.coverage.covered import Covered, Measurement, covered

CORRELATION = 0.3
TYPES = ("weather", "time of day", "colour", "object")
OF_TYPES, VALID_OF_TYPE = (0.5, 0.3, 0.15, 0.05), (0.9, 0.7, 0.5, 0.4)
"""Share of each edit type, and share of valid images among the wrongly predicted images of each type."""
VALID_OF_RIGHT = 0.95
DRAWS = 1000
"""Number of random draws per interval. Evaluate uses more draws: its intervals are more exact, but not longer."""
Design = Literal["random", "stratified", "wrong", "accepted"]
FIGURES = {
    "by_strata": "wrong and valid",
    "with_score": "wrong and valid, with the score",
    "among_valid": "wrong among valid",
}


@dataclass(frozen=True)
class Crew:
    """Simulated people who judge images."""

    right: tuple[float, ...]
    """Share of right answers of each worker, 0 to 1."""
    yes_sayers: int = 0
    """Number of workers who always call an image valid. They are the first in the list."""
    votes: int = 5
    consensus: int = 4
    hard: float = 0.0
    """Share of invalid images that look valid to half of the people."""
    controls: float = 0.1
    """Share of control items among the images that a worker sees. Half of the control items are valid."""


@dataclass(frozen=True)
class World:
    """A simulated world: images, a study of these images, and the people who judge them."""

    name: str
    judged: int
    design: Design = "random"
    sources: int = 150
    wrong: float = 0.33
    """Share of a source's test cases that the model gets wrong, averaged over sources."""
    crew: Crew | None = None
    """The judges, or None for people who are always right."""
    figures: tuple[str, ...] = ("by_strata",)

    def truth(self, figure: str) -> float:
        """Return the true value of a figure, which is a key of `FIGURES`."""
        both = self.wrong * float(np.dot(OF_TYPES, VALID_OF_TYPE))
        return both / (both + (1 - self.wrong) * VALID_OF_RIGHT) if figure == "among_valid" else both


_PANEL = Crew((0.95,) * 6 + (0.9,) * 4 + (0.85,) * 2)
WORLDS: tuple[World, ...] = (
    World("random study of 10", 10),
    World("random study of 30", 30),
    World("random study of 100", 100, figures=("by_strata", "with_score", "among_valid")),
    World("random study of 100, 80 sources", 100, sources=80),
    World("stratified study of 10", 10, "stratified"),
    World("stratified study of 30", 30, "stratified"),
    World("stratified study of 100", 100, "stratified", figures=("by_strata", "with_score", "among_valid")),
    World("stratified study of 300", 300, "stratified", 300, figures=("by_strata", "with_score", "among_valid")),
    World("stratified study of 300, 80 sources", 300, "stratified", 80),
    World("few wrong (2 %), random study of 100", 100, wrong=0.02, sources=300),
    World("few wrong (2 %), stratified study of 100", 100, "stratified", wrong=0.02, sources=300),
    World("98 wrong images judged", 98, "wrong", wrong=0.64),
    World("100 accepted images judged", 100, "accepted"),
    World("five votes of a mixed crew", 300, "stratified", 300, crew=_PANEL),
    World("2 of 5 always say yes, with control items", 100, crew=Crew((0.95,) * 5, 2)),
    World("hard invalid images", 300, "stratified", 300, crew=replace(_PANEL, hard=0.5)),
    World("one vote of 90 %", 300, "stratified", 300, crew=Crew((0.9,) * 12, votes=1, consensus=1)),
)


def measurements(repetitions: int) -> list[Measurement]:
    """Return one measurement for each simulated world in `WORLDS`. A measurement simulates `repetitions` studies."""
    return [partial(measured, world, number, repetitions, seed=0) for number, world in enumerate(WORLDS)]


def measured(world: World, number: int, repetitions: int, seed: int) -> list[Covered]:
    """Return the coverage of each figure of one world. `number` and `seed` determine the random numbers."""
    studies = [
        validity_effect(*a_world(world, np.random.default_rng((seed, number, one))), one, DRAWS)
        for one in range(repetitions)
    ]
    return [
        covered("votes of studies", {"study": world.name}, words, [getattr(one, name) for one in studies], truth)
        for name, words, truth in ((one, FIGURES[one], world.truth(one)) for one in world.figures)
    ]


def a_world(world: World, rng: np.random.Generator) -> tuple[Judged, tuple[str, ...]]:
    """Simulate one study in a world. Return its images with their votes, and the names of their strata (groups)."""
    spread = (1 - CORRELATION) / CORRELATION
    rate = rng.beta(world.wrong * spread, (1 - world.wrong) * spread, world.sources)
    sizes = 1 + rng.poisson(rng.gamma(1.5, 2.0, world.sources) * (1.5 - rate))
    source = np.repeat(np.arange(world.sources), sizes)
    n = len(source)
    wrong = rng.random(n) < rate[source]
    kind = rng.choice(len(TYPES), n, p=OF_TYPES)
    # Two images of a source have the same random number for their validity with probability `CORRELATION`.
    luck = np.where(rng.random(n) < CORRELATION**0.5, rng.random(world.sources)[source], rng.random(n))
    valid = luck < np.where(wrong, np.array(VALID_OF_TYPE)[kind], VALID_OF_RIGHT)
    accepted = rng.random(n) < np.where(valid, 0.9, 0.4)
    stratum = 2 * kind + wrong
    names = tuple(f"{word}, {one}" for one in TYPES for word in ("right", "wrong"))
    in_study = _sample(world, rng, stratum, wrong, accepted)
    score = np.clip(0.6 * valid + rng.normal(0.2, 0.25, n), 0, 1)
    outside = ~accepted if world.design == "accepted" else None
    judged_images = Judged(source, wrong, stratum, np.zeros(n, np.int64), np.zeros(n, np.int64), score, outside=outside)
    if world.crew is None:
        judged_images.votes[in_study], judged_images.votes_for[in_study] = 1, valid[in_study]
        return judged_images, names
    return _voted(judged_images, world.crew, rng, in_study, valid), names


def _sample(world: World, rng: np.random.Generator, stratum: Numbers, wrong: Flags, accepted: Flags) -> Numbers:
    if world.design == "stratified":
        images = np.bincount(stratum, minlength=2 * len(TYPES)).tolist()
        sizes = sample_sizes(images, world.judged, wrong=[bool(one % 2) for one in range(len(images))])
        parts = [rng.permutation(np.flatnonzero(stratum == one))[:size] for one, size in enumerate(sizes)]
        return np.sort(np.concatenate(parts))
    eligible = {"random": np.ones(len(wrong), bool), "wrong": wrong, "accepted": accepted}[world.design]
    return np.sort(rng.permutation(np.flatnonzero(eligible))[: world.judged])


def _voted(judged: Judged, crew: Crew, rng: np.random.Generator, sample: Numbers, valid: Flags) -> Judged:
    workers = len(crew.right)
    voters = np.argsort(rng.random((len(sample), workers)), axis=1)[:, : crew.votes]
    hard = ~valid[sample] & (rng.random(len(sample)) < crew.hard)
    says = _says(crew, rng, voters, valid[sample][:, None], hard[:, None])
    seen = np.bincount(voters.ravel(), minlength=workers)
    controls = rng.binomial(seen, crew.controls / (1 - crew.controls)) if crew.controls else np.zeros(workers, np.int64)
    worker = np.repeat(np.arange(workers), controls)
    known = rng.random(len(worker)) < 0.5
    of_controls = _says(crew, rng, worker, known, np.zeros(len(worker), bool))
    ballots = Ballots(
        np.concatenate([np.repeat(sample, crew.votes), np.full(len(worker), -1)]),
        np.concatenate([voters.ravel(), worker]),
        np.concatenate([says.ravel(), of_controls]),
        np.concatenate([np.full(says.size, -1), known.astype(np.int64)]),
    )
    votes_for = says.sum(axis=1)
    agreed = np.maximum(votes_for, crew.votes - votes_for) >= crew.consensus
    judged.votes[sample[agreed]], judged.votes_for[sample[agreed]] = crew.votes, votes_for[agreed]
    undecided = np.zeros(len(judged), bool)
    undecided[sample[~agreed]] = True
    return replace(judged, undecided=undecided, ballots=ballots)


def _says(crew: Crew, rng: np.random.Generator, worker: Numbers, valid: Flags, hard: Flags) -> Flags:
    right: Floats = np.where(hard, 0.5, np.array(crew.right)[worker])
    says = np.where(rng.random(worker.shape) < right, valid, ~valid)
    return np.asarray(says | (worker < crew.yes_sayers))
