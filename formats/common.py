"""The parts that several formats share: rows, names of splits and classes, and the files that a row names."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from core.errors import UserError
from core.masks import UNLABELLED, parse_classes
from core.validation_messages import reason
from formats.draft import Picture
from formats.files import Files, by_form, is_image, lines_of
from formats.naming import SPLIT_OF, split_folder
from formats.pages import CLASSES
from formats.types import Example, Found, Report, Row, Split

if TYPE_CHECKING:
    pass

MASK_FOLDERS = ("masks", "mask", "segmentations", "labels", "annotations", "gtfine")
"""Folders of masks, in lower case."""
MASK_ENDINGS = ("_mask", ".mask", "-mask", "_gtFine_labelIds")
SHARD_BYTES, SHARD_EXAMPLES = 500_000_000, 10_000
"""A shard is closed before it holds more than either."""


def rows_of_lines(files: Files, table: str, report: Report) -> Iterator[tuple[str, Row]]:
    """The rows of a file with a JSON object a line, each with its place in words; bad lines are told."""
    try:
        for line in lines_of(files, table):
            where = f"{table}, line {line.number}"
            row = row_of_line(line.text, where, report)
            if row is not None:
                yield where, row
    except UserError as error:
        report.refuse(table, str(error))


def row_of_line(text: bytes, where: str, report: Report) -> Row | None:
    """The row of a line with a JSON object; None, told, for what is none."""
    try:
        held = json.loads(text)
        if not isinstance(held, dict):
            raise ValueError("it is no object")
        return Row.model_validate(held)
    except (ValidationError, ValueError, RecursionError) as error:
        why = reason(error) if isinstance(error, ValidationError) else "it is no JSON object"
        report.refuse(where, f"The line cannot be read: {why}.")
        return None


def row_of_cells(cells: Mapping[str, Any], where: str, report: Report) -> Row | None:
    """The row of a table's cells; None, told, for one that cannot be read. Empty cells say nothing."""
    try:
        return Row.model_validate({name: cell for name, cell in cells.items() if cell not in (None, "")})
    except (ValidationError, ValueError, RecursionError) as error:
        why = reason(error) if isinstance(error, ValidationError) else "a cell is no JSON"
        report.refuse(where, f"The row cannot be read: {why}.")
        return None


def count_images(files: Files) -> int:
    """About how many examples there are, by the names of the files."""
    return sum(is_image(name) and not is_sheet(name) and not is_mask(name) for name in files.names)


def without(row: Row, *names: str) -> Row:
    """The row without columns that are no facts of the example."""
    extra = {name: value for name, value in (row.model_extra or {}).items() if name not in names}
    return Row.model_validate({**{name: getattr(row, name) for name in Row.model_fields}, **extra})


def split_in(folder: str) -> Split:
    """The split that a path or a word names; "" for none."""
    for part in folder.split("/"):
        if part.lower() in SPLIT_OF:
            return SPLIT_OF[part.lower()]
    return ""


def read_classes(files: Files, report: Report) -> dict[int, str] | None:
    """The class numbers that a `classes.json` or `classes.txt` of the set names; None without one."""
    name = next((name for name in files.names if posixpath.basename(name) in (CLASSES, "classes.txt")), None)
    if name is None:
        return None
    try:
        text = files.read(name, 1_000_000).decode("utf-8-sig")
        if name.endswith(".txt"):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return parse_classes(text) if text.strip()[:1].isdigit() else dict(enumerate(lines[:UNLABELLED]))
        held = json.loads(text)
        numbers = held.get("masks", held.get("classes", held)) if isinstance(held, dict) else held
        if isinstance(numbers, list):
            numbers = dict(enumerate(numbers))
        if numbers is None:
            return None
        return {int(number): str(called) for number, called in numbers.items() if 0 <= int(number) <= UNLABELLED}
    except (ValueError, TypeError, AttributeError, UserError, RecursionError):
        report.refuse(name, "It is no list of classes: write one as “0 sky, 1 road” in classes.txt.")
        return None


def read_bytes(files: Files, name: str) -> Callable[[], bytes]:
    """What reads a file of the set when it is needed."""
    return lambda: files.read(name)


def read_mask_file(files: Files, name: str) -> Callable[[tuple[int, int]], bytes]:
    return lambda _size: files.read(name)


def pair_of_files(example: Example, images: str, masks: str) -> tuple[str, str | None]:
    """The names of image and mask in their folders."""
    return f"{images}/{example.name}.png", None if example.mask is None else f"{masks}/{example.name}.png"


def splits_of(examples: Sequence[Example]) -> list[Split]:
    """The splits that there are, in their order."""
    return sorted({example.split for example in examples}, key=("train", "validation", "test", "").index)


def require_each(examples: Sequence[Example], lacking: Sequence[Example], what: str, where: str) -> None:
    if lacking:
        raise UserError(
            f"{len(lacking):,} of {len(examples):,} images have no {what}, such as “{lacking[0].name}”, and {where} "
            f"needs one of each: choose another format, or take them out of the set.",
            field="layout",
        )


def beside(named: object, folder: str, known: Mapping[str, str]) -> str | None:
    """The file that a table in `folder` names, of those that `names_by_form` gives; None for none of them."""
    if not isinstance(named, str):
        return None
    path = posixpath.normpath(posixpath.join(folder, named.replace("\\", "/")))
    return by_form(known, path)


def is_sheet(name: str) -> bool:
    return posixpath.basename(name) == "sheet.jpg"


def is_mask(name: str) -> bool:
    stem = posixpath.splitext(posixpath.basename(name))[0]
    return any(part.lower() in MASK_FOLDERS for part in name.split("/")[:-1]) or stem.endswith(MASK_ENDINGS)


def in_shards(pictures: Iterator[Picture]) -> Iterator[tuple[str, int, Iterator[Picture]]]:
    """The pictures, which come sorted by split, in shards: folder of the split, number of the shard, its pictures. Each
    shard has to be used up before the next.
    """
    for split, of_split in groupby(pictures, lambda picture: split_folder(picture.example.split)):
        yield from ((split, number, shard) for number, shard in enumerate(_shards(of_split)))


def _shards(pictures: Iterator[Picture]) -> Iterator[Iterator[Picture]]:
    while (first := next(pictures, None)) is not None:
        yield _shard(first, pictures)


def _shard(first: Picture, following: Iterator[Picture]) -> Iterator[Picture]:
    """The pictures of a shard: the first, and those that follow until it is full."""
    size = 0
    for number, picture in enumerate(chain([first], following), start=1):
        yield picture
        size += len(picture.data) + len(picture.mask or b"")
        if size >= SHARD_BYTES or number >= SHARD_EXAMPLES:
            return


def found_of_row(files: Files, image: str, mask: str | None, row: Row) -> Found:
    return Found(
        image,
        row.name or posixpath.splitext(posixpath.basename(image))[0],
        read_bytes(files, image),
        row.label,
        split_in(row.split or posixpath.dirname(image)),
        (lambda _size, name=mask: files.read(name)) if mask else None,  # type: ignore[misc]
        row.mask_classes or None,
        row,
    )
