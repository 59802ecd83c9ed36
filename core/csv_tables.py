"""Write CSV tables that spreadsheets and other programs can read safely, and read untrusted CSV files."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Literal

from core.words import composed

Cell = str | int | float | bool | datetime | None
Row = dict[str, Cell]
Kind = Literal["text", "whole", "number", "truth", "time"]
"""Type of a column's values. A value may be missing (None)."""

MAX_ROWS = 100_000
MAX_COLUMNS = 200
_SIGNS = "['=+\\-@＝＋－＠]"
"""First characters that make a spreadsheet run a cell as a formula, their full-width forms, and the apostrophe, which a
spreadsheet drops."""
_PARTS = frozenset(";\t\r\n")
"""Characters that begin a new cell in a spreadsheet whose separator is not the comma. Such a spreadsheet ignores quotes
that follow a comma, so quotes around a cell do not prevent this."""
_BLANK = ("\t", "\r", "\n")
_BEGINS = re.compile(rf"""(?<![;\s"])[;\s"]*+(?={_SIGNS})""")
_GUARDED = re.compile(rf"""(?<![;\s"])([;\s"]*+)'(?={_SIGNS})""")


@dataclass(frozen=True)
class Table:
    """The content of a CSV file."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    """Stripped text of each row, by column. Row 1 is line 2 of the file if no cell has a line break."""


def read_csv(data: bytes, what: str = "The file") -> Table:
    """Read an untrusted CSV file in UTF-8 with a header, as text in Unicode NFC. Raises ValueError if it cannot be
    read; the message begins with `what`, such as "The file".
    """
    if data.startswith(b"PK\x03\x04"):
        raise ValueError(f"{what} is a ZIP archive or an Excel file, not a CSV: save it as CSV (UTF-8).")
    try:
        text = composed(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} is not in UTF-8: save it as “CSV UTF-8” and try again.") from error
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        columns = tuple(name.strip() for name in next(lines, []))
        if not any(columns):
            raise ValueError(f"{what} is empty: its first line has to name the columns.")
        if len(columns) > MAX_COLUMNS:
            raise ValueError(f"{what} has {len(columns)} columns; at most {MAX_COLUMNS} are read.")
        twice = next((name for name in columns if name and columns.count(name) > 1), "")
        if twice:
            raise ValueError(f"{what} has two columns named “{twice[:80]}”: give each a name of its own.")
        rows: list[Mapping[str, str]] = []
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(columns):
                raise ValueError(f"{what} has more cells in line {lines.line_num} than columns: check its quotes.")
            if len(rows) == MAX_ROWS:
                raise ValueError(f"{what} has more than {MAX_ROWS:,} rows: cut it into several files.")
            rows.append({name: cell.strip() for name, cell in zip(columns, cells, strict=False)})
    except csv.Error as error:
        raise ValueError(f"{what} cannot be read as CSV ({error}): check its quotes.") from error
    return Table(columns, tuple(rows))


def csv_text(rows: Iterable[Mapping[str, Cell]], columns: Iterable[str]) -> str:
    """Write rows as CSV (RFC 4180) with a header. Texts that a spreadsheet could run as formulas are `guarded`."""
    file = io.StringIO()
    names = list(columns)
    writer = csv.writer(file)
    writer.writerow([guarded(name) for name in names])
    writer.writerows([_written(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


def _written(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    return guarded(value) if isinstance(value, str) else str(value)


def guarded(text: str) -> str:
    """Put an apostrophe before each part of a text that a spreadsheet could run as a formula. Keep numbers."""
    if _is_number(text):
        return text
    guarded_text = _BEGINS.sub(lambda found: f"{found[0]}'" if _begins(found) else found[0], text)
    return f"'{guarded_text}" if guarded_text.startswith(_BLANK) else guarded_text


def as_written(text: str) -> str:
    """Return the text as it was before `guarded` added apostrophes."""
    stripped = text[1:] if text.startswith("'") and text[1:].startswith(_BLANK) else text
    return _GUARDED.sub(lambda found: found[1] if _begins(found) else found[0], stripped)


def _begins(found: re.Match[str]) -> bool:
    return not found.start() or not _PARTS.isdisjoint(found[0])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def plain(value: Any) -> Any:
    """Return dataclasses, mappings, sequences and times as JSON-ready data. Raises ValueError for NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a figure of a study must not be NaN or infinite: use None, and say it in words")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    return [plain(part) for part in value]


def facts(value: object, names: str, **others: Any) -> dict[str, Any]:
    """Return the attributes in `names` (separated by spaces) as JSON-ready data, and add `others` unchanged."""
    return {name: plain(cell) for name, cell in cells(value, names).items()} | others


def cells(value: object, names: str) -> dict[str, Any]:
    """Return the attributes named in `names` (separated by spaces) as the cells of a row."""
    return {name: getattr(value, name) for name in names.split()}


def columns_of(text: str) -> dict[str, Kind]:
    """Parse the names and types of columns, such as "worker votes:whole". A column without a type is "text"."""
    kinds: dict[str, Any] = {}
    for word in text.split():
        name, _, kind = word.partition(":")
        kinds[name] = kind or "text"
    return kinds
