"""The queue: what the worker thread does, what waits, in every run, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping

from core.types import stage_doing, stage_title
from core.words import count_of
from services.jobs import JobView, Part
from ui.explore.parts import CONTROL, bar, button, icon, left
from ui.markup import Child, Html, el

SHOWN = 12
"""Images that wait and are shown one by one, in each job; the others are counted."""


def queue_part(jobs: tuple[JobView, ...], names: Mapping[str, str], run_id: str, waiting_for: str) -> Html:
    """Nothing while there is nothing to do. `names` are those of the runs, `run_id` is the one that is looked at."""
    if not jobs:
        return Html("")
    number = sum(len(job.waiting) + len(job.at_parts) if job.parts else 1 for job in jobs)
    head = el(
        "header",
        el("h2", "Queue"),
        el("span", f"{number} running or waiting{_left(jobs)}", class_="mut", id="queue-words"),
        el("span", class_="grow"),
        button("Cancel all", "cancel-all", "s", id="cancel-all", disabled=all(job.stopping for job in jobs)),
    )
    rows: list[Child] = []
    for place, job in enumerate(jobs):
        rows += _rows(job, names, run_id, waiting_for, first=place == 0, alone=len(jobs) == 1)
    return el("section", head, _progress(jobs[0]), el("ol", rows), class_="card queue", id="queue")


def _left(jobs: tuple[JobView, ...]) -> str:
    times = [job.seconds_left() for job in jobs if "generation" in job.stages]
    known = [time for time in times if time is not None]
    return left(sum(known)) if known and len(known) == len(times) else ""


def _progress(job: JobView) -> Html:
    progress = job.progress
    return bar(None if progress is None else progress.done / max(1, progress.total))


def _rows(
    job: JobView, names: Mapping[str, str], run_id: str, waiting_for: str, first: bool, alone: bool
) -> list[Child]:
    rows: list[Child] = []
    if not alone or not job.parts:
        rows.append(_job_row(job, names, run_id, waiting_for, first))
    if job.state == "running":
        rows += [_running_row(job, part) for part in job.at_parts]
    waiting = job.waiting
    for place, part in enumerate(waiting[:SHOWN]):
        rows.append(_waiting_row(job, part, place))
    if len(waiting) > SHOWN:
        rows.append(el("li", f"and {len(waiting) - SHOWN} more", class_="mut more-rows", data_key=f"more-{job.id}"))
    return rows


def _job_row(job: JobView, names: Mapping[str, str], run_id: str, waiting_for: str, first: bool) -> Html:
    name = names.get(job.run_id, "another run")
    shown: Child = el("b", "this run") if job.run_id == run_id else _link(job.run_id, name)
    if job.stopping:
        doing = "stopping"
    elif job.state == "waiting":
        doing = f"{_what(job)}, waits for {waiting_for if first else 'the one above'}"
    else:
        doing = stage_doing(job.stage) if job.stage is not None else _what(job)
    up = None
    if job.state == "waiting" and not first:
        up = button(icon("up"), "queue-up", "s q", data_job=job.id, aria_label=f"Move {name} up", title="Move up")
    out = button(
        "Cancel" if job.state == "running" else "Remove",
        "queue-cancel",
        "s q",
        data_job=job.id,
        disabled=job.stopping,
        aria_label=f"{'Cancel' if job.state == 'running' else 'Remove'} the work on {name}",
    )
    return el(
        "li",
        el("span", shown, " ", el("small", doing), class_="what"),
        el("span", up, out, class_="acts"),
        class_=f"job {job.state}",
        data_key=f"job-{job.id}",
    )


def _what(job: JobView) -> str:
    if not job.stages:
        return CONTROL
    if job.parts:
        number = len(job.waiting)
        return count_of(number, "image")
    return stage_title(job.stages[0]).lower() if len(job.stages) == 1 else "the stages of text"


def _running_row(job: JobView, part: Part) -> Html:
    picture = el("img", src=f"previews/{job.preview}.png", alt="") if job.preview else el("i", class_="spin")
    cancel = button(
        "Cancel",
        "delete-job-part",
        "s q",
        data_job=job.id,
        data_part=part.id,
        disabled=job.stopping,
        aria_label=f"Cancel {part.name}",
    )
    return el(
        "li",
        el("span", picture, class_="shot"),
        el("span", part.name, " ", el("small", "stopping" if job.stopping else "being drawn"), class_="what"),
        el("span", cancel, class_="acts"),
        class_="part running",
        data_key=f"part-{job.id}-{part.id}",
    )


def _waiting_row(job: JobView, part: Part, place: int) -> Html:
    data: dict[str, int] = {"data_job": job.id, "data_part": part.id}
    up = None
    if place:
        up = button(icon("up"), "queue-up", "s q", aria_label=f"Move {part.name} up", title="Move up", **data)
    out = button("Remove", "delete-job-part", "s q", aria_label=f"Remove {part.name}", **data)
    return el(
        "li",
        el("span", class_="shot"),
        el("span", part.name, " ", el("small", "waits"), class_="what"),
        el("span", up, out, class_="acts"),
        class_="part waiting",
        data_key=f"part-{job.id}-{part.id}",
    )


def _link(run_id: str, name: str) -> Html:
    return el("a", name, href=f"?run={run_id}", data_go="open", data_run=run_id)
