"""Tables with a row for each image file: CSV, JSON lines, and Hugging Face's `metadata` files. Only the offsets of the
rows are in memory, as there may be a million rows.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, BinaryIO

from core.csv_tables import as_written, csv_text
from core.errors import UserError
from core.masks import UNLABELLED
from formats.columns import ParquetFile, class_names, require_few, with_class_names
from formats.common import is_sheet, pair_of_files, read_row, split_in
from formats.draft import Draft
from formats.files import MOST_LINE, MOST_TABLE, Files, by_form, is_image, lines_of, names_by_form
from formats.naming import choose_option, split_folder
from formats.pages import RECORDS, Description, description_of
from formats.source import UNKNOWN, Places, Source, Survey, Tally, digest, mask_opener, numbered, opener, stem_of
from formats.types import Example, Found, Report, Row, compact

TABLE, METADATA = "examples.csv", "metadata.parquet"
IMAGE_COLUMNS = ("file_name", "image", "path", "filename", "file")
MASK_COLUMNS = ("mask_file_name", "mask", "mask_path", "mask_file")
METADATA_FILES = ("metadata.jsonl", "metadata.csv", METADATA)
_CSV, _LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
_SAMPLE = 100
"""Number of lines to read, with the heading, to see whether a table has a column of 0 and 1 for each class."""
_OUTSIDE = "Its image lies outside the folder of the table, where nothing is read."


def write_csv(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write a test set as CSV: examples.csv with a row per image, images in images/SPLIT/, masks in masks/SPLIT/."""
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
    return description_of("csv", masks=draft.masks)


class TableSource(Source):
    """Reads a data set whose tables list the images."""

    unnamed = "No row names it: add one, or take the file away."

    def prepare(self) -> None:
        self._names = {} if self.in_place else names_by_form(self.files.names)
        self._label = self.options.get("label", "")
        listed = self.options.get("classes", "")
        self._classes = class_list(self.files, listed) if listed else ()
        self._tables = list(self._chosen_tables())
        self._used: set[str] = set()
        self._exported = self.files.has(RECORDS)

    def _chosen_tables(self) -> Iterator[str]:
        if not self.in_place:
            yield from filter(self.is_table, self.files.names)
            return
        tables = [name for name in self.files.files(deep=False) if self.is_table(name)]
        table = self.options.get("table", "")
        if table and self.files.has(table):
            yield table
        elif table or tables:
            yield choose_option("table", table, tables)

    @staticmethod
    def is_table(name: str) -> bool:
        """Return True if a file's name is that of a table of images."""
        return name.lower().endswith((*_CSV, *_LINES)) and posixpath.basename(name) != RECORDS

    def splits(self) -> list[str]:
        return list(self._index.splits)

    def survey(self, split: str) -> Survey:
        if not self.in_place:
            return super().survey(split)
        return Survey(self._classes or tuple(sorted(self._index.labels)), dict(self._index.mask_classes))

    def find(self, split: str | None = None) -> Iterator[Found]:
        keys = self._index.keys if self.in_place else None
        self._used.clear()
        place = 0
        for table in self._tables:
            tally = Tally(self.report)
            for row in _Rows(self.files, table, self.report, tally, self._label):
                found = self._found(row, tally)
                if found is None:
                    continue
                if split is None or found.split == split:
                    yield found if keys is None else replace(found, key=keys.key(found.file, place))
                place += 1
            tally.tell()
        if not self.in_place:
            self._tell_unnamed()

    def at(self, key: str) -> Found:
        index = self._index
        place = index.keys.find(key)
        if place is None:
            raise UserError(UNKNOWN)
        table = self._tables[index.tables[place]]
        rows = _Rows(self.files, table, Report(), Tally(Report()), self._label)
        row = rows.at(index.places[place])
        found = self._found(row, Tally(Report())) if row is not None else None
        if found is None or key not in (found.file, f"{found.file}#{place + 1}"):
            raise UserError("The table was changed since the data set was opened: open it again.")
        return replace(found, key=key)

    def stamp(self, key: str, file: str = "") -> str:
        return self.files.stamp(file) if file else ""

    @cached_property
    def _index(self) -> _Index:
        index, digests = _Index(), array("Q")
        for number, table in enumerate(self._tables):
            for row in _Rows(self.files, table, Report(), Tally(Report()), self._label):
                if (found := self._found(row, Tally(Report()))) is not None:
                    index.note(found, number, row.place)
                    digests.append(digest(found.file))
        index.keys = Places(digests)
        return index

    def _found(self, row: _Row, tally: Tally) -> Found | None:
        folder = posixpath.dirname(row.table)
        image, mask = (self._file(named, folder) for named in (row.image, row.mask))
        for column, named in row.more.items():
            if not self.in_place and self._file(named, folder) is not None:
                tally.note(row.where, f"Its column “{column}” names another image, which is not taken over.")
        if image is None and self.in_place:
            self.report.refuse(row.where, _OUTSIDE if row.image else "It names no image.")
            return None
        problem = row.problem
        for what, named, file in (("a mask", row.mask, mask), ("an image", row.image, image)):
            if named and file is None:
                problem = f"It names {what} that is not there (“{named}”): add the file."
        if not row.image:
            problem = "It names no image."
        masked = bool(row.mask) or (row.has_masks and self.in_place and not self._exported)
        image = image or row.image
        return Found(
            image,
            row.row.name or stem_of(image),
            opener(self.files, image),
            numbered(row.row.label, self._classes),
            split_in(row.row.split) or row.row.split or split_in(posixpath.dirname(image)),
            mask_opener(self.files, mask or "") if masked else None,
            row.row.mask_classes or None,
            row.row,
            attributes={name: value for name, value in row.row.facts.items() if isinstance(value, str)},
            problem=problem,
            where=row.where,
        )

    def _file(self, named: str, folder: str) -> str | None:
        """Return the path of the file `named`, relative to `folder`. None if missing or outside of the data set."""
        if not named:
            return None
        path = posixpath.normpath(posixpath.join(folder, named.replace("\\", "/")))
        if self.in_place:  # a missing file is reported when it is read
            return None if path.startswith(("/", "../")) or path == ".." else path
        if file := by_form(self._names, path):
            self._used.add(file)
        return file

    def _tell_unnamed(self) -> None:
        table = posixpath.basename(self._tables[0]) if self._tables else ""
        for name in self.files.names:
            if is_image(name) and name not in self._used and not is_sheet(name) and self._is_near(name):
                self.report.refuse(name, self.unnamed.format(table=table))

    def _is_near(self, name: str) -> bool:
        return True


class MetadataSource(TableSource):
    """Reads Hugging Face's ImageFolder: the images of each split lie beside a metadata file (`METADATA_FILES`)."""

    unnamed = "No line of {table} names it: add one, or take the file away."

    def _chosen_tables(self) -> Iterator[str]:
        return (name for name in self.files.names if posixpath.basename(name) in METADATA_FILES)

    def _is_near(self, name: str) -> bool:
        folders = [posixpath.dirname(table) for table in self._tables]
        return any(not folder or name.startswith(f"{folder}/") for folder in folders)


class _Index:
    def __init__(self) -> None:
        self.keys = Places()
        self.tables, self.places = array("I"), array("Q")
        """For each row, the index of its table, and the row's offset in that table."""
        self.splits: dict[str, None] = {}
        self.labels: dict[str, None] = {}
        self.mask_classes: dict[int, str] = {}

    def note(self, found: Found, table: int, place: int) -> None:
        self.tables.append(table)
        self.places.append(place)
        self.splits[found.split] = None
        if found.label:
            self.labels[found.label] = None
        self.mask_classes |= {n: name for n, name in (found.classes or {}).items() if n != UNLABELLED}


@dataclass(frozen=True)
class _Row:
    table: str
    where: str
    place: int
    image: str
    mask: str
    more: Mapping[str, str]
    """Other image files that the row names, by column name."""
    row: Row
    has_masks: bool
    problem: str


def _named(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    by_name = {column.casefold(): value for column, value in reversed(list(values.items()))}
    found = (by_name.get(column) for column in columns)
    return next((value.strip(" \t") for value in found if isinstance(value, str) and value.strip()), "")


class _Rows:
    def __init__(self, files: Files, table: str, report: Report, tally: Tally, label: str) -> None:
        self._files, self._table, self._report, self._tally, self._label = files, table, report, tally, label
        self._is_csv = table.lower().endswith(_CSV)

    def __iter__(self) -> Iterator[_Row]:
        try:
            if self._table.endswith(".parquet"):
                yield from self._columns()
                return
            with self._open() as file:
                for number, row in enumerate(self._csv(file) if self._is_csv else self._lines(file), 1):
                    require_few(number)
                    yield row
        except UserError as error:
            if error.field:
                raise
            self._report.refuse(self._table, str(error))
        except UnicodeDecodeError:
            self._report.refuse(self._table, "It is not in UTF-8: save it as “CSV UTF-8”.")

    def at(self, place: int) -> _Row | None:
        if self._table.endswith(".parquet"):
            return next(islice(self._columns(), place, None), None)
        with self._open() as file:
            return next(iter(self._csv(file, place) if self._is_csv else self._lines(file, place)), None)

    def _columns(self) -> Iterator[_Row]:
        """Yield the rows of a Parquet file. `_Row.place` is the row's index here, but a byte offset in other tables."""
        import pyarrow

        try:
            file = ParquetFile(self._files.path(self._table))
            names = class_names(file.schema)
            masks = any(name in file.schema.names for name in MASK_COLUMNS)
            for number, values in enumerate(file.rows(None)):
                where = f"{self._table}, row {number + 1}"
                yield self._row(where, number, with_class_names(values, names), masks)
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError("The file is damaged, or it is no Parquet file: export it again.") from error

    def _open(self) -> BinaryIO:
        """Open the table. If it has carriage returns and no line feeds, replace the carriage returns by line feeds."""
        file = self._files.path(self._table).open("rb")
        start = file.read(1 << 16)
        file.seek(0)
        if b"\n" in start or b"\r" not in start:
            return file
        with file:
            return io.BytesIO(file.read(MOST_TABLE).replace(b"\r", b"\n"))

    def _lines(self, file: BinaryIO, start: int = 0) -> Iterator[_Row]:
        for line in lines_of(file, start):
            where = f"{self._table}, line {line.number}"
            try:
                values = json.loads(line.text.removeprefix(BOM_UTF8))
            except (ValueError, RecursionError):
                values = None
            if isinstance(values, dict):
                yield self._row(where, line.place, values, any(each in values for each in MASK_COLUMNS))
            else:
                self._report.refuse(where, "The line cannot be read: it is no JSON object.")

    def _csv(self, file: BinaryIO, start: int = 0) -> Iterator[_Row]:
        text = _text_lines(file)
        first = next(text, "")
        if first.lower().startswith("sep=") and len(first.strip()) == 5:  # Excel writes files in this way
            separator, first = first[4], next(text, "")
        else:
            separator = max(",;\t", key=first.count)
        lines = csv.reader(chain([first], text), delimiter=separator)
        columns = [as_written(name.strip()) for name in _next_row(lines) or ()]
        self._require_columns(columns)
        one_hot = self._one_hot(columns, separator)
        has_masks = any(column.casefold() in MASK_COLUMNS for column in columns)
        place = file.tell()
        if start:
            file.seek(start)
            place = start
        while True:
            try:
                cells = _next_row(lines)
            except csv.Error as error:
                self._report.refuse(
                    f"{self._table}, line {lines.line_num}", f"It cannot be read ({error}): check its quotes."
                )
                place = file.tell()
                continue
            if cells is None:
                return
            where, at, place = f"{self._table}, line {lines.line_num}", place, file.tell()
            if not any(cells):
                continue
            if len(cells) != len(columns):
                self._report.refuse(where, f"It has {len(cells)} cells for {len(columns)} columns: check its quotes.")
                continue
            values = {name: as_written(cell) for name, cell in reversed(list(zip(columns, cells, strict=True)))}
            values = {name: values[name] for name in columns}
            for name in [each for each in values if each.casefold() in ("label", "split") or each == self._label]:
                values[name] = values[name].strip(" \t")
            if one_hot:
                marked = [name for name in one_hot if values.pop(name).strip() == "1"]
                if len(marked) > 1:
                    self._tally.note(where, "It has several classes, but an image has one label: none was taken.")
                values["label"] = marked[0] if len(marked) == 1 else ""
            yield self._row(where, at, values, has_masks)

    def _require_columns(self, columns: Sequence[str]) -> None:
        low = {column.casefold() for column in columns}
        if not low & set(IMAGE_COLUMNS):
            raise UserError(f"The table needs a column {IMAGE_COLUMNS[0]} with image paths: add or rename a column.")
        if self._label and self._label not in columns:
            available = ", ".join(columns)
            raise UserError(f"There is no column “{self._label}” for the label, only {available}.", field="label")
        for column in sorted({column for column in columns if column and columns.count(column) > 1}):
            self._report.changed(
                self._table, f"It has {columns.count(column)} columns “{column}”: the first one counts."
            )

    def _one_hot(self, columns: Sequence[str], separator: str) -> list[str]:
        """Return the class columns of a table with a column of 0 and 1 for each class; [] for any other table."""
        classes = [column for column in columns if column.casefold() not in IMAGE_COLUMNS]
        if len(classes) < 2 or len(set(columns)) < len(columns):
            return []
        with self._open() as file:
            rows = list(islice(csv.reader(_text_lines(file), delimiter=separator), 1, _SAMPLE))
        cells = [cell.strip() for row in rows for name, cell in zip(columns, row, strict=False) if name in classes]
        return classes if cells and set(cells) == {"0", "1"} else []

    def _row(self, where: str, place: int, values: Mapping[str, Any], has_masks: bool) -> _Row:
        image, mask = _named(values, IMAGE_COLUMNS), _named(values, MASK_COLUMNS)
        images = {column: value for column, value in values.items() if isinstance(value, str) and is_image(value)}
        row_values = {
            column: value
            for column, value in values.items()
            if column.casefold() not in (*IMAGE_COLUMNS, *MASK_COLUMNS) and "/" not in images.get(column, "")
        }
        if self._label and self._label in row_values:
            row_values["label"] = row_values.pop(self._label)
        more = {column: value for column, value in images.items() if value not in (image, mask)}
        row, problem = Row(), ""
        try:
            row = read_row(row_values, where, self._tally)
        except UserError as error:
            problem = str(error)
        return _Row(self._table, where, place, image, mask, more, row, has_masks, problem)


def _text_lines(file: BinaryIO) -> Iterator[str]:
    return iter(lambda: file.readline(MOST_LINE).decode("utf-8-sig"), "")


def _next_row(lines: Iterator[list[str]]) -> list[str] | None:
    """Return the cells of the next row, without a limit of their length; None at the end. Raises csv.Error."""
    before = csv.field_size_limit(MOST_LINE)  # the limit holds for the whole interpreter, so restore it at once
    try:
        return next(lines, None)
    finally:
        csv.field_size_limit(before)


def class_list(files: Files, file: str) -> tuple[str, ...]:
    """Read labels from a JSON list, a JSON object with `labels`, or lines of text. Raises UserError for other files."""
    try:
        text = files.read(file, 100_000_000).decode("utf-8-sig")
        if not file.endswith(".json"):
            return tuple(line.strip() for line in text.splitlines() if line.strip())
        content = json.loads(text)
        names = content.get("labels") if isinstance(content, dict) else content
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("it is no list of texts")
        return tuple(names)
    except UserError as error:
        raise UserError(f"The list of classes {file} cannot be read. {error}", field="classes") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is no list of classes: write one label per line, or a JSON list of labels.", field="classes"
        ) from error


def claims(files: Files) -> bool:
    """Return True if a table has a column of images. Also True for a table not in UTF-8, to show the user the error."""
    for name in filter(TableSource.is_table, files.names):
        report = Report()
        first = next(iter(_Rows(files, name, report, Tally(Report()), "")), None)
        if (first is not None and first.image) or any("UTF-8" in row.reason for row in report.rows):
            return True
    return False
