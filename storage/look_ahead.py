"""What a worker would get next, without giving it: so that its picture can be on its way. A function of an open
database that only reads.
"""

from __future__ import annotations

import sqlite_utils

from storage.next_items import next_item
from storage.study_rows import item_of, require_study, rules_of
from study.types import Item, ItemKind


def read_ahead(db: sqlite_utils.Database, study_id: str, worker: str, kind: ItemKind, beside: int) -> Item | None:
    """The item that `storage.assignments.claim` would give for `kind` if the assignment `beside` were answered now and
    nobody else did anything; None for none. A guess: what is given in the end is the claim's to say.

    Raises UserError for an unknown study.
    """
    rules = rules_of(require_study(db, study_id)["rules"])
    values = {"study": study_id, "worker": worker, "kind": kind, "votes": rules.votes, "beside": beside}
    query = """
        SELECT study_items.* FROM assignments JOIN study_items ON study_items.id = item
        WHERE assignments.study = :study AND worker = :worker AND assignments.id <> :beside AND (
            state = 'leased' OR (
                state = 'expired' AND assignments.kind = :kind
                AND (assignments.kind <> 'item' OR study_items.votes + study_items.leases < :votes)
            )
        )
        ORDER BY state = 'expired', number LIMIT 1
    """
    for row in list(db.query(query, values)):
        return item_of(row)
    found = next_item(db, study_id, worker, kind, rules, remember=False)
    if found is None:
        return None
    return item_of(next(db.query("SELECT * FROM study_items WHERE id = ?", [found["id"]])))
