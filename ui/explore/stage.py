"""The frame of a stage card: number, name, state as a word, model and seconds, its buttons and its panels."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pydantic import BaseModel

from core.stored_runs import StoredValue
from core.types import StageName, stage_doing
from services.edit_conflicts import clock
from services.jobs import JobView
from services.runs.execution import RunStage
from services.runs.life_cycle import task_problem
from services.runs.state import Problem, RunState
from ui.explore.forms import settings_form
from ui.explore.parts import Tone, bar, button, icon, left, muted, notice, pill, problem, seconds, short_model
from ui.explore.prompt_panel import has_prompt, history, prompt_panel, prompt_pill
from ui.explore.words import FIRST_TIME, PLAIN
from ui.markup import Child, Html, el, join

FROM_HERE = "This stage and all after it that are empty or stale, but no images yet"
FROM_EDIT = "Your edit stays; what comes after it is run, but no images yet"
STAGE_ONLY = "This stage only"
IN_ONE_REQUEST = "This stage, and in the same request those after it, unless you edited one of them"

ICONS: dict[str, str] = {
    "empty": "empty",
    "waiting": "clock",
    "running": "turn",
    "ready": "check",
    "edited by you": "pencil",
    "stale": "again",
    "failed": "alert",
    "waiting for your yes": "clock",
    "stopping": "clock",
    "cancelled": "cross",
    "interrupted": "alert",
}
"""What stands before the word of a state: neither needs the other, nor a colour."""


def stage_card(stage: StageName, state: RunState, body: Child) -> Html:
    """The card of a text stage of the run's recipe."""
    stored = state.run.values.get(stage)
    running = running_stage(state.job) == stage
    word, tone = state_word(stage, state)
    head = el(
        "header",
        el("span", state.recipe.cards.index(stage) + 1, class_="num"),
        title(state.recipe.stage(stage).title, stage),
        state_pill(word, tone, id=f"state-{stage}"),
        prompt_pill(stage, state),
        el("span", class_="grow"),
        el("span", _made_by(stored, state.model_names), class_="meta rare"),
        el("div", _head_buttons(stage, state, stored, running), class_="steps"),
    )
    held, said = state.problems.get(stage), state.notices.get(stage)
    parts: list[Child] = [head]
    if running and state.job is not None:
        parts.append(_working(state.job))
    if held is not None:
        parts.append(_problem(held, stage))
    if said is not None:
        parts.append(notice([icon("alert"), el("span", said)], f"notice-{stage}"))
    for number, note in enumerate(stored.value.trace.notes if stored is not None else ()):
        parts.append(notice([icon("alert"), el("span", note)], f"note-{stage}-{number}"))
    parts.append(_panels(stage, state))
    parts.append(el("div", body, class_="body"))
    tones = {"warn": " is-stale", "bad": " is-failed"}
    return el(
        "section",
        parts,
        class_=f"card stage foldable{tones.get(tone, '')}",
        id=f"stage-{stage}",
        data_stage=stage,
        data_version=stored.id if stored else None,
    )


def title(words: str, stage: StageName) -> Html:
    """The name of a stage, and beside it what that means in plain words."""
    plain = PLAIN.get(stage)
    return el("h2", words, el("span", plain, class_="plain") if plain else None, title=plain)


def more_toggle(what: str) -> Html:
    """On a screen that is too small for all of a card, the button for what is rarely needed."""
    return button(
        icon("dots"),
        look="s q icon-only more-toggle",
        data_more_of=True,
        aria_label=f"More of {what}",
        title="Settings, prompt, history and whatever else is rarely needed",
    )


def state_pill(word: str, tone: Tone, **attributes: str | bool | None) -> Html:
    """A state as icon, word and colour. What stands behind a colon is its reason."""
    name = word.split(":")[0]
    drawn = ICONS.get(name)
    shown = [icon(drawn) if drawn else None, el("span", word)]
    return pill(shown, tone, data_state=name, title=word if word != name else None, **attributes)


def running_stage(job: JobView | None) -> StageName | None:
    """The stage that the worker thread is at for this run."""
    return job.stage if job is not None and job.state == "running" else None


def state_word(stage: StageName, state: RunState) -> tuple[str, Tone]:
    """The state of a text stage in words, and its tone."""
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
    """Whether a job has still to come to a stage: always to its only one, else to those that are empty or stale."""
    if not job.active or stage not in job.stages:
        return False
    cards = state.recipe.cards
    if job.stage in cards and cards.index(stage) <= cards.index(job.stage):
        return False
    return len(job.stages) == 1 or stage not in state.run.values or stage in state.stale


def _made_by(stored: StoredValue | None, names: Mapping[str, str]) -> str:
    if stored is None:
        return ""
    trace = stored.value.trace
    if trace.author == "person":
        return f"you · {clock(stored.created)}"
    tries = f" · {trace.attempts} tries" if trace.attempts > 1 else ""
    return f"{short_model(trace.model, names)} · {seconds(trace.seconds)}{tries}"


def _head_buttons(stage: StageName, state: RunState, stored: StoredValue | None, running: bool) -> Child:
    """On a line of their own, in the order in which a stage gets them: what comes later moves none that was there."""
    shut = state.active or bool(task_problem(state.run.task))
    versions = state.histories.get(stage, ())
    parts: list[Child] = [panel_toggle("Settings", "settings") if state.recipe.stage(stage).settings else None]
    if has_prompt(stage, state):
        parts.append(panel_toggle("Prompt and reply", "prompt"))
    if len(versions) > (stored is not None):
        parts.append(panel_toggle("History", "history"))
    if state.can_undo(stage):
        words = [icon("undo"), el("span", "Undo", class_="word")]
        hint = "Undo the last edit of this stage (Ctrl+Z)"
        parts.append(button(words, "undo", "s q", data_stage=stage, id=f"undo-{stage}", title=hint))
    parts.append(el("span", class_="grow"))
    run = button("Cancel", "cancel", "s") if running else _run_buttons(stage, state, stored, shut)
    return join(*parts, run, more_toggle(state.recipe.stage(stage).title.lower()))


def _run_buttons(stage: StageName, state: RunState, stored: StoredValue | None, shut: bool) -> Child:
    """Buttons that keep their words and places, since the stage may become stale while somebody presses one."""
    missing = [before for before in state.recipe.before(stage) if before.name not in state.run.values]
    closed, stale = shut or bool(missing), stage in state.stale
    word = "Run" if stored is None else state.recipe.stage(stage).again
    hint = missing[0].comes_first if missing else None
    keep = button("Keep as it is", "keep", "s", data_stage=stage, disabled=shut) if stale else None
    if stage == state.recipe.last.name:
        look = "s p" if stale or (stored is None and not missing) else "s"
        action, of = ("run-all", None) if stale else ("run", stage)
        return join(keep, button(word, action, look, data_stage=of, disabled=closed, id=f"run-{stage}", title=hint))
    look = "s p" if stored is None and not missing else "s"
    several = state.recipe.asked_ahead(stage, state.settings, state.prompts)
    alone = hint or (IN_ONE_REQUEST if several else STAGE_ONLY if stale else None)
    words: Child = word if stored is None else [icon("again"), el("span", word, class_="word")]
    run = button(words, "run", look, data_stage=stage, disabled=closed, id=f"run-{stage}", title=alone or word)
    action, look, of = ("run-all", "s p", None) if stale else ("run-from", "s", stage)
    edited = stored is not None and stored.author == "person" and not stale
    words = FROM_EDIT if edited else FROM_HERE
    here = button("Run from here", action, look, data_stage=of, disabled=closed, id=f"from-{stage}", title=words)
    return join(keep, run, here)


def panel_toggle(text: str, panel: str) -> Html:
    """The button of a card's head that opens one of its panels."""
    return button(text, look="s q rare", data_panel_of=panel, aria_expanded="false")


def _working(job: JobView) -> Html:
    progress = job.progress
    if progress is None:
        # Whole seconds, so that the markup changes no more often than a person could read.
        doing = stage_doing(job.stage) if job.stage is not None else "starting"
        words = f"{doing} · {int(time.monotonic() - job.since)} s{FIRST_TIME}"
        return el("div", bar(None), el("span", words), class_="working")
    words = f"{progress.note}{left(progress.seconds_left)}"
    return el("div", bar(progress.done / max(1, progress.total)), el("span", words), class_="working")


def _problem(held: Problem, stage: StageName) -> Html:
    if isinstance(held.insist, RunStage):
        return _question(held.text, held.insist, stage)
    parts: list[Child] = [problem(held.text, f"problem-{stage}")]
    if held.insist is not None:
        fields = held.insist.model_dump(mode="json", exclude={"run", "tab", "version"})
        data = {f"data_{name}": "true" if value is True else value for name, value in fields.items()}
        parts.append(button("Use it all the same", held.insist.name, "s", id=f"force-{stage}", **data))
    if held.raw_reply:
        parts.append(
            el(
                "details",
                el("summary", "What the model said"),
                el("pre", held.raw_reply),
                muted("Fill in what you need of it below by hand, or run the stage again."),
                class_="raw",
            )
        )
    return join(*parts)


def _question(text: str, insist: RunStage, stage: StageName) -> Html:
    """Before a run replaces what a person wrote."""
    keep = button("Keep my edit", "dismiss", "s p", data_stage=stage, id=f"dismiss-{stage}")
    replace = button("Replace it", insist.name, "s", data_stage=stage, data_force="true", id=f"force-{stage}")
    said = [icon("alert"), el("span", text), el("span", keep, replace, class_="acts")]
    return el("div", said, class_="notice asks", role="alert", id=f"problem-{stage}")


def _panels(name: StageName, state: RunState) -> Child:
    parts: list[Child] = []
    stage, versions, held = state.recipe.stage(name), state.histories.get(name, ()), state.run.values.get(name)
    if len(versions) > (held is not None):
        note = "Earlier values stay. Bring one back to work on from there."
        rows = history(versions, stage.summary, state.model_names, held.id if held is not None else 0)
        parts.append(panel("history", note, rows))
    if has_prompt(name, state):
        note = "What this stage asks its model, word for word, and what it replied."
        parts.append(panel("prompt", note, prompt_panel(name, state)))
    if stage.settings:
        own: BaseModel = getattr(state.settings, stage.settings)
        parts.append(panel("settings", "Of this run only.", settings_form({stage.settings: own})))
    return parts


def panel(name: str, note: str, content: Child) -> Html:
    """A part of a card that a button of its head opens."""
    return el("div", muted(note), content, class_="panel", data_panel=name, data_key=f"panel-{name}")
