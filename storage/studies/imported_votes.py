"""Votes that were collected elsewhere: their workers, and the rows that store them."""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime

from sqlite_utils import Database as Db

from core.errors import UserError
from core.stored_studies import ImportedVote
from storage.engine.queries import change_row, first_value, insert_row
from storage.engine.rows import Row, now, whole
from storage.studies.rows import append_vote, items_given
from storage.studies.workers import enrol, insert_decision

IMPORTED = "imported-"
"""Prefix for names of workers who voted elsewhere, so that they differ from names of workers here."""
LONGEST_WORKER = 80


def imported_worker(db: Db, study_id: str, vote: ImportedVote, numbers: dict[str, int]) -> str:
    """Return the worker's name in this workspace. Enrol the worker if new. Add 1 to the worker's count in `numbers`."""
    name = whole(" ".join(vote.worker.split()))
    if not name or len(name) > LONGEST_WORKER:
        raise UserError(f"Nothing was imported: a worker's name must have 1 to {LONGEST_WORKER} characters.")
    worker = name if name.startswith(IMPORTED) else IMPORTED + name
    if worker not in numbers:
        db.execute("INSERT OR IGNORE INTO workers (id, created) VALUES (?, ?)", [worker, now()])
        enrol(db, study_id, worker)
        numbers[worker] = items_given(db, study_id, worker)
    numbers[worker] += 1
    return worker


def import_vote(
    db: Db,
    study_id: str,
    worker: str,
    number: int,
    item: Row,
    vote: ImportedVote,
    decisions: dict[tuple[str, str, str], int],
) -> None:
    """Save a vote as the worker's `number`th assignment. Raises UserError for a second vote or impossible times."""
    if first_value(db, "SELECT 1 FROM assignments WHERE item = ? AND worker = ?", [item["id"], worker]):
        raise UserError(f"Nothing was imported: {worker} has a vote on item {item['public']} already.")
    accepted, submitted = _time(vote.accepted), _time(vote.submitted)
    if accepted > submitted or not math.isfinite(vote.seconds) or vote.seconds < 0:
        raise UserError(f"Nothing was imported: a vote of {vote.worker[:80]!r} has impossible times or seconds.")
    query = "SELECT exclusion IS NULL FROM enrolments WHERE study = ? AND worker = ?"
    row = {
        "public": secrets.token_urlsafe(16),
        "image_token": secrets.token_urlsafe(16),
        "study": study_id,
        "worker": worker,
        "item": item["id"],
        "kind": item["kind"],
        "side": vote.side,
        "number": number,
        "state": "expired",
        "counts": first_value(db, query, [study_id, worker]),
        "imported": 1,
        "accepted": accepted,
        "expires": submitted,
    }
    assignment = insert_row(db, "assignments", row)
    answers = {name: whole(answer) for name, answer in vote.answers.items()}
    event = "submitted", "imported", answers, whole(vote.comment), vote.seconds, submitted
    saved = append_vote(db, assignment, *event)
    reason = whole(vote.reason)
    what = (worker, vote.verdict, reason)
    if vote.verdict != "pending" and what not in decisions:
        decisions[what] = insert_decision(db, study_id, worker, vote.verdict, reason)
    was_right = None if vote.right is None or item["kind"] == "item" else int(vote.right)
    columns = {"state": "submitted", "first_vote": saved, "vote": saved, "submitted": submitted, "was_right": was_right}
    columns |= {"changes": vote.changes, "verdict": vote.verdict, "decision": decisions.get(what)}
    change_row(db, "assignments", assignment, columns)


def _time(time: datetime) -> str:
    """Return a time in stored form. Raises ValueError if the time has no time zone."""
    if time.tzinfo is None:
        raise ValueError("the times of a vote carry their zone")
    return time.astimezone(UTC).isoformat(timespec="microseconds")
