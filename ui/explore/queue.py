"""The queue: what the worker thread does, what waits, in every run, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping

from core.types import stage_doing, stage_title
from core.words import count_of
from services.jobs import JobView
from ui.explore.parts import CONTROL, left
from ui.markup import Html
from ui.templating import render

SHOWN = 12
"""Images that wait and are shown one by one, in each job; the others are counted."""


def queue_part(jobs: tuple[JobView, ...], names: Mapping[str, str], run_id: str, waiting_for: str) -> Html:
    """Nothing while there is nothing to do. `names` are those of the runs, `run_id` is the one that is looked at."""
    if not jobs:
        return Html("")
    number = sum(len(job.waiting) + len(job.at_parts) if job.parts else 1 for job in jobs)
    progress = jobs[0].progress
    return render(
        "explore/queue.html",
        jobs=[
            (job, names.get(job.run_id, "another run"), _doing(job, waiting_for if place == 0 else "the one above"))
            for place, job in enumerate(jobs)
        ],
        words=f"{number} running or waiting{_left(jobs)}",
        share=None if progress is None else progress.done / max(1, progress.total),
        stopping=all(job.stopping for job in jobs),
        open_run=run_id,
        most=SHOWN,
    )


def _left(jobs: tuple[JobView, ...]) -> str:
    times = [job.seconds_left() for job in jobs if "generation" in job.stages]
    known = [time for time in times if time is not None]
    return left(sum(known)) if known and len(known) == len(times) else ""


def _doing(job: JobView, waits_for: str) -> str:
    if job.stopping:
        return "stopping"
    if job.state != "waiting" and job.stage is not None:
        return stage_doing(job.stage)
    if not job.stages:
        work = CONTROL
    elif job.parts:
        work = count_of(len(job.waiting), "image")
    else:
        work = stage_title(job.stages[0]).lower() if len(job.stages) == 1 else "the stages of text"
    return f"{work}, waits for {waits_for}" if job.state == "waiting" else work
