"""The page /curate/coverage: image counts by two facets, gaps, and plans to fill a cell of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import FastAPI, Request

from core.catalogue import GRIDS, CoverageGrid
from core.figures import Proportion
from core.image_filter import ImageFilter
from core.text_templates import TextTemplates
from core.types import EDIT_TYPES
from core.words import count_of
from services.commands import Commands
from services.curation.coverage import (
    CoverageTable,
    Figures,
    Gap,
    Head,
    cell_filter,
    facets_of,
    figures_of,
    gaps,
    sorted_lines,
)
from services.curation.gallery import Gallery
from services.curation.plans import MOST_SOURCES, BegunPlan, CellCommand, CellPlan
from services.curation.views import gallery_address
from ui.curate.frame import add_command, curate_page
from ui.explore.parts import pill, short_model
from ui.markup import Html
from ui.replies import page_at
from ui.templating import render

By = Literal["images", "accepted", "wrong"]
BYS: tuple[By, ...] = get_args(By)
FEW = 5
"""Number of images below which a share is written as counts, such as "3 of 4"."""
LEVELS, UNSURE_LEVEL = 5, 2
"""Number of colour strengths of a cell, and the maximum strength if the cell's share counts fewer than `FEW` images."""
LONGEST_FIND = 200
_PAGE = "/curate/coverage"
_BY_NAME = "name"
"""Value of `sort` to sort lines by name. Other values: "in COLUMN", and "" for the number of images."""
_BY_WORDS: Mapping[By, str] = {"images": "images", "accepted": "accepted", "wrong": "newly wrong"}
_NONE: Mapping[str, str] = {"edit type": "no edit", "weather": "as it was", "time of day": "as it was"}
"""Title of the line or column for images without a value, by facet."""
PLURALS = {"class": "classes", "edit type": "edit types", "weather": "weathers", "time of day": "times of day"}
_Cell = tuple[bool, Figures | None, int, bool, str, str, Sequence[str]]
"""A cell of the table: True if a plan can fill it, its figures (None without an image), its colour strength, True if
this strength rests on few images, the address of its images, its description, and its shares as text."""


@dataclass(frozen=True)
class Look:
    """Choices of a person on the coverage page. The page's address holds them."""

    grid: CoverageGrid = GRIDS[0]
    by: By = "images"
    model: str = ""
    """Key of the model under test; "" for the first model."""
    find: str = ""
    sort: str = ""
    rising: bool = False

    @staticmethod
    def of(query: Mapping[str, str]) -> Look:
        """Parse the query of an address. Invalid values are ignored."""
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
        """Return the parameters that `of` reads, without defaults."""
        parameters = [
            ("table", "weather" if self.grid == GRIDS[1] else ""),
            ("by", "" if self.by == "images" else self.by),
            ("model", self.model),
            ("find", self.find),
            ("sort", self.sort),
            ("rising", "1" if self.rising else ""),
        ]
        return [(name, value) for name, value in parameters if value]

    @property
    def address(self) -> str:
        """Return the address of the page with these choices."""
        return f"{_PAGE}?{urlencode(self.pairs)}" if self.pairs else _PAGE


def add_coverage(app: FastAPI, commands: Commands, gallery: Gallery) -> None:
    """Add the routes of the coverage page."""

    @page_at(app, _PAGE, ("Coverage", _PAGE))
    def page(request: Request) -> str:
        look = Look.of(request.query_params)
        return coverage_page(look, gallery.coverage(look.grid, look.find))

    add_command(
        app, commands, "describe-cell-plan", lambda command, plan: {"parts": {"plan": plan_part(command, plan)}}
    )

    def begun(_: CellCommand, plan: BegunPlan) -> Mapping[str, Any]:
        """Return the ids of the new runs, and the address of the Explore page that shows them in one table."""
        return {"go": f"/?{urlencode([('run', ''), ('picked', ','.join(plan.runs))])}", "runs": list(plan.runs)}

    add_command(app, commands, "plan-cell", begun)


def name_of(value: str, facet: str) -> str:
    """Return the title of a line or column of the coverage table. The line or column stands for `value` of `facet`."""
    return value or _NONE.get(facet, f"no {facet}")


def plan_part(command: CellCommand, plan: CellPlan) -> Html:
    """Return the window that describes the runs which a plan for a cell of the table would begin."""
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


def coverage_page(look: Look, table: CoverageTable) -> str:
    """Return the coverage page as an HTML document."""
    model = look.model if look.model in table.models else next(iter(table.models), "")
    shown = {spot: figures_of(cell, model) for spot, cell in table.cells.items()}
    most = max((figures.images for figures in shown.values()), default=1)
    missing = gaps(table) if table.images else ()
    content = render(
        "curate/coverage.html",
        look=look,
        changed=partial(replace, look),
        table=table,
        model=model,
        grids=GRIDS,
        by_words=_BY_WORDS,
        longest_find=LONGEST_FIND,
        name_of=name_of,
        gaps=[(gap, gallery_address(cell_filter(look.grid, gap.line.value, gap.place.value))) for gap in missing],
        gap_words=_gap_words(missing),
        lines=[_line(look, table, head, shown, most, model) for head in _in_order(look, table, shown)],
        counted_words=_counted_words(table),
        few=FEW,
    )
    status, sheets, scripts = pill(count_of(table.images, "image")), ("curate-coverage.css",), ("curate-coverage.js",)
    return curate_page("Coverage", "coverage", content, status=status, sheets=sheets, scripts=scripts)


def _gap_words(found: tuple[Gap, ...]) -> str:
    without = sum(gap.lacks == "images" for gap in found)
    kinds = ((without, "no image"), (len(found) - without, "none that was accepted"))
    return ", ".join(f"{number} {'has' if number == 1 else 'have'} {words}" for number, words in kinds if number)


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


def _line(
    look: Look, table: CoverageTable, head: Head, shown: Mapping[tuple[str, str], Figures], most: int, model: str
) -> tuple[Head, str, list[_Cell]]:
    """Return a line of the table: its head, the address of its images ("" if no filter finds them), its cells."""
    # In the weather table a filter without a value would also find images with neither edit.
    finds = head.value or table.grid == GRIDS[0]
    see = gallery_address(ImageFilter(facets={table.facets[0]: (head.value,)})) if finds else ""
    figures = [(place, shown.get((head.value, place.value))) for place in table.places]
    return head, see, [_cell(look, table, head, place, of, most, model) for place, of in figures]


def _cell(
    look: Look, table: CoverageTable, line: Head, place: Head, figures: Figures | None, most: int, model: str
) -> _Cell:
    by_edit_type = table.grid == GRIDS[0]
    plans = bool(line.value) and place.value in EDIT_TYPES if by_edit_type else bool(line.value or place.value)
    if figures is None:
        return plans, None, 0, False, "", "", ()
    what = f"{name_of(line.value, table.facets[0])} × {name_of(place.value, table.facets[1])}"
    shares = [_share(figures.accepted, "accepted", "none decided")]
    if model:
        shares.append(_share(figures.wrong, "newly wrong", "cannot tell" if figures.read else "not read"))
    images = gallery_address(cell_filter(look.grid, line.value, place.value))
    words = _TEXTS.paragraph("cell.txt", what=what, figures=figures, model=short_model(model, {}) if model else "")
    return plans, figures, *_level(figures, look.by, most), images, words, shares


def _level(figures: Figures, by: By, most: int) -> tuple[int, bool]:
    """Return a cell's colour strength, 0 to `LEVELS`, and True if the colour shows a share of under `FEW` images."""
    if by == "images":
        return math.ceil(LEVELS * math.sqrt(figures.images / most)), False
    share = figures.accepted if by == "accepted" else figures.wrong
    if share.value is None:
        return 0, False
    level, unsure = math.ceil(LEVELS * share.value), share.n < FEW
    return min(level, UNSURE_LEVEL) if unsure else level, unsure


def _share(share: Proportion, words: str, nothing: str) -> str:
    """Return a share as text: "3 of 4" for few images, else a percentage. It is 0 % or 100 % only for none or all."""
    if share.value is None:
        return nothing
    if share.n < FEW:
        return f"{share.count} of {share.n} {words}"
    rounded = round(100 * share.value)
    return f"{min(max(rounded, share.count > 0), 100 - (share.count < share.n)):d} % {words}"


def _counted_words(table: CoverageTable) -> str:
    """Return sentences on lines and columns that are not shown, and on images that are in several cells."""
    line, place = table.facets
    named = [(table.lines, table.all_lines, PLURALS[line]), (table.places, table.all_places, PLURALS[place])]
    shown = [(sum(bool(head.value) for head in heads), number, words) for heads, number, words in named]
    left = [f"the {some:,} most common of {number:,} {words}" for some, number, words in shown if some < number]
    can_find, several = shown[0][0] < shown[0][1], table.grid == GRIDS[0]
    return _TEXTS.paragraph("counted.txt", table=table, left=left, can_find=can_find, several=several)


_TEXTS = TextTemplates(Path(__file__).with_name("texts"), count_of=count_of)
