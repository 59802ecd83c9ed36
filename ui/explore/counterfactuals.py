"""The card of stage 4: counterfactual captions, each with its tick, its differences and its checks."""

from __future__ import annotations

from typing import Any, cast

from core.settings import CounterfactualSettings
from core.types import Check, CounterfactualCaption, CounterfactualCaptions, Task, failed
from core.words import classes_in
from services.runs.state import RunState
from ui.diff import shortened, word_diff
from ui.explore.combinations import combinations_part
from ui.explore.forms import setting_input
from ui.explore.parts import Tone, button, differences, edit_button, icon, muted, pill, press, toggle
from ui.explore.stage import stage_card
from ui.markup import Child, Html, el

HINT = "The caption again, with one or more of the alternatives in it. Each one that is ticked becomes an image."
FAILED = {
    "caption not empty": "empty",
    "edits made": "edit missing",
    "label kept": "label lost",
    "protected kept": "protected word lost",
    "protected named as often": "protected word missing",
    "nothing protected added": "protected word added",
    "nothing unasked changed": "more than asked changed",
    "nothing lost": "something lost",
    "no repetition": "repeats itself",
    "no contradiction": "contradiction",
}
"""What a check is called that did not pass."""
REMARKS = {
    "nothing unasked changed": ("more changed", "warn"),
    "protected changed on purpose": ("protected word forced", "warn"),
}
"""What a check is called that passed with a remark, and its tone."""
NEAR = 4
"""Words beside a change that a small window shows too."""
EDITS_AT_ONCE = ((1, "1"), (2, "2"), (3, "3"), (0, "all"))


def counterfactuals_card(state: RunState) -> Html:
    """Stage 4."""
    stored = state.run.values.get("counterfactuals")
    value = stored.value.value if stored else CounterfactualCaptions(())
    source = state.caption
    parts: list[Child] = [_choices(state.settings.counterfactuals, value), combinations_part(state)]
    if value.items:
        parts.append(
            el("div", [_line(place, item, source, state) for place, item in enumerate(value.items)], class_="captions")
        )
    else:
        parts.append(muted(HINT))
    if source and "alternatives" in state.run.values:  # a value says what it was made from
        parts.append(_add(source))
    return stage_card("counterfactuals", state, parts)


def _choices(settings: CounterfactualSettings, value: CounterfactualCaptions) -> Html:
    fields = type(settings).model_fields
    chips = [
        toggle(
            words,
            "setting",
            settings.edits_at_once == number,
            data_setting="counterfactuals.edits_at_once",
            data_value=number,
        )
        for number, words in EDITS_AT_ONCE
    ]
    ticked = sum(item.used for item in value.items)
    count = setting_input("counterfactuals", "captions", fields["captions"], settings.captions, "captions-count")
    return el(
        "div",
        el(
            "span",
            el("span", "edits at once", class_="mut"),
            chips,
            class_="choice",
            title=fields["edits_at_once"].description,
        ),
        el("label", el("span", "captions at most", class_="mut"), count, class_="choice", for_="captions-count"),
        el("span", class_="grow"),
        el("span", f"{ticked} of {len(value.items)} ticked", class_="mut", id="ticked") if value.items else None,
        class_="choices rare",
    )


def _line(place: int, item: CounterfactualCaption, source: str, state: RunState) -> Html:
    pieces = word_diff(source, item.text)
    data: dict[str, Any] = {"data_place": place, "data_text": item.text}
    tick = el(
        "input",
        type="checkbox",
        checked=item.used,
        name="used",
        data_do="counterfactual-use",
        aria_label=f"Use caption {place + 1}",
        **data,
    )
    shown = el("p", differences(shortened(pieces), NEAR), class_="diff", title=item.text, data_edit=True)
    field = el(
        "textarea",
        item.text,
        rows=2,
        class_="in-place",
        name="new",
        data_do="counterfactual-write",
        maxlength=2000,
        spellcheck="false",
        aria_label=f"Counterfactual caption {place + 1}",
        data_draft=f"{state.run.id}:cf:{place}",
        **data,
    )
    pencil = edit_button(f"Edit caption {place + 1}", "Edit")
    checks = state.counterfactual_checks(item)
    # Made from another caption: what differs now says little, and the words for it would fill the page.
    shown_checks = () if "counterfactuals" in state.stale else checks
    said = tuple(check for check in shown_checks if check.note)
    notes = [el("p", icon("alert"), el("span", check.note), class_="note") for check in failed(tuple(shown_checks))]
    notes += [el("p", check.note, class_="note mild") for check in shown_checks if check.passed and check.note]
    return el(
        "div",
        tick,
        el("div", shown, field, _edits(item), class_="text"),
        el("div", _why(said), _findings(item, checks, source, state.run.task), class_="tags"),
        el("span", pencil, button("Drop", "delete-counterfactual", "s q", **data), class_="acts"),
        el("div", notes, class_="said") if notes else None,
        class_=f"line unfolds{'' if item.used else ' off'}",
        data_key=f"cf-{place}",
        data_place=place,
    )


def _edits(item: CounterfactualCaption) -> Html:
    """What was changed into what, one by one."""
    if not item.edits:
        return el("p", "written by you", class_="edits rare")
    return el(
        "p",
        [
            el("span", edit.keyword, " → ", el("b", edit.alternative), " ", el("small", edit.edit_type), class_="edit")
            for edit in item.edits
        ],
        class_="edits rare",
    )


def _why(said: tuple[Check, ...]) -> Child:
    """On a small screen what the checks say waits behind this: one word for one of them, else how many there are."""
    if not said:
        return None
    wrong = failed(said)
    if len(wrong) > 1:
        words = f"{len(wrong)} checks fail"
    elif wrong:
        words = FAILED.get(wrong[0].name, wrong[0].name)
    else:
        words = REMARKS.get(said[0].name, (said[0].name, ""))[0] if len(said) == 1 else f"{len(said)} remarks"
    return press(
        words,
        icon("unfold"),
        class_=f"unfold {'bad' if wrong else 'warn'}",
        data_more_of=True,
        aria_expanded="false",
        title=" ".join(check.note for check in said),
    )


def _findings(item: CounterfactualCaption, checks: tuple[Check, ...], source: str, task: Task) -> list[Html]:
    """A word for each check that says something; one for all that passed."""
    wrong = failed(checks)
    found = [pill([icon("cross"), FAILED.get(check.name, check.name)], "bad", title=check.note) for check in wrong]
    for check in checks:
        if check.passed and check.note:
            words, tone = REMARKS.get(check.name, (check.name, "warn"))
            found.append(pill(words, cast(Tone, tone), title=check.note))
    kept_names = ("label kept", "protected kept", "protected named as often", "nothing protected added")
    if not any(check.name in kept_names for check in wrong):
        found.insert(0, _kept(source, task))
    if item.edits and not wrong and not any(check.note for check in checks):
        found.append(pill([icon("check"), "nothing else changed"], "ok"))
    return found


def _kept(source: str, task: Task) -> Html:
    """All checks passed; but where the caption named nothing that is protected, that says nothing."""
    if not classes_in(source, task):
        return pill("nothing protected named", "warn", title="The caption does not name what the task protects.")
    return pill([icon("check"), "label kept" if task.kind == "classification" else "protected kept"], "ok")


def _add(source: str) -> Html:
    opener = button([icon("plus"), "write one yourself"], look="s q", data_edit=True)
    form = el(
        "span",
        el(
            "textarea",
            source,
            rows=3,
            name="new",
            aria_label="A counterfactual caption of your own",
            maxlength=2000,
            spellcheck="false",
        ),
        el("span", button("Add", "", "s p", data_submit=True), class_="acts"),
        class_="pop wide",
        data_form="counterfactual-add",
    )
    return el("div", opener, form, class_="add-caption", data_key="add-caption")
