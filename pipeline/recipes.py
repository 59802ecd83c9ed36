"""Recipes: the text stages of a run, declared in `pipeline.stages`, and the method that draws. `SHIPPED` lists them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core.errors import UserError
from core.lineage import MethodSettings
from core.regions import Region
from core.settings import (
    Settings,
    SettingsWithBackgrounds,
    SettingsWithEdit,
    SettingsWithEditing,
    SettingsWithPerturbations,
)
from core.types import (
    GENERATION,
    CounterfactualCaption,
    CounterfactualCaptions,
    PromptSlot,
    StageKind,
    StageName,
    StageValue,
    Values,
    set_stages,
    stage_kinds,
    stage_title,
)
from core.validation_messages import reason
from pipeline.methods import method_of
from pipeline.methods.base import MethodDescription
from pipeline.profiles.profile import Profile
from pipeline.prompting import PROMPTS_FOLDER, PromptSet, load_prompts
from pipeline.stages.alternatives import ALTERNATIVES
from pipeline.stages.backgrounds import BACKGROUNDS
from pipeline.stages.base import Stage
from pipeline.stages.caption import CAPTION, caption_text
from pipeline.stages.counterfactuals import COUNTERFACTUALS
from pipeline.stages.keywords import KEYWORDS
from pipeline.stages.perturbations import PERTURBATIONS
from pipeline.stages.region import REGION, painted_region
from pipeline.stages.subject import SUBJECT, all_but_subject

DRAWING_PROMPT = PromptSlot("diffusion", ("caption",), ("shown", "kept"))
"""Prompt for the generator. `$kept` lists the label or protected classes, `$shown` only those in the picture."""
INSTRUCTION_PROMPT = PromptSlot(
    "instruction",
    ("edits",),
    ("caption", "shown", "kept"),
    default="Change $edits. The picture then shows this: $caption Keep everything else as it is: the same camera, "
    "every shape in its place and of its size. These stay what and where they are: $shown.",
)
"""Prompt for an editor. `$edits` lists the changes ("red to blue"). `DRAWING_PROMPT` explains `$shown` and `$kept`."""
BACKGROUND_PROMPT = PromptSlot("background", ("caption",), default="$caption")
"""Prompt for a background. It names no label, since the subject is put in front of the background afterwards."""
PLANNING = frozenset(("generation.images_per_caption", "generation.seed_mode", "generation.seed"))
"""Settings of the generation that determine, for every method, which images are drawn."""
RESERVED = frozenset(("source", "task", "settings", "model", "prompt", GENERATION))
"""Names that no stage may have, because keys of values and pages use them for something else."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class Recipe:
    """Text stages in order, and the method that turns their values into images."""

    name: str
    """Unique name of letters, digits and hyphens."""
    title: str
    description: str
    """One sentence about the images of the recipe, for the page."""
    stages: tuple[Stage, ...]
    captions: Callable[[Values], CounterfactualCaptions | None]
    """Returns the captions to draw, given the values by stage, or None while a value is missing."""
    method: str = "controlnet"
    drawing_prompt: PromptSlot = DRAWING_PROMPT
    """The prompt that the method fills for each caption."""
    settings: type[Settings] = Settings
    """The type of the recipe's settings. It is a subclass if the recipe's stages have sections of their own."""
    source_caption: Callable[[Values], str] = caption_text
    """Returns the caption of the source image, given the values by stage. The checks measure the change from it."""
    region: Callable[[Values], Region] = painted_region
    """Returns the region of the source that may change, given the values by stage. Only some methods use a region."""
    unedited: str = "by hand"
    """Words shown in place of edits for an image whose caption has none."""
    control: str = ""
    """Recipe that draws the control set of this one: images without an edit, by the same method. "" for none."""

    @property
    def drawing_method(self) -> MethodDescription:
        return method_of(self.method)

    def drawn_with(self, settings: Settings, values: Values) -> MethodSettings:
        """Return the settings that the method reads. They include the stage `values` on which pixels depend."""
        return self.drawing_method.settings_of(settings, self.source_caption(values), self.region(values))

    def cannot_draw(self, profile: Profile) -> str:
        """Return a sentence that says why a profile cannot draw the recipe's images, or "" if it can."""
        return self.drawing_method.cannot_draw(profile)

    @cached_property
    def names(self) -> tuple[StageName, ...]:
        return tuple(stage.name for stage in self.stages)

    @property
    def cards(self) -> tuple[StageName, ...]:
        """Names of the cards on the page: the text stages in order, then the drawing."""
        return (*self.names, GENERATION)

    @property
    def last(self) -> Stage:
        """The last text stage, after which a person approves the images."""
        return self.stages[-1]

    def stage(self, name: StageName) -> Stage:
        """Return the stage of this name. Raises UserError if the recipe has none."""
        if name not in self.names:
            raise UserError(f"The recipe “{self.title}” has no stage {name[:80]!r}: it has {', '.join(self.names)}.")
        return self.stages[self.names.index(name)]

    def onwards(self, name: StageName) -> tuple[StageName, ...]:
        """Return the names of this stage and all later ones."""
        return self.names[self.names.index(self.stage(name).name) :]

    def asked_ahead(self, name: StageName, settings: Settings, prompts: PromptSet) -> tuple[StageName, ...]:
        """Return the later stages that a stage's request also answers. Empty if one of them or a prompt is missing."""
        stage = self.stage(name)
        if stage.asks_ahead is None or not all(prompts.get(slot.name) for slot in stage.others_sent(settings)):
            return ()
        ahead = stage.asks_ahead(getattr(settings, stage.settings) if stage.settings else None)
        return ahead if set(ahead) <= set(self.onwards(name)[1:]) else ()

    def missing(self, name: StageName) -> str:
        """Return a sentence that says that a stage has no value yet, and what to do."""
        stage, place = self.stage(name), self.names.index(name)
        which = f"the {_ORDINALS[place]} stage" if place < len(_ORDINALS) else f"stage {place + 1}"
        if stage.plural:
            return f"There are no {stage.noun} yet: run {which}, or add one."
        return f"There is no {stage.noun} yet: run {which}, or write one."

    @property
    def prompt_slots(self) -> tuple[PromptSlot, ...]:
        """Return all prompts of the recipe: the prompts of its stages and the prompt of the drawing."""
        return (*(slot for stage in self.stages for slot in stage.prompt_slots), self.drawing_prompt)

    def unsent(self, settings: Settings) -> frozenset[str]:
        """Return the names of the recipe's prompts that are not sent with these settings."""
        sent = {slot.name for stage in self.stages for slot in stage.others_sent(settings)}
        return frozenset(slot.name for stage in self.stages for slot in stage.other_prompts if slot.name not in sent)

    def prompts(self, prompt_set: str, folder: Path = PROMPTS_FOLDER) -> PromptSet:
        """Load the recipe's prompts from a prompt set. Raises PromptError if one is missing or invalid."""
        return load_prompts(prompt_set, self.prompt_slots, folder)

    def settings_in(self, profile: Profile, plain: Mapping[str, Any] | None = None) -> Settings:
        """Return the profile's settings for this recipe, with known sections replaced by those in `plain`. Raises
        UserError for a wrong value of the profile, and pydantic.ValidationError if `plain` does not fit.
        """
        known = self.settings.model_fields
        shared = {name: getattr(profile.settings, name) for name in Settings.model_fields}
        try:
            defaults = self.settings.model_validate(shared | profile.recipes.get(self.name, {}))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in ("recipes", self.name, *first["loc"]))
            raise UserError(
                f"The profile {profile.name} has a wrong value at {key}: {reason(error, self.settings)}."
            ) from error
        sections = {name: getattr(defaults, name) for name in known}
        return self.settings.model_validate(
            sections | {name: part for name, part in (plain or {}).items() if name in known}
        )

    def reads(self, setting: str) -> bool:
        """Return True if the recipe uses a setting like "generation.steps". Only drawing settings may be unused."""
        section = setting.partition(".")[0]
        if section == "generation":
            method = self.drawing_method
            return setting in PLANNING or (section in method.sections and setting.split(".")[-1] not in method.decided)
        return section != "conditioning" or section in self.drawing_method.sections

    def section_card(self, section: str) -> StageName | None:
        """Return the name of the card that shows a section of the settings: a stage, `GENERATION`, or None."""
        for stage in self.stages:
            if stage.settings == section:
                return stage.name
        # The drawing's card shows the number of images and the seeds for every method.
        return GENERATION if section in (*self.drawing_method.sections, "generation") else None


def _unedited(values: Values) -> CounterfactualCaptions | None:
    caption = values.get("caption")
    return None if caption is None else CounterfactualCaptions((CounterfactualCaption(caption.text, ()),))


DILLEMA = Recipe(
    name="dillema",
    title="DILLEMA",
    description="Changes words of the caption that the task leaves free, and draws each changed caption.",
    stages=(CAPTION, KEYWORDS, ALTERNATIVES, COUNTERFACTUALS),
    captions=lambda values: values.get("counterfactuals"),
    control="reconstruction",
)
RECONSTRUCTION = Recipe(
    name="reconstruction",
    title="Reconstruction",
    description="Draws the source's own caption without an edit: the control set, which shows what drawing alone does.",
    stages=(CAPTION,),
    captions=_unedited,
    unedited="reconstruction",
)
INSTRUCT = replace(
    DILLEMA,
    name="dillema-instruct",
    title="DILLEMA, edited",
    description="Changes words of the caption as DILLEMA does, and has an editor make each change in the source. "
    "The editor may move the shapes of the source: look at the checks of edges and mask.",
    method="instruct",
    drawing_prompt=INSTRUCTION_PROMPT,
    settings=SettingsWithEditing,
    control="",  # an editor that is asked to change nothing has no instruction
)
LANCE = Recipe(
    name="lance",
    title="LANCE",
    description="Changes one thing, of a chosen type, in each caption, and makes this edit in the inverted source.",
    stages=(CAPTION, REGION, PERTURBATIONS),
    captions=lambda values: values.get("counterfactuals"),
    method="edit",
    settings=SettingsWithPerturbations,
    control="lance-reconstruction",
)
LANCE_RECONSTRUCTION = replace(
    RECONSTRUCTION,
    name="lance-reconstruction",
    title="LANCE’s reconstruction",
    description="Draws the source again from its noise without an edit: the control set of LANCE's images.",
    method="edit",
    settings=SettingsWithEdit,
)
AGA = Recipe(
    name="aga",
    title="AGA",
    description="Keeps the subject of the source pixel by pixel, and puts it in front of new backgrounds.",
    stages=(SUBJECT, BACKGROUNDS),
    captions=lambda values: values.get("counterfactuals"),
    method="background",
    drawing_prompt=BACKGROUND_PROMPT,
    settings=SettingsWithBackgrounds,
    source_caption=lambda _values: "",
    region=all_but_subject,
    unedited="own background",
)
SHIPPED = (DILLEMA, RECONSTRUCTION, INSTRUCT, LANCE, LANCE_RECONSTRUCTION, AGA)


class UnknownRecipe(UserError):
    """Raised for a name that no recipe has."""


_known: dict[str, Recipe] = {}


def register(recipe: Recipe) -> None:
    """Add a recipe of another program. Raises ValueError if its name is taken, if a stage's name is not allowed or
    already means something else, or if a stage reads another stage that does not come before it.
    """
    if recipe.name in _known:
        raise ValueError(f"there is a recipe {recipe.name!r} already")
    stages = (*known_stages(), *recipe.stages)
    types = {stage.name: stage.value for stage in known_stages()}
    mixed_up = {slot.name for stage in stages for slot in stage.other_prompts} & {stage.name for stage in stages}
    if mixed_up:
        raise ValueError(f"{min(mixed_up)!r} is both a stage and a further prompt of a stage: rename one of them")
    for place, stage in enumerate(recipe.stages):
        if not re.fullmatch(r"[a-z][a-z0-9-]*", stage.name) or stage.name in RESERVED:
            raise ValueError(f"{stage.name!r} is no name for a stage: take small letters, digits and hyphens")
        if types.get(stage.name, stage.value) is not stage.value:
            raise ValueError(f"the stage {stage.name!r} of {recipe.name!r} has a name that means something else")
        if not set(stage.reads) <= set(recipe.names[:place]):
            raise ValueError(f"the stage {stage.name!r} of {recipe.name!r} reads a stage that does not come before it")
    _known[recipe.name] = recipe
    set_stages({stage.name: StageKind(stage.value, stage.title, stage.doing) for stage in known_stages()})


def known_recipes() -> tuple[Recipe, ...]:
    """Return all recipes, the shipped ones first."""
    return tuple(_known.values())


def recipes_for(profile: Profile) -> tuple[Recipe, ...]:
    """Return the recipes that this profile offers and can run."""
    offered = [recipe for recipe in _known.values() if recipe.name in (profile.offers or _known)]
    return tuple(recipe for recipe in offered if not recipe.cannot_draw(profile))


def recipe_of(name: str) -> Recipe:
    """Return the recipe of this name. Raises UnknownRecipe, which lists all names."""
    if name not in _known:
        raise UnknownRecipe(f"There is no recipe {name[:80]!r} here: choose {', '.join(_known)}.", field="recipe")
    return _known[name]


def control_of(name: str) -> Recipe | None:
    """Return the recipe for the control set of a recipe's images, or None. An unknown recipe counts as DILLEMA."""
    return _known.get(_known.get(name, DILLEMA).control)


def control_recipes() -> tuple[Recipe, ...]:
    """Return the recipes whose images are controls of other recipes."""
    named = {recipe.control for recipe in _known.values()}
    return tuple(recipe for recipe in _known.values() if recipe.name in named)


def section_card(section: str) -> StageName | None:
    """Search all recipes for the card that shows a section of the settings. Return the card's name, or None."""
    cards = (recipe.section_card(section) for recipe in _known.values())
    return next((card for card in cards if card is not None), None)


def stage_of_prompt(name: str) -> StageName:
    """Return the name of the stage that sends this prompt in any recipe. Return `name` itself if no stage sends it."""
    named = {slot.name: stage.name for stage in _every_stage() for slot in stage.prompt_slots}
    return named.get(name, name)


def prompt_title(name: str) -> str:
    """Return the title of a prompt: its stage's title, or its own title if its stage has several prompts."""
    others = {slot.name: slot.title for stage in _every_stage() for slot in stage.other_prompts}
    return others.get(name) or stage_title(stage_of_prompt(name))


def is_drawn_from(recipe: str, counterfactual: CounterfactualCaption, values: Values) -> bool:
    """Return True if `values` has a ticked caption with the text and edits of `counterfactual`."""
    captions = _known[recipe].captions(values) if recipe in _known else None
    return captions is not None and any(
        item.used and item.text == counterfactual.text and item.edits == counterfactual.edits for item in captions.items
    )


def edits_in_words(recipe: str, counterfactual: CounterfactualCaption) -> str:
    """Return the alternatives of an image's edits in words, such as "snowy, at night"."""
    unedited = _known[recipe].unedited if recipe in _known else DILLEMA.unedited
    return ", ".join(edit.alternative for edit in counterfactual.edits) or unedited


def _every_stage() -> Iterator[Stage]:
    """Return the stages of all recipes. Two recipes may have stages with the same name and different prompts."""
    return (stage for recipe in _known.values() for stage in recipe.stages)


def known_stages() -> tuple[Stage, ...]:
    """Return one stage for each stage name, in an order that fits all recipes."""
    merged: list[Stage] = []
    for recipe in _known.values():
        place = len(merged)
        for stage in reversed(recipe.stages):
            names = [known.name for known in merged]
            if stage.name in names:
                place = names.index(stage.name)
            else:
                merged.insert(place, stage)
    return tuple(merged)


def values_from_plain(data: Mapping[str, Any]) -> dict[StageName, StageValue[Any]]:
    """Return stage values from plain data. Raises ValueError for an unknown stage, and pydantic.ValidationError."""
    unknown = data.keys() - stage_kinds().keys()
    if unknown:
        raise ValueError(f"there is no stage {min(unknown)!r}")
    return {
        name: TypeAdapter(StageValue[kind.value]).validate_python(data[name])  # type: ignore[name-defined]
        for name, kind in stage_kinds().items()
        if name in data
    }


for shipped in SHIPPED:
    register(shipped)
