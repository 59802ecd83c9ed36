"""What travels between a test set and its files: an example, the set's header, and what a reader has to tell.

`row_of` and `example_fields` turn an example into flat JSON-ready data and back; every format carries this one row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from core.imports import ImportRow
from core.types import Edit, to_plain
from core.words import composed

Split = Literal["train", "validation", "test", ""]
"""Which part of a set an example belongs to; "" where the set is not split."""
SPLITS: tuple[Split, ...] = get_args(Split)
Role = Literal["generated", "source"]
PNG = "image/png"


@dataclass(frozen=True)
class Example:
    """One image of a test set, with all that is known of it."""

    name: str
    """A safe file stem, one of its own in the set, also where case and Unicode form do not count."""
    image: Path
    """A PNG file of 8 bits, L or RGB."""
    sha: str
    """sha256 of the bytes of that file."""
    label: str = ""
    split: Split = ""
    mask: Path | None = None
    """A PNG file of mode L: the number of a class at every pixel, 255 for none."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    """The names of the numbers, 0 to 254."""
    mask_sha: str = ""
    """sha256 of the bytes of the mask file; "" where nobody knows it."""
    source_sha: str = ""
    """sha256 of the image that this one was made from."""
    role: Role = "generated"
    caption: str = ""
    """What the source image shows."""
    new_caption: str = ""
    """What this image was made to show."""
    edits: tuple[Edit, ...] = ()
    edit_types: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready: lineage, checks, review, votes, predictions; and what a foreign file said in columns of its own."""
    xmp: str = ""
    """The XMP packet that says in an exported file that a machine drew the image; "" where nothing says so."""


@dataclass(frozen=True)
class TestSet:
    """The header of a set."""

    __test__ = False  # not a pytest class

    name: str
    version: str = ""
    """The id of the version."""
    note: str = ""
    created: str = ""
    """When the version was released, ISO 8601. The time of an export is written nowhere, so that it can be repeated."""
    licences: Mapping[str, str] = field(default_factory=dict)
    """The licences of the models that made the images, by the model's title; "" where none is known."""


@dataclass(frozen=True)
class Imported:
    """What a reader found."""

    examples: tuple[Example, ...]
    """By name. Their files lie in the folder that the reader was given, each called by its sha256."""
    rows: tuple[ImportRow, ...]
    layout: str
    """The format that was read."""
    header: TestSet | None = None
    """Of a set that the studio exported."""


class Row(BaseModel):
    """The row of an example, as files carry it. A stranger may have written it; columns that are not known are kept."""

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
        """Tables without nested cells carry these as JSON text."""
        if isinstance(value, str):
            known = cls.model_fields[info.field_name]
            return json.loads(value) if value.strip() else known.get_default(call_default_factory=True)
        return value

    @field_validator("mask_classes", mode="after")
    @classmethod
    def _in_range(cls, value: dict[int, str]) -> dict[int, str]:
        if any(not 0 <= number <= 255 for number in value):
            raise ValueError("class numbers go from 0 to 255")
        return value


def shown(name: str) -> str:
    """A name that can be printed, and is not too long to be."""
    text = name.encode("utf-8", "replace").decode("utf-8")
    text = "".join(mark if mark.isprintable() else "�" for mark in text)
    return text if len(text) <= 160 else f"…{text[-159:]}"


@dataclass
class Report:
    """Gathers what a reader has to tell."""

    rows: list[ImportRow] = field(default_factory=list)

    def refuse(self, file: str, reason: str) -> None:
        """The file is left out."""
        self.rows.append(ImportRow(shown(file), reason, "refused"))

    def changed(self, file: str, reason: str) -> None:
        """The file is taken, and something was done to it or noticed of it."""
        self.rows.append(ImportRow(shown(file), reason, "changed"))

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Forget the rows that are added within."""
        before = len(self.rows)
        try:
            yield
        finally:
            del self.rows[before:]


@dataclass(frozen=True)
class Found:
    """An item of a data set as its format tells of it, its files not yet read."""

    file: str
    """Its image, as the report and `records.jsonl` call it."""
    name: str
    image: Callable[[], bytes]
    label: str = ""
    split: str = ""
    """"train", "validation", "test", or as the set calls another one; "" where the set is not split."""
    mask: Callable[[tuple[int, int]], bytes] | None = None
    """The bytes of its mask file, for an image of this size (width, height)."""
    classes: Mapping[int, str] | None = None
    """The names of the numbers in its mask; None where the format does not say them."""
    row: Row | None = None
    """All that the format itself says of the example."""
    numbers: Mapping[int, int] | None = None
    """Which of `classes` a number of the mask file stands for; None where they are the same."""
    key: str = ""
    """Its name in the data set, the same at every reading; that of its file where nothing else is given."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What the set says of the image, such as {"weather": "rainy"}."""
    problem: str = ""
    """Why it cannot be read, in a sentence; "" where nothing is known against it."""
    where: str = ""
    """The place that tells of it, such as a line of a list, for a report of its problem."""
    classes_file: str = ""
    """The file of the set that names the numbers of masks, or is to name them; "" where the format says them itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.file)
        object.__setattr__(self, "label", composed(self.label))
        if self.classes is not None and not all(name.isascii() for name in self.classes.values()):
            object.__setattr__(self, "classes", {number: composed(name) for number, name in self.classes.items()})


def row_of(example: Example) -> dict[str, Any]:
    """The example as flat data of one type a column, whatever the example holds; without where its files are."""
    return {
        "name": example.name,
        "label": example.label,
        "split": example.split,
        "role": example.role,
        "sha256": example.sha,
        "source_sha256": example.source_sha,
        "caption": example.caption,
        "new_caption": example.new_caption,
        "edit_types": list(example.edit_types),
        "edits": compact([to_plain(edit) for edit in example.edits]),
        "mask_classes": compact({str(number): name for number, name in sorted(example.mask_classes.items())}),
        "facts": compact(example.facts),
    }


def with_row(example: Example, row: Row) -> Example:
    """The example with all that a row says of it but name, split and files."""
    extra = {name: value for name, value in (row.model_extra or {}).items() if value not in (None, "")}
    return replace(
        example,
        label=row.label,
        source_sha=row.source_sha256,
        role=row.role,
        caption=row.caption,
        new_caption=row.new_caption,
        edits=row.edits,
        edit_types=row.edit_types,
        facts={**extra, **row.facts},
    )


def compact(value: Any) -> str:
    """JSON text of plain data: the same data give the same text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A JSON object a line."""
    return "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows).encode()
