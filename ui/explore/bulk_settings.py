"""The settings of several runs at once: recipe, preset, what is often set, and behind a press all that a run has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

from services.runs.bulk_runs import SHARED
from services.runs.state import ProfileOptions, RunState
from services.runs.words import section_title
from ui.explore.forms import setting_input
from ui.explore.generation import preset_chips
from ui.markup import Html
from ui.templating import render

NAMES = {
    "counterfactuals.captions": "captions",
    "generation.images_per_caption": "images of each",
    "generation.steps": "steps",
}
ONE_BY_ONE = ("counterfactuals.chosen",)
"""Settings that belong to one picture alone."""
DIFFERS = "differs"


def settings_of_all(states: Sequence[RunState], profile: ProfileOptions, runs: str) -> Html:
    """`runs` are the ids, with commas between. Where the runs do not agree, nothing is chosen."""
    sections = _sections(states)
    presets = None
    if _read_by_all(states, "generation.steps"):
        drawings = [state.settings.generation for state in states]
        presets = preset_chips(drawings, profile.presets, "together-preset", data_runs=runs)
    offered = (name for name in SHARED if name.partition(".")[0] in sections and _read_by_all(states, name))
    titles = {name: "Control image" if name == "conditioning" else section_title(name) for name in sections}
    return render(
        "explore/settings_of_all.html",
        runs=runs,
        recipes=states[0].recipes,
        recipe=common(states, lambda state: state.recipe.name),
        presets=presets,
        often=[(*name.split("."), NAMES[name]) for name in offered],
        sections=[(name, titles[name], _names(states, profile, name)) for name in sections],
        fields={name: type(getattr(states[0].settings, name)).model_fields for name in sections},
        choices=lambda section, name: _choices(states, profile, section, name),
        agreed=lambda section, name: common(states, lambda state: getattr(getattr(state.settings, section), name)),
        input_of=lambda section, name, field_id: _input(states, section, name, field_id, runs),
    )


def common(states: Sequence[RunState], of: Callable[[RunState], Any]) -> Any:
    """What all have; None where it differs."""
    held = {of(state) for state in states}
    return held.pop() if len(held) == 1 else None


def _read_by_all(states: Sequence[RunState], setting: str) -> bool:
    """Whether a setting means anything to all of the runs."""
    return all(state.recipe.reads(setting) for state in states)


def _sections(states: Sequence[RunState]) -> tuple[str, ...]:
    """Those that stages or method of any of the runs read, in the order of the cards."""
    found: dict[str, None] = {}
    for state in states:
        found |= dict.fromkeys(stage.settings for stage in state.recipe.stages if stage.settings)
    for state in states:
        found |= dict.fromkeys((*state.recipe.drawing_method.sections, "generation"))
    return tuple(name for name in found if all(hasattr(state.settings, name) for state in states))


def _names(states: Sequence[RunState], profile: ProfileOptions, section: str) -> list[str]:
    """The settings of a section that mean anything to all of the runs and are not among those that are often set."""
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
    return names


def _choices(states: Sequence[RunState], profile: ProfileOptions, section: str, name: str) -> list[Any]:
    """The values between which a setting chooses; none where it is typed or ticked."""
    annotation = type(getattr(states[0].settings, section)).model_fields[name].annotation
    if get_origin(annotation) is not Literal:
        return []
    if name == "kind":
        return list(profile.control_kinds)
    return [value for value in get_args(annotation) if value != "chosen"]


def _input(states: Sequence[RunState], section: str, name: str, field_id: str, runs: str) -> Html:
    """The field of one setting of all; empty where it differs."""
    settings = getattr(states[0].settings, section)
    more: dict[str, Any] = {}
    if common(states, lambda state: getattr(getattr(state.settings, section), name)) is None:
        nothing = {"checked": False, "title": DIFFERS}
        more = nothing if isinstance(getattr(settings, name), bool) else {"value": "", "placeholder": DIFFERS}
    return setting_input(section, name, settings, field_id, data_do="together-setting", data_runs=runs, **more)
