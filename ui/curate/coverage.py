"""The page at /curate/coverage: images by cell, what is missing, and a plan for more. The address holds all choices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from core.catalogue import GRIDS, CoverageGrid
from core.figures import Proportion
from core.image_filter import ImageFilter
from core.types import EDIT_TYPES
from core.words import count_of
from services.commands import Commands
from services.curation.coverage import (
    CoverageTable,
    Figures,
    Gap,
    Head,
    cell_filter,
    figures_of,
    gaps,
    sorted_lines,
)
from services.curation.gallery import Gallery
from services.curation.plans import BegunPlan, DescribeCellPlan, PlanCell
from services.curation.views import View, gallery_address
from ui.curate.frame import curate_page
from ui.curate.plan_window import PLURALS, name_of, plan_part
from ui.curate.requests import add_command
from ui.explore.parts import button, here_link, muted, press, short_model, text_line
from ui.frame import signed_in
from ui.markup import Child, Html, el
from ui.replies import FRESH

By = Literal["images", "accepted", "wrong"]
BYS: tuple[By, ...] = get_args(By)
"""What colours the cells."""
FEW = 5
"""A share of fewer images than this is told as "3 of 4"."""
LEVELS, UNSURE_LEVEL = 5, 2
"""Strengths of a colour, beside none; and the strongest of a share of few images."""
LONGEST_FIND = 200
_PAGE = "/curate/coverage"
_BY_NAME = "name"
"""The order of lines by their names; else it is that of a column, by its value, or "" by how many images there are."""
_BY_WORDS: Mapping[By, str] = {"images": "images", "accepted": "accepted", "wrong": "newly wrong"}
# There may be thousands of these, so they are the same for all: the script says which cell is meant when it is entered.
_MORE = press("+", data_plan=True, title="Make more")
_EMPTY = el("td", press("none", data_plan=True), class_="gone")
_NOTHING = el("td", el("span", "–", class_="mut"), class_="gone")


@dataclass(frozen=True)
class Look:
    """What is chosen on the page."""

    grid: CoverageGrid = GRIDS[0]
    by: By = "images"
    model: str = ""
    """The model under test; "" for the first."""
    find: str = ""
    sort: str = ""
    rising: bool = False

    @staticmethod
    def of(query: Mapping[str, str]) -> Look:
        """What an address says; what means nothing counts as not said, since nothing is left out by it."""
        by: Any = query.get("by", "")
        return Look(
            grid=GRIDS[1] if query.get("table") == "weather" else GRIDS[0],
            by=by if by in BYS else "images",
            model=query.get("model", ""),
            find=" ".join(query.get("find", "").split())[:LONGEST_FIND],
            sort=query.get("sort", ""),
            rising="rising" in query,
        )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """What `of` reads, without what is as it is anyway."""
        said = [
            ("table", "weather" if self.grid == GRIDS[1] else ""),
            ("by", "" if self.by == "images" else self.by),
            ("model", self.model),
            ("find", self.find),
            ("sort", self.sort),
            ("rising", "1" if self.rising else ""),
        ]
        return [(name, value) for name, value in said if value]

    @property
    def address(self) -> str:
        """Where the page shows it."""
        return f"{_PAGE}?{urlencode(self.pairs)}" if self.pairs else _PAGE


def add_coverage(app: FastAPI, commands: Commands, gallery: Gallery) -> None:
    """Add the page and what it sends."""

    @app.get(_PAGE, include_in_schema=False)
    def page(request: Request) -> Response:
        look = Look.of(request.query_params)
        table = gallery.coverage(look.grid, look.find)
        return HTMLResponse(coverage_page(look, table, signed_in(request)), headers=FRESH)

    add_command(
        app, commands, DescribeCellPlan.name, lambda command, plan: {"parts": {"plan": plan_part(command, plan)}}
    )
    add_command(app, commands, PlanCell.name, _begun)


def _begun(command: PlanCell, begun: BegunPlan) -> dict[str, Any]:
    """Explore shows the runs together, where somebody runs their stages and says yes."""
    return {"go": f"/?{urlencode([('run', ''), ('picked', ','.join(begun.runs))])}", "runs": list(begun.runs)}


def coverage_page(look: Look, table: CoverageTable, signed: bool = False) -> str:
    """The page as a document."""
    model = look.model if look.model in table.models else next(iter(table.models), "")
    content: Child
    if not table.images:
        content = el(
            "div",
            el("p", "There are no images yet, so nothing is covered."),
            muted("Images come from ", el("a", "Explore", href="/"), ", a run at a time."),
            class_="empty",
        )
    else:
        content = (_gaps(look, gaps(table)), _table(look, table, model), _notes(table, model))
    return curate_page(
        "Coverage",
        "coverage",
        _toolbar(look, table, model),
        content,
        el("dialog", el("div", id="plan"), id="plan-dialog", class_="card", aria_labelledby="plan-title"),
        status=el("span", count_of(table.images, "image"), class_="pill"),
        signed_in=signed,
        sheets=("curate-coverage.css",),
        scripts=("curate-coverage.js",),
    )


# What is chosen


def _toolbar(look: Look, table: CoverageTable, model: str) -> Html:
    grids = [
        _choice(words, replace(look, grid=grid, sort="", find=""), look.grid == grid)
        for words, grid in (("Class × edit type", GRIDS[0]), ("Weather × time of day", GRIDS[1]))
    ]
    bys = [_choice(_BY_WORDS[by], replace(look, by=by), look.by == by) for by in BYS]
    keep = [el("input", type="hidden", name=name, value=value) for name, value in replace(look, find="").pairs]
    what = table.facets[0]
    find = el(
        "form",
        keep,
        text_line(
            name="find",
            id="find-line",
            value=look.find,
            placeholder=f"find a {what}",
            aria_label=f"Find a {what}",
            maxlength=LONGEST_FIND,
        ),
        action=_PAGE,
        role="search",
    )
    return el(
        "div",
        el("nav", grids, class_="switch", aria_label="Table"),
        el("span", "coloured by", class_="mut small"),
        el("nav", bys, class_="switch", aria_label="Colour"),
        _models(look, table, model),
        el("span", class_="grow"),
        find,
        class_="toolbar",
    )


def _choice(words: str, then: Look, on: bool) -> Html:
    return here_link(words, then.address, on)


def _models(look: Look, table: CoverageTable, model: str) -> Html | None:
    if len(table.models) < 2:
        return el("span", short_model(model, {}), class_="mut small", title="The model under test") if model else None
    keep = [el("input", type="hidden", name=name, value=value) for name, value in replace(look, model="").pairs]
    options = [el("option", short_model(name, {}), value=name, selected=name == model) for name in table.models]
    return el(
        "form",
        keep,
        el("select", options, name="model", id="model", aria_label="Model under test"),
        el("button", "Show", type="submit", class_="btn s"),
        action=_PAGE,
    )


# What is missing


def _gaps(look: Look, found: tuple[Gap, ...]) -> Html | None:
    if not found:
        return None
    return el(
        "details",
        el("summary", el("h2", "What is missing"), el("span", _gap_words(found), class_="mut small")),
        el("ol", [_gap(look, gap) for gap in found], class_="gaps"),
        class_="card part missing-part",
        open=True,
        data_keep="missing",
    )


def _gap_words(found: tuple[Gap, ...]) -> str:
    without = sum(gap.lacks == "images" for gap in found)
    kinds = ((without, "no image"), (len(found) - without, "none that was accepted"))
    said = [f"{number} {'has' if number == 1 else 'have'} {words}" for number, words in kinds if number]
    return f"Of these cells {', '.join(said)}. Those where one would expect most stand first."


def _gap(look: Look, gap: Gap) -> Html:
    line, place = gap.line.value, gap.place.value
    if gap.cell is None:
        words: Child = "no image"
        see = None
    else:
        number = gap.cell.entries
        open_ones = gap.cell.reviews.get("open", 0)
        words = f"none accepted of {number:,}" + (f", {open_ones:,} open" if open_ones else "")
        see = el("a", f"See {number:,}", href=_images_of(look, line, place), class_="btn s")
    more = button("Make some" if gap.cell is None else "Make more", "", "s", data_line=line, data_place=place)
    return el(
        "li",
        el("b", line, " × ", place),
        el("small", words, class_="mut"),
        el("span", see, more, class_="acts"),
        class_="gap",
    )


# The table


def _table(look: Look, table: CoverageTable, model: str) -> Html:
    if not table.lines:
        said = (
            f"No {table.facets[0]} has “{look.find}” in its name." if look.find else "No image has an edit of either."
        )
        clear = el("a", "Show all", href=replace(look, find="").address) if look.find else None
        return el("div", el("p", said, " ", clear), class_="empty")
    shown = {spot: figures_of(cell, model) for spot, cell in table.cells.items()}
    most = max((figures.images for figures in shown.values()), default=1)
    lines = _in_order(look, table, shown)
    body = [_line(look, table, head, shown, most, model) for head in lines]
    return el(
        "div",
        el(
            "table",
            el("caption", f"Images by {table.facets[0]} and {table.facets[1]}", class_="unseen"),
            el("thead", el("tr", _corner(look, table), [_head(look, head, table) for head in table.places])),
            el("tbody", body),
            class_=f"cells by-{look.by}",
            id="cells-table",
            data_grid=look.grid,
        ),
        class_="card table-frame",
        tabindex=0,
        role="region",
        aria_label="Coverage table",
    )


def _in_order(look: Look, table: CoverageTable, shown: Mapping[tuple[str, str], Figures]) -> tuple[Head, ...]:
    if look.sort == _BY_NAME:
        return tuple(sorted(table.lines, key=lambda head: head.value.casefold(), reverse=look.rising))
    column = look.sort.removeprefix("in ")
    if look.sort.startswith("in ") and any(head.value == column for head in table.places):
        figures = {head.value: _figure(shown.get((head.value, column)), look.by) for head in table.lines}
        return sorted_lines(table, figures, falling=not look.rising)
    return table.lines


def _figure(figures: Figures | None, by: By) -> float | None:
    if by == "images":
        return float(figures.images) if figures is not None else 0.0
    if figures is None:
        return None
    return figures.accepted.value if by == "accepted" else figures.wrong.value


def _corner(look: Look, table: CoverageTable) -> Html:
    by_name = look.sort == _BY_NAME
    then = replace(look, sort=_BY_NAME if not by_name else "", rising=False)
    words = "by number" if by_name else "by name"
    line, place = table.facets
    return el(
        "th",
        el("span", f"{line} ↓"),
        el("span", f"{place} →"),
        el("a", words, href=then.address, title=f"Order the lines {words}", class_="small"),
        scope="col",
        class_="corner",
    )


def _head(look: Look, head: Head, table: CoverageTable) -> Html:
    spot = f"in {head.value}"
    here = look.sort == spot
    then = replace(look, sort=spot, rising=here and not look.rising)
    sorting: str | None = None
    if here:
        sorting = "ascending" if look.rising else "descending"
    name = name_of(head.value, table.facets[1])
    arrow = " ▲" if here and look.rising else " ▼" if here else ""
    return el(
        "th",
        el(
            "a",
            name,
            arrow,
            href=then.address,
            title=f"Order by {_BY_WORDS[look.by]} in here",
        ),
        el("small", f"{head.images:,}"),
        scope="col",
        aria_sort=sorting,
        data_place=head.value,
    )


def _line(
    look: Look, table: CoverageTable, head: Head, shown: Mapping[tuple[str, str], Figures], most: int, model: str
) -> Html:
    name: Child = name_of(head.value, table.facets[0])
    if head.value or table.grid == GRIDS[0]:  # else those with an edit of neither would be shown as well
        see = gallery_address(ImageFilter(facets={table.facets[0]: (head.value,)}))
        name = el("a", name, href=see, title=f"See all {head.images:,}")
    cells = [
        _cell(look, table, head, place, shown.get((head.value, place.value)), most, model) for place in table.places
    ]
    return el(
        "tr",
        el("th", name, el("small", f"{head.images:,}"), scope="row"),
        cells,
        data_line=head.value,
    )


def _cell(
    look: Look, table: CoverageTable, line: Head, place: Head, figures: Figures | None, most: int, model: str
) -> Html:
    plans = _can_be_planned(table, line, place)
    if figures is None:
        return _EMPTY if plans else _NOTHING
    what = f"{name_of(line.value, table.facets[0])} × {name_of(place.value, table.facets[1])}"
    level, unsure = _level(figures, look.by, most)
    told: list[Child] = [
        el("b", f"{figures.images:,}", el("small", f" {figures.open:,} open") if figures.open else None)
    ]
    told.append(el("i", _share(figures.accepted, "accepted", "none decided")))
    if model:
        told.append(el("i", _share(figures.wrong, "newly wrong", "cannot tell" if figures.read else "not read")))
    link = el("a", told, href=_images_of(look, line.value, place.value), title=_told(what, figures, model))
    return el("td", link, _MORE if plans else None, data_level=level, class_="unsure" if unsure else None)


def _can_be_planned(table: CoverageTable, line: Head, place: Head) -> bool:
    if table.grid == GRIDS[0]:
        return bool(line.value) and place.value in EDIT_TYPES
    return bool(line.value or place.value)


def _images_of(look: Look, line: str, place: str) -> str:
    return gallery_address(View(cell_filter(look.grid, line, place)))


def _level(figures: Figures, by: By, most: int) -> tuple[int, bool]:
    """How strongly a cell is coloured, 0 to `LEVELS`, and whether that hangs on few images."""
    if by == "images":
        return math.ceil(LEVELS * math.sqrt(figures.images / most)), False
    share = figures.accepted if by == "accepted" else figures.wrong
    if share.value is None:
        return 0, False
    level, unsure = math.ceil(LEVELS * share.value), share.n < FEW
    return min(level, UNSURE_LEVEL) if unsure else level, unsure


def _share(share: Proportion, words: str, nothing: str) -> str:
    """A share in few words: of few images as they are counted, and never rounded to all or none of them."""
    if share.value is None:
        return nothing
    if share.n < FEW:
        return f"{share.count} of {share.n} {words}"
    rounded = round(100 * share.value)
    return f"{min(max(rounded, share.count > 0), 100 - (share.count < share.n)):d} % {words}"


def _told(what: str, figures: Figures, model: str) -> str:
    """All that is known of a cell, in sentences."""
    said = [
        f"{what}: {count_of(figures.images, 'image')}, {figures.open:,} open.",
        f"Accepted, of those decided: {figures.accepted.words}.",
    ]
    if model and not figures.read:
        said.append(f"{short_model(model, {})} has read none of them.")
    elif model:
        said.append(
            f"Newly wrong, of those that {short_model(model, {})} gets right or newly wrong: {figures.wrong.words}."
        )
    return " ".join(said)


def _notes(table: CoverageTable, model: str) -> Html:
    """What is not shown, and how the cells are to be read."""
    line, place = table.facets
    named = [(table.lines, table.all_lines, PLURALS[line]), (table.places, table.all_places, PLURALS[place])]
    shown = [(sum(bool(head.value) for head in heads), number, words) for heads, number, words in named]
    left = [f"the {some:,} most common of {number:,} {words}" for some, number, words in shown if some < number]
    if table.grid == GRIDS[0]:
        first = "An image with several edit types or classes counts in each: cells do not add up to the numbers at the "
        first += "names."
    elif table.neither:
        first = (
            f"An image stands in one cell; {count_of(table.neither, 'image', 'has')} an edit of neither, "
            "which this table "
        )
        first += "leaves out."
    else:
        first = "An image stands in one cell."
    if left:
        find = f" Find any {line} by its name above." if shown[0][0] < shown[0][1] else ""
        first = f"Shown are {' and '.join(left)}.{find} {first}"
    notes = [
        f"A share is told of {FEW} images or more; of fewer it is said as it is counted, and the cell is hatched where "
        "it is coloured by it. Hold the pointer over a cell for its 95 % interval.",
        "Accepted: of the images that somebody decided about. Open ones are told beside the number.",
    ]
    if model:
        notes.append(
            f"Newly wrong: {short_model(model, {})} gets the image wrong though it gets its source right. The share is "
            "of the images that it gets right or newly wrong, without those that were wrong before or cannot be told."
        )
    else:
        notes.append("No model under test has read any of these images: nothing is said of what it gets wrong.")
    notes.append("Arrow keys go from cell to cell, Enter shows its images, M makes more, / finds.")
    return el(
        "details",
        el("summary", first, " ", el("u", "How to read this")),
        el("ul", [el("li", note) for note in notes], class_="mut small"),
        class_="reading",
        id="reading",
    )
