"""What is said of an image: people's reviews of test cases, and the readings of models under test. Rows and back.

Functions of an open database, like those of `storage.runs`. Both tables are append-only; the latest row counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlite_utils

from pipeline.errors import UserError
from pipeline.types import LONGEST_REASON
from storage.rows import Row, insert_row, now, pack, when
from storage.types import VERDICTS, Review, Verdict


def append_review(db: sqlite_utils.Database, case_id: int, verdict: Verdict, reason: str) -> int:
    """A person's verdict on a test case. Raises UserError for an unknown test case or too long a reason."""
    if verdict not in VERDICTS:
        raise ValueError(f"there is no verdict {verdict!r}")
    reason = " ".join(reason.split())
    if len(reason) > LONGEST_REASON:
        raise UserError(f"The reason has {len(reason)} characters; say it in at most {LONGEST_REASON}.")
    if not list(db.query("SELECT 1 FROM test_cases WHERE id = ?", [case_id])):
        raise UserError(f"This workspace has no test case {case_id}; pick one from its run.")
    row = {"test_case": case_id, "verdict": verdict, "reason": reason, "created": now()}
    return insert_row(db, "reviews", row)


def review_of(row: Row) -> Review | None:
    """The review in a row with the columns verdict, reason and reviewed, all of them NULL where there is none."""
    if row["verdict"] in (None, "open"):
        return None
    return Review(row["verdict"], row["reason"], when(row["reviewed"]))


def append_reading(db: sqlite_utils.Database, sha: str, model: str, value: Mapping[str, Any]) -> int:
    """What `model` said of the stored image, as plain data. Raises UserError when no image has this hash."""
    if not list(db.query("SELECT 1 FROM images WHERE sha = ?", [sha])):
        raise UserError(f"This workspace has no image {sha[:80]!r}.")
    row = {"image": sha, "model": model, "value": pack(dict(value)), "created": now()}
    return insert_row(db, "readings", row)


def read_reading(db: sqlite_utils.Database, sha: str, model: str) -> dict[str, Any] | None:
    """What `model` said of the image last; None when it was never asked."""
    query = "SELECT value FROM readings WHERE image = ? AND model = ? ORDER BY id DESC LIMIT 1"
    for row in db.query(query, [sha, model]):
        value: dict[str, Any] = json.loads(row["value"])
        return value
    return None
