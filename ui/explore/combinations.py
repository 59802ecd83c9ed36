"""The grid of stage 4: which alternatives of which keywords become captions, and the ways to choose them."""

from __future__ import annotations

import json

from core.settings import Combinations, CounterfactualSettings
from core.words import count_of
from services.runs.combinations import STAGE, Grid, grid_of, pairs_of
from services.runs.state import RunState
from ui.explore.forms import setting_input
from ui.markup import Html
from ui.templating import render


def combinations_part(state: RunState) -> Html | None:
    """How many there are and become captions, and behind it the grid; None before there are alternatives."""
    fresh = STAGE in state.run.values and STAGE not in state.stale
    grid = grid_of(state.run, state.settings, state.histories.get(STAGE, ()), fresh, state.prompts)
    if grid is None:
        return None
    settings = state.settings.counterfactuals
    whole = all(len(edits) == grid.at_once for edits in grid.planned)  # those of fewer edits are not counted in all
    number = f"{len(grid.planned)} of {grid.total}" if whole else f"{len(grid.planned)}"
    said = f"{number} combinations {'are' if fresh else 'become'} captions"
    if grid.problem:
        said = "Which become captions"
    elif grid.at_most:
        said = f"up to {count_of(grid.at_most, 'caption')}: the language model chooses"
    return render(
        "explore/combinations.html",
        grid=grid,
        said=said,
        ways=_ways(grid, settings),
        settings=settings,
        setting_input=setting_input,
        unasked=settings.combinations == "model" and not fresh and not grid.at_most,
        planned=set(grid.planned),
        others=[edits for edits in grid.planned if len(edits) != grid.at_once],
        pairs=lambda edits, plain: json.dumps(pairs_of(edits), ensure_ascii=plain),
    )


def _ways(grid: Grid, settings: CounterfactualSettings) -> list[tuple[Combinations, str, str]]:
    """The ways to choose, each with words and a hint."""
    number = min(settings.captions, grid.total)
    each = "One caption for each keyword" if grid.at_once == 1 else "One caption for each group of keywords"
    asked = "The language model says which edits go together, in one call more; each caption has as many as fit"
    ways: list[tuple[Combinations, str, str]] = [
        ("spread", f"{number} spread evenly", "As many as are asked for; keywords and alternatives get their turns"),
        ("all", f"all {grid.total}", "Every combination there is"),
        ("one of each", f"one of each: {grid.groups}", each),
        ("at random", f"{number} at random", "As many as are asked for; another try draws others"),
        ("model", f"up to {settings.captions}: the language model chooses", asked),
    ]
    if settings.chosen:
        ways.append(("chosen", f"chosen: {len(settings.chosen)}", "Those that were ticked one by one"))
    return ways
