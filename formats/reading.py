"""Reads a test set from files of any known format: examples with their pictures put right, and a row for every refusal.

Pictures and masks are written into a folder, each called by the sha256 of its bytes: PNG of its pixels alone, as the
workspace stores it. So the same import twice gives the same files, and one that was cut short goes on.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import secrets
import shutil
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from core.errors import UserError
from core.images import MODES, opened, orientation_of, png_of, read_image
from core.masks import UNLABELLED, read_mask
from core.png import bare
from core.progress import OnProgress, Pace, Progress
from formats.draft import IMPORTING, MANIFEST, in_threads, read_manifest
from formats.exporting import LAYOUTS
from formats.files import MOST_TABLE, Files, Inner, is_image, open_files
from formats.huggingface import LINES, METADATA
from formats.naming import Names, folded
from formats.pages import CLASSES
from formats.records import with_records
from formats.types import Example, Found, Imported, Report, Row, Split, TestSet, with_row

_TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings a picture upright, by the orientation that its camera noted (EXIF tag 0x0112)."""


@dataclass(frozen=True)
class _Loaded:
    """A found example whose pictures are in place, or why it is not taken."""

    found: Found
    refused: str = ""
    notes: tuple[str, ...] = ()
    sha: str = ""
    recorded: bool = True
    """Whether the picture is the one that its record tells of."""
    mask_sha: str = ""
    classes: Mapping[int, str] | None = None


def read(
    source: Path,
    into: Path,
    layout: str = "",
    *,
    classes: Mapping[int, str] | None = None,
    labels: Collection[str] | None = None,
    progress: OnProgress | None = None,
    cancelled: threading.Event | None = None,
    report: Report | None = None,
    each: Callable[[Example], bool] | None = None,
) -> Imported:
    """The examples of a folder, a zip or a tar, their pictures written into the folder `into`.

    `layout` is the name of a format, or "" to find out. `classes` names the numbers of masks where the files do not;
    `labels` are those that are known, None for any. Whatever cannot be taken has a row in the report, and the good rest
    is taken. `report` shows the rows while they come. `each` is given every example once its files are in place, in the
    order of the files, and may take these away: the result has no examples then. It returns whether it keeps the
    example: of two files of one content the second comes where the first was not kept.

    Raises UserError when the source cannot be read at all, the format is not known, or the disk is full, and Cancelled
    when the person asked to stop.
    """
    into.mkdir(parents=True, exist_ok=True)
    report = report or Report()
    scratch = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=into))
    try:
        files = open_files(source, report, scratch)
        files, layout, manifest, found = laid_out(files, layout, report)
        total = LAYOUTS[layout].count(files) if progress is not None else 0
        examples: list[Example] = []

        def keep(example: Example) -> bool:
            examples.append(example)
            return True

        taken = _examples(found, total, into, classes, labels, report, progress, cancelled, each or keep)
        if manifest is not None:
            _compare(manifest, files, report)
    except OSError as error:
        raise UserError(
            f"The import could not go on in {into} ({error.strerror or error}): make room there and start it again."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not taken and not report.rows:
        report.refuse(source.name, "There is no image in it: PNG, JPEG, WebP, GIF, BMP and TIFF are taken.")
    examples.sort(key=lambda example: example.name)
    return Imported(tuple(examples), tuple(report.rows), layout, _header(manifest) if manifest is not None else None)


class LaidOut(NamedTuple):
    """What the files of a set are, before any of their pictures is read."""

    files: Files
    layout: str
    manifest: dict[str, Any] | None
    """Of a set that the studio exported."""
    found: Iterator[Found]


def laid_out(files: Files, layout: str, report: Report) -> LaidOut:
    """The examples of `files` in a format of `LAYOUTS`, or "" to find out. Raises UserError for an unknown format."""
    files = _unwrapped(files)
    manifest = _manifest(files, report)
    layout = layout or (manifest["layout"] if manifest is not None else "") or _guess(files)
    if layout not in LAYOUTS:
        raise UserError(f"“{layout}” is no format: choose one of {', '.join(LAYOUTS)}.", field="layout")
    return LaidOut(files, layout, manifest, with_records(LAYOUTS[layout].find(files, report), files, report))


def _examples(
    found: Iterable[Found],
    total: int,
    into: Path,
    classes: Mapping[int, str] | None,
    labels: Collection[str] | None,
    report: Report,
    progress: OnProgress | None,
    cancelled: threading.Event | None,
    each: Callable[[Example], bool],
) -> int:
    """Give the examples that can be taken to `each`, and tell what is to be told, in the order of the files; returns
    how many there are. `total` is about how many are found.
    """
    names, pace = Names(), Pace(total)
    seen: dict[str, _Seen] = {}
    taken: dict[str, str] = {}
    work = partial(_loaded, into=into, classes=classes, labels=labels)
    for done, loaded in enumerate(in_threads(work, found, cancelled), start=1):
        one = loaded.found
        if progress is not None:
            pace.total = max(total, done)
            progress(Progress(IMPORTING, done, pace.total, pace.seconds_left(done)))
        if loaded.refused:
            report.refuse(one.file, loaded.refused)
            continue
        if loaded.sha in seen:
            report.refuse(one.file, _twice(one, seen[loaded.sha]))
            continue
        earlier, name = taken.get(folded(one.name)), names.take(one.name)
        taken.setdefault(folded(one.name), one.name)
        if name != unicodedata.normalize("NFC", one.name):
            why = "differs from another one by case or Unicode form only"
            if earlier is None:
                why = "is written otherwise"
            elif earlier == one.name:
                why = "is that of another image too"
            report.changed(one.file, f"Its name {why}: it is called “{name}” here.")
        for note in loaded.notes:
            report.changed(one.file, note)
        example = Example(
            name,
            into / f"{loaded.sha}.png",
            loaded.sha,
            one.label,
            one.split,
            into / f"{loaded.mask_sha}.png" if loaded.mask_sha else None,
            loaded.classes or {},
            loaded.mask_sha,
        )
        if one.row is not None:
            label, row = one.label, one.row
            if not loaded.recorded:
                report.changed(
                    one.file,
                    "The picture is not the one that its record tells of: what was known of that is left out.",
                )
                row = Row(label=label)
            example = replace(with_row(example, row), label=label)
        if each(example):
            seen[loaded.sha] = _Seen(one.file, one.label, one.split)
    return len(seen)


def _loaded(found: Found, *, into: Path, classes: Mapping[int, str] | None, labels: Collection[str] | None) -> _Loaded:
    """Put the pictures of an example right and in place."""
    if labels is not None and found.label and found.label not in labels:
        return _Loaded(found, f"Its label “{found.label[:80]}” is not a known one: correct it, or add the label.")
    try:
        read = _right(found, classes)
    except UserError as error:
        return _Loaded(found, str(error))
    mask_sha = _write(into, read.mask) if read.mask is not None else ""
    return _Loaded(found, "", read.notes, _write(into, read.image), read.recorded, mask_sha, read.classes)


@dataclass(frozen=True)
class _Right:
    """The files of an example, put right."""

    image: bytes
    mask: bytes | None
    classes: Mapping[int, str]
    notes: tuple[str, ...]
    recorded: bool


def _right(found: Found, classes: Mapping[int, str] | None) -> _Right:
    """The files of an example as they are kept. Raises UserError for one that cannot be read."""
    try:
        data = found.image()
        picture = read_image(data)
        notes, orientation = list(picture.notes), orientation_of(opened(data))
        stored, recorded = _stored(data, picture.image, found.row.sha256 if found.row else "", not notes)
        mask, named = None, dict(found.classes or classes or {})
        if found.mask is not None:
            given = read_mask(turned(found.mask(picture.image.size), data, orientation), picture.image.size, named)
            notes += given.notes
            mask = png_of(_own_numbers(given.image, found))
            named = dict(found.row.mask_classes if found.numbers and found.row is not None else given.classes)
        return _Right(stored, mask, named if mask is not None else {}, tuple(notes), recorded)
    except UserError:
        raise
    except Exception as error:  # a damaged file may make a decoder raise anything; the others come in
        raise UserError("The file cannot be read: save or download it again.") from error


def _stored(data: bytes, image: Image.Image, recorded: str, untouched: bool) -> tuple[bytes, bool]:
    """The PNG of the picture, and whether it is the one that is `recorded`, by the hash of the file or of what is kept.

    One that left a studio comes back byte by byte, so that it keeps its hash.
    """
    plain = bare(data) if recorded else None
    if plain is not None and hashlib.sha256(plain).hexdigest() == recorded:
        if untouched and Image.open(io.BytesIO(plain)).mode in MODES:
            return plain, True
        return png_of(image), True
    stored = png_of(image)
    return stored, recorded in ("", hashlib.sha256(stored).hexdigest(), hashlib.sha256(data).hexdigest())


def turned(mask: bytes, data: bytes, orientation: int) -> bytes:
    """The mask, turned as the picture of `data` was. Raises UserError when nothing tells whether it has to be."""
    if orientation not in _TURN:
        return mask
    image, given = opened(data), opened(mask).size
    # Pillow gives the size of a TIFF as it is shown, and of the others as the pixels are stored.
    lying = image.size[::-1] if image.format == "TIFF" and orientation >= 5 else image.size
    upright = lying[::-1] if orientation >= 5 else lying
    if given == upright and given != lying:
        return mask
    if given == lying and given != upright:
        with Image.open(io.BytesIO(mask)) as turned:
            return png_of(turned.transpose(_TURN[orientation]))
    raise UserError(
        "The camera noted that the picture has to be turned, and nothing tells whether its mask has to be, too: "
        "save the picture upright."
    )


def _own_numbers(mask: Image.Image, found: Found) -> Image.Image:
    """The mask with the example's own class numbers, where a format has one list for all."""
    if not found.numbers:
        return mask
    table = np.arange(256, dtype=np.uint8)
    for number, own in found.numbers.items():
        table[number] = own
    table[UNLABELLED] = UNLABELLED
    return Image.fromarray(table[np.asarray(mask)])


def _write(into: Path, data: bytes) -> str:
    """Put a file in its place, if it is not there already; its sha256."""
    sha = hashlib.sha256(data).hexdigest()
    path = into / f"{sha}.png"
    try:
        there = path.stat().st_size == len(data)
    except FileNotFoundError:  # or taken away, which may happen at any time
        there = False
    if not there:
        part = into / f".{secrets.token_hex(8)}.part"
        part.write_bytes(data)
        os.replace(part, path)
    return sha


def _compare(manifest: Mapping[str, Any], files: Files, report: Report) -> None:
    """Tell which files of an export are gone."""
    gone = sorted({file["name"] for file in manifest["files"]} - set(files.names))
    for name in gone:
        report.refuse(name, "The manifest of the set names it, and it is not there.")


def _twice(found: Found, known: _Seen) -> str:
    """Why a second file of one content is not taken."""
    if found.label != known.label:
        return f"It shows the same as {known.file}, which has the label “{known.label}” and not “{found.label}”."
    if found.split != known.split:
        return f"It shows the same as {known.file}, which is in another split: a set must not have it in both."
    return f"It shows the same as {known.file}: one of them was taken."


class _Seen(NamedTuple):
    """What is kept of an example that was taken: no more, as there may be a million."""

    file: str
    label: str
    split: Split


def _unwrapped(files: Files) -> Files:
    """Without a folder around all, as archives have; a folder that may be a label or a split stays."""
    if not files.names:
        return files
    top = files.names[0].split("/")[0]
    marks = (MANIFEST, METADATA, LINES, "data.yaml", "leftImg8bit/", "annotations/")
    inner = [name.removeprefix(f"{top}/") for name in files.names]
    if all(name.startswith(f"{top}/") for name in files.names) and any(name.startswith(marks) for name in inner):
        return Inner(files, top)
    return files


def _manifest(files: Files, report: Report) -> dict[str, Any] | None:
    if MANIFEST not in files.names:
        return None
    try:
        return read_manifest(files.read(MANIFEST, MOST_TABLE))
    except UserError as error:
        report.refuse(MANIFEST, str(error))
        return None


def _header(manifest: Mapping[str, Any]) -> TestSet:
    held = manifest.get("test_set")
    held = held if isinstance(held, dict) else {}
    texts = {name: str(held.get(name, "")) for name in ("name", "version", "note", "created")}
    licences, counts = held.get("licences"), held.get("counts")
    return TestSet(
        **texts,
        licences={str(k): str(v) for k, v in licences.items()} if isinstance(licences, dict) else {},
        counts={str(k): v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {},
    )


def _guess(files: Files) -> str:
    """The format, by what the files are called."""
    bases = {posixpath.basename(name) for name in files.names}
    endings = {posixpath.splitext(base)[1].lower() for base in bases}
    if bases & {METADATA, LINES}:
        return "imagefolder"
    if bases & {"data.yaml", "data.yml", "dataset.yaml"}:
        return "yolo"
    if any("leftImg8bit/" in f"/{name}" for name in files.names):
        return "cityscapes"
    if ".parquet" in endings:
        return "parquet"
    if ".tar" in endings or _is_shard(files):
        return "webdataset"
    if ".json" in endings and _has_coco(files):
        return "coco"
    if ".csv" in endings:
        return "csv"
    return "folder"


def _has_coco(files: Files) -> bool:
    """Whether one of the JSON files lists images."""
    for name in files.names:
        if name.endswith(".json") and posixpath.basename(name) != CLASSES:  # labels may be called so, too
            with suppress(UserError):  # who reads the format tells of it
                text = files.read(name, MOST_TABLE)
                if b'"images"' in text and b'"annotations"' in text:
                    return True
    return False


def _is_shard(files: Files) -> bool:
    """Whether most images have a .cls or .json of the same key beside them."""

    def key(name: str) -> str:
        folder, _, base = name.rpartition("/")
        return f"{folder}/{base.partition('.')[0]}"

    keys = {key(name) for name in files.names if name.endswith((".cls", ".json"))}
    images = [name for name in files.names if is_image(name)]
    return bool(images) and sum(key(name) in keys for name in images) * 2 > len(images)
