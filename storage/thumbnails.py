"""The small pictures of galleries: `thumbs/ab/cd/SHA.webp`, 256 pixels on the longer side, by the hash of the image.
Beside them, of images whose twins were looked for, `SHA.look`: the bytes of `core.twins.look_of`.

A thumbnail can always be made again from its image. So none is waited for until it is on the disk (no fsync), one that
cannot be written is no error, backups leave them out, and a file that a power failure cut short is found when it is
read, by the length that stands in it, and made again. A file takes its name only when it is whole.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sqlite_utils import Database as Db

from core.images import StoredImage
from core.twins import SHAPE, look_of
from storage.engine.database import Database, Repository, read
from storage.images import ImageFiles, Images, file_name, remove_temporary

SIDE = 256
"""Pixels of the longer side; smaller images keep their size."""
QUALITY, METHOD = 80, 0
"""Of WebP. Method 4 takes twice the time for a sixth less."""
AT_ONCE = 2
"""So many are made from their images at a time: the largest image takes 150 MB, and requests come in dozens."""
_SEEN = "seen.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seen:
    """Which entries of the catalogue were looked through for thumbnails: all up to `latest` but those in `gaps`."""

    latest: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    """First and last number of each, in rising order."""


class ThumbnailFiles:
    """The folder of thumbnails. Knows no database. Safe to use from many threads and processes."""

    def __init__(self, folder: Path, images: ImageFiles) -> None:
        self.folder = folder
        self._images = images
        self._room = threading.Semaphore(AT_ONCE)

    def save(self, image: Image.Image, settled: bool = True) -> StoredImage:
        """Save an image as `ImageFiles.save`, with its thumbnail. A thumbnail that cannot be written is no error."""
        stored = self._images.save(image, settled)
        try:
            if not self._path(stored.sha).exists():
                self._write(stored.sha, thumbnail(image))
        except Exception:  # the image counts, and its thumbnail is made again when somebody looks
            log.warning("the thumbnail of %s was not written", stored.sha, exc_info=True)
        return stored

    def ready(self, sha: str) -> bytes:
        """Return the WebP file of a thumbnail, b"" if there is none. Raises UserError for a wrong name."""
        return _whole(self._path(sha))

    def webp(self, sha: str) -> bytes:
        """Return the WebP file of a thumbnail, made now if missing. Raises UserError for a missing or damaged image."""
        path = self._path(sha)
        if data := _whole(path):
            return data
        with self._room:
            if data := _whole(path):  # another request has just made it
                return data
            data = thumbnail(self._images.load(sha))
            try:
                self._write(sha, data)
            except OSError as error:
                log.warning("the thumbnail of %s was not written (%s)", sha, error)
            return data

    def look(self, sha: str) -> NDArray[np.uint8]:
        """Return the look of an image (`core.twins.SHAPE`), made now if missing. Raises UserError for a missing or
        damaged image.
        """
        path = self._path(sha).with_suffix(".look")
        try:
            return np.frombuffer(path.read_bytes(), np.uint8).reshape(SHAPE)
        except (OSError, ValueError):  # there is none, or not all of one
            found = look_of(self._images.load(sha))
        try:
            self._put(path, found.tobytes())
        except OSError as error:
            log.warning("the look of %s was not written (%s)", sha, error)
        return found

    def fill(self, sha: str) -> bool:
        """Make the thumbnail of an image if there is none; whether it was made.

        Raises UserError for an image that is missing or damaged, OSError where the disk refuses the thumbnail.
        """
        if self._path(sha).exists():
            return False
        with self._room:
            self._write(sha, thumbnail(self._images.load(sha)))
        return True

    def sweep(self, alive: Callable[[int], bool]) -> int:
        """Remove the temporary files of processes that are gone; return how many there were."""
        return remove_temporary(self.folder, alive) if self.folder.is_dir() else 0

    def _path(self, sha: str) -> Path:
        file_name(sha)  # raises for what is none
        return self.folder / sha[:2] / sha[2:4] / f"{sha}.webp"

    def _write(self, sha: str, data: bytes) -> None:
        self._put(self._path(sha), data)

    def _put(self, path: Path, data: bytes) -> None:
        if not self._images.process:
            raise OSError("the workspace is closed")
        path.parent.mkdir(parents=True, exist_ok=True)
        # All in one folder, so that the half files of a process that died are found without a walk.
        temporary = self.folder / f".{self._images.process}-{secrets.token_hex(8)}.tmp"
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


class Thumbnails(ThumbnailFiles, Repository):
    """The thumbnails of an open workspace. Safe to use from many threads and processes."""

    def __init__(self, folder: Path, images: Images, database: Database) -> None:
        ThumbnailFiles.__init__(self, folder, images)
        Repository.__init__(self, database)

    @read
    def latest_entry(self, db: Db) -> int:
        """The highest number in the catalogue; 0 for an empty one."""
        return int(db.execute("SELECT coalesce(max(id), 0) FROM catalogue").fetchone()[0])

    @read
    def pictures(self, db: Db, first: int, last: int, most: int) -> tuple[tuple[int, str, str | None], ...]:
        """Return number, image and source of catalogue entries, newest first, without those of deleted runs."""
        query = "SELECT id, image, source FROM catalogue WHERE id BETWEEN ? AND ? AND there ORDER BY id DESC LIMIT ?"
        return tuple(db.execute(query, [first, last, most]).fetchall())

    def seen(self) -> Seen:
        """Return what was looked through before. Nothing if it cannot be read: then all thumbnails are made again."""
        try:
            held = json.loads((self.folder / _SEEN).read_bytes())
            return Seen(int(held["latest"]), tuple((int(first), int(last)) for first, last in held["gaps"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Seen()

    def set_seen(self, seen: Seen) -> None:
        """Keep what was looked through for the next start. Of two processes the later one wins. Raises OSError."""
        self._put(self.folder / _SEEN, json.dumps({"latest": seen.latest, "gaps": seen.gaps}).encode())


def thumbnail(image: Image.Image) -> bytes:
    """The WebP file of an image (L, RGB or RGBA) at `SIDE`, which keeps what is transparent so."""
    scale = min(1.0, SIDE / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    small.info = {}  # a profile or a text would go into the file
    file = BytesIO()
    small.save(file, "WEBP", quality=QUALITY, method=METHOD)
    return file.getvalue()


def _whole(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    return data if data[:4] == b"RIFF" and len(data) == int.from_bytes(data[4:8], "little") + 8 else b""
