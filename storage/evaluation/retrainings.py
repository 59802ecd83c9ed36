"""Results of further training of models under test, one row for each computation. The weights are files beside the
database; a row holds everything that a report shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database as Db

from storage.engine.database import Repository, read, write
from storage.engine.rows import insert_row, now, pack, record_of


@dataclass(frozen=True)
class StoredRetraining:
    """The result of one retraining."""

    id: int
    about: str
    asked: str
    model: int
    """Id of the model, as in `StoredModel.id`."""
    told: dict[str, Any]
    """Plain data, which the services interpret."""
    created: str


class Retrainings(Repository):
    """All retrainings of a workspace. All methods may be called from any thread."""

    @write
    def keep(self, db: Db, about: str, question: str, model: int, result: dict[str, Any]) -> int:
        """Save a result, unless it equals the latest one for the same question; return its id."""
        text = pack(result)
        query = "SELECT id, told FROM retrainings WHERE about = ? AND asked = ? ORDER BY id DESC LIMIT 1"
        last = db.execute(query, [about, question]).fetchone()
        if last is not None and last[1] == text:
            return int(last[0])
        return insert_row(
            db, "retrainings", {"about": about, "asked": question, "model": model, "told": text, "created": now()}
        )

    @read
    def kept(self, db: Db, about: str = "") -> tuple[StoredRetraining, ...]:
        """Return all results, or those about the same images and model, latest first."""
        query = "SELECT * FROM retrainings WHERE ? IN ('', about) ORDER BY id DESC"
        return tuple(record_of(StoredRetraining, row) for row in db.query(query, [about]))
