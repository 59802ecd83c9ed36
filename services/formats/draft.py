"""The folder that an export is written into: called unfinished until all of it is there, its manifest last.

The manifest (`manifest.json`) names every file with its sha256. A folder without one is not whole. The same set gives
the same bytes, so nothing in here knows the time or the machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
from PIL import Image

from pipeline.errors import UserError
from pipeline.images import png_of
from pipeline.masks import resized
from pipeline.png import XMP_KEYWORD, with_texts
from pipeline.progress import OnProgress, Pace, Progress, stop_if
from pipeline.provenance import xmp
from pipeline.version import version
from services.formats.naming import folded, name_of_file
from services.formats.pages import CLASSES, RECORDS, SHEET, Sheet, classes_of
from services.formats.types import Example, TestSet, json_lines, row_of

MANIFEST = "manifest.json"
FORMAT = 1
KIND = "DILLEMA Studio test set"
EXPORTING, IMPORTING = "export", "import"
"""What progress calls the work."""
WORKERS = max(2, min(8, os.cpu_count() or 2))
"""Threads that read files: they wait for the disk or hash, which other threads do not wait for."""
_UNFINISHED = re.compile(r"\.unfinished-(\d+)-[0-9a-f]{8}$")
_AHEAD = 4
"""As many files a thread are in memory at once."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Picture:
    """An example with the bytes of its files."""

    example: Example
    data: bytes
    """PNG; of a generated image with its IPTC digital source type."""
    mask: bytes | None
    """PNG of mode L, the size of the image."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, from the header."""
        return png_size(self.data)


class Draft:
    """A folder while it is written. One thread at a time, but for what `pictures` does itself."""

    def __init__(self, folder: Path, progress: OnProgress | None, cancelled: threading.Event | None) -> None:
        self.folder = folder
        self._progress, self._cancelled = progress, cancelled
        self._files: list[dict[str, Any]] = []
        self.classes: dict[str, Any] = {}
        """What the class list will say; a format may add to it."""
        self._records: HashedFile | None = None
        self._sheet: Sheet | None = None

    def put(self, name: str, data: bytes) -> None:
        """One file whole."""
        path = self._path(name)
        # Not by pathlib: an export makes tens of thousands of them.
        with open(path, "xb", buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        self._note(name, len(data), hashlib.sha256(data).hexdigest())

    @contextmanager
    def stream(self, name: str) -> Iterator[HashedFile]:
        """A long file, piece by piece."""
        with open(self._path(name), "xb") as file:
            hashed = HashedFile(file)
            yield hashed
            hashed.flush()
        self._note(name, hashed.tell(), hashed.sha256)

    @contextmanager
    def records(self, examples: Sequence[Example]) -> Iterator[None]:
        """While it holds, the format writes the examples, and `record` each of them."""
        self.classes, self._sheet = classes_of(examples), Sheet(len(examples))
        with self.stream(RECORDS) as self._records:
            yield
        self.put(SHEET, self._sheet.jpeg())
        self.put(CLASSES, (json.dumps(self.classes, ensure_ascii=False, indent=1) + "\n").encode())

    def record(self, picture: Picture, file: str, mask_file: str | None = None, **more: Any) -> None:
        """The row of an example in `records.jsonl`: the same in every format."""
        assert self._records is not None and self._sheet is not None
        width, height = picture.size
        row = {"file": file, "mask_file": mask_file, "width": width, "height": height, **more}
        self._records.write(json_lines([{**row_of(picture.example), **row}]))
        self._sheet.offer(picture.data)

    def pictures(self, examples: Sequence[Example]) -> Iterator[Picture]:
        """The examples in their order with the bytes of their files, checked. Tells progress; stops when asked to.

        Raises UserError for a file that is missing or not the one that the set names.
        """
        pace = Pace(len(examples))
        for done, picture in enumerate(in_threads(_load, examples, self._cancelled), start=1):
            yield picture
            if self._progress is not None:
                self._progress(Progress(EXPORTING, done, len(examples), pace.seconds_left(done)))

    def finish(self, layout: str, test_set: TestSet, examples: int) -> None:
        """The manifest, on the disk."""
        stop_if(self._cancelled)
        held = {
            "format": FORMAT,
            "kind": KIND,
            "layout": layout,
            "program": version(),
            "test_set": {
                "name": test_set.name,
                "version": test_set.version,
                "note": test_set.note,
                "created": test_set.created,
                "licences": dict(sorted(test_set.licences.items())),
                "counts": dict(sorted(test_set.counts.items())),
            },
            "examples": examples,
            "files": sorted(self._files, key=lambda file: str(file["name"])),
        }
        with open(self.folder / MANIFEST, "x", encoding="utf-8") as file:
            json.dump(held, file, ensure_ascii=False, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())

    @property
    def files(self) -> tuple[dict[str, Any], ...]:
        """What the manifest will say of the files so far: name, bytes, sha256."""
        return tuple(self._files)

    def _path(self, name: str) -> str:
        path = os.path.join(self.folder, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def _note(self, name: str, size: int, sha: str) -> None:
        self._files.append({"name": name, "bytes": size, "sha256": sha})


class HashedFile:
    """A file to write into that knows the hash of what was written. Cannot seek."""

    def __init__(self, file: Any) -> None:
        self._file, self._hash, self._bytes = file, hashlib.sha256(), 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Some bytes more."""
        self._hash.update(data)
        self._bytes += len(memoryview(data).cast("B"))
        return int(self._file.write(data))

    def tell(self) -> int:
        """How many bytes there are."""
        return self._bytes

    def flush(self) -> None:
        """To the system."""
        self._file.flush()

    def close(self) -> None:
        """For writers that close their file; `Draft.stream` does it."""

    def seekable(self) -> bool:
        """No."""
        return False

    def readable(self) -> bool:
        """No."""
        return False

    def writable(self) -> bool:
        """Yes."""
        return True

    @property
    def sha256(self) -> str:
        """Of all bytes so far."""
        return self._hash.hexdigest()


def in_threads(work: Callable[[T], U], items: Iterable[T], cancelled: threading.Event | None = None) -> Iterator[U]:
    """The results in the order of the items; a few are worked on ahead. What one raises is raised in its place.

    Raises Cancelled when the person asked to stop.
    """
    waiting: deque[Future[U]] = deque()
    pool = ThreadPoolExecutor(WORKERS, "formats")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= WORKERS * _AHEAD:
                stop_if(cancelled)
                yield waiting.popleft().result()
        while waiting:
            stop_if(cancelled)
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def drafted(
    into: Path, replace: bool = False, progress: OnProgress | None = None, cancelled: threading.Event | None = None
) -> Iterator[Draft]:
    """A draft that takes the name `into` when all went well, and is gone when not.

    Raises UserError when `into` is a file, or a folder that is not empty: unless `replace`, and all that it holds is of
    an earlier export.
    """
    into = Path(os.path.abspath(into))
    _require_free(into, replace)
    folder = into.parent / f"{into.name}.unfinished-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        _sweep(into)
        folder.mkdir()
        draft = Draft(folder, progress, cancelled)
        yield draft
        if not (folder / MANIFEST).is_file():
            raise RuntimeError("an export ended without its manifest")
        _take_place(folder, into, replace)
    except OSError as error:
        raise UserError(
            f"The export was not written to {into} ({error.strerror or error}): make room there, or choose another "
            "folder. Nothing of it was left."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_manifest(data: bytes) -> dict[str, Any] | None:
    """What a manifest of this studio says; None for anything else."""
    try:
        held = json.loads(data)
        known = held["kind"] == KIND and held["format"] == FORMAT and isinstance(held["layout"], str)
        return held if known and all(isinstance(file["name"], str) for file in held["files"]) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def png_size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG, by its header."""
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def require_names_of_their_own(examples: Sequence[Example]) -> None:
    """Raises ValueError when names are unsafe, or two would be one file somewhere."""
    unsafe = [example.name for example in examples if name_of_file(example.name) != example.name]
    if unsafe:
        raise ValueError(f"{unsafe[0]!r} is no safe file stem")
    if len({folded(example.name) for example in examples}) < len(examples):
        raise ValueError("two examples have the same name")


def _load(example: Example) -> Picture:
    """With the bytes of its files."""
    data = _read(example.image, example.name)
    if hashlib.sha256(data).hexdigest() != example.sha:
        raise UserError(f"The image of “{example.name}” was changed or is damaged: restore {example.image.name}.")
    mask = None if example.mask is None else _read(example.mask, example.name)
    if mask is not None and png_size(mask) != png_size(data):
        mask = _at_size(mask, png_size(data))
    if example.role == "generated":
        lineage = example.facts.get("lineage")
        method = lineage.get("method", "") if isinstance(lineage, dict) else ""
        data = with_texts(data, {XMP_KEYWORD: xmp(str(method))})
    return Picture(example, data, mask)


def _at_size(mask: bytes, size: tuple[int, int]) -> bytes:
    return png_of(resized(Image.open(io.BytesIO(mask)), size))


def _read(path: Path, name: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"A file of “{name}” cannot be read: {path.name} ({error.strerror or error}).") from error


def _require_free(into: Path, replace: bool) -> None:
    if not into.exists():
        return
    if not into.is_dir():
        raise UserError(f"{into} is a file: choose a folder for the export.", field="into")
    held = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if not path.is_dir())
    if not held:
        return
    if not replace:
        raise UserError(
            f"{into} is not empty: choose another folder, or ask for what is in it to be replaced.", field="into"
        )
    manifest = into / MANIFEST
    known = read_manifest(manifest.read_bytes()) if manifest.is_file() else None
    ours = {MANIFEST, *(file["name"] for file in known["files"])} if known is not None else set()
    others = [name for name in held if name not in ours]
    if others:
        raise UserError(
            f"{into} holds files that are of no export, such as “{others[0]}”: they would be lost. Choose another "
            "folder, or move them away.",
            field="into",
        )


def _take_place(folder: Path, into: Path, replace: bool) -> None:
    """Rename the finished folder; what was there before goes only when the new one has its place."""
    if not into.exists():
        os.rename(folder, into)
        return
    _require_free(into, replace)
    before = folder.with_name(f"{folder.name}.before")
    os.rename(into, before)
    try:
        os.rename(folder, into)
    except OSError:
        os.rename(before, into)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _sweep(into: Path) -> None:
    """Remove what exports to the same place left whose process is gone."""
    for path in into.parent.glob(f"{_escaped(into.name)}.unfinished-*"):
        match = _UNFINISHED.search(path.name)
        if match and not psutil.pid_exists(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
