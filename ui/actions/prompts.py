"""The prompts of a run: another template for one of the language stages, and the profile's again."""

from __future__ import annotations

from pipeline.errors import UserError
from pipeline.prompting import edited_prompts
from pipeline.runner import LANGUAGE_STAGES
from pipeline.types import StageName
from ui.actions.data import Action, Data, stage_of, text_of
from ui.studio import Studio


def _save(studio: Studio, run_id: str, data: Data) -> None:
    """A template that uses a wrong variable, or lacks one, is refused with its name."""
    stage = _language_stage(data)
    run = studio.workspace.run(run_id)
    template = text_of(data, "value").replace("\r\n", "\n")
    edited_prompts(studio.runner.prompts, {stage: template})
    others = {name: text for name, text in run.prompts.items() if name != stage}
    own = str(getattr(studio.runner.prompts, stage).template)
    studio.workspace.set_prompts(run_id, others if template.strip() == own.strip() else {**others, stage: template})
    studio.solved(run_id, stage)


def _put_back(studio: Studio, run_id: str, data: Data) -> None:
    stage = _language_stage(data)
    run = studio.workspace.run(run_id)
    studio.workspace.set_prompts(run_id, {name: text for name, text in run.prompts.items() if name != stage})
    studio.solved(run_id, stage)


def _language_stage(data: Data) -> StageName:
    stage = stage_of(data)
    if stage not in LANGUAGE_STAGES:
        raise UserError("This stage asks no language model: there is no prompt to edit.")
    return stage


ACTIONS: dict[str, Action] = {"prompt-save": _save, "prompt-back": _put_back}
