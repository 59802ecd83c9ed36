"""Functions on an open database that repositories of studies share: a study's row, its items, its log."""

from __future__ import annotations

import json
from functools import lru_cache

from sqlite_utils import Database as Db

from core.studies import Answers, Item, Rules
from storage.engine.queries import first_value, insert_row, required_row
from storage.engine.rows import Row, now, pack, unpack_value, whole

LONGEST_DETAIL = 1000
"""Maximum number of characters in a log entry. So text from strangers cannot fill the disk."""


def require_study(db: Db, study_id: str) -> Row:
    """Return the row of a study. Raises UserError for an unknown study."""
    missing = f"This workspace has no study {study_id[:80]!r}; pick one from the list of studies."
    return required_row(db, "studies", study_id, missing)


def items_given(db: Db, study_id: str, worker: str) -> int:
    return int(first_value(db, "SELECT given FROM enrolments WHERE study = ? AND worker = ?", [study_id, worker]))


def release(db: Db, study_id: str, worker: str) -> None:
    """End the worker's lease. If its item still needs votes, the worker gets it first when they continue."""
    query = "UPDATE assignments SET state = 'expired' WHERE study = ? AND worker = ? AND state = 'leased'"
    db.execute(query, [study_id, worker])


def update_study(db: Db, study_id: str, columns: Row) -> None:
    """Change columns of a study. Record that its results may have changed."""
    names = "".join(f"{name} = :{name}, " for name in columns)
    query = f"UPDATE studies SET {names}changed = :changed, revision = revision + 1 WHERE id = :id"
    db.execute(query, {**columns, "changed": now(), "id": study_id})


def touch(db: Db, study_id: str) -> None:
    """Record that the results of a study may have changed."""
    update_study(db, study_id, {})


def log_change(db: Db, event: str, detail: str, study_id: str, worker: str = "") -> None:
    """Record that the results of a study may have changed, and add an entry to the log."""
    touch(db, study_id)
    append_log(db, event, detail, study_id, worker)


def append_log(db: Db, event: str, detail: str, study_id: str = "", worker: str = "") -> None:
    """Add an entry to the log, such as a refusal. Long texts are cut. Study and worker need not exist."""
    row = {"study": study_id[:80], "worker": worker[:80], "event": event[:80], "detail": detail[:LONGEST_DETAIL]}
    insert_row(db, "study_log", {**{name: whole(text) for name, text in row.items()}, "created": now()})


def append_vote(
    db: Db, assignment: int, event: str, key: str | None, answers: Answers, comment: str, seconds: float, time: str
) -> int:
    """Add an event "submitted" or "withdrawn" to the log of votes. Return its id."""
    row = {"assignment": assignment, "event": event, "key": key, "answers": pack(dict(answers))}
    return insert_row(db, "study_votes", {**row, "comment": comment, "seconds": float(seconds), "created": time})


def item_of(row: Row) -> Item:
    content = json.loads(row["content"])
    content |= {name: tuple(content[name]) for name in ("classes", "edit_types")}
    about = {name: row[name] for name in ("kind", "id", "public")}
    return Item(image_sha=row["image"], source_sha=row["source"], **about, **content)


@lru_cache(maxsize=64)
def rules_of(text: str) -> Rules:
    """Return the rules stored in a column. Cached, as every claim and every vote needs them."""
    rules: Rules = unpack_value(Rules, text)
    return rules
