"""The list of runs, the queue of their jobs, and the table of the selected runs on the start page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, get_args, get_origin

from core.stored_runs import EditedShare, RunSummary
from core.types import GENERATION, stage_doing, stage_title
from core.words import count_of
from services.jobs import JobView
from services.runs.bulk_runs import TogetherState
from services.runs.exchange import accepted_of
from services.runs.life_cycle import Listing, task_problem
from services.runs.state import ProfileOptions, RunState
from services.runs.words import section_title, text_progress
from ui.explore.generation import preset_chips
from ui.explore.parts import CONTROL, UNKNOWN_PICTURE, Tone, left, setting_input
from ui.markup import Html
from ui.templating import render

SEARCH_FROM = 7
SHOWN = 12
"""Maximum number of waiting images that are listed for a job; the others are counted."""


def run_list(listed: Listing, run_id: str, edited: tuple[EditedShare, ...] | None = None) -> Html:
    """Return the list of runs and of deleted runs. `edited` holds the shares of values that people changed, or None
    while the list of these shares is closed.
    """
    now = datetime.now().astimezone()
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
        stage_title=stage_title,
    )


def state_of(run: RunSummary, job: JobView | None) -> str:
    """Return the state of a run in a few words."""
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
    """Return a time in everyday words, such as 10:42, yesterday, 3 Nov, 3 Nov 2024."""
    local = moment.astimezone(now.tzinfo)
    days = (now.date() - local.date()).days
    if days <= 0:
        return local.strftime("%H:%M")
    if days == 1:
        return "yesterday"
    return f"{local.day} {local:%b}" if local.year == now.year else f"{local.day} {local:%b} {local.year}"


def queue_part(jobs: tuple[JobView, ...], names: Mapping[str, str], run_id: str, waiting_for: str) -> Html:
    """Return the queue of jobs, or nothing if it is empty. `names` maps run ids to names; `run_id` is the open run."""
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


# Several runs together

TASKS = ("classification", "segmentation")
Far = tuple[str, Tone, str, str, tuple[float | None, ...]]
"""State of a run: text, colour, hint, a sentence below, and a tuple with the progress bar's share (0 to 1), if any."""
SHARED = {
    "counterfactuals.captions": "captions",
    "generation.images_per_caption": "images of each",
    "generation.steps": "steps",
}
"""Settings shown first in the form for several runs, with the names that they have there."""
ONE_BY_ONE = ("counterfactuals.chosen",)
"""Settings that make sense only for a single picture."""
DIFFERS = "differs"


def together_part(together: TogetherState, profile: ProfileOptions) -> Html:
    """Return the table of the selected runs with its header; nothing if no run is selected."""
    if not together.runs:
        return Html("")
    runs, states = ",".join(together.ids), together.runs
    return render(
        "explore/together.html",
        runs=runs,
        rows=[(state, state.run, _far(state), _results(state)) for state in states],
        together=together,
        unknown=sum(bool(state.unknown_picture) for state in states),
        kind=states[0].run.task.kind,
        of_kind={kind: all(state.run.task.kind == kind for state in states) for kind in TASKS},
        label=common(states, lambda state: state.run.task.label),
        protected=common(states, lambda state: ", ".join(state.run.task.protected)),
        profile=profile,
        settings=settings_of_all(states, profile, runs),
        start=sum(not task_problem(state.run.task) for state in together.ready()),
        active=any(state.active for state in states),
        writing=any(state.active and GENERATION not in (state.job.stages if state.job else ()) for state in states),
        drawn=all(_drawn(state) for state in states),
        accepted=sum(len(accepted_of(state.run)) for state in states),
        lacking=sum(bool(task_problem(state.run.task)) for state in states),
        unknown_picture=UNKNOWN_PICTURE,
    )


def _far(state: RunState) -> Far:
    """Return the state of a run, or why it cannot continue."""
    job = state.job
    if job is not None and job.active:
        if job.state == "waiting" or job.stage is None:
            return "in the queue", "", "", "", ()
        progress = job.progress
        share = progress.done / progress.total if progress is not None and progress.total > 1 else None
        rest = left(progress.seconds_left) if progress is not None else ""
        return f"{stage_doing(job.stage)}{rest}", "acc", "", "", (share,)
    if missing := task_problem(state.run.task):
        words = "needs a label" if state.run.task.kind == "classification" else "needs protected classes"
        return words, "warn", missing, "", ()
    if state.problems:
        stage, problem = next(iter(state.problems.items()))
        return f"{stage_title(stage).lower()}: failed", "bad", "", problem.text, ()
    if _drawn(state):
        return "drawn", "ok", "", "", ()
    if state.gate.plan is not None:
        return f"{count_of(len(state.gate.plan.images), 'image')} to draw", "acc", "", "", ()
    done = sum(name in state.run.values and name not in state.stale for name in state.recipe.names)
    return f"{done} of {len(state.recipe.names)} stages" if done else "not begun", "", "", "", ()


def _results(state: RunState) -> str:
    number, accepted = len(state.run.test_cases), len(accepted_of(state.run))
    words = count_of(number, "result") if number else ""
    return f"{words}, {accepted} accepted" if accepted else words


def _drawn(state: RunState) -> bool:
    """Return True if a run has at least one image that was drawn from its current captions."""
    return len(state.outdated) < len(state.run.test_cases)


def settings_of_all(states: Sequence[RunState], profile: ProfileOptions, runs: str) -> Html:
    """Return the settings form of several runs. `runs` are their ids, joined by commas. A setting whose values differ
    is left empty.
    """
    sections = _sections(states)
    presets = None
    if _read_by_all(states, "generation.steps"):
        drawings = [state.settings.generation for state in states]
        presets = preset_chips(drawings, profile.presets, "together-preset", data_runs=runs)
    offered = (name for name in SHARED if name.partition(".")[0] in sections and _read_by_all(states, name))
    titles = {name: "Control image" if name == "conditioning" else section_title(name) for name in sections}
    return render(
        "explore/settings_of_all.html",
        runs=runs,
        recipes=states[0].recipes,
        recipe=common(states, lambda state: state.recipe.name),
        presets=presets,
        often=[(*name.split("."), SHARED[name]) for name in offered],
        sections=[(name, titles[name], _names(states, profile, name)) for name in sections],
        fields={name: type(getattr(states[0].settings, name)).model_fields for name in sections},
        choices=lambda section, name: _choices(states, profile, section, name),
        agreed=lambda section, name: common(states, lambda state: getattr(getattr(state.settings, section), name)),
        input_of=lambda section, name, field_id: _input(states, section, name, field_id, runs),
    )


def common(states: Sequence[RunState], of: Callable[[RunState], Any]) -> Any:
    """Return the value that `of` returns for all states, or None if the values differ."""
    values = {of(state) for state in states}
    return values.pop() if len(values) == 1 else None


def _read_by_all(states: Sequence[RunState], setting: str) -> bool:
    return all(state.recipe.reads(setting) for state in states)


def _sections(states: Sequence[RunState]) -> tuple[str, ...]:
    """Return the sections of settings that the stages or the method of any run use, in the order of the cards."""
    of_stages = [stage.settings for state in states for stage in state.recipe.stages if stage.settings]
    of_methods = [name for state in states for name in (*state.recipe.drawing_method.sections, "generation")]
    sections = dict.fromkeys((*of_stages, *of_methods))
    return tuple(name for name in sections if all(hasattr(state.settings, name) for state in states))


def _names(states: Sequence[RunState], profile: ProfileOptions, section: str) -> list[str]:
    """Return the names of a section's settings that all runs use. Names in `SHARED` and `ONE_BY_ONE` are left out."""
    section_settings = getattr(states[0].settings, section)
    own_fields = getattr(section_settings, "own_fields", None)  # for a control image, the fields of its kind
    names = [
        name
        for name in type(section_settings).model_fields
        if f"{section}.{name}" not in (*SHARED, *ONE_BY_ONE)
        and (own_fields is None or name == "kind" or name in own_fields())
        and _read_by_all(states, f"{section}.{name}")
    ]
    if section == "conditioning" and len(profile.control_kinds) == 1 and "kind" in names:
        names.remove("kind")
    return names


def _choices(states: Sequence[RunState], profile: ProfileOptions, section: str, name: str) -> list[Any]:
    """Return the values to choose from for a setting; empty if it has a text field or a checkbox."""
    annotation = type(getattr(states[0].settings, section)).model_fields[name].annotation
    if get_origin(annotation) is not Literal:
        return []
    if name == "kind":
        return list(profile.control_kinds)
    return [value for value in get_args(annotation) if value != "chosen"]


def _input(states: Sequence[RunState], section: str, name: str, field_id: str, runs: str) -> Html:
    """Return the field for one setting of several runs. The field is empty if their values differ."""
    settings = getattr(states[0].settings, section)
    more: dict[str, Any] = {}
    if common(states, lambda state: getattr(getattr(state.settings, section), name)) is None:
        nothing = {"checked": False, "title": DIFFERS}
        more = nothing if isinstance(getattr(settings, name), bool) else {"value": "", "placeholder": DIFFERS}
    return setting_input(section, name, settings, field_id, data_do="together-setting", data_runs=runs, **more)
