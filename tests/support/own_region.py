"""A recipe with a painted region. Its method colours the source red where the source may change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from PIL import Image

from core.images import image_sha
from core.lineage import Lineage, MethodSettings, TestCase
from core.progress import OnProgress
from core.regions import WHOLE, Region
from core.settings import GenerationSettings, Settings
from core.types import CounterfactualCaption
from pipeline.methods import METHODS
from pipeline.methods.base import MethodDescription
from pipeline.prompting import PromptSet
from pipeline.recipes import RECONSTRUCTION, Recipe
from pipeline.seams import CaseRequest, InversionStore, Models, OnStep, Prepared, Source
from pipeline.stages.caption import CAPTION
from pipeline.stages.region import REGION
from tests.support.own_recipe import registered


class WashSettings(MethodSettings):
    """Settings that an image of this method was made with."""

    generation: GenerationSettings = GenerationSettings()
    painted: Region | None = None

    @property
    def region(self) -> Region | None:
        return self.painted

    def pixels(self) -> object:
        return self.painted


class WashDescription(MethodDescription):
    """Description of the method as data."""

    title = "Wash"
    settings_type = WashSettings

    @property
    def sections(self) -> tuple[str, ...]:
        return ("generation",)

    def settings_of(self, settings: Settings, source_caption: str = "", region: Region = WHOLE) -> MethodSettings:
        return super().settings_of(settings).model_copy(update={"painted": region})

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        return image_sha(source.image), source.region and image_sha(source.region)

    def with_models(
        self,
        models: Models,
        prompts: PromptSet,
        labels: Sequence[str] = (),
        inversions: InversionStore | None = None,
    ) -> Wash:
        return Wash()


class Wash:
    """Method that lays red over the source in the region that may change."""

    name = "wash"

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> Prepared:
        return Prepared(source, settings, {})

    def batch(self, prepared: Prepared, waiting: int | None = None, watched: bool = True) -> int:
        return 1

    def together(self, prepared: Prepared, counterfactual: CounterfactualCaption) -> Hashable:
        return None

    def make(
        self, prepared: Sequence[Prepared], images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        on_step(1, 1)
        return [
            lambda washed=washed, one=one: _case(washed, one)  # type: ignore[misc]
            for washed, one in zip(prepared, images, strict=True)
        ]

    def preview(self) -> Image.Image | None:
        return None


def _case(prepared: Prepared, one: CaseRequest) -> TestCase:
    source, image = prepared.source, Image.new("RGB", prepared.source.image.size, (255, 0, 0))
    if source.region is not None:
        image = Image.composite(image, source.image, source.region)
    lineage = Lineage(one.counterfactual, one.seed, "wash", "a brush", "paint", "", prepared.settings, 0.1)
    return TestCase(image, lineage)


PAINTED = replace(
    RECONSTRUCTION, name="painted", title="Painted", method="wash", stages=(CAPTION, REGION), unedited="washed"
)


@contextmanager
def painting() -> Iterator[Recipe]:
    """Register the recipe and its method until the context ends."""
    known: Mapping[str, MethodDescription] = dict(METHODS)
    METHODS["wash"] = WashDescription("wash")
    try:
        with registered(PAINTED) as recipe:
            yield recipe
    finally:
        METHODS.clear()
        METHODS.update(known)
