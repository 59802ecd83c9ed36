"""The methods paragraph of a paper, ready to paste: protocol, exclusions, changes of the rules and results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from core.figures import chosen_percent, percent
from core.studies import Rules
from core.study_report import RulesChange, StudyReport
from core.text_templates import TextTemplates
from core.words import count_of

History = Sequence[tuple[Rules, datetime]]


def paragraph(report: StudyReport) -> str:
    """Return the paragraph in English sentences. Results of a study that is not closed are called preliminary."""
    return _TEMPLATES.paragraph("methods.txt", report=report)


def rules_changes(history: History, submitted: Sequence[datetime]) -> tuple[RulesChange, ...]:
    """Return the changes between successive versions of the rules. `submitted` has the times of the votes to count."""
    changes = []
    for (before, _), (after, since) in pairwise(history):
        votes, consensus = (before.votes, after.votes), (before.consensus, after.consensus)
        known = sum(time < since for time in submitted)
        moment = since.astimezone(UTC)
        words = (
            f"Version {after.version} of {moment.day} {moment:%B %Y, %H:%M} UTC, with {count_of(known, 'vote')} in: "
            f"{change_words(votes, consensus)}."
        )
        changes.append(RulesChange(after.version, since, votes, consensus, known, words))
    return tuple(changes)


def change_words(votes: tuple[int, int], consensus: tuple[int, int]) -> str:
    """Return a phrase on how votes per image and consensus changed. Each argument is a pair (before, after)."""
    share = f"{consensus[1]} of {votes[1]} ({percent(consensus[1] / votes[1])})"
    earlier = f"{consensus[0]} of {votes[0]} ({percent(consensus[0] / votes[0])})"
    if votes[0] == votes[1]:
        return f"the consensus went from {earlier} to {share}; the votes per image stayed {votes[1]}"
    more = f"the votes per image went from {votes[0]} to {votes[1]}"
    if consensus[0] == consensus[1]:
        return f"{more}; the consensus stayed {consensus[1]} equal answers, which was {earlier} and is {share}"
    return f"{more}, the consensus from {earlier} to {share}"


_TEMPLATES = TextTemplates(
    Path(__file__).with_name("templates"), count_of=count_of, percent=percent, chosen_percent=chosen_percent
)
