"""The coverage tables: which images there are of each class and edit type, or of each weather and time of day.

The catalogue counts each cell in the write. Here the lines and places are chosen, and the gaps are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.catalogue import GRIDS, Cell, CoverageGrid
from core.figures import Proportion
from core.image_filter import Facet, ImageFilter
from core.types import EDIT_TYPES
from storage.curation.catalogue import MOST_LINES, Catalogue
from study.intervals import wilson

MOST_PLACES = 30
"""Places in a line that a page shows: an edit can say any time of day."""
MOST_GAPS = 10
_ALL = 1_000_000_000


@dataclass(frozen=True)
class Head:
    """The head of a line, or of a column."""

    value: str
    """"" for what has none."""
    images: int
    """That have it. Of a class or an edit type the cells add up to more where an image has several."""


@dataclass(frozen=True)
class CoverageTable:
    """A coverage table, or as much of it as is shown."""

    grid: CoverageGrid
    lines: tuple[Head, ...]
    """The most common first, what has none last."""
    places: tuple[Head, ...]
    """Likewise. All edit types are among them, whether there are images or not."""
    cells: Mapping[tuple[str, str], Cell]
    """By line and place; those without an image are left out."""
    models: tuple[str, ...]
    """The models under test that have read any image, in order of their names."""
    all_lines: int
    """Lines that there are, without that of what has none; or that have what was looked for in their name."""
    all_places: int
    images: int
    """In the workspace."""
    neither: int
    """Images that no cell has: without an edit of the weather and of the time of day; 0 for the other table."""

    @property
    def facets(self) -> tuple[Facet, Facet]:
        """What its lines are, and its places."""
        return facets_of(self.grid)


@dataclass(frozen=True)
class Gap:
    """A cell in which something is missing."""

    line: Head
    place: Head
    lacks: Literal["images", "accepted images"]
    cell: Cell | None
    """None where it has no image."""


def facets_of(grid: CoverageGrid) -> tuple[Facet, Facet]:
    """What the lines of a coverage table are, and its places."""
    line, place = grid.split(" x ")
    return line, place  # type: ignore[return-value]


def cell_filter(grid: CoverageGrid, line: str, place: str) -> ImageFilter:
    """The images of a cell."""
    line_facet, place_facet = facets_of(grid)
    return ImageFilter(facets={line_facet: (line,), place_facet: (place,)})


def coverage_table(catalogue: Catalogue, grid: CoverageGrid = GRIDS[0], find: str = "") -> CoverageTable:
    """Return the table of the most common lines and places; with `find`, of the lines whose name contains it."""
    line_facet, place_facet = facets_of(grid)
    held = catalogue.facets(names=(line_facet, place_facet), most=_ALL)
    wanted = " ".join(find.split()).casefold()
    lines = [Head(value, number) for value, number in held[line_facet].items() if wanted in value.casefold()]
    places = [Head(value, number) for value, number in held[place_facet].items()]
    if place_facet == "edit type":
        places += [Head(value, 0) for value in EDIT_TYPES if value not in held[place_facet]]
    shown_lines, shown_places = lines[:MOST_LINES], places[:MOST_PLACES]
    names = [head.value for head in shown_lines] + ([] if wanted else [""])
    found = catalogue.coverage(grid, lines=names, places=[head.value for head in shown_places] + [""])
    cells = {(cell.line, cell.place): cell for cell in found}
    neither = 0 if grid == GRIDS[0] else catalogue.count(cell_filter(grid, "", "")).number
    for heads, facet, here in (
        (shown_lines, line_facet, any(not cell.line for cell in found)),
        (shown_places, place_facet, any(not cell.place for cell in found)),
    ):
        if here:
            heads.append(Head("", catalogue.count(ImageFilter(facets={facet: ("",)})).number - neither))
    return CoverageTable(
        grid=grid,
        lines=tuple(shown_lines),
        places=tuple(shown_places),
        cells=cells,
        models=tuple(catalogue.models()),
        all_lines=len(lines),
        all_places=len(places),
        images=catalogue.count().number,
        neither=neither,
    )


def gaps(table: CoverageTable, most: int = MOST_GAPS) -> tuple[Gap, ...]:
    """The cells that lack most, at most so many: without an image although there are images of the line and images of
    the place; or without one that was accepted, where any of the table was.

    First come those in which one would expect the most images, were lines and places spread over each other evenly.
    """
    any_accepted = any(cell.reviews.get("accepted") for cell in table.cells.values())
    found: list[Gap] = []
    for line in table.lines:
        for place in table.places:
            cell = table.cells.get((line.value, place.value))
            if not (line.value and place.value and line.images and place.images):
                continue
            if cell is None:
                found.append(Gap(line, place, "images", None))
            elif any_accepted and not cell.reviews.get("accepted"):
                found.append(Gap(line, place, "accepted images", cell))
    return tuple(sorted(found, key=lambda gap: -gap.line.images * gap.place.images)[:most])


def sorted_lines(table: CoverageTable, figures: Mapping[str, float | None], falling: bool = True) -> tuple[Head, ...]:
    """The lines by a figure of each; those without one stand last, and of equal ones the more common first."""
    with_one = [head for head in table.lines if figures.get(head.value) is not None]
    rest: Sequence[Head] = [head for head in table.lines if figures.get(head.value) is None]
    return (*sorted(with_one, key=lambda head: figures[head.value] or 0.0, reverse=falling), *rest)


@dataclass(frozen=True)
class Figures:
    """What a cell says."""

    images: int
    open: int
    accepted: Proportion
    """Of those that are decided."""
    read: int
    """By the model under test."""
    wrong: Proportion
    """Newly wrong, of those that the model gets right or newly wrong."""


def figures_of(cell: Cell | None, model: str) -> Figures:
    """The figures of a cell, None for one without images. A share of nothing has no value."""
    reviews = cell.reviews if cell is not None else {}
    stands = cell.models.get(model, {}) if cell is not None else {}
    accepted, newly = reviews.get("accepted", 0), stands.get("newly wrong", 0)
    return Figures(
        images=sum(reviews.values()),
        open=reviews.get("open", 0),
        accepted=wilson(accepted, accepted + reviews.get("rejected", 0), nothing="none is decided"),
        read=sum(stands.values()),
        wrong=wilson(newly, newly + stands.get("right", 0), nothing="the model says nothing that could be counted"),
    )
