"""The models of a profile, each loaded at its first use. Only this module maps profile sections to model classes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Any, cast

from core.errors import UserError
from core.model_sections import ClipEmbedder, SentenceModel, Weights
from core.settings import ControlKind
from core.types import Data
from pipeline.models.detectors import AuxDetector
from pipeline.models.model_memory import (
    WORK,
    UsesMemory,
    free_memory,
    give_back_memory,
    lacked_memory,
    memory_of,
    to_release,
    with_room,
)
from pipeline.models.segmenter import Remembering
from pipeline.models.weights import check_local, no_room, pick_device
from pipeline.profiles import image_sections, text_sections
from pipeline.profiles.image_sections import EDITOR, SEGMENTER
from pipeline.profiles.profile import Profile, lacking
from pipeline.seams import Captioner, Detector, Editor, Embedder, Generator, LanguageModel, Segmenter, Sentences

log = logging.getLogger(__name__)


CLASSES: Mapping[type[Data], str] = {
    text_sections.BlipCaptioner: "captioner:Blip",
    text_sections.Blip2Captioner: "captioner:Blip2",
    text_sections.Florence2Captioner: "captioner:Florence2",
    text_sections.ChatCaptioner: "captioner_chat:ChatVisionModel",
    text_sections.ServerCaptioner: "captioner_chat:ServedChatModel",
    text_sections.GgufLanguage: "language_process:GgufProcess",
    text_sections.ChatLanguage: "language_chat:ChatLanguageModel",
    text_sections.ServerLanguage: "server_language:ServedLanguage",
    text_sections.ServerJudge: "server_language:ServedJudge",
    image_sections.ControlNetGenerator: "generator:StableDiffusion",
    image_sections.UnionGenerator: "generator_sdxl:UnionPipeline",
    image_sections.ZImageGenerator: "generator_z_image:ZImagePipeline",
    image_sections.KleinEditor: "editor_flux2:Flux2Klein",
    image_sections.PhraseNetSection: "segmenter:PhraseNetSegmenter",
    image_sections.GroundedSamSection: "segmenter:GroundedSam",
    image_sections.ClipSegSection: "segmenter:ClipSeg",
    image_sections.Sam3Section: "segmenter:Sam3",
    ClipEmbedder: "embedder:Clip",
    SentenceModel: "sentences:SentenceEmbedder",
}
"""Module and class of the model for each type of profile section. The module is imported when the model is loaded."""


class _Once:
    """Returns the model of a role, such as "captioner". The first call loads it. A failed load is tried again."""

    def __init__(self, models: Models, role: str) -> None:
        self._models, self._role, self._lock = models, role, threading.Lock()
        self.made: Any = None
        self.used = 0.0
        """Time of the latest request for the model, on the clock of `time.monotonic`."""

    def __call__(self) -> Any:
        with self._lock:
            self.used = time.monotonic()
            if self.made is None:
                self._models.make_room(self._role)
                self.made = self._loaded()
            return self.made

    def _loaded(self) -> Any:
        free_others = partial(self._models.release_others, self._role)
        try:
            made = with_room(partial(self._models.load, self._role), free_others)
        except Exception as error:
            if isinstance(error, UserError) or not lacked_memory(error):
                raise
            raise no_room(f"the {self._role}") from error
        if isinstance(made, UsesMemory):
            made.free_others = free_others
        return made

    def release(self) -> bool:
        """Drop the model. A thread that uses it can finish. Return False if it is not loaded, or still loading."""
        if not self._lock.acquire(blocking=False):  # waiting could let two loading models wait for each other
            return False
        try:
            made, self.made = self.made, None
        finally:
            self._lock.release()
        if made is None:
            return False
        close = getattr(made, "close", None)  # some models also have a process to end
        if callable(close):
            close()
        return True


class Models:
    """The models of a profile. Reading a property loads the model, and raises UserError if that fails. If memory is
    short, the least recently used models are released, so memory for one stage at a time is enough.
    """

    def __init__(self, profile: Profile, free: Callable[[str], int] | None = None) -> None:
        """`free` returns the free memory of a device ("cuda" or "cpu") in bytes. By default the machine is measured."""
        self.profile, self._free = profile, free or free_memory
        self._lacked_room = False
        """True once a model was released to make room for another."""
        self._sections: dict[str, Any] = {
            "captioner": profile.captioner,
            "language model": profile.language,
            "image generator": profile.generator,
            EDITOR: profile.editor,
            SEGMENTER: profile.segmenter,
            "judge": profile.judge,
            "embedder": profile.embedder,
            "sentence model": profile.sentences,
            **{f"detector of {kind}": net.detector for kind, net in profile.generator.controlnets.items()},
        }
        self._held = {role: _Once(self, role) for role in self._sections}

    def load(self, role: str) -> Any:
        """Load and return the model of a role, such as "captioner". Raises UserError if it cannot be loaded."""
        section, kind = self._sections[role], role.removeprefix("detector of ")
        if kind == role:
            more: list[Any] = [self.profile.checks.bands] if role == "embedder" else []
            model = resolve_name(f"{__name__}.{CLASSES[type(section)]}")(section, *more)
            return Remembering(model) if role == SEGMENTER else model
        if section is None:
            raise UserError(f"Control images of the kind {kind} need no model: they are computed.")
        return AuxDetector(cast(ControlKind, kind), section)

    @property
    def loaded(self) -> tuple[str, ...]:
        """The roles of the models that are in memory, least recently used first."""
        loaded = (role for role, once in self._held.items() if once.made is not None)
        return tuple(sorted(loaded, key=lambda role: self._held[role].used))

    @property
    def fit_together(self) -> bool:
        """True if all models fit in memory together, and no model has been released to make room. Loads nothing."""
        weights, needed = self.profile.weights(), dict[str, int]()
        for role, once in self._held.items():
            if once.made is None:
                place, size = self._needed(role, weights)
                needed[place] = needed.get(place, 0) + size
        return not self._lacked_room and all(size + WORK <= self._free(place) for place, size in needed.items() if size)

    def release(self, role: str) -> None:
        """Drop a model, such as "captioner", to free its memory. Raises KeyError for an unknown role."""
        if self._held[role].release():
            give_back_memory()

    def release_all(self) -> None:
        """Drop all models to free their memory, for example before another profile is loaded."""
        self.release_others("")

    def release_others(self, role: str) -> bool:
        """Release all models except the one with this `role`. Return True if a model was released."""
        freed = sum(once.release() for other, once in self._held.items() if other != role)
        if freed:
            self._lacked_room |= bool(role)
            give_back_memory()
        return bool(freed)

    def make_room(self, role: str) -> None:
        """Release the least recently used models until a role's model, if its size is known, fits in memory."""
        weights = self.profile.weights()
        place, size = self._needed(role, weights)
        needs = {other: self._needed(other, weights) for other in self.loaded if other != role}
        if not (needs and size):  # nothing to free, or the need is unknown, as for small models
            return
        for other in to_release(
            size, self._free(place), {one: need for one, (at, need) in needs.items() if at == place}
        ):
            log.info("Freeing the %s to make room for the %s", other, role)
            self._lacked_room = True
            self.release(other)

    def _needed(self, role: str, weights: Mapping[str, Weights]) -> tuple[str, int]:
        """Return a model's device ("cuda" or "cpu") and the bytes that it needs there, or "" and 0 if unknown."""
        section = weights.get(role)  # None for a detector of control images that are computed
        if section is None or not section.memory_full:
            return "", 0
        cuda = pick_device() == "cuda" and getattr(section, "gpu_layers", 1) != 0
        size = memory_of(section, cuda)
        if role == "image generator":
            size += max(
                (memory_of(one, cuda) for name, one in weights.items() if name.startswith("ControlNet ")), default=0
            )
        return ("cuda" if cuda else "cpu"), size

    def check(self) -> None:
        """Raise UserError if weights that the profile expects on this machine are missing. Loads nothing."""
        for role, weights in self.profile.weights().items():
            check_local(role, weights)

    @property
    def captioner(self) -> Captioner:
        return cast(Captioner, self._held["captioner"]())

    @property
    def language(self) -> LanguageModel:
        return cast(LanguageModel, self._held["language model"]())

    @property
    def generator(self) -> Generator:
        return cast(Generator, self._held["image generator"]())

    def runs(self, role: str) -> str:
        """Return in words where a role's drawing model runs and why, or "" while it is not loaded."""
        return str(getattr(self._held[role].made, "runs", ""))

    @property
    def editor(self) -> Editor:
        if self.profile.editor is None:
            raise UserError(lacking(self.profile, "editor"))
        return cast(Editor, self._held[EDITOR]())

    def editor_name(self) -> str:
        return self.profile.editor.title if self.profile.editor is not None else ""

    @property
    def segmenter(self) -> Segmenter:
        if message := lacking(self.profile, "segmenter"):
            raise UserError(message)
        return cast(Segmenter, self._held[SEGMENTER]())

    def segmenter_name(self) -> str:
        return self.profile.segmenter.title if self.profile.segmenter is not None else ""

    @property
    def judge(self) -> LanguageModel:
        if self.profile.judge is None:
            raise UserError(lacking(self.profile, "judge"))
        if isinstance(self.profile.judge, text_sections.ServerJudge):
            return cast(LanguageModel, self._held["judge"]())
        return cast(LanguageModel, self.captioner)  # a ChatVisionModel

    @property
    def embedder(self) -> Embedder:
        return cast(Embedder, self._held["embedder"]())

    def generator_name(self, kind: ControlKind) -> str:
        section = self.profile.generator
        return section.name_on(kind) if kind in section.controlnets else ""

    def detector(self, kind: ControlKind) -> Detector:
        """Return the model that draws a kind of control image, such as depth. Raises UserError if none exists."""
        role = f"detector of {kind}"
        if role not in self._held:
            raise UserError(f"This profile has no model for {kind}: choose another kind of control image.")
        return cast(Detector, self._held[role]())

    @property
    def sentences(self) -> Sentences:
        return cast(Sentences, self._held["sentence model"]())


def load_models(profile: Profile) -> Models:
    """Return the models of `profile`, none of them loaded yet."""
    return Models(profile)
