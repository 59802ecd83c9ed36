"""The plan of a batch as data: items of a data set, how to make images of them, and conditions on the results.

Reads and writes `plan.toml`. A wrong key or value is refused in one sentence that names it and the allowed ones. Opens
no data set and loads no model, but reads the profile, from which the settings start.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from core.check_words import CAPTION_WORDS, WORDS
from core.errors import UserError
from core.judgements import JUDGE
from core.lineage import DEFAULT_RECIPE
from core.seeds import LARGEST
from core.settings import BackgroundsSettings, PerturbationSettings, Settings, SettingsWithBackgrounds, Start
from core.types import EDIT_TYPES, Task, TaskKind
from core.validation_messages import place_of, reason
from core.words import count_of, few_names
from formats.layouts import LAYOUTS
from pipeline.checks.texts import require, task_checks
from pipeline.profiles.profile import load_profile, profile_names
from pipeline.recipes import Recipe, known_recipes, recipe_of
from pipeline.stages.subject import NO_FINDER

PLANS = Path(__file__).resolve().parent / "plans"
"""Folder of plans that repeat the paper's set-ups. Users add the path of their data: see `BatchPlan.with_root`."""
LISTED = 12
"""Maximum number of known names listed in an error, the most similar first."""
CHECKS = (*(name for name in WORDS if not name.startswith(JUDGE)), *CAPTION_WORDS)
"""Names of the checks of images and captions that a plan may ask for."""
SAID_BY_PLAN = {
    "generation.images_per_caption": "images.seeds_a_caption",
    "generation.seed_mode": "make.seed",
    "generation.seed": "make.seed",
}
"""Settings that make.settings may not contain, each with the key of the plan to use instead."""
LONGEST_NAME = 100
_SO_MANY = ("spread", "at random", "factorial", "model")
"""Values of `counterfactuals.combinations` for which `counterfactuals.captions` is the maximum number of captions."""
_TRIFLES = {"name", "note", "cost", "run"}
"""Parts of a plan that do not change its images, and so do not count in its digest."""


def nearest_first(name: str, known: Iterable[str]) -> str:
    """List at most `LISTED` known names, such as "red, rose and 3 more", the most similar to `name` first."""
    low = name.casefold()
    return few_names(sorted(known, key=lambda one: -SequenceMatcher(None, low, one.casefold()).ratio()), LISTED)


def _all_known(names: Iterable[str], known: Collection[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {what} “{name[:60]}”; there are: {nearest_first(name, known)}")


def _edit_types(shares: dict[str, float]) -> dict[str, float]:
    _all_known(shares, EDIT_TYPES, "edit type")
    wrong = next((name for name, share in shares.items() if share <= 0), None)
    if wrong is not None:
        raise ValueError(f"the share of {wrong} has to be above 0: leave out a type that you do not want")
    return shares


def _checks(names: tuple[str, ...]) -> tuple[str, ...]:
    titles = {words.title: name for name, words in WORDS.items()}
    for name in names:
        if titles.get(name, name).startswith(JUDGE):
            raise ValueError(f"a judge sees images after they are drawn, so a plan cannot ask for “{name}”")
        if name not in CHECKS and name in titles:
            raise ValueError(f"the check that pages call “{name}” is named “{titles[name]}”: write that")
    _all_known(names, CHECKS, "check")
    return names


def _filled(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(name.strip() for name in names):
        raise ValueError("one of the names is empty")
    twice = next((name for name, number in Counter(names).items() if number > 1), None)
    if twice is not None:
        raise ValueError(f"“{twice[:80]}” is listed twice: take one out")
    return names


def _scalars(settings: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} has to be a number, a text, true or false")
    return settings


Names = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_filled)]
"""At least one name, without duplicates."""


class _Part(BaseModel):
    # Strict: a number in quotation marks, or `true` for a number, is a mistake, not another notation.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataPart(_Part):
    """The data set with the source images. It is read where it is, without a copy."""

    root: str = Field(min_length=1)
    """Absolute path of a folder or an archive. In a plan's file it may be relative to the folder of that file."""
    layout: str = Field(min_length=1)
    """Name of a layout of `formats.layouts`."""
    split: str = ""
    """Name of a split of the data set; "" if it has none. Required if the data set has several."""
    options: dict[str, str] = Field(default_factory=dict)
    """Further options of the layout, such as {"labels": "largest object"}."""


class TaskPart(_Part):
    """Task of the model under test."""

    kind: TaskKind
    label: str = ""
    """Label of all items; "" if each has its own. Classification only."""
    protected: Annotated[tuple[str, ...], AfterValidator(_filled)] = ()
    """Classes of the mask that must stay in place; segmentation only."""

    @model_validator(mode="after")
    def _fits(self) -> TaskPart:
        if self.kind == "classification" and self.protected:
            raise ValueError("protected belongs to kind = “segmentation”: a classification has labels")
        if self.kind == "segmentation" and self.label:
            raise ValueError("label belongs to kind = “classification”: a segmentation has protected classes")
        if self.kind == "segmentation" and not self.protected:
            raise ValueError("a segmentation needs protected, such as protected = [“road”, “vehicle”]")
        return self


class ChoosePart(_Part):
    """Items of the data set to take. Without any limit, all items are taken."""

    classes: Names | None = None
    """Only items with one of these labels."""
    a_class: int | None = Field(None, ge=1)
    """Maximum number of items of each class, drawn at random; None for no limit."""
    share: float | None = Field(None, gt=0, le=1)
    """Share of the items to take, above 0 and at most 1; approximate, since each item is drawn independently."""
    number: int | None = Field(None, ge=1)
    """Maximum number of items of all classes together. They are drawn at random. None for no limit."""
    attributes: dict[str, Names] = Field(default_factory=dict)
    """Allowed values by attribute, such as {"weather": ("rainy", "foggy")}. Items with other values are left out."""
    keys: Names | None = None
    """Only items with these keys. A plan's file may instead name a text file with one key per line."""
    seed: int = Field(0, ge=0, le=LARGEST)

    @model_validator(mode="after")
    def _one_size(self) -> ChoosePart:
        if self.share is not None and self.number is not None:
            raise ValueError("share and number both limit the items: keep one of them")
        return self


class MakePart(_Part):
    """Settings for making test cases."""

    profile: str = Field(min_length=1)
    """Name of a profile, or absolute path of a .toml file. In a plan's file, it may be relative to that file."""
    recipe: str = DEFAULT_RECIPE
    settings: Annotated[dict[str, Any], AfterValidator(_scalars)] = Field(default_factory=dict)
    """Settings that differ from the profile's, by names such as "generation.steps"."""
    seed: int = Field(0, ge=0, le=LARGEST)
    """Seed from which the seeds of replies and images are derived."""


class EditsPart(_Part):
    """Rules that choose the counterfactual captions to draw, from all that were written."""

    types: Annotated[dict[str, float], AfterValidator(_edit_types)] = Field(default_factory=dict)
    """Relative share of each edit type; types that are not listed are not drawn. Empty: all types, in any shares."""
    most_share_of_a_word: float | None = Field(None, gt=0, le=1)
    """Maximum share of captions that contain the same new word, above 0 to 1. One such caption is always allowed."""
    captions_a_source: int | None = Field(None, ge=1, le=200)
    """Maximum number of captions of one source image; None for all that were written."""


class ImagesPart(_Part):
    """Images drawn from each caption."""

    seeds_a_caption: int = Field(1, ge=1, le=8)
    """Number of images drawn from each caption, each with a seed of its own."""
    checks: Annotated[tuple[str, ...], AfterValidator(_filled), AfterValidator(_checks)] = ()
    """Checks that an image must not fail. An undecided check does not count as failed."""
    tries: int = Field(3, ge=1, le=100)
    """Maximum number of tries for the text of a source, or for an image, before it counts as failed."""


class CostPart(_Part):
    """Cost of the work."""

    price_an_hour: float | None = Field(None, ge=0)
    """Price per hour of all machines together; None for unknown."""
    currency: str = Field("", max_length=20)


class RunPart(_Part):
    """Distribution of the work. Does not change the results."""

    workers: int | None = Field(None, ge=1, le=10_000)
    """Number of processes that make images; None for as many as suit the machine."""


class BatchPlan(_Part):
    """A complete plan. Its paths are absolute. `choose.keys` has the keys, even if the plan's file names a key file."""

    name: str = Field("", max_length=LONGEST_NAME)
    """Title for people. `read_plan` uses the file's name if the plan has none."""
    note: str = ""
    """Note for people. It has no effect on the work."""
    data: DataPart
    task: TaskPart
    choose: ChoosePart = ChoosePart()
    make: MakePart
    edits: EditsPart = EditsPart()
    images: ImagesPart = ImagesPart()
    cost: CostPart = CostPart()
    run: RunPart = RunPart()

    @property
    def digest(self) -> str:
        """Return a SHA-256, in hexadecimal, of all that changes the plan's images. Keys with their default value are
        left out, so that a key of a later version changes only the digests of plans that use it.
        """
        plain = self.model_dump(mode="json", exclude=_TRIFLES, exclude_defaults=True)
        return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def toml_text(self) -> str:
        """Return the whole plan as TOML, with every key that has a value. Reading it gives an equal plan."""
        plain = self.model_dump(mode="json", exclude_none=True)
        lines = [f"{name} = {_toml(value)}" for name, value in plain.items() if not isinstance(value, dict)]
        for name, part in plain.items():
            if isinstance(part, dict):
                lines += _toml_table(name, part)
        return "\n".join(lines) + "\n"

    def with_root(self, root: Path) -> BatchPlan:
        """Return the same plan for a data set at another path."""
        return self.model_copy(update={"data": self.data.model_copy(update={"root": str(root.absolute())})})

    def task_of(self, label: str) -> Task:
        """Return an item's task. `label` is the item's label or "". Raises UserError if a needed label is missing."""
        part = self.task
        task = Task(part.kind, part.label or (label if part.kind == "classification" else ""), part.protected)
        if part.kind == "classification" and not task.label.strip():
            raise UserError(
                "The item has no label, and the plan gives none: set task.label in the plan.", field="task.label"
            )
        require(task_checks(task))
        return task


def read_plan(path: Path) -> BatchPlan:
    """Return the plan in a file.

    Raises UserError for a file that cannot be read, an unknown key, or a wrong value, such as an unknown layout,
    profile, recipe or setting. The error's `field` is the wrong key.
    """
    return plan_from_text(_text_in(path, f"The plan {path}"), path)


def plan_from_text(text: str, path: Path) -> BatchPlan:
    """Return the plan in a TOML text. Relative paths start at the folder of `path`. Raises UserError if invalid."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"The plan {path} is not valid TOML: {error}.") from error
    data = _whole(data, path)
    try:
        # Validated as JSON: otherwise a strict model refuses a list for a tuple.
        plan = BatchPlan.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        raise _refusal(path, error) from error
    try:
        if plan.data.layout not in LAYOUTS:
            raise _unknown("layout", plan.data.layout, "data.layout", LAYOUTS)
        settings_of(plan)
    except UserError as error:
        raise UserError(f"The plan {path} cannot be used. {error}", field=error.field) from error
    return plan


def named_paths(text: str) -> Mapping[str, str]:
    """Return each path in a plan's text, by its key such as "data.root". Opens no file. Empty for invalid TOML."""
    try:
        return _paths_in(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return {}


def _paths_in(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return each path in the content of a plan's file, by its key. A profile that is only a name is no path."""
    paths = {}
    for section, key in (("data", "root"), ("make", "profile"), ("choose", "keys")):
        part = data.get(section)
        named = part.get(key) if isinstance(part, dict) else None
        if isinstance(named, str) and (key != "profile" or named.endswith(".toml")):
            paths[f"{section}.{key}"] = named
    return paths


def settings_of(plan: BatchPlan) -> Settings:
    """Return the settings for all work of a plan: the settings of its profile, with the plan's changes.

    Raises UserError, with the key as its `field`, for an unknown profile, recipe or setting, for a value that a setting
    does not take, and for contradicting keys.
    """
    profile_name = plan.make.profile
    if not profile_name.endswith(".toml") and profile_name not in profile_names():
        raise _unknown("profile", profile_name, "make.profile", profile_names())
    profile, recipe = load_profile(profile_name), _recipe(plan.make.recipe, "make.recipe")
    if hindrance := recipe.cannot_draw(profile):
        raise UserError(f"make.recipe is {recipe.name!r}. {hindrance}", field="make.recipe")
    defaults = recipe.settings_in(profile)
    plain = defaults.model_dump(mode="json")
    for name, value in plan.make.settings.items():
        section, field = _required_setting(name, plain, recipe)
        plain[section][field] = value
    edits = plan.edits
    if "counterfactuals" in recipe.names:
        typed = [stage.settings for stage in recipe.stages if "edit_types" in plain.get(stage.settings, ())]
        if edits.types and typed and f"{typed[0]}.edit_types" not in plan.make.settings:
            names = [name for name in EDIT_TYPES if name in edits.types]
            plain[typed[0]]["edit_types"] = ", ".join(names)  # no model is asked for types that are not drawn
    elif edits.types or edits.most_share_of_a_word is not None:
        key = "edits.types" if edits.types else "edits.most_share_of_a_word"
        raise UserError(f"{key} is set, but the recipe {recipe.name} makes no edits: take it out.", field=key)
    plain["generation"] |= {"images_per_caption": plan.images.seeds_a_caption, "seed_mode": "next"}
    try:
        settings = type(defaults).model_validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:2])
        why = _in_toml_words(reason(error, type(defaults)))
        message = f"The setting {name} in make.settings cannot be {_toml(first['input']):.80}: {why}."
        raise UserError(message, field="make.settings") from error
    method = recipe.drawing_method
    drawn_with = method.settings_of(settings)
    if hindrance := method.refused(profile, drawn_with):
        raise UserError(f"The profile cannot draw what make.settings asks for. {hindrance}", field="make.settings")
    unmarked = isinstance(settings, SettingsWithBackgrounds) and not (settings.subject.box or settings.subject.points)
    if unmarked and profile.segmenter is None:  # nobody is there to mark each subject
        hint = "set subject.box or subject.points under make.settings, or take a profile with a segmenter"
        raise UserError(f"{NO_FINDER} For a batch, {hint}.", field="make.settings")
    if plan.images.seeds_a_caption > 1 and (equal := method.equal_images(drawn_with)):
        raise UserError(
            f"images.seeds_a_caption is {plan.images.seeds_a_caption}. {equal}", field="images.seeds_a_caption"
        )
    written = most_captions(plan, settings)
    limits = {"captions_a_source": edits.captions_a_source, "most_share_of_a_word": edits.most_share_of_a_word}
    limit = next((f"edits.{name}" for name, value in limits.items() if value is not None), "")
    if limit and written is not None and settings.counterfactuals.combinations == "factorial":
        raise UserError(
            f"{limit} would leave out combinations of the factorial experiment: remove this limit, and set "
            "counterfactuals.captions under make.settings instead.",
            field=limit,
        )
    if edits.captions_a_source is not None and written is not None and edits.captions_a_source > written:
        section = recipe.stage("counterfactuals").settings
        raise UserError(
            f"edits.captions_a_source is {edits.captions_a_source}, but at most "
            f"{count_of(written, 'caption', 'is')} written for a source image: lower it, or raise "
            f"{section}.{'per_type' if section == 'perturbations' else 'captions'} under make.settings.",
            field="edits.captions_a_source",
        )
    return settings


def plans_of_methods(plan: BatchPlan, methods: Sequence[str]) -> tuple[tuple[BatchPlan, ...], tuple[BatchPlan, ...]]:
    """Return plans of all methods, and plans of their control images (drawn without edits), for the items of `plan`. A
    method is a recipe ("lance"), or a recipe and a start of drawing ("dillema:inverted").

    Each plan has the settings that its recipe reads. If a recipe writes fewer captions than the plan allows, all are
    drawn. Raises UserError for an unknown method, or a setting that no method reads or that cannot be used.
    """
    named = [_method_of(name) for name in dict.fromkeys(methods)]
    read = {setting for recipe, _ in named for setting in _known_settings(_plain_settings(plan, recipe), recipe)}
    for setting in plan.make.settings:
        if setting not in read:
            _required_setting(setting, _plain_settings(plan, named[0][0]), named[0][0])  # raises the error
    made, controls = list[BatchPlan](), dict[str, BatchPlan]()
    for recipe, start in named:
        own = _by(plan, recipe, start, recipe.title)
        most = most_captions(own, settings_of(own.model_copy(update={"edits": EditsPart()})))
        if most is not None and own.edits.captions_a_source is not None:
            edits = own.edits.model_copy(update={"captions_a_source": min(most, own.edits.captions_a_source)})
            own = own.model_copy(update={"edits": edits})
        settings_of(own)
        made.append(own)
        if recipe.control:
            control = _by(plan, recipe_of(recipe.control), start, f"control of {recipe.title}")
            images = control.images.model_copy(update={"seeds_a_caption": 1, "checks": ()})
            control = control.model_copy(update={"edits": EditsPart(), "images": images})
            settings_of(control)
            controls.setdefault(control.digest, control)
    return tuple(made), tuple(controls.values())


def _method_of(name: str) -> tuple[Recipe, str]:
    """Split a method such as "dillema:inverted" into recipe and the `Start` from which it draws; "" if not given."""
    recipe_name, _, start = name.partition(":")
    recipe, starts = _recipe(recipe_name, "methods"), get_args(Start)
    if start and start not in starts:
        raise UserError(f"A drawing cannot start from {start!r:.80}: write {' or '.join(starts)}.", field="methods")
    return recipe, start


def _recipe(name: str, key: str) -> Recipe:
    """Return the recipe called `name`. Raises UserError, with `key` as its field, if it is unknown."""
    recipes = {recipe.name: recipe for recipe in known_recipes()}
    if name not in recipes:
        raise _unknown("recipe", name, key, recipes)
    return recipes[name]


def _by(plan: BatchPlan, recipe: Recipe, start: str, title: str) -> BatchPlan:
    """Return the plan with another recipe, start of drawing and title. Drop settings that the recipe does not read."""
    known = _known_settings(_plain_settings(plan, recipe), recipe)
    settings = {name: value for name, value in plan.make.settings.items() if name in known}
    if start:
        settings["generation.start"] = start
    make = plan.make.model_copy(update={"recipe": recipe.name, "settings": settings})
    name = f"{plan.name}, {title}" + (f" from {start}" if start else "")
    return plan.model_copy(update={"make": make, "name": name[:LONGEST_NAME]})


def _plain_settings(plan: BatchPlan, recipe: Recipe) -> dict[str, Any]:
    return recipe.settings_in(load_profile(plan.make.profile)).model_dump(mode="json")


def most_captions(plan: BatchPlan, settings: Settings) -> int | None:
    """Return the maximum number of captions of a source image, or None if the settings do not limit it."""
    recipe = recipe_of(plan.make.recipe)
    if "counterfactuals" not in recipe.names:
        return 1
    drawn_with = getattr(settings, recipe.stage("counterfactuals").settings)
    if isinstance(drawn_with, PerturbationSettings):
        return len(drawn_with.asked)
    limited = isinstance(drawn_with, BackgroundsSettings) or drawn_with.combinations in _SO_MANY
    return drawn_with.captions if limited else None


def _unknown(what: str, name: str, key: str, known: Iterable[str]) -> UserError:
    message = f"There is no {what} {name!r:.80} for {key}. Choose one of: {nearest_first(name, known)}."
    return UserError(message, field=key)


def _known_settings(plain: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """Return the names of the settings that a recipe reads and that a plan may list under make.settings."""
    cards = {section for section in plain if recipe.section_card(section) is not None}
    return [
        setting
        for section, fields in plain.items()
        for field in fields
        if (setting := f"{section}.{field}") not in SAID_BY_PLAN
        and (section == "under_test" or (section in cards and recipe.reads(setting)))
    ]


def _required_setting(name: str, plain: Mapping[str, Any], recipe: Recipe) -> tuple[str, str]:
    """Split the name of a setting into section and field. Raises UserError if the setting is unknown, if the recipe
    does not read it, or if the plan has another key for it.
    """
    known, (section, _, field) = _known_settings(plain, recipe), name.partition(".")
    if name in SAID_BY_PLAN:
        message = f"{name} in make.settings is set by {SAID_BY_PLAN[name]} in a plan: take it out there."
    elif name in known:
        return section, field
    elif field in plain.get(section, {}):
        message = f"The recipe {recipe.name} does not read {name} in make.settings: take it out."
    else:
        raise _unknown("setting", name, "make.settings", known)
    raise UserError(message, field="make.settings")


def _whole(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Complete the content of a plan's file for `BatchPlan`: make paths absolute, read the file of keys, flatten the
    settings, add a name.

    Wrong types stay as they are: `BatchPlan` refuses them. Raises UserError if the file of keys cannot be read.
    """
    whole = {name: {**part} if isinstance(part, dict) else part for name, part in data.items()}
    if whole.get("name", "") == "":
        whole["name"] = path.stem
    for name, written in _paths_in(data).items():
        section, _, key = name.partition(".")
        place = path.absolute().parent / Path(written).expanduser()
        if key == "keys":
            whole[section][key] = _keys_in(place, path)
        elif written:
            whole[section][key] = str(place)
    make = whole.get("make")
    if isinstance(make, dict) and isinstance(settings := make.get("settings"), dict):
        make["settings"] = _flat(settings)
    return whole


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by full name: the TOML table {"generation": {"steps": 12}} becomes {"generation.steps": 12}."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= {f"{name}.{field}": one for field, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _keys_in(file: Path, path: Path) -> list[str]:
    """Return the keys in a file: one per line, without empty lines. Raises UserError for an unreadable file."""
    what = f"The file {file}, which the plan {path} names under choose.keys,"
    lines = _text_in(file, what, "choose.keys").split("\n")  # reading turns every line ending into this one
    return [line for line in lines if line.strip()]


def _text_in(file: Path, what: str, field: str = "") -> str:
    """Return the text of a file. Raises UserError if it is unreadable; the message begins with `what`."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{what} is not UTF-8 text: save it as UTF-8.", field=field) from error
    except OSError as error:
        raise UserError(f"{what} cannot be read: {error.strerror or error}.", field=field) from error


def _refusal(path: Path, error: ValidationError) -> UserError:
    errors = error.errors()
    # A misspelt required key gives two errors, unknown and missing: the first one helps more.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    place = place_of(BatchPlan, first["loc"])
    if first["type"] == "extra_forbidden":
        name, known = place.key.rpartition(".")[2], place.holder.model_fields if place.holder is not None else {}
        known_keys = f"Known keys: {nearest_first(name, known)}."
        return UserError(f"The plan {path} has an unknown key: {place.key:.120}. {known_keys}", field=place.key)
    if first["type"] == "missing":
        what = f"{place.key}: add it"
        if place.key in BatchPlan.model_fields:
            part: Any = BatchPlan.model_fields[place.key].annotation
            names = [name for name, field in part.model_fields.items() if field.is_required()]
            what = f"the section [{place.key}]: add it with {' and '.join(names)}"
        return UserError(f"The plan {path} lacks {what}.", field=place.key)
    why = _in_toml_words(reason(error, BatchPlan))
    value = first["input"]
    shown = isinstance(value, bool | int | float | str) and first["type"] != "value_error"
    was = f" {_toml(value):.60}" if shown else ""
    return UserError(f"The plan {path} has a wrong value{was} at {place.key}: {why}.", field=place.key)


def _in_toml_words(message: str) -> str:
    return message.replace("yes or no", "true or false").replace("an object", "a table")


def _toml_table(name: str, part: Mapping[str, Any]) -> list[str]:
    """Return the TOML lines of a section: its values first, then its tables."""
    entries = {key: value for key, value in part.items() if value not in ({}, [])}
    values = [f"{_toml_key(key)} = {_toml(value)}" for key, value in entries.items() if not isinstance(value, dict)]
    lines = ["", f"[{name}]", *values] if values else []
    for key, value in entries.items():
        if isinstance(value, dict):
            lines += _toml_table(f"{name}.{_toml_key(key)}", value)
    return lines


def _toml_key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else _toml(key)


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    # A JSON string is also a TOML string, except for one control character that JSON allows.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
