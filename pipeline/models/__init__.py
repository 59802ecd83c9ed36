"""The models of a profile, each loaded once, at its first use.

The only place that knows which class fills which seam; `pipeline.seams` says what the stages ask of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar, cast

from pipeline.errors import UserError, out_of_memory
from pipeline.models.weights import check_local, no_room
from pipeline.profile import BlipCaptioner, Profile
from pipeline.seams import Captioner, Detector, Embedder, Generator, LanguageModel, Sentences
from pipeline.settings import ControlKind

T = TypeVar("T")


class _Once(Generic[T]):
    """Makes a thing at the first call, one caller at a time. A call that fails is tried again by the next one."""

    def __init__(self, make: Callable[[], T], name: str) -> None:
        """`name` is what it is, in words."""
        self._make, self._name = make, name
        self._lock = threading.Lock()
        self._made: T | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except Exception as error:
                    if not isinstance(error, UserError) and out_of_memory(error):
                        raise no_room(self._name) from error
                    raise
            return self._made


class Models:
    """The models of a profile. Reading a property loads the model; UserError when that cannot be."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._captioner = _Once(self._load_captioner, "the captioner")
        self._language = _Once(self._load_language, "the language model")
        self._generator = _Once(self._load_generator, "the image generator")
        self._embedder = _Once(self._load_embedder, "the embedder")
        self._sentences = _Once(self._load_sentences, "the sentence model")
        self._detectors: dict[ControlKind, _Once[Detector]] = {
            kind: _Once(partial(self._load_detector, kind), f"the detector of {kind}")
            for kind in profile.generator.controlnets
        }

    def check(self) -> None:
        """Raises UserError when weights that should be on this machine are missing. Loads nothing, fetches nothing."""
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
    def embedder(self) -> Embedder:
        return self._embedder()

    def generator_name(self, kind: ControlKind) -> str:
        """As lineages have it. "" where the profile has no ControlNet for the kind. Loads nothing."""
        section = self.profile.generator
        return section.name_on(kind) if kind in section.controlnets else ""

    def detector(self, kind: ControlKind) -> Detector:
        """The model that draws a kind of control image. Raises UserError where the profile has none."""
        if kind not in self._detectors:
            raise UserError(f"This profile has no model for {kind}: choose another kind of control image.")
        return self._detectors[kind]()

    @property
    def sentences(self) -> Sentences:
        return self._sentences()

    def _load_captioner(self) -> Captioner:
        from pipeline.models.captioner import Blip, Blip2

        section = self.profile.captioner
        return Blip(section) if isinstance(section, BlipCaptioner) else Blip2(section)

    def _load_language(self) -> LanguageModel:
        from pipeline.models.language import GgufModel

        return GgufModel(self.profile.language)

    def _load_generator(self) -> Generator:
        from pipeline.models.generator import ControlNetPipeline

        return cast(Generator, ControlNetPipeline(self.profile.generator))

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
    """The models of `profile`, none of them loaded yet."""
    return Models(profile)
