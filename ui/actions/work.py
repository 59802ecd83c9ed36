"""Starting and stopping work."""

from __future__ import annotations

from pipeline.errors import UserError
from pipeline.progress import stop_if
from ui import generating, work
from ui.actions.data import Action, Data, stage_of, text_of
from ui.actions.values import keyword_of
from ui.controls import draw_with
from ui.jobs import JobHandle
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


def _run_from(studio: Studio, run_id: str, data: Data) -> None:
    stage = stage_of(data)
    if stage == "generation":
        raise UserError("Images are generated at the gate only.")
    studio.solved(run_id, stage)
    work.start_from(studio, run_id, stage)


def _more(studio: Studio, run_id: str, data: Data) -> None:
    keyword = keyword_of(studio.workspace.run(run_id), text_of(data, "keyword"))
    studio.solved(run_id, "alternatives")
    work.start_more(studio, run_id, keyword)


def _run_all(studio: Studio, run_id: str, _data: Data) -> None:
    work.start_up_to_gate(studio, run_id)


def _generate(studio: Studio, run_id: str, _data: Data) -> None:
    generating.start_generation(studio, run_id)


def _cancel(studio: Studio, run_id: str, data: Data) -> None:
    studio.jobs.cancel(text_of(data, "of") or run_id)


def _cancel_all(studio: Studio, _run_id: str, _data: Data) -> None:
    studio.jobs.cancel_all()


def _queue_cancel(studio: Studio, _run_id: str, data: Data) -> None:
    studio.jobs.cancel_job(_number(data, "job"))


def _queue_drop(studio: Studio, _run_id: str, data: Data) -> None:
    """Take an image out of the queue; one that is being drawn stops at once, and the next one begins."""
    studio.jobs.drop_part(_number(data, "job"), _number(data, "part"))


def _queue_up(studio: Studio, _run_id: str, data: Data) -> None:
    """Let a job, or an image of a job, pass the one before it."""
    studio.jobs.move_up(_number(data, "job"), _number(data, "part") if text_of(data, "part") else None)


def _draw_control(studio: Studio, run_id: str, _data: Data) -> None:
    """Have a model draw the control image: a job in the queue, which is at no stage."""
    run = studio.workspace.run(run_id)
    settings = studio.settings(run)

    def draw(handle: JobHandle) -> None:
        try:
            side = settings.generation.short_side
            draw_with(studio.controls, run, settings.conditioning, side, studio.runner.models.detector)
        except UserError as error:
            studio.failed(run_id, "generation", error)
            raise
        stop_if(handle.cancelled)

    studio.jobs.submit(run_id, (), draw)
    studio.solved(run_id, "generation")


def _number(data: Data, name: str) -> int:
    text = text_of(data, name)
    return int(text) if text.isdecimal() else -1


ACTIONS: dict[str, Action] = {
    "run": _run_stage,
    "run-all": _run_all,
    "run-from": _run_from,
    "alternative-more": _more,
    "generate": _generate,
    "cancel": _cancel,
    "cancel-all": _cancel_all,
    "queue-cancel": _queue_cancel,
    "queue-drop": _queue_drop,
    "queue-up": _queue_up,
    "draw-control": _draw_control,
}
