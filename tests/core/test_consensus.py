"""Tests for which votes count, and for the answer that has a consensus."""

from __future__ import annotations

import pytest

from core.consensus import ItemOutcome, counted, image_outcome, outcome
from core.studies import Question
from tests.support.study_data import vote, votes_of

VALID = Question("valid", "Does it show a {label}?", "yes-no", valid=("yes",))


def said(answers, closed=False, question=VALID, votes=5, consensus=4):
    """Return the outcome of an item with these answers."""
    return outcome(question, 1, votes_of({1: answers}, question.id), votes, consensus, closed)


@pytest.mark.parametrize(
    ("answers", "status", "answer", "valid"),
    [
        (["yes"] * 5, "consensus", "yes", True),
        (["yes"] * 4 + ["no"], "consensus", "yes", True),
        (["no"] * 4 + ["yes"], "consensus", "no", False),
        (["yes"] * 3 + ["no"] * 2, "no consensus", "", None),
        (["yes"] * 4, "waiting", "", None),
        ([], "waiting", "", None),
    ],
)
def test_four_of_five(answers, status, answer, valid):
    found = said(answers)
    assert (found.status, found.answer, found.valid, found.votes) == (status, answer, valid, len(answers))


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        (["yes"] * 5, "consensus"),
        (["yes"] * 4, "too few votes"),
        (["yes", "yes", "no", "no"], "too few votes"),
        ([], "too few votes"),
    ],
)
def test_a_closed_study_goes_by_the_rule_that_was_announced(answers, status):
    assert said(answers, closed=True).status == status


def test_an_answer_left_out_is_no_answer():
    found = said(["yes", "yes", "yes", "", ""])
    assert found.status == "no consensus" and found.counts == {"yes": 3}
    assert said(["yes"] * 4 + [""]).status == "consensus"


def test_choices_and_questions_that_say_nothing_of_validity():
    colour = Question("colour", "Which colour?", "choice", options=("red", "blue", "green"))
    found = said(["red"] * 4 + ["blue"], question=colour)
    assert (found.answer, found.valid, found.counts) == ("red", None, {"red": 4, "blue": 1})
    assert said(["red", "blue", "green", "red", "blue"], question=colour).status == "no consensus"


def test_disagreement():
    assert said(["yes"] * 5).disagreement == 0
    assert said(["yes"] * 3 + ["no"] * 2).disagreement == pytest.approx(0.6)
    assert said(["yes"]).disagreement == said([]).disagreement == 0


def test_the_first_votes_by_time_count():
    votes = votes_of({1: ["yes", "yes", "yes", "yes", "yes", "no", "no"]})
    assert [v.worker for v in counted(votes, 5)[1]] == [f"worker-{i}" for i in range(5)]


def test_an_excluded_worker_is_replaced_and_a_readmission_brings_the_first_back():
    votes = [*votes_of({1: ["no", "yes", "yes", "yes", "yes"]}), vote(9, 1, "late", {"valid": "yes"})]
    replaced = counted(votes, 5, {"worker-0"})[1]
    assert [v.worker for v in replaced] == ["worker-1", "worker-2", "worker-3", "worker-4", "late"]
    readmitted = counted(votes, 5)[1]
    assert [v.worker for v in readmitted] == [f"worker-{i}" for i in range(5)]


def test_one_vote_a_worker_and_no_control_items():
    votes = [
        vote(1, 1, "a", {"valid": "yes"}),
        vote(2, 1, "a", {"valid": "no"}),
        vote(3, 2, "a", {"valid": "no"}, kind="control"),
        vote(4, 3, "a", {"valid": "no"}, kind="quiz"),
    ]
    found = counted(votes, 5)
    assert list(found) == [1] and [v.answers["valid"] for v in found[1]] == ["yes"]
    assert counted(votes, 5, {"a"}) == {} == counted([], 5)


def part(status, valid=None):
    """Return the outcome of a question with this status."""
    return ItemOutcome(1, "q", status, "", {}, valid)


@pytest.mark.parametrize(
    ("parts", "status", "valid"),
    [
        ([part("consensus", True), part("consensus", True)], "consensus", True),
        ([part("consensus", True), part("consensus", False)], "consensus", False),
        ([part("no consensus"), part("consensus", False)], "consensus", False),
        ([part("no consensus"), part("consensus", True)], "no consensus", None),
        ([part("too few votes"), part("consensus", True)], "too few votes", None),
        ([part("waiting"), part("consensus", False)], "waiting", None),
        ([], "waiting", None),
    ],
)
def test_an_image_is_as_good_as_its_questions(parts, status, valid):
    found = image_outcome(1, parts)
    assert (found.status, found.valid) == (status, valid)
