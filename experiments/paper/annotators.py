"""Simulated annotators of stated quality: what they say of images whose validity the drawn world knows.

They behave as those of `study.simulate` do, but vote here and not over HTTP; what their votes agree on is worked out as
in every study.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from core.consensus import outcome
from core.studies import Question, Vote
from study.behaviour import Behaviour, judge

VOTES, CONSENSUS = 5, 4
"""As in the paper: five votes an image, of which four are equal, or the image is discarded."""
CREW = (*(Behaviour(accuracy=0.95),) * 6, *(Behaviour(accuracy=0.9),) * 4, *(Behaviour(accuracy=0.85),) * 2)
QUESTION = Question("valid", "Is this image a valid test case?", "yes-no", valid=("yes",))
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Votes:
    """What became of the votes on some images."""

    votes_for: NDArray[np.int64]
    """Of how many votes each image is valid."""
    votes: NDArray[np.int64]
    """How many it has: 0 where they did not agree, and were discarded."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where they agreed."""
        return self.votes > 0

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Where they agreed that the image is valid."""
        return self.known & (2 * self.votes_for > self.votes)


def vote(valid: NDArray[np.bool_], seed: int) -> Votes:
    """The votes of five of the `CREW` on each of some images, of which it is known whether they are `valid`."""
    chance = random.Random(f"votes {seed}")
    votes_for, votes = np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64)
    for item, true in enumerate(valid):
        cast = []
        for worker in chance.sample(range(len(CREW)), VOTES):
            said = judge(CREW[worker], (QUESTION,), lambda _, true=true: "yes" if true else "no", {}, chance)  # type: ignore[misc]
            cast.append(Vote(item, item, "item", f"{worker}", said.answers, "", _NOW, _NOW, said.seconds, "left"))
        found = outcome(QUESTION, item, cast, VOTES, CONSENSUS)
        if found.status == "consensus":
            votes_for[item], votes[item] = found.counts.get("yes", 0), found.votes
    return Votes(votes_for, votes)


def crew_in_words() -> str:
    """Who they are."""
    kinds = Counter(one.accuracy for one in CREW)
    listed = ", ".join(f"{number} who are right {100 * share:.0f} % of the time" for share, number in kinds.items())
    return f"{len(CREW)} simulated annotators ({listed}); five vote on each image, and four have to agree"
