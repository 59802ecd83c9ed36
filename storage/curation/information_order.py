"""The order of the catalogue by information gained from a look at an image. Reads only.

Each reason to look at an image is a set of the catalogue; the number of sets that contain an image is its rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlite_utils import Database as Db

from core.catalogue import Order, PageKey
from core.image_filter import ImageFilter
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits
from storage.curation.selection import Held, Selection, Walk

REASONS = 5
"""Number of reasons to look at an image: `Order` lists them."""


class InformationWalk:
    """A selection ordered by information: strata of images with equally many reasons, newest first in each."""

    def __init__(self, selection: Selection, strata: Sequence[Bits]) -> None:
        self._selection, self._strata = selection, strata

    def from_key(self, key: PageKey | None, backwards: bool = False) -> Iterator[PageKey]:
        """Yield keys as `Walk.from_key` does. A key holds its stratum, so it stays in place when its image gets a
        verdict.
        """
        start = self._stratum(key) if key is not None else (len(self._strata) - 1 if backwards else 0)
        for number in range(start, -1, -1) if backwards else range(start, len(self._strata)):
            behind = key.entry if key is not None and number == start else None
            for entry in self._selection.by_entry(behind, not backwards, ~self._strata[number]):
                yield self._key(entry, number)

    def at(self, place: int) -> PageKey | None:
        """Return the key at a zero-based place; None beyond the end."""
        for number, stratum in enumerate(self._strata):
            inside = stratum & self._selection.whole
            if place < (size := entry_sets.size(inside)):
                entry = entry_sets.from_place(inside, place, True)
                return self._key(entry, number) if entry is not None else None
            place -= size
        return None

    def place(self, entry: int) -> int | None:
        """Return the zero-based place of an entry; None if it is not in the selection."""
        before = 0
        for stratum in self._strata:
            inside = stratum & self._selection.whole
            place = entry_sets.place_of(inside, entry, True)
            if place is not None:
                return before + place
            before += entry_sets.size(inside)
        return None

    @staticmethod
    def _key(entry: int, stratum: int) -> PageKey:
        return PageKey(entry, float(REASONS - stratum) if stratum <= REASONS else None)

    @staticmethod
    def _stratum(key: PageKey) -> int:
        return REASONS - int(min(max(key.number, 0), REASONS)) if key.number is not None else REASONS + 1


def walk(db: Db, image_filter: ImageFilter, order: Order, held: Held | None = None) -> Walk | InformationWalk:
    """Return the walk through the images of a filter in an order, or through the `held` ones."""
    selection = Selection(db, image_filter, held)
    if order.sort != "information":
        return Walk(db, selection, order)
    return InformationWalk(selection, held.strata if held is not None and held.strata else _strata(db, selection))


def hold(db: Db, image_filter: ImageFilter, order: Order) -> Held:
    """Return the images that match now, for a review whose decisions change the match. A million take 125 kB, or seven
    times that by information, whose order is fixed too. Other orders keep following decisions: "reviewed" moves an
    image that gets a verdict.
    """
    selection = Selection(db, image_filter)
    return Held(selection.whole, _strata(db, selection) if order.sort == "information" else ())


def _strata(db: Db, selection: Selection) -> tuple[Bits, ...]:
    """Return the entries without a verdict by descending number of reasons, then those with one."""
    decided = selection.value("review", "accepted", "rejected")
    open_ones = selection.bits & ~decided
    reasons = (
        selection.value_of_any("check:", "cannot tell"),
        selection.value_of_any("check:", "failed"),
        selection.value("study", "no consensus"),
        selection.value_of_any("model:", "newly wrong"),
        _without_decision(db, selection, open_ones),
    )
    assert len(reasons) == REASONS
    # Add up each entry's reasons in binary, one array a digit: a hundred thousand bytes at once.
    ones, twos, fours = (entry_sets.none_of(selection.chunks) for _ in range(3))
    for reason in reasons:
        carry = ones & reason
        ones, twos, fours = ones ^ reason, twos ^ carry, fours | (twos & carry)
    strata = []
    for number in range(REASONS, -1, -1):
        bits = open_ones
        for digit, digit_bits in ((1, ones), (2, twos), (4, fours)):
            bits = bits & (digit_bits if number & digit else ~digit_bits)
        strata.append(bits)
    return (*strata, selection.bits & decided)


def _without_decision(db: Db, selection: Selection, open_ones: Bits) -> Bits:
    reviewed = "SELECT 1 FROM catalogue_values WHERE facet = 'review' AND value <> 'open' AND entries > 0"
    if db.execute(reviewed).fetchone() is None:
        return open_ones
    query = """
        SELECT line, place FROM catalogue_cells
        WHERE grid = 'class x edit type' AND facet = 'review' AND entries > 0
        GROUP BY line, place HAVING max(value <> 'open') = 0
    """
    places: dict[str, list[str]] = defaultdict(list)
    for line, place in db.execute(query):
        places[line].append(place)
    lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line, unreviewed in places.items():
        lines[tuple(unreviewed)].append(line)
    in_open_cells = entry_sets.none_of(selection.chunks)
    for held_places, held_lines in lines.items():
        of_lines, of_places = (
            selection.value(facet, *values) | (~selection.having(facet) if "" in values else 0)
            for facet, values in (("class", held_lines), ("edit type", held_places))
        )
        in_open_cells |= of_lines & of_places
    return in_open_cells
