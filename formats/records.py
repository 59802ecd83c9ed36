"""Read `records.jsonl` of an export. This file also has details of examples that the export's format cannot hold. Its
lines stay on disk until their examples are read, as there may be a million lines. Memory holds only their offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from core.errors import UserError
from core.masks import UNLABELLED
from core.validation_messages import reason
from formats.files import MOST_LINE, Line, by_form, lines_of
from formats.pages import RECORDS
from formats.source import Source
from formats.types import Found, Report, Row


class _Record(Row):
    file: str = ""
    mask_file: Any = None
    width: Any = None
    height: Any = None
    mask_numbers: Any = None


class RecordedSource(Source):
    """Reads an export with its items' details from `records.jsonl`. If a file and its record differ, the file counts:
    somebody changed it after the export.
    """

    def __init__(self, inner: Source) -> None:
        super().__init__(inner.files, inner.report, inner.options, inner.in_place)
        self._inner = inner
        self._there = frozenset(self.files.names)
        self._places: dict[str, Line] = {}
        """Number and offset of the line in `records.jsonl` that describes a file, by file name."""
        try:
            with self.files.path(RECORDS).open("rb") as records:
                for line in lines_of(records):
                    file = None
                    with suppress(ValueError, RecursionError):
                        values = json.loads(line.text)
                        file = values.get("file") if isinstance(values, dict) else None
                    if isinstance(file, str):
                        self._places[file] = line._replace(text=b"")
                    else:
                        self.report.refuse(_where(line), "The line does not say which file it is of.")
        except OSError as error:
            self.report.refuse(RECORDS, f"The file cannot be read: {error.strerror or error}.")
        except UserError as error:
            self.report.refuse(RECORDS, str(error))

    def find(self, split: str | None = None) -> Iterator[Found]:
        for found in self._inner.find():
            joined = self._joined(found, self.report)
            if split is None or joined.split == split:
                yield joined

    def count(self) -> int:
        return self._inner.count()

    def stamp(self, key: str, file: str = "") -> str:
        return self._inner.stamp(key, file)

    def at(self, key: str) -> Found:
        return self._joined(self._inner.at(key), Report())

    def _joined(self, one: Found, report: Report) -> Found:
        line = by_form(self._places, one.file)
        if line is None or (one.row is not None and one.row.sha256):
            return one
        record = self._record(line, report)
        if record is None:
            return one
        # The record has the label or the missing split if the format cannot hold it.
        label = one.label or record.label
        if label != record.label:
            report.changed(one.file, f"Its label was changed from “{record.label}” to “{one.label}” since the export.")
        split = one.split
        if record.split == "" and one.split == "test" and "leftImg8bit/" in one.file:
            split = ""
        elif record.split != one.split:
            report.changed(one.file, "Its split was changed since the export.")
        numbers = _whole_numbers(record.mask_numbers)
        named = isinstance(record.mask_file, str) and record.mask_file in self._there
        return replace(
            one,
            name=record.name or one.name,
            label=label,
            split=split,
            classes=record.mask_classes if named or numbers else one.classes,
            row=record,
            numbers=numbers,
        )

    def _record(self, line: Line, report: Report) -> _Record | None:
        """Return the record in a line. If it cannot be read, report that and return None."""
        with self.files.path(RECORDS).open("rb") as records:
            records.seek(line.place)
            text = records.readline(MOST_LINE)
        try:
            values = json.loads(text)
            if isinstance(values, dict):
                return _Record.model_validate(values)
            why, place = "it is no JSON object", ""
        except (ValueError, RecursionError) as error:
            why, place = "it is no JSON object", ""
            if isinstance(error, ValidationError):
                why, place = reason(error), ".".join(map(str, error.errors()[0]["loc"]))
        report.refuse(_where(line), f"The line cannot be read{f' at its “{place}”' if place else ''}: {why}.")
        return None


def _where(line: Line) -> str:
    return f"{RECORDS}, line {line.number}"


def _whole_numbers(numbers: Any) -> dict[int, int] | None:
    if not isinstance(numbers, dict):
        return None
    try:
        whole = {int(number): int(own) for number, own in numbers.items()}
    except (ValueError, TypeError, OverflowError):
        return None
    return whole if all(0 <= each <= UNLABELLED for pair in whole.items() for each in pair) else None
