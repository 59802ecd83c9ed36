"""The card of stage 5: the gate, and the work behind it."""

from __future__ import annotations

from pipeline.settings import Settings
from pipeline.types import StageName
from storage.types import Job
from ui.gate import Gate
from ui.studio import RunState, clock
from ui.views.forms import settings_form
from ui.views.markup import Child, Html, el, join
from ui.views.parts import Tone, about, bar, button, key, left, pill, problem
from ui.views.stage import all_settings, panel, running_stage

STAGE: StageName = "generation"


def generation_card(state: RunState) -> Html:
    """What a yes would start and what it would cost; while it runs, how far it is."""
    running = running_stage(state.job) == STAGE or _waits(state)
    word, tone = _state_word(state, running)
    head = el(
        "header",
        el("span", 5, class_="num"),
        el("h2", "Generate"),
        pill(word, tone, id="state-generation", data_state=word.split(":")[0]),
        el("span", class_="grow"),
        el("span", _how(state.settings), class_="meta"),
        el(
            "span",
            el("button", "Settings", type="button", class_="btn s q", data_panel_of="settings"),
            class_="actions",
        ),
    )
    held = state.problems.get(STAGE)
    settings = settings_form(all_settings(state.settings, "generation", "conditioning"))
    parts: list[Child] = [head]
    if held is not None:
        parts.append(problem(held.text, "problem-generation"))
    parts.append(panel("settings", "Of this run only.", settings))
    parts.append(_progress(state) if running else _gate(state))
    waits = not running and state.gate.plan is not None
    return el(
        "section", parts, class_=f"card stage{' is-gate' if waits else ''}", id="stage-generation", data_stage=STAGE
    )


def _waits(state: RunState) -> bool:
    return (
        state.job is not None
        and state.job.state == "waiting"
        and STAGE in state.job.stages
        and len(state.job.stages) == 1
    )


def _state_word(state: RunState, running: bool) -> tuple[str, Tone]:
    last = state.run.jobs[-1] if state.run.jobs else None
    if running:
        return ("stopping", "warn") if state.job is not None and state.job.stopping else ("running", "acc")
    if last is not None and last.state == "failed":
        return "failed", "bad"
    if last is not None and last.state in ("interrupted", "cancelled"):
        return f"{last.state}: {_saved(last)}", "warn"
    if not state.run.test_cases:
        return ("waiting for your yes", "acc") if state.gate.plan is not None else ("empty", "")
    if not state.current:
        return "stale: the images show earlier captions", "warn"
    return "ready", "ok"


def _saved(job: Job) -> str:
    return f"{job.done} of {job.total} images are saved"


def _how(settings: Settings) -> str:
    edges, drawing = settings.conditioning, settings.generation
    return f"Canny {edges.low} / {edges.high} · ControlNet · {drawing.steps} steps"


def _gate(state: RunState) -> Html:
    gate = state.gate
    if gate.plan is None:
        return el("div", el("p", gate.closed, class_="mut"), class_="gate closed", id="gate")
    number, captions = len(gate.plan.images), gate.plan.captions
    active = state.job is not None and state.job.active
    words = f"{_count(number, 'image')} from {_count(captions, 'caption')}"
    return el(
        "div",
        el(
            "div",
            el("b", words, id="gate-count"),
            el("span", _cost(gate), class_="mut", id="gate-seconds"),
            el("span", _explained(gate, state), class_="mut note"),
            class_="what",
        ),
        button(
            [f"Generate {_count(number, 'image')}", key("Ctrl ↵")],
            "generate",
            "p",
            id="generate",
            disabled=active,
            data_key="generate",
        ),
        class_="gate",
        id="gate",
    )


def _cost(gate: Gate) -> str:
    if gate.plan is None or gate.plan.seconds is None:
        return "measuring the time" if gate.measuring else "the time is known after the first image on this machine"
    return f"{about(gate.plan.seconds)} on this machine"


def _explained(gate: Gate, state: RunState) -> str:
    if gate.made:
        return f"{_count(gate.made, 'image')} of them made before and kept."
    if gate.seed:
        return f"All images of these captions are made; these would be others (seed {gate.seed})."
    if state.run.test_cases:
        return "The captions or settings were changed; earlier images stay."
    return "Nothing is generated before your yes."


def _progress(state: RunState) -> Html:
    job = state.job
    progress = job.progress if job is not None else None
    if progress is None:
        shown: Child = [bar(None), el("span", "starting", id="progress-words")]
    else:
        words = f"{progress.note} · step {progress.done} of {progress.total}{left(progress.seconds_left)}"
        shown = [bar(progress.done / max(1, progress.total)), el("span", words, id="progress-words")]
    stopping = job is not None and job.stopping
    return el(
        "div",
        el("div", shown, class_="working"),
        button("Stopping" if stopping else "Cancel", "cancel", "", id="cancel", disabled=stopping),
        class_="gate",
        id="gate",
    )


def jobs_history(state: RunState) -> Html:
    """The generations of the run, in a line each."""
    return join([el("li", f"{clock(job.started)} · {job.state} · {_saved(job)}") for job in reversed(state.run.jobs)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
