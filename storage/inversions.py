"""The inversions of a workspace: files `inversions/KEY.inversion`, each a source image turned back into noise.

Once an inversion is saved, all captions of its source can use it. The key contains everything that an inversion depends
on (`WindowedPipeline.inversion_key`). An inversion can be computed again. So no write waits for the disk (no fsync), a
failed write is no error, and backups omit them. A damaged file is detected by the hash at its start. If there are too
many files, the least recently used are dropped.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

from storage.images import ImageFiles, file_name, write_renewable

MOST_BYTES = 4_000_000_000
"""Maximum size in bytes of all inversions. One for 512 by 512 pixels takes 1.7 MB at 50 steps, 0.4 MB at 10."""
SUFFIX = ".inversion"

log = logging.getLogger(__name__)


class Inversions:
    """The folder of inversions (source images turned into noise). No database. Safe for many threads and processes."""

    def __init__(self, folder: Path, images: ImageFiles, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._images, self._most_bytes = images, most_bytes

    def read(self, key: str) -> bytes | None:
        """Return the inversion with this key, or None if it is missing or damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        content = data[32:]
        return content if hashlib.sha256(content).digest() == data[:32] else None

    def save(self, key: str, data: bytes) -> None:
        """Save an inversion. If all inversions take more than `MOST_BYTES`, drop the least recently used ones."""
        path = self._path(key)
        try:
            write_renewable(path, hashlib.sha256(data).digest() + data, self.folder, self._images.process)
            self._drop_oldest(path)
        except OSError as error:  # the inversion is computed again when needed
            log.warning("the inversion %s was not written (%s)", key, error)

    def _drop_oldest(self, newest: Path) -> None:
        files = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):  # another process may drop it at the same time
                status = path.stat()
                files.append((path != newest, -status.st_mtime_ns, path, status.st_size))
        room = self._most_bytes
        for _, _, path, size in sorted(files):
            room -= size
            if room < 0 and path != newest:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        file_name(key)  # raises for an invalid key
        return self.folder / f"{key}{SUFFIX}"
