"""The method `background`: the subject of the source, pixel by pixel, in front of another background.

The generator draws the background from a description. The layout chooses what else guides the drawing: the source's
edges outside the subject, nothing, or the subject itself (outpainting). The background may also be a picture from a
person's folder. The subject is then put in front, at its old position or moved. A bank is a set of backgrounds that
are drawn once, from descriptions only, and serve every subject.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from core.errors import UserError
from core.images import SIDE_MULTIPLE, fit, fitted_size, image_sha, png_of, read_image
from core.lineage import Artifact, DrawnBatch, MethodSettings, TestCase
from core.masks import NO_MASK, InMask
from core.progress import OnProgress
from core.regions import WHOLE, Region
from core.settings import (
    BackgroundsSettings,
    CompositeSettings,
    GenerationSettings,
    InversionSettings,
    Settings,
    SubjectSettings,
)
from core.types import Check, CounterfactualCaption, Task
from pipeline.checks.backgrounds import background_checks
from pipeline.cutting import Mask, Matrix, composed, move_of, moved
from pipeline.drawing_speed import Effort
from pipeline.methods.controlnet import (
    CONTROL_IMAGE,
    ControlNetDescription,
    ControlNetMethod,
    ControlNetPrepared,
    ControlNetSettings,
)
from pipeline.methods.drawing import evenly, part_of
from pipeline.models.inverting import Inverts
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet
from pipeline.seams import (
    CaseRequest,
    DrawnImage,
    DrawRequest,
    Models,
    OnStep,
    Source,
)
from pipeline.stages.backgrounds import listed, own_picture
from pipeline.stages.subject import NO_SUBJECT, phrases_of

SUBJECT_MASK, BEHIND = "subject mask", "background"
REACH = 0.055
"""Width of the band around the subject, as a share of the short side, in which the control image has no edges."""
OWN_PICTURES = "pictures of a folder"
"""Model name in lineages of images whose background is a picture from the user's folder, not from a model."""
_NO_MODEL: Any = SimpleNamespace(name=OWN_PICTURES, preview=lambda: None)
"""Takes the place of the generator if the backgrounds are a person's pictures."""
_EQUAL = "All images of a caption are equal, as their background is one picture: let the subject move to vary them."
_BANK_OF_TEXT = "The backgrounds of a bank serve every subject, so they come from text alone: choose the layout text."
_MASK_STAYS = "The mask of this run does not move with the subject: switch the moves off, or remove the mask."
_GROWS = (
    "The profile {name} draws no background around the subject, because its model makes the subject grow: take the "
    "layout edges or text."
)


class BackgroundSettings(ControlNetSettings):
    composite: CompositeSettings = CompositeSettings()
    painted: Region | None = None
    """The region outside the subject, which may change. Recorded with an image, not set by a user."""
    subject: SubjectSettings = SubjectSettings()
    """Settings of the subject, including the words by which the checks find it in the new image."""
    backgrounds: BackgroundsSettings = BackgroundsSettings()
    """Settings of backgrounds. Only folder, bank and words to avoid are used."""
    matrix: Matrix | None = None
    """The move of the subject, or None if it was not moved. Recorded with an image, not set by a user."""

    @property
    def steps(self) -> int | None:  # type: ignore[override]
        return None if self.backgrounds.folder else self.generation.steps

    @property
    def region(self) -> Region | None:
        return self.painted

    @property
    def behind(self) -> str:
        """The origin of the background: "folder", "bank", or the name of the layout, such as "text"."""
        named = {"folder": self.backgrounds.folder, "bank": self.backgrounds.bank}
        return next((name for name, value in named.items() if value), self.composite.layout)

    @property
    def avoid(self) -> tuple[str, ...]:
        """Words for things that the background must not show. They go into the negative prompt."""
        return listed(self.backgrounds.avoid)

    def pixels(self) -> tuple[Any, ...]:
        chosen = Path(self.backgrounds.folder).name, bool(self.backgrounds.bank), self.avoid
        return *super().pixels(), self.composite, self.painted, chosen

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain data, without those for text stages only. The folder is given by its name."""
        chosen = self.backgrounds
        read = {"folder": Path(chosen.folder).name, "bank": chosen.bank, "avoid": chosen.avoid}
        return super().plain() | {"backgrounds": {name: value for name, value in read.items() if value}}


_own = BackgroundSettings.own


@dataclass(frozen=True)
class BackgroundPrepared(ControlNetPrepared):
    subject: Mask = field(kw_only=True)


@dataclass(frozen=True)
class ComposedImage(DrawnImage):
    """A subject in front of its background."""

    background: Image.Image = field(kw_only=True)
    mask: Image.Image = field(kw_only=True)
    """Mask of the subject, mode L: 255 where the subject is."""
    matrix: Matrix | None = None


class _WhenNeeded:
    """The generator, loaded only when it draws. Pictures from a folder need no generator."""

    placing = waits = ""

    def __init__(self, models: Models) -> None:
        self._models = models

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models.generator, name)


class BackgroundMethod(ControlNetMethod):
    """Puts the subjects of sources in front of new backgrounds."""

    def _load(self, models: Models) -> tuple[Any, None]:
        return _WhenNeeded(models), None

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> BackgroundPrepared:
        """Make the control image and the subject's mask. Raises UserError if the source has no subject."""
        import cv2

        own = _own(settings)
        if source.region is None:
            raise UserError(NO_SUBJECT)
        size = fitted_size(source.image.size, own.generation.short_side, SIDE_MULTIPLE)
        control, shown = Image.new("RGB", size), dict[str, Image.Image]()
        if own.behind == "edges":
            whole = super().prepare(source, settings, on_progress, cancelled).control
            reach = 2 * round(REACH * min(size)) + 1
            free = np.asarray(source.region.resize(size, Image.Resampling.BOX)) // 255
            control.paste(whole, mask=Image.fromarray(255 * cv2.erode(free, np.ones((reach, reach), np.uint8))))
            shown = {CONTROL_IMAGE: control.resize(source.image.size, Image.Resampling.NEAREST)}
        return BackgroundPrepared(source, own, shown, control, subject=np.asarray(source.region) < 128)

    def batch(self, prepared: ControlNetPrepared, waiting: int | None = None, watched: bool = True) -> int:
        if _own(prepared.settings).behind == "folder":
            return prepared.settings.generation.batch or evenly(waiting, 1)
        return super().batch(prepared, waiting, watched)

    def together(self, prepared: ControlNetPrepared, counterfactual: CounterfactualCaption) -> Hashable:
        return None if _own(prepared.settings).behind == "folder" else super().together(prepared, counterfactual)

    def _negative_prompt(self, prepared: ControlNetPrepared) -> str:
        own, protected = _own(prepared.settings), prepared.source.task.kept()
        if own.generation.guidance <= 1 or own.behind == "folder":
            return ""
        avoid = own.avoid if own.behind == "bank" else (*protected, *own.avoid)
        return ", ".join(filter(None, (own.generation.negative_prompt, *avoid)))

    def _request(self, prepared: ControlNetPrepared, prompt: str, image: CaseRequest) -> DrawRequest:
        own, source = _own(prepared.settings), prepared.source
        request = DrawRequest(prompt, image.seed, image.place, negative_prompt=self._negative_prompt(prepared))
        if own.behind != "outpaint" or source.region is None:
            return request
        side = own.generation.short_side
        return replace(request, kept=(fit(source.image, side), fit(ImageOps.invert(source.region), side)))

    def _draw(
        self, prepared: Sequence[ControlNetPrepared], requests: Sequence[DrawRequest], size: int, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        own, pairs = _own(prepared[0].settings), list(zip(prepared, requests, strict=True))
        if own.behind == "folder":
            self._at_work = _NO_MODEL
            backgrounds: Sequence[DrawnImage] = [_own_background(one, request, size) for one, request in pairs]
            on_step(1, 1)
        else:
            self._at_work = generator = self._model.on(own.conditioning.kind)
            strength = own.generation.control_strength if own.behind == "edges" else 0.0
            drawing = own.generation.model_copy(update={"control_strength": strength})
            controls = [one.control for one in prepared]
            if own.behind == "bank":
                backgrounds = [
                    self._of_bank(control, request, size, drawing, partial(part_of, on_step, number, len(pairs)))
                    for number, (control, request) in enumerate(zip(controls, requests, strict=True))
                ]
            else:
                backgrounds = generator.draw(requests, size, controls, drawing, on_step)
        return [_composed(one, request, drawn) for (one, request), drawn in zip(pairs, backgrounds, strict=True)]

    def _of_bank(
        self, blank: Image.Image, request: DrawRequest, size: int, drawing: GenerationSettings, on_step: OnStep
    ) -> DrawnImage:
        """Return the bank's background for a prompt. Its batch has one image, and its seed is made from the prompt."""
        generator: Any = self._at_work
        model = generator.name
        if isinstance(generator, Inverts):  # the key names the weights
            model = generator.inversion_key(blank, "", InversionSettings(steps=drawing.steps))
        of_images = {"images_per_caption", "seed_mode", "seed", "batch"}
        read = drawing.model_dump(mode="json", exclude=of_images)
        facts = [model, request.prompt, request.negative_prompt, read, blank.size]
        key, batch = hashlib.sha256(json.dumps(facts).encode()).hexdigest(), DrawnBatch(size=size, place=request.place)
        if self._inversions is not None and (stored := self._inversions.read(key)) is not None:
            on_step(drawing.steps, drawing.steps)
            return DrawnImage(Image.open(io.BytesIO(stored)).convert("RGB"), batch)
        seed = int(hashlib.sha256(request.prompt.encode()).hexdigest()[:7], 16)
        (drawn,) = generator.draw([replace(request, seed=seed, place=0)], 1, [blank], drawing, on_step)
        if self._inversions is not None and drawn.image is not None:
            self._inversions.save(key, png_of(drawn.image))
        return replace(drawn, batch=batch)

    def _recorded(self, case: TestCase, result: DrawnImage) -> TestCase:
        assert isinstance(result, ComposedImage)
        lineage = replace(case.lineage, settings=case.lineage.settings.model_copy(update={"matrix": result.matrix}))
        artifacts = {**case.artifacts, BEHIND: result.background, SUBJECT_MASK: result.mask}
        return replace(case, lineage=lineage, artifacts=artifacts)

    def _checks(
        self,
        prepared: ControlNetPrepared,
        counterfactual: CounterfactualCaption,
        image: Image.Image,
        result: DrawnImage,
    ) -> tuple[Check, ...]:
        assert isinstance(result, ComposedImage) and isinstance(prepared, BackgroundPrepared)
        source, models, own = prepared.source, self._models, _own(prepared.settings)
        return background_checks(
            image,
            result.background,
            moved(source.image, prepared.subject, result.matrix)[0],
            np.asarray(result.mask) > 0,
            phrases_of(source.task, own.subject),
            own.avoid,
            models.segmenter if models.segmenter_name() else None,
        )


class BackgroundDescription(ControlNetDescription):
    title = "New background"
    settings_type = BackgroundSettings
    method_type = BackgroundMethod
    draws_whole = False
    artifacts: tuple[Artifact, ...] = (
        *ControlNetDescription.artifacts,
        Artifact(BEHIND, "Background", "The background without the subject"),
        Artifact(SUBJECT_MASK, "Subject", "The place of the subject, white"),
    )
    decided = MappingProxyType({"start": "noise", "fresh_noise": 0.0, "fresh_noise_by_type": ""})

    sections = (*ControlNetDescription.sections, "composite")

    def settings_of(self, settings: Settings, source_caption: str = "", region: Region = WHOLE) -> MethodSettings:
        of_stages = {name: getattr(settings, name) for name in ("subject", "backgrounds")}
        return super().settings_of(settings).model_copy(update={"painted": region, **of_stages})

    def equal_images(self, settings: MethodSettings) -> str:
        own = _own(settings)
        return _EQUAL if own.behind in ("folder", "bank") and not own.composite.moves else ""

    def prompt(
        self, prompts: PromptSet, counterfactual: CounterfactualCaption, task: Task, classes_in_mask: InMask = NO_MASK
    ) -> str:
        return prompts["background"].evaluate(caption=counterfactual.text)

    def model_name(self, models: Models, settings: MethodSettings) -> str:
        return OWN_PICTURES if _own(settings).behind == "folder" else super().model_name(models, settings)

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        region = source.region and image_sha(source.region)
        return super().preparation_key(source, settings), region, _own(settings).behind

    def shape(self, settings: MethodSettings, size: tuple[int, int]) -> Hashable:
        own = _own(settings)
        return super().shape(settings, size), own.composite, own.behind

    def refused(self, profile: Profile, settings: MethodSettings) -> str:
        own = _own(settings)
        if own.behind == "folder":
            return ""
        if own.composite.layout == "outpaint" and not profile.generator.outpaints:
            return _GROWS.format(name=profile.name)
        if own.behind == "bank" and own.composite.layout != "text":
            return _BANK_OF_TEXT
        return super().refused(profile, settings)

    def lacks(self, settings: MethodSettings, masked: bool) -> str:
        own = _own(settings)
        if own.painted is None or own.painted.whole:
            return NO_SUBJECT
        return _MASK_STAYS if masked and own.composite.moves else super().lacks(settings, masked)

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        effort = super().effort(settings, size)
        return effort and replace(effort, by=f"{self.name}, {_own(settings).behind}")


BACKGROUND = BackgroundDescription("background")


def _own_background(prepared: ControlNetPrepared, request: DrawRequest, size: int) -> DrawnImage:
    batch, folder = DrawnBatch(size=size, place=request.place), _own(prepared.settings).backgrounds.folder
    try:
        picture = read_image(own_picture(folder, request.prompt)).image
    except UserError as error:
        return DrawnImage(None, batch, refused=error)
    return DrawnImage(ImageOps.fit(picture, prepared.source.image.size, Image.Resampling.LANCZOS), batch)


def _composed(prepared: ControlNetPrepared, request: DrawRequest, drawn: DrawnImage) -> DrawnImage:
    if drawn.image is None:
        return drawn
    own, source = _own(prepared.settings), prepared.source.image
    assert isinstance(prepared, BackgroundPrepared)
    background = drawn.image.resize(source.size, Image.Resampling.LANCZOS)
    matrix = move_of(own.composite, request.seed, prepared.subject)
    pixels, mask = moved(source, prepared.subject, matrix)
    image = composed(pixels, mask, background, own.composite.soften, own.composite.rim)
    shown = Image.fromarray(np.where(mask, np.uint8(255), np.uint8(0)))
    return ComposedImage(
        image, drawn.batch, drawn.safe, None, drawn.compiling, background=background, mask=shown, matrix=matrix
    )
