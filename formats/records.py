"""What `records.jsonl` of an export says of its examples, where their format cannot say it.

A line is read when its example comes; before that only its place in the file is known, as there may be a million.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core.errors import UserError
from core.masks import UNLABELLED
from formats.common import row_of_line
from formats.files import MOST_LINE, Files, by_form, lines_of
from formats.pages import RECORDS
from formats.types import Found, Report, Row

_OF_FILES = ("file", "mask_file", "width", "height", "mask_numbers")
"""Columns of `records.jsonl` that say where an example is, and nothing of it."""


def with_records(found: Iterable[Found], files: Files, report: Report) -> Iterator[Found]:
    """The examples with what `records.jsonl` says of them, unless their format says it. Where both say something and
    differ, a person changed the files since: these count.
    """
    records: _Records | None = None
    for one in found:
        if one.row is None and RECORDS in files.names:
            records = records or _Records(files, report)
            yield records.joined(one)
        else:
            yield one


class _Records:
    def __init__(self, files: Files, report: Report) -> None:
        self._files, self._report = files, report
        self._held = frozenset(files.names)
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

    def joined(self, one: Found) -> Found:
        row = self._row(one.file)
        if row is None:
            return one
        extra = dict(row.model_extra or {})
        numbers, mask_file = extra.get("mask_numbers"), extra.get("mask_file")
        # Where a format has no place for a label or for a set without splits, the record says it.
        label = one.label or row.label
        if one.label and one.label != row.label:
            told = f"Its label was changed from “{row.label}” to “{one.label}” since the export."
            self._report.changed(one.file, told)
        split = one.split
        if row.split != one.split and not (row.split == "" and one.split == "test" and "leftImg8bit/" in one.file):
            self._report.changed(one.file, "Its split was changed since the export.")
        elif row.split != one.split:
            split = ""
        plain = {name: value for name, value in extra.items() if name not in _OF_FILES}
        row = Row.model_validate({**{name: getattr(row, name) for name in Row.model_fields}, **plain})
        named = isinstance(mask_file, str) and mask_file in self._held and not numbers
        return replace(
            one,
            name=row.name or one.name,
            label=label,
            split=split,
            classes=row.mask_classes if named else one.classes,
            row=row,
            numbers=_whole_numbers(numbers),
        )

    def _row(self, file: str) -> Row | None:
        place = by_form(self._places, file)
        if place is None:
            return None
        number, start = place
        with self._files.path(RECORDS).open("rb") as records:
            records.seek(start)
            text = records.readline(MOST_LINE)
        return row_of_line(text, f"{RECORDS}, line {number}", self._report)


def _whole_numbers(numbers: Any) -> dict[int, int] | None:
    """A mapping of class numbers that came from a file; None for what is none."""
    if not isinstance(numbers, dict):
        return None
    try:
        held = {int(number): int(own) for number, own in numbers.items()}
    except (ValueError, TypeError, OverflowError):
        return None
    return held if all(0 <= each <= UNLABELLED for pair in held.items() for each in pair) else None
