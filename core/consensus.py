"""Rules on which votes count and when votes agree. If too few of an item's K votes agree, the item is discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from core.studies import Adjudication, Item, Question, Rules, Vote, asked

Status = Literal["consensus", "no consensus", "waiting", "too few votes"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class ItemOutcome:
    """Result of the counted votes of one item for one question."""

    item: int
    question: str
    status: Status
    """"consensus"; "no consensus": all votes are in and the item is discarded; "waiting": votes are still to come; "too
    few votes": the study is closed before the item had all votes that the rules require."""
    answer: str
    counts: Mapping[str, int]
    """Number of votes by answer, the most frequent first."""
    valid: bool | None
    """True if by consensus the image is valid. None without a consensus, or if the question is not about validity."""

    @property
    def votes(self) -> int:
        """Number of votes that gave an answer to the question."""
        return sum(self.counts.values())

    @property
    def disagreement(self) -> float:
        """Share of pairs of votes that differ, 0 to 1; 0 with fewer than two votes."""
        n = self.votes
        return 1 - sum(c * (c - 1) for c in self.counts.values()) / (n * (n - 1)) if n > 1 else 0.0


Outcomes = Mapping[int, Mapping[str, ItemOutcome]]


def counted(votes: Iterable[Vote], needed: int, excluded: Collection[str] = ()) -> dict[int, tuple[Vote, ...]]:
    """Return the votes that count, by item: the first `needed` (K) votes on each item. Pass the votes in order of first
    submission. Votes of excluded workers, a worker's second vote on an item, and items with a known answer are left
    out. An item can have more than K votes if an excluded worker's votes are replaced and the worker is readmitted.
    """
    votes_by_item: dict[int, list[Vote]] = {}
    for vote in votes:
        if vote.kind != "item" or vote.worker in excluded:
            continue
        of_item = votes_by_item.setdefault(vote.item, [])
        if len(of_item) < needed and all(vote.worker != other.worker for other in of_item):
            of_item.append(vote)
    return {item: tuple(of_item) for item, of_item in votes_by_item.items()}


def outcome(
    question: Question, item: int, votes: Sequence[Vote], needed: int, consensus: int, closed: bool = False
) -> ItemOutcome:
    """Return the outcome of a question for an item. `votes` are the item's votes from `counted`, at most `needed` (K).

    A consensus needs at least `consensus` equal answers among the K votes. The paper uses 4 of 5. While fewer than K
    votes are in and more can come, the item waits, even if all votes agree. Counting unanimous items early would favour
    them. For the same reason an item with fewer than K votes in a closed study always has too few votes: 4 of 4 is not
    the announced 4 of 5. A vote that skips an optional question counts as one of the K, but for no answer. A follow-up
    question needs a consensus of the same size among the workers who were asked it.
    """
    answers = Counter(vote.answers[question.id] for vote in votes if vote.answers.get(question.id))
    counts = dict(sorted(answers.items(), key=lambda pair: (-pair[1], pair[0])))
    best = next(iter(counts), "")
    if len(votes) < needed:
        status: Status = "too few votes" if closed else "waiting"
    else:
        status = "consensus" if best and counts[best] >= consensus else "no consensus"
    agreed = best if status == "consensus" else ""
    valid = agreed in question.valid if agreed and question.valid else None
    return ItemOutcome(item, question.id, status, agreed, counts, valid)


def image_outcome(item: int, outcomes: Sequence[ItemOutcome]) -> ItemOutcome:
    """Combine an image's outcomes of all questions on validity into one, without counts. The first rule that fits
    decides. If a question waits, the status is "waiting". If a question has a consensus on an answer that is not valid,
    the answer is "invalid". If a question has no consensus, the status is "no consensus". If a question has too few
    votes, the status is "too few votes". Otherwise the answer is "valid".
    """
    statuses = [found.status for found in outcomes]
    if not outcomes or "waiting" in statuses:
        return ItemOutcome(item, "", "waiting", "", {}, None)
    if any(found.valid is False for found in outcomes):
        return ItemOutcome(item, "", "consensus", "invalid", {}, False)
    for status in STATUSES[1:]:
        if status in statuses:
            return ItemOutcome(item, "", status, "", {}, None)
    return ItemOutcome(item, "", "consensus", "valid", {}, True)


def is_asked(question: Question, votes: Sequence[Vote]) -> bool:
    """Return True if at least one worker in `votes` was asked the question. Not all workers are asked a follow-up."""
    return not question.follows or any(vote.answers.get(question.follows) == question.follows_answer for vote in votes)


def outcomes_of(items: Sequence[Item], votes: Mapping[int, Sequence[Vote]], rules: Rules, closed: bool) -> Outcomes:
    """Return the outcomes by item and question, without free text, and without follow-ups that nobody was asked."""
    with_answers = [question for question in rules.questions if question.kind != "text"]
    outcomes_by_item: dict[int, dict[str, ItemOutcome]] = {}
    for item in items:
        of_item = votes.get(item.id, ())
        # A follow-up has an outcome if at least one worker of the item was asked it.
        for_item = {question.id for question in asked([replace(q, follows="") for q in with_answers], item, {})}
        outcomes_by_item[item.id] = {
            question.id: outcome(question, item.id, of_item, rules.votes, rules.consensus, closed)
            for question in with_answers
            if question.id in for_item and is_asked(question, of_item)
        }
    return outcomes_by_item


def adjudicated(outcomes: Outcomes, adjudications: Iterable[Adjudication], questions: Sequence[Question]) -> Outcomes:
    """Return `outcomes` with a person's answers for items without a consensus. A consensus is never overruled."""
    known = {question.id: question for question in questions}
    adjudicated_outcomes = {item: dict(of_item) for item, of_item in outcomes.items()}
    for decision in adjudications:
        before = adjudicated_outcomes.get(decision.item, {}).get(decision.question)
        if before is None or before.status == "consensus":
            continue
        valid = known[decision.question].valid
        adjudicated_outcomes[decision.item][decision.question] = replace(
            before,
            status="consensus",
            answer=decision.answer,
            valid=decision.answer in valid if valid else None,
        )
    return adjudicated_outcomes


def of_images(outcomes: Outcomes, questions: Sequence[Question]) -> dict[int, ItemOutcome]:
    """Return each image's outcome (`image_outcome`) by item id. Follow-ups, which not all workers get, do not count."""
    telling = {question.id for question in questions if question.valid and not question.follows}
    outcome_by_image = {}
    for item, of_item in outcomes.items():
        parts = [part for question, part in of_item.items() if question in telling]
        if parts:
            outcome_by_image[item] = image_outcome(item, parts)
    return outcome_by_image


def outcome_of_image(
    item: Item, votes: Iterable[Vote], adjudications: Sequence[Adjudication], rules: Rules, closed: bool
) -> ItemOutcome | None:
    """Return an image's outcome on validity, from votes or `adjudications`. None if no question is about validity."""
    outcomes = outcomes_of([item], counted(votes, rules.votes), rules, closed)
    if adjudications:
        outcomes = adjudicated(outcomes, adjudications, rules.questions)
    return of_images(outcomes, rules.questions).get(item.id)
