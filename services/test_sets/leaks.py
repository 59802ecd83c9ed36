"""Checks whether a model was trained on images of a test set, by comparing the test set with a folder of training
images.

The report lists each file that equals or resembles a test image. A file also counts if it shows a test image mirrored,
cropped, shifted or with a mark drawn on it. The report also lists files that cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.errors import UserError
from core.images import image_sha, read_image
from core.perceptual_hashes import NearHashes, perceptual_hash
from core.progress import OnCount
from core.test_sets import Role, SetVersion
from core.twins import look_of, twins_between
from formats.files import is_image
from services.test_sets.hashes import MOST_TWINS, hashes_of, images_here, looks_of
from storage.engine.rows import whole
from storage.workspace import Workspace

_AT_ONCE = 2000
"""Number of training files that are compared with a test set at a time."""
Look = NDArray[np.uint8]


@dataclass(frozen=True)
class LeakRow:
    """A training file that matches an image of the test set, or that could not be compared."""

    file: str
    """Path in the folder."""
    found: Literal["same", "alike", "copy", "not compared"]
    image: str = ""
    """SHA-256 of the image that the file matches; "" if the file could not be compared."""
    role: Role = "generated"
    """Role of the matched image. A "source" is an image from which images of the test set were made."""
    distance: int = 0
    """Number of differing bits of the perceptual hashes. 0 for an edited copy, which is found without hashes."""
    reason: str = ""
    """One sentence on why the file was not compared; "" if it was."""


@dataclass(frozen=True)
class LeakReport:
    """Result of comparing a folder with a version of a test set."""

    version: SetVersion
    rows: tuple[LeakRow, ...]
    """The rows of the report, sorted by file."""
    files: int
    """Number of image files in the folder."""
    others: int
    """Number of files without the suffix of an image, which are skipped."""
    compared: int
    """Number of images and sources of the test set with which the files were compared."""
    copies: bool
    """True if edited copies were searched for; False if the test set has more than `MOST_TWINS` images and sources."""

    @property
    def leaks(self) -> tuple[LeakRow, ...]:
        """Return the rows of files that match an image of the test set."""
        return tuple(row for row in self.rows if row.found != "not compared")


def check_folder(
    workspace: Workspace, version: SetVersion, folder: Path, on_count: OnCount | None = None
) -> LeakReport:
    """Compare every image file in `folder` and below, following links, with the images of a version and their sources.
    Files are compared by their pixels (upright, in RGB), by perceptual hashes, and as edited copies. Images of the
    version in the split “train” are left out, since models may be trained on them.

    Raises UserError if the folder does not exist, or if a file of the version is missing.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give the folder with the training images.")
    index = _Index(workspace, version)
    files, rows, others = [], list[LeakRow](), 0
    for path, problem in _below(folder):
        if problem:
            rows.append(LeakRow(_named(path, folder), "not compared", reason=problem))
        elif is_image(path.name):
            files.append(path)
        else:
            others += 1
    unknown: list[tuple[str, Look]] = []
    for number, path in enumerate(sorted(files), start=1):
        row = _look(path, folder, index)
        if isinstance(row, LeakRow):
            rows.append(row)
        else:
            unknown.append((_named(path, folder), row))
        if len(unknown) == _AT_ONCE or number == len(files):
            rows += index.copies(unknown)
            unknown = []
        if on_count is not None:
            on_count(number, len(files))
    rows.sort(key=lambda row: row.file)
    return LeakReport(version, tuple(rows), len(files), others, index.size, index.finds_copies)


class _Index:
    """Hashes of the images that no model may be trained on: a version's images outside "train", and their sources."""

    def __init__(self, workspace: Workspace, version: SetVersion) -> None:
        entries = [entry for entry in workspace.test_sets.entries(version.number) if entry.split != "train"]
        sources = images_here(workspace, (entry.source for entry in entries))
        roles: dict[str, Role] = dict.fromkeys(sources, "source")
        roles |= {entry.image: entry.role for entry in entries}
        self.size = len(roles)
        self.pixels: dict[str, tuple[str, Role]] = {}
        self._perceptual: dict[int, tuple[str, Role]] = {}
        self._near = NearHashes()
        for sha, image_hashes in sorted(hashes_of(workspace, roles).items()):
            self.pixels.setdefault(image_hashes.pixels, (sha, roles[sha]))
            self._perceptual.setdefault(image_hashes.perceptual, (sha, roles[sha]))
            self._near.add(image_hashes.perceptual)
        self.finds_copies = self.size <= MOST_TWINS
        self._roles = dict(sorted(roles.items()))
        self._looks = looks_of(workspace, list(self._roles)) if self.finds_copies else looks_of(workspace, [])

    def alike(self, perceptual: int) -> tuple[str, Role, int] | None:
        """Return the image with the closest perceptual hash, its role and distance; None if none is close."""
        near = self._near.near(perceptual)
        if not near:
            return None
        closest = min(near, key=lambda value: (near[value], self._perceptual[value]))
        return *self._perceptual[closest], near[closest]

    def copies(self, files: Sequence[tuple[str, Look]]) -> list[LeakRow]:
        """Return a report row for each file that shows an edited copy of an image. `files`: (name, reduced picture)."""
        if not files or not len(self._looks):
            return []
        shas, row_of = list(self._roles), dict[int, LeakRow]()
        for place, image in twins_between(np.stack([look for _, look in files]), self._looks).tolist():
            sha = shas[image]
            row_of.setdefault(place, LeakRow(files[place][0], "copy", sha, self._roles[sha]))
        return list(row_of.values())


def _look(path: Path, folder: Path, index: _Index) -> LeakRow | Look:
    """Return a report row if the file is unreadable or matches by a hash. Otherwise, return its reduced picture."""
    file = _named(path, folder)
    if not path.is_file():  # a broken link, or a pipe, which would block this program
        return LeakRow(file, "not compared", reason="This is no file, or a link to a missing file.")
    try:
        picture = read_image(path).image
    except UserError as error:
        return LeakRow(file, "not compared", reason=whole(str(error)))
    same = index.pixels.get(image_sha(picture))
    if same is not None:
        return LeakRow(file, "same", *same)
    alike = index.alike(perceptual_hash(picture))
    return LeakRow(file, "alike", *alike) if alike is not None else look_of(picture)


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield (path, "") of each file in a folder and below, and (path, reason) of each folder that is unreadable."""
    problems: list[tuple[Path, str]] = []

    def cannot(error: OSError) -> None:
        problems.append((Path(error.filename or folder), f"The folder cannot be read: {error.strerror or error}."))

    seen: set[str] = set()
    for here, folders, names in os.walk(folder, onerror=cannot, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from ((Path(here) / name, "") for name in names)
    yield from problems


def _named(path: Path, folder: Path) -> str:
    return whole(path.relative_to(folder).as_posix())
