"""The ControlNet method: draws a caption anew, on top of a control image of the source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from PIL import Image
from pydantic import model_validator

from pipeline.conditioning import control_image, painted
from pipeline.errors import UserError
from pipeline.image_checks import image_checks
from pipeline.image_sections import DRAWN_BY_MODEL
from pipeline.images import SIDE_MULTIPLE, fit, fitted_size, image_sha
from pipeline.lineage import Batch, Lineage, MethodSettings, TestCase
from pipeline.masks import NO_MASK, InMask, NamedMask, in_mask
from pipeline.methods.base import Artifact, MethodDescription, mask_key
from pipeline.profile import Profile
from pipeline.progress import OnProgress, Progress, stop_if
from pipeline.prompting import PromptSet
from pipeline.seams import (
    BatchGenerator,
    Detector,
    Drawn,
    Embedder,
    Generator,
    Models,
    OnStep,
    Planned,
    Prepared,
    Source,
    Wanted,
)
from pipeline.settings import ConditioningSettings, ControlKind, GenerationSettings
from pipeline.speed import Effort, effort_of
from pipeline.types import GENERATION, Check, CounterfactualCaption, Task
from pipeline.webui import MadeWith, file_name, joined
from pipeline.weight_hashes import weights_hash
from pipeline.words import classes_in

CONTROL_IMAGE = "control image"
"""The name of the artifact."""
SAFE = "safety checker"
"""The name of the check that holds its verdict."""
_MODULES = {"canny": "canny", "soft edges": "softedge_hed", "line art": "lineart", "depth": "depth_midas"}
"""What the web UI's ControlNet extension calls the kinds of conditioning."""


class ControlNetSettings(MethodSettings):
    """What an image of this method was made with."""

    conditioning: ConditioningSettings = ConditioningSettings()
    generation: GenerationSettings = GenerationSettings()
    batch: Batch = Batch()
    """The one that the image was drawn in; no setting of a run."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, data: Any) -> Any:
        # Until format 2 the settings of the generation stood side by side, with "conditioning" among them. What a
        # version did not record is as it was then, the default.
        if not isinstance(data, dict) or "generation" in data:
            return data
        held = dict(data)
        conditioning = held.pop("conditioning", {})
        return {"conditioning": conditioning, "generation": held}

    @property
    def steps(self) -> int:
        """Denoising steps of an image."""
        return self.generation.steps

    @property
    def drawn_in(self) -> Batch | None:
        """The batch that it was drawn in."""
        return self.batch

    def plain(self) -> dict[str, Any]:
        """As versions wrote it that drew one image at a time, where that is so."""
        return self.model_dump(mode="json", exclude=set() if self.batch != Batch() else {"batch"})

    def pixels(self) -> tuple[Any, ...]:
        """All that decides the pixels of an image.

        It leaves out how many images are asked for, where their seeds come from, and the settings of other kinds of
        control image; and how many are drawn at once, which nobody sees in them.
        """
        return self.control(), self.generation.model_dump(exclude={"images_per_caption", "seed_mode", "seed", "batch"})

    def control(self) -> dict[str, Any]:
        """All that decides the control image of a source, but for its size."""
        return self.conditioning.model_dump(include={"kind", *self.conditioning.own_fields()})


class ControlNetDescription(MethodDescription):
    """The ControlNet method as data."""

    title = "ControlNet"
    settings_type = ControlNetSettings
    artifacts = (Artifact(CONTROL_IMAGE, "Control", "The control image that it was drawn on", lines=True),)
    draws_whole = True

    @property
    def sections(self) -> tuple[str, ...]:
        """What the control image shows, and how is drawn."""
        return ("conditioning", "generation")

    def drawn_alike(self, recorded: MethodSettings, settings: MethodSettings) -> bool:
        """Whether the pixels would be the same: see `ControlNetSettings.pixels`."""
        if not isinstance(recorded, ControlNetSettings) or not isinstance(settings, ControlNetSettings):
            return False
        return recorded.pixels() == settings.pixels()

    def prompt(
        self, prompts: PromptSet, counterfactual: CounterfactualCaption, task: Task, held: InMask = NO_MASK
    ) -> str:
        """The caption, and the label or the protected classes: as `$shown` only those that the picture holds, since a
        diffusion model draws what it is told of; as `$kept` all of them.

        The mask says what the picture holds; of a class that it does not know, or without one, the caption does.
        """
        shown = list(task.kept())
        if task.kind == "segmentation":
            named = () if all(name in held for name in shown) else _named(counterfactual.text, tuple(shown))
            shown = [name for name in shown if held.get(name, name in named)]
        template = prompts["diffusion"] if shown else prompts["diffusion"].without("shown")
        return template.evaluate(caption=counterfactual.text, kept=", ".join(task.kept()), shown=", ".join(shown))

    def model_name(self, models: Models, settings: MethodSettings) -> str:
        """The generator with its ControlNet for the kind of control image."""
        return models.generator_name(_own(settings).conditioning.kind)

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        """The control image hangs on the pixels of the source, its own settings, its size, and the mask for a map."""
        own = _own(settings)
        drawn_on = mask_key(source.mask) if self.needs_mask(own) else None
        return image_sha(source.image), own.generation.short_side, tuple(sorted(own.control().items())), drawn_on

    def refused(self, profile: Profile, settings: MethodSettings) -> str:
        """The profile needs a ControlNet for the kind of control image, and the thresholds their order."""
        own = _own(settings).conditioning
        kind, kinds = own.kind, profile.generator.controlnets
        if kind == "canny" and own.low > own.high:
            said = f"The lower threshold ({own.low}) is above the upper one ({own.high})"
            return f"{said}: take a smaller one, or raise the upper one first."
        return "" if kind in kinds else f"This profile has no ControlNet for {kind}: take {', '.join(kinds)}."

    def lacks(self, settings: MethodSettings, masked: bool) -> str:
        """A segmentation map needs a mask."""
        if self.needs_mask(settings) and not masked:
            return "A segmentation map is painted from the mask, which this run has not: add one, or take edges."
        return ""

    def needs_mask(self, settings: MethodSettings) -> bool:
        """For a segmentation map alone."""
        return isinstance(settings, ControlNetSettings) and settings.conditioning.kind == "segmentation"

    def mask_artifacts(
        self, settings: MethodSettings, mask: NamedMask, size: tuple[int, int]
    ) -> Mapping[str, Image.Image]:
        """The segmentation map that is painted from the mask."""
        if not self.needs_mask(settings):
            return {}
        drawn_size = fitted_size(size, _own(settings).generation.short_side, SIDE_MULTIPLE)
        return {CONTROL_IMAGE: _as_shown(painted(mask, drawn_size), size)}

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        """By the size and the steps of the generation."""
        return effort_of(settings.generation, size) if isinstance(settings, ControlNetSettings) else None

    def with_models(self, models: Models, prompts: PromptSet, labels: Sequence[str] = ()) -> ControlNetMethod:
        """Loads the generator and the embedder; a detector is loaded when its kind of control image is drawn."""
        return ControlNetMethod(models.generator, models.embedder, prompts, labels=labels, detector=models.detector)

    def parameters(self, lineage: Lineage, size: tuple[int, int], made_with: MadeWith) -> Mapping[str, Any]:
        """With what the ControlNet extension writes. A lineage names base model and ControlNet with a plus between."""
        settings = lineage.settings
        if not isinstance(settings, ControlNetSettings):
            return super().parameters(lineage, size, made_with)
        base, _, network = lineage.model.partition(" + ")
        conditioning, drawing = settings.conditioning, settings.generation
        width, height = fitted_size(size, drawing.short_side, SIDE_MULTIPLE)
        canny = conditioning.kind == "canny"
        unit = {
            "Module": _MODULES.get(conditioning.kind, conditioning.kind),
            "Model": made_with.unit_model(network),
            "Weight": drawing.control_strength,
            "Threshold A": conditioning.low if canny else None,
            "Threshold B": conditioning.high if canny else None,
        }
        return {
            "Steps": drawing.steps,
            "Sampler": made_with.sampler,
            "CFG scale": drawing.guidance,
            "Seed": lineage.seed,
            "Size": f"{width}x{height}",
            "Model hash": made_with.model_hash(base),
            "Model": file_name(base),
            "ControlNet 0": joined(unit),
        }

    def weight_hashes(self, profile: Profile, settings: MethodSettings) -> Mapping[str, str]:
        """Of the denoising network, and of the ControlNet for the kind of control image."""
        generator = profile.generator
        hashes = {generator.title: weights_hash(generator, "unet")}
        if isinstance(settings, ControlNetSettings) and settings.conditioning.kind in generator.controlnets:
            network = generator.controlnets[settings.conditioning.kind]
            hashes[network.title] = weights_hash(network)
        return hashes


CONTROLNET = ControlNetDescription("controlnet")


@dataclass(frozen=True)
class ControlNetPrepared(Prepared):
    """A source with its control image."""

    settings: ControlNetSettings
    control: Image.Image
    """RGB, at the size at which is drawn."""


class ControlNetMethod:
    """Draws a counterfactual caption on a control image of the source (its edges, its depth, ...), and brings the
    result to the source's size, so that masks and boxes of the source fit it pixel by pixel. Without an embedder only
    the edges are checked.
    """

    def __init__(
        self,
        generator: Generator,
        embedder: Embedder | None,
        prompts: PromptSet,
        name: str = CONTROLNET.name,
        labels: Sequence[str] = (),
        detector: Callable[[ControlKind], Detector] | None = None,
    ) -> None:
        """`labels` are the classes that a label is told apart from, for the checks alone; `detector` gives the models
        of those kinds of control image that need one.
        """
        self.name = name
        self._generator, self._embedder, self._prompts = generator, embedder, prompts
        self._labels, self._detector = tuple(labels), detector
        self._at_work = generator

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> ControlNetPrepared:
        """The control image. Raises UserError when there is none of the kind to be had."""
        own = _own(settings)
        if on_progress is not None and own.conditioning.kind in DRAWN_BY_MODEL:
            on_progress(Progress(GENERATION, 0, 1, note="drawing the control image"))
        stop_if(cancelled)
        fitted = fit(source.image, own.generation.short_side, SIDE_MULTIPLE)
        control = control_image(fitted, own.conditioning, self._detector, source.mask)
        return ControlNetPrepared(source, own, {CONTROL_IMAGE: _as_shown(control, source.image.size)}, control)

    def make(
        self, prepared: ControlNetPrepared, counterfactual: CounterfactualCaption, seed: int, on_step: OnStep
    ) -> TestCase:
        """One test case. Same arguments, same pixels on the same machine. Raises what the generator raises."""
        (finish,) = self.make_batch(prepared, [Planned(counterfactual, seed, 0)], 1, on_step)
        return finish()

    def batch(self, prepared: ControlNetPrepared, waiting: int) -> int:
        """As many as the settings say; else as are best for the generator, and no more than there are."""
        generator = self._generator.on(prepared.settings.conditioning.kind)
        if not isinstance(generator, BatchGenerator):
            return 1
        return prepared.settings.generation.batch or max(1, min(waiting, generator.batch(prepared.control.size)))

    def make_batch(
        self, prepared: ControlNetPrepared, images: Sequence[Planned], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        """The test cases of a batch: drawn together, then checked and given one by one."""
        start = time.monotonic()
        settings = prepared.settings
        self._at_work = generator = self._generator.on(settings.conditioning.kind)
        task, held = prepared.source.task, in_mask(prepared.source.mask, prepared.source.task)
        prompts = [CONTROLNET.prompt(self._prompts, image.counterfactual, task, held) for image in images]
        if isinstance(generator, BatchGenerator):
            wanted = [Wanted(prompt, image.seed, image.place) for prompt, image in zip(prompts, images, strict=True)]
            all_drawn = generator.draw(wanted, size, prepared.control, settings.generation, on_step)
        else:
            all_drawn = [
                Drawn(generator.generate(prompt, prepared.control, settings.generation, image.seed, on_step), Batch())
                for prompt, image in zip(prompts, images, strict=True)
            ]
        seconds = (time.monotonic() - start) / len(images)
        return [
            partial(self._case, prepared, image, prompt, drawn, generator.name, seconds)
            for image, prompt, drawn in zip(images, prompts, all_drawn, strict=True)
        ]

    def _case(
        self,
        prepared: ControlNetPrepared,
        planned: Planned,
        prompt: str,
        result: Drawn,
        model: str,
        seconds: float,
    ) -> TestCase:
        if result.image is None:
            raise result.refused or UserError("This image was refused: try another seed, or change the caption.")
        source, settings, counterfactual = prepared.source, prepared.settings, planned.counterfactual
        size, drawn = source.image.size, result.image
        image = drawn if drawn.size == size else drawn.resize(size, Image.Resampling.LANCZOS)
        lineage = Lineage(
            counterfactual=counterfactual,
            seed=planned.seed,
            method=self.name,
            model=model,
            prompt=prompt,
            negative_prompt=settings.generation.negative_prompt if settings.generation.guidance > 1 else "",
            settings=settings.model_copy(update={"batch": result.batch}),
            seconds=seconds,
        )
        checks = image_checks(
            source.image,
            image,
            prepared.control,
            source.caption,
            counterfactual,
            source.task,
            self._embedder,
            self._labels,
            settings.conditioning,
            drawn,
            source.mask,
        )
        if result.safe is not None:
            checks = (*checks, Check(SAFE, result.safe))
        return TestCase(image, lineage, prepared.artifacts, checks)

    @property
    def placing(self) -> str:
        """Where the generator runs and why, in words; "" where it does not say."""
        return str(getattr(self._generator, "placing", ""))

    def preview(self) -> Image.Image | None:
        """What the image that is being made looks like now; to be asked from within `on_step`."""
        return self._at_work.preview()


@lru_cache(maxsize=4096)
def _named(text: str, protected: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the protected classes that a caption names. A look at a run asks for each of its images anew."""
    return classes_in(text, Task("segmentation", protected=protected))


def _own(settings: MethodSettings) -> ControlNetSettings:
    if not isinstance(settings, ControlNetSettings):
        raise TypeError(f"the ControlNet method takes its own settings, not {type(settings).__name__}")
    return settings


def _as_shown(control: Image.Image, size: tuple[int, int]) -> Image.Image:
    return control if control.size == size else control.resize(size, Image.Resampling.NEAREST)
