"""The window of a plan that fills a cell of a coverage table, to be confirmed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.catalogue import GRIDS
from services.curation.coverage import facets_of
from services.curation.plans import MOST_SOURCES, CellCommand, CellPlan
from ui.markup import Html
from ui.templating import render

_NONE: Mapping[str, str] = {
    "class": "no class",
    "edit type": "no edit",
    "weather": "as it was",
    "time of day": "as it was",
}
"""Names of a missing value of a facet."""
PLURALS: Mapping[str, str] = {
    "class": "classes",
    "edit type": "edit types",
    "weather": "weathers",
    "time of day": "times of day",
}


def name_of(value: str, facet: str) -> str:
    """Return the title of a line or a column of a coverage table."""
    return value or _NONE.get(facet, f"no {facet}")


def plan_part(command: CellCommand, plan: CellPlan) -> Html:
    """Return the window that shows what a plan would begin."""
    line, place = facets_of(command.grid)
    edits = (("the weather", command.line), ("the time of day", command.place))
    return render(
        "curate/plan.html",
        command=command,
        plan=plan,
        grids=GRIDS,
        name=f"{name_of(command.line, line)} × {name_of(command.place, place)}",
        most=min(MOST_SOURCES, plan.available),
        changes=" and ".join(f"{what} becomes “{words}”" for what, words in edits if words),
    )
