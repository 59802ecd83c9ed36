"""The settings of a run."""

from __future__ import annotations

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
    studio.workspace.set_settings(run_id, settings.model_dump(mode="json"))
    studio.solved(run_id, "generation" if stage == "conditioning" else stage)  # type: ignore[arg-type]


def _default_settings(studio: Studio, run_id: str, data: Data) -> None:
    """Those of the profile again, for one stage."""
    plain = studio.settings(studio.workspace.run(run_id)).model_dump(mode="json")
    defaults = studio.profile.settings.model_dump(mode="json")
    for stage in text_of(data, "stages").split(","):
        plain[stage] = defaults[stage]
    studio.workspace.set_settings(run_id, plain)


ACTIONS: dict[str, Action] = {"setting": _setting, "default-settings": _default_settings}
