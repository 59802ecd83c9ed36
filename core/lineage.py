"""The test case: a generated image with its lineage, the record of how it was made. Storage, files and pages use this
record. Each method of `pipeline.methods` has its own type of settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from core.regions import Region
from core.settings import MOST_AT_ONCE, Start
from core.types import Check, CounterfactualCaption, Data, StageName, Task, to_plain

DEFAULT_RECIPE = "dillema"
"""The recipe of a new run, and of every image that was recorded without one."""


class DrawnBatch(Data):
    """The batch that an image was drawn in. The exact bits of its pixels depend on this batch and on the machine."""

    size: int = Field(1, ge=1, le=MOST_AT_ONCE)
    """Number of images in the batch, including those that only filled it up."""
    place: int = Field(0, ge=0, lt=MOST_AT_ONCE)
    """Zero-based place of the image in the batch."""
    compiled: bool = False
    """True if compiled network blocks drew the image. Uncompiled blocks give results that differ in the last bits."""

    @model_validator(mode="after")
    def _within(self) -> DrawnBatch:
        if self.place >= self.size:
            raise ValueError(f"place {self.place} is not in a batch of {self.size}")
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the stored form. It has `compiled` only if True, since older versions stored no such field."""
        written: dict[str, Any] = handler(self)
        return written if self.compiled else {name: value for name, value in written.items() if name != "compiled"}


class MethodSettings(Data):
    """The settings of the method that made an image. Each method has its own subclass."""

    @property
    def steps(self) -> int | None:
        """Number of denoising steps of the image, or None if the method has none or the number is unknown."""
        return None

    @property
    def drawn_in(self) -> DrawnBatch | None:
        """The batch that the image was drawn in. None if it is unknown or has no effect on the pixels."""
        return None

    @property
    def source_caption(self) -> str | None:
        """Caption of the source, if the pixels depend on it; otherwise None."""
        return None

    @property
    def start(self) -> Start | None:
        """Start of the drawing (noise or the inverted source), or None if the method has no such setting."""
        return None

    @property
    def region(self) -> Region | None:
        """Region that was allowed to change; all other pixels equal the source. None if the method used no region."""
        return None

    def pixels(self) -> object:
        """Return everything that decides the pixels of an image, to compare two images' settings."""
        return self

    def plain(self) -> dict[str, Any]:
        """Return JSON-ready data. `read_settings` reads it back."""
        return self.model_dump(mode="json")


_settings_type: Callable[[str], type[MethodSettings]] | None = None


def set_methods(settings_type: Callable[[str], type[MethodSettings]]) -> None:
    """Set the function that returns the settings type for a method's name. The function raises KeyError for an unknown
    name. `pipeline.methods` calls `set_methods`.
    """
    global _settings_type
    _settings_type = settings_type


class UnreadSettings(MethodSettings):
    """Settings of an unknown method, or settings that do not fit their method, kept as recorded."""

    recorded: Mapping[str, Any] = {}

    def plain(self) -> dict[str, Any]:
        return dict(self.recorded)


def read_settings(method: str, recorded: Mapping[str, Any]) -> MethodSettings:
    """Return recorded settings; UnreadSettings if no method accepts them. Raises RuntimeError before `set_methods`."""
    if _settings_type is None:
        raise RuntimeError("import pipeline.methods first: it has the type of each method's settings")
    try:
        return _settings_type(method).model_validate(dict(recorded))
    except (KeyError, ValidationError):
        return UnreadSettings(recorded=recorded)


@dataclass(frozen=True)
class Lineage:
    """The record of how an image was made: enough to make it again with the source image and the models."""

    counterfactual: CounterfactualCaption
    seed: int
    method: str
    model: str
    prompt: str
    negative_prompt: str
    settings: MethodSettings
    seconds: float
    recipe: str = DEFAULT_RECIPE
    task: Task | None = None
    """Task that the image was made, checked and reviewed for. Older records have None: the task of their run counts."""

    def plain(self) -> dict[str, Any]:
        """Return JSON-ready data. `pipeline.methods.read_lineage` reads it back."""
        names = "recipe method model counterfactual seed prompt negative_prompt settings seconds"
        return {
            **{name: getattr(self, name) for name in names.split()},
            "counterfactual": to_plain(self.counterfactual),
            "settings": self.settings.plain(),
            **({"task": to_plain(self.task)} if self.task is not None else {}),
        }


@dataclass(frozen=True)
class Failure:
    """A stage or image that could not be made, and the number of tries. The next try takes the next seed."""

    stage: StageName
    """The text stage whose replies could not be used, or `GENERATION`."""
    tries: int
    """Number of seeds used so far."""
    message: str
    counterfactual: CounterfactualCaption | None = None
    seed: int = 0
    prompt: str = ""
    raw_reply: str = ""
    """The last reply to `prompt`, which could not be used; "" if there was none."""

    @property
    def what(self) -> tuple[StageName, CounterfactualCaption | None, int]:
        """The stage or image that failed. Only its last failure is stored."""
        return self.stage, self.counterfactual, self.seed


@dataclass(frozen=True)
class Artifact:
    """An intermediate image that a method keeps beside its result."""

    name: str
    title: str
    """Title on the page, one or two words."""
    words: str
    """Description of the image for people, one sentence without full stop."""
    lines: bool = False
    """True for white lines on black, which a page may lay over the result."""


@dataclass(frozen=True)
class TestCase:
    """One generated image with its lineage."""

    __test__ = False  # not a pytest class

    image: Image.Image
    """The generated image in RGB, with the source's aspect ratio."""
    lineage: Lineage
    artifacts: Mapping[str, Image.Image] = field(default_factory=dict)
    """Further images of the method by name, such as "control image": mode L or RGB, the size of `image`."""
    checks: tuple[Check, ...] = ()
