"""The models of a profile, each loaded at its first use. Only this module knows which class implements which seam."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, cast

from core.errors import UserError
from core.model_sections import Weights
from core.settings import ControlKind
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
from pipeline.models.weights import check_local, no_room, pick_device
from pipeline.profiles.image_sections import (
    EDITOR,
    SEGMENTER,
    ClipSegSection,
    GroundedSamSection,
    PhraseNetSection,
    UnionGenerator,
    ZImageGenerator,
)
from pipeline.profiles.profile import Profile, lacking
from pipeline.profiles.text_sections import (
    Blip2Captioner,
    BlipCaptioner,
    ChatCaptioner,
    ChatLanguage,
    Florence2Captioner,
    ServerCaptioner,
    ServerJudge,
    ServerLanguage,
)
from pipeline.seams import Captioner, Detector, Editor, Embedder, Generator, LanguageModel, Segmenter, Sentences

T = TypeVar("T")
log = logging.getLogger(__name__)


class _Once(Generic[T]):
    """An object that is made at the first call, one caller at a time. After a failure the next call tries again."""

    def __init__(self, make: Callable[[], T], name: str, before: Callable[[], None], free_others: Callable[[], bool]):
        """`name` names the object in messages. `before` runs before the object is made. `free_others` runs if memory
        runs out while the object is made or used, and returns True if it freed some.
        """
        self._make, self._name, self._before, self._free_others = make, name, before, free_others
        self._lock = threading.Lock()
        self.made: T | None = None
        self.used = 0.0
        """Time of the latest request for the object, on the clock of `time.monotonic`."""

    def __call__(self) -> T:
        with self._lock:
            self.used = time.monotonic()
            if self.made is None:
                self._before()
                self.made = self._tried()
            return self.made

    def _tried(self) -> T:
        try:
            made = with_room(self._make, self._free_others)
        except Exception as error:
            if isinstance(error, UserError) or not lacked_memory(error):
                raise
            raise no_room(self._name) from error
        if isinstance(made, UsesMemory):
            made.free_others = self._free_others
        return made

    def release(self) -> bool:
        """Drop the model; a thread that uses it still finishes. Return False if it is not loaded, or still loading."""
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
    """The models of a profile. Reading a property loads the model, and raises UserError if that fails.

    Models stay loaded as long as there is room. Otherwise the least recently used models are released to make room for
    the next one, so a machine with room for one stage at a time is enough.
    """

    def __init__(self, profile: Profile, free: Callable[[str], int] | None = None) -> None:
        """`free` returns the free bytes on "cuda" or "cpu"; by default those of the machine."""
        self.profile, self._free = profile, free or free_memory
        self._lacked_room = False
        """True once a model was released to make room for another."""
        self._held: dict[str, _Once[Any]] = {}
        self._captioner = self._once("captioner", self._load_captioner)
        self._language = self._once("language model", self._load_language)
        self._generator = self._once("image generator", self._load_generator)
        self._editor = self._once(EDITOR, self._load_editor)
        self._segmenter = self._once(SEGMENTER, self._load_segmenter)
        self._judge = self._once("judge", self._load_judge)
        self._embedder = self._once("embedder", self._load_embedder)
        self._sentences = self._once("sentence model", self._load_sentences)
        self._detectors: dict[ControlKind, _Once[Detector]] = {
            kind: self._once(f"detector of {kind}", partial(self._load_detector, kind))
            for kind in profile.generator.controlnets
        }

    def _once(self, role: str, make: Callable[[], T]) -> _Once[T]:
        once = _Once(make, f"the {role}", partial(self._make_room, role), partial(self._release_others, role))
        self._held[role] = once
        return once

    @property
    def loaded(self) -> tuple[str, ...]:
        """The roles of the models that are in memory, in the order of their last use."""
        loaded = (role for role, once in self._held.items() if once.made is not None)
        return tuple(sorted(loaded, key=lambda role: self._held[role].used))

    @property
    def fit_together(self) -> bool:
        """True if all models of the profile can stay loaded: no model had to make room so far, and the unloaded ones
        have room. Loads nothing. Models of unknown size count as small.
        """
        weights, needed = self.profile.weights(), dict[str, int]()
        for role, once in self._held.items():
            if once.made is None:
                place, size = self._needed(role, weights)
                needed[place] = needed.get(place, 0) + size
        return not self._lacked_room and all(size + WORK <= self._free(place) for place, size in needed.items() if size)

    def release(self, role: str) -> None:
        """Free the memory of a model, such as "captioner"; a ControlNet goes with the generator. The next request loads
        it again. A thread that uses it finishes first. Raises KeyError for an unknown role.
        """
        if self._held[role].release():
            give_back_memory()

    def release_all(self) -> None:
        """Free the memory of all models, as before another profile replaces them."""
        self._release_others("")

    def _release_others(self, role: str) -> bool:
        """Release all models except `role`. Return True if any memory was freed."""
        freed = sum(once.release() for other, once in self._held.items() if other != role)
        if freed:
            self._lacked_room |= bool(role)
            give_back_memory()
        return bool(freed)

    def _make_room(self, role: str) -> None:
        """Free other models before one is loaded, if there is too little memory for it."""
        weights = self.profile.weights()
        needed = self._needed(role, weights)
        loaded = [other for other in self.loaded if other != role]
        if not (loaded and needed[1]):  # nothing to free, or the need is unknown, as for small models
            return
        place = needed[0]
        needs = {other: self._needed(other, weights) for other in loaded}
        same = {other: size for other, (at, size) in needs.items() if at == place}
        for other in to_release(needed[1], self._free(place), same):
            log.info("Freeing the %s to make room for the %s", other, role)
            self._lacked_room = True
            self.release(other)

    def _needed(self, role: str, weights: Mapping[str, Weights]) -> tuple[str, int]:
        """Return a model's device, "cuda" or "cpu", and the bytes it needs there; 0 if the profile does not say."""
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
        """Raise UserError if weights that should be on this machine are missing. Loads nothing, fetches nothing."""
        for role, weights in self.profile.weights().items():
            check_local(role, weights)

    @property
    def captioner(self) -> Captioner:
        return self._captioner()

    @property
    def language(self) -> LanguageModel:
        return self._language()

    @property
    def generator(self) -> Generator:
        return self._generator()

    @property
    def generator_runs(self) -> str:
        """Device of the generator and the reason, in plain words; "" while it is not loaded. Loads nothing."""
        return str(getattr(self._generator.made, "runs", ""))

    @property
    def editor(self) -> Editor:
        if self.profile.editor is None:
            raise UserError(lacking(self.profile, "editor"))
        return self._editor()

    @property
    def editor_runs(self) -> str:
        return str(getattr(self._editor.made, "runs", ""))

    def editor_name(self) -> str:
        """Name of the editor in lineages, "" if the profile has none. Loads nothing."""
        return self.profile.editor.title if self.profile.editor is not None else ""

    @property
    def segmenter(self) -> Segmenter:
        if message := lacking(self.profile, "segmenter"):
            raise UserError(message)
        return self._segmenter()

    def segmenter_name(self) -> str:
        """Name of the segmenter, "" if the profile has none. Loads nothing."""
        return self.profile.segmenter.title if self.profile.segmenter is not None else ""

    @property
    def judge(self) -> LanguageModel:
        if self.profile.judge is None:
            raise UserError(lacking(self.profile, "judge"))
        if isinstance(self.profile.judge, ServerJudge):
            return self._judge()
        from pipeline.models.captioner_chat import ChatJudge, ChatVisionModel

        return ChatJudge(cast(ChatVisionModel, self.captioner))

    @property
    def embedder(self) -> Embedder:
        return self._embedder()

    def generator_name(self, kind: ControlKind) -> str:
        """Return the generator's name in lineages, "" if the profile has no ControlNet for the kind. Loads nothing."""
        section = self.profile.generator
        return section.name_on(kind) if kind in section.controlnets else ""

    def detector(self, kind: ControlKind) -> Detector:
        """Return the model that draws a kind of control image. Raises UserError if the profile has none."""
        if kind not in self._detectors:
            raise UserError(f"This profile has no model for {kind}: choose another kind of control image.")
        return self._detectors[kind]()

    @property
    def sentences(self) -> Sentences:
        return self._sentences()

    def _load_captioner(self) -> Captioner:
        from pipeline.models import captioner, captioner_chat

        section = self.profile.captioner
        match section:
            case BlipCaptioner():
                return captioner.Blip(section)
            case Blip2Captioner():
                return captioner.Blip2(section)
            case Florence2Captioner():
                return captioner.Florence2(section)
            case ChatCaptioner():
                return captioner_chat.ChatVisionModel(section)
            case ServerCaptioner():
                return captioner_chat.ServedChatModel(section)

    def _load_language(self) -> LanguageModel:
        section = self.profile.language
        if isinstance(section, ServerLanguage):
            from pipeline.models.server_language import ServedLanguage

            return ServedLanguage(section)
        if isinstance(section, ChatLanguage):
            from pipeline.models.language_chat import ChatLanguageModel

            return ChatLanguageModel(section)
        from pipeline.models.language_process import GgufProcess

        return GgufProcess(section)

    def _load_judge(self) -> LanguageModel:
        from pipeline.models.server_language import ServedJudge

        assert isinstance(self.profile.judge, ServerJudge)
        return ServedJudge(self.profile.judge)

    def _load_generator(self) -> Generator:
        from pipeline.models.generator import StableDiffusion
        from pipeline.models.generator_sdxl import UnionPipeline
        from pipeline.models.generator_z_image import ZImagePipeline

        section = self.profile.generator
        match section:
            case UnionGenerator():
                return cast(Generator, UnionPipeline(section))
            case ZImageGenerator():
                return cast(Generator, ZImagePipeline(section))
            case _:
                return cast(Generator, StableDiffusion(section))

    def _load_editor(self) -> Editor:
        from pipeline.models.editor_flux2 import Flux2Klein

        assert self.profile.editor is not None
        return Flux2Klein(self.profile.editor)

    def _load_segmenter(self) -> Segmenter:
        from pipeline.models import segmenter

        section = self.profile.segmenter
        assert section is not None
        match section:
            case PhraseNetSection():
                return segmenter.Remembering(segmenter.PhraseNetSegmenter(section))
            case GroundedSamSection():
                return segmenter.Remembering(segmenter.GroundedSam(section))
            case ClipSegSection():
                return segmenter.Remembering(segmenter.ClipSeg(section))
            case _:
                return segmenter.Remembering(segmenter.Sam3(section))

    def _load_detector(self, kind: ControlKind) -> Detector:
        from pipeline.models.detectors import DETECTORS

        weights = self.profile.generator.controlnets[kind].detector
        if weights is None:
            raise UserError(f"The kind {kind} takes no model: its control images are computed.")
        return DETECTORS[kind](kind, weights)

    def _load_embedder(self) -> Embedder:
        from pipeline.models.embedder import Clip

        return Clip(self.profile.embedder, self.profile.checks.bands)

    def _load_sentences(self) -> Sentences:
        from pipeline.models.sentences import SentenceEmbedder

        return SentenceEmbedder(self.profile.sentences)


def load_models(profile: Profile) -> Models:
    """Return the models of `profile`, none of them loaded yet."""
    return Models(profile)
