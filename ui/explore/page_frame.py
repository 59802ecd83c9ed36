"""The header, the start page with the example, the source's card, and the help window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from core.check_words import CAPTION_WORDS, WORDS
from core.data_files import DataTable
from core.masks import classes_text, colour
from core.run_steps import RunSteps
from core.types import stage_doing
from services.curation.views import gallery_address
from services.edit_conflicts import clock
from services.example.service import ExampleView
from services.jobs import JobView
from services.runs.life_cycle import task_problem
from services.runs.samples import Sample, known_classes, sample_of
from services.runs.state import ProfileOptions, RunState
from services.runs.undoing import words_of
from services.runs.words import DEFAULT_ARTIFACTS
from ui import frame
from ui.batches.words import BATCHES
from ui.curate.sets_words import SETS
from ui.evaluate.words import evaluate_address
from ui.explore.large import modes
from ui.explore.parts import CONTROL, button, help_window, icon, left
from ui.explore.stage import EXPLAINED, PLAIN
from ui.explore.stage_cards import FAILED
from ui.markup import Html
from ui.study.words import study_address
from ui.templating import render


def header(
    profile: ProfileOptions,
    jobs: tuple[JobView, ...],
    waiting_for: str,
    run_id: str,
    saved: datetime | None,
    steps: RunSteps | None = None,
) -> Html:
    """Return the header: running job, profile, last save, and buttons to undo and redo `steps` of the run."""
    job = next((job for job in jobs if job.run_id == run_id), jobs[0] if jobs else None)
    job_words = _doing(job, waiting_for, run_id) if job is not None else ""
    values = {"profile": profile, "saved": clock(saved) if saved is not None else None, "steps": steps}
    status = render("explore/status.html", job=job, doing=job_words, words_of=words_of, **values)
    tools = button([icon("list"), "Runs"], look="s runs-toggle", data_toggle_runs=True)
    return frame.header("explore", status, tools=tools, data_go="new")


def _doing(job: JobView, waiting_for: str, run_id: str) -> str:
    if job.stopping:
        return "stopping"
    text = CONTROL if job.stage is None else stage_doing(job.stage)
    if job.state == "waiting" or (job.stage is None and job.stages):
        text = f"waiting: {waiting_for}"
    if job.progress is not None and job.progress.note:
        text = f"{text} · {job.progress.note}"
    text += left(job.progress.seconds_left) if job.progress is not None else ""
    return f"{'another' if run_id else 'a'} run: {text}" if job.run_id != run_id else text


def start_page(
    samples: tuple[Sample, ...], titles: Sequence[str], below: bool = False, example: Html | None = None
) -> Html:
    """Return the start page: `titles` of the stages, the `example` and the samples, above the field for uploads."""
    stages = [(title, PLAIN.get(title, ""), EXPLAINED.get(title, "")) for title in titles]
    return render("explore/start.html", samples=samples, below=below, example=example, stages=stages)


def source_card(state: RunState, profile: ProfileOptions, samples: tuple[Sample, ...] = ()) -> Html:
    """Return the card of the source: name, notes on the picture, task of the model under test, and mask."""
    run = state.run
    last = run.jobs[-1] if run.jobs else None
    cut_off = last is not None and last.state == "interrupted" and state.gate.plan is not None and not state.active
    return render(
        "explore/source.html",
        state=state,
        run=run,
        task=run.task,
        profile=profile,
        missing=task_problem(run.task),
        todo=any(stage not in run.values or stage in state.stale for stage in state.recipe.names),
        interrupted=last if cut_off else None,
        mask=mask_row(state, samples) if run.task.kind == "segmentation" else None,
    )


def mask_row(state: RunState, samples: tuple[Sample, ...]) -> Html:
    """Return the row of the source's card with the mask, or with buttons to add one."""
    run, sample = state.run, sample_of(samples, state.run)
    masked, present = run.mask_sha is not None, {name.casefold() for name in run.mask_classes.values()}
    protected = {name.casefold() for name in run.task.protected}
    return render(
        "explore/mask.html",
        state=state,
        legend=[(number, name, name.casefold() in protected) for number, name in sorted(run.mask_classes.items())],
        colour=colour,
        classes=classes_text(run.mask_classes if masked else known_classes(samples)),
        offered=not masked and sample is not None and sample.mask is not None,
        missing=[f"“{name}”" for name in run.task.protected if masked and name.casefold() not in present],
    )


def example_card(view: ExampleView, offered: bool) -> Html | None:
    """Return the card of the example workspace; None if it does not exist and is not `offered`."""
    if not offered and view.state == "none":
        return None
    links = [("Batches", BATCHES), ("Images", gallery_address()), ("Test sets", SETS)]
    links += [(f"Evaluation: {one.title}", evaluate_address(version=one.version, key=one.model)) for one in view.sets]
    links += [("Study", study_address(view.study))] if view.study else []
    return render("explore/example.html", view=view, offered=offered, links=links)


Keys = tuple[str, ...]
_LOOKS = "Ways to look"
_DIGITS = tuple(((str(number),), mode.words) for number, mode in enumerate(modes(DEFAULT_ARTIFACTS).values(), 1))
GROUPS = {
    name: (*_DIGITS, *rows) if name == _LOOKS else rows
    for name, rows in DataTable(__file__, tuple[tuple[Keys, str], ...]).items()
}
"""Keys and their meanings, by name of the group. The keys in one tuple are pressed together."""


def keys_window(thresholds: Mapping[str, float] | None = None) -> Html:
    """Return the closed help window. `thresholds` are the known thresholds of image checks, by check."""
    parts = (("help-keys", "Keys"), ("help-stages", "The stages"), ("help-checks", "The checks"))
    findings = [(words, CAPTION_WORDS.get(name)) for name, words in FAILED.items()]
    explained = {"groups": GROUPS, "stages": EXPLAINED.items(), "checks": WORDS, "findings": findings}
    shown = render("explore/help.html", thresholds=thresholds or {}, **explained)
    return help_window("Keys, stages and checks", parts, shown)
