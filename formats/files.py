"""Read the files of a data set by name, in a folder, a zip or a tar. Names in an archive are never used as paths to
write to. Names that lead out of the archive, and zip bombs, are left out and reported. All other files are read. Links
are followed only in a folder that a user of this machine named.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import secrets
import shutil
import stat
import tarfile
import threading
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from core.errors import UserError
from core.images import MAX_BYTES
from core.words import composed, count_of
from formats.types import Report

T = TypeVar("T")

MOST_FILES = 2_000_000
MOST_TABLE = 2_000_000_000
"""Maximum size in bytes of a table or list of examples that is read as a whole."""
MOST_LINE = 50_000_000
"""Maximum length in bytes of a line in a text file."""
_BLOCK = 1 << 20
MOST_PACKED = 250
"""Maximum ratio of unpacked size to packed size, for files above `SMALL` bytes. Larger ratios suggest a zip bomb."""
SMALL = 10_000_000
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, UnicodeDecodeError),
    *(zlib.error, lzma.LZMAError),
)
"""Errors that Python raises for a damaged archive. OSError comes from bzip2."""
_FROM_WITHIN = re.compile(r"^(\./)+")
"""Pattern of the prefix “./”. File names have this prefix if their archive was packed from inside its folder."""
_LINK = "It is a link, and links are not followed: put the file itself in its place."


class Files(Protocol):
    """The files of a data set by name, with "/" between folders. Any thread may read them."""

    name: str
    """Name of the folder or archive, for messages to the user."""

    @property
    def names(self) -> tuple[str, ...]:
        """All file names, sorted. A folder on the disk is searched at the first access."""

    def folders(self, inside: str = "") -> list[str]:
        """Return the sorted names of the folders directly inside the folder `inside`."""

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        """Yield the paths of the files in a folder, sorted folder by folder. With `deep`, include inner folders."""

    def has(self, path: str) -> bool:
        """Return True if a file or folder has this path."""

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        """Return the bytes of a file. Raises UserError if it is missing, damaged or larger than `most` bytes."""

    def path(self, name: str) -> Path:
        """Return the path of a file on the disk, to read it piece by piece. A file of an archive is first copied to the
        disk. Raises UserError if it is damaged or may not be copied, OSError if the disk is full.
        """

    def stamp(self, name: str) -> str:
        """Return size and change time of a file, or of its archive, as text. Raises UserError if it is missing."""


class Line(NamedTuple):
    number: int
    """One-based number of the line."""
    place: int
    """Offset of the line in bytes from the start of the file."""
    text: bytes


def why_unsafe(name: str) -> str:
    """Return why a name in an archive is unsafe; "" for a safe name."""
    if name.startswith("/") or (len(name) > 1 and name[1] == ":"):
        return "Its name is an absolute path, which a good archive does not hold: pack it again."
    if ".." in name.split("/"):
        return "Its name leads out of the archive: pack it again."
    if not name or any(ord(mark) < 32 or ord(mark) == 0xFFFD or 0xD800 <= ord(mark) < 0xE000 for mark in name):
        return "Its name holds signs that no file should have: rename it."
    return ""


def hidden(name: str) -> bool:
    """Return True if an operating system added the file, such as .DS_Store."""
    parts = [part for part in name.split("/") if part != "."]  # "." represents the folder itself
    return any(part.startswith((".", "__MACOSX")) or part == "Thumbs.db" for part in parts)


def is_image(name: str) -> bool:
    """Return True if the name ends like an image file, such as .png."""
    return name.lower().endswith(IMAGES)


def open_files(source: Path, report: Report, scratch: Path | None = None, follow_links: bool = False) -> Files:
    """Open a folder, a zip or a tar. A compressed tar (.tar.gz) is unpacked into the folder `scratch`. Without
    `scratch` it is refused, and `Files.path` works only for folders. Raises UserError if nothing can be read.
    """
    if source.is_dir():
        return Folder(source, report, follow_links)
    try:
        if zipfile.is_zipfile(source):
            return _Zip(source, scratch, report)
        if scratch is None and _unpacker(source) is not None:
            raise UserError(
                f"{source.name} is compressed as a whole, so its files cannot be read one by one: make a plain tar "
                "of it (gunzip, bunzip2 or unxz), or unpack it.",
                field="source",
            )
        return _Tar(source if scratch is None else _plain_tar(source, scratch), scratch, report)
    except FileNotFoundError as error:
        raise UserError(f"{source} does not exist: give a folder, a zip or a tar.", field="source") from error
    except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
        raise UserError(
            f"{source.name} is no folder, zip or tar that can be read: give the folder itself, download it again, or "
            "pack it again.",
            field="source",
        ) from error


def unreadable(error: OSError) -> UserError:
    """Return the UserError for a file of a data set that cannot be opened."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UserError("The file is not there: put it back, or list the data set again.")
    return UserError(f"The file cannot be read: {error.strerror or error}.")


def stamp_of(file: Path) -> str:
    """Return size and change time of a file on the disk as text. Raises UserError if it is missing."""
    try:
        status = os.stat(file)
    except OSError as error:
        raise unreadable(error) from error
    return f"{status.st_size}-{status.st_mtime_ns}"


def joined(*parts: str) -> str:
    """Join the parts of a path with "/", without empty parts."""
    return "/".join(part for part in parts if part)


def images_in(files: Files, folder: str = "") -> Iterator[str]:
    """Yield the paths of the images below a folder, by the endings of their names."""
    return filter(is_image, files.files(folder))


def require_few(names: Sequence[str], what: str) -> None:
    """Raise UserError for more than `MOST_FILES` names. `what` describes their folder or archive."""
    if len(names) > MOST_FILES:
        raise UserError(f"{what} holds {len(names):,} files, but at most {MOST_FILES:,} can be read at once.")


class Folder:
    """Folder on the disk, listed when needed. Links are followed or reported. Unreadable folders are reported."""

    def __init__(self, folder: Path, report: Report, follow_links: bool = False) -> None:
        self.name = folder.name or str(folder)
        self._folder, self._report, self._follow = folder, report, follow_links
        self._links: set[str] = set()

    @cached_property
    def names(self) -> tuple[str, ...]:
        hidden_files: list[str] = []
        names = tuple(sorted(self._walk("", True, (), hidden_files)))
        require_few(names, self.name)
        report_hidden(self.name, len(hidden_files), self._report)
        return names

    def folders(self, inside: str = "") -> list[str]:
        return [entry.name for entry in self._entries(inside) if entry.is_dir(follow_symlinks=self._follow)]

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        return self._walk(inside.strip("/"), deep, ())

    def has(self, path: str) -> bool:
        return not why_unsafe(path) and (self._folder / path).exists()

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        try:
            with open(self.path(name), "rb") as file:
                return _bounded(file.read(min(os.fstat(file.fileno()).st_size, most) + 1), most)
        except OSError as error:
            raise unreadable(error) from error

    def path(self, name: str) -> Path:
        if reason := why_unsafe(name):
            raise UserError(reason)
        return self._folder / name

    def stamp(self, name: str) -> str:
        return stamp_of(self.path(name))

    def _entries(self, inside: str, hidden_files: list[str] | None = None) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder / inside) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._report.refuse(inside or self.name, f"The folder cannot be read: {error.strerror or error}.")
            return []
        if hidden_files is not None:
            hidden_files += [entry.name for entry in entries if hidden(entry.name)]
        return [entry for entry in entries if not hidden(entry.name)]

    def _walk(
        self, inside: str, deep: bool, above: tuple[tuple[int, int], ...], hidden_files: list[str] | None = None
    ) -> Iterator[str]:
        if not above and self._follow and self.has(inside):
            status = os.stat(self._folder / inside)
            above = ((status.st_dev, status.st_ino),)
        for entry in self._entries(inside, hidden_files):
            path = joined(inside, entry.name)
            if entry.is_symlink() and not self._follow:
                if path not in self._links:
                    self._report.refuse(path, _LINK)
                self._links.add(path)
            elif reason := why_unsafe(entry.name):
                self._report.refuse(path, reason)
            elif not entry.is_dir(follow_symlinks=self._follow):
                # A link to a missing file is reported when it is read.
                if entry.is_file(follow_symlinks=self._follow) or entry.is_symlink():
                    yield path
                else:
                    self._report.refuse(path, "It is no file but a device or a pipe.")
            elif deep:
                status = entry.stat()
                here = status.st_dev, status.st_ino
                if here in above:
                    self._report.refuse(path, "It is a link to a folder that it lies in: it was not followed.")
                else:
                    yield from self._walk(path, deep, (*above, here), hidden_files)


class _Archive:
    def __init__(self, file: Path, scratch: Path | None, report: Report) -> None:
        self.name = file.name
        self.names: tuple[str, ...] = ()
        self._place, self._scratch, self._report = file, scratch, report
        self._copies: dict[str, Path] = {}
        self._hidden = 0

    def folders(self, inside: str = "") -> list[str]:
        return sorted({name.partition("/")[0] for name in self._below(inside) if "/" in name})

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        return (joined(inside.strip("/"), name) for name in self._below(inside) if deep or "/" not in name)

    def has(self, path: str) -> bool:
        return self._is_file(path) or next(self._below(path), None) is not None

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        if not self._is_file(name):
            raise UserError("The file is not in the archive: list the data set again.")
        blocks, size = [], 0
        for block in self._blocks(name):
            blocks.append(block)
            size += len(block)
            if size > most:
                break
        return _bounded(b"".join(blocks), most)

    def path(self, name: str) -> Path:
        if name not in self._copies:
            if self._scratch is None:
                raise UserError(f"{name} lies in an archive: unpack {self.name}, and give the folder.", field="root")
            copy = self._scratch / secrets.token_hex(8)
            with copy.open("xb") as file:
                for block in self._blocks(name):
                    file.write(block)
            self._copies[name] = copy
        return self._copies[name]

    def stamp(self, name: str) -> str:
        return stamp_of(self._place)

    def _is_file(self, name: str) -> bool:
        at = bisect_left(self.names, name)
        return at < len(self.names) and self.names[at] == name

    def _below(self, inside: str) -> Iterator[str]:
        """Yield the names of the files below a folder, relative to the folder."""
        before = f"{inside.strip('/')}/" if inside.strip("/") else ""
        for at in range(bisect_left(self.names, before), len(self.names)):
            if not self.names[at].startswith(before):
                return
            yield self.names[at][len(before) :]

    def _good(self, name: str) -> bool:
        """Return True if a file can be read. Otherwise count it as hidden, or report it."""
        reason = why_unsafe(name)
        if reason:
            self._report.refuse(name, reason)
        elif hidden(name):
            self._hidden += 1
        return not reason and not hidden(name)

    def _keep(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        require_few(self.names, self.name)
        report_hidden(self.name, self._hidden, self._report)

    def _blocks(self, name: str) -> Iterator[bytes]:
        raise NotImplementedError


def report_hidden(what: str, count: int, report: Report) -> None:
    """Report how many hidden files were left out; `what` is the name of their folder or archive."""
    if count:
        report.refuse(what, f"{count_of(count, 'hidden file', 'was')} left out.")


class Inner:
    """The files of a data set that lie inside one of its folders. Names are relative to this folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self.name = files.name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.removeprefix(f"{self._folder}/") for name in self._files.names)

    def folders(self, inside: str = "") -> list[str]:
        return self._files.folders(joined(self._folder, inside))

    def files(self, inside: str = "", deep: bool = True) -> Iterator[str]:
        before = len(self._folder) + 1
        return (name[before:] for name in self._files.files(joined(self._folder, inside), deep))

    def has(self, path: str) -> bool:
        return self._files.has(joined(self._folder, path))

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        return self._files.read(joined(self._folder, name), most)

    def path(self, name: str) -> Path:
        return self._files.path(joined(self._folder, name))

    def stamp(self, name: str) -> str:
        return self._files.stamp(joined(self._folder, name))


class _Zip(_Archive):
    def __init__(self, file: Path, scratch: Path | None, report: Report) -> None:
        super().__init__(file, scratch, report)
        self._archive = zipfile.ZipFile(file)
        self._entries: dict[str, zipfile.ZipInfo] = {}
        end = 0
        for entry in sorted(self._archive.infolist(), key=lambda entry: entry.header_offset):
            name = _FROM_WITHIN.sub("", zip_name(entry).replace("\\", "/"))
            overlaps, end = entry.header_offset < end, max(end, entry.header_offset + entry.compress_size)
            if entry.is_dir():
                continue
            if stat.S_ISLNK(entry.external_attr >> 16):
                report.refuse(name, _LINK)
            elif not self._good(name):
                continue
            elif name in self._entries:
                report.refuse(name, "The archive holds two files of this name: the first was taken.")
            elif entry.flag_bits & 1:
                report.refuse(name, "It is locked by a password: pack it without one.")
            elif overlaps or (entry.file_size > SMALL and entry.file_size > MOST_PACKED * entry.compress_size):
                report.refuse(name, "It would unpack to far more than an honest file does: it was not opened.")
            else:
                self._entries[name] = entry
        self._keep(self._entries)

    def _blocks(self, name: str) -> Iterator[bytes]:
        try:
            with self._archive.open(self._entries[name]) as file:
                yield from iter(lambda: file.read(_BLOCK), b"")
        except BROKEN_ARCHIVE as error:
            raise UserError("The file is damaged within the archive: pack it again.") from error


class _Tar(_Archive):
    def __init__(self, file: Path, scratch: Path | None, report: Report) -> None:
        super().__init__(file, scratch, report)
        self._file = file.open("rb")
        self._lock = threading.Lock()
        self._places = tar_places(self._file, file.name, report, self._good)
        self._keep(self._places)

    def _blocks(self, name: str) -> Iterator[bytes]:
        place, size = self._places[name]
        for start in range(0, size, _BLOCK):
            part = min(_BLOCK, size - start)
            with self._lock:
                self._file.seek(place + start)
                data = self._file.read(part)
            if len(data) < part:
                raise UserError("The file is cut short within the archive: pack it again.")
            yield data


def tar_places(
    file: BinaryIO,
    what: str,
    report: Report,
    good: Callable[[str], bool] = lambda name: not hidden(name),
    start: int = 0,
) -> dict[str, tuple[int, int]]:
    """Return (offset, size) in bytes of each file in an uncompressed tar, by name, in order. Only headers are read.
    `what` names the tar in the report, and `good` selects names. The tar begins at the offset `start` of `file`;
    returned offsets count from the start of `file`. Raises tarfile.TarError if it is no tar.
    """
    places: dict[str, tuple[int, int]] = {}
    file.seek(start)
    if start:  # at an offset, tarfile would take a damaged first header for the end
        tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), tarfile.ENCODING, "surrogateescape")
        file.seek(start)
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in _members(archive, what, report):
            name = _FROM_WITHIN.sub("", member.name)
            if member.isdir():
                continue
            if member.issym() or member.islnk():
                report.refuse(name, _LINK)
            elif not member.isreg() or member.issparse():
                report.refuse(name, "It is no plain file: it was not opened.")
            elif not good(name):
                continue
            elif name in places:
                report.refuse(name, "The archive holds two files of this name: the first was taken.")
            else:
                places[name] = member.offset_data, member.size
    return places


def tar_members(data: Path, report: Report) -> Files:
    """Open an uncompressed tar that is a file of a data set, such as a shard. Raises UserError if it is no tar."""
    try:
        return _Tar(data, None, report)
    except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
        raise UserError("This file is not a readable tar archive: pack it again.") from error


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[Line]:
    """Yield the non-empty lines of a file, from the offset `start` on. Lines longer than `MOST_LINE` bytes are cut."""
    file.seek(start)
    number, place = 0, start
    while text := file.readline(MOST_LINE):
        number += 1
        if text.strip():
            yield Line(number, place, text)
        place += len(text)
        while len(text) == MOST_LINE and not text.endswith(b"\n"):
            text = file.readline(MOST_LINE)
            place += len(text)


def lines_in(files: Files, name: str, most: int = MAX_BYTES) -> list[str]:
    """Return the lines of a UTF-8 text file. Raises UserError if it is missing or larger than `most` bytes."""
    return files.read(name, most).decode("utf-8-sig", "replace").splitlines()


def names_by_form(names: Iterable[str]) -> dict[str, str]:
    """Map each name, and its composed Unicode form, to the name. Lists from other systems may use the composed form."""
    names = tuple(names)
    return {composed(name): name for name in names} | {name: name for name in names}


def by_form(known: Mapping[str, T], name: str) -> T | None:
    """Look up a name in `known`. If it is missing, look up its composed Unicode form. None if that is missing too."""
    value = known.get(name)
    return known.get(composed(name)) if value is None else value


def _members(archive: tarfile.TarFile, what: str, report: Report) -> Iterable[tarfile.TarInfo]:
    """Yield the members of a tar. If the tar is damaged, yield the members before the damage and report it."""
    try:
        for member in archive:
            yield member
            archive.members.clear()  # type: ignore[attr-defined]  # or it keeps two kilobytes of each
    except (*BROKEN_ARCHIVE, tarfile.TarError):
        report.refuse(what, "The archive is damaged or cut short: what comes before that place was read.")


def _plain_tar(file: Path, scratch: Path) -> Path:
    unpacked = _unpacker(file)
    if unpacked is None:
        return file
    plain = scratch / f"{file.name}.tar"
    most = max(SMALL, MOST_PACKED * file.stat().st_size)
    with unpacked(file) as source, plain.open("wb") as target:
        while block := source.read(1 << 20):
            if target.tell() + len(block) > most:
                raise UserError(
                    f"{file.name} would unpack to so much data that it may be a zip bomb: it was not opened.",
                    field="source",
                )
            target.write(block)
    if shutil.disk_usage(scratch).free < SMALL:
        raise UserError(f"The disk is too full to unpack {file.name}: free some space.", field="source")
    return plain


def _unpacker(file: Path) -> Callable[..., Any] | None:
    """Return the function that opens a compressed file, chosen by its first bytes; None if it is not compressed."""
    with file.open("rb") as opened:
        start = opened.read(2)
    packed: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
    return packed.get(start)


def zip_name(entry: zipfile.ZipInfo) -> str:
    """Return the name of a file in a zip. Repairs names that macOS wrote in UTF-8 without saying so."""
    if entry.flag_bits & 0x800:
        return entry.filename
    try:
        return entry.orig_filename.encode("cp437").decode("utf-8").partition("\0")[0]
    except UnicodeError:
        return entry.filename


def _bounded(data: bytes, most: int) -> bytes:
    if len(data) > most:
        raise UserError(f"The file is larger than {most // 1_000_000} MB: save it smaller.")
    return data
