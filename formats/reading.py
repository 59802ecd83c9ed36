"""Read a test set from files of any known format: examples with normalised pictures, and a report of refused files.

Pictures and masks are written into a folder as PNG without metadata, as a workspace stores them. Each file's name is
its sha256. So importing twice gives the same files, and an interrupted import can be resumed.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from core.errors import UserError, disk_reason
from core.images import MODES, png_of, read_image
from core.masks import classes_text
from core.png import bare
from core.progress import OnProgress, Pace, Progress
from core.test_sets import SPLITS
from formats.draft import IMPORTING, in_threads
from formats.files import open_files
from formats.layouts import source_of
from formats.naming import Names, folded
from formats.source import Source, Tally, mask_of
from formats.types import Example, Found, Imported, Report, Row, TestSet, with_row


@dataclass(frozen=True)
class _Loaded:
    """An item whose pictures were stored, or the reason why it was refused."""

    found: Found
    refused: str = ""
    notes: tuple[str, ...] = ()
    sha: str = ""
    recorded: bool = True
    """False if the picture differs from the picture that the item's record describes."""
    mask_sha: str = ""
    classes: Mapping[int, str] = field(default_factory=dict)


class _Seen(NamedTuple):
    """Facts about an accepted example that stay in memory. Only these stay, as a set may have a million examples."""

    file: str
    label: str
    split: str


def read(
    source: Path,
    into: Path,
    layout: str = "",
    *,
    classes: Mapping[int, str] | None = None,
    labels: Collection[str] | None = None,
    progress: OnProgress | None = None,
    report: Report | None = None,
    each: Callable[[Example], bool] | None = None,
) -> Imported:
    """Read the examples of a folder, a zip or a tar, and write their pictures into the folder `into`.

    `layout` is the name of a format, or "" to guess it. `classes` has the class names by mask number, for files without
    them. `labels` are the allowed labels, None for any. Refused files get a row in the report. Pass a `report` to see
    its rows early. `each` is called with every example in the order of the files, after the example's files are
    written. It may move these files, and returns True to keep the example. With `each`, the result has no examples.
    A file with the same content as a kept example is refused.

    Raises UserError if the source cannot be read at all, the format is unknown, or the disk is full. An exception from
    `progress`, such as Cancelled, stops the import.
    """
    into.mkdir(parents=True, exist_ok=True)
    report = report or Report()
    scratch = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=into))
    try:
        options = {"mask_classes": classes_text(classes)} if classes else {}
        opened, layout, manifest = source_of(open_files(source, report, scratch), layout, report, options)
        total = _count(opened) if progress is not None else 0
        examples: list[Example] = []

        def keep(example: Example) -> bool:
            examples.append(example)
            return True

        taken = _examples(_whole(opened, report), total, into, classes, labels, report, progress, each or keep)
        if manifest is not None:
            for gone in sorted({file["name"] for file in manifest["files"]} - set(opened.files.names)):
                report.refuse(gone, "The manifest of the set names it, and it is not there.")
    except OSError as error:
        raise UserError(f"The import into {into} stopped. {disk_reason(error)}.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not taken and not report.rows:
        report.refuse(source.name, "There is no image in it: PNG, JPEG, WebP, GIF, BMP and TIFF can be read.")
    examples.sort(key=lambda example: example.name)
    return Imported(tuple(examples), tuple(report.rows), layout, _header(manifest) if manifest is not None else None)


def _count(source: Source) -> int:
    """Return the number of items to read; 0 if it is only known after reading."""
    len(source.files.names)  # goes through the folder and reports hidden files
    try:
        with source.report.muted():
            return source.count()
    except (UserError, OSError):  # the reader reports the error
        return 0


def _whole(source: Source, report: Report) -> Iterator[Found]:
    tally = Tally(report)
    for found in source.find():
        if found.problem:
            report.refuse(found.where or found.file, found.problem)
        elif found.split in SPLITS:
            yield found
        else:
            tally.note(found.file, f"Its split “{found.split}” is none of train, validation and test: it was left out.")
            yield replace(found, split="")
    tally.tell()


def _examples(
    found: Iterable[Found],
    total: int,
    into: Path,
    classes: Mapping[int, str] | None,
    labels: Collection[str] | None,
    report: Report,
    progress: OnProgress | None,
    each: Callable[[Example], bool],
) -> int:
    """Pass accepted examples to `each` in the order of the files, and report the others. Return the number that `each`
    keeps. `total` is an estimate of the number of items, for progress reports.
    """
    names, pace = Names(), Pace(total)
    seen: dict[str, _Seen] = {}
    taken: dict[str, str] = {}
    work = partial(_loaded, into=into, classes=classes, labels=labels)
    for done, loaded in enumerate(in_threads(work, found), start=1):
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
        facts: dict[str, Any] = {"label": one.label, "split": one.split}
        if loaded.mask_sha:
            mask = into / f"{loaded.mask_sha}.png"
            facts |= {"mask": mask, "mask_classes": loaded.classes, "mask_sha": loaded.mask_sha}
        example = Example(name, into / f"{loaded.sha}.png", loaded.sha, **facts)
        if one.row is not None:
            label, row = one.label, one.row
            if not loaded.recorded:
                why = "The picture is not the one that its record tells of: what was known of that is left out."
                report.changed(one.file, why)
                row = Row(label=label)
            example = replace(with_row(example, row), label=label)
        elif one.attributes:
            example = replace(example, facts=dict(one.attributes))
        if each(example):
            seen[loaded.sha] = _Seen(one.file, one.label, one.split)
    return len(seen)


def _loaded(found: Found, *, into: Path, classes: Mapping[int, str] | None, labels: Collection[str] | None) -> _Loaded:
    if labels is not None and found.label and found.label not in labels:
        return _Loaded(found, f"Its label “{found.label[:80]}” is not a known one: correct it, or add the label.")
    try:
        data = found.image()
        picture = read_image(data)
        image, recorded = _stored(data, picture.image, found.row.sha256 if found.row else "", not picture.notes)
        mask = mask_of(found, data, picture.image.size, classes)
        mask_png = None if mask is None else png_of(mask.image)
    except UserError as error:
        return _Loaded(found, str(error))
    except Exception:  # noqa: BLE001 - a damaged file may make a decoder raise anything; the others are still read
        return _Loaded(found, "The file cannot be read: save or download it again.")
    if mask is None or mask_png is None:
        return _Loaded(found, "", picture.notes, _write(into, image), recorded)
    notes = (*picture.notes, *mask.notes)
    return _Loaded(found, "", notes, _write(into, image), recorded, _write(into, mask_png), mask.classes)


def _stored(data: bytes, image: Image.Image, recorded: str, untouched: bool) -> tuple[bytes, bool]:
    """Return the picture's PNG, and True if `recorded` is the hash of the PNG or of the file. The second value is also
    True if `recorded` is "". An image that a studio exported is stored unchanged, so it keeps its hash.
    """
    plain = bare(data) if recorded else None
    if plain is not None and hashlib.sha256(plain).hexdigest() == recorded:
        if untouched and Image.open(io.BytesIO(plain)).mode in MODES:
            return plain, True
        return png_of(image), True
    stored = png_of(image)
    return stored, recorded in ("", hashlib.sha256(stored).hexdigest(), hashlib.sha256(data).hexdigest())


def _write(into: Path, data: bytes) -> str:
    """Write a file, named by its sha256, unless it exists. Return the sha256."""
    sha = hashlib.sha256(data).hexdigest()
    path = into / f"{sha}.png"
    try:
        is_stored = path.stat().st_size == len(data)
    except FileNotFoundError:  # the file may be removed at any time
        is_stored = False
    if not is_stored:
        part = into / f".{secrets.token_hex(8)}.part"
        part.write_bytes(data)
        os.replace(part, path)
    return sha


def _twice(found: Found, known: _Seen) -> str:
    if found.label != known.label:
        return f"It shows the same as {known.file}, which has the label “{known.label}” and not “{found.label}”."
    if found.split != known.split:
        return f"It shows the same as {known.file}, which is in another split: a set must not have it in both."
    return f"It shows the same as {known.file}: one of them was taken."


def _header(manifest: Mapping[str, Any]) -> TestSet:
    header = manifest.get("test_set")
    header = header if isinstance(header, dict) else {}
    texts = {name: str(header.get(name, "")) for name in ("name", "version", "note", "created")}
    licences = header.get("licences")
    licences = licences if isinstance(licences, dict) else {}
    return TestSet(**texts, licences={str(model): str(licence) for model, licence in licences.items()})
