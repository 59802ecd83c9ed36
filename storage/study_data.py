"""All of a study for an analysis, and votes that were given elsewhere. Functions of an open database."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

import sqlite_utils

from pipeline.errors import UserError
from storage.judging import insert_decision
from storage.rows import Row, insert_row, now, pack, when, whole
from storage.study_rows import append_log, read_items, read_study, require_study, touch
from storage.study_types import ImportedVote
from storage.workers import enrol, read_workers
from study.types import Adjudication, Exclusion, StudyData, Vote

IMPORTED = "imported-"
"""Before the name of a worker who voted elsewhere: never the record of a worker of ours with the same name."""
LONGEST_WORKER = 80


def read_data(db: sqlite_utils.Database, study_id: str) -> StudyData:
    """A study with all that was said in it, in one snapshot. Raises UserError for an unknown study."""
    return StudyData(
        study=read_study(db, study_id),
        items=read_items(db, study_id),
        votes=_votes(db, study_id),
        workers=read_workers(db, study_id),
        exclusions=_exclusions(db, study_id),
        adjudications=_adjudications(db, study_id),
    )


def import_votes(db: sqlite_utils.Database, study_id: str, votes: Iterable[ImportedVote]) -> int:
    """Save votes that were given elsewhere, all or none, as finished assignments of workers named `imported-NAME`, in
    the order of their times; returns how many. An item may get more votes than it asks for: the first count.

    Raises UserError for a study that is not running or paused, an item that is not one of its, a second vote of a
    worker on an item, and times or names that cannot be.
    """
    if require_study(db, study_id)["state"] not in ("running", "paused"):
        raise UserError("Votes can be brought into a study that is running or paused; start it first.")
    rows = sorted((ImportedVote(*vote) for vote in votes), key=lambda vote: vote.submitted)
    items = {item["id"]: item for item in db.query("SELECT * FROM study_items WHERE study = ?", [study_id])}
    decisions: dict[tuple[str, str, str], int] = {}
    numbers: dict[str, int] = {}
    seen: set[tuple[int, str]] = set()
    for vote in rows:
        worker = _imported_worker(db, study_id, vote, numbers)
        if vote.item not in items:
            raise UserError(f"Nothing was brought in: a vote names item {vote.item}, which is not one of the study's.")
        if (vote.item, worker) in seen:
            name = items[vote.item]["public"]
            raise UserError(f"Nothing was brought in: worker {vote.worker[:80]!r} has two votes on item {name}.")
        seen.add((vote.item, worker))
        _import_vote(db, study_id, worker, numbers[worker], items[vote.item], vote, decisions)
    for worker, number in numbers.items():
        db.execute("UPDATE enrolments SET given = ? WHERE study = ? AND worker = ?", [number, study_id, worker])
    touch(db, study_id)
    append_log(db, "votes brought in", f"{len(rows)} votes of {len(numbers)} workers", study_id)
    return len(rows)


def _imported_worker(db: sqlite_utils.Database, study_id: str, vote: ImportedVote, numbers: dict[str, int]) -> str:
    """The worker's name here, known and enrolled; counts this vote as their next."""
    name = whole(" ".join(vote.worker.split()))
    if not name or len(name) > LONGEST_WORKER:
        raise UserError(f"Nothing was brought in: a worker's name has 1 to {LONGEST_WORKER} characters.")
    worker = name if name.startswith(IMPORTED) else IMPORTED + name
    if worker not in numbers:
        db.execute("INSERT OR IGNORE INTO workers (id, created) VALUES (?, ?)", [worker, now()])
        enrol(db, study_id, worker)
        query = "SELECT given FROM enrolments WHERE study = ? AND worker = ?"
        numbers[worker] = next(db.query(query, [study_id, worker]))["given"]
    numbers[worker] += 1
    return worker


def _import_vote(
    db: sqlite_utils.Database,
    study_id: str,
    worker: str,
    number: int,
    item: Row,
    vote: ImportedVote,
    decisions: dict[tuple[str, str, str], int],
) -> None:
    known = "SELECT 1 FROM assignments WHERE item = ? AND worker = ?"
    if list(db.query(known, [item["id"], worker])):
        raise UserError(f"Nothing was brought in: {worker} has a vote on item {item['public']} already.")
    accepted, submitted = _time(vote.accepted), _time(vote.submitted)
    if accepted > submitted or not math.isfinite(vote.seconds) or vote.seconds < 0:
        raise UserError(f"Nothing was brought in: a vote of {vote.worker[:80]!r} was given before it was begun.")
    row = {
        "public": secrets.token_urlsafe(16),
        "image_token": secrets.token_urlsafe(16),
        "study": study_id,
        "worker": worker,
        "item": item["id"],
        "kind": item["kind"],
        "side": "left",
        "number": number,
        "state": "expired",
        "imported": 1,
        "accepted": accepted,
        "expires": submitted,
    }
    assignment = insert_row(db, "assignments", row)
    said = {"assignment": assignment, "event": "submitted", "key": "imported", "answers": pack(dict(vote.answers))}
    said |= {"comment": vote.comment, "seconds": float(vote.seconds), "created": submitted}
    saved = insert_row(db, "study_votes", said)
    decision = None
    if vote.verdict != "pending":
        what = (worker, vote.verdict, vote.reason)
        if what not in decisions:
            decisions[what] = insert_decision(db, study_id, worker, vote.verdict, vote.reason)
        decision = decisions[what]
    db.execute(
        """
        UPDATE assignments SET state = 'submitted', first_vote = :vote, vote = :vote, submitted = :submitted,
            was_right = :right, verdict = :verdict, decision = :decision WHERE id = :id
        """,
        {
            "vote": saved,
            "submitted": submitted,
            "right": None if vote.right is None or item["kind"] == "item" else int(vote.right),
            "verdict": vote.verdict,
            "decision": decision,
            "id": assignment,
        },
    )


def _votes(db: sqlite_utils.Database, study_id: str) -> tuple[Vote, ...]:
    # CROSS JOIN keeps SQLite at the index that has the votes in their order.
    query = """
        SELECT assignments.id AS assignment, item, kind, assignments.worker, answers, comment, accepted, submitted,
            seconds, side, changes, assignments.verdict, coalesce(decisions.reason, '') AS reason,
            iif(assignments.verdict = 'pending' OR imported, NULL, decisions.created) AS decided, imported
        FROM assignments CROSS JOIN study_votes ON study_votes.id = assignments.vote
            LEFT JOIN decisions ON decisions.id = assignments.decision
        WHERE assignments.study = ? AND state = 'submitted' ORDER BY first_vote
    """
    return tuple(
        Vote(
            **{
                **row,
                "answers": json.loads(row["answers"]),
                "accepted": when(row["accepted"]),
                "submitted": when(row["submitted"]),
                "decided": when(row["decided"]) if row["decided"] else None,
                "imported": bool(row["imported"]),
            }
        )
        for row in db.query(query, [study_id])
    )


def _exclusions(db: sqlite_utils.Database, study_id: str) -> tuple[Exclusion, ...]:
    query = """
        SELECT exclusions.* FROM enrolments JOIN exclusions ON exclusions.id = enrolments.exclusion
        WHERE enrolments.study = ? ORDER BY exclusions.id
    """
    return tuple(
        Exclusion(row["worker"], row["reason"], row["author"], when(row["created"]))
        for row in db.query(query, [study_id])
    )


def _adjudications(db: sqlite_utils.Database, study_id: str) -> tuple[Adjudication, ...]:
    query = """
        SELECT * FROM adjudications WHERE answer <> '' AND id IN (
            SELECT max(id) FROM adjudications WHERE study = ? GROUP BY item, question
        ) ORDER BY id
    """
    return tuple(
        Adjudication(row["item"], row["question"], row["answer"], row["reason"], when(row["created"]))
        for row in db.query(query, [study_id])
    )


def _time(time: datetime) -> str:
    """As the database has it. A time without a zone would mean another one on another machine."""
    if time.tzinfo is None:
        raise ValueError("the times of a vote carry their zone")
    return time.astimezone(UTC).isoformat(timespec="microseconds")
