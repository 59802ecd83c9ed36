"""Embedding vectors of catalogue entries, in files that are mapped into memory.

Each embedder has two files in `vectors/`. `N.rows` holds a row for each entry, a unit vector of float16. `N.entries`
holds the catalogue number of each row. The database stores how many rows are valid. Rows are written in the transaction
that raises this number, so two processes never write at once. A killed write may leave rows beyond the valid rows. Such
rows are ignored, and the next write cuts them off. Vectors can be computed again from the images, so backups omit
vectors. If a file is missing or too short, there are no vectors until they are computed again.
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
from storage.engine.database import Database, Repository, read, reading, write
from storage.engine.queries import insert_row, record
from storage.engine.rows import now, pack
from storage.images import sync_folder

Rows = NDArray[np.float16]
_NUMBER = np.dtype("<i8")
_HALF = np.dtype("<f2")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VectorTable:
    """The vectors of one embedder at one moment. Vectors added later are not in it."""

    version: tuple[int, int]
    """Id of the embedder's files, and number of its vectors. This pair changes whenever the vectors do."""
    entries: Numbers
    """Catalogue number of each row, in the order in which the vectors were added. No number repeats."""
    rows: Rows
    """Vectors (entries, dimensions) of length 1 in float16. They are mapped into memory, so they are read when used."""

    def row_of(self, entry: int) -> int | None:
        """Return the row of an entry; None if it has no vector."""
        places = np.flatnonzero(self.entries == entry)
        return int(places[0]) if len(places) else None


_NONE = VectorTable((0, 0), np.zeros(0, np.int64), np.zeros((0, 1), np.float16))


@dataclass(frozen=True)
class _Files:
    id: int
    dimensions: int
    vectors: int


def _files(db: Db, embedder: str) -> _Files | None:
    return record(db, _Files, "SELECT * FROM embedders WHERE name = ?", [embedder])


class Vectors(Repository):
    """The vectors of a workspace for each embedder. Vectors of different embedders are never compared."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database)
        self.folder = folder
        self._mapped: dict[str, VectorTable] = {}
        self._lock = threading.Lock()

    def of(self, embedder: str) -> VectorTable:
        """Return all vectors of an embedder; an empty table if there are none."""
        files = self._held(embedder)
        if files is None or not files.vectors:
            return _NONE
        with self._lock:
            known = self._mapped.get(embedder)
            if known is not None and known.version == (files.id, files.vectors):
                return known
            if self._whole(files) < files.vectors:
                return _NONE
            rows_path, entries_path = self._paths(files.id)
            entries = np.fromfile(entries_path, _NUMBER, files.vectors).astype(np.int64)
            # mode "c": users may write to the array, but the file never changes
            rows = np.memmap(rows_path, _HALF, "c", shape=(files.vectors, files.dimensions))
            self._mapped[embedder] = table = VectorTable((files.id, files.vectors), entries, rows)
            return table

    @write
    def add(self, db: Db, embedder: str, entries: Sequence[int], vectors: NDArray[np.floating]) -> int:
        """Save vectors (entries, dimensions), scaled to length 1. Return the number of new ones.

        An entry that has a vector keeps it. Raises ValueError for a zero or infinite vector, and if the number of
        dimensions differs from the embedder's other vectors. Raises UserError if the disk fails.
        """
        unscaled = np.asarray(vectors, np.float32)
        lengths = np.linalg.norm(unscaled, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            raise ValueError("a vector is zero or infinite, so it has no direction")
        numbers, first = np.unique(np.asarray(entries, np.int64), return_index=True)
        rows = (unscaled / lengths)[first]
        try:
            files = self._files_to_add(db, embedder, unscaled.shape[1])
            rows_path, entries_path = self._paths(files.id)
            known = np.fromfile(entries_path, _NUMBER, files.vectors) if files.vectors else np.zeros(0, _NUMBER)
            new = ~np.isin(numbers, known)
            _append(rows_path, files.vectors * files.dimensions * _HALF.itemsize, rows[new].astype(_HALF).tobytes())
            _append(entries_path, files.vectors * _NUMBER.itemsize, numbers[new].astype(_NUMBER).tobytes())
            if not files.vectors:
                sync_folder(self.folder)
        except OSError as error:
            raise UserError(f"The vectors were not saved in {self.folder}. {disk_reason(error)}.") from error
        db.execute("UPDATE embedders SET vectors = vectors + ? WHERE id = ?", [int(new.sum()), files.id])
        return int(new.sum())

    @read
    def images_of(self, db: Db, entries: Iterable[int]) -> dict[int, str]:
        return _shas_of(db, "image", entries)

    @read
    def sources_of(self, db: Db, entries: Iterable[int]) -> dict[int, str]:
        """Return the SHA-256 of the source of each of these entries. Entries without a source are left out."""
        return _shas_of(db, "source", entries)

    _held = reading(_files)

    def _files_to_add(self, db: Db, embedder: str, dimensions: int) -> _Files:
        files = _files(db, embedder)
        if files is not None and self._whole(files) < files.vectors:
            log.warning("The vectors of %s in %s are incomplete; they are computed again.", embedder, self.folder)
            # Use new file names: truncating the old files would crash a process that has mapped them.
            db.execute("DELETE FROM embedders WHERE id = ?", [files.id])
            for path in self._paths(files.id):
                path.unlink(missing_ok=True)
            files = None
        if files is None:
            self.folder.mkdir(exist_ok=True)
            row = {"name": embedder, "dimensions": dimensions, "vectors": 0, "created": now()}
            return _Files(insert_row(db, "embedders", row), dimensions, 0)
        if files.dimensions != dimensions:
            raise ValueError(f"a vector of {embedder} has {files.dimensions} dimensions, and not {dimensions}")
        return files

    def _whole(self, files: _Files) -> int:
        rows_path, entries_path = self._paths(files.id)
        try:
            sizes = rows_path.stat().st_size, entries_path.stat().st_size
        except FileNotFoundError:
            return 0
        return min(sizes[0] // (files.dimensions * _HALF.itemsize), sizes[1] // _NUMBER.itemsize)

    def _paths(self, number: int) -> tuple[Path, Path]:
        return self.folder / f"{number}.rows", self.folder / f"{number}.entries"


def _shas_of(db: Db, column: str, entries: Iterable[int]) -> dict[int, str]:
    chosen = "json_each(?) AS chosen JOIN catalogue ON catalogue.id = chosen.value"
    query = f"SELECT catalogue.id, {column} FROM {chosen} WHERE {column} IS NOT NULL"
    return dict(db.execute(query, [pack([int(entry) for entry in entries])]).fetchall())


def _append(path: Path, at: int, data: bytes) -> None:
    """Write after the first `at` bytes of a file and cut off what followed. Return when `data` is on the disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with open(descriptor, "r+b") as file:
        file.truncate(at)
        file.seek(at)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
