"""The catalogue: every image that can be curated, with filters, orders, pages and counts.

Triggers of the database keep it up to date (`storage/schema/m001/catalogue.sql`), so writers need not notify it. The
time to apply a filter does not grow with the number of matches. The time to read a page does not grow with the page's
position.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from sqlite_utils import Database as Db

from core.catalogue import (
    GRIDS,
    Bar,
    CatalogueEntry,
    CataloguePage,
    Cell,
    Count,
    CoverageGrid,
    Order,
    PageKey,
    ScoreCounts,
    Unmeasured,
)
from core.data_files import DataTable
from core.errors import UserError
from core.image_filter import FACETS, Facet, ImageFilter, ScoreBand
from storage.curation import entry_sets
from storage.curation.scores import MEASURE as SCORE
from storage.curation.scores import NUMBER
from storage.curation.selection import Held, Selection, counts, hold, walk
from storage.engine.database import Database, Repository, read, reading, write
from storage.engine.queries import first_column
from storage.engine.rows import record_of
from storage.images import Images, file_name
from storage.runs.test_cases import checks_of

COUNTED = 10_000
"""Maximum number of images counted exactly if a filter has search words. Beyond it, a count is only a lower bound."""
MOST_VALUES = 100
"""Maximum number of values of a facet that are counted. The most common values are counted first."""
EVERYTHING = ImageFilter()
NEWEST = Order()
MOST_LINES = 100
"""Maximum number of rows, and of columns, of a coverage table. Captions may name any weather, for example."""

_QUERIES = DataTable(__file__, str)


class Catalogue(Repository):
    """The images that people can curate: imported images and test cases. Deleted runs' test cases are left out."""

    def __init__(self, database: Database, images: Images) -> None:
        super().__init__(database)
        self._images = images

    @read
    def page(
        self,
        db: Db,
        image_filter: ImageFilter = EVERYTHING,
        order: Order = NEWEST,
        limit: int = 100,
        after: PageKey | None = None,
        at: int | None = None,
        held: Held | None = None,
    ) -> CataloguePage:
        """Return up to `limit` images in an order.

        Start after the key `after` or at the zero-based place `at` (for a scroll bar), else at the beginning. A key
        keeps its position if images are added or its own image no longer matches. `held` is the result of `hold` for
        the same filter and order. The page then shows these images, even if decisions changed since.
        """
        way = walk(db, image_filter, order, held)
        first = []
        if at is not None:
            after = way.at(at)
            if after is None:
                return CataloguePage((), False)
            first = [after]
        keys = first + list(islice(way.from_key(after), limit + 1 - len(first)))
        return CataloguePage(self._entries(db, keys[:limit]), len(keys) > limit)

    hold = reading(hold)

    @read
    def place(
        self, db: Db, image_filter: ImageFilter, order: Order, entry: int, held: Held | None = None
    ) -> int | None:
        """Return the zero-based place of an image in an order; None if it does not match the filter."""
        return walk(db, image_filter, order, held).place(entry)

    @read
    def get(self, db: Db, entry: int) -> CatalogueEntry:
        """Return one image, even if its run is deleted. Raises UserError if the number is unknown."""
        for found in self._entries(db, [PageKey(entry)]):
            return found
        raise UserError(f"The catalogue has no image {entry}; pick one that the gallery lists.", field="entry")

    @read
    def listed(self, db: Db, entries: Sequence[int]) -> tuple[CatalogueEntry, ...]:
        """Return the images with these numbers, in this order, even if their runs are deleted. Skip unknown numbers."""
        return self._entries(db, [PageKey(entry) for entry in entries])

    @read
    def count(self, db: Db, image_filter: ImageFilter = EVERYTHING, most: int = COUNTED) -> Count:
        """Return the number of images that match a filter. With search words, counting stops at `most`."""
        selection = Selection(db, image_filter)
        number = selection.counted(most)
        return Count(number) if selection.words == "" or number <= most else Count(most, exact=False)

    @read
    def ids(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> tuple[int, ...]:
        """Return the catalogue numbers of all images that match a filter, ascending."""
        return tuple(Selection(db, image_filter).entries)

    @read
    def bits(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> entry_sets.Bits:
        """Return all images that match a filter, as a bit set (see `storage.curation.entry_sets`)."""
        return Selection(db, image_filter).whole

    @read
    def facets(
        self, db: Db, image_filter: ImageFilter = EVERYTHING, names: Sequence[Facet] = FACETS, most: int = MOST_VALUES
    ) -> Mapping[Facet, Mapping[str, int]]:
        """Count the matching images by facet and value. A facet's counts ignore the filter's choice in that facet."""
        free = [name for name in names if name not in image_filter.facets]
        counts_by_facet: dict[Any, Any] = counts(Selection(db, image_filter), dict.fromkeys(free, most))
        for name in names:
            if name in image_filter.facets:
                others = {facet: values for facet, values in image_filter.facets.items() if facet != name}
                counts_by_facet |= counts(Selection(db, replace(image_filter, facets=others)), {name: most})
        return {name: counts_by_facet[name] for name in names}

    @read
    def checks(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> Mapping[str, Mapping[str, int]]:
        """Count the images that match a filter, by check and by outcome of the check."""
        return self._named(db, image_filter, "check:")

    @read
    def models(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> Mapping[str, Mapping[str, int]]:
        """Count the matching images by model under test and by result of the model, such as "newly wrong"."""
        return self._named(db, image_filter, "model:")

    @read
    def most_read(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> str:
        """Return the key of the model under test with most predictions for the matching images; "" if none exists."""
        selection = Selection(db, image_filter)
        return selection.most_read(selection.whole)

    @read
    def coverage(
        self,
        db: Db,
        grid: CoverageGrid = GRIDS[0],
        most: int = MOST_LINES,
        lines: Sequence[str] | None = None,
        places: Sequence[str] | None = None,
    ) -> tuple[Cell, ...]:
        """Return the non-empty cells of a coverage table: image counts by the values of two facets. By default, rows
        (`lines`) and columns (`places`) are the `most` most common values, and "" for images without a value.
        """
        reviews: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        models: dict[tuple[str, str], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        values: dict[str, str] = {"grid": grid}
        for name, facet, requested in zip(("lines", "places"), grid.split(" x "), (lines, places), strict=True):
            common = first_column(db, _QUERIES["common_values"], [facet, most])
            values[name] = json.dumps(["", *common] if requested is None else requested)
        for line, place, facet, value, number in db.execute(_QUERIES["coverage"], values):
            if facet == "review":
                reviews[line, place][value] = number
            else:
                models[line, place][facet.removeprefix("model:")][value] = number
        return tuple(
            Cell(*cell, reviews_of_cell, {model: dict(standings) for model, standings in models[cell].items()})
            for cell, reviews_of_cell in sorted(reviews.items())
        )

    @read
    def histogram(self, db: Db, check: str, image_filter: ImageFilter = EVERYTHING) -> tuple[Bar, ...]:
        """Return a histogram of a check's figures for the matching images: bars 0.02 wide, without empty ones."""
        return _bars(Selection(db, image_filter), f"check:{check}")

    @read
    def scores(self, db: Db, image_filter: ImageFilter, threshold: float) -> ScoreCounts:
        """Count matching images whose validity score is at least `threshold`, lower, or missing. Add a histogram."""
        selection = Selection(db, replace(image_filter, scores=()))
        whole, scored = selection.whole, selection.having("measure", [SCORE])
        high, low = ((whole & selection.scored(ScoreBand(*ends))) for ends in ((threshold, None), (None, threshold)))
        at_least, below, none = (entry_sets.size(bits) for bits in (high, low, whole & ~scored))
        return ScoreCounts(at_least, below, none, _bars(selection, SCORE))

    @read
    def runs(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> tuple[str, ...]:
        """Return the ids of the runs that have matching images. The run of the oldest matching image is first."""
        return tuple(first_column(db, _QUERIES["runs"], [json.dumps(Selection(db, image_filter).entries)]))

    @read
    def by_source(self, db: Db, image_filter: ImageFilter = EVERYTHING) -> Mapping[str, int]:
        """Return the number of matching images by SHA-256 of their source. Images without a source are left out."""
        return dict(db.execute(_QUERIES["by_source"], [json.dumps(Selection(db, image_filter).entries)]).fetchall())

    @read
    def test_cases(self, db: Db, entries: Sequence[int]) -> tuple[int, ...]:
        """Return the test case ids of these entries in the same order. Imported images have none and are left out."""
        return tuple(first_column(db, _QUERIES["test_cases"], [json.dumps(list(entries))]))

    @read
    def not_measured(self, db: Db, model: str, most: int, sha: str = "") -> tuple[Unmeasured, ...]:
        """Return up to `most` segmentation images for which a model's class maps are not compared yet.

        Images of deleted runs are left out. With `sha`, return only images whose hash or whose source's hash is `sha`.
        """
        if sha:
            found = "SELECT group_concat(id) FROM catalogue WHERE there AND (image = :sha OR source = :sha)"
            entries = entry_sets.listed(db.execute(found, {"sha": sha}).fetchone()[0])
        else:
            waiting = Selection(db, ImageFilter(models={model: ("not measured",)})).whole
            entries = entry_sets.entries_of(waiting)[:most]
        values = {"entries": json.dumps(entries.tolist()), "model": model, "most": most}
        return tuple(Unmeasured(*row) for row in db.execute(_QUERIES["not_measured"], values))

    @write
    def measured(self, db: Db, model: str, found: Sequence[tuple[Unmeasured, tuple[bool | None, bool | None]]]) -> None:
        """Save whether a model is right on source and image, or None. Skip images changed since `not_measured`."""
        for one, (source, image) in found:
            values = [source, image, one.entry, model, one.prediction, one.source_prediction, one.state]
            db.execute(_QUERIES["measured"], values)

    def _entries(self, db: Db, keys: Sequence[PageKey]) -> tuple[CatalogueEntry, ...]:
        by_entry = {key.entry: key for key in keys}
        rows = db.query(_QUERIES["rows"].format(score=NUMBER), [json.dumps(list(by_entry))])
        return tuple(
            record_of(
                CatalogueEntry,
                row,
                image_path=self._images.folder / file_name(row["image"]),
                checks=checks_of(row),
                key=by_entry[row["id"]],
            )
            for row in rows
        )

    def _named(self, db: Db, image_filter: ImageFilter, begin: str) -> dict[str, dict[str, int]]:
        query = "SELECT DISTINCT facet FROM catalogue_values WHERE facet >= ? AND facet < ? AND entries > 0 ORDER BY 1"
        names = first_column(db, query, [begin, f"{begin[:-1]};"])
        counts_by_name = counts(Selection(db, image_filter), dict.fromkeys(names, MOST_VALUES))
        return {name.removeprefix(begin): number_by_value for name, number_by_value in counts_by_name.items()}


def _bars(selection: Selection, measure: str) -> tuple[Bar, ...]:
    (numbers,) = counts(selection, {f"bin:{measure}": 1 << 30}).values()
    bars = sorted((int(value), number) for value, number in numbers.items() if number)
    return tuple(Bar(at / entry_sets.BINS, (at + 1) / entry_sets.BINS, number) for at, number in bars)
