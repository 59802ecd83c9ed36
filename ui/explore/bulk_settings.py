"""The settings of several runs at once: recipe, preset, what is often set, and behind a press all that a run has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from services.runs.bulk_runs import SHARED
from services.runs.state import ProfileOptions, RunState
from services.runs.words import section_title
from ui.explore.forms import setting_input
from ui.explore.generation import preset_chips
from ui.explore.parts import button, toggle
from ui.markup import Child, Html, el

NAMES = {
    "counterfactuals.captions": "captions",
    "generation.images_per_caption": "images of each",
    "generation.steps": "steps",
}
ONE_BY_ONE = ("counterfactuals.chosen",)
"""Settings that belong to one picture alone."""
DIFFERS = "differs"


def settings_of_all(states: Sequence[RunState], profile: ProfileOptions, runs: str) -> list[Html]:
    """`runs` are the ids, with commas between. Where the runs do not agree, nothing is chosen."""
    sections = _sections(states)
    presets = None
    if _read_by_all(states, "generation.steps"):
        drawings = [state.settings.generation for state in states]
        presets = preset_chips(drawings, profile.presets, "together-preset", data_runs=runs)
    offered = (name for name in SHARED if name.partition(".")[0] in sections and _read_by_all(states, name))
    often = [_often(states, name, runs) for name in offered]
    return [
        el("div", _recipes(states, runs), presets, class_="task"),
        el("div", el("span", "for each", class_="mut"), often, class_="task"),
        _everything(states, profile, sections, runs),
    ]


def common(states: Sequence[RunState], of: Callable[[RunState], Any]) -> Any:
    """What all have; None where it differs."""
    held = {of(state) for state in states}
    return held.pop() if len(held) == 1 else None


def _read_by_all(states: Sequence[RunState], setting: str) -> bool:
    """Whether a setting means anything to all of the runs."""
    return all(state.recipe.reads(setting) for state in states)


def _recipes(states: Sequence[RunState], runs: str) -> Child:
    chosen = common(states, lambda state: state.recipe.name)
    chips = [
        toggle(
            recipe.title,
            "together-recipe",
            recipe.name == chosen,
            data_runs=runs,
            data_recipe=recipe.name,
            title=recipe.description,
            data_key=f"together-recipe-{recipe.name}",
        )
        for recipe in states[0].recipes
    ]
    if len(chips) < 2:
        return None
    return el("span", el("span", "recipe", class_="mut"), chips, class_="choice", role="group", aria_label="Recipe")


def _often(states: Sequence[RunState], name: str, runs: str) -> Html:
    section, _, key = name.partition(".")
    field = type(getattr(states[0].settings, section)).model_fields[key]
    return el(
        "label",
        el("span", NAMES[name], class_="mut"),
        _input(states, section, key, field, f"together-{key}", runs),
        title=field.description,
        class_="setting-of-all",
    )


def _sections(states: Sequence[RunState]) -> tuple[str, ...]:
    """Those that stages or method of any of the runs read, in the order of the cards."""
    found: dict[str, None] = {}
    for state in states:
        found |= dict.fromkeys(stage.settings for stage in state.recipe.stages if stage.settings)
    for state in states:
        found |= dict.fromkeys((*state.recipe.drawing_method.sections, "generation"))
    return tuple(name for name in found if all(hasattr(state.settings, name) for state in states))


def _everything(states: Sequence[RunState], profile: ProfileOptions, sections: Sequence[str], runs: str) -> Html:
    parts: list[Child] = []
    for section in sections:
        held = getattr(states[0].settings, section)
        own = getattr(held, "own_fields", None)  # of a control image, those of its kind
        names = [
            name
            for name in type(held).model_fields
            if f"{section}.{name}" not in (*SHARED, *ONE_BY_ONE)
            and (own is None or name == "kind" or name in own())
            and _read_by_all(states, f"{section}.{name}")
        ]
        if section == "conditioning" and len(profile.control_kinds) == 1 and "kind" in names:
            names.remove("kind")
        rows = [_row(states, profile, section, name, runs) for name in names]
        if rows:
            title = "Control image" if section == "conditioning" else section_title(section)
            parts += [el("h3", title), el("div", rows, class_="settings")]
    back = button(
        "Back to the profile's settings", "together-defaults", "s", data_runs=runs, data_sections=",".join(sections)
    )
    return el(
        "details",
        el("summary", "All settings"),
        parts,
        back,
        class_="everything",
        id="together-settings",
        data_key="together-settings",
    )


def _row(states: Sequence[RunState], profile: ProfileOptions, section: str, name: str, runs: str) -> Html:
    field = type(getattr(states[0].settings, section)).model_fields[name]
    field_id = f"together-{section}-{name}"
    words, told = el("span", name.replace("_", " "), class_="name"), el("small", field.description or "")
    if get_origin(field.annotation) is Literal:
        takes = [value for value in get_args(field.annotation) if value != "chosen"]
        if name == "kind":
            takes = list(profile.control_kinds)
        held = common(states, lambda state: getattr(getattr(state.settings, section), name))
        chips = [
            toggle(
                value,
                "together-setting",
                value == held,
                data_runs=runs,
                data_setting=f"{section}.{name}",
                data_value=value,
                data_key=f"{field_id}-{value}",
            )
            for value in takes
        ]
        group = el("span", chips, class_="choice wrap", role="group", aria_label=name.replace("_", " "))
        return el("div", words, group, told, class_="row choose-one", data_key=field_id)
    shown = _input(states, section, name, field, field_id, runs)
    return el("label", words, shown, told, for_=field_id, data_key=field_id)


def _input(states: Sequence[RunState], section: str, name: str, field: FieldInfo, field_id: str, runs: str) -> Html:
    """The field of one setting of all; empty where it differs."""
    first = getattr(getattr(states[0].settings, section), name)
    more: dict[str, Any] = {}
    if common(states, lambda state: getattr(getattr(state.settings, section), name)) is None:
        nothing = {"checked": False, "title": DIFFERS}
        more = nothing if isinstance(first, bool) else {"value": "", "placeholder": DIFFERS}
    return setting_input(section, name, field, first, field_id, data_do="together-setting", data_runs=runs, **more)
