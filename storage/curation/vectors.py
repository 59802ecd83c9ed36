"""The vectors of images: where an embedder places each entry of the catalogue, in files that are mapped into memory.

Of each embedder there are two files in `vectors/`: `N.rows` holds a vector of float16 numbers and of length 1 for each
of its entries, `N.entries` the number of the entry of each row. How many rows count, the database alone says: they are
written within the transaction that says so, which also keeps two processes apart. What a write that was killed left
behind the last row does not count, and the next write cuts it off.

Vectors are worked out from images and can be worked out again. So a backup leaves them out, and where the files are
shorter than they should be, or gone, there are no vectors until they are worked out anew.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database as Db

from core.errors import UserError, disk_reason
from storage.curation.entry_sets import Numbers
from storage.engine.database import Database, Repository, read, write
from storage.engine.rows import now, pack
from storage.images import sync_folder

Rows = NDArray[np.float16]
_NUMBER = np.dtype("<i8")
_HALF = np.dtype("<f2")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VectorTable:
    """The vectors of one embedder as they are at one moment. More may be added meanwhile; none of these changes."""

    version: tuple[int, int]
    """Another one when there are others, or more: the number of its files, and how many vectors there are."""
    entries: Numbers
    """The number in the catalogue of each row; each once, in the order in which they came."""
    rows: Rows
    """(entries, dimensions), mapped into memory: reading is what takes time. Each has the length 1, to float16."""

    def row_of(self, entry: int) -> int | None:
        """The row of an entry; None where it has no vector."""
        found = np.flatnonzero(self.entries == entry)
        return int(found[0]) if len(found) else None


_NONE = VectorTable((0, 0), np.zeros(0, np.int64), np.zeros((0, 1), np.float16))


@dataclass(frozen=True)
class _Files:
    id: int
    dimensions: int
    vectors: int


class Vectors(Repository):
    """The vectors of a workspace, by embedder: those of one are never compared with those of another."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database)
        self.folder = folder
        self._mapped: dict[str, VectorTable] = {}
        self._lock = threading.Lock()

    def of(self, embedder: str) -> VectorTable:
        """All vectors of an embedder; an empty table where there are none."""
        held = self._held(embedder)
        if held is None or not held.vectors:
            return _NONE
        with self._lock:
            known = self._mapped.get(embedder)
            if known is not None and known.version == (held.id, held.vectors):
                return known
            if self._whole(held) < held.vectors:
                return _NONE
            rows_path, entries_path = self._paths(held.id)
            entries = np.fromfile(entries_path, _NUMBER, held.vectors).astype(np.int64)
            # "c": nothing is ever written to it, but what takes it need not know that.
            rows = np.memmap(rows_path, _HALF, "c", shape=(held.vectors, held.dimensions))
            self._mapped[embedder] = table = VectorTable((held.id, held.vectors), entries, rows)
            return table

    @write
    def add(self, db: Db, embedder: str, entries: Sequence[int], vectors: NDArray[np.floating]) -> int:
        """Save the vectors (entries, dimensions) of entries, whatever their lengths; returns how many are new. One that
        an entry has already stays.

        Raises ValueError where a vector has no direction or another number of dimensions than the others of the
        embedder, UserError when the disk refuses.
        """
        found = np.asarray(vectors, np.float32)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            raise ValueError("a vector has no direction")
        numbers, first = np.unique(np.asarray(entries, np.int64), return_index=True)
        rows = (found / lengths)[first]
        try:
            held = self._files_to_add(db, embedder, found.shape[1])
            rows_path, entries_path = self._paths(held.id)
            known = np.fromfile(entries_path, _NUMBER, held.vectors) if held.vectors else np.zeros(0, _NUMBER)
            new = ~np.isin(numbers, known)
            _append(rows_path, held.vectors * held.dimensions * _HALF.itemsize, rows[new].astype(_HALF).tobytes())
            _append(entries_path, held.vectors * _NUMBER.itemsize, numbers[new].astype(_NUMBER).tobytes())
            if not held.vectors:
                sync_folder(self.folder)
        except OSError as error:
            raise UserError(f"The vectors were not saved in {self.folder}. {disk_reason(error)}.") from error
        db.execute("UPDATE embedders SET vectors = vectors + ? WHERE id = ?", [int(new.sum()), held.id])
        return int(new.sum())

    @read
    def images_of(self, db: Db, entries: Iterable[int]) -> dict[int, str]:
        """The SHA-256 of the image of each of these entries of the catalogue."""
        query = "SELECT catalogue.id, image FROM json_each(?) AS wanted JOIN catalogue ON catalogue.id = wanted.value"
        return dict(db.execute(query, [pack([int(entry) for entry in entries])]).fetchall())

    @read
    def sources_of(self, db: Db, entries: Iterable[int]) -> dict[int, str]:
        """The SHA-256 of the source of each of these entries; those without one are left out."""
        query = """
            SELECT catalogue.id, source FROM json_each(?) AS wanted JOIN catalogue ON catalogue.id = wanted.value
            WHERE source IS NOT NULL
        """
        return dict(db.execute(query, [pack([int(entry) for entry in entries])]).fetchall())

    @read
    def _held(self, db: Db, embedder: str) -> _Files | None:
        return _files(db, embedder)

    def _files_to_add(self, db: Db, embedder: str, dimensions: int) -> _Files:
        held = _files(db, embedder)
        if held is not None and self._whole(held) < held.vectors:
            log.warning("The vectors of %s are not whole in %s; they are worked out anew.", embedder, self.folder)
            # Files of another name: somebody may still have the old ones mapped, and cutting those would kill them.
            db.execute("DELETE FROM embedders WHERE id = ?", [held.id])
            for path in self._paths(held.id):
                path.unlink(missing_ok=True)
            held = None
        if held is None:
            self.folder.mkdir(exist_ok=True)
            query = "INSERT INTO embedders (name, dimensions, vectors, created) VALUES (?, ?, 0, ?)"
            number = db.execute(query, [embedder, dimensions, now()]).lastrowid
            assert number is not None
            return _Files(number, dimensions, 0)
        if held.dimensions != dimensions:
            raise ValueError(f"a vector of {embedder} has {held.dimensions} dimensions, and not {dimensions}")
        return held

    def _whole(self, held: _Files) -> int:
        rows_path, entries_path = self._paths(held.id)
        try:
            sizes = rows_path.stat().st_size, entries_path.stat().st_size
        except FileNotFoundError:
            return 0
        return min(sizes[0] // (held.dimensions * _HALF.itemsize), sizes[1] // _NUMBER.itemsize)

    def _paths(self, number: int) -> tuple[Path, Path]:
        return self.folder / f"{number}.rows", self.folder / f"{number}.entries"


def _files(db: Db, embedder: str) -> _Files | None:
    query = "SELECT id, dimensions, vectors FROM embedders WHERE name = ?"
    return next((_Files(*row) for row in db.execute(query, [embedder])), None)


def _append(path: Path, at: int, data: bytes) -> None:
    """Write behind the first `at` bytes of a file, the end of which it is then; return when it is on the disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with open(descriptor, "r+b") as file:
        file.truncate(at)
        file.seek(at)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
