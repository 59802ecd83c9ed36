"""Base of methods whose model draws in batches: adds lineage and checks, and scales images to the source's size."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Generic, Self, TypeVar

from PIL import Image
from pydantic import Field

from core.errors import UserError, one_line
from core.lineage import DrawnBatch, Lineage, MethodSettings, TestCase
from core.masks import InMask, in_mask
from core.types import Check, CounterfactualCaption, Task
from core.words import classes_in
from pipeline.checks.drift import Drift, can_move_back, drift_of, framing_kept, moved_back
from pipeline.checks.images import image_checks, texts_compared
from pipeline.methods.base import MethodDescription
from pipeline.prompting import PromptSet
from pipeline.seams import (
    BatchEmbedder,
    CaseRequest,
    DrawnImage,
    DrawRequest,
    Embedder,
    InversionStore,
    Models,
    OnStep,
    Prepared,
)

log = logging.getLogger(__name__)

SAFE = "safety checker"


class BatchedSettings(MethodSettings):
    """Settings of an image that may have been drawn in a batch with others."""

    batch: DrawnBatch = Field(DrawnBatch(), exclude_if=lambda batch: batch == DrawnBatch())
    """The batch in which the image was drawn, not set by a user. Omitted from records if it is the default."""

    @classmethod
    def own(cls, settings: MethodSettings) -> Self:
        """Return `settings` unchanged. Raises TypeError if they are settings of another method."""
        if not isinstance(settings, cls):
            raise TypeError(f"the method takes {cls.__name__}, not {type(settings).__name__}")
        return settings

    @property
    def drawn_in(self) -> DrawnBatch | None:
        return self.batch


class DriftingSettings(BatchedSettings):
    """Settings of a method whose model may shift or zoom the whole picture."""

    moved_back: Drift | None = Field(None, exclude_if=lambda drift: drift is None)
    """The shift and zoom that were undone, or None. Recorded with an image, not set by a user."""


@dataclass(frozen=True)
class PlacedImage(DrawnImage):
    """A drawn image whose drift from its source was measured, and undone if possible."""

    drift: Drift | None = None
    """Shift and zoom by the model, or None if they cannot be measured."""


def placed(picture: Image.Image, drawn: DrawnImage) -> PlacedImage:
    """Measure shift and zoom of a result against the edited picture. Undo them if only a narrow border is lost."""
    drift = None if drawn.image is None else drift_of(picture, drawn.image)
    image = drawn.image
    if image is not None and drift is not None and can_move_back(drift):
        image = moved_back(image, drift)
    return PlacedImage(image, drawn.batch, drawn.safe, drawn.refused, drawn.compiling, drift)


R = TypeVar("R", bound=Prepared)


class DrawingMethod(ABC, Generic[R]):
    """Draws captions in batches, and scales each result to its source's size, so that the source's masks fit it."""

    def __init__(
        self,
        description: MethodDescription,
        models: Models,
        prompts: PromptSet,
        labels: Sequence[str],
        inversions: InversionStore | None,
    ) -> None:
        """See `MethodDescription.with_models`."""
        self._description, self.name = description, description.name
        self._models, self._prompts, self._labels, self._inversions = models, prompts, tuple(labels), inversions
        self._model, self._embedder = self._load(models)
        self._at_work = self._model
        """The model that draws now: `_model`, or its variant for a kind of control image."""

    @abstractmethod
    def _load(self, models: Models) -> tuple[Any, Embedder | None]:
        """Return the model that draws (a Generator or an Editor), and the embedder of the checks if they use one."""

    @abstractmethod
    def _draw(
        self, prepared: Sequence[R], requests: Sequence[DrawRequest], size: int, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        """Draw the requests in batches of `size`. Each request has its own prepared source."""

    def _request(self, prepared: R, prompt: str, image: CaseRequest) -> DrawRequest:
        return DrawRequest(prompt, image.seed, image.place)

    def _negative_prompt(self, prepared: R) -> str:
        return ""

    @abstractmethod
    def _compared(self, prepared: R, image: Image.Image, drawn: Image.Image) -> dict[str, Any]:
        """Return further arguments of `image_checks`. `image` has the source's size, and `drawn` the model's size."""

    @property
    def placing(self) -> str:
        return str(getattr(self._model, "placing", ""))

    @property
    def waits(self) -> str:
        return str(getattr(self._model, "waits", ""))

    def preview(self) -> Image.Image | None:
        return self._at_work.preview()

    def make(
        self, prepared: Sequence[R], images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        start = time.monotonic()
        # A prompt names only protected classes that the mask shows: a generator would draw those that the source lacks.
        classes_in_mask = {id(one): in_mask(one.source.mask, one.source.task) for one in prepared}
        requests = [
            self._request(source, self._prompt(source, image.counterfactual, classes_in_mask[id(source)]), image)
            for source, image in zip(prepared, images, strict=True)
        ]
        all_drawn = self._draw(prepared, requests, size, on_step)
        model = self._at_work.name
        compiling = max((drawn.compiling for drawn in all_drawn), default=0.0)
        fitted = [
            drawn.image and drawn.image.resize(source.source.image.size, Image.Resampling.LANCZOS)
            for source, drawn in zip(prepared, all_drawn, strict=True)
        ]
        self._embed(prepared, images, fitted)
        seconds = (time.monotonic() - start - compiling) / len(images)  # later images need no compiling
        return [
            partial(self._case, source, image, one.prompt, drawn, shown, model, seconds)
            for source, image, one, drawn, shown in zip(prepared, images, requests, all_drawn, fitted, strict=True)
        ]

    def _embed(
        self, prepared: Sequence[R], images: Sequence[CaseRequest], fitted: Sequence[Image.Image | None]
    ) -> None:
        """Embed all images and texts for a batch's checks in advance, if the embedder can embed several in one call."""
        pictures, texts = list[Image.Image](), list[str]()
        embedder: object = self._embedder
        if not isinstance(embedder, BatchEmbedder):
            return
        for one, image, shown in zip(prepared, images, fitted, strict=True):
            if shown is not None:
                pictures += [one.source.image, shown]
                texts += texts_compared(one.source.caption, image.counterfactual, one.source.task, self._labels)
        try:
            embedder.images(list({id(one): one for one in pictures}.values()))
            embedder.texts(list(dict.fromkeys(texts)))
        except Exception as error:  # noqa: BLE001 - such as too little memory: each image then reports its own error
            log.info("Images drawn together are checked one by one: %s", one_line(error))

    def _prompt(self, prepared: R, counterfactual: CounterfactualCaption, classes_in_mask: InMask) -> str:
        return self._description.prompt(self._prompts, counterfactual, prepared.source.task, classes_in_mask) or ""

    def _case(
        self,
        prepared: R,
        planned: CaseRequest,
        prompt: str,
        result: DrawnImage,
        image: Image.Image | None,
        model: str,
        seconds: float,
    ) -> TestCase:
        if result.image is None or image is None:
            raise result.refused or UserError("The model drew no image: try another seed, or change the caption.")
        counterfactual = planned.counterfactual
        lineage = Lineage(
            counterfactual=counterfactual,
            seed=planned.seed,
            method=self.name,
            model=model,
            prompt=prompt,
            negative_prompt=self._negative_prompt(prepared),
            settings=prepared.settings.model_copy(update={"batch": result.batch}),
            seconds=seconds,
        )
        checks = self._checks(prepared, counterfactual, image, result)
        if result.safe is not None:
            checks = (*checks, Check(SAFE, result.safe))
        return self._recorded(TestCase(image, lineage, prepared.artifacts, checks), result)

    def _recorded(self, case: TestCase, result: DrawnImage) -> TestCase:
        """Return the test case. A subclass adds facts that only `result` has."""
        return case

    def _checks(
        self, prepared: R, counterfactual: CounterfactualCaption, image: Image.Image, result: DrawnImage
    ) -> tuple[Check, ...]:
        source = prepared.source
        assert result.image is not None
        return image_checks(
            source.image,
            image,
            source_caption=source.caption,
            counterfactual=counterfactual,
            task=source.task,
            embedder=self._embedder,
            labels=self._labels,
            mask=source.mask,
            **self._compared(prepared, image, result.image),
        )


class DriftingMethod(DrawingMethod[R]):
    """A method whose model may shift or zoom images. Uses `DriftingSettings`. `_draw` must return `placed` images."""

    def _recorded(self, case: TestCase, result: DrawnImage) -> TestCase:
        drift = result.drift if isinstance(result, PlacedImage) else None
        undone = {"moved_back": drift if can_move_back(drift) else None}
        lineage = replace(case.lineage, settings=case.lineage.settings.model_copy(update=undone))
        return replace(case, lineage=lineage, checks=(framing_kept(drift, case.image.size), *case.checks))


def part_of(on_step: OnStep, number: int, parts: int, done: int, total: int) -> None:
    """Report progress over `parts` equal drawings. The drawing with index `number` has done `done` of `total` steps."""
    on_step(number * total + done, parts * total)


def evenly(waiting: int | None, most: int) -> int:
    """Return a batch size, at most `most`, that splits `waiting` images into even batches. If None, return `most`."""
    if waiting is None:
        return most
    batches = max(1, math.ceil(waiting / most))
    return max(1, math.ceil(waiting / batches))


def shown_classes(text: str, task: Task, classes_in_mask: InMask) -> list[str]:
    """Return the label, or the protected classes that the picture shows. The mask decides. For a class that the mask
    does not know, or without a mask, the caption `text` decides.
    """
    protected = list(task.kept())
    if task.kind != "segmentation":
        return protected
    named = () if all(name in classes_in_mask for name in protected) else _named(text, tuple(protected))
    return [name for name in protected if classes_in_mask.get(name, name in named)]


@lru_cache(maxsize=4096)
def _named(text: str, protected: tuple[str, ...]) -> tuple[str, ...]:
    """Return the protected classes that a caption names. The result is cached, as a run's page calls this often."""
    return classes_in(text, Task("segmentation", protected=protected))
