"""Majority votes and Dawid and Skene's model, compared with crowd-kit."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from study.aggregation import dawid_skene, majority

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*inplace.*", "ignore:.*copy keyword.*")


def drawn(seed, answers=("no", "yes"), tasks=60, workers=7, an_item=5):
    """Return votes by workers of very different skill, and the truth."""
    rng = random.Random(seed)
    skill = [rng.uniform(0.35, 0.98) for _ in range(workers)]
    votes, truth = [], {}
    for task in range(tasks):
        truth[str(task)] = rng.choice(answers)
        for worker in rng.sample(range(workers), an_item):
            right = rng.random() < skill[worker]
            answer = truth[str(task)] if right else rng.choice([a for a in answers if a != truth[str(task)]])
            votes.append((str(task), f"w{worker}", answer))
    return votes, truth


@pytest.mark.parametrize(
    ("seed", "answers"),
    [
        (0, ("no", "yes")),
        (1, ("1", "2", "3")),
        *(pytest.param(seed, ("no", "yes"), marks=pytest.mark.soak) for seed in (1, 2)),
        *(pytest.param(seed, ("1", "2", "3"), marks=pytest.mark.soak) for seed in (0, 2)),
    ],
)
@pytest.mark.slow
def test_dawid_skene_is_that_of_crowd_kit(seed, answers):
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    votes, _ = drawn(seed, answers)
    frame = pd.DataFrame(votes, columns=["task", "worker", "label"])
    theirs: Any = DawidSkene(n_iter=40, tol=-1e9).fit(frame)
    ours = dawid_skene(votes, rounds=40, tolerance=-1e9)
    assert ours.labels == theirs.labels_.to_dict()
    for task, chances in ours.probabilities.items():
        assert sum(chances.values()) == pytest.approx(1)
        for answer, chance in chances.items():
            assert chance == pytest.approx(theirs.probas_.loc[task, answer], abs=1e-6)


@pytest.mark.slow
def test_it_gives_crowd_kits_labels_where_votes_tell_nothing():
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    rng, tasks = random.Random(2), 200
    votes = [(str(t), f"w{w}", rng.choice(("no", "yes"))) for t in range(tasks) for w in rng.sample(range(20), 5)]
    theirs = DawidSkene().fit_predict(pd.DataFrame(votes, columns=["task", "worker", "label"]))
    ours = dawid_skene(votes)
    assert sum(ours.labels[str(task)] != label for task, label in theirs.items()) == 0
    later = dawid_skene(votes, rounds=400, tolerance=-1e9).labels
    assert later != ours.labels, "it is where both end that makes them agree"


def test_it_says_whether_it_settled():
    votes, _ = drawn(5)
    assert re.fullmatch(r"settled after \d+ rounds", dawid_skene(votes).words)
    assert dawid_skene(votes, rounds=1).words == "not settled after 1 rounds: take it with care"


def test_it_beats_the_majority_where_workers_differ():
    votes, truth = drawn(7, tasks=300)
    model = dawid_skene(votes).labels
    by_task: dict[str, list[str]] = {}
    for task, _, answer in votes:
        by_task.setdefault(task, []).append(answer)
    right = sum(model[task] == truth[task] for task in truth)
    assert right > sum(majority(given) == truth[task] for task, given in by_task.items())


@pytest.mark.slow
def test_majority_is_that_of_crowd_kit_where_there_is_no_tie():
    import pandas as pd
    from crowdkit.aggregation import MajorityVote

    votes, _ = drawn(1, an_item=4)
    theirs = MajorityVote().fit_predict(pd.DataFrame(votes, columns=["task", "worker", "label"]))
    by_task: dict[str, list[str]] = {}
    for task, _, answer in votes:
        by_task.setdefault(task, []).append(answer)
    ties = [task for task, given in by_task.items() if majority(given) is None]
    assert ties and all(sorted(by_task[task]) == ["no", "no", "yes", "yes"] for task in ties)
    assert all(majority(given) == theirs[task] for task, given in by_task.items() if task not in ties)
    assert majority([]) is None


@pytest.mark.parametrize(
    ("votes", "words"),
    [
        ([], "undefined: no vote counts yet"),
        ([("a", "w", "yes"), ("b", "w", "no")], "undefined: with one worker there is nobody to compare with"),
        ([("a", "w", "yes"), ("a", "v", "yes")], "undefined: all votes agree"),
    ],
)
def test_undefined_is_said_in_words(votes, words):
    found = dawid_skene(votes)
    assert found.words == words and not found.labels
