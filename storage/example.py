"""The example that a workspace may contain: a record of everything in it, and its removal.

The record is a named value of the workspace (table `secrets`). So it is saved in the same transaction as what it
records, and backups include it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.studies import Rules
from storage.engine.database import Repository, reading, write
from storage.engine.queries import first_column, first_value
from storage.engine.rows import now, pack, pack_value, unpack_value
from storage.runs.rows import change_state
from storage.studies.imported_votes import IMPORTED
from storage.studies.rows import append_log
from storage.studies.studies import create_study
from storage.test_sets.test_sets import create_set

EXAMPLE = "example"
AUTHOR = "example (no person)"


@dataclass(frozen=True)
class ExampleRecord:
    """Ids of everything that belongs to the example."""

    seed: int
    batches: tuple[int, ...] = ()
    test_sets: tuple[str, ...] = ()
    study: str = ""
    finished: bool = False


@dataclass(frozen=True)
class Kept:
    """Parts of the example that were not removed with it, because a person's own work uses them."""

    test_sets: tuple[str, ...] = ()
    """Names of the test sets that a person worked on."""
    study: str = ""
    """Name of the study if a person worked on it, otherwise ""."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Number of runs that were not removed, by reason."""


def _record(db: Db) -> ExampleRecord | None:
    """Return the record of the example, or None if the workspace has no example."""
    value = first_value(db, "SELECT value FROM secrets WHERE name = ?", [EXAMPLE])
    record: ExampleRecord | None = None if value is None else unpack_value(ExampleRecord, value)
    return record


class Example(Repository):
    record = reading(_record)

    @write
    def begin(self, db: Db, seed: int) -> ExampleRecord:
        """Begin an example with this seed, or return the record of the existing one."""
        return _record(db) or _keep(db, ExampleRecord(seed))

    @write
    def add_batch(self, db: Db, number: int) -> None:
        """Record a batch as part of the example. A second call changes nothing."""
        record = _require(db)
        _keep(db, replace(record, batches=tuple(dict.fromkeys((*record.batches, number)))))

    @write
    def create_test_set(self, db: Db, name: str) -> str:
        """Create a test set of the example with an empty draft; return its id. A name in use gets a number added."""
        record = _require(db)
        taken = {other.casefold() for other in first_column(db, "SELECT name FROM test_sets")}
        names = chain([name], (f"{name} {number}" for number in count(2)))
        test_set, _ = create_set(db, next(one for one in names if one.casefold() not in taken), "")
        _keep(db, replace(record, test_sets=(*record.test_sets, test_set)))
        return test_set

    @write
    def create_study(self, db: Db, name: str, rules: Rules) -> str:
        """Create the draft of the example's study and record it. Return its id."""
        record, study = _require(db), create_study(db, name, rules)
        _keep(db, replace(record, study=study))
        return study

    @write
    def finish(self, db: Db) -> None:
        _keep(db, replace(_require(db), finished=True))

    @write
    def remove(self, db: Db, batches: Sequence[int], trained_on: Sequence[str]) -> Kept:
        """Remove the example in one transaction. Return the parts that were kept.

        Its runs are deleted as if by a person. Its batches (the ones in the record and `batches`), test sets and study
        are dropped permanently. Everything that a person's own work uses stays: see `Kept`. `trained_on` are test sets
        that models were trained with.
        """
        record = _record(db)
        if record is None:
            return Kept()
        numbers = tuple(dict.fromkeys((*record.batches, *batches)))
        runs = first_column(db, _QUERIES["runs"], [pack(list(numbers))])
        parameters = {"runs": pack(runs), "author": AUTHOR}
        sets = dict(db.execute(_QUERIES["sets"], [pack(list(record.test_sets))]).fetchall())
        kept_sets = {
            name: set_id
            for name, set_id in sets.items()
            if set_id in trained_on or first_value(db, _QUERIES["worked_on_set"], {**parameters, "id": set_id})
        }
        gone_sets = [set_id for set_id in sets.values() if set_id not in kept_sets.values()]
        study = first_value(db, "SELECT name FROM studies WHERE id = ?", [record.study]) or ""
        kept_study = study if first_value(db, _QUERIES["voted_by_people"], {"study": record.study}) else ""
        gone = {"sets": pack(gone_sets), "study": "" if kept_study else record.study}
        used = dict(db.execute(_QUERIES["used_runs"], {**parameters, **gone}).fetchall())
        for run in runs:
            if run not in used and not first_value(db, "SELECT removed FROM run_summaries WHERE run = ?", [run]):
                change_state(db, run, removed=1)
        with _without_guards(db):
            for number in numbers:
                db.execute(_QUERIES["unmark_batch"], {"batch": number})
                _drop(db, _BATCH, {"batch": number})
            for set_id in gone_sets:
                _drop(db, _TEST_SET, {"set": set_id})
            if study and not kept_study:
                _drop(db, _STUDY, {"study": record.study, "imported": f"{IMPORTED}%"})
                append_log(db, "example removed", study, record.study)
        db.execute("DELETE FROM secrets WHERE name = ?", [EXAMPLE])
        return Kept(tuple(kept_sets), kept_study, Counter(used.values()))


_QUERIES = DataTable(__file__, str, "queries")
_STUDY, _TEST_SET, _BATCH = (DataTable(__file__, str, table) for table in ("study", "test_set", "batch"))
"""Tables in the order of deletion, each with the condition that selects the rows to delete."""


def _drop(db: Db, tables: Mapping[str, str], meant: dict[str, Any]) -> None:
    for table, where in tables.items():
        db.execute(f"DELETE FROM {table} WHERE {where}", meant)


@contextmanager
def _without_guards(db: Db) -> Iterator[None]:
    """Suspend the triggers that forbid to delete rows, within the caller's transaction."""
    guards = db.execute(_QUERIES["guards"], [pack([*_STUDY, *_TEST_SET, *_BATCH])]).fetchall()
    db.execute("PRAGMA defer_foreign_keys = ON")  # votes and assignments refer to each other, so check at the commit
    for name, _ in guards:
        db.execute(f"DROP TRIGGER {name}")
    yield
    for _, sql in guards:
        db.execute(sql)


def _require(db: Db) -> ExampleRecord:
    record = _record(db)
    if record is None:
        raise RuntimeError("the example was removed while it was made")
    return record


def _keep(db: Db, record: ExampleRecord) -> ExampleRecord:
    db.table("secrets").insert({"name": EXAMPLE, "value": pack_value(record), "changed": now()}, replace=True)
    return record
