"""Values passed between stages, packages and the outside: frozen dataclasses. `to_plain` and `from_plain` convert any
of them (except images) to JSON-ready data and back, validated. `Data` is the base of settings and other checked data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from core.errors import UserError
from core.validation_messages import reason

StageName = str
"""Name of a stage of a recipe (see `pipeline.recipes`), or `GENERATION`."""
Values = Mapping[StageName, Any]
GENERATION: StageName = "generation"
"""Name of the stage that draws the images. It follows the gate and the text stages of every recipe."""
EditType = Literal["subject", "object", "attribute", "background", "weather", "time of day", "domain"]
EDIT_TYPES: tuple[EditType, ...] = get_args(EditType)
TaskKind = Literal["classification", "segmentation"]
Author = Literal["model", "person"]
Outcome = Literal["passed", "failed", "cannot tell"]
"""Result of a check. "cannot tell" counts neither for nor against an image."""


class Data(BaseModel):
    """Base class of validated data. An instance cannot be changed, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Task:
    """The job of the model under test. An edit must change neither the image's label nor the protected classes."""

    kind: TaskKind
    label: str = ""
    """The class of the image; "" for segmentation."""
    protected: tuple[str, ...] = ()
    """Classes of the mask that must stay in place; empty for classification."""

    def describe(self) -> str:
        """Return a description of the task. Every prompt contains this description."""
        if self.kind == "classification":
            return f"image classification with the label {self.label}"
        return "semantic segmentation of " + ", ".join(self.protected)

    def kept(self) -> tuple[str, ...]:
        """Return the label as a tuple of one, or the protected classes."""
        return (self.label,) if self.kind == "classification" else self.protected


@dataclass(frozen=True)
class Caption:
    """Caption of the source image, in several sentences: the value of stage 1."""

    text: str


@dataclass(frozen=True)
class Keyword:
    """An element of the caption that may change."""

    text: str
    edit_type: EditType
    used: bool = True
    forced: bool = False


@dataclass(frozen=True)
class Keywords:
    """Keywords in caption order: the value of stage 2."""

    items: tuple[Keyword, ...]


@dataclass(frozen=True)
class Alternative:
    """A possible replacement for a keyword."""

    text: str
    used: bool = True
    similarity: float | None = None
    """Cosine similarity to `like`, from -1 to 1 (see `pipeline.checks.similarity`). None if it was not measured."""
    like: str = ""
    """The text that the alternative is most similar to: its keyword, or a label or class that the task protects."""

    def is_close(self, too_close: float) -> bool:
        """Return True if the alternative is too similar: its measured similarity reaches `too_close`."""
        return self.similarity is not None and self.similarity >= too_close


@dataclass(frozen=True)
class KeywordAlternatives:
    """A keyword with its possible replacements."""

    keyword: str
    edit_type: EditType
    options: tuple[Alternative, ...]
    forced: bool = False


@dataclass(frozen=True)
class Alternatives:
    """Alternatives, one entry for every used keyword: the value of stage 3."""

    items: tuple[KeywordAlternatives, ...]


@dataclass(frozen=True)
class Check:
    """Result of one automatic check of a value, such as "label kept". `core.check_words` explains each check."""

    name: str
    passed: bool | None
    """True if passed, False if failed, None if the check cannot tell. `note` gives the reason."""
    value: float | None = None
    note: str = ""
    """One sentence for a person. It is the reason if the check failed or cannot tell, otherwise a remark."""
    threshold: float | None = None
    """Figure that an image must reach to pass, or None if there is no figure."""

    @property
    def outcome(self) -> Outcome:
        return "cannot tell" if self.passed is None else "passed" if self.passed else "failed"


@dataclass(frozen=True)
class Edit:
    """A keyword and the alternative that replaces it."""

    keyword: str
    alternative: str
    edit_type: EditType
    forced: bool = False
    """True if the task protects the keyword and a person changes it all the same."""


@dataclass(frozen=True)
class CounterfactualCaption:
    """The caption after one or more edits."""

    text: str
    edits: tuple[Edit, ...]
    used: bool = True
    checks: tuple[Check, ...] = field(default=(), compare=False)
    """Checks of the text by a model, made by the stage that wrote the text. Dropped when a person rewrites the text."""


@dataclass(frozen=True)
class CounterfactualCaptions:
    """Counterfactual captions: the value of stage 4."""

    items: tuple[CounterfactualCaption, ...]


LONGEST_REASON = 1000


@dataclass(frozen=True)
class ReviewDecision:
    """A person's review of a test case."""

    verdict: Literal["accepted", "rejected"]
    reason: str = ""
    """The person's reason in their own words, at most `LONGEST_REASON` characters; "" if no reason was given."""


@dataclass(frozen=True)
class Trace:
    """Origin of a value. For a value that a person typed, `author` is "person" and the fields on a model are empty."""

    author: Author
    model: str = ""
    prompt: str = ""
    raw_reply: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    """Seed of the attempt whose reply gave the value."""
    attempts: int = 1
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Remarks for a person, one sentence each, such as a change to what was requested."""


T = TypeVar("T")


@dataclass(frozen=True)
class StageValue(Generic[T]):
    """A stage's value, its trace, and the key of its inputs (see `pipeline.freshness`)."""

    value: T
    trace: Trace
    inputs_key: str = ""
    """Key of the inputs. The driver that runs the stage sets it."""


@dataclass(frozen=True)
class PromptSlot:
    """A prompt that a stage or a method needs: its name, and the names of its variables."""

    name: str
    """Name of the stage, or of a further prompt. The prompt's file is NAME.toml."""
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    default: str = ""
    """Template to use if a prompt set has no file for this prompt; "" for none."""
    needed: bool = True
    """True if the prompt must come from a file or from `default`. False if a prompt set may lack this prompt."""
    title: str = ""
    """Title of a further prompt, in a few words; "" for the main prompt of a stage."""


@dataclass(frozen=True)
class StageKind:
    """Description of a text stage, readable by all packages."""

    value: type
    title: str
    doing: str


_stages: dict[StageName, StageKind] = {}


def set_stages(stages: Mapping[StageName, StageKind]) -> None:
    """Set the text stages of all recipes, in their order. `pipeline.recipes` calls this function."""
    global _stages
    _stages = dict(stages)


def stage_kinds() -> Mapping[StageName, StageKind]:
    """Return the text stages of all recipes in their order. Raises RuntimeError before any recipe is known."""
    if not _stages:
        raise RuntimeError("import pipeline.recipes first: it declares the stages")
    return _stages


def stage_title(name: StageName) -> str:
    """Return the title of a text stage, or of drawing."""
    return _stages[name].title if name in _stages else "Generate"


def stage_doing(name: StageName) -> str:
    """Return the words that describe the running stage `name`, which is a text stage or drawing."""
    return _stages[name].doing if name in _stages else "generating"


def to_plain(value: Any) -> Any:
    """Return a dataclass without images as JSON-ready data."""
    kind: type = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def from_plain(kind: type, data: Any) -> Any:
    """Convert plain data to the dataclass `kind`. Raises pydantic.ValidationError if the data do not fit."""
    return _adapter(kind).validate_python(data)


def read_json(text: str) -> Any:
    """Parse JSON text. Raises ValueError for invalid JSON and for data that cannot be written as JSON again."""
    try:
        data = json.loads(text)
        # json.loads accepts lone surrogates and infinity, which cannot be written again as UTF-8 and JSON.
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return data


def to_text(value: Any) -> str:
    """Return a stage's value as text to edit: its text, the lines of its list, or JSON. Inverse of `from_text`."""
    match [getattr(value, field.name) for field in fields(value)]:
        case [str(text)]:
            return text
        case [tuple(texts)] if all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False)


def from_text(kind: type, text: str) -> Any:
    """Return a value of type `kind` from text that a person wrote. Raises UserError if the text does not fit."""
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
        raise UserError(f"This value does not fit: {where}: {reason(error)}.") from error
    except ValueError as error:
        raise UserError(f"This is not valid JSON ({error}): correct it, or bring an earlier value back.") from error


@lru_cache(maxsize=64)
def _adapter(kind: type) -> TypeAdapter[Any]:
    # Cached, as building an adapter is slow and a page reads many values.
    return TypeAdapter(kind)


def failed(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Return the failed checks. A check that cannot tell did not fail."""
    return tuple(check for check in checks if check.passed is False)
