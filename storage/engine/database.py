"""The SQLite file: one writer thread with a queue, and a read-only connection for every thread.

A write is a function that takes the database. It runs on the writer thread in its own transaction (BEGIN IMMEDIATE ...
COMMIT). The caller waits for the commit and gets the result, or the exception that undid the transaction. This module
knows nothing of runs or images.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlite_utils

from core.errors import DiskTrouble, UserError
from core.locks import keeps_locks, no_locks

BUSY_SECONDS = 15.0
"""Maximum seconds that a write waits for another process's write. Writes take milliseconds, so this is plenty."""
LEAST_SECONDS = 0.05
"""Minimum time limit, in seconds, for a write to get the database's lock, even after a long wait in the queue."""

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound="Repository")
WriteFunction = Callable[[sqlite_utils.Database], T]
_Job = tuple[WriteFunction[Any], "Future[Any]", float]
"""A queued write: function, future for its result, and the time of the request by `time.monotonic`."""


class Database:
    """An open SQLite file. Call `open` before use. All methods may be called from any thread.

    `check` may refuse the file before anything is written. `migrate` is the first write. `before_commit` is called at
    the end of each write. Foreign keys are not enforced while `migrate` runs, so it can replace a table, and must check
    them itself.
    """

    def __init__(
        self, path: Path, check: WriteFunction[None], migrate: WriteFunction[None], before_commit: WriteFunction[None]
    ) -> None:
        self.path, self._check, self._migrate, self._before_commit = path, check, migrate, before_commit
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._gate = threading.Lock()
        self._local = threading.local()
        self._readers: weakref.WeakSet[sqlite_utils.Database] = weakref.WeakSet()
        self._watcher: sqlite_utils.Database | None = None
        self._watching = threading.Lock()

    def open(self) -> None:
        """Open or create the file. Raises UserError if it is damaged, cannot be opened or written, or fails `check`."""
        if self._writer is not None:
            raise RuntimeError("this Database is open already")
        self._local = threading.local()  # this thread may still have a closed connection from before
        self._watcher = None
        opened: Future[None] = Future()
        self._writer = threading.Thread(target=self._serve, args=(opened,), name="storage-writer", daemon=True)
        self._writer.start()
        try:
            opened.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Finish the queued writes and close all connections. A second call does nothing."""
        with self._gate:
            writer, self._writer = self._writer, None
            if writer is None:
                return
            self._queue.put(None)
        writer.join()
        for reader in list(self._readers):
            reader.close()

    def write(self, function: WriteFunction[T]) -> T:
        """Run `function` in one transaction and return its result after the commit.

        If `function` raises, the whole transaction is undone and the exception is raised here. `function` must not use
        the database after it returns, so it returns finished data (no lazy rows).
        """
        result: Future[T] = Future()
        with self._gate:
            if self._writer is None:
                raise RuntimeError("the workspace is closed")
            if threading.current_thread() is self._writer:
                raise RuntimeError("a write function must not start another write: it would wait for itself")
            self._queue.put((function, result, time.monotonic()))
        return result.result()

    def read(self, function: WriteFunction[T]) -> T:
        """Run `function` on this thread's read-only connection. It sees one snapshot, without unfinished writes."""
        db = self._reader()
        if db.conn.in_transaction:  # a read inside a read shares its snapshot
            return function(db)
        try:
            db.conn.execute("BEGIN")
            try:
                return function(db)
            finally:
                db.conn.rollback()
        except sqlite3.Error as error:
            raise _explained(error, self.path) from error

    def saved(self) -> int:
        """Return a number that changes with each commit of any process. A call takes microseconds."""
        with self._watching:
            if self._watcher is None:
                self._watcher = self._opened_to_read()
            try:
                # The number counts commits of other connections, so always ask the same connection.
                (number,) = self._watcher.conn.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                raise _explained(error, self.path) from error
        return int(number)

    def _reader(self) -> sqlite_utils.Database:
        db: sqlite_utils.Database | None = getattr(self._local, "db", None)
        if self._writer is None or db is None:
            db = self._local.db = self._opened_to_read()
        return db

    def _opened_to_read(self) -> sqlite_utils.Database:
        if self._writer is None:
            raise RuntimeError("the workspace is closed")
        # Only one thread uses it; check_same_thread is off so that close() may close it from another.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            timeout=BUSY_SECONDS,
            check_same_thread=False,
        )
        connection.execute("PRAGMA query_only = ON")
        connection.create_function("casefold", 1, str.casefold, deterministic=True)  # lower() knows only ASCII
        db = sqlite_utils.Database(connection)
        self._readers.add(db)
        return db

    def _serve(self, opened: Future[None]) -> None:
        try:
            db = self._connect()
        except BaseException as error:  # noqa: BLE001 - any error is passed to the caller
            opened.set_exception(error)
            return
        opened.set_result(None)
        while (job := self._queue.get()) is not None:
            function, result, requested_at = job
            left = max(LEAST_SECONDS, requested_at + BUSY_SECONDS - time.monotonic())
            try:
                db.conn.execute(f"PRAGMA busy_timeout = {int(1000 * left)}")
                value = self._in_transaction(db, function)
            except sqlite3.Error as error:
                result.set_exception(_explained(error, self.path))
            except BaseException as error:  # noqa: BLE001 - any error is passed to the caller
                result.set_exception(error)
            else:
                result.set_result(value)
            del function, result, job  # frees the images of this write before the next one
        db.close()

    def _connect(self) -> sqlite_utils.Database:
        path = self.path
        if not keeps_locks(path.parent):  # SQLite would wait for long, and report that another program holds the file
            raise no_locks(path)
        try:
            connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
        except sqlite3.Error as error:
            raise _explained(error, path) from error
        try:
            db = sqlite_utils.Database(connection)
            self._check(db)
            findings = connection.execute("PRAGMA quick_check(1)").fetchone()
            if findings != ("ok",):
                finding = " ".join(findings[0].split())
                raise UserError(f"{path} is damaged ({finding}); restore a backup, or pick another workspace folder.")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise UserError(f"The disk of {path} cannot keep a database safely; pick a folder on a local disk.")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = OFF")
            self._in_transaction(db, self._migrate)
            connection.execute("PRAGMA foreign_keys = ON")
            return db
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise _explained(error, path) from error
            raise

    def _in_transaction(self, db: sqlite_utils.Database, function: WriteFunction[T]) -> T:
        # IMMEDIATE waits for other processes here. A plain BEGIN, as in sqlite-utils, may wait half-way through.
        db.conn.execute("BEGIN IMMEDIATE")
        try:
            value = function(db)
            self._before_commit(db)
            if not db.conn.in_transaction:
                raise RuntimeError("a write function ended its own transaction")
            db.conn.execute("COMMIT")
        except BaseException:
            db.conn.rollback()  # does nothing if SQLite has undone the transaction already
            raise
        return value


class Repository:
    """Base class of repositories. Each gives access to the rows of one kind of thing in an open database.

    A method marked `@write` or `@read` is defined with the database as its first argument, and called without this
    argument. It runs in one transaction, so it cannot call another marked method. Shared code is in functions that take
    the database. `writing` and `reading` turn such functions into methods.
    """

    def __init__(self, database: Database) -> None:
        self._database = database


def write(method: Callable[Concatenate[R, sqlite_utils.Database, P], T]) -> Callable[Concatenate[R, P], T]:
    """Mark a method that writes. It runs in one transaction and returns after the commit. An exception undoes it."""

    @wraps(method)
    def in_transaction(self: R, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.write(lambda db: method(self, db, *args, **kwargs))

    return in_transaction


def read(method: Callable[Concatenate[R, sqlite_utils.Database, P], T]) -> Callable[Concatenate[R, P], T]:
    """Mark a method that only reads. It sees one snapshot of the database."""

    @wraps(method)
    def in_snapshot(self: R, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(lambda db: method(self, db, *args, **kwargs))

    return in_snapshot


def writing(function: Callable[Concatenate[sqlite_utils.Database, P], T]) -> Callable[Concatenate[Repository, P], T]:
    """Make a method that writes (see `write`) from a function that takes an open database."""

    @wraps(function)
    def in_transaction(self: Repository, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.write(lambda db: function(db, *args, **kwargs))

    return in_transaction


def reading(function: Callable[Concatenate[sqlite_utils.Database, P], T]) -> Callable[Concatenate[Repository, P], T]:
    """Make a method that reads (see `read`) from a function that takes an open database."""

    @wraps(function)
    def in_snapshot(self: Repository, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(lambda db: function(db, *args, **kwargs))

    return in_snapshot


def first_row(
    db: sqlite_utils.Database, query: str, values: Sequence[Any] | dict[str, Any] = ()
) -> dict[str, Any] | None:
    """Return the first row of a query, or None. The query is then closed, so its tables may be changed."""
    return next(iter(list(db.query(query, values))), None)


def _explained(error: sqlite3.Error, path: Path) -> Exception:
    """Return a DiskTrouble for an error that the user can fix.

    Return other errors unchanged, as they are our mistakes.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the high bits only refine the low byte
    if code == sqlite3.SQLITE_NOTADB:
        return DiskTrouble(f"{path} is not a workspace database; move it away, or pick another workspace folder.")
    if code == sqlite3.SQLITE_CORRUPT:
        return DiskTrouble(f"{path} is damaged ({error}); restore a backup, or pick another workspace folder.")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return DiskTrouble(f"{path} cannot be written ({error}); allow it, or pick another workspace folder.")
    if code == sqlite3.SQLITE_FULL:
        return DiskTrouble(f"Nothing was saved: the disk of {path} is full; make room and try again.")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and not keeps_locks(path.parent):
        return no_locks(path)
    if code == sqlite3.SQLITE_IOERR:
        return DiskTrouble(f"The disk of {path} failed ({error}); check it and try again.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DiskTrouble(
            f"Nothing was saved: another program has kept {path} locked for long; close it and try again."
        )
    return error
