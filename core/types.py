"""The values that travel between stages, rooms and the outside. Plain frozen dataclasses; no models, no database.

`to_plain` and `from_plain` turn any of them (images apart) into JSON-ready data and back, validated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from core.errors import UserError
from core.validation_messages import reason

StageName = str
"""The name of a stage of some recipe (see `pipeline.recipes`), or `GENERATION`."""
GENERATION: StageName = "generation"
"""What drawing is called where stages are named: it stands behind the gate, after the text stages of any recipe."""
EditType = Literal["subject", "object", "attribute", "background", "weather", "time of day", "domain"]
EDIT_TYPES: tuple[EditType, ...] = get_args(EditType)
TaskKind = Literal["classification", "segmentation"]
Author = Literal["model", "person"]
Outcome = Literal["passed", "failed", "cannot tell"]
"""What a check found. One that cannot tell says nothing for or against an image."""


@dataclass(frozen=True)
class Task:
    """What the model under test has to do, and so what an edit must not touch."""

    kind: TaskKind
    label: str = ""
    """The class of the image; classification only."""
    protected: tuple[str, ...] = ()
    """The classes of the mask that must stay in place; segmentation only."""

    def describe(self) -> str:
        """The task in words, as every prompt carries it."""
        if self.kind == "classification":
            return f"image classification with the label {self.label}"
        return "semantic segmentation of " + ", ".join(self.protected)

    def kept(self) -> tuple[str, ...]:
        """The label, or the protected classes."""
        return (self.label,) if self.kind == "classification" else self.protected


@dataclass(frozen=True)
class Caption:
    """Stage 1: what the image shows, in several sentences."""

    text: str


@dataclass(frozen=True)
class Keyword:
    """An element of the caption that may change."""

    text: str
    edit_type: EditType
    used: bool = True
    forced: bool = False
    """A person insists on it, though the task protects it."""


@dataclass(frozen=True)
class Keywords:
    """Stage 2, in caption order."""

    items: tuple[Keyword, ...]


@dataclass(frozen=True)
class Alternative:
    """What a keyword may become."""

    text: str
    used: bool = True
    similarity: float | None = None
    """To what it comes closest to, -1 to 1, as `pipeline.checks.similarity` measures it; None when nothing was
    measured.
    """
    like: str = ""
    """What it comes closest to: its keyword, or what the task protects."""


@dataclass(frozen=True)
class KeywordAlternatives:
    """One keyword and its alternatives."""

    keyword: str
    edit_type: EditType
    options: tuple[Alternative, ...]
    forced: bool = False
    """As in `Keyword`."""


@dataclass(frozen=True)
class Alternatives:
    """Stage 3: one entry for every keyword that is used."""

    items: tuple[KeywordAlternatives, ...]


@dataclass(frozen=True)
class Edit:
    """A keyword and the alternative that takes its place."""

    keyword: str
    alternative: str
    edit_type: EditType
    forced: bool = False
    """The keyword is protected by the task, and a person insists on changing it."""


@dataclass(frozen=True)
class CounterfactualCaption:
    """The caption after one or more edits."""

    text: str
    edits: tuple[Edit, ...]
    used: bool = True
    """Ticked for generation."""


@dataclass(frozen=True)
class CounterfactualCaptions:
    """Stage 4."""

    items: tuple[CounterfactualCaption, ...]


@dataclass(frozen=True)
class Check:
    """One automatic finding about a value, such as "label kept". `pipeline.checks.wording` explains each."""

    name: str
    passed: bool | None
    """None where it cannot tell: `note` says why."""
    value: float | None = None
    """The measured figure where there is one, such as a similarity."""
    note: str = ""
    """One sentence for a person, when it did not pass or cannot tell; a remark, when it did."""
    threshold: float | None = None
    """What the figure had to reach; None where there is no figure, or an earlier version did not record it."""

    @property
    def outcome(self) -> Outcome:
        """The finding in words."""
        return "cannot tell" if self.passed is None else "passed" if self.passed else "failed"


LONGEST_REASON = 1000
"""Characters in the reason of a decision."""


@dataclass(frozen=True)
class Decision:
    """What a person decided about a test case."""

    verdict: Literal["accepted", "rejected"]
    reason: str = ""
    """In the person's words, at most `LONGEST_REASON` characters; "" where none was asked for."""


@dataclass(frozen=True)
class Trace:
    """How a value came about. All that a person typed has author "person" and empty model fields."""

    author: Author
    model: str = ""
    prompt: str = ""
    raw_reply: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    """The seed of the attempt that gave the value."""
    attempts: int = 1
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What a person should know of it, a sentence each, such as what was done in the place of what was asked for."""


T = TypeVar("T")


@dataclass(frozen=True)
class StageValue(Generic[T]):
    """A stage's value, how it came about, and the key of what it was made from (see `pipeline.freshness`)."""

    value: T
    trace: Trace
    inputs_key: str = ""
    """Filled in by whoever runs the stage."""


def to_plain(value: Any) -> Any:
    """JSON-ready data of a dataclass without images."""
    kind: type = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def from_plain(kind: type, data: Any) -> Any:
    """The dataclass `kind` from plain data. Raises pydantic.ValidationError when the data do not fit."""
    return _adapter(kind).validate_python(data)


def read_json(text: str) -> Any:
    """The plain data of JSON text. Raises ValueError for text that is none, or that could not be written down again."""
    try:
        data = json.loads(text)
        # What UTF-8 or JSON do not have (half characters, infinity) gets through json.loads, and would break later.
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("too much of it lies within each other") from error
    return data


def to_text(value: Any) -> str:
    """A value of a stage as text that a person can read and edit: `from_text` reads it back.

    A value of one text is that text, one of several texts has a line each, and any other is JSON.
    """
    held = [getattr(value, field.name) for field in fields(value)]
    match held:
        case [str(text)]:
            return text
        case [tuple(texts)] if all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False)


def from_text(kind: type, text: str) -> Any:
    """The value of a type from text that a person wrote. Raises UserError when it is none."""
    hints = list(get_type_hints(kind).values())
    try:
        if hints == [str]:
            return from_plain(kind, {fields(kind)[0].name: text.strip()})
        if hints == [tuple[str, ...]]:
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return from_plain(kind, {fields(kind)[0].name: lines})
        return from_plain(kind, read_json(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the value"
        raise UserError(f"This cannot be taken: {where}: {reason(error)}.") from error
    except ValueError as error:
        raise UserError(f"This is no JSON ({error}): correct it, or bring an earlier value back.") from error


@lru_cache(maxsize=64)
def _adapter(kind: type) -> TypeAdapter[Any]:
    # Building one takes longer than a page may take to show an edit, and a page reads many values.
    return TypeAdapter(kind)
