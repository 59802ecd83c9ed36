"""Which votes count, and what they agree on: K votes an item, so many equal answers, or the question is discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from core.studies import Question, Vote

Status = Literal["consensus", "no consensus", "waiting", "too few votes"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Outcome:
    """What the counted votes of one item say to one question."""

    item: int
    question: str
    status: Status
    """"consensus"; "no consensus": discarded; "waiting": votes are still to come; "too few votes": the study is closed
    and the item has fewer than the rules asked for."""
    answer: str
    """The answer of the consensus; "" without one."""
    counts: Mapping[str, int]
    """Votes by answer, the most frequent first."""
    valid: bool | None
    """Whether the consensus says that the image is valid; None without one, or if the question does not say."""

    @property
    def votes(self) -> int:
        """Votes that answered the question."""
        return sum(self.counts.values())

    @property
    def disagreement(self) -> float:
        """Share of pairs of votes that differ, 0 to 1; 0 with fewer than two votes."""
        n = self.votes
        return 1 - sum(c * (c - 1) for c in self.counts.values()) / (n * (n - 1)) if n > 1 else 0.0


def counted(votes: Iterable[Vote], needed: int, excluded: Collection[str] = ()) -> dict[int, tuple[Vote, ...]]:
    """The votes that count, by item: of workers who are not excluded, the first `needed` (K) in the order given.

    That order is the order in which they were first submitted. A worker who was readmitted after their votes had been
    replaced leaves an item with more than K: the first K by time count, the later ones do not. One vote a worker and
    item: should there be two, the first counts. Items with a known answer are left out.
    """
    kept: dict[int, list[Vote]] = {}
    for vote in votes:
        if vote.kind != "item" or vote.worker in excluded:
            continue
        of_item = kept.setdefault(vote.item, [])
        if len(of_item) < needed and all(vote.worker != other.worker for other in of_item):
            of_item.append(vote)
    return {item: tuple(of_item) for item, of_item in kept.items()}


def outcome(
    question: Question, item: int, votes: Sequence[Vote], needed: int, consensus: int, closed: bool = False
) -> Outcome:
    """What the counted `votes` of an item (see `counted`; at most `needed`, K) say to a question that it gets.

    A consensus is at least `consensus` equal answers of the K votes (the paper: 4 of 5). While fewer than K votes are
    in and more can come, the item waits, even if the votes so far agree: counting the unanimous ones early would favour
    them. For the same reason an item with fewer than K votes in a closed study has too few, whatever they say: what was
    announced is 4 of 5, and 4 of 4 is another rule. A vote that left an optional question out counts as one of the K,
    and for no answer. A follow-up question needs a consensus of the same size among those who were asked it.
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
    return Outcome(item, question.id, status, agreed, counts, valid)


def image_outcome(item: int, outcomes: Sequence[Outcome]) -> Outcome:
    """Whether an image is valid by all its questions that say something of validity.

    "waiting" if one of them waits; else invalid if one has a consensus on an answer that is not valid; else "too few
    votes" or "no consensus" if one has that; else valid. Its answers are "valid" and "invalid"; it has no counts.
    """
    statuses = [found.status for found in outcomes]
    if not outcomes or "waiting" in statuses:
        return Outcome(item, "", "waiting", "", {}, None)
    if any(found.valid is False for found in outcomes):
        return Outcome(item, "", "consensus", "invalid", {}, False)
    for status in STATUSES[1:]:
        if status in statuses:
            return Outcome(item, "", status, "", {}, None)
    return Outcome(item, "", "consensus", "valid", {}, True)


def is_asked(question: Question, votes: Sequence[Vote]) -> bool:
    """Whether any of these votes was asked a follow-up question; always for a question that follows none."""
    return not question.follows or any(vote.answers.get(question.follows) == question.follows_answer for vote in votes)
