"""A request for test cases of one source image, the events that report its progress, and the store of its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from PIL import Image

from core.lineage import DEFAULT_RECIPE, Failure, Lineage, TestCase
from core.masks import NamedMask
from core.progress import Progress
from core.settings import Settings
from core.types import StageName, StageValue, Task, Trace, Values
from pipeline.stages.generation import PlannedImage


@dataclass(frozen=True)
class Request:
    """A request for one source image. Plain data that can be pickled and sent to another process."""

    task: Task
    settings: Settings
    """Settings of the recipe's type."""
    recipe: str = DEFAULT_RECIPE
    seed: int = 0
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """Prompt templates that replace the profile's, by the name of the prompt."""
    stages: tuple[StageName, ...] | None = None
    """Text stages to run, in order. None for all. Values that are still fresh are kept."""
    anew: StageName = ""
    """Name of a stage to run even if its value is fresh; "" for none."""
    images: tuple[PlannedImage, ...] | None = None
    """Images to draw. None for all images of the captions that are not drawn yet."""
    watched: bool = True
    """True if somebody watches. If not, there are no previews, and small images are drawn together."""


@dataclass(frozen=True)
class StageBegan:
    """Event: a text stage begins."""

    stage: StageName
    number: int
    """Place of the stage in the recipe, from 1."""
    total: int
    """Number of stages of the recipe, including the drawing."""


@dataclass(frozen=True)
class StageDone:
    """Event: a text stage is done, and its value is in the store."""

    stage: StageName
    value: StageValue[Any]
    reused: bool = False
    """True if the value was still fresh and is kept."""
    unchanged: bool = False
    """True if the stage ran again on the same inputs and gave the same value."""


@dataclass(frozen=True)
class DrawingBegan:
    """Event: drawing begins."""


@dataclass(frozen=True)
class Placed:
    """Event: the device of the models that draw is known."""

    words: str
    """Device and reason in words, such as "cpu, float32: no GPU was found"."""


@dataclass(frozen=True)
class Remarked:
    """Event: the preparation of a source gave a remark for a person."""

    words: str


@dataclass(frozen=True)
class Preview:
    """Event: a preview of the image that is being drawn."""

    image: Image.Image


@dataclass(frozen=True)
class ImageDone:
    """Event: an image is done and is in the store."""

    lineage: Lineage
    reused: bool = False
    """True if the store already had the image, and it would be drawn in the same way now."""


@dataclass(frozen=True)
class ImageFailed:
    """Event: an image could not be made. The store has recorded that, and the next image begins."""

    image: PlannedImage
    """The image with the seed that was used."""
    error: Exception
    """The error, as a UserError if its cause is known."""


Event = StageBegan | StageDone | DrawingBegan | Placed | Remarked | Progress | Preview | ImageDone | ImageFailed
Emit = Callable[[Event], None]
"""Called with every event, in the driver's thread. An error raised there ends the work."""


class Store(Protocol):
    """Values and images of one source image: the driver reads and saves them here."""

    def source(self) -> Image.Image:
        """Return the source image, RGB. It is the same at every call."""

    def mask(self) -> NamedMask | None:
        """Return the mask of the source image, or None."""

    def latest(self, request: Request) -> Request:
        """Return the request with the present task, settings and prompts, which may change during the run."""
        return request

    def values(self) -> Mapping[StageName, StageValue[Any]]:
        """Return the value of each stage that has one."""

    def tries(self, stage: StageName) -> tuple[StageValue[Any], ...]:
        """Return the earlier values that models gave at a stage, oldest first. Each further try takes another seed."""
        return ()

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None: ...

    def drawn(self) -> Collection[Lineage]:
        """Return the lineages of the images in the store."""

    def save_case(self, case: TestCase) -> None: ...

    def failures(self) -> Collection[Failure]:
        """Return the failures recorded so far."""
        return ()

    def save_failure(self, failure: Failure) -> None:
        """Record a failure. It replaces an earlier one of the same stage or image."""


class MemoryStore(Store):
    """A store in memory."""

    def __init__(self, source: Image.Image, values: Values | None = None, mask: NamedMask | None = None) -> None:
        """`values` maps stages to `StageValue`s or bare values. A bare value is stale, since its inputs are unknown."""
        self._source, self._mask = source, mask
        self.held = {
            name: value if isinstance(value, StageValue) else StageValue(value, Trace("person"))
            for name, value in (values or {}).items()
        }
        self.cases: list[TestCase] = []

    def source(self) -> Image.Image:
        return self._source

    def mask(self) -> NamedMask | None:
        return self._mask

    def values(self) -> Mapping[StageName, StageValue[Any]]:
        return self.held

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None:
        self.held[stage] = value

    def drawn(self) -> Collection[Lineage]:
        return [case.lineage for case in self.cases]

    def save_case(self, case: TestCase) -> None:
        self.cases.append(case)

    def save_failure(self, failure: Failure) -> None:
        """Save nothing: the event ImageFailed reports the failure."""
