"""Figures of each worker in a study: control items, agreement with the consensus, and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import get_args

from core.consensus import ItemOutcome
from core.studies import WORK, ApprovalVerdict, Exclusion, Item, ItemKind, Rules, Study, StudyData, Vote, right
from core.study_report import WorkerFigures
from core.words import count_of
from study.eligibility import quiz_needed
from study.intervals import wilson


def worker_figures(
    data: StudyData, counted: Mapping[int, Sequence[Vote]], outcomes: Mapping[int, Mapping[str, ItemOutcome]]
) -> tuple[WorkerFigures, ...]:
    """Return the figures of all workers who joined the study or voted in it, most votes first."""
    by_worker: dict[str, list[Vote]] = {worker.id: [] for worker in data.workers}
    for vote in data.votes:
        by_worker.setdefault(vote.worker, []).append(vote)
    known = {worker.id: worker for worker in data.workers}
    excluded = {exclusion.worker: exclusion for exclusion in data.exclusions}
    items = {item.id: item for item in data.items}
    in_result = {vote.assignment for votes in counted.values() for vote in votes}
    rules = data.study.rules

    def figures_of(name: str, votes: Sequence[Vote]) -> WorkerFigures:
        worker, exclusion = known.get(name), excluded.get(name)
        others = tuple(dict.fromkeys(n for group in data.same_browser if name in group for n in group if n != name))
        on_items = [vote for vote in votes if vote.kind == "item" and vote.item in items]
        timed = [vote.seconds for vote in votes if vote.kind in ("item", "control")]
        work = [vote for vote in votes if vote.kind in WORK]
        compared = [
            answer == found.answer
            for vote in on_items
            for question, answer in vote.answers.items()
            if (found := outcomes.get(vote.item, {}).get(question)) is not None and found.status == "consensus"
        ]
        decided = {verdict: sum(vote.verdict == verdict for vote in work) for verdict in get_args(ApprovalVerdict)}
        counted_votes = sum(vote.assignment in in_result for vote in on_items)
        right_controls, controls_seen = controls_right(votes, items, rules)
        nothing = _quiz_failed(*controls_right(votes, items, rules, "quiz"), rules) or "no vote on an item yet"
        blocked = bool(worker and worker.blocked)
        same_browser = f"; came from the same browser as {', '.join(others)}" if others else ""
        return WorkerFigures(
            worker=name,
            votes=len(on_items),
            counted=counted_votes,
            controls=wilson(right_controls, controls_seen, nothing="no control item seen yet"),
            with_consensus=wilson(sum(compared), len(compared), nothing="no consensus to compare with yet"),
            median_seconds=median(timed) if timed else None,
            too_fast=wilson(sum(s < rules.too_fast_seconds for s in timed), len(timed), nothing="no vote yet"),
            changed=sum(vote.changes > 0 for vote in work),
            approval=worker.approval if worker else None,
            finished=worker.finished if worker else 0,
            decided=decided,
            exclusion=exclusion,
            blocked=blocked,
            words=_words(len(on_items), counted_votes, exclusion, blocked, nothing) + same_browser,
            judged=is_judged(data.study, controls_seen) or exclusion is not None,
            same_browser=others,
        )

    figures = (figures_of(name, votes) for name, votes in by_worker.items())
    return tuple(sorted(figures, key=lambda found: (-found.votes, found.worker)))


def controls_right(
    votes: Sequence[Vote], items: Mapping[int, Item], rules: Rules, kind: ItemKind = "control"
) -> tuple[int, int]:
    """Return the number of control items (or items of another `kind`) answered right, and the number answered."""
    judged = [
        right(items[vote.item], vote.answers, rules.questions)
        for vote in votes
        if vote.kind == kind and vote.item in items and items[vote.item].expected
    ]
    return sum(judged), len(judged)


def is_judged(study: Study, controls_seen: int) -> bool:
    """Return True if a worker saw enough control items to be judged by them, or if the study has none."""
    policy = study.rules.controls
    return not (policy.share and study.controls) or controls_seen >= policy.min_seen


def _quiz_failed(right_answers: int, seen: int, rules: Rules) -> str:
    needed = quiz_needed(rules.eligibility.quiz_pass, seen)
    if not 0 < rules.eligibility.quiz <= seen or right_answers >= needed:
        return ""
    return f"failed the quiz: {right_answers} of {seen} right, {needed} needed"


def _words(votes: int, counted: int, exclusion: Exclusion | None, blocked: bool, nothing: str) -> str:
    """Return a summary of a worker for the lead. `nothing` is the text for a worker without votes."""
    if exclusion is not None:
        by = "by the rule" if exclusion.by == "rule" else "by the study lead"
        return f"excluded {by}: {exclusion.reason.rstrip('.')}; {count_of(votes, 'vote')} left out"
    prefix = "blocked from voting; " if blocked else ""
    if not votes:
        return f"{prefix}{nothing}"
    if counted < votes:
        return f"{prefix}{count_of(votes - counted, 'vote')} beyond the number that an item gets, left out"
    return f"{prefix}all votes count"
