"""Simulated annotators who err as people do. Many annotators err on the same hard images. Some say yes too often.

They behave like the simulated workers of `study.simulate`, but vote without HTTP. Control items and the consensus rule
are the same as in every study. The right vote on each image is known, as the image was made from a drawn scene.
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
"""Number of votes per image, and how many must agree, as in the paper. An image without a consensus is discarded."""
CREW = (
    *(Behaviour(accuracy=0.95),) * 6,
    *(Behaviour(accuracy=0.85),) * 3,
    *(Behaviour(accuracy=0.9, bias=0.6),) * 3,
)
"""Simulated workers: six careful ones, three hasty ones, and three who often say yes without looking."""
HARD_VALID, HARD_BROKEN, FOOLED = 0.05, 0.35, 0.75
"""Shares of valid and of broken images that are hard to judge, and the probability that a worker calls a hard image
valid without looking."""
CONTROLS = 8
"""Number of control items that each worker answers first, half of them valid. None is hard: studies use images that are
certainly valid or broken."""
QUESTION = Question("valid", "Is this image a valid test case?", "yes-no", valid=("yes",))
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Votes:
    """The votes on several images, one entry per image."""

    votes_for: NDArray[np.int64]
    """Number of votes for "valid"."""
    votes: NDArray[np.int64]
    """Number of all votes, or 0 if the image was discarded without a consensus."""
    ballots: Ballots | None
    """Each single vote with its image's index, and the answers to control items. None for annotators who never err."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """True for images whose votes reach a consensus."""
        return self.votes > 0

    @property
    def valid(self) -> NDArray[np.bool_]:
        """True for images that are valid by consensus."""
        return self.known & (2 * self.votes_for > self.votes)


def hard_images(valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return True for images that are hard to judge. The choice is random, but always the same for the same `valid`."""
    share = np.where(valid, HARD_VALID, HARD_BROKEN)
    return np.asarray(np.random.default_rng(0).random(len(valid)) < share)


def vote(valid: NDArray[np.bool_], hard: NDArray[np.bool_], seed: int) -> Votes:
    """Return the votes of five random workers on each image. `valid` holds the truth, `hard` marks hard images."""
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
        result = outcome(QUESTION, item, cast, VOTES, CONSENSUS)
        if result.status == "consensus":
            votes_for[item], votes[item] = result.counts.get("yes", 0), result.votes
    image, worker_of, vote, known = np.array(single, np.int64).T
    return Votes(votes_for, votes, Ballots(image, worker_of, vote > 0, known))


def flawless(valid: NDArray[np.bool_]) -> Votes:
    """Return the votes of annotators who never err. Intervals then reflect only the uncertainty of sampling."""
    return Votes(np.where(valid, VOTES, 0).astype(np.int64), np.full(len(valid), VOTES, np.int64), None)


def control_answers(chance: random.Random) -> list[list[bool]]:
    """Return each worker's answers to the control items, True for "valid". The truth is that odd items are valid."""
    return [[_says_yes(worker, bool(number % 2), chance) for number in range(CONTROLS)] for worker in CREW]


def kept_workers(answers: Sequence[Sequence[bool]]) -> list[int]:
    """Return the indices of workers who pass the rule on control items, or of all if fewer than `VOTES` pass."""
    policy = ControlPolicy()
    right = [sum(yes == bool(number % 2) for number, yes in enumerate(own)) for own in answers]
    included = [worker for worker, number in enumerate(right) if not reason_to_exclude(policy, CONTROLS, number)]
    return included if len(included) >= VOTES else list(range(len(CREW)))


def _says_yes(worker: Behaviour, true: bool, chance: random.Random) -> bool:
    answers, _ = judge(worker, (QUESTION,), lambda _: "yes" if true else "no", {}, chance)
    return answers[QUESTION.id] == "yes"


def crew_in_words() -> str:
    """Return a sentence about the accuracy of the simulated annotators."""
    careful, hasty, yes = CREW[0], CREW[6], CREW[-1]
    return (
        f"{len(CREW)} simulated annotators: {CREW.count(careful)} who are right {100 * careful.accuracy:.0f} % of the "
        f"time, {CREW.count(hasty)} who are right {100 * hasty.accuracy:.0f} %, and {CREW.count(yes)} who say yes "
        f"unseen {100 * yes.bias:.0f} % of the time. {100 * HARD_BROKEN:.0f} % of the broken images and "
        f"{100 * HARD_VALID:.0f} % of the valid ones are hard: on those, each of them says yes unseen "
        f"{100 * FOOLED:.0f} % of the time. Each answers {CONTROLS} control items first, and the rule of a study "
        "excludes who fails; five vote on each image, and four have to agree"
    )
