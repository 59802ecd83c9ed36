"""Files below a place, read where they lie: a folder of any size, or a zip or plain tar.

Unlike `formats.sources`, which is handed strangers' uploads, this walks a folder that a person of this machine
named: links are followed, and no list of all names is kept for a folder.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from core.errors import UserError
from core.images import MAX_BYTES
from formats.naming import SPLIT_OF, UNSPLIT
from formats.sources import Files, Report, hidden, is_image, open_archive, why_unsafe

ARCHIVES = (".zip", ".tar")
GONE = "The file is not there any more: put it back, or list the data set again."


class Tree(Protocol):
    """Files by their paths from the top, with "/" between folders."""

    name: str
    """What it is called in sentences."""

    def folders(self, inside: str = "") -> list[str]:
        """The names of the folders directly in a folder, sorted."""

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        """The paths of the files below a folder, or directly in it; sorted within each folder. None is opened."""

    def has(self, path: str) -> bool:
        """Whether there is a file or a folder."""

    def read(self, path: str, most: int = MAX_BYTES) -> bytes:
        """The bytes of a file. Raises UserError for one that is missing, too large or cannot be read."""

    def stamp(self, path: str) -> str:
        """What tells that a file was changed. Raises UserError for one that is missing."""


def open_tree(place: Path, report: Report) -> Tree:
    """The files of a folder, a zip or a plain tar. Raises UserError for what is none of them."""
    if place.is_dir():
        return Folder(place, report)
    if not place.exists():
        raise UserError(f"{place} is not there: give the folder of the data set.", field="root")
    return Archive(place, open_archive(place, report))


def stamp_of(file: Path) -> str:
    """Size and time of the last change. Raises UserError for a file that is missing."""
    try:
        about = os.stat(file)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(GONE) from error
    except OSError as error:
        raise UserError(f"The file cannot be read: {error.strerror or error}.") from error
    return f"{about.st_size}-{about.st_mtime_ns}"


class Folder:
    """A folder on the disk. What it cannot list is told."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.name = folder.name or str(folder)
        self.folder = folder
        self._report = report

    def folders(self, inside: str = "") -> list[str]:
        return [entry.name for entry in self._entries(inside) if entry.is_dir()]

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        inside = inside.strip("/")
        try:
            about = os.stat(self.folder / inside)
        except OSError:  # `_entries` tells of what is there and cannot be read
            return self._walk(inside, deep, ())
        return self._walk(inside, deep, ((about.st_dev, about.st_ino),))

    def has(self, path: str) -> bool:
        return (self.folder / path).exists()

    def read(self, path: str, most: int = MAX_BYTES) -> bytes:
        try:
            with open(self._safe(path), "rb") as file:
                data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UserError(GONE) from error
        except OSError as error:
            raise UserError(f"The file cannot be read: {error.strerror or error}.") from error
        if len(data) > most:
            raise UserError(f"The file is larger than {most // 1_000_000} MB: save it smaller.")
        return data

    def stamp(self, path: str) -> str:
        return stamp_of(self._safe(path))

    def place(self, path: str) -> Path:
        """Where a file lies. Raises UserError for a path that leads out of the folder."""
        return self._safe(path)

    def _safe(self, path: str) -> Path:
        if reason := why_unsafe(path):
            raise UserError(reason)
        return self.folder / path

    def _entries(self, inside: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.folder / inside) as entries:
                return sorted((entry for entry in entries if not hidden(entry.name)), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._report.refuse(inside or self.name, f"The folder cannot be read: {error.strerror or error}.")
            return []

    def _walk(self, inside: str, deep: bool, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
        for entry in self._entries(inside):
            path = joined(inside, entry.name)
            if reason := why_unsafe(entry.name):
                self._report.refuse(path, reason)
            elif not entry.is_dir():
                yield path
            elif deep:
                about = entry.stat()
                here = about.st_dev, about.st_ino
                if here in above:
                    self._report.refuse(path, "It is a link to a folder that it lies in: it was not followed.")
                else:
                    yield from self._walk(path, deep, (*above, here))


class Archive:
    """A zip or a plain tar. Its list of names is kept."""

    def __init__(self, file: Path, files: Files) -> None:
        self.name = file.name
        self._file, self._files = file, files

    def folders(self, inside: str = "") -> list[str]:
        before = f"{inside.strip('/')}/" if inside.strip("/") else ""
        names = (name[len(before) :] for name in self._below(before))
        return sorted({name.partition("/")[0] for name in names if "/" in name})

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        before = f"{inside.strip('/')}/" if inside.strip("/") else ""
        return (name for name in self._below(before) if deep or "/" not in name[len(before) :])

    def has(self, path: str) -> bool:
        names = self._files.names
        at = bisect_left(names, path)
        return (at < len(names) and names[at] == path) or next(self._below(f"{path}/"), None) is not None

    def read(self, path: str, most: int = MAX_BYTES) -> bytes:
        names = self._files.names
        at = bisect_left(names, path)
        if at == len(names) or names[at] != path:
            raise UserError("The file is not in the archive: list the data set again.")
        return self._files.read(path, most)

    def stamp(self, path: str) -> str:
        return stamp_of(self._file)

    def _below(self, before: str) -> Iterator[str]:
        names = self._files.names
        for at in range(bisect_left(names, before), len(names)):
            if not names[at].startswith(before):
                return
            yield names[at]


def joined(*parts: str) -> str:
    """A path of parts, of which some may be empty."""
    return "/".join(part for part in parts if part)


def below(tree: Tree, candidates: tuple[str, ...], wanted: str) -> str | None:
    """The first of the folders that holds `wanted`; None where none does. Archives put a folder around all."""
    return next((folder for folder in candidates if tree.has(joined(folder, wanted))), None)


def images_in(tree: Tree, folder: str = "", deep: bool = True) -> Iterator[str]:
    """The paths of the images below a folder; what is no image by its name is passed over."""
    return (path for path in tree.files(folder, deep) if is_image(path))


def standard(split: str) -> str:
    """A split in the studio's words: "train", "validation", "test"; any other one as it is called."""
    return SPLIT_OF.get(split.lower(), split)


def choose(split: str, there: list[str], what: str, read: Callable[[str], str] = standard) -> str:
    """The split of those `there` that is meant. The only one is taken without a word; of several none is guessed.

    Raises UserError for a split that is not there, or not said. `read` gives a split in the studio's words.
    """
    if not split and len(there) == 1:
        return there[0]
    if not split:
        raise UserError(
            f"Say which split of {what} is meant: {', '.join(there)}. It has several, and none is taken unasked.",
            field="split",
        )
    same = [split] if split in there else [name for name in there if read(name) == read(split)]
    if len(same) != 1:
        raise UserError(
            f"There is no split “{split}” in {what}: "
            + (f"it has {', '.join(there)}." if there else "it is not split."),
            field="split",
        )
    return same[0]


def choose_some(split: str, there: Iterable[str], what: str) -> str:
    """The same for a set of which some items, or all, may be in no split, as "" says: “unsplit” asks for them."""
    names = sorted({name or UNSPLIT for name in there})
    if names == [UNSPLIT] and not split:
        return ""
    chosen = choose(split, names, what)
    return "" if chosen == UNSPLIT else chosen
