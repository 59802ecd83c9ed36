"""The method `edit`: redraws the source with a changed caption, from the source's own noise (prompt-to-prompt).

The picture of a changed caption is drawn in one batch with its source, on the same control image, and takes over the
source's attention (`pipeline.models.attention`). So it equals the source except for what its caption changes. All
images of a caption are equal. Only the strength of the edit can vary: a sweep tries several strengths.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from PIL import Image
from pydantic import Field

from core.errors import UserError
from core.images import SIDE_MULTIPLE, fit, image_sha
from core.lineage import DrawnBatch, Lineage, MethodSettings, TestCase
from core.masks import in_mask
from core.regions import WHOLE, Region
from core.settings import EditSettings, Settings
from core.types import Check, CounterfactualCaption
from pipeline.checks.images import BANDS, INVERTED
from pipeline.drawing_speed import Effort
from pipeline.methods.controlnet import ControlNetDescription, ControlNetMethod, ControlNetPrepared, ControlNetSettings
from pipeline.methods.drawing import DriftingMethod, DriftingSettings, part_of, placed
from pipeline.models.batching import AtOnce, judged
from pipeline.models.inverting import Control, Inversion, steps_of
from pipeline.models.model_memory import UsesMemory
from pipeline.profiles.profile import Profile
from pipeline.run_files.webui import MadeWith
from pipeline.seams import CaseRequest, DrawnImage, DrawRequest, OnStep, Source

GUIDANCES = (1.5, 1.4, 1.3, 1.2, 1.1, 1.0)
SELF_REPLACEMENTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of self-replacement that a sweep tries, from a strong to a weak edit. LANCE tries the same shares."""
SWEEP = "strength"
"""Name of the check that reports the edit strength that a sweep chose."""
_EQUAL = "An edit of the inverted source has no noise of its own, so all images of a caption are equal and one is made."
_UNREAD = (
    "The text encoder reads no difference between this caption and that of the source: change words that the model "
    "knows."
)


class EditedSettings(ControlNetSettings, DriftingSettings):
    edit: EditSettings = EditSettings()
    taken: float | None = Field(None, exclude_if=lambda taken: taken is None)
    """The guidance or share of self-replacement that a sweep used, or None. Recorded, not set by a user."""
    painted: Region | None = Field(None, exclude_if=lambda region: region is None)
    """Region of the source that may change. Recorded with an image, not set by a user."""

    @property
    def region(self) -> Region | None:
        return self.painted

    @property
    def guidance(self) -> float:
        swept = self.taken if self.edit.sweep == "guidance" else None
        return self.generation.guidance if swept is None else swept

    @property
    def self_replace(self) -> float:
        swept = self.taken if self.edit.sweep == "self-replacement" else None
        return self.edit.self_replace if swept is None else swept

    @property
    def swept(self) -> tuple[float, ...]:
        """Strengths that a sweep tries, from strong to weak. Each draws a different image. Empty without a sweep."""
        if self.edit.sweep == "guidance":
            return GUIDANCES
        values = SELF_REPLACEMENTS if self.edit.sweep == "self-replacement" else ()
        return tuple({steps_of(value, self.steps): value for value in reversed(values)}.values())[::-1]

    def pixels(self) -> tuple[Any, ...]:
        return *super().pixels(), self.edit, self.painted


_own = EditedSettings.own


class EditMethod(DriftingMethod[ControlNetPrepared], ControlNetMethod):
    """Draws images for changed captions from the noise of the inverted source. A batch may also redraw the source."""

    def prepare(self, source: Source, *arguments: Any, **more: Any) -> ControlNetPrepared:
        """Make control image and inversion. Also raises UserError if the source cannot be redrawn well enough."""
        prepared = super().prepare(source, *arguments, **more)
        decibels = self._inversion(prepared).psnr
        least = {**BANDS, **getattr(self._embedder, "bands", {})}[INVERTED].failed_below
        if decibels < least:
            raise UserError(
                f"This source cannot be edited: redrawn without a change, it reaches a PSNR of only {decibels:.1f} dB, "
                f"and {least:.0f} dB are needed. Take more steps or inversion evaluations, or use the recipe DILLEMA."
            )
        return prepared

    def batch(self, prepared: ControlNetPrepared, waiting: int | None = None, watched: bool = True) -> int:
        at_once, own = super().batch(prepared, waiting, watched), _own(prepared.settings)
        return max(1, at_once // len(own.swept)) if own.edit.full_sweep and own.swept else at_once

    def together(self, prepared: ControlNetPrepared, counterfactual: CounterfactualCaption) -> Hashable:
        """Return a key that differs between sources. So each batch has one source, which the batch may redraw too."""
        source = prepared.source
        region = None if source.region is None else image_sha(source.region)
        return super().together(prepared, counterfactual), image_sha(source.image), source.caption, region

    def make(
        self, prepared: Sequence[ControlNetPrepared], images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        """With a sweep, draw each image at several strengths and return the first that passes its checks. A full sweep
        draws all strengths in one batch and returns the passing image with the highest "edit direction". If none
        passes, the image that fails the fewest checks is returned.
        """
        own = _own(prepared[0].settings)
        values, count = own.swept, len(own.swept)
        if not values:
            return super().make(prepared, images, size, on_step)

        def at(source: ControlNetPrepared, value: float) -> ControlNetPrepared:
            return replace(source, settings=source.settings.model_copy(update={"taken": value}))

        tried: list[list[Callable[[], TestCase]]] = [[] for _ in images]
        if own.edit.full_sweep:
            rows = [at(source, value) for source in prepared for value in values]
            places = [replace(one, place=one.place * count + at) for one in images for at in range(count)]
            finishes = super().make(rows, places, size * count, on_step)
            tried = [[cache(one) for one in finishes[at * count :][:count]] for at in range(len(images))]
        else:
            left = list(range(len(images)))
            for number, value in enumerate(values):
                rows, step = [at(prepared[image], value) for image in left], partial(part_of, on_step, number, count)
                finishes = super().make(rows, [images[image] for image in left], size, step)
                for image, finish in zip(left, finishes, strict=True):
                    tried[image].append(cache(finish))
                left = [image for image in left if not _settled(tried[image][-1])]
                if not left:
                    break
        return [partial(_best, finishes, own) for finishes in tried]

    def _source_prompt(self, source: Source) -> str:
        """Return the source's prompt, made from its unedited caption. An image's prompt differs only by the edit."""
        unedited = CounterfactualCaption(source.caption, ())
        return self._description.prompt(self._prompts, unedited, source.task, in_mask(source.mask, source.task)) or ""

    def _inversion(self, prepared: ControlNetPrepared) -> Inversion:
        """Return the prepared inversion, or a new one if the prompt of the source has changed since."""
        prompt, inversion = self._source_prompt(prepared.source), prepared.inversion
        if inversion is not None and inversion.caption == prompt:
            return inversion
        picture = _picture(prepared)
        return self._inverted(prompt, prepared.settings, picture, prepared.control, lambda _done, _total: None)

    def _negative_prompt(self, prepared: ControlNetPrepared) -> str:
        """Return the prompt of the source, which is used as the negative prompt."""
        return self._source_prompt(prepared.source)

    def _request(self, prepared: ControlNetPrepared, prompt: str, image: CaseRequest) -> DrawRequest:
        return DrawRequest(prompt, image.seed, image.place)

    def _draw(
        self, prepared: Sequence[ControlNetPrepared], requests: Sequence[DrawRequest], size: int, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        first, own = prepared[0], _own(prepared[0].settings)
        inversion, picture = self._inversion(first), _picture(first)
        self._at_work = generator = self._model.on(own.conditioning.kind)
        free_others = generator.free_others if isinstance(generator, UsesMemory) else UsesMemory.free_others
        values = len(own.swept) if own.edit.full_sweep and own.swept else 1
        length, by_length = generator.reading_length, dict[int, list[tuple[EditedSettings, DrawRequest]]]()
        for one, request in zip(prepared, requests, strict=True):
            read_as = max(length(request.prompt), length(inversion.caption))
            by_length.setdefault(read_as, []).append((_own(one.settings), request))
        total, begun, done = len(by_length) * size, 0, dict[int, DrawnImage]()

        def draw(part: Sequence[tuple[EditedSettings, DrawRequest]], before: int) -> list[DrawnImage]:
            prompts, drawing = [request.prompt for _, request in part], own.generation
            conditioning = Control(first.control, drawing.control_strength, drawing.control_until)
            with self._inverts(own).inverting(drawing.inversion(), conditioning) as inverter:
                source = inverter.windows(inversion.caption)
                unread = [text != inversion.caption and inverter.windows(text) == source for text in prompts]
                read = [inversion.caption if one else text for one, text in zip(unread, prompts, strict=True)]
                control = inverter.control(
                    inversion, read, own.edit, [one.self_replace for one, _ in part], first.source.region
                )

                def told(step: int, steps: int) -> None:
                    on_step((begun + before) * steps + len(part) * step, total * steps)

                guidances = [one.guidance for one, _ in part]
                latents = inverter.redraw(inversion, read, guidances, control=control, on_step=told)
                images, flagged = inverter.images(latents)
            results = []
            for at, image in enumerate(images):
                batch = DrawnBatch(size=max(1, len(part) // values), place=at // values)
                drawn = judged(image, None if flagged is None else bool(flagged[at]), batch)
                refused = DrawnImage(None, batch, refused=UserError(_UNREAD))
                results.append(refused if unread[at] else drawn)
            return results

        for alike in by_length.values():  # a batch holds prompts of one length
            rows = [alike[0]] * size  # filled up, so that pixels do not depend on how many are drawn
            for settings, request in alike:
                rows[request.place] = settings, request
            drawn = AtOnce(size).each(rows, draw, free_others)
            done |= {request.place: placed(picture, drawn[request.place]) for _, request in alike}
            begun += size
        return [done[request.place] for request in requests]


class EditDescription(ControlNetDescription):
    title = "Edited from its noise"
    settings_type = EditedSettings
    method_type = EditMethod
    draws_whole = False
    decided = MappingProxyType(
        {"start": "inverted", "fresh_noise": 0.0, "fresh_noise_by_type": "", "negative_prompt": ""}
    )

    sections = (*ControlNetDescription.sections, "edit")

    def settings_of(self, settings: Settings, source_caption: str = "", region: Region = WHOLE) -> MethodSettings:
        return super().settings_of(settings, source_caption).model_copy(update={"painted": region})

    def equal_images(self, settings: MethodSettings) -> str:
        return _EQUAL

    def cannot_draw(self, profile: Profile) -> str:
        return profile.generator.cannot_invert

    def shape(self, settings: MethodSettings, size: tuple[int, int]) -> Hashable:
        return super().shape(settings, size), _own(settings).edit

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        effort = super().effort(settings, size)
        if effort is None or not isinstance(settings, EditedSettings):
            return effort
        return replace(effort, by=f"{self.name}, sweep {settings.edit.sweep}, full {settings.edit.full_sweep}")

    def preparing(self, settings: MethodSettings) -> float:
        """Return the preparation time divided by an image's drawing time. A redrawn source doubles the drawing time."""
        own = _own(settings).edit
        reads_source = own.cross_replace or own.self_replace or own.local_blend or own.sweep == "self-replacement"
        return super().preparing(settings) / (2 if reads_source else 1)

    def parameters(self, lineage: Lineage, size: tuple[int, int], made_with: MadeWith) -> Mapping[str, Any]:
        fields, settings = super().parameters(lineage, size, made_with), lineage.settings
        if not isinstance(settings, EditedSettings):
            return fields
        own = {"Cross replace": settings.edit.cross_replace, "Self replace": settings.self_replace}
        return {**fields, "CFG scale": settings.guidance, **own}


EDIT = EditDescription("edit")


def _picture(prepared: ControlNetPrepared) -> Image.Image:
    return fit(prepared.source.image, prepared.settings.generation.short_side, SIDE_MULTIPLE)


def _failures(case: TestCase) -> int:
    return sum(check.passed is False for check in case.checks)


def _settled(finish: Callable[[], TestCase]) -> bool:
    """Return True if an image passes its checks, or cannot be made at any strength."""
    try:
        return not _failures(finish())
    except UserError:
        return True


def _best(finishes: Sequence[Callable[[], TestCase]], settings: EditedSettings) -> TestCase:
    """Return the best test case of a sweep, with the time of the whole sweep and a check that reports the strength."""
    cases = [finish() for finish in finishes]
    least = min(_failures(case) for case in cases)
    best = [case for case in cases if _failures(case) == least]
    chosen = max(best, key=_direction) if settings.edit.full_sweep and not least else best[0]
    taken, values = _own(chosen.lineage.settings).taken, settings.swept
    note = (
        f"Drawn at {settings.edit.sweep} {taken:g}, number {cases.index(chosen) + 1} of {len(values)}, strongest first."
    )
    if dropped := len(GUIDANCES) - len(values):
        note += f" At {settings.steps} steps {dropped} other values draw the same as these and are left out."
    lineage = replace(chosen.lineage, seconds=sum(case.lineage.seconds for case in cases))
    return replace(chosen, lineage=lineage, checks=(*chosen.checks, Check(SWEEP, True, taken, note)))


def _direction(case: TestCase) -> float:
    return next((check.value or 0.0 for check in case.checks if check.name == "edit direction"), 0.0)
