"""Runs: opening, beginning, naming, and the task of one."""

from __future__ import annotations

from pipeline.errors import UserError
from pipeline.types import Task, TaskKind
from ui import masks, work
from ui.actions.data import Action, Data, text_of
from ui.studio import Studio


def _open(studio: Studio, _run_id: str, data: Data) -> str:
    """A run, or the start page for "". The first page that is opened has the models loaded."""
    wanted = text_of(data, "run")
    if wanted:
        studio.workspace.run(wanted)
    work.warm_up(studio)
    return wanted


def _sample(studio: Studio, _run_id: str, data: Data) -> str:
    """A sample for segmentation brings its mask."""
    sample = studio.sample(text_of(data, "sample"))
    run_id = studio.run_from_sample(sample.name)
    if sample.task.kind == "segmentation" and sample.mask is not None:
        masks.take_sample_mask(studio, run_id)
    return run_id


def _rename(studio: Studio, run_id: str, data: Data) -> None:
    studio.workspace.rename(run_id, text_of(data, "value"))


def _task(studio: Studio, run_id: str, data: Data) -> None:
    """What is still missing is saved too: the page says so, and the stages refuse to run."""
    kind: TaskKind = "segmentation" if text_of(data, "kind") == "segmentation" else "classification"
    held = studio.workspace.run(run_id).task
    if kind == "classification":
        task = Task(kind, label=" ".join(text_of(data, "label").split()))
    else:
        names = [" ".join(name.split()) for name in text_of(data, "protected").split(",")]
        if held.kind != kind and not any(names):
            names = list(studio.profile.tasks.protected)
        task = Task(kind, protected=tuple(dict.fromkeys(name for name in names if name)))
    studio.workspace.set_task(run_id, task)


def _duplicate(studio: Studio, _run_id: str, data: Data) -> str:
    return studio.workspace.duplicate_run(text_of(data, "of"))


def _remove(studio: Studio, run_id: str, data: Data) -> str | None:
    """The page of a run that is gone becomes the start page."""
    removed = text_of(data, "of")
    if any(job.run_id == removed for job in studio.jobs.active()):
        raise UserError("This run is being worked on: wait for it or cancel it, then delete it.")
    studio.workspace.remove_run(removed)
    return "" if removed == run_id else None


def _restore(studio: Studio, _run_id: str, data: Data) -> str:
    restored = text_of(data, "of")
    studio.workspace.restore_run(restored)
    return restored


ACTIONS: dict[str, Action] = {
    "poll": lambda _studio, run_id, _data: run_id,
    "new": lambda _studio, _run_id, _data: "",
    "open": _open,
    "sample": _sample,
    "rename": _rename,
    "run-duplicate": _duplicate,
    "run-remove": _remove,
    "run-restore": _restore,
    "task": _task,
}
