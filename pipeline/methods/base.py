"""Describes drawing methods without loading their models, and caches what a method prepares for a source."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.latest import Latest
from core.lineage import Artifact, Lineage, MethodSettings, UnreadSettings
from core.masks import NO_MASK, InMask, NamedMask
from core.progress import OnProgress
from core.regions import WHOLE, Region
from core.settings import GenerationSettings, Settings
from core.types import CounterfactualCaption, Task
from pipeline.drawing_speed import Effort
from pipeline.profiles.image_sections import DrawingModel
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet
from pipeline.run_files.webui import MODEL_DIGITS, MadeWith, file_name
from pipeline.seams import InversionStore, Method, Models, P, Prepared, Source


class MethodDescription:
    """Description of a drawing method. This base class describes an unknown method."""

    title = ""
    settings_type: type[MethodSettings] = UnreadSettings
    method_type: type[Any] | None = None
    """Class of the method itself, which `with_models` creates. None for an unknown method."""
    artifacts: tuple[Artifact, ...] = ()
    role = "image generator"
    """Role of the drawing model in the profile."""
    draws_whole = False
    """True if the method draws every pixel, so that the image contains no pixel of the source."""
    steps_setting = "generation.steps"
    """Name of the setting for the number of denoising steps."""
    decided: Mapping[str, Any] = MappingProxyType({})
    """Generation settings that the method fixes, with their values."""

    def __init__(self, name: str) -> None:
        self.name = name

    # Settings

    @property
    def known(self) -> bool:
        """True if this version knows the method."""
        return self.settings_type is not UnreadSettings

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of the settings' sections that this method reads."""
        return tuple(self.settings_type.model_fields) if self.known else ()

    def settings_of(self, settings: Settings, source_caption: str = "", region: Region = WHOLE) -> MethodSettings:
        """Return this method's part of a run's settings. Includes caption and region if the pixels depend on them."""
        return self.settings_type.model_validate({name: getattr(settings, name) for name in self.sections})

    def equal_images(self, settings: MethodSettings) -> str:
        """Return a sentence on why these settings make all images of a caption equal, or "" if they do not."""
        return ""

    def planning(self, settings: Settings) -> GenerationSettings:
        """Return the generation settings that decide how many images are planned and with which seeds. If all images of
        a caption are equal, only one image per caption is planned, with seed 0.
        """
        drawing = settings.generation
        one = {"images_per_caption": 1, "seed_mode": "fixed", "seed": 0}
        return drawing.model_copy(update=one) if self.equal_images(self.settings_of(settings)) else drawing

    # What an image depends on

    def drawn_alike(self, recorded: MethodSettings, settings: MethodSettings) -> bool:
        """Return True if an image drawn with `recorded` settings would have the same pixels with `settings`."""
        return type(recorded) is type(settings) and recorded.pixels() == settings.pixels()

    def prompt(
        self, prompts: PromptSet, counterfactual: CounterfactualCaption, task: Task, classes_in_mask: InMask = NO_MASK
    ) -> str | None:
        """Return an image's prompt, or None if unknown. `classes_in_mask`: protected classes in the source's mask."""
        return None

    def model_name(self, models: Models, settings: MethodSettings) -> str:
        """Return the drawing model's name, as lineages record it, or "" if it is unknown. Loads nothing."""
        return ""

    def runs(self, models: Models) -> str:
        """Return in plain words where the drawing model runs and why, or "" if unknown so far. Loads nothing."""
        return models.runs(self.role)

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        """Return a hashable key of all that `Method.prepare` depends on. Sources with equal keys share its result."""
        region = source.region and image_sha(source.region)
        return image_sha(source.image), source.task, source.caption, mask_key(source.mask), region, settings

    def shape(self, settings: MethodSettings, size: tuple[int, int]) -> Hashable:
        """Return a key for a source of `size`. Images with equal keys can be drawn in one batch."""
        return settings, size

    def cannot_draw(self, profile: Profile) -> str:
        """Return a sentence that tells why a profile cannot draw by this method at all, or "" if it can."""
        return ""

    def refused(self, profile: Profile, settings: MethodSettings) -> str:
        """Return a sentence that tells why a profile cannot draw with these settings, or "" if it can."""
        return self.cannot_draw(profile)

    def lacks(self, settings: MethodSettings, masked: bool) -> str:
        """Return a sentence that tells why a source cannot be drawn with these settings, or "". `masked` is True if the
        source has a mask.
        """
        return ""

    def needs_mask(self, settings: MethodSettings) -> bool:
        """Return True if drawing with these settings uses the source's mask. Then another mask outdates the images."""
        return False

    def mask_artifacts(
        self, settings: MethodSettings, mask: NamedMask, size: tuple[int, int]
    ) -> Mapping[str, Image.Image]:
        """Draw each artifact that depends on the mask of the source, using `mask` instead. Return the artifacts by
        name. `size` is the (width, height) of the source.
        """
        return {}

    def effort(self, settings: MethodSettings, size: tuple[int, int]) -> Effort | None:
        """Return the `Effort` of drawing an image of a source of `size`, or None if unknown."""
        return None

    def preparing(self, settings: MethodSettings) -> float:
        """Return the time that `Method.prepare` takes for a source, as a multiple of the time to draw an image."""
        return 0.0

    def with_models(
        self,
        models: Models,
        prompts: PromptSet,
        labels: Sequence[str] = (),
        inversions: InversionStore | None = None,
    ) -> Method[Any]:
        """Return the method with its models loaded. `labels` are the classes with which checks compare an image's
        label. `inversions` caches inversions. Raises UserError if the method is unknown.
        """
        if self.method_type is None:
            raise UserError(
                f"Images of the method {self.name[:80]!r} cannot be made: this version does not know the method."
            )
        method: Method[Any] = self.method_type(self, models, prompts, labels, inversions)
        return method

    # What other programs read

    def drawn_by(self, profile: Profile) -> DrawingModel | None:
        """Return the profile's model that draws, or None if the profile has none."""
        return profile.generator

    def parameters(self, lineage: Lineage, size: tuple[int, int], made_with: MadeWith) -> Mapping[str, Any]:
        """Return an image's settings, named as in AUTOMATIC1111's web UI (None if unknown). `size` is the image's."""
        return self._fields(lineage, lineage.model, size, made_with)

    def _fields(
        self,
        lineage: Lineage,
        model: str,
        drawn_size: tuple[int, int],
        made_with: MadeWith,
        steps: int | None = None,
        guidance: float | None = None,
    ) -> dict[str, Any]:
        return {
            "Steps": steps,
            "Sampler": made_with.sampler,
            "CFG scale": guidance,
            "Seed": lineage.seed,
            "Size": f"{drawn_size[0]}x{drawn_size[1]}",
            "Model hash": made_with.hashes.get(model, "")[:MODEL_DIGITS],
            "Model": file_name(model),
        }

    def weight_hashes(self, profile: Profile, settings: MethodSettings) -> Mapping[str, str]:
        """Return the sha256 of the weights that draw, by name, or "" for weights that are not on this machine."""
        return {}


def mask_key(mask: NamedMask | None) -> object:
    """Return a key of a mask, made of its pixels and the names of its classes. None without a mask."""
    return None if mask is None else (image_sha(mask.image), tuple(sorted(mask.classes.items())))


class Preparations:
    """A thread-safe cache of the latest preparations of sources. Captions and seeds of a source share a preparation."""

    def __init__(self) -> None:
        self._latest = Latest[Prepared](4)

    def prepared(
        self,
        description: MethodDescription,
        method: Method[P],
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> P:
        """Return what a method prepares for a source, from the cache if possible. Raises errors of `Method.prepare`."""
        key = (description.name, description.preparation_key(source, settings))
        cached: Any = self._latest.get(key)
        if cached is not None:
            # Caption and number of steps may have changed. The preparation does not depend on them.
            return replace(cached, source=source, settings=settings)
        preparation = method.prepare(source, settings, on_progress, cancelled)
        self._latest.put(key, preparation)
        return preparation
