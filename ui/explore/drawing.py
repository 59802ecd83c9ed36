"""One image or a few that are being drawn: as a thumbnail among the results, and large."""

from __future__ import annotations

from core.types import StageName
from services.jobs import JobView
from services.runs.state import RunState
from ui.explore.large import beside_source
from ui.explore.stage import running_stage
from ui.markup import Html, el
from ui.templating import render

STAGE: StageName = "generation"
MODE = "drawing"
"""The view mode that follows the drawing."""


def drawing(state: RunState) -> JobView | None:
    """Return the job that draws for this run now, or None."""
    job = state.job
    return job if running_stage(job) == STAGE and job is not None and job.progress is not None else None


def step_of(state: RunState, job: JobView) -> tuple[int, int]:
    """Return the current denoising step of the image, and the number of steps."""
    steps = state.recipe.drawing_method.settings_of(state.settings).steps or state.settings.generation.steps
    return job.progress.step if job.progress is not None else 0, steps


def drawing_thumb(state: RunState, followed: bool = False) -> Html | None:
    """Return a thumbnail with the progress; a press shows it large. None while nothing is drawn."""
    job = drawing(state)
    if job is None:
        return None
    step, steps = step_of(state, job)
    name, picture = _name(job).split(" · ")[0], _picture(state, job)
    return render(
        "explore/drawing.html", job=job, step=step, steps=steps, name=name, picture=picture, followed=followed
    )


def drawing_figure(state: RunState) -> Html | None:
    """Return the latest preview, large. None while nothing is drawn."""
    job = drawing(state)
    if job is None:
        return None
    step, steps = step_of(state, job)
    captions = (_name(job), f"step {step} of {steps}")
    return beside_source(state, MODE, (_picture(state, job),), captions, looks="seen" if job.preview else "")


def _name(job: JobView) -> str:
    if len(job.at_parts) > 1:
        return f"{len(job.at_parts)} images"
    return job.at_part.name if job.at_part is not None else "drawing"


def _picture(state: RunState, job: JobView) -> Html:
    if job.preview:
        return el("img", src=f"previews/{job.preview}.png", alt="What it looks like so far")
    return el("img", src=f"images/{state.run.source_sha}.png", alt="Not begun to show")
