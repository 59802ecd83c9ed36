"""Seams: the protocols of models and methods that stages and driver rely on. `pipeline.models` implements them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.lineage import DrawnBatch, MethodSettings, TestCase
from core.masks import NamedMask
from core.progress import OnProgress
from core.settings import (
    CaptionSettings,
    ConditioningSettings,
    ControlKind,
    EditingSettings,
    GenerationSettings,
    LanguageSettings,
)
from core.types import CounterfactualCaption, Task

if TYPE_CHECKING:
    import torch

D = TypeVar("D", contravariant=True)
Vector = Sequence[float]
OnStep = Callable[[int, int], None]
"""Called after every denoising step with (steps done, steps in all). Raising `Cancelled` from it stops the work."""


class Captioner(Protocol):
    """Captions images."""

    name: str

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """Return the model's whole reply (see `read_reply`) and the prompt that was sent, "" for none."""


@dataclass(frozen=True)
class CaptionRequest:
    """One image of a batch for a captioner. The fields are the arguments of `Captioner.caption`."""

    image: Image.Image
    task: Task
    seed: int


@runtime_checkable
class BatchCaptioner(Protocol):
    """A captioner that takes several images at once."""

    def caption_many(
        self, requests: Sequence[CaptionRequest], settings: CaptionSettings
    ) -> Sequence[tuple[str, str] | UserError]:
        """Return for each request the result of `Captioner.caption` (except for floating-point noise) or its UserError.
        A caption depends on its own seed, not on the other requests. Raises errors that concern all requests.
        """


@dataclass(frozen=True)
class LanguageRequest:
    """One prompt for a language model."""

    prompt: str
    seed: int
    stop: tuple[str, ...] = ()
    """Texts that end the reply."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the expected reply, or None. Models that follow schemas reply in JSON or equivalent lines."""
    pictures: tuple[Image.Image, ...] = ()
    """RGB pictures before the prompt, for a model that sees. It reads several as "Picture 1", "Picture 2" and so on."""


class LanguageModel(Protocol):
    """Continues a text."""

    name: str

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """Return the text that the model writes after the prompt, including thoughts and marks of a chat template. Use
        `pipeline.replies.read_reply` to find the answer. Raises UserError if the prompt does not fit the context.
        """


@runtime_checkable
class BatchLanguageModel(Protocol):
    """A language model that continues several texts at once."""

    def complete_many(
        self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
    ) -> Sequence[str | UserError]:
        """Return for each request the result of `complete` (except for floating-point noise) or its UserError. Requests
        do not influence each other. `on_reply` is called in this thread with the number of replies so far; an error
        raised there stops the work. Raises Cancelled, and errors that concern all requests.
        """


@runtime_checkable
class ScoringLanguageModel(Protocol):
    """A language model that tells how likely a text is."""

    def score(self, text: str) -> float:
        """Return the mean negative log-likelihood of a text's tokens after the first, as far as the context reaches."""


class Embedder(Protocol):
    """Embeds images and texts in one space as unit vectors, whose product is the cosine similarity."""

    name: str

    def image(self, image: Image.Image) -> Vector: ...

    def text(self, text: str) -> Vector: ...


@runtime_checkable
class BatchEmbedder(Protocol):
    """An embedder that takes several images or texts at once. Its `image` and `text` reuse the latest vectors."""

    def images(self, images: Sequence[Image.Image]) -> Sequence[Vector]:
        """Return the vector of each image, like `image` apart from floating-point noise."""

    def texts(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vector of each text. It equals the result of `self.text` apart from floating-point noise."""


class Sentences(Protocol):
    """Embeds phrases so that phrases of the same meaning are close."""

    name: str

    def vectors(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return a unit vector for each text."""


class Detector(Protocol):
    """Draws one kind of control image."""

    name: str

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        """Return an RGB image of any size with roughly the aspect of the RGB `image`."""


@dataclass(frozen=True)
class Found:
    """One thing that a segmenter found."""

    mask: NDArray[np.bool_]
    """Array (height, width) for the whole image. True at each pixel of the found thing."""
    score: float
    """Confidence, 0 to 1."""
    sure: bool = True
    """False if the score reaches only half of the threshold. Such things are found only if no other thing is."""


Points = Sequence[tuple[int, int, bool]]
"""Points in a picture: x, y, and True if it belongs to the thing, False if not."""


class Segmenter(Protocol):
    """Finds things in a picture."""

    name: str

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        """Return things in the RGB image that fit the phrase, surest first. Raises UserError for an unknown phrase."""

    def at(self, image: Image.Image, points: Points) -> NDArray[np.bool_] | None:
        """Return the mask (height, width) of the thing at these points, or None if the model takes no points."""


@dataclass(frozen=True)
class DrawRequest:
    """A request for one image of a batch."""

    prompt: str
    seed: int
    place: int
    """Zero-based place in the batch."""
    start: torch.Tensor | None = None
    """Latents (1, c, h, w) from which DDIM steps draw the image. If None, the image is drawn from noise of `seed`."""
    negative_prompt: str | None = None
    """Negative prompt to use instead of the one in the settings, or None."""
    kept: tuple[Image.Image, Image.Image] | None = None
    """A picture of the drawn size with a mask of mode L, or None. The picture's pixels stay where the mask is not 0."""


@dataclass(frozen=True)
class DrawnImage:
    """The result of a `DrawRequest`."""

    image: Image.Image | None
    """The RGB image, as large as the control image or the picture to edit. None if the image was refused."""
    batch: DrawnBatch
    """The batch in which the image was drawn. It is smaller than requested if memory was short."""
    safe: bool | None = None
    """Verdict of the safety checker, or None without one."""
    refused: UserError | None = None
    """The reason why there is no image, or None."""
    compiling: float = 0.0
    """Seconds of the draw that were spent on compiling. Later draws do not need them."""


class Draws(Protocol[D]):
    """Draws several images at once, each from a control image or a picture to edit. `D` is the type of the settings."""

    @property
    def name(self) -> str: ...

    def preview(self) -> Image.Image | None:
        """Return a small RGB preview of the images being drawn, or None. It is cheap; call it from within `on_step`."""

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: D,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        """Draw an image for each request, from the picture with the same index. All `pictures` have one size. Batches
        are filled up to `size` images, so that on one machine the pixels of an image do not depend on other images.
        """


class Generator(Draws[GenerationSettings], Protocol):
    """Draws images from texts. Each image follows the outlines or shapes in a control image."""

    def on(self, kind: ControlKind) -> Generator:
        """Return this generator for control images of another kind. Raises UserError if the profile lacks the kind."""

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        """Return the best batch size for images of this size. `watched` is True if somebody waits for each image."""

    def reading_length(self, prompt: str) -> int:
        """Return the length of a prompt as the model reads it. Only prompts of one length share a batch."""


class Editor(Draws[EditingSettings], Protocol):
    """Changes a picture by an instruction, which is the prompt. Other parts of the picture may change too. In one
    call of `draw`, all entries of `pictures` are the same picture. `core.images.editing_size` gives its size.
    """

    def batch(self, size: tuple[int, int]) -> int:
        """Return the best batch size for images of this size."""


@dataclass(frozen=True)
class Source:
    """A source image with its task, for a method that makes test cases of it."""

    image: Image.Image
    """The source image, RGB."""
    task: Task
    caption: str = ""
    """Caption of the image, for checks and for methods that edit the image. "" without one."""
    mask: NamedMask | None = None
    region: Image.Image | None = None
    """Mask, mode L and of the size of `image`: 255 where the image may change. None if all of it may change."""


@dataclass(frozen=True)
class Prepared:
    """The preparation of a source, shared by all captions and seeds. Each method adds fields in a subclass."""

    source: Source
    settings: MethodSettings
    artifacts: Mapping[str, Image.Image]
    """Images of the source's size that are stored with every result, by name."""
    remark: str = field(default="", kw_only=True)
    """A sentence for a person on what was prepared, such as a control image without edges, or ""."""


P = TypeVar("P", bound=Prepared)


@dataclass(frozen=True)
class CaseRequest:
    """A request for one test case of a batch."""

    counterfactual: CounterfactualCaption
    seed: int
    place: int


class InversionStore(Protocol):
    """Stores inversions by key. It may drop them, since they can be made again. See `storage.inversions.Inversions`."""

    def read(self, key: str) -> bytes | None:
        """Return the bytes saved under a key, or None."""

    def save(self, key: str, data: bytes) -> None: ...


class Method(Protocol[P]):
    """Makes test cases: `prepare` each source once, then `make` batches. `pipeline.methods` describes each method."""

    name: str

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> P:
        """Make the parts that all images of a source share, such as its control image. Equal sources and settings give
        equal results. A result serves all settings with an equal `MethodDescription.preparation_key`. Raises Cancelled,
        and UserError if a person can correct the cause.
        """

    def batch(self, prepared: P, waiting: int | None = None, watched: bool = True) -> int:
        """Return the batch size of the settings, or if that is 0, the best one for the models. If only `waiting` images
        of a source are left, the size is lowered to fill batches evenly. `watched` as in `Generator`.
        """

    def together(self, prepared: P, counterfactual: CounterfactualCaption) -> Hashable:
        """Return a key. Images of several sources share a batch only if their keys are equal."""

    def make(
        self, prepared: Sequence[P], images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        """Draw one batch: image i from prepared source i. All prepared sources have the same `MethodDescription.shape`.
        Return for each image a function that checks the image and returns its test case, or raises its error. Equal
        arguments give equal pixels on the same machine. `size` and `on_step` as in `Draws.draw`. Raises errors that
        concern all images.
        """

    def preview(self) -> Image.Image | None:
        """Return the generator's preview (see `Draws.preview`)."""


class Models(Protocol):
    """The models of a profile, each loaded at its first use."""

    @property
    def fit_together(self) -> bool:
        """True if all models can stay loaded, False if one must be unloaded to load another. Loads nothing."""

    @property
    def captioner(self) -> Captioner: ...
    @property
    def language(self) -> LanguageModel: ...
    @property
    def generator(self) -> Generator: ...
    @property
    def editor(self) -> Editor:
        """The editor. Raises UserError if the profile has none."""

    @property
    def judge(self) -> LanguageModel:
        """The model that judges images, which sees a request's pictures. Raises UserError if none exists."""

    @property
    def embedder(self) -> Embedder: ...
    @property
    def sentences(self) -> Sentences: ...
    @property
    def segmenter(self) -> Segmenter:
        """The segmenter of subjects. Raises UserError if the profile has none."""

    def detector(self, kind: ControlKind) -> Detector: ...

    def runs(self, role: str) -> str:
        """Return in words where the drawing model with this role runs, or "" if unknown. Loads nothing."""

    def segmenter_name(self) -> str:
        """Return the segmenter's name, or "" without one. Loads nothing."""

    def generator_name(self, kind: ControlKind) -> str:
        """Return the generator's name for a kind of control image, or "" without one. Loads nothing."""

    def editor_name(self) -> str:
        """Return the editor's name, or "" without one. Loads nothing."""
