"""Store, for each value of a facet, the set of entries that have this value (table `catalogue_sets`)."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from sqlite_utils import Database as Db

from storage.curation import entry_sets
from storage.curation.entry_sets import CHUNK, CHUNK_BITS, KEY_BITS, Numbers
from storage.engine.queries import first_value, insert_row


def change_sets(db: Db) -> None:
    """Apply the changes that triggers recorded in `pending_set_changes`."""
    changes = db.execute(f"""
        SELECT (value << {KEY_BITS}) | (entry >> {CHUNK_BITS}), entry & {CHUNK - 1}, put
        FROM pending_set_changes ORDER BY 1, id
    """).fetchall()
    for key, of_chunk in groupby(changes, key=lambda change: change[0]):
        members = entry_sets.changed_set(_members(db, key), {place: bool(put) for _, place, put in of_chunk})
        db.execute("INSERT OR REPLACE INTO catalogue_sets (id, members) VALUES (?, ?)", [key, members])
    db.execute("DELETE FROM pending_set_changes")


def value_id(db: Db, facet: str, value: str) -> int:
    """Return the number of a value of a facet, adding it if it is new."""
    known: int | None = first_value(db, "SELECT id FROM catalogue_values WHERE facet = ? AND value = ?", [facet, value])
    return known or insert_row(db, "catalogue_values", {"facet": facet, "value": value})


def make_set(db: Db, value: int, entries: Numbers) -> None:
    """Store a value's set of `entries` (ascending), and the number of entries that are not of deleted runs."""
    number = 0
    present = value_id(db, "there", "") << KEY_BITS
    for chunk in np.unique(entries >> CHUNK_BITS).tolist():
        members = entry_sets.stored_places(entries[entries >> CHUNK_BITS == chunk] & (CHUNK - 1))
        db.execute("INSERT INTO catalogue_sets (id, members) VALUES (?, ?)", [(value << KEY_BITS) | chunk, members])
        number += entry_sets.size(entry_sets.chunk_bits(members) & entry_sets.chunk_bits(_members(db, present | chunk)))
    db.execute("UPDATE catalogue_values SET entries = ? WHERE id = ?", [number, value])


def drop_set(db: Db, value: int) -> None:
    """Delete the stored set of a value. Call this when no entry has the value any more."""
    db.execute("DELETE FROM catalogue_sets WHERE id >= ? AND id < ?", [value << KEY_BITS, (value + 1) << KEY_BITS])
    db.execute("UPDATE catalogue_values SET entries = 0 WHERE id = ?", [value])


def _members(db: Db, key: int) -> bytes:
    members: bytes | None = first_value(db, "SELECT members FROM catalogue_sets WHERE id = ?", [key])
    return members or b""
