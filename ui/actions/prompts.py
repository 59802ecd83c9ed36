"""The prompts of a run: another template for one of the language stages, and the profile's again."""

from __future__ import annotations

from pipeline.errors import UserError
from pipeline.prompting import edited_prompts
from pipeline.runner import LANGUAGE_STAGES
from pipeline.types import StageName
from ui.actions.data import Action, Data, stage_of, state_of, tab_of, text_of
from ui.elsewhere import prompt_elsewhere
from ui.studio import Studio, clock


def _save(studio: Studio, run_id: str, data: Data) -> None:
    """A template that uses a wrong variable, or lacks one, is refused with its name."""
    stage = _language_stage(data)
    template = text_of(data, "value").replace("\r\n", "\n")
    edited_prompts(studio.runner.prompts, {stage: template})
    own = str(getattr(studio.runner.prompts, stage).template)
    _change(studio, run_id, stage, data, "" if template.strip() == own.strip() else template)


def _put_back(studio: Studio, run_id: str, data: Data) -> None:
    _change(studio, run_id, _language_stage(data), data, "")


def _change(studio: Studio, run_id: str, stage: StageName, data: Data, template: str) -> None:
    """Save the template of a stage ("" for the profile's). Whoever comes second is told, and both are kept."""
    with studio.editing:
        held = studio.workspace.run(run_id).prompts
        prompts = {name: text for name, text in held.items() if name != stage} | ({stage: template} if template else {})
        shown, tab = state_of(data), tab_of(data)
        states = studio.workspace.states(run_id, shown) if shown else ()
        other = prompt_elsewhere(states, studio.state_writers.of(tab), stage)
        number = studio.workspace.set_prompts(run_id, prompts)
        studio.solved(run_id, stage)
        if number is None:
            return
        studio.state_writers.note(number, tab)
        if other is not None:
            studio.tell(
                run_id,
                stage,
                f"The prompt was changed elsewhere meanwhile ({clock(other)}). Yours was saved on top; the other one "
                "is under “What it was told”, among the earlier prompts.",
            )


def _language_stage(data: Data) -> StageName:
    stage = stage_of(data)
    if stage not in LANGUAGE_STAGES:
        raise UserError("This stage asks no language model: there is no prompt to edit.")
    return stage


ACTIONS: dict[str, Action] = {"prompt-save": _save, "prompt-back": _put_back}
