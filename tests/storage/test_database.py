"""One writer and many readers: each write is complete or absent, writes keep their order, and the caller gets the
result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlite_utils
from PIL import Image

from core.errors import UserError
from core.types import Caption, StageValue, Task, Trace
from storage.engine import database as database_module
from storage.engine.database import Database
from tests.support.workspaces import workspace_in


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(
        tmp_path / "test.db", nothing, lambda db: None if "t" in db.table_names() else _create(db), nothing
    )
    opened.open()
    yield opened
    opened.close()


def nothing(_db: sqlite_utils.Database) -> None: ...


def _create(db: sqlite_utils.Database) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, word TEXT UNIQUE)")


def count(database: Database) -> int:
    return database.read(lambda db: int(db.table("t").count))


def test_the_file_is_set_up_on_purpose(database: Database) -> None:
    def pragmas(db: sqlite_utils.Database) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    assert database.write(pragmas) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
    }


def test_a_failed_write_leaves_nothing_and_reaches_its_caller(database: Database) -> None:
    def half(db: sqlite_utils.Database) -> None:
        db.table("t").insert({"word": "half"})
        raise ZeroDivisionError("in the middle")

    with pytest.raises(ZeroDivisionError, match="in the middle"):
        database.write(half)
    assert count(database) == 0
    database.write(lambda db: db.table("t").insert({"word": "whole"}) and None)
    assert count(database) == 1


def test_a_write_may_not_end_its_transaction(database: Database) -> None:
    with pytest.raises(RuntimeError, match="ended its own transaction"):
        database.write(lambda db: db.commit())
    with pytest.raises(RuntimeError, match="wait for itself"):
        database.write(lambda db: database.write(lambda inner: None))


def test_readers_cannot_write(database: Database) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        database.read(lambda db: db.table("t").insert({"word": "x"}) and None)
    assert count(database) == 0


def test_readers_see_whole_writes_only(database: Database) -> None:
    stop = threading.Event()

    def pairs(db: sqlite_utils.Database) -> None:
        db.table("t").insert({})
        db.table("t").insert({})

    def look() -> set[int]:
        seen = set()
        while not stop.is_set():
            first, second = database.read(lambda db: (db.table("t").count, db.table("t").count))
            assert first == second
            seen.add(first)
        return seen

    with ThreadPoolExecutor(4) as pool:
        lookers = [pool.submit(look) for _ in range(4)]
        for _ in range(40):
            database.write(pairs)
        stop.set()
        seen = set().union(*(looker.result() for looker in lookers))
    assert all(number % 2 == 0 for number in seen)
    assert count(database) == 80


def test_connections_of_ended_threads_go_with_them(database: Database) -> None:
    for _ in range(20):
        thread = threading.Thread(target=count, args=(database,))
        thread.start()
        thread.join()
    assert len(database._readers) <= 1


def test_writes_that_wait_are_done_before_closing(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    database = Database(path, nothing, _create, nothing)
    database.open()
    slow = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(database.write, lambda db: slow.wait(60))
        rest = [pool.submit(database.write, lambda db: db.table("t").insert({}) and None) for _ in range(4)]
        while database._queue.qsize() < 4:
            pass
        closing = threading.Thread(target=database.close)
        closing.start()
        slow.set()
        assert first.result() is True
        assert [write.result() for write in rest] == [None] * 4
        closing.join()
    with pytest.raises(RuntimeError, match="closed"):
        database.write(lambda db: None)
    assert not path.with_name("test.db-wal").exists()
    assert sqlite_utils.Database(path)["t"].count == 4


def test_another_program_that_keeps_the_lock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.1)
    patient = Database(database.path, nothing, nothing, nothing)
    patient.open()
    other = sqlite_utils.Database(database.path)
    other.conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match="Nothing was saved"):
        patient.write(lambda db: db.table("t").insert({}) and None)
    other.conn.rollback()
    patient.write(lambda db: db.table("t").insert({}) and None)
    assert count(database) == 1
    patient.close()


def test_writes_that_wait_for_one_lock_wait_for_it_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each write would wait its full time after the one before: the fourth four times as long as the
    first.
    """
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 1.0)
    other = sqlite_utils.Database(database.path)
    other.conn.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        for write in [pool.submit(database.write, lambda db: db.table("t").insert({}) and None) for _ in range(8)]:
            with pytest.raises(UserError, match="Nothing was saved"):
                write.result()
    assert time.monotonic() - began < 5, "eight seconds, one after the other"
    other.conn.rollback()
    database.write(lambda db: db.table("t").insert({}) and None)
    assert count(database) == 1


def test_eight_threads_write_and_nothing_is_lost(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        run_id = workspace.runs.create(Image.new("RGB", (8, 8)), Task("classification", "bird"), "demo", "Busy", {})

        def work(worker: int) -> list[int]:
            ids = []
            for number in range(15):
                value = StageValue(Caption(f"{worker} {number}"), Trace("person"), "k")
                ids.append(workspace.runs.append_value(run_id, "caption", value))
                assert workspace.runs.get(run_id).values["caption"].id >= ids[-1]
            return ids

        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(work, range(8)))
        history = workspace.runs.history(run_id, "caption")
        assert sorted(value_id for own in ids for value_id in own) == [version.id for version in history]
        texts = {version.id: version.value.value.text for version in history}
        for worker, own in enumerate(ids):
            assert [texts[value_id] for value_id in own] == [f"{worker} {number}" for number in range(15)]
