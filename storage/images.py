"""The image files of a workspace: `images/SHA.png`, named by the SHA-256 of the file's bytes; and a row for each.

A file takes its name only when all of it is on the disk, so a file with a name is a whole image. Until then it is a
temporary file that carries the number of the process that writes it; what dead processes left is removed at opening.
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
from storage.engine.rows import now

_SHA = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r"\.(-?\d+)-[0-9a-f]{16}\.tmp")


class ImageFiles:
    """The folder of image files. Knows no database. Safe to use from many threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = 0
        """The number of the process that writes files here; 0 while nothing may be written. One below 0 has not the
        workspace open: whoever gave it removes what it leaves (`remove_files_of`).
        """

    def save(self, image: Image.Image, settled: bool = True) -> StoredImage:
        """Write the pixels as PNG, without text chunks or profiles; return after they are on the disk.

        The same pixels give the same file. Of many images each may be saved with `settled=False`: then `settle` has to
        follow before any of them gets a row. Raises ValueError for a mode not in `MODES`, UserError when the disk
        refuses.
        """
        if not self.process:
            raise RuntimeError("the workspace is closed")
        if image.mode not in MODES:
            raise ValueError(f"an image of mode {image.mode} cannot be stored; convert it to one of {', '.join(MODES)}")
        data = png_of(image)  # a profile, a text chunk or a gamma would go into the file, and out to whoever sees it
        sha = hashlib.sha256(data).hexdigest()
        temporary = self.folder / f".{self.process}-{secrets.token_hex(8)}.tmp"
        try:
            write_whole(temporary, data)
            os.replace(temporary, self.folder / file_name(sha))
            if settled:
                sync_folder(self.folder)
        except OSError as error:
            with suppress(OSError):  # a disk that can only be read by now does not let it go either
                temporary.unlink(missing_ok=True)
            raise DiskTrouble(f"The image was not saved in {self.folder}. {disk_reason(error)}.") from error
        return StoredImage(sha, image.width, image.height, image.mode, len(data))

    def take(self, path: Path, sha: str) -> StoredImage:
        """Take over a file of this disk that is a PNG of pixels alone, as `save` writes it, and has this SHA-256: it is
        moved, not read again by a decoder. Where the image is here already, `path` may be gone. `settle` has to follow
        before it gets a row.

        Raises UserError for bytes of another hash or mode, and when the disk refuses.
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
                raise UserError(f"The image {sha} is not what it should be: it was changed meanwhile.")
            if path.exists():
                os.replace(path, place)
        except UnidentifiedImageError as error:
            raise UserError(f"The image {sha} is not what it should be: it was changed meanwhile.") from error
        except OSError as error:
            raise DiskTrouble(f"The image was not saved in {self.folder}. {disk_reason(error)}.") from error
        return StoredImage(sha, header.width, header.height, header.mode, len(data))

    def settle(self) -> None:
        """Wait until the names of all images that were saved are on the disk."""
        sync_folder(self.folder)

    def path(self, sha: str) -> Path:
        """Where the image lies. Raises UserError when `sha` is no image name or the file is gone."""
        path = self.folder / file_name(sha)
        if not path.is_file():
            raise UserError(f"The image {sha} is missing from {self.folder}; restore it from a backup.")
        return path

    def read(self, sha: str) -> bytes:
        """The file of an image, checked against its name. Raises UserError when it is missing or damaged."""
        path = self.path(sha)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"The image {sha} cannot be read ({error.strerror or error}).") from error
        if hashlib.sha256(data).hexdigest() != sha:
            raise UserError(f"The image {sha} in {self.folder} is damaged; restore it from a backup.")
        return data

    def load(self, sha: str) -> Image.Image:
        """The image that `read` gives the file of."""
        image = Image.open(BytesIO(self.read(sha)))
        image.load()
        return image

    def sweep(self, alive: Callable[[int], bool]) -> int:
        """Remove the temporary files of processes that are gone; return how many there were."""
        return remove_temporary(self.folder, alive)


class Images(ImageFiles):
    """The images of an open workspace."""

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder)
        self._database = database

    def add(self, image: Image.Image) -> str:
        """Save an image of no run (L, RGB or RGBA); return its hash. Raises UserError when the disk refuses."""
        stored = self.save(image)
        self._database.write(lambda db: keep_image(db, stored))
        return stored.sha

    def orphans(self) -> tuple[str, ...]:
        """Return files that no row knows: half saved, or put there by hand. Nothing uses them, no backup takes them."""
        known = self._database.read(lambda db: {f"{sha}.png" for (sha,) in db.execute("SELECT sha FROM images")})
        names = (path.name for path in self.folder.iterdir() if not _TEMPORARY.fullmatch(path.name))
        return tuple(sorted(name for name in names if name not in known))

    def sizes(self, shas: Iterable[str | None]) -> dict[str, tuple[int, int]]:
        """Width and height of those of these images that are stored, by hash. No file is opened."""
        query = "SELECT sha, width, height FROM images WHERE sha IN (SELECT value FROM json_each(?))"
        asked = [json.dumps(list(shas))]
        return self._database.read(
            lambda db: {row["sha"]: (row["width"], row["height"]) for row in db.query(query, asked)}
        )


def keep_image(db: Db, image: StoredImage) -> None:
    """The row of an image whose file is whole. The same image again changes nothing."""
    row = {**cells(image, "sha width height mode bytes"), "created": now()}
    db.table("images").insert(row, ignore=True)


def file_name(sha: str) -> str:
    """The name of an image's file. Raises UserError unless `sha` is 64 hexadecimal digits: no path gets through."""
    if not _SHA.fullmatch(sha):
        raise UserError(f"{sha[:80]!r} is not the name of an image; it has 64 hexadecimal digits.")
    return f"{sha}.png"


def remove_temporary(folder: Path, alive: Callable[[int], bool]) -> int:
    """Remove what processes that are gone were writing in `folder`; return how many files there were."""
    removed = 0
    for path in folder.iterdir():
        match = _TEMPORARY.fullmatch(path.name)
        if match and int(match[1]) >= 0 and not alive(int(match[1])):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def remove_files_of(folder: Path, process: int) -> int:
    """Remove what processes of this number, which are gone, were writing in `folder`; return how many files."""
    found = list(folder.glob(f".{process}-*.tmp"))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def write_whole(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk. Raises OSError, also when `path` exists."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
