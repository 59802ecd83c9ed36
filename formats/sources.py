"""Where an import comes from: a folder, a zip or a tar, as named files that are safe to read. It is a stranger's.

Names are never used as paths to write to. Links, names that lead out of the archive and bombs are left out, each with a
row of the report; the good rest is read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import secrets
import shutil
import stat
import tarfile
import threading
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from core.errors import UserError
from core.images import MAX_BYTES
from formats.types import ReportRow, Row, Split

T = TypeVar("T")

MOST_FILES = 2_000_000
MOST_TABLE = 2_000_000_000
"""Bytes of a list of examples that has to be read as one."""
MOST_LINE = 50_000_000
"""Bytes of a line of a list."""
_BLOCK = 1 << 20
MOST_PACKED = 250
"""How many times its size a file may unpack to, if that is over `SMALL` bytes."""
SMALL = 10_000_000
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, UnicodeDecodeError),
    *(zlib.error, lzma.LZMAError),
)
"""What is raised for an archive that is no whole one; of bzip2, OSError."""
_LINK = "It is a link, and links are not followed: put the file itself in its place."


@dataclass
class Report:
    """Gathers what a reader has to tell."""

    rows: list[ReportRow] = field(default_factory=list)

    def refuse(self, file: str, reason: str) -> None:
        """The file is left out."""
        self.rows.append(ReportRow(shown(file), reason))

    def changed(self, file: str, reason: str) -> None:
        """The file is taken, and something was done to it or noticed of it."""
        self.rows.append(ReportRow(shown(file), reason, "changed"))


class Files(Protocol):
    """Named files; any thread may read them."""

    names: tuple[str, ...]
    """With "/" between folders, sorted."""

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        """The bytes of one of `names`. Raises UserError when they are more than `most`, or damaged."""

    def path(self, name: str) -> Path:
        """Where a file lies that is read piece by piece; of an archive, a copy that is made when it is first asked for.
        Raises UserError for a damaged one, OSError when the disk is full.
        """


class Line(NamedTuple):
    """A line of a file."""

    number: int
    """From 1."""
    place: int
    """Where it begins, in bytes."""
    text: bytes


@dataclass(frozen=True)
class Found:
    """What a format says of one example, its files not yet read."""

    file: str
    """Its image, as the report and `records.jsonl` call it."""
    name: str
    image: Callable[[], bytes]
    label: str = ""
    split: Split = ""
    mask: Callable[[tuple[int, int]], bytes] | None = None
    """The bytes of its mask file, for an image of this size (width, height)."""
    classes: Mapping[int, str] | None = None
    """The names of the numbers in its mask; None where the format does not say them."""
    row: Row | None = None
    """All that the format itself says of the example."""
    numbers: Mapping[int, int] | None = None
    """Which number of the mask file stands for which of the example's own; None where they are the same."""


def shown(name: str) -> str:
    """A name that can be printed, and is not too long to be."""
    text = name.encode("utf-8", "replace").decode("utf-8")
    text = "".join(mark if mark.isprintable() else "�" for mark in text)
    return text if len(text) <= 160 else f"…{text[-159:]}"


def why_unsafe(name: str) -> str:
    """Why a name of an archive is not read; "" for a good one."""
    if name.startswith("/") or (len(name) > 1 and name[1] == ":"):
        return "Its name is an absolute path, which a good archive does not hold: pack it again."
    if ".." in name.split("/"):
        return "Its name leads out of the archive: pack it again."
    if not name or any(ord(mark) < 32 for mark in name) or "\ufffd" in name or _half(name):
        return "Its name holds signs that no file should have: rename it."
    return ""


def hidden(name: str) -> bool:
    """Whether a computer put it beside a person's files."""
    parts = [part for part in name.split("/") if part != "."]  # the folder itself
    return any(part.startswith((".", "__MACOSX")) or part == "Thumbs.db" for part in parts)


def is_image(name: str) -> bool:
    """By its ending."""
    return name.lower().endswith(IMAGES)


def open_files(source: Path, scratch: Path, report: Report) -> Files:
    """The files of a folder, a zip, or a tar (plain or compressed; unpacked into `scratch` then).

    Raises UserError when there is nothing that could be read at all.
    """
    if source.is_dir():
        return _Folder(source, report)
    try:
        if zipfile.is_zipfile(source):
            return _Zip(source, scratch, report)
        return _Tar(_plain_tar(source, scratch), scratch, report)
    except FileNotFoundError as error:
        raise UserError(f"{source} is not there: give a folder, a zip or a tar.", field="source") from error
    except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
        raise UserError(
            f"{source.name} is no folder, zip or tar that can be read: give the folder itself, or pack it again.",
            field="source",
        ) from error


class _Named:
    """Keeps the names that are safe."""

    def __init__(self, report: Report) -> None:
        self.names: tuple[str, ...] = ()
        self._report = report
        self._hidden = 0

    def _good(self, name: str) -> bool:
        """Whether a file is one to read; if not, it is counted or told."""
        reason = why_unsafe(name)
        if reason:
            self._report.refuse(name, reason)
        elif hidden(name):
            self._hidden += 1
        return not reason and not hidden(name)

    def _keep(self, names: Iterable[str], what: str) -> None:
        self.names = tuple(sorted(names))
        if len(self.names) > MOST_FILES:
            raise UserError(f"{what} holds {len(self.names):,} files; at most {MOST_FILES:,} are taken at once.")
        if self._hidden:
            one = self._hidden == 1
            self._report.refuse(what, f"{self._hidden:,} hidden file{' was' if one else 's were'} left out.")


class _Folder(_Named):
    def __init__(self, folder: Path, report: Report) -> None:
        super().__init__(report)
        self._folder = folder
        names: list[str] = []
        for parent, folders, files in os.walk(folder, onerror=self._unreadable):
            inside = os.path.relpath(parent, folder).replace(os.sep, "/")
            before = "" if inside == "." else f"{inside}/"
            for name in [*folders]:
                if os.path.islink(os.path.join(parent, name)):
                    report.refuse(f"{before}{name}", _LINK)
                elif hidden(name):
                    folders.remove(name)
                    self._hidden += 1
            for name in files:
                mode = os.lstat(os.path.join(parent, name)).st_mode
                if stat.S_ISLNK(mode):
                    report.refuse(f"{before}{name}", _LINK)
                elif not stat.S_ISREG(mode):
                    report.refuse(f"{before}{name}", "It is no file but a device or a pipe.")
                elif self._good(f"{before}{name}"):
                    names.append(f"{before}{name}")
        self._keep(names, folder.name or str(folder))

    def _unreadable(self, error: OSError) -> None:
        self._report.refuse(str(error.filename), f"The folder cannot be read: {error.strerror or error}.")

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        try:
            with open(self._folder / name, "rb") as file:
                return _bounded(file.read(min(os.fstat(file.fileno()).st_size, most) + 1), most)
        except OSError as error:
            raise UserError(f"The file cannot be read: {error.strerror or error}.") from error

    def path(self, name: str) -> Path:
        return self._folder / name


class _Archive(_Named):
    def __init__(self, scratch: Path | None, report: Report) -> None:
        super().__init__(report)
        self._scratch = scratch
        self._copies: dict[str, Path] = {}

    def path(self, name: str) -> Path:
        if name not in self._copies:
            assert self._scratch is not None  # nobody asks it of an archive within another
            copy = self._scratch / secrets.token_hex(8)
            with copy.open("xb") as file:
                for block in self._blocks(name):
                    file.write(block)
            self._copies[name] = copy
        return self._copies[name]

    def _blocks(self, name: str) -> Iterator[bytes]:
        """All of a file, some at a time. Raises UserError for a damaged one."""
        raise NotImplementedError


class _Zip(_Archive):
    def __init__(self, file: Path, scratch: Path | None, report: Report) -> None:
        super().__init__(scratch, report)
        self._archive = zipfile.ZipFile(file)
        self._entries: dict[str, zipfile.ZipInfo] = {}
        end = 0
        for entry in sorted(self._archive.infolist(), key=lambda entry: entry.header_offset):
            name = _plain(entry.filename.replace("\\", "/"))
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
        self._keep(self._entries, file.name)

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        entry = self._entries[name]
        try:
            with self._archive.open(entry) as file:
                return _bounded(file.read(min(entry.file_size, most) + 1), most)
        except BROKEN_ARCHIVE as error:
            raise UserError("The file is damaged within the archive: pack it again.") from error

    def _blocks(self, name: str) -> Iterator[bytes]:
        try:
            with self._archive.open(self._entries[name]) as file:
                yield from iter(lambda: file.read(_BLOCK), b"")
        except BROKEN_ARCHIVE as error:
            raise UserError("The file is damaged within the archive: pack it again.") from error


class _Tar(_Archive):
    def __init__(self, file: Path, scratch: Path | None, report: Report) -> None:
        super().__init__(scratch, report)
        self._file = file.open("rb")
        self._lock = threading.Lock()
        self._places = tar_places(self._file, file.name, report, self._good)
        self._keep(self._places, file.name)

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        place, size = self._places[name]
        return _bounded(self._part(place, min(size, most + 1)), most)

    def _blocks(self, name: str) -> Iterator[bytes]:
        place, size = self._places[name]
        for start in range(0, size, _BLOCK):
            yield self._part(place + start, min(_BLOCK, size - start))

    def _part(self, place: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(place)
            data = self._file.read(size)
        if len(data) < size:
            raise UserError("The file is cut short within the archive: pack it again.")
        return data


class _Window(io.RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._start + self._at)
        data = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def tar_places(
    file: BinaryIO,
    what: str,
    report: Report,
    good: Callable[[str], bool] = lambda name: not hidden(name),
    part: tuple[int, int] | None = None,
) -> dict[str, tuple[int, int]]:
    """Where the files of a plain tar lie, in their order there: place and size in bytes, by name. Nothing but the
    headers is read.

    `what` is what the report calls the tar, `good` tells which names are taken, and `part` is the place and size of a
    tar that lies within `file`. The places are those in `file`. Raises tarfile.TarError for what is no tar.
    """
    start, size = part or (0, os.fstat(file.fileno()).st_size)
    places: dict[str, tuple[int, int]] = {}
    with tarfile.open(fileobj=_Window(file, start, size), mode="r:") as archive:
        for member in _members(archive, what, report):
            name = _plain(member.name)
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
                places[name] = start + member.offset_data, member.size
    return places


def open_archive(source: Path, report: Report) -> Files:
    """The files of a zip or a plain tar, read where they lie: nothing is unpacked, so `path` may not be asked.

    Raises UserError for what is neither, and for a tar that is compressed as a whole, which has to be unpacked to get
    at one of its files.
    """
    try:
        if zipfile.is_zipfile(source):
            return _Zip(source, None, report)
        if _unpacker(source) is not None:
            raise UserError(
                f"{source.name} is compressed as a whole, so that none of its files can be read alone: make a plain "
                "tar of it (gunzip, bunzip2 or unxz), or unpack it.",
                field="source",
            )
        return _Tar(source, None, report)
    except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
        raise UserError(
            f"{source.name} is no zip or tar that can be read: download it again, or pack it again.", field="source"
        ) from error


def tar_members(data: Path, report: Report) -> Files:
    """The files of a plain tar that lies within the import, such as a shard. Raises UserError for what is none."""
    try:
        return _Tar(data, None, report)
    except (*BROKEN_ARCHIVE, tarfile.TarError) as error:
        raise UserError("It is no tar that can be read: pack it again.") from error


def lines_of(files: Files, name: str) -> Iterator[Line]:
    """The lines of a file that are not empty. One that is longer than `MOST_LINE` is cut there.

    Raises UserError for a file that cannot be read.
    """
    try:
        with files.path(name).open("rb") as file:
            number = place = 0
            while text := file.readline(MOST_LINE):
                number += 1
                if text.strip():
                    yield Line(number, place, text)
                place += len(text)
                while len(text) == MOST_LINE and not text.endswith(b"\n"):
                    text = file.readline(MOST_LINE)
                    place += len(text)
    except OSError as error:
        raise UserError(f"The file cannot be read: {error.strerror or error}.") from error


def names_by_form(names: Iterable[str]) -> dict[str, str]:
    """Names by themselves and by their composed Unicode form, for lists that were written on another system."""
    names = tuple(names)
    return {unicodedata.normalize("NFC", name): name for name in names} | {name: name for name in names}


def by_form(known: Mapping[str, T], name: str) -> T | None:
    """What `known` has under a name: as it is written, or else in its composed Unicode form."""
    found = known.get(name)
    return known.get(unicodedata.normalize("NFC", name)) if found is None else found


def _members(archive: tarfile.TarFile, what: str, report: Report) -> Iterable[tarfile.TarInfo]:
    """The members up to where the archive is damaged, which is told."""
    try:
        for member in archive:
            yield member
            archive.members.clear()  # type: ignore[attr-defined]  # or it keeps two kilobytes of each
    except (*BROKEN_ARCHIVE, tarfile.TarError):
        report.refuse(what, "The archive is damaged or cut short: what comes before that place was read.")


def _plain_tar(file: Path, scratch: Path) -> Path:
    """The tar without its compression."""
    unpacked = _unpacker(file)
    if unpacked is None:
        return file
    plain = scratch / f"{file.name}.tar"
    most = max(SMALL, MOST_PACKED * file.stat().st_size)
    with unpacked(file) as source, plain.open("wb") as target:
        while block := source.read(1 << 20):
            if target.tell() + len(block) > most:
                raise UserError(
                    f"{file.name} would unpack to far more than an honest archive does: it was not opened.",
                    field="source",
                )
            target.write(block)
    if shutil.disk_usage(scratch).free < SMALL:
        raise UserError(f"There is no room left to unpack {file.name}: make some.", field="source")
    return plain


def _unpacker(file: Path) -> Callable[..., Any] | None:
    """What reads a file that is compressed as a whole; None for one that is not. By its first bytes."""
    with file.open("rb") as opened:
        start = opened.read(2)
    packed: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
    return packed.get(start)


def _plain(name: str) -> str:
    """A name of an archive that was packed from within its folder, without the mark for that folder."""
    while name.startswith("./"):
        name = name.removeprefix("./")
    return name


def _half(name: str) -> bool:
    """Whether it has half a character, as names that are no Unicode have."""
    return any(0xD800 <= ord(mark) <= 0xDFFF for mark in name)


def _bounded(data: bytes, most: int) -> bytes:
    if len(data) > most:
        raise UserError(f"The file is larger than {most // 1_000_000} MB: save it smaller.")
    return data
