"""Every setting of every stage: typed, bounded, described. Forms, validation and cache keys come from here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from core.seeds import LARGEST
from core.types import EDIT_TYPES, Data, EditType

ControlKind = Literal["canny", "soft edges", "line art", "depth", "segmentation"]
Combinations = Literal["spread", "all", "one of each", "at random", "factorial", "chosen", "model"]
MOST_AT_ONCE = 64
"""Maximum number of images drawn at once."""
Combination = tuple[tuple[str, str], ...]
"""The edits of one caption, each as (keyword, alternative)."""
MOST_EDITS = 10
LONGEST_REPLY = 2000
"""Maximum length of a language model's reply, in tokens."""
MOST_COMBINATIONS = 200
Start = Literal["noise", "inverted"]
STARTS: tuple[Start, ...] = get_args(Start)
Sweep = Literal["off", "guidance", "self-replacement"]
SeedMode = Literal["next", "fixed", "random"]
SEED_MODES: tuple[SeedMode, ...] = get_args(SeedMode)


_Share = Annotated[float, Field(ge=0, le=1)]
_Similarity = Annotated[float, Field(ge=-1, le=1)]
_Guidance = Annotated[float, Field(ge=1, le=20)]
_AtOnce = Annotated[int, Field(ge=0, le=MOST_AT_ONCE)]
_Evaluations = Annotated[int, Field(ge=1, le=20)]


class CaptionSettings(Data):
    """Settings of stage 1, the caption."""

    max_new_tokens: int = Field(80, ge=8, le=400, description="Longest caption, in tokens")
    beams: int = Field(1, ge=1, le=8, description="Beams searched; 1 is greedy when temperature is 0")
    temperature: float = Field(0.0, ge=0, le=2, description="0 gives the likeliest caption; more gives others")


class LanguageSettings(Data):
    """Settings that stages 2 to 4 share."""

    temperature: float = Field(0.2, ge=0, le=2, description="How freely the language model words its reply")
    top_p: float = Field(0.95, gt=0, le=1, description="Total probability of the words that it picks from")
    max_new_tokens: int = Field(256, ge=8, le=LONGEST_REPLY, description="Longest reply, in tokens")
    attempts: int = Field(4, ge=1, le=10, description="How often to ask again after a reply that cannot be read")


def _edit_type(typed: str) -> str:
    """Return the name of an edit type from typed text. Raises ValueError for an unknown name."""
    name = " ".join(typed.split()).lower()
    if name not in EDIT_TYPES:
        raise ValueError(f"there is no edit type “{name[:40]}”: choose {', '.join(EDIT_TYPES)}")
    return name


def _shares_by_type(typed: str) -> dict[str, float]:
    """Return the shares of a text such as "weather 0.8, background 0.2". Raises ValueError for anything else."""
    shares = {}
    for part in (part for part in typed.split(",") if part.strip()):
        name, _, typed_share = part.strip().rpartition(" ")
        try:
            share = float(typed_share)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ValueError(f"“{part.strip()[:40]}” is no edit type with a share from 0 to 1, such as: weather 0.8")
        shares[_edit_type(name)] = share
    return shares


class _TypedEdits(LanguageSettings):
    """Base for settings of stages that can be limited to some types of edits."""

    edit_types: str = Field(
        "", max_length=200, description="Only edits of these types, such as: weather, time of day; empty: all"
    )

    @field_validator("edit_types")
    @classmethod
    def _known(cls, typed: str) -> str:
        return ", ".join(dict.fromkeys(_edit_type(name) for name in typed.split(",") if name.strip()))

    def ticks(self, edit_type: str) -> bool:
        """Return True if the settings allow edits of this type."""
        return not self.edit_types or edit_type in self.edit_types.split(", ")


class KeywordSettings(_TypedEdits):
    """Settings of stage 2, the keywords. Only keywords of the chosen edit types are selected."""

    together: bool = Field(
        False,
        description="One request for keywords, alternatives and captions; the model also chooses which edits go "
        "together",
    )


class AlternativeSettings(LanguageSettings):
    """Settings of stage 3, the alternatives."""

    per_keyword: int = Field(3, ge=1, le=10, description="Alternatives kept for each keyword")
    too_close: _Similarity = Field(
        0.2,
        description="Similarity from which an alternative is too close to its keyword or the label: 0 for any two of a "
        "kind, 1 for equal ones",
    )


class CounterfactualSettings(LanguageSettings):
    """Settings of stage 4, the counterfactual captions."""

    edits_at_once: int = Field(
        1,
        ge=0,
        le=MOST_EDITS,
        description="Edits applied to one caption; 0 means all of them. If the language model chooses, their maximum",
    )
    captions: int = Field(4, ge=1, le=32, description="Maximum number of counterfactual captions")
    combinations: Combinations = Field(
        "spread",
        description="Edits that become captions: up to the maximum, spread evenly (spread) or drawn (at random); all "
        "of them; one of each keyword, or of each group of keywords; up to the maximum, a factorial experiment "
        "(factorial); those that a person chose (chosen); or up to the maximum, chosen by the language model (model)",
    )
    chosen: tuple[Combination, ...] = Field(
        (), max_length=MOST_COMBINATIONS, description="The edits of each caption that a person chose"
    )


class PerturbationSettings(_TypedEdits):
    """Settings of a stage that asks the language model for one edit of a given type at a time."""

    temperature: float = Field(0.8, ge=0, le=2, description="How freely the language model words its reply")
    per_type: int = Field(2, ge=1, le=20, description="Number of edits of each type to ask for")
    measure: Literal["centred", "raw"] = Field(
        "centred",
        description="Similarity of two phrases: without what all of their kind have in common (centred), or the plain "
        "cosine of their sentence vectors (raw)",
    )
    too_close: _Similarity = Field(
        0.2, description="Similarity from which new words are too close to the words that they replace, or to the label"
    )

    @property
    def asked(self) -> tuple[EditType, ...]:
        """Edit type of each caption to request from the language model; a type is repeated for each of its captions."""
        return tuple(name for name in EDIT_TYPES if self.ticks(name) for _ in range(self.per_type))


class ConditioningSettings(Data):
    """The control image: the structure of the source image that the generator has to keep."""

    kind: ControlKind = Field("canny", description="What the control image shows of the source image")
    median: int = Field(3, ge=0, le=15, description="Median filter that takes out rain and snow, in pixels; 0 is off")
    low: int = Field(40, ge=0, le=500, description="Lower threshold: weaker edges are dropped")
    high: int = Field(
        100,
        ge=0,
        le=500,
        description="Upper threshold: stronger edges are always kept; 0 fits both thresholds to the picture",
    )
    stretch: bool = Field(True, description="Stretch the contrast first, so that night and fog keep their edges")
    coarse: bool = Field(False, description="Draw few bold lines instead of many fine ones")

    def own_fields(self) -> tuple[str, ...]:
        """Return the names of the settings that apply only to the chosen kind of control image."""
        return _OF_KIND.get(self.kind, ())

    @field_validator("median")
    @classmethod
    def _odd(cls, median: int) -> int:
        if median and median % 2 == 0:
            raise ValueError("the median filter takes 0 (off) or an odd number of pixels")
        return median


_OF_KIND: dict[ControlKind, tuple[str, ...]] = {"canny": ("low", "high", "median", "stretch"), "line art": ("coarse",)}


class GenerationSettings(Data):
    """Settings of stage 5, which draws the images."""

    images_per_caption: int = Field(1, ge=1, le=8, description="Images made from each caption")
    steps: int = Field(20, ge=1, le=150, description="Denoising steps")
    guidance: _Guidance = Field(
        4.0, description="How strongly the caption steers; 1 is off, and drops the negative prompt"
    )
    control_strength: float = Field(1.0, ge=0, le=2, description="How strongly the edges steer")
    control_until: float = Field(
        1.0, ge=0.05, le=1, description="Up to which share of the steps the edges steer; 1 is to the end"
    )
    start: Start = Field(
        "noise", description="Where drawing starts: noise, or the noise from which the source is drawn (inverted)"
    )
    fresh_noise: _Share = Field(
        0.0,
        description="Share of fresh noise mixed into the noise of the source; at 0 all images of a caption are equal",
    )
    fresh_noise_by_type: str = Field(
        "",
        max_length=200,
        description="Larger shares of fresh noise for captions with edits of these types, such as: weather 0.8, "
        "background 0.2",
    )
    inversion_evaluations: _Evaluations = Field(
        3,
        description="Maximum number of times that the model is asked at each step of the inversion; more is more exact",
    )
    negative_prompt: str = Field("", max_length=500, description="What the image should not show")
    short_side: int = Field(512, ge=64, le=1024, multiple_of=8, description="Short side of the image, in pixels")
    seed_mode: SeedMode = Field(
        "next",
        description="Origin of seeds: the next ones of this run, always the same one, or random ones at each start",
    )
    seed: int = Field(0, ge=0, le=LARGEST, description="The seed of every caption's first image, when it is fixed")
    batch: _AtOnce = Field(0, description="Images drawn at once; 0 leaves it to the profile and the machine")

    @field_validator("fresh_noise_by_type")
    @classmethod
    def _shares(cls, typed: str) -> str:
        return ", ".join(f"{name} {share:g}" for name, share in _shares_by_type(typed).items())

    def fresh_noise_of(self, edit_types: Iterable[str]) -> float:
        """Return the share of fresh noise for a caption with edits of these types. The largest share applies."""
        by_type = _shares_by_type(self.fresh_noise_by_type)
        return max([self.fresh_noise, *(by_type.get(name, 0.0) for name in edit_types)])

    @property
    def inverted(self) -> bool:
        return self.start == "inverted"

    def inversion(self) -> InversionSettings:
        """Return the settings to invert the source. Inversion takes as many steps as drawing."""
        return InversionSettings(steps=self.steps, evaluations=self.inversion_evaluations)


class InversionSettings(Data):
    """Settings for turning a source into the noise from which the image generator draws it."""

    steps: int = Field(10, ge=1, le=150, description="Steps from the source to the noise, and back")
    evaluations: _Evaluations = Field(
        3, description="Maximum number of times that the generator is asked at each step; more is more exact"
    )
    close_enough: _Share = Field(
        0.02,
        description="A step ends once its latents would change by less than this share of their spread; at 0 it "
        "takes all its evaluations",
    )
    null_text_updates: int = Field(
        0, ge=0, le=50, description="Updates of the empty text at each step (null-text inversion); 0 is off"
    )
    guidance: _Guidance = Field(7.5, description="Guidance for which the empty text is optimised")


class EditingSettings(Data):
    """Settings of an editor that follows an instruction. `GenerationSettings` has the number of images and seeds."""

    steps: int = Field(4, ge=1, le=100, description="Denoising steps; a distilled editor was made for four")
    guidance: _Guidance = Field(
        1.0, description="How strongly the instruction steers; 1 is off, as for distilled editors"
    )
    short_side: int = Field(
        768,
        ge=64,
        le=1024,
        multiple_of=16,
        description="Short side of the edited image, in pixels; less if the image would have more than a million",
    )
    batch: _AtOnce = Field(0, description="Images edited at once; 0 leaves it to the profile and the machine")


class EditSettings(Data):
    """Settings of attention control over the inverted source (stage 5). `GenerationSettings` has steps and guidance."""

    cross_replace: _Share = Field(
        0.8, description="Share of the steps in which words are drawn at the places of the source's words"
    )
    self_replace: _Share = Field(
        0.5, description="Share of the steps in which the picture keeps the layout of the source"
    )
    local_blend: _Share = Field(
        0.0,
        description="Only places change where the attention to the changed words exceeds this share of its maximum; 0 "
        "is off, as weather and light change everywhere",
    )
    least_change: float = Field(
        0.0,
        ge=0,
        le=2,
        description="A change of the picture's latents below this many standard deviations is strengthened, so that a "
        "faint edit shows; 0 is off",
    )
    sweep: Sweep = Field(
        "off",
        description="Try a value at six strengths, from strong to weak, until an image passes its checks: guidance 1.5 "
        "to 1, or self-replacement 0.4 to 0.9",
    )
    full_sweep: bool = Field(
        False, description="Draw all strengths at once, and take the image that passes and changed most as asked"
    )


class SubjectSettings(Data):
    """Settings of the stage that finds the subject of a picture."""

    phrase: str = Field("", max_length=100, description="Word to look for; empty: the label, or each protected class")
    superclass: bool = Field(
        True, description="Look for the kind of the label, such as bird for water ouzel, which models find better"
    )
    several: Literal["largest", "all"] = Field(
        "largest", description="Subject if several things are found: the largest, or all of them"
    )
    box: str = Field("", max_length=40, description="Look within this box only: left, top, right, bottom in pixels")
    points: str = Field(
        "", max_length=2000, description="Pixels on the subject, such as 40 52, 44 60; beside it with a minus: -9 12"
    )

    @field_validator("box")
    @classmethod
    def _four_numbers(cls, typed: str) -> str:
        numbers = typed.replace(",", " ").split()
        corners = [int(one) for one in numbers if one.isdecimal()]
        if numbers and not (len(numbers) == len(corners) == 4 and corners[0] < corners[2] and corners[1] < corners[3]):
            raise ValueError("a box is four whole numbers, left, top, right and bottom, such as 10 20 90 80")
        return " ".join(numbers)

    @field_validator("points")
    @classmethod
    def _pairs(cls, typed: str) -> str:
        pairs = [" ".join(pair.split()) for pair in typed.split(",") if pair.strip()]
        for pair in pairs:
            if not re.fullmatch(r"-?\d{1,4} \d{1,4}", pair):
                raise ValueError(f"“{pair[:40]}” is no pixel: write its column and row, such as 40 52")
        return ", ".join(pairs)

    @property
    def corners(self) -> tuple[int, int, int, int] | None:
        """The box as (left, top, right, bottom) in pixels, or None without a box."""
        if not self.box:
            return None
        left, top, right, bottom = map(int, self.box.split())
        return left, top, right, bottom

    @property
    def pixels(self) -> tuple[tuple[int, int, bool], ...]:
        """The points as (column, row, True if the point is on the subject)."""
        pairs = [pair.split() for pair in self.points.split(", ")] if self.points else []
        return tuple((int(x.lstrip("-")), int(y), not x.startswith("-")) for x, y in pairs)


class BackgroundsSettings(LanguageSettings):
    """Settings of the stage that describes new backgrounds. Each background has an instruction, a place and a time."""

    temperature: float = Field(0.8, ge=0, le=2, description="How freely the language model words its reply")
    written: bool = Field(
        True,
        description="The language model writes each description; otherwise the filled-in prompt is the description",
    )
    captions: int = Field(4, ge=1, le=32, description="Backgrounds described for each picture")
    instructions: str = Field(
        "a photo of, a wide view of, a close view of", max_length=1000, description="Kinds of pictures, with commas"
    )
    places: str = Field(
        "a beach, a forest, a mountain meadow, a city street, a desert, a lake shore, a garden, a rocky coast",
        max_length=4000,
        description="Places, with commas",
    )
    times: str = Field(
        "at dawn, at noon, at sunset, at night, on a foggy morning, in heavy rain, in autumn, in snowy winter",
        max_length=4000,
        description="Times of day and seasons, with commas",
    )
    avoid: str = Field(
        "", max_length=4000, description="Words that no background may name besides the label, with commas"
    )
    bank: int = Field(
        0, ge=0, le=100_000, description="Number of backgrounds that all pictures share; 0: each picture has its own"
    )
    folder: str = Field(
        "", max_length=1000, description="A folder of your own pictures that become the backgrounds; empty: drawn ones"
    )


class CompositeSettings(Data):
    """Settings of stage 5 for a new background behind the subject. `GenerationSettings` determines how it is drawn."""

    layout: Literal["edges", "text", "outpaint"] = Field(
        "edges",
        description="What guides a drawn background: the source's edges without those of its subject (edges), only its "
        "description (text), or the subject around which it is drawn (outpaint)",
    )
    shift: float = Field(0.0, ge=0, le=0.5, description="Largest move of the subject, as a share of each side")
    scale: float = Field(1.0, ge=1, le=2, description="Largest factor by which the subject grows or shrinks")
    rotation: float = Field(0.0, ge=0, le=45, description="Largest turn of the subject, in degrees")
    flip: bool = Field(False, description="Mirror every second subject; not for text, traffic, or sides that differ")
    soften: int = Field(0, ge=0, le=60, description="Width in pixels of the rim beside the subject; 0: none")
    rim: Literal["fade", "hair"] = Field(
        "fade", description="The rim fades into the background (fade), or hair and fur are found in it (hair)"
    )

    @property
    def moves(self) -> bool:
        """True if the subject may be moved, scaled, rotated or mirrored."""
        return bool(self.shift or self.scale > 1 or self.rotation or self.flip)


class UnderTestSettings(Data):
    """Settings of the model under test. They do not affect how images are made."""

    source: Literal["profile", "torchvision", "timm", "transformers", "file", "onnx", "http"] = Field(
        "profile",
        description="Where it comes from: the profile; torchvision, timm or the hub (transformers) by name; a "
        "checkpoint or ONNX file; or a server",
    )
    name: str = Field(
        "",
        max_length=120,
        description="Its name, such as resnet50; for a file its architecture, with timm: or torchvision: before it "
        "where both have it; on the hub owner/name",
    )
    file: str = Field(
        "",
        max_length=1000,
        description="The checkpoint: a .safetensors, .pt or .pth with weights only; an .onnx; a folder of transformers",
    )
    classes: str = Field("", max_length=20000, description="Names of a file's classes in order, with commas between")
    address: str = Field("", max_length=1000, description="Web address of a model behind HTTP")
    timeout: float = Field(60.0, gt=0, le=3600, description="Seconds within which a server answers one request")
    size: str = Field("", max_length=20, description="Size of images for a file: 224, or width x height")
    mean: str = Field("", max_length=100, description="Mean of each channel (0 to 1) to subtract for a file")
    std: str = Field("", max_length=100, description="Number by which each channel is then divided")
    layout: Literal["channels first", "channels last"] = Field(
        "channels first", description="Order of an ONNX file's pixels: (3, height, width) or (height, width, 3)"
    )

    @field_validator("address")
    @classmethod
    def _on_the_web(cls, typed: str) -> str:
        address = typed.strip().rstrip("/")
        try:
            parts = urlsplit(address)
            whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            whole = False
        if address and not whole:
            raise ValueError("the address of a model begins with http:// or https:// and names a machine")
        if address and "@" in parts.netloc:
            raise ValueError("the address of a model is kept with its results: leave name and password out of it")
        return address

    @field_validator("size")
    @classmethod
    def _of_pixels(cls, typed: str) -> str:
        size = "".join(typed.lower().replace("×", "x").split())
        if size and not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})?", size):
            raise ValueError("the size is a number of pixels such as 224, or width x height such as 1024x512")
        return size

    @field_validator("mean", "std")
    @classmethod
    def _of_channels(cls, typed: str, info: ValidationInfo) -> str:
        try:
            numbers = [float(number) for number in typed.split(",")] if typed.strip() else [0.5] * 3
        except ValueError:
            numbers = []
        least = 0.0 if info.field_name == "mean" else 1e-6
        if len(numbers) != 3 or not all(least <= number <= 1e3 for number in numbers):
            raise ValueError(
                f"{info.field_name} takes a number for each of three channels, with commas between, such as "
                + ("0.485, 0.456, 0.406" if info.field_name == "mean" else "0.229, 0.224, 0.225")
            )
        return typed.strip()

    @property
    def title(self) -> str:
        """The model's name in records and on the page."""
        if self.source == "file":
            return f"{self.name} {self.file}".strip()
        return f"{self.source} {self.address if self.source == 'http' else self.name or self.file}"


class Settings(Data):
    """All settings of a run. A profile overrides the defaults."""

    caption: CaptionSettings = CaptionSettings()
    keywords: KeywordSettings = KeywordSettings()
    alternatives: AlternativeSettings = AlternativeSettings()
    counterfactuals: CounterfactualSettings = CounterfactualSettings()
    conditioning: ConditioningSettings = ConditioningSettings()
    generation: GenerationSettings = GenerationSettings()
    under_test: UnderTestSettings = UnderTestSettings()


class SettingsWithEditing(Settings):
    """Settings of a recipe with an image editor."""

    editing: EditingSettings = EditingSettings()


class SettingsWithEdit(Settings):
    """Settings of a recipe whose images are edits of the inverted source."""

    edit: EditSettings = EditSettings()


class SettingsWithPerturbations(SettingsWithEdit):
    """Settings of a recipe that gives each caption one edit of a given type, and edits the inverted source."""

    perturbations: PerturbationSettings = PerturbationSettings()


class SettingsWithBackgrounds(Settings):
    """Settings of a recipe that puts the subject of the source in front of new backgrounds."""

    subject: SubjectSettings = SubjectSettings()
    backgrounds: BackgroundsSettings = BackgroundsSettings()
    composite: CompositeSettings = CompositeSettings()
