"""The image files of a workspace: `images/SHA.png`, named by the SHA-256 of the file; and a row for each.

A file gets its name only when it is complete on the disk. Until then it is a temporary file, and its name has the
number of the writing process. Temporary files of dead processes are removed when the workspace is opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.errors import DiskTrouble, UserError, disk_reason
from core.images import MODES, StoredImage, png_of
from storage.engine.database import Database
from storage.engine.queries import first_column, insert_rows
from storage.engine.rows import now

_SHA = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r"\.(-?\d+)-[0-9a-f]{16}\.tmp")


class ImageFiles:
    """The folder of image files. It uses no database. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = 0
        """Number of the process that writes files here; 0 while nothing may be written. In a shard, which is a process
        that works on a batch without opening the workspace, the number is negative. A shard's temporary files are
        removed with `remove_files_of` when its work is merged or taken back."""

    def save(self, image: Image.Image, settled: bool = True) -> StoredImage:
        """Write the pixels as PNG without text or profile, and return when the file is on the disk.

        The same pixels give the same file. To save many images faster, pass `settled=False` and call `settle` before
        any of them gets a row. Raises ValueError for a mode not in `MODES`, UserError if the disk fails.
        """
        if not self.process:
            raise RuntimeError("the workspace is closed")
        if image.mode not in MODES:
            raise ValueError(f"an image of mode {image.mode} cannot be stored; convert it to one of {', '.join(MODES)}")
        data = png_of(image)  # else a profile, a text or a gamma would be written into the file
        sha = hashlib.sha256(data).hexdigest()
        try:
            write_whole(self.folder / file_name(sha), data, self.folder, self.process)
            if settled:
                self.settle()
        except OSError as error:
            raise DiskTrouble(f"The image was not saved in {self.folder}. {disk_reason(error)}.") from error
        return StoredImage(sha, image.width, image.height, image.mode, len(data))

    def take(self, path: Path, sha: str) -> StoredImage:
        """Move a PNG with this SHA-256, written by `save`, into the folder of images. Its pixels are not decoded.

        If the image is stored already, `path` may be missing. Call `settle` before a row refers to the image. Raises
        UserError if hash or mode do not fit, and if the disk fails.
        """
        if not self.process:
            raise RuntimeError("the workspace is closed")
        place = self.folder / file_name(sha)
        try:
            with open(path if path.exists() else place, "rb") as file:
                data = file.read()
                os.fsync(file.fileno())
            header = Image.open(BytesIO(data), formats=("PNG",))
            if hashlib.sha256(data).hexdigest() != sha or header.mode not in MODES:
                raise UserError(f"The file of image {sha} was changed after it was written: its content is different.")
            if path.exists():
                os.replace(path, place)
        except UnidentifiedImageError as error:
            raise UserError(f"The file of image {sha} was changed after it was written: it is no PNG.") from error
        except OSError as error:
            raise DiskTrouble(f"The image was not saved in {self.folder}. {disk_reason(error)}.") from error
        return StoredImage(sha, header.width, header.height, header.mode, len(data))

    def settle(self) -> None:
        """Wait until the names of all saved image files are on the disk."""
        sync_folder(self.folder)

    def path(self, sha: str) -> Path:
        """Return the path of an image file. Raises UserError if `sha` is no SHA-256 or the file is missing."""
        path = self.folder / file_name(sha)
        if not path.is_file():
            raise UserError(f"The image {sha} is missing from {self.folder}; restore it from a backup.")
        return path

    def read(self, sha: str) -> bytes:
        """Read the file of an image and check its hash. Raises UserError if the file is missing or damaged."""
        path = self.path(sha)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"The image {sha} cannot be read ({error.strerror or error}).") from error
        if hashlib.sha256(data).hexdigest() != sha:
            raise UserError(f"The image {sha} in {self.folder} is damaged; restore it from a backup.")
        return data

    def load(self, sha: str) -> Image.Image:
        """Load the image with this hash. Raises UserError if its file is missing or damaged."""
        image = Image.open(BytesIO(self.read(sha)))
        image.load()
        return image


class Images(ImageFiles):
    """The images of an open workspace."""

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder)
        self._database = database

    def add(self, image: Image.Image) -> str:
        """Save an image (L, RGB, RGBA) that belongs to no run. Return its hash. Raises UserError if the disk fails."""
        stored = self.save(image)
        self._database.write(lambda db: keep_image(db, stored))
        return stored.sha

    def orphans(self) -> tuple[str, ...]:
        """Return hashes of image files without a row: half saved, or added by hand. Nothing uses them."""
        known = {file_name(sha) for sha in self._database.read(lambda db: first_column(db, "SELECT sha FROM images"))}
        names = {path.name for path in self.folder.iterdir() if not _TEMPORARY.fullmatch(path.name)}
        return tuple(sorted(names - known))

    def sizes(self, shas: Iterable[str | None]) -> dict[str, tuple[int, int]]:
        """Return (width, height) by hash. Images that are not stored are left out. No file is opened."""
        query = "SELECT sha, width, height FROM images WHERE sha IN (SELECT value FROM json_each(?))"
        rows = self._database.read(lambda db: db.execute(query, [json.dumps(list(shas))]).fetchall())
        return {sha: (width, height) for sha, width, height in rows}


def keep_image(db: Db, image: StoredImage) -> None:
    """Insert the row of an image whose file is complete. An existing row stays unchanged."""
    insert_rows(db, "images", [{**cells(image, "sha width height mode bytes"), "created": now()}], ignore=True)


def file_name(sha: str) -> str:
    """Return the file name of an image. Raises UserError unless `sha` is 64 hexadecimal digits (so never a path)."""
    if not _SHA.fullmatch(sha):
        raise UserError(f"{sha[:80]!r} is not the name of an image. Such a name has 64 hexadecimal digits.")
    return f"{sha}.png"


def write_renewable(path: Path, data: bytes, folder: Path, process: int) -> None:
    """Write or replace a file without waiting for the disk, as it can be made again. Raises OSError."""
    if not process:
        raise OSError("the workspace is closed")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, folder, process, wait=False)


def write_whole(path: Path, data: bytes, folder: Path, process: int, wait: bool = True) -> None:
    """Write or replace a file. With `wait`, its content is on the disk before it gets its name. Raises OSError.

    Until it gets its name it is a temporary file in `folder`, where `remove_temporary` finds it.
    """
    temporary = folder / f".{process}-{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            if wait:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # a disk that became read-only refuses this too
            temporary.unlink(missing_ok=True)
        raise


def remove_temporary(folder: Path, alive: Callable[[int], bool]) -> None:
    """Remove the temporary files of dead processes in `folder`. The folder may be missing."""
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(path.name)
        if match and int(match[1]) >= 0 and not alive(int(match[1])):
            path.unlink(missing_ok=True)


def remove_files_of(folder: Path, process: int) -> int:
    """Remove the temporary files that the dead process with this number left in `folder`. Return how many."""
    files = list(folder.glob(f".{process}-*.tmp"))
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)


def sync_folder(folder: Path) -> None:
    """Wait until the file names in `folder` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
