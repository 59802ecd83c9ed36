"""Two panels of a stage card: the prompt and the reply of its model, with an editor of the prompt; and the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from core.stored_runs import StoredValue
from core.types import PromptSlot, StageName
from services.edit_conflicts import clock
from services.runs.state import RunState
from ui.explore.parts import seconds, short_model
from ui.markup import Html
from ui.templating import render

Summary = Callable[[Any], str]
"""Tells a value in one line."""
Exchange = tuple[str, str, str]
"""Words about a try, what was asked and what was replied."""


def prompt_panel(stage: StageName, state: RunState) -> Html:
    """Prompt and reply of the latest try, failed ones too, and the template for the next one if there is one."""
    held = state.recipe.stage(stage)
    sent = {slot.name for slot in held.others_sent(state.settings)}
    slots = [
        (slot, f"{stage}-{slot.name}" if further else stage, further, _note(slot, state), _earlier(slot, state))
        for slot in held.prompt_slots
        if not (further := slot in held.other_prompts) or slot.name in sent or slot.name in state.run.prompts
    ]
    said = _said(stage, state)
    return render("explore/prompt.html", stage=stage, state=state, slots=slots, said=said, moment=_when)


def has_prompt(stage: StageName, state: RunState) -> bool:
    """Whether the stage has a prompt to show: one that its model was sent, or a template for the next try."""
    asked = any(version.value.trace.prompt for version in state.histories.get(stage, ()))
    return asked or bool(state.recipe.stage(stage).prompt_slots)


def _said(stage: StageName, state: RunState) -> Exchange | None:
    held = state.problems.get(stage)
    if held is not None and held.prompt:
        return "The last try, which could not be read", held.prompt, held.raw_reply
    asked = [version for version in state.histories.get(stage, ()) if version.value.trace.prompt]
    if not asked:
        return None
    trace, created = asked[-1].value.trace, asked[-1].created
    name = short_model(trace.model, state.model_names)
    tries = "at the first try" if trace.attempts == 1 else f"at try {trace.attempts}"
    words = f"{name} · {clock(created)} · {seconds(trace.seconds)} · seed {trace.seed} · {tries}"
    return words, trace.prompt, trace.raw_reply


def _note(slot: PromptSlot, state: RunState) -> str:
    """What a template has to hold and may hold."""
    listed = ", ".join(f"${name}" for name in slot.required)
    allowed = f", and may hold {', '.join(f'${name}' for name in slot.optional)}" if slot.optional else ""
    note = f"It has to hold {listed}{allowed}: the studio fills them in."
    if state.prompts.get(slot.name) is None:
        return f"The prompts of this profile have none for this: write one. {note}"
    return note


def _earlier(slot: PromptSlot, state: RunState) -> list[tuple[int, str, datetime]]:
    """Number, template and date of what this run had before for a prompt, each once, the newest first."""
    now, name = state.run.prompts.get(slot.name), slot.name
    moments = {held.prompts[name]: held.created for held in state.earlier_prompts if name in held.prompts}
    rows = [(number, *row) for number, row in enumerate(moments.items()) if row[0] != now]
    return rows[::-1]


def history(versions: tuple[StoredValue, ...], summary: Summary, names: Mapping[str, str], held: int) -> Html:
    """List all versions, newest first, each with a way back. `held` is the id of the current one, or 0."""
    rows = [
        (version, _when(version.created), _who(version, names), summary(version.value.value))
        for version in reversed(versions)
    ]
    return render("explore/history.html", rows=rows, held=held)


def _who(version: StoredValue, names: Mapping[str, str]) -> str:
    who = "you" if version.author == "person" else short_model(version.value.trace.model, names)
    return who + (" · brought back" if version.brought_back is not None else "")


def _when(moment: datetime) -> str:
    own = moment.astimezone()
    today = own.date() == datetime.now().astimezone().date()
    return clock(moment) if today else own.strftime("%d %b %H:%M")
