"""Two panels of a stage card: the prompt and the reply of its model, with an editor of the prompt; and the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from core.stored_runs import StoredValue
from core.types import PromptSlot, StageName
from services.edit_conflicts import clock
from services.runs.state import RunState
from ui.explore.parts import button, muted, pill, seconds, short_model, small
from ui.markup import Child, Html, el

Summary = Callable[[Any], str]
"""Tells a value in one line."""


def prompt_panel(stage: StageName, state: RunState) -> Html:
    """Prompt and reply of the latest try, failed ones too, and the template for the next one if there is one."""
    held = state.recipe.stage(stage)
    sent = {slot.name for slot in held.others_sent(state.settings)}
    editors: list[Child] = []
    for slot in held.prompt_slots:
        further = slot in held.other_prompts
        if not further or slot.name in sent or slot.name in state.run.prompts:
            editors += [_editor(stage, slot, further, state), _earlier(stage, slot.name, state)]
    return el("div", _said(stage, state), editors, class_="prompt-panel")


def prompt_pill(stage: StageName, state: RunState) -> Child:
    """That this run has a prompt of its own at the stage, where it has."""
    if not any(slot.name in state.run.prompts for slot in state.recipe.stage(stage).prompt_slots):
        return None
    return pill("prompt edited", "acc", title="This run has a prompt of its own.")


def has_prompt(stage: StageName, state: RunState) -> bool:
    """Whether the stage has a prompt to show: one that its model was sent, or a template for the next try."""
    asked = any(version.value.trace.prompt for version in state.histories.get(stage, ()))
    return asked or bool(state.recipe.stage(stage).prompt_slots)


def _said(stage: StageName, state: RunState) -> Child:
    held = state.problems.get(stage)
    if held is not None and held.prompt:
        return _exchange("The last try, which could not be read", held.prompt, held.raw_reply)
    asked = [version for version in state.histories.get(stage, ()) if version.value.trace.prompt]
    if not asked:
        return muted("Nothing was asked yet.")
    trace, created = asked[-1].value.trace, asked[-1].created
    name = short_model(trace.model, state.model_names)
    tries = "at the first try" if trace.attempts == 1 else f"at try {trace.attempts}"
    words = f"{name} · {clock(created)} · {seconds(trace.seconds)} · seed {trace.seed} · {tries}"
    return _exchange(words, trace.prompt, trace.raw_reply)


def _exchange(words: str, prompt: str, reply: str) -> Html:
    return el(
        "div",
        el("p", words, class_="mut small wide"),
        el("div", el("h3", "Prompt"), el("pre", prompt, class_="prompt")),
        el("div", el("h3", "Reply"), el("pre", reply or "(nothing)", class_="reply")),
        class_="exchange",
    )


def _editor(stage: StageName, slot: PromptSlot, further: bool, state: RunState) -> Html:
    """The form for a prompt template of this run. Saving outdates a value that another template made."""
    edited, held = slot.name in state.run.prompts, state.prompts.get(slot.name)
    template = held.template if held is not None else ""
    name = f"{stage}-{slot.name}" if further else stage  # of its elements
    about = {"data_stage": stage, "data_prompt": slot.name if further else None}
    title = f"Prompt of this run: {slot.title}" if further else "Prompt of this run"
    listed = ", ".join(f"${name}" for name in slot.required)
    allowed = f", and may hold {', '.join(f'${name}' for name in slot.optional)}" if slot.optional else ""
    note = f"It has to hold {listed}{allowed}: the studio fills them in."
    if held is None:
        note = f"The prompts of this profile have none for this: write one. {note}"
    field = el(
        "textarea",
        # A browser drops the first line break of a text area.
        f"\n{template}" if template.startswith("\n") else template,
        name="template",
        rows=6,
        class_="template",
        data_lines=True,
        maxlength=4000,
        spellcheck="false",
        aria_label=title,
        id=f"template-{name}",
    )
    back = button("Put the profile's prompt back", "prompt-back", "s", **about) if edited else None
    return el(
        "div",
        el("h3", f"{title} ", pill("edited", "acc") if edited else None),
        field,
        small(note),
        el("span", button("Save this prompt", "", "s p", data_submit=True), back, class_="acts"),
        class_="prompt-form",
        data_form="prompt-save",
        data_key=f"prompt-{name}",
        **about,
    )


def _earlier(stage: StageName, name: str, state: RunState) -> Child:
    """What this run had before for the prompt of a name, the newest first, each once and with a way back to it."""
    now, own = state.run.prompts.get(name), "" if name == stage else name
    moments = {held.prompts[name]: held.created for held in state.earlier_prompts if name in held.prompts}
    rows = [
        el(
            "li",
            el("span", _when(created), class_="mut small"),
            el("pre", template, class_="prompt"),
            button("Bring back", "prompt-save", "s", data_stage=stage, data_prompt=own or None, data_template=template),
            data_key=f"earlier-{name}-{number}",
        )
        for number, (template, created) in enumerate(moments.items())
        if template != now
    ]
    if not rows:
        return None
    title = el("summary", f"Earlier prompts of this run ({len(rows)})")
    return el("details", title, el("ol", reversed(rows)), class_="earlier-prompts", id=f"earlier-prompts-{name}")


def history(versions: tuple[StoredValue, ...], summary: Summary, names: Mapping[str, str], held: int) -> Html:
    """List all versions, newest first, each with a way back. `held` is the id of the current one, or 0."""
    rows = []
    for version in reversed(versions):
        latest = version.id == held
        act = (
            pill("now", "ok")
            if latest
            else button("Bring back", "bring-back", "s", data_version=version.id, data_stage=version.stage)
        )
        rows.append(
            el(
                "tr",
                el("td", _when(version.created), title=version.created.astimezone().strftime("%Y-%m-%d %H:%M:%S")),
                el("td", _who(version, names)),
                el("td", summary(version.value.value)),
                el("td", act),
                data_key=f"version-{version.id}",
            )
        )
    return el("table", el("tbody", rows), class_="history")


def _who(version: StoredValue, names: Mapping[str, str]) -> str:
    who = "you" if version.author == "person" else short_model(version.value.trace.model, names)
    return who + (" · brought back" if version.brought_back is not None else "")


def _when(moment: datetime) -> str:
    own = moment.astimezone()
    today = own.date() == datetime.now().astimezone().date()
    return clock(moment) if today else own.strftime("%d %b %H:%M")
