"""The example of a workspace: the record of what it made, and its removal.

The record is a named value of the workspace (table `secrets`), so it is saved in the same transaction as the thing that
it records, and a backup holds it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from sqlite_utils import Database as Db

from core.studies import Rules
from core.types import from_plain
from storage.engine.database import Repository, read, write
from storage.engine.rows import now, pack, pack_value
from storage.runs.rows import change_state
from storage.studies.imported_votes import IMPORTED
from storage.studies.rows import append_log
from storage.studies.studies import create_study
from storage.test_sets.test_sets import create_set

EXAMPLE = "example"
"""The name of the record among the named values."""
AUTHOR = "example (no person)"
"""The author of the example's reviews."""


@dataclass(frozen=True)
class ExampleRecord:
    """All that the example made, by number or id."""

    seed: int
    batches: tuple[int, ...] = ()
    test_sets: tuple[str, ...] = ()
    study: str = ""
    finished: bool = False


@dataclass(frozen=True)
class Kept:
    """What a removal left in place, because a person's own work uses it."""

    test_sets: tuple[str, ...] = ()
    """Names of the test sets that a person worked on."""
    study: str = ""
    """The name of the study, if a person worked on it; else ""."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Number of runs by the reason for which they stay."""


class Example(Repository):
    """The example of one workspace. All methods may be called from any thread."""

    @read
    def record(self, db: Db) -> ExampleRecord | None:
        """Return the record, or None if the workspace has no example."""
        return _record(db)

    @write
    def begin(self, db: Db, seed: int) -> ExampleRecord:
        """Begin an example with this seed, or return the record of the one that is there."""
        held = _record(db)
        if held is None:
            held = ExampleRecord(seed)
            _keep(db, held)
        return held

    @write
    def add_batch(self, db: Db, number: int) -> None:
        """Record a batch. A second call changes nothing."""
        held = _require(db)
        _keep(db, replace(held, batches=tuple(dict.fromkeys((*held.batches, number)))))

    @write
    def create_test_set(self, db: Db, name: str) -> str:
        """Create and record a test set with an empty draft; return its id. A taken name gets a number."""
        held = _require(db)
        taken = {row["name"].casefold() for row in db.query("SELECT name FROM test_sets")}
        free = next(one for one in _numbered(name) if one.casefold() not in taken)
        made, _ = create_set(db, free, "")
        _keep(db, replace(held, test_sets=(*held.test_sets, made)))
        return made

    @write
    def create_study(self, db: Db, name: str, rules: Rules) -> str:
        """Create and record the draft of the study. Return its id."""
        held, made = _require(db), create_study(db, name, rules)
        _keep(db, replace(held, study=made))
        return made

    @write
    def finish(self, db: Db) -> None:
        """Record that all steps were done."""
        _keep(db, replace(_require(db), finished=True))

    @write
    def remove(self, db: Db, batches: Sequence[int], trained_on: Sequence[str]) -> Kept:
        """Remove the example: delete its runs as a person would, and drop its batches, test sets and study for good.

        All or nothing. What a person's own work uses stays: see `Kept`. `trained_on` are test sets that models were
        trained with. The batches are those of the record and `batches`.
        """
        held = _record(db)
        if held is None:
            return Kept()
        numbers = tuple(dict.fromkeys((*held.batches, *batches)))
        own = {"runs": pack(_runs_of(db, numbers)), "author": AUTHOR}
        sets = {name: set_id for set_id, name in _rows(db, _SETS, held.test_sets)}
        kept_sets = {
            name: set_id
            for name, set_id in sets.items()
            if set_id in trained_on or db.execute(_WORKED_ON_SET, {**own, "id": set_id}).fetchone()
        }
        gone_sets = [set_id for set_id in sets.values() if set_id not in kept_sets.values()]
        study = next(iter(db.execute("SELECT name FROM studies WHERE id = ?", [held.study])), None)
        kept_study = study is not None and db.execute(_VOTED_BY_PEOPLE, {"study": held.study}).fetchone() is not None
        gone = {"sets": pack(gone_sets), "study": "" if kept_study else held.study}
        used = dict(db.execute(_USED_RUNS, {**own, **gone}).fetchall())
        for run in json.loads(own["runs"]):
            if run not in used and not _is_removed(db, run):
                change_state(db, run, removed=1)
        with _without_guards(db):
            for number in numbers:
                _drop(db, _BATCH, {"batch": number})
            for set_id in gone_sets:
                _drop(db, _TEST_SET, {"set": set_id})
            if study is not None and not kept_study:
                _drop(db, _STUDY, {"study": held.study, "imported": f"{IMPORTED}%"})
                append_log(db, "example removed", study[0], held.study)
        db.execute("DELETE FROM secrets WHERE name = ?", [EXAMPLE])
        return Kept(tuple(kept_sets), study[0] if study and kept_study else "", Counter(used.values()))


_SETS = "SELECT id, name FROM test_sets WHERE id IN (SELECT value FROM json_each(?))"
# A person's own: another version, a draft of one, or an image that the example did not make.
_WORKED_ON_SET = """
    SELECT 1 FROM test_set_versions WHERE test_set = :id AND place > 1
    UNION ALL
    SELECT 1 FROM test_set_entries JOIN test_set_versions ON number = version
        LEFT JOIN test_cases ON test_cases.id = test_case
    WHERE test_set = :id AND role = 'generated'
        AND coalesce(run, '') NOT IN (SELECT value FROM json_each(:runs))
    LIMIT 1
"""
_VOTED_BY_PEOPLE = """
    SELECT 1 FROM assignments WHERE study = :study AND NOT imported
    UNION ALL SELECT 1 FROM adjudications WHERE study = :study
    UNION ALL SELECT 1 FROM decisions WHERE study = :study
    UNION ALL SELECT 1 FROM exclusions WHERE study = :study
    LIMIT 1
"""
_USED_RUNS = """
    SELECT own.id, CASE
        WHEN EXISTS (
            SELECT 1 FROM test_set_entries JOIN test_set_versions ON number = version
                LEFT JOIN test_cases ON test_cases.id = test_case
            WHERE test_set NOT IN (SELECT value FROM json_each(:sets))
                AND (test_cases.run = own.id OR test_set_entries.image = own.source)
        ) THEN 'in a test set'
        WHEN EXISTS (
            SELECT 1 FROM study_items LEFT JOIN test_cases ON test_cases.id = test_case
            WHERE study <> :study
                AND (test_cases.run = own.id OR own.source IN (study_items.image, study_items.source))
        ) THEN 'in a study'
        WHEN EXISTS (
            SELECT 1 FROM test_cases JOIN reviews ON test_case = test_cases.id
            WHERE run = own.id AND author <> :author
        ) OR EXISTS (
            SELECT 1 FROM catalogue WHERE run = own.id AND (
                id IN (SELECT entry FROM catalogue_tags) OR id IN (SELECT entry FROM catalogue_labels)
            )
        ) THEN 'reviewed'
        WHEN (SELECT count(*) - 1 - max(mask IS NOT NULL) FROM run_states WHERE run = own.id) > 0
            OR EXISTS (SELECT 1 FROM stage_values WHERE run = own.id AND author = 'person')
            OR (SELECT count(*) - count(DISTINCT stage) FROM stage_values WHERE run = own.id) > 0
            OR EXISTS (
                SELECT 1 FROM test_cases WHERE run = own.id AND recipe <> 'reconstruction' AND NOT EXISTS (
                    SELECT 1 FROM batch_sources AS from_batch
                        JOIN batch_work ON batch_work.source = from_batch.id AND batch_work.test_case = test_cases.id
                    WHERE from_batch.run = own.id
                )
            )
        THEN 'changed'
    END AS reason
    FROM runs AS own JOIN run_summaries ON run_summaries.run = own.id
    WHERE own.id IN (SELECT value FROM json_each(:runs)) AND NOT removed AND reason NOT NULL
"""
_ASSIGNED = "assignment IN (SELECT id FROM assignments WHERE study = :study)"
_STUDY = {
    **dict.fromkeys(("training_read", "study_votes"), _ASSIGNED),
    **dict.fromkeys(
        (
            *("assignments", "adjudications", "participants", "person_answers", "study_panels", "study_archive"),
            *("study_rules", "study_items", "enrolments", "exclusions", "decisions"),
        ),
        "study = :study",
    ),
    "studies": "id = :study",
    "workers": "id LIKE :imported AND id NOT IN (SELECT worker FROM enrolments)",
}
"""Tables with the rows of a study, in the order in which they go, and which rows."""
_VERSION = "version IN (SELECT number FROM test_set_versions WHERE test_set = :set)"
_TEST_SET = {"test_set_entries": _VERSION, "test_set_versions": "test_set = :set", "test_sets": "id = :set"}
_BATCH = {
    **dict.fromkeys(("batch_minutes", "batch_counts", "batch_work", "batch_sources"), "batch = :batch"),
    "batches": "id = :batch",
}
# The facet of a batch comes with its work, and no trigger takes it away, since work is kept.
_UNMARK_BATCH = """
    INSERT INTO catalogue_marks SELECT DISTINCT catalogue.id, 'batch', batches.name || ' #' || batches.id, 0
    FROM batches JOIN batch_work ON batch_work.batch = batches.id
        JOIN catalogue ON catalogue.test_case = batch_work.test_case
    WHERE batches.id = :batch
"""


def _drop(db: Db, tables: Mapping[str, str], meant: dict[str, Any]) -> None:
    if tables is _BATCH:
        db.execute(_UNMARK_BATCH, meant)
    for table, where in tables.items():
        db.execute(f"DELETE FROM {table} WHERE {where}", meant)


@contextmanager
def _without_guards(db: Db) -> Iterator[None]:
    """Let rows be deleted that triggers keep, in the caller's transaction, which puts the triggers back."""
    tables = pack([*_STUDY, *_TEST_SET, *_BATCH])
    query = """
        SELECT name, sql FROM sqlite_master
        WHERE type = 'trigger' AND tbl_name IN (SELECT value FROM json_each(?)) AND sql LIKE '%BEFORE DELETE ON%'
    """
    guards = db.execute(query, [tables]).fetchall()
    db.execute("PRAGMA defer_foreign_keys = ON")  # votes and assignments name each other; checked at the commit
    for name, _ in guards:
        db.execute(f"DROP TRIGGER {name}")
    yield
    for _, sql in guards:
        db.execute(sql)


def _rows(db: Db, query: str, ids: Sequence[Any]) -> list[Any]:
    return db.execute(query, [pack(list(ids))]).fetchall()


def _runs_of(db: Db, batches: Sequence[int]) -> list[str]:
    query = "SELECT run FROM batch_sources WHERE batch IN (SELECT value FROM json_each(?)) AND run NOT NULL ORDER BY id"
    return [run for (run,) in _rows(db, query, batches)]


def _is_removed(db: Db, run: str) -> bool:
    return bool(db.execute("SELECT removed FROM run_summaries WHERE run = ?", [run]).fetchone()[0])


def _record(db: Db) -> ExampleRecord | None:
    for (value,) in db.execute("SELECT value FROM secrets WHERE name = ?", [EXAMPLE]):
        return from_plain(ExampleRecord, json.loads(value))  # type: ignore[no-any-return]
    return None


def _require(db: Db) -> ExampleRecord:
    held = _record(db)
    if held is None:
        raise RuntimeError("the example was removed while it was made")
    return held


def _keep(db: Db, record: ExampleRecord) -> None:
    row = {"name": EXAMPLE, "value": pack_value(record), "changed": now()}
    db.table("secrets").insert(row, replace=True)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} {number}" for number in count(2))
