"""What is known of a method without its models, and the preparations that are kept for its images."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image
from pydantic import ValidationError

from core.errors import UserError
from core.images import image_sha
from core.lineage import Lineage, MethodSettings, UnreadSettings
from core.masks import NO_MASK, InMask, NamedMask
from core.progress import OnProgress
from core.settings import Settings
from core.types import CounterfactualCaption, Task
from pipeline.drawing_speed import Effort
from pipeline.profiles.image_sections import DrawingModel
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet
from pipeline.run_files.webui import MadeWith, file_name
from pipeline.seams import Method, Models, P, Prepared, Source


@dataclass(frozen=True)
class Artifact:
    """One of the images that a method makes on the way and keeps beside its result."""

    name: str
    title: str
    """What a page calls it, in a word or two."""
    words: str
    """What it shows, in a sentence without its full stop."""
    lines: bool = False
    """White lines on black, which a page may lay over the result."""


class MethodDescription:
    """A method as data. This class itself stands for a method that is not known here: it claims nothing."""

    title = ""
    settings_type: type[MethodSettings] = UnreadSettings
    artifacts: tuple[Artifact, ...] = ()
    draws_whole = False
    """Whether every pixel is drawn anew and none of the source's is left."""
    steps_setting = "generation.steps"
    """The setting of a run that says how many denoising steps an image takes."""

    def __init__(self, name: str) -> None:
        self.name = name

    # Settings

    @property
    def known(self) -> bool:
        """Whether this method is known here."""
        return self.settings_type is not UnreadSettings

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of a run's settings that this method reads."""
        return tuple(self.settings_type.model_fields) if self.known else ()

    def settings_of(self, settings: Settings) -> MethodSettings:
        """This method's own among the settings of a run."""
        return self.settings_type.model_validate({name: getattr(settings, name) for name in self.sections})

    def read_settings(self, recorded: Mapping[str, Any]) -> MethodSettings:
        """Recorded settings of an image, by any version of this program; as `UnreadSettings` where they do not fit."""
        if self.known:
            try:
                return self.settings_type.model_validate(dict(recorded))
            except ValidationError:
                pass
        return UnreadSettings(recorded=recorded)

    # What an image hangs on

    def drawn_alike(self, recorded: MethodSettings, settings: MethodSettings) -> bool:
        """Whether an image with the `recorded` settings would be drawn in the same way with `settings`."""
        return recorded == settings

    def prompt(
        self, prompts: PromptSet, counterfactual: CounterfactualCaption, task: Task, held: InMask = NO_MASK
    ) -> str | None:
        """What an image of a caption would be drawn from now, as its lineage would say; None where nobody can tell.

        `held` is what the mask of the source says of the protected classes.
        """
        return None

    def model_name(self, models: Models, settings: MethodSettings) -> str:
        """What would draw with these settings now, as lineages call it; "" where nobody can tell. Loads nothing."""
        return ""

    def runs(self, models: Models) -> str:
        """Where the model runs that draws, and why, in plain words; "" as long as that is not known. Loads nothing."""
        return str(getattr(models, "generator_runs", ""))  # not of those that stand in

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        """What `Method.prepare` hangs on: a preparation serves wherever this is equal. Hashable; here all there is."""
        return image_sha(source.image), source.task, source.caption, mask_key(source.mask), settings

    def shape(self, settings: MethodSettings, size: tuple[int, int]) -> Hashable:
        """What images of a source of `size` have in common with those that could be drawn with them at once."""
        return settings, size

    def cannot_draw(self, profile: Profile) -> str:
        """Why a profile cannot draw in this way at all, in one sentence; else ""."""
        return ""

    def refused(self, profile: Profile, settings: MethodSettings) -> str:
        """Why a profile cannot draw with these settings, in one sentence; else ""."""
        return self.cannot_draw(profile)

    def lacks(self, settings: MethodSettings, masked: bool) -> str:
        """Why nothing can be drawn with these settings of a source with or without a mask, in one sentence; else ""."""
        return ""

    def needs_mask(self, settings: MethodSettings) -> bool:
        """Whether images with these settings are drawn on the mask of their source: another mask outdates them."""
        return False

    def mask_artifacts(
        self, settings: MethodSettings, mask: NamedMask, size: tuple[int, int]
    ) -> Mapping[str, Image.Image]:
        """The artifacts that hang on the mask of a source of `size`, as an image drawn now would have them."""
        return {}

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        """What makes an image of a source of `size` quick or slow to draw; None where that is not known."""
        return None

    def with_models(self, models: Models, prompts: PromptSet, labels: Sequence[str] = ()) -> Method[Any]:
        """The method itself. `labels` are the classes that a label is told apart from, for the checks alone.

        Raises UserError for a method that is not known here.
        """
        raise UserError(f"Images of the method {self.name[:80]!r} cannot be made here: this version does not know it.")

    # What other programs read

    def drawn_by(self, profile: Profile) -> DrawingModel | None:
        """The model of a profile that draws; None where it has none."""
        return profile.generator

    def parameters(self, lineage: Lineage, size: tuple[int, int], made_with: MadeWith) -> Mapping[str, Any]:
        """The settings of an image of this `size` as fields in the words of AUTOMATIC1111's web UI, in their order."""
        return {
            "Sampler": made_with.sampler,
            "Seed": lineage.seed,
            "Size": f"{size[0]}x{size[1]}",
            "Model hash": made_with.model_hash(lineage.model),
            "Model": file_name(lineage.model),
        }

    def weight_hashes(self, profile: Profile, settings: MethodSettings) -> Mapping[str, str]:
        """sha256 of the weights that draw with these settings, by the names that lineages have for them; "" for those
        that are not on this machine.
        """
        return {}


def mask_key(mask: NamedMask | None) -> object:
    """What tells one mask from another: its pixels and the names of its classes."""
    return None if mask is None else (image_sha(mask.image), tuple(sorted(mask.classes.items())))


class Preparations:
    """What methods prepared last, so that many captions and seeds share it. May be used from any thread."""

    def __init__(self, size: int = 4) -> None:
        self._size, self._held, self._lock = size, OrderedDict[object, Prepared](), threading.Lock()

    def prepared(
        self,
        description: MethodDescription,
        method: Method[P],
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> P:
        """The preparation of a source, from before where it still fits. Raises what `Method.prepare` raises."""
        key = (description.name, description.preparation_key(source, settings))
        with self._lock:
            held: Any = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                # The caption and the number of steps may be others by now; what was prepared does not hang on them.
                return replace(held, source=source, settings=settings)
        made = method.prepare(source, settings, on_progress, cancelled)
        with self._lock:
            self._held[key] = made
            while len(self._held) > self._size:
                self._held.popitem(last=False)
        return made
