"""The settings of a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.types import STAGES, StageName
from ui.actions.data import Action, Data, state_of, tab_of, text_of
from ui.elsewhere import both_kept, changed, settings_elsewhere
from ui.studio import Studio, clock

Plain = dict[str, Any]
"""Settings as plain data."""


def change_settings(studio: Studio, run_id: str, data: Data, change: Callable[[Plain], None]) -> None:
    """Save what `change` makes of the latest settings; the lock keeps a second page from doing so in between.

    Whoever comes second is told what the first one changed, at the card that the own change belongs to. Raises
    UserError, and saves nothing, for what the settings do not allow.
    """
    with studio.editing:
        held = studio.settings(studio.workspace.run(run_id)).model_dump(mode="json")
        wanted = copy.deepcopy(held)
        change(wanted)
        settings = _valid(studio, wanted).model_dump(mode="json")
        mine = changed(held, settings)
        shown, tab = state_of(data), tab_of(data)
        states = studio.workspace.states(run_id, shown) if shown else ()
        others = settings_elsewhere(states, studio.state_writers.of(tab))
        number = studio.workspace.set_settings(run_id, settings)
        if number is None:
            return
        studio.state_writers.note(number, tab)
        for stage in dict.fromkeys(_stage(section) for section, _ in mine):
            if stage is None:
                continue
            studio.solved(run_id, stage)
            news = [other for other in others if _stage(other.section) == stage]
            if news:
                studio.tell(run_id, stage, both_kept(news, mine, clock(news[-1].when)))


def _stage(section: str) -> StageName | None:
    """The stage whose card shows a section of the settings."""
    name = "generation" if section == "conditioning" else section
    return name if name in STAGES else None  # type: ignore[return-value]


def _setting(studio: Studio, run_id: str, data: Data) -> None:
    stage, _, field = text_of(data, "setting").partition(".")

    def change(plain: Plain) -> None:
        if field not in plain.get(stage, {}):
            raise UserError(f"There is no setting {stage}.{field}.")
        plain[stage][field] = data.get("value")

    change_settings(studio, run_id, data, change)


def _valid(studio: Studio, plain: Plain) -> Settings:
    try:
        settings = Settings.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        reason, name = first["msg"].removeprefix("Value error, "), str(first["loc"][-1]).replace("_", " ")
        raise UserError(f"The setting “{name}” was not changed: {reason[0].lower()}{reason[1:]}.") from error
    kinds = studio.profile.generator.controlnets
    if settings.conditioning.kind not in kinds:
        raise UserError(f"This profile has no ControlNet for {settings.conditioning.kind}: take {', '.join(kinds)}.")
    return settings


def _default_settings(studio: Studio, run_id: str, data: Data) -> None:
    """Those of the profile again, for one stage."""
    defaults = studio.profile.settings.model_dump(mode="json")
    wanted = {stage: defaults[stage] for stage in text_of(data, "stages").split(",")}
    change_settings(studio, run_id, data, lambda plain: plain.update(wanted))


def _preset(studio: Studio, run_id: str, data: Data) -> None:
    """The settings that a preset of the profile names; all others stay."""
    name = text_of(data, "value")
    if name not in studio.profile.presets:
        raise UserError(f"There is no preset {name[:80]!r}: take {', '.join(studio.profile.presets) or 'none'}.")
    _change_generation(studio, run_id, data, studio.profile.preset(name))


def _reuse_seed(studio: Studio, run_id: str, data: Data) -> None:
    """The seed of a result for what is made next."""
    number = text_of(data, "case")
    case = next((case for case in studio.workspace.run(run_id).test_cases if str(case.id) == number), None)
    if case is None:
        raise UserError("This result is not of this run: pick one of those shown.")
    _change_generation(studio, run_id, data, {"seed_mode": "fixed", "seed": case.seed})


def _change_generation(studio: Studio, run_id: str, data: Data, changes: Mapping[str, Any]) -> None:
    change_settings(studio, run_id, data, lambda plain: plain["generation"].update(changes))


ACTIONS: dict[str, Action] = {
    "setting": _setting,
    "default-settings": _default_settings,
    "preset": _preset,
    "reuse-seed": _reuse_seed,
}
