"""The cards of stages 1 to 3: caption, keywords, alternatives."""

from __future__ import annotations

from typing import TypeVar

from core.types import Check, KeywordAlternatives, Keywords, StageName, Task, failed
from core.words import protected_spans, protected_words_in
from services.runs.life_cycle import task_problem
from services.runs.state import RunState
from ui.explore.forms import setting_input
from ui.explore.stage import stage_card
from ui.markup import Child, Html, el
from ui.templating import render

T = TypeVar("T")


def caption_card(state: RunState) -> Html:
    """Stage 1: a text, and which of its words the task protects."""
    wrong = failed(state.caption_checks()) if state.caption else ()
    marked = _marked(state.caption, state.run.task)
    return stage_card("caption", state, render("explore/caption.html", state=state, marked=marked, wrong=wrong))


def _marked(text: str, task: Task) -> list[Child]:
    """The text with a mark around every word that the task protects."""
    parts: list[Child] = []
    at = 0
    for start, end in protected_spans(text, task):
        parts += [text[at:start], el("mark", text[start:end])]
        at = end
    return [*parts, text[at:]]


def keywords_card(state: RunState) -> Html:
    """Stage 2: chips to tick, reword and drop, and one to add."""
    items = _value(state, "keywords", Keywords(())).items
    chips = [(item, _warning(failed(state.keyword_checks(item)))) for item in items]
    locked = protected_words_in(state.caption, state.run.task)
    return stage_card("keywords", state, render("explore/keywords.html", state=state, chips=chips, locked=locked))


def alternatives_card(state: RunState) -> Html:
    """Stage 3: a row for each keyword that is ticked, with chips."""
    value, own = state.alternatives, state.settings.alternatives
    rows = {item.keyword: item for item in value.items}
    for keyword in _value(state, "keywords", Keywords(())).items:
        if keyword.used and "keywords" not in state.stale:
            rows.setdefault(keyword.text, KeywordAlternatives(keyword.text, keyword.edit_type, (), keyword.forced))
    shown = render(
        "explore/alternatives.html",
        state=state,
        rows=list(rows.values()),
        asked=bool(value.items),
        field=type(own).model_fields["too_close"],
        close=sum(option.is_close(own.too_close) for item in value.items for option in item.options),
        shut=state.active or task_problem(state.run.task) != "",
        warning_of=lambda item, option: _warning(failed(state.alternative_checks(item, option))),
        setting_input=setting_input,
    )
    return stage_card("alternatives", state, shown)


def _warning(wrong: tuple[Check, ...]) -> str:
    return wrong[0].note if wrong else ""


def _value(state: RunState, stage: StageName, empty: T) -> T:
    stored = state.run.values.get(stage)
    return stored.value.value if stored else empty
