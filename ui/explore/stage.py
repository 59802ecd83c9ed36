"""The frame of a stage's card: number, name, state, model, seconds, and buttons. Its panels show the prompt and the
reply of its model, an editor for the prompt, and the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from core.data_files import DataTable
from core.stored_runs import StoredValue
from core.types import PromptSlot, StageName, stage_doing
from services.edit_conflicts import clock
from services.jobs import JobView
from services.runs.life_cycle import task_problem
from services.runs.state import Problem, RunState
from ui.explore.forms import settings_form
from ui.explore.parts import Tone, icon, left, pill, seconds, short_model
from ui.markup import Html, el
from ui.templating import render

PLAIN: Mapping[str, str] = DataTable(__file__, str, "plain")
"""Plain words shown after a stage's title, by title. Stages of a user's own recipe have none."""
EXPLAINED: Mapping[str, str] = DataTable(__file__, str, "explained")
"""Explanation of each stage in one or two sentences, by title."""
FIRST_TIME = " · the first time, the models are loaded too"
"""Text added to the seconds of a running stage as long as it reports no progress."""
ICONS = DataTable(__file__, str, "icons")
"""Icon for each state of a stage, so that people recognise the state without its colour."""


def stage_card(name: StageName, state: RunState, body: Html) -> Html:
    """Return the card of a text stage of the run's recipe."""
    stage, stored = state.recipe.stage(name), state.run.values.get(name)
    versions = state.histories.get(name, ())
    word, tone = state_word(name, state)
    job = state.job if running_stage(state.job) == name else None
    problem = state.problems.get(name)
    prompted = any(version.value.trace.prompt for version in versions)
    return render(
        "explore/stage.html",
        name=name,
        stage=stage,
        stored=stored,
        state=state,
        body=body,
        number=state.recipe.cards.index(name) + 1,
        title=title(stage.title),
        state_pill=state_pill(word, tone, id=f"state-{name}"),
        tone=tone,
        edited=any(slot.name in state.run.prompts for slot in stage.prompt_slots),
        clock=clock,
        shut=state.active or task_problem(state.run.task) != "",
        running=job is not None,
        working=_working(job) if job is not None else "",
        share=job.progress.done / max(1, job.progress.total) if job is not None and job.progress is not None else None,
        problem_of=problem,
        asks=problem is not None and problem.insist is not None and problem.insist.name == "run",
        insisted=_insisted(problem),
        history=history(versions, stage.summary, state.model_names, stored.id if stored is not None else 0)
        if len(versions) > (stored is not None)
        else None,
        prompt=prompt_panel(name, state) if prompted or stage.prompt_slots else None,
        settings=settings_form({stage.settings: getattr(state.settings, stage.settings)}) if stage.settings else None,
        missing=next((state.recipe.stage(read) for read in stage.reads if read not in state.run.values), None),
        several=state.recipe.asked_ahead(name, state.settings, state.prompts),
    )


def title(words: str) -> Html:
    """Return a stage's title, followed by its meaning in plain words."""
    plain = PLAIN.get(words)
    return el("h2", words, el("span", plain, class_="plain") if plain else None, title=plain)


def state_pill(word: str, tone: Tone, **attributes: str | bool | None) -> Html:
    """Return a state as a label: icon, word and colour. In `word`, a reason may follow after a colon."""
    name = word.split(":")[0]
    icon_name = ICONS.get(name)
    shown = [icon(icon_name) if icon_name else None, el("span", word)]
    return pill(shown, tone, data_state=name, title=word if word != name else None, **attributes)


def running_stage(job: JobView | None) -> StageName | None:
    """Return the stage that the job is running now, or None."""
    return job.stage if job is not None and job.state == "running" else None


def state_word(stage: StageName, state: RunState) -> tuple[str, Tone]:
    """Return the state of a text stage as text, and the name of the state's colour."""
    job = state.job
    if running_stage(job) == stage:
        return "running", "acc"
    stored = state.run.values.get(stage)
    if job is not None and _comes_later(stage, state, job):
        return "waiting", "acc"
    broke = job is not None and job.state == "failed" and job.stage == stage
    if stage in state.problems and (stored is None or broke):
        return "failed", "bad"
    if stage in state.stale:
        return f"stale: {state.stale[stage]}", "warn"
    if stored is None:
        return "empty", ""
    return ("edited by you", "acc") if stored.author == "person" else ("ready", "ok")


def _comes_later(stage: StageName, state: RunState, job: JobView) -> bool:
    """Return True if a job will run a stage later. A job of one stage always runs it. A job of several stages runs only
    those that are empty or stale.
    """
    if not job.active or stage not in job.stages:
        return False
    cards = state.recipe.cards
    if job.stage in cards and cards.index(stage) <= cards.index(job.stage):
        return False
    return len(job.stages) == 1 or stage not in state.run.values or stage in state.stale


def _working(job: JobView) -> str:
    progress = job.progress
    if progress is not None:
        return f"{progress.note}{left(progress.seconds_left)}"
    # Whole seconds, so that the markup does not change faster than a person can read.
    text = stage_doing(job.stage) if job.stage is not None else "starting"
    return f"{text} · {int(time.monotonic() - job.since)} s{FIRST_TIME}"


def _insisted(problem: Problem | None) -> dict[str, str]:
    """Return HTML attributes for a button that sends a refused command again and insists on it."""
    if problem is None or problem.insist is None:
        return {}
    fields = problem.insist.model_dump(mode="json", exclude={"run", "tab", "version"})
    return {f"data_{name}": "true" if value is True else value for name, value in fields.items()}


def prompt_panel(stage: StageName, state: RunState) -> Html:
    """Return the panel with the latest prompt and reply of a stage, and with the templates for the next prompts."""
    recipe_stage = state.recipe.stage(stage)
    sent = {slot.name for slot in recipe_stage.others_sent(state.settings)}
    slots = [
        (slot, f"{stage}-{slot.name}" if further else stage, further, _earlier(slot, state))
        for slot in recipe_stage.prompt_slots
        if not (further := slot in recipe_stage.other_prompts) or slot.name in sent or slot.name in state.run.prompts
    ]
    return render("explore/prompt.html", stage=stage, state=state, slots=slots, said=_said(stage, state), moment=_when)


def _said(stage: StageName, state: RunState) -> tuple[str, str, str] | None:
    """Return (description, prompt, reply) of the latest try, or None if none exists."""
    problem = state.problems.get(stage)
    if problem is not None and problem.prompt:
        return "The last try, whose reply could not be read", problem.prompt, problem.raw_reply
    prompted = [version for version in state.histories.get(stage, ()) if version.value.trace.prompt]
    if not prompted:
        return None
    trace, created = prompted[-1].value.trace, prompted[-1].created
    name = short_model(trace.model, state.model_names)
    tries = "at the first try" if trace.attempts == 1 else f"at try {trace.attempts}"
    words = f"{name} · {clock(created)} · {seconds(trace.seconds)} · seed {trace.seed} · {tries}"
    return words, trace.prompt, trace.raw_reply


def _earlier(slot: PromptSlot, state: RunState) -> list[tuple[int, str, datetime]]:
    """Return (number, template, date) of each earlier template of a prompt in this run, newest first."""
    now, name = state.run.prompts.get(slot.name), slot.name
    moments = {earlier.prompts[name]: earlier.created for earlier in state.earlier_prompts if name in earlier.prompts}
    rows = [(number, *row) for number, row in enumerate(moments.items()) if row[0] != now]
    return rows[::-1]


def history(
    versions: tuple[StoredValue, ...], summary: Callable[[Any], str], names: Mapping[str, str], current: int
) -> Html:
    """Return the versions of a stage's value, newest first, with buttons to restore them. `current` is the id of the
    current version, or 0 if none exists.
    """
    rows = [(version, _when(version.created), summary(version.value.value)) for version in reversed(versions)]
    return render("explore/history.html", rows=rows, names=names, held=current)


def _when(moment: datetime) -> str:
    local = moment.astimezone()
    today = local.date() == datetime.now().astimezone().date()
    return clock(moment) if today else local.strftime("%d %b %H:%M")
