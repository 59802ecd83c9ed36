"""Write the folder of an export. Its name contains "unfinished" until it is complete.

The manifest (`manifest.json`) is written last and lists every file with its sha256. A folder without a manifest is
incomplete. The same set always gives the same bytes: no time and no machine name is written.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import io
import json
import os
import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from PIL import Image

from core.csv_tables import facts
from core.errors import UserError, disk_reason
from core.images import png_of
from core.locks import HELD, held_folder, take_lock
from core.masks import resized
from core.png import XMP_KEYWORD, parts_with_texts
from core.progress import OnProgress, Pace, Progress
from core.version import version
from formats.columns import row_schema, row_table
from formats.naming import folded, name_of_file
from formats.pages import CLASSES, RECORDS, SHEET, TYPED, classes_of, picture_of_sheet, pictures_of_sheet, sheet_of
from formats.types import Example, TestSet, json_lines, row_of

MANIFEST = "manifest.json"
FORMAT = 1
KIND = "DILLEMA Studio test set"
EXPORTING, IMPORTING = "export", "import"
"""Names of export and import in progress reports."""
WORKERS = max(2, min(8, os.cpu_count() or 2))
"""Number of threads that read and write files. Some wait for the disk or compute hashes while others work."""
_UNFINISHED = ".unfinished-"
_BEFORE = ".before"
"""Suffix that an earlier export's folder gets while the new export replaces it."""
_DETAILED_AT_ONCE = 200
"""Number of examples whose captions, edits and other facts are in memory at once."""
DETAILS = ("labels", "captions", "edits", "classes of masks", "splits")
"""Kinds of details of an example. A format may store some of them besides its pictures."""
_AHEAD = 4
"""Maximum number of files per thread that wait in memory."""

T = TypeVar("T")
U = TypeVar("U")
Parts = Sequence[bytes | memoryview]
Named = Callable[[Example], tuple[str, str | None]]
"""Function that returns the file names of an example's image and mask. None in place of a mask that is not copied."""
Complete = Callable[[Sequence[Example]], Iterable[Example]]
"""Function that takes some examples and returns them in the same order, with captions, edits and other facts added."""


@dataclass(frozen=True)
class Picture:
    """An example with the bytes of its image and mask files."""

    example: Example
    size: tuple[int, int]
    """Width and height of the image in pixels."""
    mask: bytes | None
    """Bytes of the mask file: PNG of mode L, the size of the image. None without a mask."""
    data: bytes = b""
    """Bytes of the image file: PNG, marked as generated (IPTC) if it is. Empty if the file is already written."""

    @cached_property
    def row(self) -> dict[str, Any]:
        """The example as a flat row of a table (see `row_of`)."""
        return row_of(self.example)


class Draft:
    """Folder of an unfinished export. One thread may use it, but any may call `put`. `close` ends all threads."""

    def __init__(self, folder: Path, progress: OnProgress | None, complete: Complete | None) -> None:
        self.folder = folder
        self._progress, self._complete = progress, complete
        self._files: list[dict[str, Any]] = []
        self._folders = {str(folder)}
        self._loading: list[Generator[Picture]] = []
        self.classes: dict[str, Any] = {}
        """Content of the file that lists the classes. A format may add to it."""
        self.masks = False
        """True if at least one of the examples has a mask."""
        self.left_out: Counter[str] = Counter()
        """Number of images with each kind of detail, such as "captions", that only `RECORDS` and `TYPED` hold."""
        self._records: BinaryIO | None = None
        self._add_typed: Callable[[Mapping[str, Any]], None] | None = None

    def put(self, name: str, data: bytes | Parts, sha: str = "") -> None:
        """Write a file from bytes, or from consecutive parts of bytes. Any thread may call this."""
        parts: Parts = [data] if isinstance(data, bytes) else data
        if not sha:
            digest = hashlib.sha256()
            for part in parts:
                digest.update(part)
            sha = digest.hexdigest()
        with open(self._path(name), "xb") as file:
            file.writelines(parts)
            file.flush()
            if hasattr(os, "posix_fadvise"):
                # The system starts to write the file to the disk while other files are read and hashed.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._note(name, sum(map(len, parts)), sha)

    @contextmanager
    def stream(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file of the export, to write it piece by piece."""
        path = self._path(name)
        with open(path, "xb") as file:
            yield file
        with open(path, "rb") as file:
            self._note(name, os.path.getsize(path), hashlib.file_digest(file, "sha256").hexdigest())

    @contextmanager
    def records(self, examples: Sequence[Example]) -> Iterator[None]:
        """Open `records.jsonl`. Within the `with` block, a format calls `record` for each example."""
        self.classes = classes_of(examples)
        self.masks = any(example.mask is not None for example in examples)
        schema = row_schema({"file": None, "mask_file": None})
        with (
            self.stream(RECORDS) as self._records,
            self.stream(TYPED) as typed,
            row_table(typed, schema) as self._add_typed,
        ):
            yield
        files = pictures_of_sheet([example.image for example in examples])
        self.put(SHEET, sheet_of(list(in_threads(picture_of_sheet, files))))
        self.put(CLASSES, (json.dumps(self.classes, ensure_ascii=False, indent=1) + "\n").encode())

    def record(
        self, picture: Picture, file: str, mask_file: str | None = None, details: Collection[str] = DETAILS, **more: Any
    ) -> None:
        """Write an example's row into `records.jsonl`. The row is the same in every format. `details` are the kinds of
        details that the format's other files also hold. All other kinds are counted in `left_out`.
        """
        assert self._records is not None and self._add_typed is not None
        example, (width, height) = picture.example, picture.size
        captions, edits = example.caption or example.new_caption, example.edits or example.edit_types
        # The split always counts, even if it is "".
        present = compress(DETAILS, (example.label, captions, edits, example.mask is not None, True))
        self.left_out.update(name for name in present if name not in details)
        files = {"file": file, "mask_file": mask_file, "width": width, "height": height}
        row = {**picture.row, **files, **more}
        self._records.write(json_lines([row]))
        self._add_typed(row)

    def pictures(self, examples: Sequence[Example], named: Named | None = None) -> Iterator[Picture]:
        """Yield the examples in order, with the checked bytes of their files. Report progress. Threads read the next
        files meanwhile. If `named` is given, these threads also write the files, under the names that `named` returns.
        Raises UserError if a file is missing or was changed, and OSError if a file cannot be written.
        """
        loading = in_threads(lambda example: self._loaded(example, named), self._completed(examples))
        self._loading.append(loading)
        pace = Pace(len(examples))
        for done, picture in enumerate(loading, start=1):
            yield picture
            if self._progress is not None:
                self._progress(Progress(EXPORTING, done, len(examples), pace.seconds_left(done)))

    def close(self) -> None:
        """Wait until no thread writes into the folder."""
        for loading in self._loading:
            loading.close()

    def finish(self, layout: str, test_set: TestSet, examples: int) -> None:
        """Wait until all files are on the disk. Then write the manifest, and wait for it as well."""
        _settle(self.folder)
        manifest = {
            "format": FORMAT,
            "kind": KIND,
            "layout": layout,
            "program": version(),
            "test_set": facts(test_set, "name version note created", licences=dict(sorted(test_set.licences.items()))),
            "examples": examples,
            "left_out": dict(sorted(self.left_out.items())),
            "files": self.files,
        }
        with open(self.folder / MANIFEST, "x", encoding="utf-8") as file:
            json.dump(manifest, file, ensure_ascii=False, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())

    @property
    def files(self) -> tuple[dict[str, Any], ...]:
        """Files written so far, sorted by name, as the manifest lists them: name, bytes and sha256."""
        return tuple(sorted(self._files, key=lambda file: str(file["name"])))

    def _completed(self, examples: Sequence[Example]) -> Iterable[Example]:
        if self._complete is None:
            return examples
        starts = range(0, len(examples), _DETAILED_AT_ONCE)
        return chain.from_iterable(self._complete(examples[start : start + _DETAILED_AT_ONCE]) for start in starts)

    def _loaded(self, example: Example, named: Named | None) -> Picture:
        mask = None if example.mask is None else _read(example.mask, example.name)
        image = _read(example.image, example.name)
        if hashlib.sha256(image).hexdigest() != example.sha:
            raise UserError(f"The image of “{example.name}” was changed or is damaged: restore {example.image.name}.")
        size = png_size(image)
        if mask is not None and example.mask_sha not in ("", hashlib.sha256(mask).hexdigest()):
            raise UserError(f"The mask of “{example.name}” was changed or is damaged: restore it from a backup.")
        if mask is not None and png_size(mask) != size:
            mask = png_of(resized(Image.open(io.BytesIO(mask)), size))
        parts: Parts = [image]
        sha = example.sha
        if example.xmp:
            parts, sha = parts_with_texts(image, {XMP_KEYWORD: example.xmp}), ""
        if named is None:
            return Picture(example, size, mask, b"".join(parts))
        image_file, mask_file = named(example)
        self.put(image_file, parts, sha)
        if mask is not None and mask_file is not None:
            self.put(mask_file, mask)
        return Picture(example, size, mask)

    def _path(self, name: str) -> str:
        path = os.path.join(self.folder, *name.split("/"))
        folder = os.path.dirname(path)
        if folder not in self._folders:
            os.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        return path

    def _note(self, name: str, size: int, sha: str) -> None:
        self._files.append({"name": name, "bytes": size, "sha256": sha})


def in_threads(work: Callable[[T], U], items: Iterable[T]) -> Generator[U]:
    """Run `work` on items in threads. Yield results in the items' order. Raise an item's error at its turn."""
    waiting: deque[Future[U]] = deque()
    pool = ThreadPoolExecutor(WORKERS, "formats")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= WORKERS * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def drafted(into: Path, replace: bool, progress: OnProgress | None, complete: Complete | None) -> Iterator[Draft]:
    """Open a new folder for an export. If the `with` block succeeds, the folder is renamed to `into`, else deleted.
    Raises UserError if `into` is a file or has files. With `replace`, `into` may have the files of an earlier export.
    """
    into = Path(os.path.abspath(into))
    try:
        _put_back(into)
        into.parent.mkdir(parents=True, exist_ok=True)
        with held_folder(into.parent, f"{into.name}{_UNFINISHED}") as scratch:
            _require_free(into, replace)
            folder = scratch / "export"
            folder.mkdir()
            draft = Draft(folder, progress, complete)
            try:
                yield draft
            finally:
                draft.close()
            if not (folder / MANIFEST).is_file():
                raise RuntimeError("an export ended without its manifest")
            _take_place(folder, into, replace, scratch.with_name(f"{scratch.name}{_BEFORE}"))
    except OSError as error:
        raise UserError(
            f"The export was not written to {into}, and no part of it remains. {disk_reason(error)}."
        ) from error


def read_manifest(data: bytes) -> dict[str, Any] | None:
    """Return the content of a manifest that this studio wrote; None for any other file."""
    try:
        manifest = json.loads(data)
        known = manifest["kind"] == KIND and manifest["format"] == FORMAT and isinstance(manifest["layout"], str)
        return manifest if known and all(isinstance(file["name"], str) for file in manifest["files"]) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def png_size(data: bytes) -> tuple[int, int]:
    """Return a PNG's width and height, from its header."""
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def require_names_of_their_own(examples: Sequence[Example]) -> None:
    """Raise ValueError for an unsafe name, or for two names that some file system would treat as the same."""
    unsafe = [example.name for example in examples if name_of_file(example.name) != example.name]
    if unsafe:
        raise ValueError(f"{unsafe[0]!r} is no safe file stem")
    if len({folded(example.name) for example in examples}) < len(examples):
        raise ValueError("two examples have the same name")


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"A file of “{name}” cannot be read: {path.name} ({error.strerror or error}).") from error


def _settle(folder: Path) -> None:
    """Wait until all files of a folder are on the disk. This is faster than waiting for each file. Raises OSError."""
    sync_disk = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if sync_disk is None:  # not Linux
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if sync_disk(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)


def _require_free(into: Path, replace: bool) -> None:
    if not into.exists():
        return
    if not into.is_dir():
        raise UserError(f"{into} is a file: choose a folder for the export.", field="into")
    files = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if not path.is_dir())
    if not files:
        return
    if not replace:
        raise UserError(
            f"{into} is not empty: choose another folder, or allow its content to be replaced.", field="into"
        )
    manifest = into / MANIFEST
    known = read_manifest(manifest.read_bytes()) if manifest.is_file() else None
    ours = {MANIFEST, *(file["name"] for file in known["files"])} if known is not None else set()
    others = [name for name in files if name not in ours]
    if others:
        raise UserError(
            f"{into} holds files that belong to no export, such as “{others[0]}”: they would be lost. Choose another "
            "folder, or move them away.",
            field="into",
        )


def _take_place(folder: Path, into: Path, replace: bool, before: Path) -> None:
    """Rename the finished folder to `into`. An earlier export is first renamed to `before`, and deleted at the end."""
    if not into.exists():
        os.rename(folder, into)
        return
    _require_free(into, replace)
    os.rename(into, before)
    try:
        os.rename(folder, into)
    except OSError:
        os.rename(before, into)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _put_back(into: Path) -> None:
    """Restore the name of an earlier export, if the program was killed while a new export replaced it."""
    for before in into.parent.glob(f"{glob.escape(into.name)}{_UNFINISHED}????????{_BEFORE}"):
        lock = before.with_suffix(HELD)
        with suppress(OSError, UserError), open(lock, "ab") as file:
            take_lock(file, lock)
            if into.exists():
                shutil.rmtree(before, ignore_errors=True)
            else:
                os.rename(before, into)
