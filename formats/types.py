"""Types for test sets in files: an example, facts about a whole set, and the report of a reader. Every format stores an
example as the same row (`row_of`, `with_row`): flat data that JSON can hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from core.csv_tables import cells
from core.imports import ImageFacts, ImportRow
from core.test_sets import Role
from core.types import Edit, to_plain
from core.words import composed


@dataclass(frozen=True)
class Example(ImageFacts):
    """One image of a test set, with everything known about it."""

    name: str
    """File name without ending, safe on every system. Unique in the set, even ignoring case and Unicode form."""
    image: Path
    """Path of the image: a PNG file with 8 bits per channel, mode L or RGB."""
    sha: str
    """SHA-256 of the image file's bytes."""
    mask: Path | None = None
    """Path of the mask: a PNG file of mode L with class numbers, 255 for no class. None without a mask."""
    mask_sha: str = ""
    """SHA-256 of the mask file's bytes; "" if unknown."""
    xmp: str = ""
    """XMP metadata that marks the exported image as made by a machine; "" for other images."""


@dataclass(frozen=True)
class TestSet:
    """Facts about a test set as a whole, such as its version and licences."""

    __test__ = False  # not a pytest class

    name: str
    version: str = ""
    """Id of the test set's released version; "" without one."""
    note: str = ""
    created: str = ""
    """Time of the version's release (ISO 8601). Export times are not stored, so that repeated exports are equal."""
    licences: Mapping[str, str] = field(default_factory=dict)
    """Licence of each model that made images, by the model's title; "" if the licence is unknown."""


@dataclass(frozen=True)
class Imported:
    """Result of reading a test set from files: its examples and the report."""

    examples: tuple[Example, ...]
    """Examples sorted by name. The files are in the folder that the reader was given, named by SHA-256."""
    rows: tuple[ImportRow, ...]
    layout: str
    header: TestSet | None = None


class Row(BaseModel):
    """An example as a row of a file. Anybody may have written the file, so unknown columns are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", coerce_numbers_to_str=True)

    name: str = ""
    label: str = ""
    split: str = ""
    role: Role = "generated"
    sha256: str = ""
    source_sha256: str = ""
    caption: str = ""
    new_caption: str = ""
    edits: tuple[Edit, ...] = ()
    edit_types: tuple[str, ...] = ()
    mask_classes: dict[int, str] = Field(default_factory=dict)
    facts: dict[str, Any] = Field(default_factory=dict)

    @field_validator("*", mode="before")
    @classmethod
    def _nothing_is_the_default(cls, value: Any, info: Any) -> Any:
        known = cls.model_fields.get(info.field_name)
        return known.get_default(call_default_factory=True) if value is None and known is not None else value

    @field_validator("edits", "facts", "edit_types", "mask_classes", mode="before")
    @classmethod
    def _from_text(cls, value: Any, info: Any) -> Any:
        """Parse a value that is JSON text. Tables without nested cells store lists and objects as text."""
        if not isinstance(value, str):
            return value
        if not value.strip():
            return cls.model_fields[info.field_name].get_default(call_default_factory=True)
        try:
            return json.loads(value)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    @field_validator("mask_classes", mode="after")
    @classmethod
    def _in_range(cls, value: dict[int, str]) -> dict[int, str]:
        if any(not 0 <= number <= 255 for number in value):
            raise ValueError("class numbers go from 0 to 255")
        return value


def shown(name: str) -> str:
    """Return a short form of a name with printable characters only."""
    text = name.encode("utf-8", "replace").decode("utf-8")
    text = "".join(mark if mark.isprintable() else "�" for mark in text)
    return text if len(text) <= 160 else f"…{text[-159:]}"


@dataclass
class Report:
    """Report of a reader, with rows on files that were refused or changed."""

    rows: list[ImportRow] = field(default_factory=list)

    def refuse(self, file: str, reason: str) -> None:
        """Add a row for a file that was refused."""
        self.rows.append(ImportRow(shown(file), reason, "refused"))

    def changed(self, file: str, reason: str) -> None:
        """Add a row for a file that was accepted, but changed or with a remark."""
        self.rows.append(ImportRow(shown(file), reason, "changed"))

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Discard all rows that are added inside the `with` block."""
        before = len(self.rows)
        try:
            yield
        finally:
            del self.rows[before:]


@dataclass(frozen=True)
class Found:
    """An item of a data set as the format describes it. Its image and mask have not been read yet."""

    file: str
    """Name of the image file in the data set, for the report and `records.jsonl`."""
    name: str
    image: Callable[[], bytes]
    label: str = ""
    split: str = ""
    """Split: "train", "validation", "test" or the data set's name for it; "" without splits."""
    mask: Callable[[tuple[int, int]], bytes] | None = None
    """Function that returns the mask file's bytes, given the image's (width, height); None without a mask."""
    classes: Mapping[int, str] | None = None
    """Class names by number in the mask; None if the format has no names."""
    row: Row | None = None
    """Details that the data set stores about the example, such as its caption; None if it stores no details."""
    numbers: Mapping[int, int] | None = None
    """Map from numbers in the mask file to numbers in `classes`; None if both are the same."""
    key: str = ""
    """Key of the item in the data set, the same at each reading. The default is the file's name."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the image that the data set gives, such as {"weather": "rainy"}."""
    problem: str = ""
    """Reason, as a sentence, why the item cannot be read; "" if none is known."""
    where: str = ""
    """Place that describes the item, such as a line of a list. Reports of problems name it."""
    classes_file: str = ""
    """Name of the file to which a user can add class names, even if it does not exist yet; "" for no file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.file)
        object.__setattr__(self, "label", composed(self.label))
        if self.classes is not None and not all(name.isascii() for name in self.classes.values()):
            object.__setattr__(self, "classes", {number: composed(name) for number, name in self.classes.items()})


def row_of(example: Example) -> dict[str, Any]:
    """Return the example as a row: flat data with one type per column, without file paths."""
    return {
        **cells(example, "name label split role"),
        "sha256": example.sha,
        "source_sha256": example.source,
        **cells(example, "caption new_caption"),
        "edit_types": list(example.edit_types),
        "edits": compact([to_plain(edit) for edit in example.edits]),
        "mask_classes": compact({str(number): name for number, name in sorted(example.mask_classes.items())}),
        "facts": compact(example.facts),
    }


def with_row(example: Example, row: Row) -> Example:
    """Return the example with the values of `row`. Name, split and files stay unchanged."""
    extra = {name: value for name, value in (row.model_extra or {}).items() if value not in (None, "")}
    known = cells(row, "label role caption new_caption edits edit_types")
    return replace(example, **known, source=row.source_sha256, facts={**extra, **row.facts})


def compact(value: Any) -> str:
    """Return JSON text for plain data. Equal data give equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return JSON lines: each row as one line of JSON."""
    return "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows).encode()
