"""The ControlNet method: draws a new image from a caption, guided by a control image of the source."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from core.errors import UserError
from core.images import SIDE_MULTIPLE, fit, fitted_size, image_sha
from core.lineage import Lineage, MethodSettings
from core.masks import NO_MASK, InMask, NamedMask, in_mask
from core.progress import OnProgress, Pace, Progress, stop_if
from core.regions import WHOLE, Region
from core.settings import ConditioningSettings, GenerationSettings, Settings, Start
from core.types import GENERATION, CounterfactualCaption, Task
from pipeline.conditioning import control_image, painted, remark_on
from pipeline.drawing_speed import Effort, effort_of
from pipeline.methods.base import Artifact, MethodDescription, mask_key
from pipeline.methods.drawing import BatchedSettings, DrawingMethod, evenly, shown_classes
from pipeline.models.inverting import Control, Inversion, Inverts, inversion_of
from pipeline.models.weight_hashes import weights_hash
from pipeline.profiles.image_sections import DRAWN_BY_MODEL
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet
from pipeline.run_files.webui import MadeWith, joined
from pipeline.seams import (
    CaseRequest,
    DrawnImage,
    DrawRequest,
    Embedder,
    Generator,
    Models,
    OnStep,
    Prepared,
    Source,
)

CONTROL_IMAGE = "control image"
_MODULES = {"canny": "canny", "soft edges": "softedge_hed", "line art": "lineart", "depth": "depth_midas"}
"""Names of the kinds of conditioning in the web UI's ControlNet extension."""
_OF_INVERTED = {"fresh_noise", "fresh_noise_by_type", "inversion_evaluations"}
"""Names of settings that have no effect if drawing starts from random noise."""
_EQUAL = "Without fresh noise, all images of a caption are equal, so one is made: raise fresh noise to get more."
_UNEVEN = (
    "Shares of fresh noise by edit type need some fresh noise for all captions too, so that each seed gives another "
    "image: raise fresh noise for all captions to 0.05 or more."
)


class ControlNetSettings(BatchedSettings):
    conditioning: ConditioningSettings = ConditioningSettings()
    generation: GenerationSettings = GenerationSettings()
    inverted_under: str | None = None
    """Caption under which the source was inverted, or None if it was not. Recorded with an image, not set by a user."""

    @property
    def steps(self) -> int:
        return self.generation.steps

    @property
    def source_caption(self) -> str | None:
        return self.inverted_under

    @property
    def start(self) -> Start:
        return self.generation.start

    def plain(self) -> dict[str, Any]:
        """Return plain data. Without inversion, the fields of inversion are left out, as in earlier versions."""
        plain = super().plain()
        if not self.generation.inverted:
            del plain["inverted_under"]
            for name in ("start", *_OF_INVERTED):
                del plain["generation"][name]
        return plain

    def pixels(self) -> tuple[Any, ...]:
        """Return the settings that affect an image's pixels. Number of images, seeds and batch size are left out."""
        plans = {"images_per_caption", "seed_mode", "seed", "batch"}
        unread = set() if self.generation.inverted else _OF_INVERTED
        return self.control(), self.generation.model_dump(exclude=plans | unread), self.inverted_under

    def control(self) -> dict[str, Any]:
        """Return the settings that determine a source's control image, except its size."""
        return self.conditioning.model_dump(include={"kind", *self.conditioning.own_fields()})


_own = ControlNetSettings.own


@dataclass(frozen=True)
class ControlNetPrepared(Prepared):
    """A source with its control image, and with its inversion if drawing starts from it."""

    settings: ControlNetSettings
    control: Image.Image
    """Control image, RGB, at the size that is drawn."""
    inversion: Inversion | None = None


class ControlNetMethod(DrawingMethod[ControlNetPrepared]):
    """Draws images that follow a caption and a control image, such as the source's edges."""

    _model: Generator

    def _load(self, models: Models) -> tuple[Any, Embedder | None]:
        return models.generator, models.embedder

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> ControlNetPrepared:
        """Make the control image, and the inversion if drawing starts from it. Raises UserError if the control image
        needs a model or a mask that is missing, or if the generator cannot be inverted.
        """
        own = _own(settings)
        if on_progress is not None and own.conditioning.kind in DRAWN_BY_MODEL:
            on_progress(Progress(GENERATION, 0, 1, note="drawing the control image"))
        stop_if(cancelled)
        fitted = fit(source.image, own.generation.short_side, SIDE_MULTIPLE)
        control = control_image(fitted, own.conditioning, self._models.detector, source.mask)
        inversion, pace = None, Pace(1)

        def on_step(done: int, total: int) -> None:
            stop_if(cancelled)
            pace.total = total
            if on_progress is not None:
                on_progress(Progress(GENERATION, done, total, pace.seconds_left(done), "inverting the source"))

        if own.generation.inverted:
            inversion = self._inverted(self._source_prompt(source), own, fitted, control, on_step)
        shown = {CONTROL_IMAGE: control.resize(source.image.size, Image.Resampling.NEAREST)}
        remark = remark_on(control, own.conditioning)
        return ControlNetPrepared(source, own, shown, control, inversion, remark=remark)

    def _source_prompt(self, source: Source) -> str:
        return source.caption

    def _inverted(
        self, caption: str, settings: ControlNetSettings, image: Image.Image, control: Image.Image, on_step: OnStep
    ) -> Inversion:
        """Invert the source with the same control image as in drawing. This makes the inversion more exact."""
        generator, drawing = self._inverts(settings), settings.generation
        held_to = Control(control, drawing.control_strength, drawing.control_until)
        return inversion_of(generator, image, caption, drawing.inversion(), held_to, self._inversions, on_step)

    def _inverts(self, settings: ControlNetSettings) -> Inverts:
        generator: object = self._model.on(settings.conditioning.kind)
        if not isinstance(generator, Inverts):
            raise UserError("This image generator cannot be inverted: use a profile with Stable Diffusion.")
        return generator

    def batch(self, prepared: ControlNetPrepared, waiting: int | None = None, watched: bool = True) -> int:
        best = self._model.on(prepared.settings.conditioning.kind).batch(prepared.control.size, watched)
        return prepared.settings.generation.batch or evenly(waiting, best)

    def together(self, prepared: ControlNetPrepared, counterfactual: CounterfactualCaption) -> Hashable:
        """Return the prompt's length in windows of the text encoder. Only prompts of equal length share a batch."""
        generator = self._model.on(prepared.settings.conditioning.kind)
        classes_in_mask = in_mask(prepared.source.mask, prepared.source.task)
        return generator.reading_length(self._prompt(prepared, counterfactual, classes_in_mask))

    def _draw(
        self, prepared: Sequence[ControlNetPrepared], requests: Sequence[DrawRequest], size: int, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        settings = prepared[0].settings
        self._at_work = generator = self._model.on(settings.conditioning.kind)
        return generator.draw(requests, size, [one.control for one in prepared], settings.generation, on_step)

    def _request(self, prepared: ControlNetPrepared, prompt: str, image: CaseRequest) -> DrawRequest:
        request = super()._request(prepared, prompt, image)
        if prepared.inversion is None:
            return request
        start = prepared.inversion.start(image.seed, _fresh_noise(prepared.settings, image.counterfactual))
        return replace(request, start=start, negative_prompt=self._negative_prompt(prepared))

    def _negative_prompt(self, prepared: ControlNetPrepared) -> str:
        """Return the negative prompt of the settings. If the settings have none and the source is inverted, return the
        source's caption (negative-prompt inversion): guidance then strengthens the edit. Return "" without guidance.
        """
        drawing = prepared.settings.generation
        if drawing.guidance <= 1:
            return ""
        return drawing.negative_prompt or (prepared.source.caption if prepared.inversion is not None else "")

    def _compared(self, prepared: ControlNetPrepared, image: Image.Image, drawn: Image.Image) -> dict[str, Any]:
        compared = {"control": prepared.control, "conditioning": prepared.settings.conditioning, "drawn": drawn}
        return compared | ({} if prepared.inversion is None else {"psnr": prepared.inversion.psnr})


class ControlNetDescription(MethodDescription):
    title = "ControlNet"
    settings_type = ControlNetSettings
    method_type = ControlNetMethod
    artifacts: tuple[Artifact, ...] = (
        Artifact(CONTROL_IMAGE, "Control", "The control image that it was drawn on", lines=True),
    )
    draws_whole = True
    sections: tuple[str, ...] = ("conditioning", "generation")

    def settings_of(self, settings: Settings, source_caption: str = "", region: Region = WHOLE) -> MethodSettings:
        drawing = settings.generation.model_copy(update=self.decided)
        own = _own(super().settings_of(settings.model_copy(update={"generation": drawing})))
        return own.model_copy(update={"inverted_under": source_caption}) if own.generation.inverted else own

    def equal_images(self, settings: MethodSettings) -> str:
        drawing = _own(settings).generation
        return _EQUAL if drawing.inverted and not drawing.fresh_noise else ""

    def prompt(
        self, prompts: PromptSet, counterfactual: CounterfactualCaption, task: Task, classes_in_mask: InMask = NO_MASK
    ) -> str:
        """Return the prompt. In the template, `$caption` is the caption, and `$kept` lists the label or all protected
        classes. `$shown` omits classes that the picture lacks, since a diffusion model would draw these classes.
        """
        shown = shown_classes(counterfactual.text, task, classes_in_mask)
        template = prompts["diffusion"] if shown else prompts["diffusion"].without("shown")
        return template.evaluate(caption=counterfactual.text, kept=", ".join(task.kept()), shown=", ".join(shown))

    def model_name(self, models: Models, settings: MethodSettings) -> str:
        return models.generator_name(_own(settings).conditioning.kind)

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        """Return the inputs of the control image: source, drawn size, settings, and for the kind "segmentation" the
        mask. If drawing starts from an inversion, add the inversion's inputs, such as the source's caption.
        """
        own = _own(settings)
        drawn_on = mask_key(source.mask) if self.needs_mask(own) else None
        drawing, inverted = own.generation, None
        if drawing.inverted:
            inverted = source.caption, drawing.inversion(), drawing.control_strength, drawing.control_until
        return image_sha(source.image), drawing.short_side, tuple(sorted(own.control().items())), drawn_on, inverted

    def refused(self, profile: Profile, settings: MethodSettings) -> str:
        """Return why a profile cannot draw with these settings, or "". Some settings exclude others."""
        drawing = _own(settings).generation
        if drawing.inverted and profile.generator.cannot_invert:
            return profile.generator.cannot_invert
        if drawing.inverted and drawing.fresh_noise_by_type and not drawing.fresh_noise:
            return _UNEVEN
        own = _own(settings).conditioning
        kind, kinds = own.kind, profile.generator.controlnets
        if kind == "canny" and own.low > own.high > 0:
            problem = f"The lower threshold ({own.low}) is above the upper one ({own.high})"
            return f"{problem}: take a smaller one, or raise the upper one first."
        return "" if kind in kinds else f"This profile has no ControlNet for {kind}: take {', '.join(kinds)}."

    def lacks(self, settings: MethodSettings, masked: bool) -> str:
        if self.needs_mask(settings) and not masked:
            return "A segmentation map needs a mask, and this run has none: add a mask, or use edges."
        return ""

    def needs_mask(self, settings: MethodSettings) -> bool:
        return isinstance(settings, ControlNetSettings) and settings.conditioning.kind == "segmentation"

    def mask_artifacts(
        self, settings: MethodSettings, mask: NamedMask, size: tuple[int, int]
    ) -> Mapping[str, Image.Image]:
        if not self.needs_mask(settings):
            return {}
        drawn_size = fitted_size(size, _own(settings).generation.short_side, SIDE_MULTIPLE)
        return {CONTROL_IMAGE: painted(mask, drawn_size).resize(size, Image.Resampling.NEAREST)}

    def shape(self, settings: MethodSettings, size: tuple[int, int]) -> Hashable:
        """Return the kind of control image, the drawn size, and the generation settings that a batch shares."""
        own = _own(settings)
        drawing = own.generation.model_dump(mode="json", exclude={"images_per_caption", "seed_mode", "seed"})
        drawn_size = fitted_size(size, own.generation.short_side, SIDE_MULTIPLE)
        return own.conditioning.kind, drawn_size, tuple(sorted(drawing.items()))

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        return effort_of(settings.generation, size) if isinstance(settings, ControlNetSettings) else None

    def preparing(self, settings: MethodSettings) -> float:
        """Return the time of the inversion divided by the time to draw an image, or 0 without inversion. An inversion
        runs the network `inversion_evaluations` + 1 times per step. Drawing runs it once, or twice with guidance.
        """
        drawing = _own(settings).generation
        evaluations = (drawing.inversion_evaluations + 1) / (2 if drawing.guidance > 1 else 1)
        return evaluations if drawing.inverted else 0.0

    def parameters(self, lineage: Lineage, size: tuple[int, int], made_with: MadeWith) -> Mapping[str, Any]:
        """Add fields of the web UI's ControlNet extension. A lineage names the model as "base model + ControlNet"."""
        settings = lineage.settings
        if not isinstance(settings, ControlNetSettings):
            return super().parameters(lineage, size, made_with)
        base, _, network = lineage.model.partition(" + ")
        conditioning, drawing = settings.conditioning, settings.generation
        drawn_size = fitted_size(size, drawing.short_side, SIDE_MULTIPLE)
        fixed = conditioning.kind == "canny" and conditioning.high > 0
        unit = {
            "Module": _MODULES.get(conditioning.kind, conditioning.kind),
            "Model": made_with.unit_model(network),
            "Weight": drawing.control_strength,
            "Threshold A": conditioning.low if fixed else None,
            "Threshold B": conditioning.high if fixed else None,
        }
        fields = self._fields(lineage, base, drawn_size, made_with, drawing.steps, drawing.guidance)
        if drawing.inverted:
            fields |= {"Sampler": "DDIM", "Start": "inverted source"}
            fields["Fresh noise"] = _fresh_noise(settings, lineage.counterfactual)
            fields["Inversion evaluations"] = drawing.inversion_evaluations
        return {**fields, "ControlNet 0": joined(unit)}

    def weight_hashes(self, profile: Profile, settings: MethodSettings) -> Mapping[str, str]:
        generator = profile.generator
        hashes = {generator.title: weights_hash(generator, "unet")}
        if isinstance(settings, ControlNetSettings) and settings.conditioning.kind in generator.controlnets:
            network = generator.controlnets[settings.conditioning.kind]
            hashes[network.title] = weights_hash(network)
        return hashes


CONTROLNET = ControlNetDescription("controlnet")


def _fresh_noise(settings: ControlNetSettings, counterfactual: CounterfactualCaption) -> float:
    return settings.generation.fresh_noise_of(edit.edit_type for edit in counterfactual.edits)
