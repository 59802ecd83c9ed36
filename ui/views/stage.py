"""The frame of a stage card: number, name, state as a word, model and seconds, its buttons and its panels."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel

from pipeline.settings import Settings
from pipeline.types import STAGES, StageName
from storage.types import StoredValue
from ui.jobs import JobView
from ui.studio import Problem, RunState, clock, task_problem
from ui.views.forms import settings_form
from ui.views.markup import Child, Html, el, join
from ui.views.parts import TITLES, Tone, bar, button, left, pill, problem, seconds, short_model


def stage_card(stage: StageName, state: RunState, body: Child, summary: Any) -> Html:
    """The card of a text stage. `summary` tells a value in one line, for the history."""
    stored = state.run.values.get(stage)
    running = running_stage(state.job) == stage
    word, tone = state_word(stage, state)
    head = el(
        "header",
        el("span", STAGES.index(stage) + 1, class_="num"),
        el("h2", TITLES[stage]),
        pill(word, tone, id=f"state-{stage}", data_state=word.split(":")[0]),
        el("span", class_="grow"),
        el("span", _made_by(stored, state.model_names), class_="meta"),
        el("span", _head_buttons(stage, state, stored, running), class_="actions"),
    )
    held = state.problems.get(stage)
    parts: list[Child] = [head]
    if running and state.job is not None:
        parts.append(_working(state.job))
    if held is not None:
        parts.append(_problem(held, stage))
    parts.append(_panels(stage, state, stored, summary))
    parts.append(el("div", body, class_="body"))
    tones = {"warn": " is-stale", "bad": " is-failed"}
    return el("section", parts, class_=f"card stage{tones.get(tone, '')}", id=f"stage-{stage}", data_stage=stage)


def running_stage(job: JobView | None) -> StageName | None:
    """The stage that the worker is at for this run."""
    return job.stage if job is not None and job.state == "running" else None


def state_word(stage: StageName, state: RunState) -> tuple[str, Tone]:
    """The state of a text stage in words, and its tone."""
    job = state.job
    if running_stage(job) == stage:
        return "running", "acc"
    if job is not None and job.state == "waiting" and stage in job.stages and len(job.stages) == 1:
        return "waiting", "acc"
    stored = state.run.values.get(stage)
    if stage in state.stale:
        return f"stale: {state.stale[stage]}", "warn"
    broke = job is not None and job.state == "failed" and job.stage == stage
    if stage in state.problems and (stored is None or broke):
        return "failed", "bad"
    if stored is None:
        return "empty", ""
    return ("edited by you", "acc") if stored.author == "person" else ("ready", "ok")


def _made_by(stored: StoredValue | None, names: dict[str, str]) -> str:
    if stored is None:
        return ""
    trace = stored.value.trace
    if trace.author == "person":
        return f"you · {clock(stored.created)}"
    tries = f" · {trace.attempts} tries" if trace.attempts > 1 else ""
    return f"{short_model(trace.model, names)} · {seconds(trace.seconds)}{tries}"


def _head_buttons(stage: StageName, state: RunState, stored: StoredValue | None, running: bool) -> Child:
    shut = (state.job is not None and state.job.active) or bool(task_problem(state.run.task))
    parts: list[Child] = []
    if len(state.histories.get(stage, ())) > 1:
        parts.append(_toggle("History", "history"))
    if stored is not None and stored.value.trace.prompt:
        parts.append(_toggle("What it was told", "told"))
    parts.append(_toggle("Settings", "settings"))
    if running:
        return join(*parts, button("Cancel", "cancel", "s"))
    if stage in state.stale:
        parts.append(button("Keep as it is", "keep", "s", data_stage=stage, disabled=shut))
        parts.append(button("Run from here", "run-all", "s p", disabled=shut, id=f"run-{stage}"))
    else:
        missing = [name for name in STAGES[: STAGES.index(stage)] if name not in state.run.values]
        word = "Run" if stored is None else "Run again"
        look = "s p" if stored is None and not missing else "s"
        parts.append(button(word, "run", look, data_stage=stage, disabled=shut or bool(missing), id=f"run-{stage}"))
    return join(*parts)


def _toggle(text: str, panel: str) -> Html:
    return el("button", text, type="button", class_="btn s q", data_panel_of=panel, aria_expanded="false")


def _working(job: JobView) -> Html:
    progress = job.progress
    if progress is None:
        # Whole seconds, so that the markup changes no more often than a person could read.
        return el("div", bar(None), el("span", f"{int(time.monotonic() - job.since)} s"), class_="working")
    words = f"{progress.note}{left(progress.seconds_left)}"
    return el("div", bar(progress.done / max(1, progress.total)), el("span", words), class_="working")


def _problem(held: Problem, stage: StageName) -> Html:
    parts: list[Child] = [problem(held.text, f"problem-{stage}")]
    if held.raw_reply:
        parts.append(
            el(
                "details",
                el("summary", "What the model said"),
                el("pre", held.raw_reply),
                el("p", "Fill in what you need of it below by hand, or run the stage again.", class_="mut"),
                class_="raw",
            )
        )
    return join(*parts)


def _panels(stage: StageName, state: RunState, stored: StoredValue | None, summary: Any) -> Child:
    parts: list[Child] = []
    versions = state.histories.get(stage, ())
    if len(versions) > 1:
        parts.append(
            panel("history", "Earlier values stay. Bring one back to work on from there.", _history(versions, summary))
        )
    if stored is not None and stored.value.trace.prompt:
        trace = stored.value.trace
        told = [el("h3", "Prompt"), el("pre", trace.prompt), el("h3", "Reply"), el("pre", trace.raw_reply)]
        parts.append(panel("told", f"{trace.model}, seed {trace.seed}", told))
    own: BaseModel = getattr(state.settings, stage)
    parts.append(panel("settings", "Of this run only.", settings_form({stage: own})))
    return parts


def panel(name: str, note: str, content: Child) -> Html:
    """A part of a card that a button of its head opens."""
    return el("div", el("p", note, class_="mut"), content, class_="panel", data_panel=name, data_key=f"panel-{name}")


def _history(versions: tuple[StoredValue, ...], summary: Any) -> Html:
    rows = []
    for version in reversed(versions):
        latest = version is versions[-1]
        who = "you" if version.author == "person" else "model"
        who += " · brought back" if version.brought_back is not None else ""
        act = (
            pill("now", "ok")
            if latest
            else button("Bring back", "bring-back", "s", data_version=version.id, data_stage=version.stage)
        )
        rows.append(
            el(
                "tr",
                el("td", clock(version.created)),
                el("td", who),
                el("td", summary(version.value.value)),
                el("td", act),
            )
        )
    return el("table", rows, class_="history")


def all_settings(settings: Settings, *stages: str) -> dict[str, BaseModel]:
    """The settings of some stages by their names."""
    return {stage: getattr(settings, stage) for stage in stages}
