"""Coverage tables: the number of images of each class and edit type, or of each weather and time of day.

The catalogue counts the images of each cell. This module chooses the rows (called lines) and columns (called places) to
show, and finds the gaps.
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
"""Maximum number of columns on a page. A table may have more, since an edit can name any time of day."""
MOST_GAPS = 10
_ALL = 1_000_000_000


@dataclass(frozen=True)
class Head:
    """The heading of a row or a column of a coverage table."""

    value: str
    """Value that the images of this row or column share, such as a class; "" for images without a value."""
    images: int
    """Number of images with this value. An image with several classes or edit types counts in several cells."""


@dataclass(frozen=True)
class CoverageTable:
    """A coverage table. A long table is cut to the most common rows and columns."""

    grid: CoverageGrid
    lines: tuple[Head, ...]
    """Headings of the rows: the most common value first, images without a value last."""
    places: tuple[Head, ...]
    """Headings of the columns, sorted like `lines`. All edit types are included, even those without images."""
    cells: Mapping[tuple[str, str], Cell]
    """Cells by the values of row and column. Cells without images are missing."""
    models: tuple[str, ...]
    """Models under test that have predicted any image, sorted by name."""
    all_lines: int
    """Number of rows with a value, shown or not. During a search, it is the number of rows that match the search."""
    all_places: int
    images: int
    """Number of images in the workspace."""
    neither: int
    """Number of images in no cell, as they have no edit of weather or time of day; 0 for a table of classes."""

    @property
    def facets(self) -> tuple[Facet, Facet]:
        """Return the facet of the rows and that of the columns. A facet is a property of images, such as "class"."""
        return facets_of(self.grid)


@dataclass(frozen=True)
class Gap:
    """A cell without images, or without accepted images."""

    line: Head
    place: Head
    lacks: Literal["images", "accepted images"]
    cell: Cell | None
    """The cell, or None if it has no image."""


def facets_of(grid: CoverageGrid) -> tuple[Facet, Facet]:
    """Return a table's facet of the rows and facet of the columns, such as "class" and "edit type"."""
    line, place = grid.split(" x ")
    return line, place  # type: ignore[return-value]


def cell_filter(grid: CoverageGrid, line: str, place: str) -> ImageFilter:
    """Return the filter for the images of a cell. `line` and `place` are the values of its row and its column."""
    line_facet, place_facet = facets_of(grid)
    return ImageFilter(facets={line_facet: (line,), place_facet: (place,)})


def coverage_table(catalogue: Catalogue, grid: CoverageGrid = GRIDS[0], find: str = "") -> CoverageTable:
    """Return the table of the most common rows and columns. `find` selects the rows whose value contains this text."""
    line_facet, place_facet = facets_of(grid)
    facet_counts = catalogue.facets(names=(line_facet, place_facet), most=_ALL)
    text = " ".join(find.split()).casefold()
    lines = [Head(value, number) for value, number in facet_counts[line_facet].items() if text in value.casefold()]
    places = [Head(value, number) for value, number in facet_counts[place_facet].items()]
    if place_facet == "edit type":
        places += [Head(value, 0) for value in EDIT_TYPES if value not in facet_counts[place_facet]]
    shown_lines, shown_places = lines[:MOST_LINES], places[:MOST_PLACES]
    names = [head.value for head in shown_lines] + ([] if text else [""])
    counted = catalogue.coverage(grid, lines=names, places=[head.value for head in shown_places] + [""])
    cells = {(cell.line, cell.place): cell for cell in counted}
    neither = 0 if grid == GRIDS[0] else catalogue.count(cell_filter(grid, "", "")).number
    for heads, facet, here in (
        (shown_lines, line_facet, any(not cell.line for cell in counted)),
        (shown_places, place_facet, any(not cell.place for cell in counted)),
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


def gaps(table: CoverageTable) -> tuple[Gap, ...]:
    """Return at most `MOST_GAPS` gaps: cells without images, if both their row and their column have a value and
    images. If any image of the table is accepted, cells without an accepted image are gaps too.

    They are sorted by the number of images in the row times the number of images in the column, the largest product
    first.
    """
    any_accepted = any(cell.reviews.get("accepted") for cell in table.cells.values())
    missing: list[Gap] = []
    for line in table.lines:
        for place in table.places:
            cell = table.cells.get((line.value, place.value))
            if not (line.value and place.value and line.images and place.images):
                continue
            if cell is None:
                missing.append(Gap(line, place, "images", None))
            elif any_accepted and not cell.reviews.get("accepted"):
                missing.append(Gap(line, place, "accepted images", cell))
    return tuple(sorted(missing, key=lambda gap: -gap.line.images * gap.place.images)[:MOST_GAPS])


def sorted_lines(table: CoverageTable, figures: Mapping[str, float | None], falling: bool = True) -> tuple[Head, ...]:
    """Return the rows sorted by `figures`, which maps a row's value to a number. Rows without a number come last."""
    with_figure = [head for head in table.lines if figures.get(head.value) is not None]
    rest: Sequence[Head] = [head for head in table.lines if figures.get(head.value) is None]
    return (*sorted(with_figure, key=lambda head: figures[head.value] or 0.0, reverse=falling), *rest)


@dataclass(frozen=True)
class Figures:
    """The figures of one cell that a page shows."""

    images: int
    open: int
    accepted: Proportion
    """Share of the reviewed images that are accepted."""
    read: int
    """Number of images that the model under test has predicted."""
    wrong: Proportion
    """Share of images on which the model is wrong though right on their source. Other wrong images do not count."""


def figures_of(cell: Cell | None, model: str) -> Figures:
    """Return a cell's figures for a model under test. `cell` is None if it has no images; shares then have no value."""
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
