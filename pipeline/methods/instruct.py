"""The method `instruct`: an editing model changes the source as an instruction says, such as "change sunny to snowy".

No control image keeps the shapes of the source. So two checks compare each image with the source. One check compares
edges (corrected for chance), and one check compares outlines of pieces of the mask. Before these checks, a picture that
was shifted or zoomed a little as a whole is moved back (`pipeline.checks.drift`).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from core.images import editing_size, image_sha
from core.lineage import Lineage, MethodSettings
from core.masks import NO_MASK, InMask
from core.progress import OnProgress, stop_if
from core.settings import EditingSettings
from core.thresholds import Band
from core.types import CounterfactualCaption, Task
from pipeline.checks.images import BANDS, FORMS_KEPT
from pipeline.drawing_speed import Effort
from pipeline.methods.base import MethodDescription
from pipeline.methods.drawing import DriftingMethod, DriftingSettings, evenly, placed, shown_classes
from pipeline.models.weight_hashes import weights_hash
from pipeline.profiles.image_sections import EDITOR, DrawingModel
from pipeline.profiles.profile import Profile, lacking
from pipeline.prompting import PromptSet
from pipeline.run_files.webui import MadeWith
from pipeline.seams import (
    DrawnImage,
    DrawRequest,
    Editor,
    Embedder,
    Models,
    OnStep,
    Prepared,
    Source,
)

LINES: Mapping[str, Band] = {**BANDS, FORMS_KEPT: Band(failed_below=0.5, passed_from=0.75)}
"""Thresholds of this method's checks. The check `FORMS_KEPT` fails below 0.5, the mean score of unrelated outlines. An
editing model needs this limit, as no control image keeps outlines in place. In `BANDS`, for methods with a control
image, the check never fails, but may ask a person to look. On 25 drawn roads, scores are 0.91 or more for unmoved
roads, 0.68 or more in other weather or colours, and 0.39 or less for roads moved sideways by 3 % of the width."""


class InstructSettings(DriftingSettings):
    editing: EditingSettings = EditingSettings()

    @property
    def steps(self) -> int:
        return self.editing.steps

    def pixels(self) -> dict[str, Any]:
        return self.editing.model_dump(exclude={"batch"})


_own = InstructSettings.own


@dataclass(frozen=True)
class InstructPrepared(Prepared):
    """A source that is ready to be edited."""

    settings: InstructSettings
    picture: Image.Image
    """The source, resized for editing, RGB."""


class InstructMethod(DriftingMethod[InstructPrepared]):
    """Edits the source by an instruction, with an editor. Without an embedder, only edges and outlines are checked."""

    _model: Editor

    def _load(self, models: Models) -> tuple[Any, Embedder | None]:
        return models.editor, models.embedder

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> InstructPrepared:
        own = _own(settings)
        stop_if(cancelled)
        size = editing_size(source.image.size, own.editing.short_side)
        return InstructPrepared(source, own, {}, source.image.resize(size, Image.Resampling.LANCZOS))

    def batch(self, prepared: InstructPrepared, waiting: int | None = None, watched: bool = True) -> int:
        return prepared.settings.editing.batch or evenly(waiting, self._model.batch(prepared.picture.size))

    def together(self, prepared: InstructPrepared, counterfactual: CounterfactualCaption) -> Hashable:
        """Return the hash of the source. A batch has images of one source, as an editor reads one source at a time."""
        return image_sha(prepared.source.image)

    def _draw(
        self, prepared: Sequence[InstructPrepared], requests: Sequence[DrawRequest], size: int, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        pictures = [one.picture for one in prepared]
        drawn = self._model.draw(requests, size, pictures, prepared[0].settings.editing, on_step)
        return [placed(picture, one) for picture, one in zip(pictures, drawn, strict=True)]

    def _compared(self, prepared: InstructPrepared, image: Image.Image, drawn: Image.Image) -> dict[str, Any]:
        # If the source is larger than the drawn picture, the result has no finer edges than the drawn picture.
        smaller = min(image, drawn, key=lambda one: one.width * one.height)
        return {"control": None, "drawn": smaller, "lines": LINES}


class InstructDescription(MethodDescription):
    title = "Edited by instruction"
    settings_type = InstructSettings
    method_type = InstructMethod
    role = EDITOR
    steps_setting = "editing.steps"
    sections = ("editing",)

    def prompt(
        self, prompts: PromptSet, counterfactual: CounterfactualCaption, task: Task, classes_in_mask: InMask = NO_MASK
    ) -> str:
        """Return the instruction. `$edits` has the edits, such as "red to blue, and sunny to snowy"; `$caption`,
        `$kept` and `$shown` are as with ControlNet. The template's part about edits is left out if there are none.
        """
        shown = shown_classes(counterfactual.text, task, classes_in_mask)
        edits = ", and ".join(f"{edit.keyword} to {edit.alternative}" for edit in counterfactual.edits)
        template = prompts["instruction"]
        for name, value in (("edits", edits), ("shown", shown)):
            template = template if value else template.without(name)
        protected = ", ".join(task.kept())
        return template.evaluate(edits=edits, caption=counterfactual.text, kept=protected, shown=", ".join(shown))

    def model_name(self, models: Models, settings: MethodSettings) -> str:
        return models.editor_name()

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        return image_sha(source.image), _own(settings).editing.short_side

    def cannot_draw(self, profile: Profile) -> str:
        return lacking(profile, "editor")

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        if not isinstance(settings, InstructSettings):
            return None
        width, height = editing_size(size, settings.editing.short_side)
        return Effort(width * height, settings.editing.steps, settings.editing.guidance > 1, by=self.name)

    def drawn_by(self, profile: Profile) -> DrawingModel | None:
        return profile.editor

    def parameters(self, lineage: Lineage, size: tuple[int, int], made_with: MadeWith) -> Mapping[str, Any]:
        settings = lineage.settings
        if not isinstance(settings, InstructSettings):
            return super().parameters(lineage, size, made_with)
        editing = settings.editing
        drawn_size = editing_size(size, editing.short_side)
        return self._fields(lineage, lineage.model, drawn_size, made_with, editing.steps, editing.guidance)

    def weight_hashes(self, profile: Profile, settings: MethodSettings) -> Mapping[str, str]:
        editor = profile.editor
        return {} if editor is None else {editor.title: weights_hash(editor, "transformer")}


INSTRUCT = InstructDescription("instruct")
