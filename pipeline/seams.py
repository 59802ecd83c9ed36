"""What the stages need of a model, and no more. `pipeline.models` fills these with real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

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

OnStep = Callable[[int, int], None]
"""Called after every denoising step with (steps done, steps in all). Raising `Cancelled` from it stops the work."""


class Captioner(Protocol):
    """Says what an image shows."""

    name: str

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """The caption and the prompt that was sent ("" for a model that takes none)."""
        ...


@dataclass(frozen=True)
class CaptionRequest:
    """One of the images that a captioner is given together. What it means stands at `Captioner.caption`."""

    image: Image.Image
    task: Task
    seed: int


@runtime_checkable
class BatchCaptioner(Protocol):
    """A captioner that looks at several images at once."""

    name: str

    def caption_many(
        self, requests: Sequence[CaptionRequest], settings: CaptionSettings
    ) -> Sequence[tuple[str, str] | UserError]:
        """What `caption` gives for each, but for the noise of floating-point numbers, or why there is nothing: its
        words hang on its own seed only. Raises what makes all of them fail.
        """
        ...


class LanguageModel(Protocol):
    """Continues a text."""

    name: str

    def complete(
        self,
        prompt: str,
        settings: LanguageSettings,
        seed: int,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """The continuation, without the prompt. Raises UserError when the prompt does not fit the context.

        `schema` is a JSON schema that the reply has to fit where the model can be held to one: as JSON, or as the lines
        that it stands for (see `pipeline.stages.reply_schema`). Whoever reads the reply takes both, and neither for
        granted.
        """
        ...


@dataclass(frozen=True)
class LanguageRequest:
    """One of the prompts that a language model is given together. What it means stands at `LanguageModel.complete`."""

    prompt: str
    seed: int
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None


@runtime_checkable
class BatchLanguageModel(Protocol):
    """A language model that continues several texts at once."""

    name: str

    def complete_many(
        self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
    ) -> Sequence[str | UserError]:
        """The reply to each in order, or why there is none. It is the one that `complete` would give: which others
        stand beside it changes nothing, but for the noise of floating-point numbers.

        `on_reply` is told how many are there so far, in the thread that asked; raising from it stops the work. Raises
        Cancelled, and what makes all of them fail.
        """
        ...


class Embedder(Protocol):
    """Places images and texts in one space: unit vectors, whose product is the cosine similarity."""

    name: str

    def image(self, image: Image.Image) -> Sequence[float]: ...

    def text(self, text: str) -> Sequence[float]: ...


@runtime_checkable
class BatchEmbedder(Protocol):
    """An embedder that places several images, or texts, at once."""

    name: str

    def images(self, images: Sequence[Image.Image]) -> Sequence[Sequence[float]]:
        """What `image` gives for each, but for the noise of floating-point numbers."""
        ...

    def texts(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """What `text` gives for each, in the same way."""
        ...


class Sentences(Protocol):
    """Places phrases in a space in which those that mean the same are near each other."""

    name: str

    def vectors(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A unit vector for each text."""
        ...


class Detector(Protocol):
    """Draws one kind of control image."""

    name: str

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        """RGB, of any size with roughly the aspect of the RGB `image`."""
        ...


class Generator(Protocol):
    """Draws an image from a text on top of a control image."""

    name: str

    def on(self, kind: ControlKind) -> Generator:
        """The same for another kind of control image. Raises UserError when there is none."""
        ...

    def preview(self) -> Image.Image | None:
        """What the image being drawn would look like if it were finished now: small, RGB, cheap to make.

        To be asked from within `on_step`, whose image it is then; None where there is nothing to show. Asking changes
        nothing in the result.
        """
        ...

    def generate(
        self,
        prompt: str,
        control: Image.Image,
        settings: GenerationSettings,
        seed: int,
        on_step: OnStep,
    ) -> Image.Image:
        """RGB, the size of `control`. The same seed gives the same pixels on the same machine."""
        ...


@dataclass(frozen=True)
class DrawRequest:
    """One of the images of a batch."""

    prompt: str
    seed: int
    place: int
    """Its place in the batch, from 0."""


@dataclass(frozen=True)
class DrawnImage:
    """What became of it."""

    image: Image.Image | None
    """RGB, the size of the control image or of the picture that was edited; None where it was refused."""
    batch: DrawnBatch
    """The batch that it was drawn in: a smaller one than was asked for where there is too little memory."""
    safe: bool | None = None
    """What the safety checker says; None where there is none."""
    refused: UserError | None = None
    """Why there is no image."""
    compiling: float = 0.0
    """Seconds of the whole draw that went into compiling, which no later one takes."""


@runtime_checkable
class BatchGenerator(Protocol):
    """A generator that draws several images on the same control image at once."""

    name: str

    def preview(self) -> Image.Image | None:
        """As that of a `Generator`; of several images side by side."""
        ...

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        """How many images of a size are best drawn at once here; `watched` where somebody waits for each of them."""
        ...

    def draw(
        self,
        wanted: Sequence[DrawRequest],
        size: int,
        control: Image.Image,
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        """What became of each. `size` is that of the batch, which is filled up where fewer are `wanted`: then each has
        the same pixels whatever is drawn beside it, on the same machine.

        `on_step` is told of the steps of all of them together.
        """
        ...


@runtime_checkable
class LotGenerator(BatchGenerator, Protocol):
    """A batch generator whose images may each be drawn on a control image of their own: those of several sources."""

    def draw_lot(
        self,
        wanted: Sequence[DrawRequest],
        size: int,
        controls: Sequence[Image.Image],
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        """As `draw`, on the control image of each, all of one size. Each has the pixels that `draw` gives it alone, in
        a batch of the same size at the same place.
        """
        ...

    def reading_length(self, prompt: str) -> int:
        """How long a prompt is as the model reads it: those of one length are drawn together, others apart."""
        ...


class Editor(Protocol):
    """Changes a picture as an instruction says, several times at once. It does not promise what stays in its place."""

    @property
    def name(self) -> str: ...

    def preview(self) -> Image.Image | None:
        """As that of a `BatchGenerator`."""
        ...

    def batch(self, size: tuple[int, int]) -> int:
        """How many images of a size are best made at once here."""
        ...

    def draw(
        self, wanted: Sequence[DrawRequest], size: int, picture: Image.Image, settings: EditingSettings, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        """What became of each: the picture as its prompt, an instruction, changes it. `size` and `on_step` are as in
        `BatchGenerator.draw`; the sides of the picture are as `core.images.editing_size` gives them.
        """
        ...


@dataclass(frozen=True)
class Source:
    """What test cases are made from."""

    image: Image.Image
    """RGB."""
    task: Task
    caption: str = ""
    """What the image shows, for the checks and for methods that edit it; "" where nobody said."""
    mask: NamedMask | None = None


@dataclass(frozen=True)
class Prepared:
    """What a method made of a source once, for all captions and seeds. A method's own subclass holds what it needs."""

    source: Source
    settings: MethodSettings
    artifacts: Mapping[str, Image.Image]
    """What of it is kept beside every image, by name, the size of the source."""


P = TypeVar("P", bound=Prepared)
P_contra = TypeVar("P_contra", bound=Prepared, contravariant=True)


class Method(Protocol[P]):
    """How a test case is made from a source: `prepare` once, then `make` for each caption and seed.

    What is known of it without its models stands in `pipeline.methods`.
    """

    name: str

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> P:
        """What all images of a source share. The same source and settings give the same.

        It may be used for other settings too, as long as the method's description gives them the same
        `preparation_key`. Raises Cancelled when asked to stop, and UserError for what a person has to put right.
        """
        ...

    def make(self, prepared: P, counterfactual: CounterfactualCaption, seed: int, on_step: OnStep) -> TestCase:
        """One test case. The same arguments give the same pixels on the same machine. Raises what the models raise."""
        ...

    def preview(self) -> Image.Image | None:
        """That of the generator: see `Generator.preview`."""
        ...


@dataclass(frozen=True)
class CaseRequest:
    """One of the test cases of a batch."""

    counterfactual: CounterfactualCaption
    seed: int
    place: int


@runtime_checkable
class BatchMethod(Protocol[P_contra]):
    """A method that can make several test cases of a source at once."""

    def batch(self, prepared: P_contra, waiting: int, watched: bool = True) -> int:
        """How many are made at once where so many wait; 1 for one after another. `watched` as in `BatchGenerator`."""
        ...

    def make_batch(
        self, prepared: P_contra, images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        """Draws all of them, and gives for each what checks it and gives the test case, or raises why there is none.

        `size` is that of the batch, and `on_step` as in `BatchGenerator.draw`. Raises what makes all of them fail.
        """
        ...


@runtime_checkable
class LotMethod(BatchMethod[P_contra], Protocol[P_contra]):
    """A method that can make test cases of several sources at once."""

    def lot(self, settings: MethodSettings, size: tuple[int, int]) -> int:
        """How many are best made at once of sources of a `size`, where nobody watches; 0 where the models take one
        source at a time.
        """
        ...

    def reading_length(self, prepared: P_contra, counterfactual: CounterfactualCaption) -> int:
        """That of the prompt: see `LotGenerator`."""
        ...

    def make_lot(
        self, prepared: Sequence[P_contra], images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        """As `make_batch`, of the source of each. What they were prepared with differs in nothing that
        `MethodDescription.shape` names.
        """
        ...


class Models(Protocol):
    """The models of a profile, each loaded when it is first asked for."""

    @property
    def captioner(self) -> Captioner: ...
    @property
    def language(self) -> LanguageModel: ...
    @property
    def generator(self) -> Generator: ...
    @property
    def editor(self) -> Editor:
        """Raises UserError where the profile has none."""
        ...

    @property
    def embedder(self) -> Embedder: ...
    @property
    def sentences(self) -> Sentences: ...
    def detector(self, kind: ControlKind) -> Detector: ...

    def generator_name(self, kind: ControlKind) -> str:
        """The name of the generator for a kind of control image; "" when there is none. Loads nothing."""
        ...

    def editor_name(self) -> str:
        """The name of the editor; "" when there is none. Loads nothing."""
        ...
