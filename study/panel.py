"""Tables about panel participants: data for payment, and answers about themselves, which are kept apart from votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from core.csv_tables import Row
from core.panel import Panel
from core.studies import WORK, ApprovalVerdict, ItemKind, StudyData

PAYMENT_COLUMNS = (
    "worker participant items controls quiz training minutes first last approved rejected pending excluded"
).split()


def payment_rows(data: StudyData, participants: Mapping[str, str]) -> list[Row]:
    """Return the number of answered items, the viewing minutes (with training) and the decisions of each worker."""
    excluded = {exclusion.worker for exclusion in data.exclusions}
    rows: list[Row] = []
    for worker in data.workers:
        votes = [vote for vote in data.votes if vote.worker == worker.id]
        if not votes and worker.id not in participants:
            continue
        row: Row = {"worker": worker.id, "participant": participants.get(worker.id, "")}
        row |= {column: sum(vote.kind == kind for vote in votes) for column, kind in _COUNTED.items()}
        row |= {
            "minutes": round(sum(vote.seconds for vote in votes) / 60, 1),
            "first": min((vote.accepted for vote in votes), default=None),
            "last": max((vote.submitted for vote in votes), default=None),
            "excluded": worker.id in excluded,
        }
        decided = [vote.verdict for vote in votes if vote.kind in WORK]
        row |= {verdict: decided.count(verdict) for verdict in get_args(ApprovalVerdict)}
        rows.append(row)
    return rows


_COUNTED: Mapping[str, ItemKind] = {"items": "item", "controls": "control", "quiz": "quiz", "training": "training"}


def people_columns(panel: Panel, answers: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the columns of `people_rows`: the worker, the current questions, and earlier questions with answers."""
    now = [question.text for question in panel.questions]
    return ["worker", *dict.fromkeys([*now, *(text for given_answers in answers.values() for text in given_answers)])]


def people_rows(data: StudyData, columns: Sequence[str], answers: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """Return the workers' answers about themselves, one column for each question. No votes, no panel ids."""
    answers_by_worker = ((worker.id, answers.get(worker.id, {})) for worker in data.workers)
    return [{**{text: of.get(text, "") for text in columns}, "worker": worker} for worker, of in answers_by_worker]
