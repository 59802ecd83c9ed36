"""Search a workspace for damage. Every page of its database, every row of its catalogue and every image is read."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.words import count_of
from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS, chunk_bits, entries_of
from storage.curation.scores import scored_rows
from storage.engine.rows import Row
from storage.images import ImageFiles
from storage.pending import QUERIES, give_functions
from storage.schema import migrations
from storage.workspace import DATABASE, IMAGES

MOST_TOLD = 20
"""Maximum number of faults of one kind that are reported."""


@dataclass(frozen=True)
class Comparison:
    """A query that derives a table's rows again from other tables, to compare them with the stored rows."""

    keys: int
    columns: str
    stored: str
    expected: str


_COLUMNS = DataTable(__file__, str, "columns")
_COMPARISONS = DataTable(__file__, Comparison, "comparisons")


def damage(workspace: Path) -> tuple[str, ...]:
    """Return one sentence for each damage found; () if none exists. The workspace may be in use."""
    path = workspace / DATABASE
    images = ImageFiles(workspace / IMAGES)
    try:
        with _opened_to_read(path) as connection:
            findings = [row[0] for row in connection.execute(f"PRAGMA integrity_check({MOST_TOLD})") if row[0] != "ok"]
            if findings:
                return tuple(f"The database is damaged: {one}" for one in findings)
            rows = connection.execute(f"SELECT * FROM pragma_foreign_key_check LIMIT {MOST_TOLD}").fetchall()
            findings = [f"Row {row[1]} of the table {row[0]} refers to a missing row of {row[2]}." for row in rows]
            shas = [sha for (sha,) in connection.execute("SELECT sha FROM images ORDER BY sha")]
    except sqlite3.DatabaseError as error:
        if "no such table" not in str(error):
            return (f"The database is damaged: {error}",)
        shas = []  # `catalogue_faults` reports that this is another database
    findings += catalogue_faults(path)
    lost = []
    for sha in shas:
        try:
            images.read(sha)
        except UserError as error:
            lost.append(str(error))
    if len(lost) > MOST_TOLD:
        lost[MOST_TOLD:] = [f"And {count_of(len(lost) - MOST_TOLD, 'further image')} like these."]
    return (*findings, *lost)


def catalogue_faults(path: Path) -> tuple[str, ...]:
    """Compare the catalogue of the database at `path` with the tables that it is derived from.

    Return up to `MOST_TOLD` differences, one sentence each; () if all agrees. Reads the whole catalogue in one snapshot
    and changes nothing. Raises UserError if the file is not a database of this version.
    """
    with _opened_to_read(path) as connection:
        db = Db(connection)
        try:
            reason = migrations.refusal(db)
            if reason or not migrations.is_current(db):
                raise UserError(f"{path} {reason or 'is of an earlier version: open the workspace to update it'}.")
            give_functions(connection)
            connection.execute("BEGIN")
            faults = [*_waiting(db), *_compare_rows(db), *_compare_sets(db), *_compare_words(db)]
            return tuple(faults[:MOST_TOLD])
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path} cannot be read ({error}).") from error


@contextmanager
def _opened_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise UserError(f"There is no {path}; name the folder of a workspace.")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        yield connection


def _waiting(db: Db) -> Iterator[str]:
    for table in ("pending_set_changes", "pending_outcomes", "pending_validity"):
        if db.table(table).count:
            yield f"Rows wait in {table}: open the workspace once to process them."


def _compare_rows(db: Db) -> Iterator[str]:
    for what, one in _COMPARISONS.items():
        query = f"SELECT {one.columns.format_map(_COLUMNS)} FROM "
        stored: list[Row] = list(db.query(query + one.stored))
        expected: list[Row] = list(db.query(query + one.expected.format_map(QUERIES)))
        if what == "number":
            expected += scored_rows(db)
        saved, follows = (
            {tuple(row.values())[: one.keys]: tuple(row.values())[one.keys :] for row in rows}
            for rows in (stored, expected)
        )
        for key in sorted(saved.keys() | follows.keys(), key=repr):
            if saved.get(key) != follows.get(key):
                yield f"{what} {key}: {saved.get(key)} is kept, {follows.get(key)} follows from the other tables."


def _compare_sets(db: Db) -> Iterator[str]:
    expected: dict[tuple[str, str], set[int]] = defaultdict(set)
    for entry, facet, value in db.execute("SELECT entry, facet, value FROM catalogue_facets"):
        members = expected[facet, value]
        if entry in members:
            yield f"Entry {entry} has {facet} {value!r} twice."
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
            yield f"The set of {name[0]} {name[1]!r} is wrong about entries {sorted(off)[:5]}."


def _compare_words(db: Db) -> Iterator[str]:
    """Compare the full-text index with one rebuilt in memory. Each word must find the same entries."""
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
        for entry, term in db.execute(query):
            yield f"The full text of entry {entry} has {words}: {term!r}."
