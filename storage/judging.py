"""What is decided of workers and items: exclusion, approval, adjudication. Functions of an open database."""

from __future__ import annotations

from typing import Literal

import sqlite_utils

from pipeline.errors import UserError
from storage.next_items import look_again
from storage.rows import insert_row, now, whole
from storage.study_rows import append_log, require_study, touch
from storage.study_types import Enrolment
from storage.workers import read_enrolment
from study.types import ApprovalVerdict

LONGEST_REASON = 500


def exclude(db: sqlite_utils.Database, study_id: str, worker: str, reason: str, by: Literal["rule", "person"]) -> None:
    """From now on the worker's votes do not count in this study, and their items need other votes. A worker who is
    excluded already stays so, for the earlier reason. Raises UserError for one who is not in the study.
    """
    enrolment = _enrolment(db, study_id, worker)
    if enrolment.exclusion is not None:
        return
    reason = _reason(reason, needed=True)
    row = {"study": study_id, "worker": worker, "excluded": 1, "reason": reason, "author": by, "created": now()}
    exclusion = insert_row(db, "exclusions", row)
    change = "UPDATE enrolments SET exclusion = ? WHERE study = ? AND worker = ?"
    db.execute(change, [exclusion, study_id, worker])
    db.execute(
        """
        UPDATE assignments SET counts = 0, state = CASE state WHEN 'leased' THEN 'expired' ELSE state END
        WHERE study = ? AND worker = ?
        """,
        [study_id, worker],
    )
    look_again(db, study_id)
    touch(db, study_id)
    append_log(db, "worker excluded", f"by the {by}: {reason}", study_id, worker)


def readmit(db: sqlite_utils.Database, study_id: str, worker: str, reason: str) -> None:
    """The worker's votes count again; where others replaced them meanwhile, the first K by time count. A worker who is
    not excluded stays as they are. Raises UserError for one who is not in the study.
    """
    if _enrolment(db, study_id, worker).exclusion is None:
        return
    reason = _reason(reason, needed=False)
    row = {"study": study_id, "worker": worker, "excluded": 0, "reason": reason, "author": "person", "created": now()}
    insert_row(db, "exclusions", row)
    change = "UPDATE enrolments SET exclusion = NULL, readmitted = 1 WHERE study = ? AND worker = ?"
    db.execute(change, [study_id, worker])
    db.execute("UPDATE assignments SET counts = 1 WHERE study = ? AND worker = ?", [study_id, worker])
    touch(db, study_id)
    append_log(db, "worker readmitted", reason, study_id, worker)


def decide(db: sqlite_utils.Database, study_id: str, worker: str, verdict: ApprovalVerdict, reason: str) -> None:
    """Approve or reject all that the worker has answered in this study, or take that back with "pending".

    Raises UserError for a worker who is not in the study, and for a rejection without a reason.
    """
    _enrolment(db, study_id, worker)
    reason = _reason(reason, needed=verdict == "rejected")
    decision = insert_decision(db, study_id, worker, verdict, reason)
    db.execute(
        "UPDATE assignments SET verdict = ?, decision = ? WHERE study = ? AND worker = ? AND state = 'submitted'",
        [verdict, decision, study_id, worker],
    )
    touch(db, study_id)
    append_log(db, f"work {verdict}", reason, study_id, worker)


def insert_decision(
    db: sqlite_utils.Database, study_id: str, worker: str, verdict: ApprovalVerdict, reason: str
) -> int:
    """The row of a decision; returns its id."""
    row = {"study": study_id, "worker": worker, "verdict": verdict, "reason": reason, "created": now()}
    return insert_row(db, "decisions", row)


def adjudicate(db: sqlite_utils.Database, study_id: str, item: int, question: str, answer: str, reason: str) -> None:
    """A person's answer to a question of an item, kept apart from the votes; "" takes an earlier one back.

    Raises UserError for an item that is not one of the study's.
    """
    require_study(db, study_id)
    query = "SELECT 1 FROM study_items WHERE id = ? AND study = ? AND kind = 'item'"
    if not list(db.query(query, [item, study_id])):
        raise UserError("This item is not one of the study's; reload the page.")
    if not 0 < len(question) <= 80 or len(answer) > 2000:
        raise UserError("An adjudication answers one of the study's questions, in at most 2000 characters.")
    row = {"study": study_id, "item": item, "question": whole(question), "answer": whole(answer)}
    insert_row(db, "adjudications", {**row, "reason": _reason(reason, needed=False), "created": now()})
    touch(db, study_id)
    append_log(db, "adjudicated" if answer else "adjudication taken back", f"item {item}, {question}", study_id)


def _enrolment(db: sqlite_utils.Database, study_id: str, worker: str) -> Enrolment:
    require_study(db, study_id)
    enrolment = read_enrolment(db, study_id, worker)
    if enrolment is None:
        raise UserError(f"{worker[:80]!r} is no worker of this study; pick one from its list.")
    return enrolment


def _reason(reason: str, needed: bool) -> str:
    reason = whole(" ".join(reason.split()))
    if needed and not reason:
        raise UserError("Say why: the worker may ask, and the report names the reason.")
    if len(reason) > LONGEST_REASON:
        raise UserError(f"The reason has {len(reason)} characters; say it in at most {LONGEST_REASON}.")
    return reason
