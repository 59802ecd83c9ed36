"""Whether the catalogue says what the tables say that it follows: every part is worked out anew and compared."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from itertools import chain
from pathlib import Path

import sqlite_utils

from core.errors import UserError
from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS, chunk_bits, entries_of
from storage.curation.scores import scored_rows
from storage.engine.rows import Row
from storage.schema import batch_facet, catalogue_tables, decision_tables, imports_tables, migrations, state_tables

MOST_TOLD = 20
"""Faults that are told; more of them help nobody."""
_FACETS = f"{decision_tables.FACETS} UNION ALL {imports_tables.FACETS} UNION ALL {batch_facet.FACETS}"
_NUMBERS = f"{decision_tables.NUMBERS} UNION ALL {imports_tables.NUMBERS}"
_WORDS = f"{catalogue_tables.WORDS} UNION ALL {imports_tables.WORDS}"


def catalogue_faults(path: Path) -> tuple[str, ...]:
    """What does not agree in the database at `path`, a sentence each, at most `MOST_TOLD`; () where all does.

    Reads all of the catalogue, in one snapshot, and changes nothing. Raises UserError for a file that is not a database
    of this version.
    """
    if not path.is_file():
        raise UserError(f"There is no {path}; name the folder of a workspace.")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        db = sqlite_utils.Database(connection)
        try:
            reason = migrations.refusal(db)
            if reason or len(list(migrations.studio.applied(db))) < len(migrations.STEPS):
                raise UserError(f"{path} {reason or 'is of an earlier version: open it with this one first'}.")
            state_tables.give_functions(connection)
            connection.execute("BEGIN")
            return _faults(db)
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path} cannot be read ({error}).") from error


def _faults(db: sqlite_utils.Database) -> tuple[str, ...]:
    faults: list[str] = []
    tables, decided = catalogue_tables, decision_tables

    def compare(what: str, kept: Iterable[Row], wanted: Iterable[Row], keys: int) -> None:
        """Rows by their first columns, as a table keeps them and as they follow from the others."""
        there, anew = (
            {tuple(row.values())[:keys]: tuple(row.values())[keys:] for row in rows} for rows in (kept, wanted)
        )
        for key in sorted(there.keys() | anew.keys(), key=repr):
            if there.get(key) != anew.get(key):
                faults.append(f"{what} {key}: {there.get(key)} is kept, {anew.get(key)} follows from the other tables.")

    entries = f"SELECT {', '.join(tables.COLUMNS)} FROM"
    compare("entry of test case", db.query(f"{entries} catalogue WHERE test_case NOT NULL"),
            db.query(f"{entries} ({decided.ENTRIES})"), 1)  # fmt: skip
    compare("verdict and label of entry",
            db.query(f"SELECT id, verdict_kept, review_kept, label_kept FROM ({decided.OWN})"),
            db.query(f"SELECT id, verdict, review, label FROM ({decided.OWN})"), 1)  # fmt: skip
    imported = f"SELECT {', '.join(imports_tables.COLUMNS)} FROM"
    compare("imported entry", db.query(f"{imported} catalogue WHERE test_case IS NULL"),
            db.query(f"{imported} ({imports_tables.DECIDED})"), 1)  # fmt: skip
    columns = "entry, model, prediction, source_prediction"
    compare("prediction", db.query(f"SELECT {columns} FROM catalogue_outcomes"),
            db.query(f"SELECT {columns} FROM ({tables.OUTCOMES})"), 2)  # fmt: skip
    # Of a segmentation somebody else has said what is right, once it was measured.
    columns = "entry, model, measured, source_right, image_right"
    judged = "entry IN (SELECT id FROM catalogue WHERE kind = 'classification')"
    compare("outcome", db.query(f"SELECT {columns} FROM catalogue_outcomes WHERE {judged}"),
            db.query(f"SELECT {columns} FROM ({tables.OUTCOMES}) WHERE {judged}"), 2)  # fmt: skip
    number = "SELECT measure, entry, number FROM"
    follow = chain(db.query(f"{number} ({_NUMBERS})"), scored_rows(db))
    compare("number", db.query(f"{number} catalogue_numbers"), follow, 2)
    compare("count of", db.query("SELECT facet, value, entries FROM catalogue_values WHERE entries <> 0"),
            db.query(tables.VALUES.format(facets=_FACETS)), 2)  # fmt: skip
    compare("cell", db.query("SELECT * FROM catalogue_cells WHERE entries <> 0"), db.query(tables.CELLS), 5)
    _compare_sets(db, faults)
    _compare_words(db, faults)
    return tuple(faults[:MOST_TOLD])


def _compare_sets(db: sqlite_utils.Database, faults: list[str]) -> None:
    wanted: dict[tuple[str, str], set[int]] = defaultdict(set)
    for entry, facet, value in db.execute(_FACETS):
        members = wanted[facet, value]
        if entry in members:
            faults.append(f"Entry {entry} has {facet} {value!r} twice.")
        members.add(entry)
    kept: dict[tuple[str, str], set[int]] = defaultdict(set)
    names = {
        number: (facet, value) for number, facet, value in db.execute("SELECT id, facet, value FROM catalogue_values")
    }
    for key, members in db.execute("SELECT id, members FROM catalogue_sets"):
        first = (key & ((1 << KEY_BITS) - 1)) << CHUNK_BITS
        kept[names[key >> KEY_BITS]] |= {first + int(place) for place in entries_of(chunk_bits(members))}
    for name in sorted(wanted.keys() | kept.keys()):
        if off := wanted[name] ^ kept[name]:
            faults.append(f"The set of {name[0]} {name[1]!r} is wrong about entries {sorted(off)[:5]}.")


def _compare_words(db: sqlite_utils.Database, faults: list[str]) -> None:
    """By a full text made anew, in memory: what each word finds must be the same."""
    db.execute(catalogue_tables.WORDS_TABLE.format(name="temp.words_anew"))
    db.execute("INSERT INTO temp.words_anew (rowid, caption, counterfactual, edited) " + _WORDS)
    for name, of in (("kept", "main, catalogue_words"), ("anew", "temp, words_anew")):
        db.execute(f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab ({of}, instance)")
    for one, other, words in (("kept", "anew", "too much"), ("anew", "kept", "too little")):
        query = f"SELECT doc, term FROM temp.{one} EXCEPT SELECT doc, term FROM temp.{other} LIMIT {MOST_TOLD}"
        faults += [f"The full text of entry {entry} has {words}: {term!r}." for entry, term in db.execute(query)]
