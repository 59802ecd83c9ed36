"""Methods: how a test case is made from a source image. Here one: drawing anew on top of the source's edges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from PIL import Image

from pipeline.conditioning import condition
from pipeline.image_checks import image_checks
from pipeline.images import fit
from pipeline.prompting import PromptSet
from pipeline.seams import Embedder, Generator, OnStep
from pipeline.settings import ConditioningSettings, GenerationSettings
from pipeline.types import Check, CounterfactualCaption, Task, TestCase

SIDE_MULTIPLE = 8
"""Latents are smaller by this factor, so both sides of what is generated must be multiples of it."""


class ControlNetMethod:
    """Draws the counterfactual caption on the Canny edges of the source, and brings the result to the source's size, so
    that masks and boxes of the source fit it pixel by pixel. Without an embedder only the edges are checked.
    """

    def __init__(
        self,
        generator: Generator,
        embedder: Embedder | None,
        prompts: PromptSet,
        name: str = "controlnet",
        source_caption: str = "",
        labels: Sequence[str] = (),
    ) -> None:
        """`source_caption` and `labels` (the classes a label is told apart from) are for the checks alone."""
        self.name = name
        self._generator, self._embedder, self._prompts = generator, embedder, prompts
        self._source_caption, self._labels = source_caption, tuple(labels)

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
        """One test case. Same arguments, same pixels on the same machine. Raises what the generator raises."""
        start = time.monotonic()
        prompt = self._prompts.diffusion.evaluate(caption=counterfactual.text, kept=", ".join(task.kept()))
        control = condition(fit(source, settings.short_side, SIDE_MULTIPLE), conditioning)
        drawn = self._generator.generate(prompt, control, settings, seed, on_step)
        image = drawn if drawn.size == source.size else drawn.resize(source.size, Image.Resampling.LANCZOS)
        shown = control if control.size == source.size else control.resize(source.size, Image.Resampling.NEAREST)
        return TestCase(
            image=image,
            control=shown,
            counterfactual=counterfactual,
            seed=seed,
            method=self.name,
            model=self._generator.name,
            prompt=prompt,
            negative_prompt=settings.negative_prompt,
            settings=plain_settings(conditioning, settings),
            seconds=time.monotonic() - start,
            checks=self._checks(source, image, shown, counterfactual, task, conditioning),
        )

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


def plain_settings(conditioning: ConditioningSettings, settings: GenerationSettings) -> dict[str, Any]:
    """What a test case records: the settings of the generation, and under "conditioning" those of the conditioning."""
    return {**settings.model_dump(mode="json"), "conditioning": conditioning.model_dump(mode="json")}
