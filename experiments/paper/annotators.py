"""Simulated annotators who err as people do: on hard images together, and some of them always towards yes.

They behave as those of `study.simulate` do, but vote here and not over HTTP; control items and the rule of consensus
are those of every study. What they vote on is the truth that the drawn world knows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from core.consensus import outcome
from core.studies import ControlPolicy, Question, Vote
from evaluation.worker_errors import Ballots
from study.behaviour import Behaviour, judge
from study.control_items import judge as reason_to_exclude

VOTES, CONSENSUS = 5, 4
"""As in the paper: five votes an image, of which four are equal, or the image is discarded."""
CREW = (
    *(Behaviour(accuracy=0.95),) * 6,
    *(Behaviour(accuracy=0.85),) * 3,
    *(Behaviour(accuracy=0.9, bias=0.6),) * 3,
)
"""Careful ones, hasty ones, and yes-sayers."""
HARD_VALID, HARD_BROKEN, FOOLED = 0.05, 0.35, 0.75
"""Shares of the valid and of the broken images that are hard; on one of those, how often any worker says yes unseen."""
CONTROLS = 8
"""Control items that each worker answers first, half of them valid. None is hard: a study makes them so that they are
right or wrong for certain.
"""
QUESTION = Question("valid", "Is this image a valid test case?", "yes-no", valid=("yes",))
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Votes:
    """What became of the votes on some images."""

    votes_for: NDArray[np.int64]
    """Of how many votes each image is valid."""
    votes: NDArray[np.int64]
    """How many it has: 0 where they did not agree, and were discarded."""
    ballots: Ballots | None
    """Single votes, with the place of each image, and answers to control items; None of people who never err."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where they agreed."""
        return self.votes > 0

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Where they agreed that the image is valid."""
        return self.known & (2 * self.votes_for > self.votes)


def hard_images(valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which images are hard: always the same ones of the same images, whoever votes."""
    share = np.where(valid, HARD_VALID, HARD_BROKEN)
    return np.asarray(np.random.default_rng(0).random(len(valid)) < share)


def vote(valid: NDArray[np.bool_], hard: NDArray[np.bool_], seed: int) -> Votes:
    """The votes of five of the `CREW` on each of some images, of which it is known whether they are `valid`, and which
    ones are `hard`.
    """
    chance = random.Random(f"votes {seed}")
    answers = control_answers(chance)
    crew = kept_workers(answers)
    votes_for, votes = np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64)
    single = [(-1, one, yes, number % 2) for one in crew for number, yes in enumerate(answers[one])]
    for item, (true, fools) in enumerate(zip(valid.tolist(), hard.tolist(), strict=True)):
        cast = []
        for worker in chance.sample(crew, VOTES):
            yes = (fools and chance.random() < FOOLED) or _says_yes(CREW[worker], true, chance)
            answer = {QUESTION.id: "yes" if yes else "no"}
            cast.append(Vote(item, item, "item", f"{worker}", answer, "", _NOW, _NOW, 4.0, "left"))
            single.append((item, worker, yes, -1))
        found = outcome(QUESTION, item, cast, VOTES, CONSENSUS)
        if found.status == "consensus":
            votes_for[item], votes[item] = found.counts.get("yes", 0), found.votes
    image, worker_of, said, known = np.array(single, np.int64).T
    return Votes(votes_for, votes, Ballots(image, worker_of, said > 0, known))


def flawless(valid: NDArray[np.bool_]) -> Votes:
    """Votes of people who never err: what an interval can do where sampling is all that is uncertain."""
    return Votes(np.where(valid, VOTES, 0).astype(np.int64), np.full(len(valid), VOTES, np.int64), None)


def control_answers(chance: random.Random) -> list[list[bool]]:
    """Whether each worker of the `CREW` says yes to each control item; those with an odd number are valid."""
    return [[_says_yes(worker, bool(number % 2), chance) for number in range(CONTROLS)] for worker in CREW]


def kept_workers(answers: Sequence[Sequence[bool]]) -> list[int]:
    """The workers whom their control items let stay, by the rule of a study; all of them if too few to vote would be
    left.
    """
    policy = ControlPolicy()
    right = [sum(yes == bool(number % 2) for number, yes in enumerate(own)) for own in answers]
    kept = [worker for worker, number in enumerate(right) if not reason_to_exclude(policy, CONTROLS, number)]
    return kept if len(kept) >= VOTES else list(range(len(CREW)))


def _says_yes(worker: Behaviour, true: bool, chance: random.Random) -> bool:
    said = judge(worker, (QUESTION,), lambda _: "yes" if true else "no", {}, chance)
    return said.answers[QUESTION.id] == "yes"


def crew_in_words() -> str:
    """Who they are."""
    careful, hasty, yes = CREW[0], CREW[6], CREW[-1]
    return (
        f"{len(CREW)} simulated annotators: {CREW.count(careful)} who are right {100 * careful.accuracy:.0f} % of the "
        f"time, {CREW.count(hasty)} who are right {100 * hasty.accuracy:.0f} %, and {CREW.count(yes)} who say yes "
        f"unseen {100 * yes.bias:.0f} % of the time. {100 * HARD_BROKEN:.0f} % of the broken images and "
        f"{100 * HARD_VALID:.0f} % of the valid ones are hard: on those, each of them says yes unseen "
        f"{100 * FOOLED:.0f} % of the time. Each answers {CONTROLS} control items first, and the rule of a study "
        "excludes who fails; five vote on each image, and four have to agree"
    )
