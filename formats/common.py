"""Functions shared by several formats: for table rows, split names, class names and file paths of rows."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from pydantic import ValidationError

from core.errors import UserError
from core.masks import UNLABELLED, parse_classes
from core.test_sets import Split
from formats.draft import Picture
from formats.files import Files
from formats.naming import SPLIT_OF, split_folder
from formats.pages import CLASSES
from formats.source import Tally
from formats.types import Example, Report, Row

SHARD_BYTES, SHARD_EXAMPLES = 500_000_000, 10_000
"""Limits of a shard (a part of a data set in one file): bytes and examples. Reaching one of them closes the shard."""


def read_row(values: Mapping[str, Any], where: str, tally: Tally) -> Row:
    """Return an example's row from the columns of a table. Columns with unexpected content, or with content that JSON
    cannot hold, are reported in `tally`, and the row is kept. Raises UserError for an invalid label.
    """
    known: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    called: dict[str, str] = {}
    for column, value in values.items():
        if value is None or value == "":
            continue
        if isinstance(value, bytes) or (isinstance(value, dict) and isinstance(value.get("bytes"), bytes)):
            tally.note(where, f"Its column “{column}” holds a file, which is not taken over.")
            continue
        try:
            plain = (
                value if isinstance(value, str) else json.loads(json.dumps(value, allow_nan=False, default=_as_text))
            )
        except (ValueError, TypeError, RecursionError):
            tally.note(where, f"Its column “{column}” holds infinity or no number (NaN): it was left out.")
            continue
        name = column.strip().casefold()
        if name not in ("label", "split", "caption") or (column != name and name in values) or name in known:
            name = column
        if name == "caption" and isinstance(plain, list) and plain and isinstance(plain[0], str):
            tally.note(where, f"Its column “{column}” holds {len(plain)} texts: the first one was taken.")
            plain = plain[0]
        if name in Row.model_fields:
            known[name], called[name] = plain, column
        else:
            facts[column] = plain
    try:
        row = Row.model_validate(known)
    except ValidationError as error:
        for name in dict.fromkeys(str(one["loc"][0]) for one in error.errors()):
            value, column = known.pop(name), called[name]
            if name == "label":
                kind = "list" if isinstance(value, list) else "table" if isinstance(value, dict) else "value"
                raise UserError(
                    f"The column “{column}” holds a {kind}. This column must hold the image's label: write one text."
                ) from None
            facts[column] = value
            tally.note(where, f"Its column “{column}” is not what an export has under this name: it is kept as a fact.")
        row = Row.model_validate(known)
    return row.model_copy(update={"facts": {**facts, **row.facts}})


def _as_text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def split_in(folder: str) -> Split:
    """Return the split (train, validation or test) that a path or a word names; "" if it names none."""
    for part in folder.split("/"):
        if part.lower() in SPLIT_OF:
            return SPLIT_OF[part.lower()]
    return ""


def read_classes(files: Files, report: Report) -> dict[int, str] | None:
    """Return class names by number from `classes.json`, `classes.txt` or `_classes.csv`; None without such a file."""
    name = class_list_of(files)
    if not name:
        return None
    text = ""
    try:
        text = files.read(name, 1_000_000).decode("utf-8-sig")
        if name.endswith(".csv"):  # Roboflow writes the columns Pixel Value and Class
            rows = [line.split(",", 1) for line in text.splitlines()[1:] if "," in line]
            return {int(number): called.strip() for number, called in rows} if rows else None
        if name.endswith(".txt"):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return parse_classes(text) if text.strip()[:1].isdigit() else dict(enumerate(lines[:UNLABELLED]))
        content = json.loads(text)
        numbers = content.get("masks", content.get("classes", content)) if isinstance(content, dict) else content
        if isinstance(numbers, list):
            numbers = dict(enumerate(numbers))
        if numbers is None:
            return None
        return {int(number): str(called) for number, called in numbers.items() if 0 <= int(number) <= UNLABELLED}
    except (ValueError, TypeError, AttributeError, UserError, RecursionError):
        if name.endswith(".csv"):  # a table that another reader uses
            return None
        wrong = _first_wrong_line(text) if name.endswith(".txt") and text else ""
        report.refuse(name, f"It is no list of classes: write one as “0 sky, 1 road” in classes.txt.{wrong}")
        return None


def class_list_of(files: Files) -> str:
    """Return the name of the file that lists the class names of a data set; "" without one."""
    names = (CLASSES, "classes.txt", "_classes.csv")
    return next((name for name in files.names if posixpath.basename(name) in names), "")


def _first_wrong_line(text: str) -> str:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            parse_classes(line)
        except UserError as error:
            return f" Line {number}: {error}"
    return ""


def pair_of_files(example: Example, images: str, masks: str) -> tuple[str, str | None]:
    """Return the paths of an example's image in the folder `images`, and of its mask in the folder `masks`."""
    return f"{images}/{example.name}.png", None if example.mask is None else f"{masks}/{example.name}.png"


def splits_of(examples: Sequence[Example]) -> list[Split]:
    """Return the splits that the examples have, in the order train, validation, test, no split."""
    return sorted({example.split for example in examples}, key=("train", "validation", "test", "").index)


def require_each(examples: Sequence[Example], lacking: Sequence[Example], what: str, where: str) -> None:
    if lacking:
        raise UserError(
            f"{len(lacking):,} of {len(examples):,} images have no {what}, such as “{lacking[0].name}”, but {where} "
            f"needs one for every image: choose another format, or leave these images out.",
            field="layout",
        )


def is_sheet(name: str) -> bool:
    return posixpath.basename(name) == "sheet.jpg"


def in_shards(pictures: Iterator[Picture]) -> Iterator[tuple[str, int, Iterator[Picture]]]:
    """Yield shards of the pictures as (folder of the split, number of the shard, pictures).

    The pictures must be sorted by split. The caller must use all pictures of a shard before it takes the next shard.
    """
    for split, of_split in groupby(pictures, lambda picture: split_folder(picture.example.split)):
        yield from ((split, number, shard) for number, shard in enumerate(_shards(of_split)))


def _shards(pictures: Iterator[Picture]) -> Iterator[Iterator[Picture]]:
    while (first := next(pictures, None)) is not None:
        yield _shard(first, pictures)


def _shard(first: Picture, following: Iterator[Picture]) -> Iterator[Picture]:
    size = 0
    for number, picture in enumerate(chain([first], following), start=1):
        yield picture
        size += len(picture.data) + len(picture.mask or b"")
        if size >= SHARD_BYTES or number >= SHARD_EXAMPLES:
            return
