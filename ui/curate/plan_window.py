"""The window of a plan that fills a cell of a coverage table: what it would begin, for a yes or no. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.catalogue import GRIDS
from core.words import count_of
from services.curation.coverage import facets_of
from services.curation.plans import MOST_SOURCES, CellCommand, CellPlan, PlannedSource
from ui.explore.parts import acts, button, muted, seconds, thumb_url
from ui.markup import Html, el

_NONE: Mapping[str, str] = {
    "class": "no class",
    "edit type": "no edit",
    "weather": "as it was",
    "time of day": "as it was",
}
"""The names of what has no value of a facet."""
PLURALS: Mapping[str, str] = {
    "class": "classes",
    "edit type": "edit types",
    "weather": "weathers",
    "time of day": "times of day",
}


def name_of(value: str, facet: str) -> str:
    """What a line or a place of a coverage table is called."""
    return value or _NONE.get(facet, f"no {facet}")


def plan_part(command: CellCommand, plan: CellPlan) -> Html:
    """What a plan would begin, for a yes or no."""
    number = len(plan.sources)
    line, place = facets_of(command.grid)
    name = f"{name_of(command.line, line)} × {name_of(command.place, place)}"
    return el(
        "div",
        el("h2", "Make more: ", name, id="plan-title"),
        muted(_begins(number)),
        _how_many(command, plan),
        el("ul", [_source(one) for one in plan.sources], class_="plan-sources"),
        el("h3", "What they make"),
        el("ul", [el("li", words) for words in _makes(command, plan)], class_="plan-words"),
        el("p", "", class_="wrong", id="plan-problem", role="alert"),
        acts(
            button("Not now", "", "q", id="plan-no"), button(["Begin ", count_of(number, "run")], "", "p", id="plan-go")
        ),
        id="plan",
        data_line=command.line,
        data_place=command.place,
    )


def _begins(number: int) -> str:
    from_these = "this picture" if number == 1 else f"each of these {number} pictures"
    return (
        f"A new run begins from {from_these}, with the task, the recipe and the settings of its latest run. They have "
        "the fewest images of this cell."
    )


def _how_many(command: CellCommand, plan: CellPlan) -> Html:
    most = min(MOST_SOURCES, plan.available)
    there = f"{count_of(plan.available, 'picture')} could be taken"
    return el(
        "label",
        el("span", "Pictures"),
        el(
            "input",
            type="number",
            id="plan-sources",
            min=1,
            max=most,
            value=min(command.sources, most),
            class_="number",
        ),
        el("small", there, class_="mut"),
        class_="plan-number",
    )


def _source(one: PlannedSource) -> Html:
    has = count_of(one.images, "image") if one.images else "no image yet"
    waits = f", {count_of(one.waiting, 'run', 'waits')} already" if one.waiting else ""
    return el(
        "li",
        el("img", src=thumb_url(one.source_sha), alt="", width=56, height=56, loading="lazy"),
        el("span", el("b", one.name), el("small", f"{has}{waits}", class_="mut")),
    )


def _makes(command: CellCommand, plan: CellPlan) -> list[str]:
    if command.grid == GRIDS[0]:
        said = [
            f"Only keywords of the edit type “{command.place}” are ticked: the setting “edit types” of the stage "
            "Keywords says so, and you can change it. A picture whose caption has none makes no image."
        ]
    else:
        wanted = [
            f"{what} becomes “{words}”"
            for what, words in (("the weather", command.line), ("the time of day", command.place))
            if words
        ]
        said = [f"In the caption {' and '.join(wanted)}, and nothing else changes: the edits are set as yours."]
    said.append("Captions that you have corrected stay. Seeds are new ones, so no image is drawn a second time.")
    if plan.images is None:
        said.append("How many images that is, and how long they take, is told once the captions are there.")
    else:
        takes = f": about {seconds(plan.seconds)} of drawing" if plan.seconds is not None else ""
        said.append(f"At most {count_of(plan.images, 'image')}{takes}.")
    said.append("Nothing is drawn yet. Explore shows these runs together: run their stages, look, and say yes there.")
    return said
