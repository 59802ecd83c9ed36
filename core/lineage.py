"""The test case: a generated image with its lineage, the one record of how it came about. Knows no models and no files.

Storage, files and pages hold this same record; each method of `pipeline.methods` has a type of settings of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from core.settings import MOST_AT_ONCE
from core.types import Check, CounterfactualCaption, StageName, Task, to_plain

DILLEMA = "dillema"
"""The recipe of every image that was recorded without one."""


class DrawnBatch(BaseModel):
    """How an image was drawn with others at once. The bits of its pixels hang on it as they do on the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int = Field(1, ge=1, le=MOST_AT_ONCE)
    """How many were drawn at once, with those that only filled it up."""
    place: int = Field(0, ge=0, lt=MOST_AT_ONCE)
    """Its own place among them, from 0."""
    compiled: bool = False
    """Whether it was drawn by compiled blocks, whose last bits differ from those of the others."""

    @model_validator(mode="after")
    def _within(self) -> DrawnBatch:
        if self.place >= self.size:
            raise ValueError(f"place {self.place} is not in a batch of {self.size}")
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As versions wrote it that compiled nothing, where that is so."""
        written: dict[str, Any] = handler(self)
        return written if self.compiled else {name: value for name, value in written.items() if name != "compiled"}


class MethodSettings(BaseModel):
    """The settings that an image was made with. Each method has a subclass of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def steps(self) -> int | None:
        """Denoising steps of an image; None where there are none, or it is not known."""
        return None

    @property
    def drawn_in(self) -> DrawnBatch | None:
        """The batch that it was drawn in; None where that is not known, or means nothing."""
        return None

    def plain(self) -> dict[str, Any]:
        """As JSON-ready data; `pipeline.methods.read_settings` reads it back."""
        return self.model_dump(mode="json")


class UnreadSettings(MethodSettings):
    """Settings of a method that is not known here, or that are none of its method: kept as they were recorded."""

    recorded: Mapping[str, Any] = {}

    def plain(self) -> dict[str, Any]:
        """Just what was recorded."""
        return dict(self.recorded)


@dataclass(frozen=True)
class Lineage:
    """How an image came about: enough to make it again, given the source image and the models."""

    counterfactual: CounterfactualCaption
    seed: int
    method: str
    """The name of a method of `pipeline.methods`."""
    model: str
    prompt: str
    negative_prompt: str
    settings: MethodSettings
    seconds: float
    recipe: str = DILLEMA
    """The name of the recipe whose captions were drawn."""
    task: Task | None = None
    """The task that it was made for: its checks and its review say something of this one alone. None in records of
    versions that did not write it down; the task of its run stands for it there.
    """

    def plain(self) -> dict[str, Any]:
        """As JSON-ready data; `pipeline.methods.read_lineage` reads it back."""
        return {
            "recipe": self.recipe,
            "method": self.method,
            "model": self.model,
            "counterfactual": to_plain(self.counterfactual),
            "seed": self.seed,
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "settings": self.settings.plain(),
            "seconds": self.seconds,
            **({"task": to_plain(self.task)} if self.task is not None else {}),
        }


@dataclass(frozen=True)
class Failure:
    """What could not be made, and how often it was tried: the next try takes the next seed."""

    stage: StageName
    """A text stage whose replies could not be used, or the generation."""
    tries: int
    """How many seeds are spent."""
    message: str
    """Why the last one failed, in one sentence."""
    counterfactual: CounterfactualCaption | None = None
    """The caption of an image."""
    seed: int = 0
    """The seed that was planned for an image."""

    @property
    def what(self) -> tuple[StageName, CounterfactualCaption | None, int]:
        """The stage or the image that it is about: of each only the last failure counts."""
        return self.stage, self.counterfactual, self.seed


@dataclass(frozen=True)
class TestCase:
    """One generated image with its lineage."""

    __test__ = False  # not a pytest class

    image: Image.Image
    """RGB, the source's aspect."""
    lineage: Lineage
    artifacts: Mapping[str, Image.Image] = field(default_factory=dict)
    """What its method made on the way, by name, such as "control image": mode L or RGB, the size of `image`."""
    checks: tuple[Check, ...] = ()
