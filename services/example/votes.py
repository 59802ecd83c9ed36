"""Simulated votes for the example's study, stored as votes of imported workers whose names say “simulated”."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from core.stored_studies import ImportedVote
from core.studies import Item, Rules, asked, right
from study.behaviour import Behaviour, habit_of, judge

CREW = (
    *(Behaviour(accuracy=0.97),) * 4,
    *(Behaviour(accuracy=0.88),) * 2,
    *(Behaviour(accuracy=0.9, bias=0.4),) * 2,
)
"""The simulated annotators: four careful ones, two hasty ones, and two who tend to say yes."""


def simulated_votes(rules: Rules, items: Sequence[Item], valid: dict[int, bool], seed: int) -> Iterator[ImportedVote]:
    """Yield simulated votes on the items and control items of a study. The last vote has the present time.

    Each item gets as many votes as the rules require. `valid` has True for each test case that is valid, by id.
    """
    chance = random.Random(f"example votes {seed}")
    voted: list[tuple[int, Item]] = []
    for item in items:
        if item.kind == "item":
            voters = chance.sample(range(len(CREW)), min(rules.votes, len(CREW)))
        elif item.kind == "control":
            voters = list(range(len(CREW)))
        else:
            continue
        voted += [(worker, item) for worker in voters]
    chance.shuffle(voted)
    habits = [habit_of(rules.questions, chance) for _ in CREW]
    vote_end = datetime.now(UTC) - timedelta(seconds=rules.seconds_expected * len(voted))
    for worker, item in voted:
        questions = asked(rules.questions, item, item.expected)
        good = valid.get(item.test_case or 0, True)
        answers, seconds = judge(
            CREW[worker],
            questions,
            lambda question, item=item, good=good: item.expected.get(question.id, "yes" if good else "no"),  # type: ignore[misc]
            habits[worker],
            chance,
        )
        begun, vote_end = vote_end, vote_end + timedelta(seconds=rules.seconds_expected)
        yield ImportedVote(
            item.id,
            f"simulated {worker + 1}",
            answers,
            "",
            begun,
            vote_end,
            round(seconds, 2),
            right=right(item, answers, rules.questions) if item.kind == "control" else None,
        )
