"""The cards of stages 1 to 3: caption, keywords, alternatives."""

from __future__ import annotations

from typing import TypeVar

from core.types import (
    Alternative,
    Alternatives,
    EditType,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageName,
    Task,
    failed,
)
from core.words import protected_spans, protected_words_in
from services.runs.life_cycle import task_problem
from services.runs.state import RunState
from ui.explore.forms import setting_input
from ui.explore.parts import button, edit_button, icon, muted, press, problem, select_type
from ui.explore.stage import stage_card
from ui.markup import Child, Html, el

T = TypeVar("T")

HINTS = {
    "caption": "What the picture shows, in several sentences. Everything later starts from it.",
    "keywords": "The words of the caption that may change: weather, colour, time of day. What the task protects stays.",
    "alternatives": "What each keyword that is ticked may become.",
}


def caption_card(state: RunState) -> Html:
    """Stage 1: a text, and which of its words the task protects."""
    text = state.caption
    field = el(
        "textarea",
        text,
        id="caption-text",
        name="text",
        data_do="caption",
        data_draft=f"{state.run.id}:caption",
        rows=2,
        placeholder="Run this stage, or write what the picture shows.",
        aria_label="Caption",
        maxlength=2000,
        spellcheck="false",
    )
    # The marks lie behind the field, letter under letter.
    marks = el("div", _marked(text, state.run.task), class_="behind", aria_hidden="true")
    unsaved = el("small", "Not saved yet: Enter saves, Escape takes it back.", class_="unsaved")
    parts: list[Child] = [el("div", field, marks, unsaved, class_="caption-box")]
    if not text:
        parts.append(muted(HINTS["caption"]))
    elif protected_spans(text, state.run.task):
        task = el("b", state.run.task.describe())
        parts.append(el("p", "Underlined words are protected by the task ", task, ".", class_="mut small rare"))
    if text:
        parts += [problem(check.note) for check in failed(state.caption_checks())]
    return stage_card("caption", state, parts)


def _marked(text: str, task: Task) -> Child:
    """The text with a mark around every word that the task protects."""
    parts: list[Child] = []
    at = 0
    for start, end in protected_spans(text, task):
        parts += [text[at:start], el("mark", text[start:end])]
        at = end
    return [*parts, text[at:]]


def keywords_card(state: RunState) -> Html:
    """Stage 2: chips to tick, reword and drop, and one to add."""
    value = _value(state, "keywords", Keywords(()))
    caption, task = state.caption, state.run.task
    chips: list[Child] = [_keyword_chip(item, state) for item in value.items]
    if caption:
        chips.append(_add("keyword-add", "a word of the caption", {}, with_type=True, key="add-keyword"))
    locked = protected_words_in(caption, task)
    if locked:
        words = [el("span", word, class_="chip lock", data_key=f"lock-{word}") for word in locked]
        chips.append(el("span", icon("lock"), "protected", words, class_="locked rare"))
    hint = None if value.items else muted(HINTS["keywords"])
    return stage_card("keywords", state, [hint, el("div", chips, class_="chips")])


def _keyword_chip(item: Keyword, state: RunState) -> Html:
    wrong = failed(state.keyword_checks(item))
    editor = _editor(
        [
            el("input", type="text", name="new", value=item.text, aria_label="Words of the caption", maxlength=200),
            select_type(item.edit_type),
        ],
        "keyword-reword",
        "delete-keyword",
        {"data_text": item.text},
    )
    marks: list[Child] = []
    if item.forced:
        said = f"The task protects “{item.text}”; you insisted on changing it."
        marks.append(el("span", icon("lock"), "forced", class_="forced", title=said))
    warning = wrong[0].note if wrong else ""
    return _chip("keyword-use", item.text, item.edit_type, item.used, warning, editor, {}, marks)


def alternatives_card(state: RunState) -> Html:
    """Stage 3: a row for each keyword that is ticked, with chips."""
    value = state.alternatives
    rows = {item.keyword: item for item in value.items}
    for keyword in _value(state, "keywords", Keywords(())).items:
        if keyword.used and "keywords" not in state.stale:
            rows.setdefault(keyword.text, KeywordAlternatives(keyword.text, keyword.edit_type, (), keyword.forced))
    if not rows:
        return stage_card("alternatives", state, muted(HINTS["alternatives"]))
    lines = [_row(item, state) for item in rows.values()]
    head = muted(HINTS["alternatives"]) if not value.items else _threshold(state, value)
    return stage_card("alternatives", state, [head, el("div", lines, class_="rows")])


def _threshold(state: RunState, value: Alternatives) -> Html:
    """From where on an alternative is flagged, to be moved, and how many are."""
    own = state.settings.alternatives
    field = type(own).model_fields["too_close"]
    close = sum(option.is_close(own.too_close) for item in value.items for option in item.options)
    flagged = f"{close} flagged" if close else "none flagged"
    return el(
        "label",
        el("span", "too close from", class_="mut"),
        setting_input("alternatives", "too_close", field, own.too_close, "too-close"),
        el("span", flagged, class_="pill warn" if close else "pill", id="flagged"),
        el("small", "0: any two of a kind, 1: the same; rare words slip through", class_="mut"),
        class_="choice threshold rare",
        for_="too-close",
        title=f"{field.description}. Rare words, such as scarlet for a red, are not known to come close.",
    )


def _row(item: KeywordAlternatives, state: RunState) -> Html:
    of = {"data_keyword": item.keyword}
    chips: list[Child] = [_alternative_chip(item, option, state) for option in item.options]
    chips.append(_add("alternative-add", f"instead of “{item.keyword}”", of, False, f"add-{item.keyword}"))
    more = button(
        [icon("ask"), el("span", "ask for more", class_="word")],
        "alternative-more",
        "s q ask",
        disabled=state.active or bool(task_problem(state.run.task)),
        title=f"Ask the language model for more instead of “{item.keyword}”; those that are there stay",
        **of,
    )
    chips.append(more)
    forced = el("span", icon("lock"), "forced", class_="forced") if item.forced else None
    head = el("div", el("b", item.keyword), el("small", item.edit_type, class_="rare"), forced, class_="row-head")
    return el("div", head, el("div", chips, class_="chips"), class_="row-line", data_key=f"row-{item.keyword}")


def _alternative_chip(item: KeywordAlternatives, option: Alternative, state: RunState) -> Html:
    wrong = failed(state.alternative_checks(item, option))
    editor = _editor(
        [el("input", type="text", name="new", value=option.text, aria_label="Alternative", maxlength=200)],
        "alternative-reword",
        "delete-alternative",
        {"data_text": option.text, "data_keyword": item.keyword},
    )
    marks: list[Child] = []
    if option.is_close(state.settings.alternatives.too_close):
        said = f"{option.similarity:.2f} like “{option.like}”"
        marks.append(el("span", said, class_="like", title=f"Too close: {said}, where 1 means the same."))
    of = {"data_keyword": item.keyword}
    warning = wrong[0].note if wrong else ""
    return _chip("alternative-use", option.text, "", option.used, warning, editor, of, marks)


def _chip(
    do: str,
    text: str,
    kind: EditType | str,
    used: bool,
    warning: str,
    editor: Html,
    data: dict[str, str],
    marks: list[Child],
) -> Html:
    toggle = button(
        [icon("check") if used else None, text, el("small", kind) if kind else None, marks],
        do,
        "toggle",
        data_text=text,
        data_used="false" if used else "true",
        aria_pressed="true" if used else "false",
        **data,
    )
    pencil = edit_button(f"Reword or drop {text}", "Reword or drop")
    mark = (
        el("span", icon("alert"), class_="warning", title=warning, role="img", aria_label=warning) if warning else None
    )
    looks = f"chip{' on' if used else ''}{' odd' if warning or marks else ''}"
    return el(
        "span", toggle, mark, pencil, editor, class_=looks, data_key=f"chip-{data.get('data_keyword', '')}-{text}"
    )


def _editor(fields: list[Child], save: str, drop: str, data: dict[str, str]) -> Html:
    acts = el("span", button("Save", "", "s p", data_submit=True), button("Drop", drop, "s", **data), class_="acts")
    return el("span", fields, acts, class_="pop", data_form=save, **data)


def _add(do: str, placeholder: str, data: dict[str, str], with_type: bool, key: str) -> Html:
    fields: list[Child] = [
        el(
            "input",
            type="text",
            name="new",
            placeholder=placeholder,
            aria_label=placeholder,
            maxlength=200,
            data_fresh=True,
        )
    ]
    if with_type:
        fields.append(select_type("attribute", data_fresh=True))
    form = el("span", fields, button("Add", "", "s p", data_submit=True), class_="pop", data_form=do, **data)
    word = el("span", "add", class_="word")
    opener = press(icon("plus"), word, class_="toggle", data_edit=True, title=placeholder)
    return el("span", opener, form, class_="chip add", data_key=key)


def _value(state: RunState, stage: StageName, empty: T) -> T:
    stored = state.run.values.get(stage)
    return stored.value.value if stored else empty
