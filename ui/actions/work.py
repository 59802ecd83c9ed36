"""Starting and stopping work."""

from __future__ import annotations

from pipeline.errors import UserError
from ui import generating, work
from ui.actions.data import Action, Data, stage_of, text_of
from ui.studio import Studio, task_problem


def _run_stage(studio: Studio, run_id: str, data: Data) -> None:
    stage = stage_of(data)
    if stage == "generation":
        raise UserError("Images are generated at the gate only.")
    task = studio.workspace.run(run_id).task
    if missing := task_problem(task):
        raise UserError(missing)
    studio.solved(run_id, stage)
    work.start_stage(studio, run_id, stage)


def _run_all(studio: Studio, run_id: str, _data: Data) -> None:
    work.start_up_to_gate(studio, run_id)


def _generate(studio: Studio, run_id: str, _data: Data) -> None:
    generating.start_generation(studio, run_id)


def _cancel(studio: Studio, run_id: str, data: Data) -> None:
    studio.jobs.cancel(text_of(data, "of") or run_id)


ACTIONS: dict[str, Action] = {"run": _run_stage, "run-all": _run_all, "generate": _generate, "cancel": _cancel}
