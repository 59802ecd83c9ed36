"""Checks that the catalogue agrees with the tables that it is derived from: every part is recomputed and compared."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from itertools import chain
from pathlib import Path

from sqlite_utils import Database as Db

from core.errors import UserError
from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS, chunk_bits, entries_of
from storage.curation.scores import scored_rows
from storage.engine.rows import Row
from storage.pending import QUERIES, give_functions
from storage.schema import migrations

MOST_TOLD = 20
"""Maximum number of reported faults; more would not help."""
_COLUMNS = (
    "image, source, kind, label, classes, edit_types, edits, weather, time_of_day, profile, recipe, method, verdict, "
    "review, there, created"
)
_COUNTED = "entry IN (SELECT id FROM catalogue WHERE there)"


def catalogue_faults(path: Path) -> tuple[str, ...]:
    """Return the disagreements in the database at `path`, a sentence each, at most `MOST_TOLD`; () if all agrees.

    Reads the whole catalogue in one snapshot and changes nothing. Raises UserError if the file is not a database of
    this version.
    """
    if not path.is_file():
        raise UserError(f"There is no {path}; name the folder of a workspace.")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        db = Db(connection)
        try:
            reason = migrations.refusal(db)
            if reason or not migrations.is_current(db):
                raise UserError(f"{path} {reason or 'is of an earlier version: open it with this one first'}.")
            give_functions(connection)
            connection.execute("BEGIN")
            return _faults(db)
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path} cannot be read ({error}).") from error


def _faults(db: Db) -> tuple[str, ...]:
    faults: list[str] = []

    def compare(what: str, actual_rows: Iterable[Row], expected_rows: Iterable[Row], keys: int) -> None:
        stored, expected = (
            {tuple(row.values())[:keys]: tuple(row.values())[keys:] for row in rows}
            for rows in (actual_rows, expected_rows)
        )
        for key in sorted(stored.keys() | expected.keys(), key=repr):
            if stored.get(key) != expected.get(key):
                faults.append(
                    f"{what} {key}: {stored.get(key)} is kept, {expected.get(key)} follows from the other tables."
                )

    for table in ("pending_set_changes", "pending_outcomes", "pending_validity"):
        if db.table(table).count:
            faults.append(f"Rows wait in {table}: open the workspace once, and they are taken up.")
    columns = f"test_case, run, {_COLUMNS}"
    compare("entry of test case", db.query(f"SELECT {columns} FROM catalogue WHERE test_case NOT NULL"),
            db.query(f"SELECT {columns} FROM entries_of_test_cases"), 1)  # fmt: skip
    compare("imported entry", db.query(f"SELECT id, {_COLUMNS} FROM catalogue WHERE test_case IS NULL"),
            db.query(f"SELECT id, {_COLUMNS} FROM entries_of_imports"), 1)  # fmt: skip
    columns = "entry, model, prediction, source_prediction"
    compare("prediction", db.query(f"SELECT {columns} FROM catalogue_outcomes"),
            db.query(f"SELECT {columns} FROM catalogue_predictions"), 2)  # fmt: skip
    # Correctness of a segmentation is computed by the program, after it was measured.
    columns = "entry, model, measured, source_right, image_right"
    judged = "entry IN (SELECT id FROM catalogue WHERE kind = 'classification')"
    compare("outcome", db.query(f"SELECT {columns} FROM catalogue_outcomes WHERE {judged}"),
            db.query(f"SELECT {columns} FROM ({QUERIES['outcomes']}) WHERE {judged}"), 2)  # fmt: skip
    compare("validity of item", db.query("SELECT id, outcome FROM study_items WHERE kind = 'item'"),
            db.query(QUERIES["validity"]), 1)  # fmt: skip
    numbers = """
        SELECT catalogue_values.id AS measure, entry, number FROM catalogue_measures
            JOIN catalogue_values ON facet = 'measure' AND value = measure
    """
    compare("number", db.query("SELECT measure, entry, number FROM catalogue_numbers"),
            chain(db.query(numbers), scored_rows(db)), 2)  # fmt: skip
    values = f"SELECT facet, value, count(*) AS entries FROM catalogue_facets WHERE {_COUNTED} GROUP BY facet, value"
    compare("count of", db.query("SELECT facet, value, entries FROM catalogue_values WHERE entries <> 0"),
            db.query(values), 2)  # fmt: skip
    cells = f"""
        SELECT grid, line, place, facet, value, count(*) AS entries
        FROM catalogue_places JOIN catalogue_facets USING (entry)
        WHERE (facet = 'review' OR facet LIKE 'model:%') AND {_COUNTED} GROUP BY grid, line, place, facet, value
    """
    compare("cell", db.query("SELECT * FROM catalogue_cells WHERE entries <> 0"), db.query(cells), 5)
    _compare_sets(db, faults)
    _compare_words(db, faults)
    return tuple(faults[:MOST_TOLD])


def _compare_sets(db: Db, faults: list[str]) -> None:
    expected: dict[tuple[str, str], set[int]] = defaultdict(set)
    for entry, facet, value in db.execute("SELECT entry, facet, value FROM catalogue_facets"):
        members = expected[facet, value]
        if entry in members:
            faults.append(f"Entry {entry} has {facet} {value!r} twice.")
        members.add(entry)
    stored: dict[tuple[str, str], set[int]] = defaultdict(set)
    names = {
        number: (facet, value) for number, facet, value in db.execute("SELECT id, facet, value FROM catalogue_values")
    }
    for key, members in db.execute("SELECT id, members FROM catalogue_sets"):
        first = (key & ((1 << KEY_BITS) - 1)) << CHUNK_BITS
        stored[names[key >> KEY_BITS]] |= {first + int(place) for place in entries_of(chunk_bits(members))}
    for name in sorted(expected.keys() | stored.keys()):
        if off := expected[name] ^ stored[name]:
            faults.append(f"The set of {name[0]} {name[1]!r} is wrong about entries {sorted(off)[:5]}.")


def _compare_words(db: Db, faults: list[str]) -> None:
    """Compare with a full text rebuilt in memory: each word must find the same."""
    (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'catalogue_words'").fetchone()
    db.execute(sql.replace("catalogue_words", "temp.words_anew", 1))
    db.execute("""
        INSERT INTO temp.words_anew (rowid, caption, counterfactual, edited)
        SELECT entry, caption, counterfactual, edited FROM catalogue_texts
    """)
    for name, of in (("kept", "main, catalogue_words"), ("anew", "temp, words_anew")):
        db.execute(f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab ({of}, instance)")
    for one, other, words in (("kept", "anew", "too much"), ("anew", "kept", "too little")):
        query = f"SELECT doc, term FROM temp.{one} EXCEPT SELECT doc, term FROM temp.{other} LIMIT {MOST_TOLD}"
        faults += [f"The full text of entry {entry} has {words}: {term!r}." for entry, term in db.execute(query)]
