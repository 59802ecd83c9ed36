"""The values that travel between stages, rooms and the outside. Plain frozen dataclasses; no models, no database.

`to_plain` and `from_plain` turn any of them (images apart) into JSON-ready data and back, validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar, get_args

from PIL import Image
from pydantic import TypeAdapter

StageName = Literal["caption", "keywords", "alternatives", "counterfactuals", "generation"]
STAGES: tuple[StageName, ...] = get_args(StageName)
EditType = Literal["subject", "object", "attribute", "background", "weather", "time of day", "domain"]
EDIT_TYPES: tuple[EditType, ...] = get_args(EditType)
TaskKind = Literal["classification", "segmentation"]
Author = Literal["model", "person"]


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
    """To what it comes closest to, -1 to 1, as `pipeline.likeness` measures it; None when nothing was measured."""
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
    """One automatic finding about a value, such as "label kept"."""

    name: str
    passed: bool
    value: float | None = None
    """The measured figure where there is one, such as a similarity."""
    note: str = ""
    """One sentence for a person, when it did not pass; a remark, when it did."""


@dataclass(frozen=True)
class TestCase:
    """Stage 5: one generated image with its lineage. Enough to make it again, given the source image and the models."""

    __test__ = False  # not a pytest class

    image: Image.Image
    """RGB, the source's aspect."""
    control: Image.Image
    """The conditioning that the image was drawn on, same size."""
    counterfactual: CounterfactualCaption
    seed: int
    method: str
    model: str
    prompt: str
    negative_prompt: str
    settings: Mapping[str, Any]
    """Generation and conditioning settings as plain data."""
    seconds: float
    checks: tuple[Check, ...] = ()


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


T = TypeVar("T", Caption, Keywords, Alternatives, CounterfactualCaptions)
TextValue = Caption | Keywords | Alternatives | CounterfactualCaptions
VALUE_TYPES: dict[StageName, type] = {
    "caption": Caption,
    "keywords": Keywords,
    "alternatives": Alternatives,
    "counterfactuals": CounterfactualCaptions,
}
"""The type of value that each text stage gives. Generation gives `TestCase`s, one at a time."""


@dataclass(frozen=True)
class StageValue(Generic[T]):
    """A stage's value, how it came about, and the key of what it was made from (see `pipeline.freshness`)."""

    value: T
    trace: Trace
    inputs_key: str


def to_plain(value: Any) -> Any:
    """JSON-ready data of a dataclass without images."""
    kind: type = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def from_plain(kind: type, data: Any) -> Any:
    """The dataclass `kind` from plain data. Raises pydantic.ValidationError when the data do not fit."""
    return _adapter(kind).validate_python(data)


@lru_cache(maxsize=64)
def _adapter(kind: type) -> TypeAdapter[Any]:
    # Building one takes longer than a page may take to show an edit, and a page reads many values.
    return TypeAdapter(kind)
