"""CSV: a table beside folders of images."""

from __future__ import annotations

import codecs
import csv
import posixpath
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from core.csv_tables import as_written, csv_text
from core.errors import UserError
from formats.common import (
    beside,
    found_of_row,
    pair_of_files,
    row_of_cells,
)
from formats.draft import Draft
from formats.files import Files, is_image, names_by_form
from formats.naming import split_folder
from formats.pages import Kept
from formats.types import Example, Found, Report, compact

if TYPE_CHECKING:
    pass

TABLE = "examples.csv"
LONGEST_CELL = 50_000_000
IMAGE_COLUMNS = ("file_name", "image", "path", "filename", "file")
MASK_COLUMNS = ("mask_file_name", "mask", "mask_path", "mask_file")


class Lines(Protocol):
    """Text that is read by the line."""

    def readline(self, size: int = -1, /) -> str:
        """The next line, or as much of it as `size` characters; "" at the end."""


def write_csv(draft: Draft, examples: Sequence[Example]) -> Kept:
    """CSV: examples.csv with a row an image, images/SPLIT/NAME.png and masks/SPLIT/NAME.png."""
    columns: list[str] = []

    def named(example: Example) -> tuple[str, str | None]:
        split = split_folder(example.split)
        return pair_of_files(example, f"images/{split}", f"masks/{split}")

    with draft.stream(TABLE) as table:
        for picture in draft.pictures(examples, named):
            example = picture.example
            image, mask = named(example)
            row = {**picture.row, "edit_types": compact(list(example.edit_types))}
            row = {"file_name": image, "mask_file_name": mask or "", **row}
            text = csv_text([row], columns or list(row))
            table.write((text.partition("\r\n")[2] if columns else text).encode())
            columns = columns or list(row)
            draft.record(picture, image, mask)
    return Kept(
        'import pandas\n\nimages = pandas.read_csv("SET/examples.csv", keep_default_na=False, dtype=str)',
        (
            (TABLE, "a row an image, with the paths of its files"),
            ("images/SPLIT/", "the images"),
            *([("masks/SPLIT/", "a class number a pixel, of the image of the same name")] if draft.masks else []),
        ),
        images="images/*/*.png",
        masks="masks/*/*.png" if draft.masks else "",
        notes=(
            "`edit_types`, `edits`, `mask_classes` and `facts` are JSON texts.",
            "A text that a spreadsheet would run as a formula has an apostrophe in front.",
        ),
    )


def find_csv(files: Files, report: Report) -> Iterator[Found]:
    """The rows of every CSV that has a column of image files."""
    known = names_by_form(files.names)
    used: set[str] = set()
    for table in (name for name in files.names if name.lower().endswith(".csv")):
        folder = posixpath.dirname(table)
        for where, cells in _csv_rows(files, table, report):
            image_column = next((name for name in IMAGE_COLUMNS if cells.get(name)), "")
            mask_column = next((name for name in MASK_COLUMNS if cells.get(name)), "")
            image = beside(cells.get(image_column), folder, known)
            mask = beside(cells.get(mask_column), folder, known)
            used.update(name for name in (image, mask) if name)
            if image is None or (mask_column and mask is None):
                missing = cells.get(image_column, "") if image is None else cells[mask_column]
                report.refuse(where, f"It names a file that is not there (“{missing}”): add the file.")
                continue
            row = row_of_cells(
                {name: text for name, text in cells.items() if name not in (image_column, mask_column)}, where, report
            )
            if row is None:
                continue
            yield found_of_row(files, image, mask, row)
    for name in files.names:
        if is_image(name) and name not in used and name != "sheet.jpg":
            report.refuse(name, "No row names it: add one, or take the file away.")


def _csv_rows(files: Files, table: str, report: Report) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table with a column of images; those that cannot be read are told."""
    try:
        path = files.path(table)
        if not _is_utf8(path):
            report.refuse(table, "It is not in UTF-8: save it as “CSV UTF-8”.")
            return
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield from cells_of(text, table, report)
    except UserError as error:
        report.refuse(table, str(error))
    except OSError as error:
        report.refuse(table, f"The file cannot be read: {error.strerror or error}.")


def cells_of(text: Lines, table: str, report: Report) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV with a column of images, each with its line; those that cannot be read are told. No line is
    read before its row is asked for.
    """
    first = text.readline(LONGEST_CELL)
    separator = max(",;\t", key=first.count)
    lines = csv.reader(chain([first], iter(lambda: text.readline(LONGEST_CELL), "")), delimiter=separator)
    columns = [as_written(name.strip()) for name in _next_row(lines) or ()]
    if not set(columns) & set(IMAGE_COLUMNS):
        report.refuse(table, f"It has no column of image files: call it {IMAGE_COLUMNS[0]}.")
        return
    while True:
        try:
            cells = _next_row(lines)
        except csv.Error as error:
            report.refuse(f"{table}, line {lines.line_num}", f"It cannot be read ({error}): check its quotes.")
            continue
        if cells is None:
            return
        if not any(cells):
            continue
        where = f"{table}, line {lines.line_num}"
        if len(cells) != len(columns):
            report.refuse(where, f"It has {len(cells)} cells for {len(columns)} columns: check its quotes.")
            continue
        yield where, {name: as_written(cell) for name, cell in zip(columns, cells, strict=True)}


def _next_row(lines: Iterator[list[str]]) -> list[str] | None:
    """The cells of one more row, long ones too; None at the end. Raises csv.Error."""
    before = csv.field_size_limit(LONGEST_CELL)  # of all of Python, so it is put back at once
    try:
        return next(lines, None)
    finally:
        csv.field_size_limit(before)


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
