"""Sections of a profile for models of images: generator, ControlNets, detectors, LoRAs, editor and segmenter."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from core.model_sections import DType, PackagedWeights, Weights
from core.settings import MOST_AT_ONCE, ControlKind
from core.types import Data

EDITOR = "image editor"
"""Name of the editor in lists of models."""
SEGMENTER, MASKS = "segmenter of subjects", "segmenter of boxes"
"""Names, in lists of models, of the segmenter and of its second model if it has one."""
DRAWN_BY_MODEL: frozenset[ControlKind] = frozenset(("soft edges", "line art", "depth"))
"""The kinds of control image that a model draws; the others are computed."""
PREVIEW_VAE = "preview VAE"
"""Name, in lists of models, of the tiny VAE for previews."""


INVERTIBLE = (
    "DDIMScheduler",
    "PNDMScheduler",
    "UniPCMultistepScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LMSDiscreteScheduler",
    "DEISMultistepScheduler",
    "DPMSolverMultistepScheduler",
    "DPMSolverSinglestepScheduler",
)
"""Schedulers that can invert images: they follow the same path as DDIM and add no noise between steps."""


class Scheduler(Data):
    """A scheduler of diffusers: its class name, and options that replace parts of the shipped configuration."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def cannot_invert(self) -> str:
        """Sentence that says why images cannot be inverted with this scheduler, or "" if they can."""
        if self.name in INVERTIBLE and "sde" not in str(self.options.get("algorithm_type", "")):
            return ""
        return (
            f"This model cannot be inverted, because {self.name} does not lead back to the noise: take a profile with "
            "DDIM, PNDM, UniPC, Euler or DPM-Solver."
        )


class ControlNet(Weights):
    """A ControlNet for one kind of control image. If a model must draw this kind, `detector` is that model."""

    family: ClassVar[str] = "ControlNet"

    detector: PackagedWeights | None = None


class Lora(Weights):
    """A small change to a generator's weights, such as one that lets it draw in few steps."""

    file: str
    """The name of its safetensors file, on the hub or in the folder `path`."""
    weight: float = Field(1.0, ge=-4, le=4)
    """Factor of the LoRA's weights. It should be 1 unless the LoRA's page says otherwise."""

    @property
    def title(self) -> str:
        """Title with the file name, as a repository may have several LoRAs."""
        part = f" at {self.weight:g}" if self.weight != 1 else ""
        return f"{super().title}/{self.file}{part}"


class DrawingModel(Weights):
    """Base of all models that draw, run by a stock pipeline of diffusers."""

    dtype: DType = "auto"
    scheduler: Scheduler | None = None
    """The scheduler to use, or None for the one that comes with the weights."""
    batch: int = Field(0, ge=0, le=MOST_AT_ONCE)
    """Default number of images drawn at once. 0 leaves it to the machine."""
    compile: bool = False
    """True to compile the blocks that the networks repeat (torch.compile). The first image waits, later ones are
    faster. This may change the last bits of pixels, so lineages record it. Without a compiler (C++ on the CPU) the
    studio says so and draws uncompiled."""
    preview_vae: Weights | None = None
    """A tiny VAE (AutoencoderTiny) for this model's latents. It shows images being drawn and never affects them."""


class ControlledGenerator(DrawingModel):
    """Base of generators that follow a control image, such as an edge image."""

    loras: tuple[Lora, ...] = ()
    """LoRAs to add to the generator's weights, in this order."""
    outpaints: bool = True
    """False if the model makes a subject grow when it draws the background around it."""

    @model_validator(mode="after")
    def _need_detectors(self) -> Self:
        for kind, net in self.by_kind().items():
            if (kind in DRAWN_BY_MODEL) != (net.detector is not None):
                word = "needs" if kind in DRAWN_BY_MODEL else "takes no"
                raise ValueError(f"the kind {kind!r} {word} detector, the model that draws its control images")
        return self

    @property
    def cannot_invert(self) -> str:
        """Sentence that says why images cannot be inverted, as far as this is known without the weights, or ""."""
        return self.scheduler.cannot_invert if self.scheduler is not None else ""

    @abstractmethod
    def by_kind(self) -> dict[ControlKind, ControlNet]:
        """Return the ControlNets by the kind of control image."""

    def net_of(self, kind: ControlKind) -> tuple[str, Weights]:
        """Return the ControlNet for a kind of control image: its role, such as "ControlNet for canny", and weights."""
        return f"ControlNet for {kind}", self.by_kind()[kind]

    def name_on(self, kind: ControlKind) -> str:
        """Return the generator's name with that of its ControlNet for a kind, as lineages record it."""
        drawn_by = " with ".join((self.title, *(lora.title for lora in self.loras)))
        return f"{drawn_by} + {self.by_kind()[kind].title}"

    def parts(self) -> dict[str, Weights]:
        """Return all weights by the role that they have, such as "image generator"."""
        parts: dict[str, Weights] = {"image generator": self}
        for kind, net in self.by_kind().items():
            role, weights = self.net_of(kind)
            parts[role] = weights
            if net.detector is not None:
                parts[f"detector of {kind}"] = net.detector
        for number, lora in enumerate(self.loras, 1):
            parts["LoRA" if len(self.loras) == 1 else f"LoRA {number}"] = lora
        return parts | ({PREVIEW_VAE: self.preview_vae} if self.preview_vae is not None else {})


class ControlNetGenerator(ControlledGenerator):
    """A Stable Diffusion with ControlNets, one at a time, run by the stock pipeline of diffusers."""

    family: ClassVar[str] = "Stable Diffusion"

    kind: Literal["stable-diffusion-controlnet"]
    controlnets: dict[ControlKind, ControlNet] = Field(min_length=1)
    """ControlNets by kind of control image. A profile with only "canny" may have a table `controlnet` instead."""
    safety_checker: bool = True
    """True to load a safety checker if one is shipped. Flagged images are refused, never shown as black."""

    @model_validator(mode="before")
    @classmethod
    def _single(cls, data: Any) -> Any:
        if isinstance(data, dict) and "controlnet" in data:
            if "controlnets" in data:
                raise ValueError("give either controlnet (one, for canny) or controlnets (a table of kinds)")
            data = {**data, "controlnets": {"canny": data["controlnet"]}}
            del data["controlnet"]
        return data

    def by_kind(self) -> dict[ControlKind, ControlNet]:
        return self.controlnets


class _SharedControlNet(ControlledGenerator):
    union: Weights
    kinds: tuple[ControlKind, ...] = Field(("canny",), min_length=1)
    """The kinds of control image that are offered."""
    detectors: dict[ControlKind, PackagedWeights] = Field(default_factory=dict)
    """Models that draw control images, by kind, for kinds that need one."""

    @model_validator(mode="after")
    def _fits(self) -> _SharedControlNet:
        unknown = [kind for kind in self.detectors if kind not in self.kinds]
        if unknown:
            raise ValueError(f"detectors names {unknown[0]!r}, which is not one of the kinds")
        return self

    @property
    def controlnets(self) -> dict[ControlKind, ControlNet]:
        return self.by_kind()

    def by_kind(self) -> dict[ControlKind, ControlNet]:
        """Return the shared ControlNet for each kind, with the model that draws such control images."""
        union = self.union.model_dump(include=set(Weights.model_fields))
        return {kind: ControlNet(**union, detector=self.detectors.get(kind)) for kind in self.kinds}

    def net_of(self, kind: ControlKind) -> tuple[str, Weights]:
        return "ControlNet union", self.union


class UnionGenerator(_SharedControlNet):
    """A Stable Diffusion XL with one ControlNet for many kinds of control image."""

    family: ClassVar[str] = "Stable Diffusion XL"

    kind: Literal["sdxl-controlnet-union"]
    vae: Weights | None = None
    """VAE that replaces the shipped one, which gives black images in half precision."""

    def parts(self) -> dict[str, Weights]:
        return super().parts() | ({"VAE": self.vae} if self.vae is not None else {})


class SingleFile(Weights):
    """Weights in a single file, and a folder with their configuration."""

    file: str
    """Name of the file, on the hub or in the folder `path`."""
    config: Weights
    """A folder with the `config.json` of the model."""


class ZImageGenerator(_SharedControlNet):
    """A Z-Image with its ControlNet for many kinds of control image."""

    family: ClassVar[str] = "Z-Image"

    kind: Literal["z-image"]
    union: SingleFile

    @property
    def cannot_invert(self) -> str:
        return f"{self.family} cannot be inverted: use a profile with Stable Diffusion."

    @model_validator(mode="after")
    def _no_loras(self) -> ZImageGenerator:
        if self.loras:
            raise ValueError("a Z-Image takes no loras: leave them out")
        return self

    def parts(self) -> dict[str, Weights]:
        return super().parts() | {"configuration of the ControlNet": self.union.config}


AnyGenerator = Annotated[ControlNetGenerator | UnionGenerator | ZImageGenerator, Field(discriminator="kind")]


class KleinEditor(DrawingModel):
    """A FLUX.2 klein, which changes a picture as an instruction says. It has no safety checker."""

    family: ClassVar[str] = "FLUX.2 klein"

    kind: Literal["flux2-klein"]

    def parts(self) -> dict[str, Weights]:
        return {EDITOR: self}


class SegmenterSection(Weights):
    """Base of segmenters, which find the things that a phrase names."""

    threshold: float = Field(0.3, gt=0, lt=1)
    """Minimum score of a found thing (in CLIPSeg, of a pixel). If no thing reaches it, half this score is enough."""

    def parts(self) -> dict[str, Weights]:
        return {SEGMENTER: self}


class PhraseNetSection(SegmenterSection):
    """The embedded segmenter. Its weights file lists the phrases that it knows."""

    family: ClassVar[str] = "PhraseNet"

    kind: Literal["phrase-net"]
    threshold: float = Field(0.5, gt=0, lt=1)
    """Minimum probability of the phrase at a pixel."""


class GroundedSamSection(SegmenterSection):
    """A GroundingDINO, which finds boxes, and a SAM 2.1, which finds the mask in each box."""

    family: ClassVar[str] = "GroundingDINO"

    kind: Literal["grounding-dino-sam2"]
    text_threshold: float = Field(0.25, gt=0, lt=1)
    masks: Weights

    def parts(self) -> dict[str, Weights]:
        return {SEGMENTER: self, MASKS: self.masks}


class ClipSegSection(SegmenterSection):
    """A CLIPSeg, which gives every pixel the probability of the phrase."""

    family: ClassVar[str] = "CLIPSeg"

    kind: Literal["clipseg"]


class Sam3Section(SegmenterSection):
    """Settings of a SAM 3. A user must request access on the model's hub page before fetching the weights."""

    family: ClassVar[str] = "SAM 3"

    kind: Literal["sam3"]
    mask_threshold: float = Field(0.5, gt=0, lt=1)


AnySegmenter = Annotated[
    PhraseNetSection | GroundedSamSection | ClipSegSection | Sam3Section, Field(discriminator="kind")
]
