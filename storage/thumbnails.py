"""Thumbnails for galleries: `thumbs/ab/cd/SHA.webp`, 256 pixels on the longer side, named by the hash of the image.

If near duplicates of an image were searched, `SHA.look` lies beside its thumbnail, with the bytes of
`core.twins.look_of`. A thumbnail can always be made again from its image. So no write waits for the disk (no fsync), a
failed write is no error, and backups omit thumbnails. A file that a power failure cut short is detected by the length
in it, and made again. A file gets its name only when it is complete.
"""

from __future__ import annotations

import logging
import threading
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sqlite_utils import Database as Db

from core.images import StoredImage
from core.twins import SHAPE, look_of
from storage.engine.database import Database, Repository, read
from storage.engine.queries import first_value
from storage.images import ImageFiles, Images, file_name, write_renewable

SIDE = 256
"""Length in pixels of a thumbnail's longer side. Smaller images keep their size."""
QUALITY, METHOD = 80, 0
"""Quality and method of WebP. Method 4 would take twice the time for files a sixth smaller."""
AT_ONCE = 2
"""Maximum number of thumbnails made at the same time. The largest image takes 150 MB, and requests come in dozens."""
_CHECKED = "checked.txt"
"""Name of a file that stores a catalogue number. All images up to this number were checked for thumbnails."""

log = logging.getLogger(__name__)


class ThumbnailFiles:
    """The folder of thumbnails. It uses no database. Safe for many threads and processes."""

    def __init__(self, folder: Path, images: ImageFiles) -> None:
        self.folder = folder
        self._images = images
        self._room = threading.Semaphore(AT_ONCE)

    def save(self, image: Image.Image, settled: bool = True) -> StoredImage:
        """Save an image as `ImageFiles.save` does, and its thumbnail. An error about the thumbnail is ignored."""
        stored = self._images.save(image, settled)
        try:
            if not self._path(stored.sha).exists():
                self._put(self._path(stored.sha), thumbnail(image))
        except Exception:  # the image is saved, and its thumbnail is made again when it is viewed
            log.warning("the thumbnail of %s was not written", stored.sha, exc_info=True)
        return stored

    def ready(self, sha: str) -> bytes:
        """Return the WebP file of a thumbnail, or b"" if it does not exist. Raises UserError if `sha` is no SHA-256."""
        return _whole(self._path(sha))

    def webp(self, sha: str) -> bytes:
        """Return the WebP file of a thumbnail. Make it if missing. Raises UserError for a missing or damaged image."""
        path = self._path(sha)
        if data := _whole(path):
            return data
        with self._room:
            if data := _whole(path):  # another request may have made it in the meantime
                return data
            data = thumbnail(self._images.load(sha))
            self._try_to_put(path, data)
            return data

    def look(self, sha: str) -> NDArray[np.uint8]:
        """Return an image's small copy for finding near duplicates. Raises UserError for a missing or damaged image."""
        path = self._path(sha).with_suffix(".look")
        try:
            return np.frombuffer(path.read_bytes(), np.uint8).reshape(SHAPE)
        except (OSError, ValueError):  # the file is missing or cut short
            pixels = look_of(self._images.load(sha))
        self._try_to_put(path, pixels.tobytes())
        return pixels

    def fill(self, sha: str) -> bool:
        """Make a thumbnail. Return False if it existed. Raises OSError, or UserError for a missing or damaged image."""
        path = self._path(sha)
        if path.exists():
            return False
        with self._room:
            self._put(path, thumbnail(self._images.load(sha)))
        return True

    def _path(self, sha: str) -> Path:
        file_name(sha)  # raises for an invalid hash
        return self.folder / sha[:2] / sha[2:4] / f"{sha}.webp"

    def _try_to_put(self, path: Path, data: bytes) -> None:
        try:
            self._put(path, data)
        except OSError as error:
            log.warning("the file %s was not written (%s)", path.name, error)

    def _put(self, path: Path, data: bytes) -> None:
        # All in one folder, so that temporary files of dead processes are found without a walk.
        write_renewable(path, data, self.folder, self._images.process)


class Thumbnails(ThumbnailFiles, Repository):
    """The thumbnails of an open workspace. Safe for many threads and processes."""

    def __init__(self, folder: Path, images: Images, database: Database) -> None:
        ThumbnailFiles.__init__(self, folder, images)
        Repository.__init__(self, database)

    @read
    def latest_entry(self, db: Db) -> int:
        """Return the highest catalogue number; 0 if the catalogue is empty."""
        return int(first_value(db, "SELECT coalesce(max(id), 0) FROM catalogue"))

    @read
    def pictures(self, db: Db, first: int, last: int, most: int) -> tuple[tuple[int, str, str | None], ...]:
        """Return (number, image, source) of up to `most` entries, newest first, without deleted runs."""
        query = "SELECT id, image, source FROM catalogue WHERE id BETWEEN ? AND ? AND there ORDER BY id DESC LIMIT ?"
        return tuple(db.execute(query, [first, last, most]).fetchall())

    def checked(self) -> int:
        """Return the catalogue number up to which all images were checked for thumbnails; 0 if it is not known."""
        try:
            return int((self.folder / _CHECKED).read_bytes())
        except (OSError, ValueError):
            return 0

    def set_checked(self, entry: int) -> None:
        """Save the number that `checked` returns. A restart keeps the number. Raises OSError if writing fails."""
        self._put(self.folder / _CHECKED, str(entry).encode())


def thumbnail(image: Image.Image) -> bytes:
    """Return a WebP thumbnail of an image (L, RGB or RGBA). Each side has at most `SIDE` pixels. Transparency stays."""
    scale = min(1.0, SIDE / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    small.info = {}  # a profile or a text would be written into the file
    file = BytesIO()
    small.save(file, "WEBP", quality=QUALITY, method=METHOD)
    return file.getvalue()


def _whole(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    return data if data[:4] == b"RIFF" and len(data) == int.from_bytes(data[4:8], "little") + 8 else b""
