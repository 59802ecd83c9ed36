"""What training models under test further has brought: one row for each time that it was worked out. The weights are
files beside the database; what is kept here is all that a report tells.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlite_utils

from storage.engine.database import Repository, read, write
from storage.engine.rows import Row, insert_row, now, pack


@dataclass(frozen=True)
class StoredRetraining:
    """What came of one retraining."""

    id: int
    about: str
    asked: str
    model: int
    """`StoredModel.id`."""
    told: dict[str, Any]
    """Plain data, of which the services know what it says."""
    created: str


class Retrainings(Repository):
    """All retrainings of a workspace. All methods may be called from any thread."""

    @write
    def keep(self, db: sqlite_utils.Database, about: str, asked: str, model: int, told: dict[str, Any]) -> int:
        """Save what came of one; what came of it the last time stays. Where that is the same nothing is added. Gives
        its id.
        """
        text = pack(told)
        query = "SELECT id, told FROM retrainings WHERE about = ? AND asked = ? ORDER BY id DESC LIMIT 1"
        last = db.execute(query, [about, asked]).fetchone()
        if last is not None and last[1] == text:
            return int(last[0])
        return insert_row(
            db, "retrainings", {"about": about, "asked": asked, "model": model, "told": text, "created": now()}
        )

    @read
    def of(self, db: sqlite_utils.Database, about: str) -> tuple[StoredRetraining, ...]:
        """All that was worked out about the same images and model, the latest first."""
        return tuple(
            _stored(row) for row in db.query("SELECT * FROM retrainings WHERE about = ? ORDER BY id DESC", [about])
        )

    @read
    def all(self, db: sqlite_utils.Database) -> tuple[StoredRetraining, ...]:
        """All that was worked out, the latest first."""
        return tuple(_stored(row) for row in db.query("SELECT * FROM retrainings ORDER BY id DESC"))


def _stored(row: Row) -> StoredRetraining:
    return StoredRetraining(
        row["id"], row["about"], row["asked"], row["model"], json.loads(row["told"]), row["created"]
    )
