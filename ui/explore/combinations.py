"""The grid of stage 4: which alternatives of which keywords become captions, and the ways to choose them."""

from __future__ import annotations

import json

from core.settings import Combinations, CounterfactualSettings
from core.types import Edit
from core.words import count_of
from services.runs.combinations import STAGE, Grid, grid_of, pairs_of
from services.runs.state import RunState
from ui.explore.forms import setting_input
from ui.explore.parts import named_row, small, toggle
from ui.markup import Child, Html, el

NOT_ASKED = (
    "The prompts of this profile do not ask the language model for it, so they would be spread evenly: write a prompt "
    "for it under “Prompt and reply”, or take another way."
)
"""What is said before the captions are written where the language model is to choose and cannot be asked."""


def combinations_part(state: RunState) -> Html | None:
    """How many there are and become captions, and behind it the grid; None before there are alternatives."""
    fresh = STAGE in state.run.values and STAGE not in state.stale
    grid = grid_of(state.run, state.settings, state.histories.get(STAGE, ()), fresh, state.prompts)
    if grid is None:
        return None
    settings = state.settings.counterfactuals
    planned = len(grid.planned)
    does = "are" if fresh else "become"
    whole = all(len(edits) == grid.at_once for edits in grid.planned)  # those of fewer edits are not counted in all
    said = f"{planned}{f' of {grid.total}' if whole else ''} combinations {does} captions"
    if grid.problem:
        said = "Which become captions"
    elif grid.at_most:
        said = f"up to {count_of(grid.at_most, 'caption')}: the language model chooses"
    parts: list[Child] = [_ways(grid, settings)]
    if grid.problem:
        parts.append(el("p", grid.problem, class_="note"))
    if settings.combinations == "model" and not fresh and not grid.at_most:
        parts.append(el("p", NOT_ASKED, class_="note"))
    table = _by_keyword(grid) if grid.at_once == 1 else _by_caption(grid, grid.listed)
    others = tuple(edits for edits in grid.planned if len(edits) != grid.at_once)
    parts.append(el("div", table, class_="scroll"))
    if grid.at_once == 1 and others:
        parts.append(el("div", _by_caption(grid, others), class_="scroll"))
    if len(grid.listed) < grid.total:
        parts.append(small(f"{len(grid.listed)} of {grid.total} are listed."))
    return el("details", el("summary", said, id="combinations-said"), parts, class_="combinations", id="combinations")


def _ways(grid: Grid, settings: CounterfactualSettings) -> Html:
    number = min(settings.captions, grid.total)
    each = "One caption for each keyword" if grid.at_once == 1 else "One caption for each group of keywords"
    ways: list[tuple[Combinations, str, str]] = [
        ("spread", f"{number} spread evenly", "As many as are asked for; keywords and alternatives get their turns"),
        ("all", f"all {grid.total}", "Every combination there is"),
        ("one of each", f"one of each: {grid.groups}", each),
        ("at random", f"{number} at random", "As many as are asked for; another try draws others"),
    ]
    asked = "The language model says which edits go together, in one call more; each caption has as many as fit"
    ways.append(("model", f"up to {settings.captions}: the language model chooses", asked))
    if settings.chosen:
        ways.append(("chosen", f"chosen: {len(settings.chosen)}", "Those that were ticked one by one"))
    chips = [
        toggle(
            words,
            "combinations",
            settings.combinations == how,
            data_how=how,
            title=title,
            data_key=f"combinations-{how.replace(' ', '-')}",
        )
        for how, words, title in ways
    ]
    field = type(settings).model_fields["captions"]
    count = setting_input(STAGE, "captions", field, settings.captions, "combinations-count")
    many = el("label", el("span", "how many", class_="mut"), count, class_="many", for_="combinations-count")
    label = "Which combinations become captions"
    return el("div", chips, many, class_="ways", role="group", aria_label=label)


def _by_keyword(grid: Grid) -> Html:
    """With one edit a caption, each cell is a caption: a keyword a row."""
    planned = set(grid.planned)
    rows = [
        named_row(
            pool[0].keyword,
            [el("td", _tick((edit,), (edit,) in planned, edit.alternative)) for edit in pool],
            data_key=f"row-{pool[0].keyword}",
        )
        for pool in grid.pools
    ]
    return el("table", el("tbody", rows), class_="grid")


def _by_caption(grid: Grid, listed: tuple[tuple[Edit, ...], ...]) -> Html:
    """With several, a caption a row and a keyword a column."""
    keywords, planned = [pool[0].keyword for pool in grid.pools], set(grid.planned)
    head = el("tr", el("th", class_="tick"), [el("th", keyword, scope="col") for keyword in keywords])
    rows = []
    for edits in listed:
        said = {edit.keyword: edit.alternative for edit in edits}
        cells = [el("td", said.get(keyword, "·"), class_="" if keyword in said else "mut") for keyword in keywords]
        key = json.dumps(pairs_of(edits))
        rows.append(el("tr", el("td", _tick(edits, edits in planned, ""), class_="tick"), cells, data_key=key))
    return el("table", el("thead", head), el("tbody", rows), class_="grid")


def _tick(edits: tuple[Edit, ...], on: bool, words: str) -> Html:
    changed = ", ".join(f"{edit.keyword} becomes {edit.alternative}" for edit in edits)
    box = el(
        "input",
        type="checkbox",
        checked=on,
        name="used",
        data_do="combination-use",
        data_edits=json.dumps(pairs_of(edits), ensure_ascii=False),
        aria_label=changed,
    )
    return el("label", box, words or None, class_=f"cell{' on' if on else ''}")
