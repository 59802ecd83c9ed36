"""Data between a test set and its files: an example, the set's header, and the report of a reader.

`row_of` turns an example into flat JSON-ready data, and `with_row` puts such data into an example. Every format carries
this one row.
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
"""Part of a set that an example belongs to; "" if the set is not split."""
SPLITS: tuple[Split, ...] = get_args(Split)
Role = Literal["generated", "source"]


@dataclass(frozen=True)
class Example:
    """One image of a test set with everything known about it."""

    name: str
    """Safe file stem, unique in the set even without case and Unicode form."""
    image: Path
    """PNG file of 8 bits, L or RGB."""
    sha: str
    """sha256 of the bytes of that file."""
    label: str = ""
    split: Split = ""
    mask: Path | None = None
    """PNG file of mode L: a class number at every pixel, 255 for none."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    """Class names by number, 0 to 254."""
    mask_sha: str = ""
    """sha256 of the bytes of the mask file, or "" if unknown."""
    source_sha: str = ""
    """sha256 of the image that this one was made from."""
    role: Role = "generated"
    caption: str = ""
    """Caption of the source image."""
    new_caption: str = ""
    """Caption that this image was made from."""
    edits: tuple[Edit, ...] = ()
    edit_types: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready: lineage, checks, review, votes, predictions; and additional columns of a foreign file."""
    xmp: str = ""
    """XMP packet that marks the exported image as machine-made, or ""."""


@dataclass(frozen=True)
class TestSet:
    """The header of a set."""

    __test__ = False  # not a pytest class

    name: str
    version: str = ""
    """Id of the version."""
    note: str = ""
    created: str = ""
    """Release time of the version, ISO 8601. The time of an export is never written: exports are repeatable."""
    licences: Mapping[str, str] = field(default_factory=dict)
    """Licences of the models that made the images, by the model's title; "" if unknown."""


@dataclass(frozen=True)
class Imported:
    """The result of a reader."""

    examples: tuple[Example, ...]
    """Examples sorted by name. Their files are in the folder given to the reader, named by sha256."""
    rows: tuple[ImportRow, ...]
    layout: str
    """Format that was read."""
    header: TestSet | None = None
    """Header of a set that the studio exported, or None."""


class Row(BaseModel):
    """The row of an example, as files hold it. Anybody may have written it; unknown columns are kept."""

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
        """Parse JSON text, which tables without nested cells use for these."""
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
    """Return a printable and short form of a name."""
    text = name.encode("utf-8", "replace").decode("utf-8")
    text = "".join(mark if mark.isprintable() else "�" for mark in text)
    return text if len(text) <= 160 else f"…{text[-159:]}"


@dataclass
class Report:
    """The report rows of a reader."""

    rows: list[ImportRow] = field(default_factory=list)

    def refuse(self, file: str, reason: str) -> None:
        """Add a row for a file that is left out."""
        self.rows.append(ImportRow(shown(file), reason, "refused"))

    def changed(self, file: str, reason: str) -> None:
        """Add a row for a file that is accepted, with a change or a remark."""
        self.rows.append(ImportRow(shown(file), reason, "changed"))

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Discard all rows that are added within this context."""
        before = len(self.rows)
        try:
            yield
        finally:
            del self.rows[before:]


@dataclass(frozen=True)
class Found:
    """An item of a data set as its format describes it. Its files are not read yet."""

    file: str
    """Image file, as named in the report and `records.jsonl`."""
    name: str
    image: Callable[[], bytes]
    label: str = ""
    split: str = ""
    """"train", "validation", "test" or another name that the set uses; "" if the set is not split."""
    mask: Callable[[tuple[int, int]], bytes] | None = None
    """Return the bytes of its mask file for an image of this size (width, height)."""
    classes: Mapping[int, str] | None = None
    """Class names by number in its mask; None if the format does not state them."""
    row: Row | None = None
    """Details of the example in the format itself."""
    numbers: Mapping[int, int] | None = None
    """Number in `classes` of each number in the mask file; None if they are equal."""
    key: str = ""
    """Name in the data set, the same at every reading; defaults to its file."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that the set states of the image, such as {"weather": "rainy"}."""
    problem: str = ""
    """Reason why it cannot be read, in a sentence; "" without a known problem."""
    where: str = ""
    """Place that describes it, such as a line of a list, to report its problem."""
    classes_file: str = ""
    """File of the set that names the numbers of masks, or should; "" if the format states them itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.file)
        object.__setattr__(self, "label", composed(self.label))
        if self.classes is not None and not all(name.isascii() for name in self.classes.values()):
            object.__setattr__(self, "classes", {number: composed(name) for number, name in self.classes.items()})


def row_of(example: Example) -> dict[str, Any]:
    """Return the example as flat data with one type for each column, without the places of its files."""
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
    """Return the example with all values of a row except name, split and files."""
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
    """Return JSON text of plain data: equal data give equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return lines of JSON, an object each."""
    return "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows).encode()
