"""What `records.jsonl` of an export says of its examples, where their format cannot say it.

A line is read when its example comes; before that only its place in the file is known, as there may be a million.
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
from formats.files import MOST_LINE, Files, by_form, lines_of
from formats.pages import RECORDS
from formats.source import Source
from formats.types import Found, Report, Row

_OF_FILES = ("file", "mask_file", "width", "height", "mask_numbers")
"""Columns of `records.jsonl` that say where an example is, and nothing of it."""


class RecordedSource(Source):
    """An export whose format says less of its items than `records.jsonl` beside them. Where both say something and
    differ, a person changed the files since: these count.
    """

    def __init__(self, inner: Source) -> None:
        super().__init__(inner.files, inner.report, inner.options, inner.in_place)
        self._inner, self.licence = inner, inner.licence
        self._records = _Records(inner.files, inner.report)

    def find(self, split: str | None = None) -> Iterator[Found]:
        for found in self._inner.find():
            joined = self._records.joined(found, self.report)
            if split is None or joined.split == split:
                yield joined

    def stamp(self, key: str, file: str = "") -> str:
        return self._inner.stamp(key, file)

    def at(self, key: str) -> Found:
        return self._records.joined(self._inner.at(key), Report())


class _Records:
    def __init__(self, files: Files, report: Report) -> None:
        self._files = files
        self._there = frozenset(files.names)
        self._places: dict[str, tuple[int, int]] = {}
        """By the file that a line is of: its number and where it begins."""
        try:
            for line in lines_of(files, RECORDS):
                file = None
                with suppress(ValueError, RecursionError):
                    held = json.loads(line.text)
                    file = held.get("file") if isinstance(held, dict) else None
                if isinstance(file, str):
                    self._places[file] = line.number, line.place
                else:
                    report.refuse(f"{RECORDS}, line {line.number}", "The line does not say which file it is of.")
        except UserError as error:
            report.refuse(RECORDS, str(error))

    def joined(self, one: Found, report: Report) -> Found:
        """The item with what its record says of it."""
        if one.row is not None and one.row.sha256:
            return one
        values = self._values(one.file, report)
        if values is None:
            return one
        numbers, mask_file = _whole_numbers(values.get("mask_numbers")), values.get("mask_file")
        about = {name: value for name, value in values.items() if name not in _OF_FILES}
        try:
            row = Row.model_validate(about)
        except (ValidationError, ValueError, RecursionError) as error:
            why = reason(error) if isinstance(error, ValidationError) else "it is no JSON"
            report.refuse(self._where(one.file), f"The line cannot be read: {why}.")
            return one
        # Where a format has no place for a label or for a set without splits, the record says it.
        label = one.label or row.label
        if one.label and one.label != row.label:
            report.changed(one.file, f"Its label was changed from “{row.label}” to “{one.label}” since the export.")
        split = one.split
        if row.split != one.split and not (row.split == "" and one.split == "test" and "leftImg8bit/" in one.file):
            report.changed(one.file, "Its split was changed since the export.")
        elif row.split != one.split:
            split = ""
        named = isinstance(mask_file, str) and mask_file in self._there
        return replace(
            one,
            name=row.name or one.name,
            label=label,
            split=split,
            classes=row.mask_classes if named or numbers else one.classes,
            row=row,
            numbers=numbers,
        )

    def _values(self, file: str, report: Report) -> dict[str, Any] | None:
        """The record of a file; None, told where it is damaged, without one."""
        place = by_form(self._places, file)
        if place is None:
            return None
        _, start = place
        with self._files.path(RECORDS).open("rb") as records:
            records.seek(start)
            text = records.readline(MOST_LINE)
        try:
            values = json.loads(text)
            return values if isinstance(values, dict) else None
        except (ValueError, RecursionError):
            report.refuse(self._where(file), "The line cannot be read: it is no JSON object.")
            return None

    def _where(self, file: str) -> str:
        number, _ = by_form(self._places, file) or (0, 0)
        return f"{RECORDS}, line {number}"


def _whole_numbers(numbers: Any) -> dict[int, int] | None:
    """A mapping of class numbers that came from a file; None for what is none."""
    if not isinstance(numbers, dict):
        return None
    try:
        held = {int(number): int(own) for number, own in numbers.items()}
    except (ValueError, TypeError, OverflowError):
        return None
    return held if all(0 <= each <= UNLABELLED for pair in held.items() for each in pair) else None
