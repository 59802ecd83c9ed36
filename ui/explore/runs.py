"""The list of runs: picture, task, progress and date of each, and what can be done with it.

Beside it the queue: what the worker thread does and what waits, in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import groupby

from core.stored_runs import EditedShare, RunSummary
from core.types import stage_doing, stage_title
from core.words import count_of
from services.jobs import JobView
from services.runs.life_cycle import Listing
from services.runs.words import text_progress
from ui.explore.large import image_url
from ui.explore.parts import CONTROL, left
from ui.markup import Html
from ui.templating import render

SEARCH_FROM = 7
"""Number of runs from which a search field is shown."""
SHOWN = 12
"""Number of waiting images of a job that are listed; the others are counted."""


def run_list(
    listed: Listing, run_id: str, today: datetime | None = None, edited: tuple[EditedShare, ...] | None = None
) -> Html:
    """Return the runs and the deleted ones. `run_id` is open; `edited` has the shares of changed values, or None while
    they are closed.
    """
    now = today or datetime.now().astimezone()
    by_profile = groupby(edited or (), lambda share: share.profile)
    return render(
        "explore/runs.html",
        listed=listed,
        open_run=run_id,
        searched=listed.total >= SEARCH_FROM or listed.find,
        shown=sum(run.batch.runs if run.batch is not None else 1 for run in listed.runs),
        edited=None if edited is None else [(profile, list(shares)) for profile, shares in by_profile],
        state_of=state_of,
        since=lambda run: date_words(run.changed, now),
        image_url=image_url,
        stage_title=stage_title,
    )


def state_of(run: RunSummary, job: JobView | None) -> str:
    """Return the progress of a run in a few words."""
    if job is not None:
        if job.state == "waiting" or (job.stage is None and job.stages):
            return "in the queue"
        return CONTROL if job.stage is None else stage_doing(job.stage)
    results = count_of(run.test_cases, "result")
    if run.job in ("interrupted", "failed"):
        return f"{run.job} · {results}" if run.test_cases else str(run.job)
    if run.accepted:
        return f"{run.accepted} of {results} accepted"
    if run.test_cases:
        return results
    return text_progress(run)


def date_words(moment: datetime, now: datetime) -> str:
    """Return a time in everyday words: 10:42, yesterday, 3 Nov, 3 Nov 2024."""
    local = moment.astimezone(now.tzinfo)
    days = (now.date() - local.date()).days
    if days <= 0:
        return local.strftime("%H:%M")
    if days == 1:
        return "yesterday"
    return f"{local.day} {local:%b}" if local.year == now.year else f"{local.day} {local:%b} {local.year}"


def queue_part(jobs: tuple[JobView, ...], names: Mapping[str, str], run_id: str, waiting_for: str) -> Html:
    """Return the queue, or nothing if it is empty. `names` are those of the runs; `run_id` is the open run."""
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
