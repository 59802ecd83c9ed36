"""What the stages need of a model, and no more. `pipeline.models` fills these with real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from PIL import Image

from pipeline.settings import (
    CaptionSettings,
    ConditioningSettings,
    ControlKind,
    GenerationSettings,
    LanguageSettings,
)
from pipeline.types import CounterfactualCaption, Task, TestCase

OnStep = Callable[[int, int], None]
"""Called after every denoising step with (steps done, steps in all). Raising `Cancelled` from it stops the work."""


class Captioner(Protocol):
    """Says what an image shows."""

    name: str

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """The caption and the prompt that was sent ("" for a model that takes none)."""
        ...


class LanguageModel(Protocol):
    """Continues a text."""

    name: str

    def complete(self, prompt: str, settings: LanguageSettings, seed: int, stop: Sequence[str] = ()) -> str:
        """The continuation, without the prompt. Raises UserError when the prompt does not fit the context."""
        ...


class Embedder(Protocol):
    """Places images and texts in one space: unit vectors, whose product is the cosine similarity."""

    name: str

    def image(self, image: Image.Image) -> Sequence[float]: ...

    def text(self, text: str) -> Sequence[float]: ...


class Sentences(Protocol):
    """Places phrases in a space in which those that mean the same are near each other."""

    name: str

    def vectors(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A unit vector for each text."""
        ...


class Detector(Protocol):
    """Draws one kind of control image."""

    name: str

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        """RGB, of any size with roughly the aspect of the RGB `image`."""
        ...


class Generator(Protocol):
    """Draws an image from a text on top of a control image."""

    name: str

    def on(self, kind: ControlKind) -> Generator:
        """The same for another kind of control image. Raises UserError when there is none."""
        ...

    def preview(self) -> Image.Image | None:
        """What the image being drawn would look like if it were finished now: small, RGB, cheap to make.

        To be asked from within `on_step`, whose image it is then; None where there is nothing to show. Asking changes
        nothing in the result.
        """
        ...

    def generate(
        self,
        prompt: str,
        control: Image.Image,
        settings: GenerationSettings,
        seed: int,
        on_step: OnStep,
    ) -> Image.Image:
        """RGB, the size of `control`. The same seed gives the same pixels on the same machine."""
        ...


class Method(Protocol):
    """How a test case is made from a source image: ControlNet here; inversion or a new background could be others."""

    name: str

    def make(
        self,
        source: Image.Image,
        task: Task,
        counterfactual: CounterfactualCaption,
        conditioning: ConditioningSettings,
        settings: GenerationSettings,
        seed: int,
        on_step: OnStep,
    ) -> TestCase: ...

    def preview(self) -> Image.Image | None:
        """That of the generator: see `Generator.preview`."""
        ...
