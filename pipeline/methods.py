"""Methods: how a test case is made from a source image. Here one: drawing anew on top of the source's edges."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image
from pydantic import ValidationError

from pipeline.conditioning import NamedMask, control_image, painted
from pipeline.image_checks import image_checks
from pipeline.images import fit, fitted_size
from pipeline.prompting import PromptSet
from pipeline.seams import Detector, Embedder, Generator, OnStep
from pipeline.settings import ConditioningSettings, ControlKind, GenerationSettings
from pipeline.types import Check, CounterfactualCaption, Task, TestCase

SIDE_MULTIPLE = 8
"""Latents are smaller by this factor, so both sides of what is generated must be multiples of it."""


class ControlNetMethod:
    """Draws the counterfactual caption on a control image of the source (its edges, its depth, ...), and brings the
    result to the source's size, so that masks and boxes of the source fit it pixel by pixel. Without an embedder only
    the edges are checked.
    """

    def __init__(
        self,
        generator: Generator,
        embedder: Embedder | None,
        prompts: PromptSet,
        name: str = "controlnet",
        source_caption: str = "",
        labels: Sequence[str] = (),
        detector: Callable[[ControlKind], Detector] | None = None,
        mask: NamedMask | None = None,
    ) -> None:
        """`source_caption` and `labels` (the classes a label is told apart from) are for the checks alone; `detector`
        gives the models of those kinds of control image that need one, `mask` is the source's.
        """
        self.name = name
        self._generator, self._embedder, self._prompts = generator, embedder, prompts
        self._source_caption, self._labels = source_caption, tuple(labels)
        self._detector, self._mask = detector, mask
        self._at_work = generator

    def make(
        self,
        source: Image.Image,
        task: Task,
        counterfactual: CounterfactualCaption,
        conditioning: ConditioningSettings,
        settings: GenerationSettings,
        seed: int,
        on_step: OnStep,
    ) -> TestCase:
        """One test case. Same arguments, same pixels on the same machine.

        Raises what the generator raises, and UserError when there is no control image of the kind to be had.
        """
        start = time.monotonic()
        prompt = self._prompts.diffusion.evaluate(caption=counterfactual.text, kept=", ".join(task.kept()))
        fitted = fit(source, settings.short_side, SIDE_MULTIPLE)
        control = control_image(fitted, conditioning, self._detector, self._mask)
        self._at_work = generator = self._generator.on(conditioning.kind)
        drawn = generator.generate(prompt, control, settings, seed, on_step)
        image = drawn if drawn.size == source.size else drawn.resize(source.size, Image.Resampling.LANCZOS)
        shown = _as_shown(control, source.size)
        return TestCase(
            image=image,
            control=shown,
            counterfactual=counterfactual,
            seed=seed,
            method=self.name,
            model=generator.name,
            prompt=prompt,
            negative_prompt=settings.negative_prompt,
            settings=plain_settings(conditioning, settings),
            seconds=time.monotonic() - start,
            checks=self._checks(source, image, shown, counterfactual, task, conditioning),
        )

    def preview(self) -> Image.Image | None:
        """What the image that is being made looks like now; to be asked from within `on_step`."""
        return self._at_work.preview()

    def _checks(
        self,
        source: Image.Image,
        image: Image.Image,
        control: Image.Image,
        counterfactual: CounterfactualCaption,
        task: Task,
        conditioning: ConditioningSettings,
    ) -> tuple[Check, ...]:
        return image_checks(
            source,
            image,
            control,
            self._source_caption,
            counterfactual,
            task,
            self._embedder,
            self._labels,
            conditioning,
        )


def map_shown(mask: NamedMask, size: tuple[int, int], short_side: int) -> Image.Image:
    """The control image (RGB) that a test case of a source of `size` carries when it is drawn on a map of `mask`."""
    return _as_shown(painted(mask, fitted_size(size, short_side, SIDE_MULTIPLE)), size)


def plain_settings(conditioning: ConditioningSettings, settings: GenerationSettings) -> dict[str, Any]:
    """What a test case records: the settings of the generation, and under "conditioning" those of the conditioning."""
    return {**settings.model_dump(mode="json"), "conditioning": conditioning.model_dump(mode="json")}


def drawn_alike(recorded: Mapping[str, Any], conditioning: ConditioningSettings, settings: GenerationSettings) -> bool:
    """Whether an image with these settings on record would be drawn in the same way now.

    What does not touch its pixels is passed over: how many images were asked for, where its seed came from, and the
    settings of other kinds of control image. What an earlier version did not record is as it was then, the default.
    """
    held = dict(recorded)
    try:
        edges = ConditioningSettings.model_validate(held.pop("conditioning", {}))
        drawing = GenerationSettings.model_validate(held)
    except ValidationError:
        return False
    return _pixels(edges, drawing) == _pixels(conditioning, settings)


def _as_shown(control: Image.Image, size: tuple[int, int]) -> Image.Image:
    return control if control.size == size else control.resize(size, Image.Resampling.NEAREST)


def _pixels(conditioning: ConditioningSettings, settings: GenerationSettings) -> tuple[Any, ...]:
    own = conditioning.model_dump(include={"kind", *conditioning.own_fields()})
    return own, settings.model_dump(exclude={"images_per_caption", "seed_mode", "seed"})
