"""The cards of a recipe's text stages. The stages in `CARDS` have a card of their own, all others a general one. On
some cards a person paints a region over the source image; `assets/brush.js` is the brush.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from core.data_files import DataTable
from core.regions import WHOLE
from core.settings import SubjectSettings
from core.types import (
    Check,
    CounterfactualCaption,
    CounterfactualCaptions,
    Keyword,
    KeywordAlternatives,
    StageName,
    Task,
    failed,
    to_text,
)
from core.words import classes_in, protected_spans, protected_words_in
from services.runs.combinations import STAGE, grid_of, pairs_of
from services.runs.life_cycle import task_problem
from services.runs.state import RunState
from ui.diff import shortened, word_diff
from ui.explore.stage import stage_card
from ui.markup import Child, Html, el
from ui.templating import render

FAILED = DataTable(__file__, str, "failed")
"""Short text to show if a check failed, by the check's name."""
REMARKS = DataTable(__file__, tuple[str, str], "remarks")
"""Short text and colour to show if a check passed with a remark, by the check's name."""
NEAR = 4
"""Number of unchanged words around a change that a small window shows."""
EDITS_AT_ONCE = ((1, "1"), (2, "2"), (3, "3"), (0, "all"))
Finding = tuple[str, str, str, str]
"""A finding about a caption: icon, text, colour and hint. Each may be ""."""
NOTHING_NAMED: Finding = ("", "nothing protected named", "warn", "The caption does not name what the task protects.")
KEPT_CHECKS = {"label kept", "protected kept", "protected named as often", "nothing protected added"}


def counterfactuals_card(state: RunState) -> Html:
    """Return the card of stage 4: the counterfactual captions, and the grid of combinations."""
    stored = state.run.values.get("counterfactuals")
    value = stored.value.value if stored else CounterfactualCaptions(())
    stage, source = state.recipe.stage("counterfactuals"), state.caption
    settings = getattr(state.settings, stage.settings)
    # Stale captions were made from earlier values, so their remarks say little and would fill the page.
    stale = "counterfactuals" in state.stale
    lines = []
    for item in value.items:
        checks = state.counterfactual_checks(item)
        remarks = tuple(check for check in checks if check.note and not stale)
        pieces, findings = shortened(word_diff(source, item.text)), _findings(item, checks, source, state.run.task)
        lines.append((item, pieces, findings, remarks, failed(remarks)))
    body = render(
        "explore/counterfactuals.html",
        state=state,
        section=stage.settings,
        settings=settings,
        fields=type(settings).model_fields,
        edits_at_once=EDITS_AT_ONCE,
        combinations=combinations_part(state),
        lines=lines,
        ticked=sum(item.used for item in value.items),
        source=source,
        # A value records the values that it was made from, so these must exist.
        can_add=all(read in state.run.values for read in stage.reads),
        near=NEAR,
        failed=FAILED,
        remarks=REMARKS,
    )
    return stage_card("counterfactuals", state, body)


def _findings(item: CounterfactualCaption, checks: tuple[Check, ...], source: str, task: Task) -> list[Finding]:
    """Return the findings on a caption: whether the protected words are kept, each failed check, each remark, and
    whether nothing else changed.
    """
    wrong, findings = failed(checks), []
    if source and item.text and not any(check.name in KEPT_CHECKS for check in wrong):
        words = "label kept" if task.kind == "classification" else "protected kept"
        # If the caption names nothing protected, it passes these checks without a meaning.
        findings.append(("check", words, "ok", "") if classes_in(source, task) else NOTHING_NAMED)
    findings += [("cross", FAILED.get(check.name, check.name), "bad", check.note) for check in wrong]
    for check in checks:
        if check.passed and check.note:
            findings.append(("", *REMARKS.get(check.name, (check.name, "warn")), check.note))
    if item.edits and not wrong and not any(check.note for check in checks):
        findings.append(("check", "nothing else changed", "ok", ""))
    return findings


def combinations_part(state: RunState) -> Html | None:
    """Return how many combinations of edits become captions, and their grid; None if there are no alternatives."""
    fresh = STAGE in state.run.values and STAGE not in state.stale
    grid = grid_of(state.run, state.settings, state.histories.get(STAGE, ()), fresh, state.prompts)
    if grid is None:
        return None
    settings = state.settings.counterfactuals
    return render(
        "explore/combinations.html",
        grid=grid,
        fresh=fresh,
        settings=settings,
        unasked=settings.combinations == "model" and not fresh and not grid.at_most,
        planned=set(grid.planned),
        others=[edits for edits in grid.planned if len(edits) != grid.at_once],
        pairs=lambda edits, plain: json.dumps(pairs_of(edits), ensure_ascii=plain),
    )


def general_card(name: StageName, state: RunState) -> Html:
    """Return the general card of a stage: its value as text that a person may edit."""
    stage, stored = state.recipe.stage(name), state.run.values.get(name)
    text = to_text(stored.value.value) if stored is not None else ""
    values = {read: stored_value.value.value for read, stored_value in state.run.values.items()}
    remarks = stage.remarks(stored.value.value, values, state.run.task) if stored is not None else []
    shown = render("explore/value.html", state=state, stage=stage, text=text, remarks=remarks)
    return stage_card(name, state, shown)


def subject_card(state: RunState) -> Html:
    """Return the card that marks the subject. A person paints it, or gives points or a box to find it."""
    points = getattr(state.settings, "subject", SubjectSettings()).points
    return brush_card("subject", state, "is the subject", points)


def brush_card(name: StageName, state: RunState, words: str, points: str | None = None) -> Html:
    """Return the card of a stage whose value is a `Region`. `words` describe the painted part, such as "may change".
    If the region is the subject, `points` is the setting that lists points to find the subject; without paint, no
    subject is marked. If the region has another use, `points` is None; without paint, the region is the whole picture.
    """
    stored, undone = state.run.values.get(name), state.steps.next_redo
    shown = render(
        "explore/brush.html",
        name=name,
        state=state,
        title=state.recipe.stage(name).title,
        region=stored.value.value if stored is not None else WHOLE,
        words=words,
        points=points,
        can_redo=undone is not None and undone.stages == (name,),
    )
    return stage_card(name, state, shown)


def caption_card(state: RunState) -> Html:
    """Return the card of stage 1: the caption, with the words that the task protects."""
    wrong = failed(state.caption_checks()) if state.caption else ()
    marked = _marked(state.caption, state.run.task)
    return stage_card("caption", state, render("explore/caption.html", state=state, marked=marked, wrong=wrong))


def _marked(text: str, task: Task) -> list[Child]:
    """Return the text with a mark around all words that the task protects."""
    parts: list[Child] = []
    at = 0
    for start, end in protected_spans(text, task):
        parts += [text[at:start], el("mark", text[start:end])]
        at = end
    return [*parts, text[at:]]


def keywords_card(state: RunState) -> Html:
    """Return the card of stage 2: keywords to tick, reword or remove, and a field to add one."""
    chips = [(item, _warning(failed(state.keyword_checks(item)))) for item in _keywords(state)]
    locked = protected_words_in(state.caption, state.run.task)
    return stage_card("keywords", state, render("explore/keywords.html", state=state, chips=chips, locked=locked))


def alternatives_card(state: RunState) -> Html:
    """Return the card of stage 3: a row of chips for each ticked keyword."""
    value, settings = state.alternatives, state.settings.alternatives
    rows = {item.keyword: item for item in value.items}
    for keyword in _keywords(state):
        if keyword.used and "keywords" not in state.stale:
            rows.setdefault(keyword.text, KeywordAlternatives(keyword.text, keyword.edit_type, (), keyword.forced))
    shown = render(
        "explore/alternatives.html",
        state=state,
        rows=list(rows.values()),
        asked=bool(value.items),
        field=type(settings).model_fields["too_close"],
        close=sum(option.is_close(settings.too_close) for item in value.items for option in item.options),
        shut=state.active or task_problem(state.run.task) != "",
        warning_of=lambda item, option: _warning(failed(state.alternative_checks(item, option))),
    )
    return stage_card("alternatives", state, shown)


def _warning(wrong: tuple[Check, ...]) -> str:
    return wrong[0].note if wrong else ""


def _keywords(state: RunState) -> tuple[Keyword, ...]:
    stored = state.run.values.get("keywords")
    return stored.value.value.items if stored else ()


CARDS: Mapping[StageName, Callable[[RunState], Html]] = {
    "caption": caption_card,
    "keywords": keywords_card,
    "alternatives": alternatives_card,
    "counterfactuals": counterfactuals_card,
    "region": lambda state: brush_card("region", state, "may change"),
    "subject": subject_card,
}


def card_of(name: StageName, state: RunState) -> Html:
    """Return the card of a text stage of the run's recipe."""
    card = CARDS.get(name)
    return card(state) if card is not None else general_card(name, state)
