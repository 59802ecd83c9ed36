"""The settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.settings import Settings
from ui.actions.data import Action, Data, text_of
from ui.studio import Studio


def _setting(studio: Studio, run_id: str, data: Data) -> None:
    run = studio.workspace.run(run_id)
    stage, _, field = text_of(data, "setting").partition(".")
    plain = studio.settings(run).model_dump(mode="json")
    if field not in plain.get(stage, {}):
        raise UserError(f"There is no setting {stage}.{field}.")
    plain[stage][field] = data.get("value")
    try:
        settings = Settings.model_validate(plain)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        name = field.replace("_", " ")
        raise UserError(f"The setting “{name}” was not changed: {reason[0].lower()}{reason[1:]}.") from error
    kinds = studio.profile.generator.controlnets
    if settings.conditioning.kind not in kinds:
        raise UserError(f"This profile has no ControlNet for {settings.conditioning.kind}: take {', '.join(kinds)}.")
    studio.workspace.set_settings(run_id, settings.model_dump(mode="json"))
    studio.solved(run_id, "generation" if stage == "conditioning" else stage)  # type: ignore[arg-type]


def _default_settings(studio: Studio, run_id: str, data: Data) -> None:
    """Those of the profile again, for one stage."""
    plain = studio.settings(studio.workspace.run(run_id)).model_dump(mode="json")
    defaults = studio.profile.settings.model_dump(mode="json")
    for stage in text_of(data, "stages").split(","):
        plain[stage] = defaults[stage]
    studio.workspace.set_settings(run_id, plain)


def _preset(studio: Studio, run_id: str, data: Data) -> None:
    """The settings that a preset of the profile names; all others stay."""
    name = text_of(data, "value")
    if name not in studio.profile.presets:
        raise UserError(f"There is no preset {name[:80]!r}: take {', '.join(studio.profile.presets) or 'none'}.")
    _change_generation(studio, run_id, studio.profile.preset(name))


def _reuse_seed(studio: Studio, run_id: str, data: Data) -> None:
    """The seed of a result for what is made next."""
    number = text_of(data, "case")
    case = next((case for case in studio.workspace.run(run_id).test_cases if str(case.id) == number), None)
    if case is None:
        raise UserError("This result is not of this run: pick one of those shown.")
    _change_generation(studio, run_id, {"seed_mode": "fixed", "seed": case.seed})


def _change_generation(studio: Studio, run_id: str, changes: Mapping[str, Any]) -> None:
    settings = studio.settings(studio.workspace.run(run_id))
    plain = settings.model_dump(mode="json")
    plain["generation"] |= changes
    studio.workspace.set_settings(run_id, Settings.model_validate(plain).model_dump(mode="json"))
    studio.solved(run_id, "generation")


ACTIONS: dict[str, Action] = {
    "setting": _setting,
    "default-settings": _default_settings,
    "preset": _preset,
    "reuse-seed": _reuse_seed,
}
