"""Turn a catalogue filter into a set of entries, and walk through the set in an order. Reads only.

A walk reads few entries that it does not show. It intersects stored sets of entries, searches full text in parts, and
sorts entries in small groups with similar figures.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from sqlite_utils import Database as Db

from core.catalogue import Order, PageKey
from core.data_files import DataTable
from core.image_filter import UNREAD, ImageFilter, ScoreBand
from storage.curation import entry_sets
from storage.curation.entry_sets import BYTES, CHUNK_BITS, KEY_BITS, Bits, Numbers
from storage.curation.scores import MEASURE as SCORE
from storage.engine.queries import first_column, first_value
from storage.engine.rows import whole

_PART = 8
"""Number of chunks (of 16,384 entries) that one full-text query covers."""
_FEW = 1000
"""Maximum number of figures that are looked up one by one. More figures are read in sorted order instead."""
_FIRST_BLOCK, _LARGEST_BLOCK = 256, 32_768
REASONS = 5
"""Number of different reasons to review an image. `Order` lists them."""
_QUERIES = DataTable(__file__, str)


def matching(text: str, edited: str = "") -> str | None:
    """Return a full-text query for typed words; None if there are none. Words are quoted, so none counts as syntax."""
    parts = []
    for column, typed in (("", text), ("edited : ", edited)):
        words = [word for word in whole(typed).replace("\0", " ").split() if any(map(str.isalnum, word))]
        if typed.strip() and not words:
            return None
        if words:
            quoted = ('"' + word.replace('"', '""') + '"' for word in words)
            parts.append(f"{column}({' AND '.join(quoted)})")
    return " AND ".join(parts)


@dataclass(frozen=True, eq=False)
class Held:
    """Entries that matched a filter when the filter was applied. Later decisions do not change this set."""

    bits: Bits
    strata: tuple[Bits, ...] = ()
    """For the order "information": sets of entries by number of reasons to review them, largest number first. The last
    set holds the entries with a verdict.
    """


class Selection:
    """The entries that match a filter in the snapshot of `db`, or the saved result `held` of an earlier query."""

    def __init__(self, db: Db, image_filter: ImageFilter, held: Held | None = None) -> None:
        self._db, self.filter = db, image_filter
        self._parts: dict[tuple[int, int], Bits] = {}
        self.words: str | None = ""
        """Full-text query for the search words; "" without search words, None if none of them can be found."""
        if held is not None:
            self.chunks, self.bits, self.everything = len(held.bits) // BYTES, held.bits, False
            return
        self.chunks = ((first_value(db, "SELECT max(id) FROM catalogue") or 0) >> CHUNK_BITS) + 1
        self.words = matching(image_filter.text, image_filter.edited)
        self.everything = self.words == "" and replace(image_filter, text="", edited="") == ImageFilter()
        """True if the filter excludes nothing. Then the stored counts can be used."""
        self.bits = self._without_words()
        """Set of entries that match the filter, ignoring its search words. `whole` and `part` apply those."""

    @cached_property
    def whole(self) -> Bits:
        """Return the set of all selected entries."""
        return self.part(0, self.chunks)

    @property
    def entries(self) -> list[int]:
        return entry_sets.entries_of(self.whole).tolist()

    def part(self, first: int, last: int) -> Bits:
        """Return the set of selected entries in chunks `first` up to but not including `last`."""
        bits = self.bits[first * BYTES : last * BYTES]
        if not self.words or not bits.any():
            return bits
        if (first, last) in self._parts:
            return self._parts[first, last]
        start = first << CHUNK_BITS
        listed = first_value(self._db, _QUERIES["words"], [self.words, start, last << CHUNK_BITS])
        bits = self._parts[first, last] = bits & entry_sets.of_entries(entry_sets.listed(listed) - start, last - first)
        return bits

    def counted(self, most: int) -> int:
        """Return the number of selected entries. Counting stops soon after `most`: then this is a lower bound."""
        if not self.words:
            return entry_sets.size(self.bits)
        number = 0
        for first in range(0, self.chunks, _PART):
            number += entry_sets.size(self.part(first, min(first + _PART, self.chunks)))
            if number > most:
                break
        return number

    def by_entry(self, key: int | None, backwards: bool, left_out: Bits | None = None) -> Iterator[int]:
        """Yield the numbers of selected entries in order, without `left_out`. `key` is the number to start after."""
        at = (1 << 62 if backwards else -1) if key is None else key
        first = min(max(at, 0) >> CHUNK_BITS, self.chunks - 1) // _PART
        parts = range(first, -1, -1) if backwards else range(first, -(-self.chunks // _PART))
        for part in parts:
            start, end = part * _PART, min((part + 1) * _PART, self.chunks)
            bits = self.part(start, end)
            if left_out is not None:
                bits = bits & ~left_out[start * BYTES : end * BYTES]
            offset = start << CHUNK_BITS
            for entry in entry_sets.beyond(bits, at - offset, backwards):
                yield entry + offset

    def scored(self, band: ScoreBand) -> Bits:
        """Return all entries of the catalogue whose validity score is in `band`, without its upper end."""
        low = -math.inf if band.low is None else band.low
        high = math.inf if band.high is None else math.nextafter(band.high, -math.inf)  # the float just below
        return self._between(SCORE, low, high)

    def value_of_any(self, begin: str, value: str) -> Bits:
        """Return the entries with this value in any facet whose name starts with `begin`, such as "check:"."""
        query = "SELECT facet FROM catalogue_values WHERE facet >= ? AND facet < ? AND value = ? AND entries > 0"
        bits = entry_sets.none_of(self.chunks)
        for facet in first_column(self._db, query, [begin, f"{begin[:-1]};", value]):
            bits = bits | self.having(facet, [value])
        return bits

    def stored(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield the stored chunks of the entries that have the value with this number."""
        query = f"SELECT id & {(1 << KEY_BITS) - 1}, members FROM catalogue_sets WHERE id >= ? AND id < ?"
        yield from self._db.execute(query, [number << KEY_BITS, (number + 1) << KEY_BITS])

    def common(self, number: int, entries: int) -> int:
        """Return how many selected entries have the value with this number. `entries` is how many have it at all."""
        return entries if self.everything else entry_sets.common(self.stored(number), self.whole)

    def listed(self, facet: str) -> list[tuple[int, str, int]]:
        """Return the values of a facet, each as (number, value, number of entries in the whole catalogue)."""
        query = "SELECT id, value, entries FROM catalogue_values WHERE facet = ? AND entries > 0"
        return self._db.execute(query, [facet]).fetchall()

    def _without_words(self) -> Bits:
        image_filter, none = self.filter, entry_sets.none_of(self.chunks)
        if self.words is None or image_filter.role == "source":
            return none
        bits = self.having("there", [""])
        for facet, values in image_filter.facets.items():
            bits = bits & self.of_facet(facet, values)
        for facet, values in image_filter.without.items():
            bits = bits & ~self.of_facet(facet, values)
        for check, outcomes in image_filter.checks.items():
            bits = bits & self.having(f"check:{check}", outcomes)
        for between in image_filter.between:
            bits = bits & self._between(f"check:{between.check}", between.low, between.high)
        if image_filter.scores:
            scored = entry_sets.none_of(self.chunks)
            for band in image_filter.scores:
                scored = scored | (~self.having("measure", [SCORE]) if band is None else self.scored(band))
            bits = bits & scored
        for column, value in (("run", image_filter.run), ("source", image_filter.source)):
            if value:
                bits = bits & self._rows(f"SELECT group_concat(id) FROM catalogue WHERE {column} = ?", value)
        if image_filter.test_cases:
            bits = bits & ~self.having("imported", [""])
        if image_filter.entries is not None:
            bits = bits & entry_sets.of_entries(image_filter.entries, self.chunks)
        if image_filter.images is not None:
            query = "SELECT group_concat(id) FROM catalogue WHERE image IN (SELECT value FROM json_each(?))"
            bits = bits & self._rows(query, json.dumps([whole(sha) for sha in image_filter.images]))
        if image_filter.not_in_study:
            bits = bits & ~self._rows(_QUERIES["in_study"], image_filter.not_in_study)
        for model, standings in sorted(image_filter.models.items(), reverse=True):
            of_model = f"model:{model or self.most_read(bits)}"
            with_standing = self.having(of_model, [standing for standing in standings if standing != UNREAD])
            bits = bits & (with_standing | ~self.having(of_model) if UNREAD in standings else with_standing)
        return bits

    def most_read(self, bits: Bits) -> str:
        """Return the model under test with most predictions for these entries; "" if none has any."""
        facets = sorted(first_column(self._db, _QUERIES["most_read"]))
        counts = {facet: entry_sets.size(bits & self.having(facet)) for facet in facets}
        most_common = max(facets, key=lambda facet: counts[facet], default="")  # of equal counts, the first name
        return most_common.removeprefix("model:") if counts.get(most_common) else ""

    def of_facet(self, facet: str, values: Sequence[str]) -> Bits:
        """Return all entries with one of these values of a facet. The value "" finds entries without a value."""
        bits = self.having(facet, [value for value in values if value])
        return bits | ~self.having(facet) if "" in values else bits

    def _rows(self, query: str, *values: object) -> Bits:
        return entry_sets.of_entries(entry_sets.listed(first_value(self._db, query, values)), self.chunks)

    def having(self, facet: str, values: Sequence[str] | None = None) -> Bits:
        """Return all entries of the catalogue with one of these values of a facet; with None, those with any value."""
        query = _QUERIES["values"].format(key_bits=KEY_BITS, chunk=(1 << KEY_BITS) - 1)
        named = {"facet": facet, "values": None if values is None else json.dumps([whole(value) for value in values])}
        return entry_sets.of_rows(self._db.execute(query, named), self.chunks)

    def _between(self, measure: str, low: float, high: float) -> Bits:
        """Return all entries with a figure from `low` to `high`. Figures are read only for the two bins at the ends."""
        ends = {entry_sets.bin_of(low), entry_sets.bin_of(high)}
        entry_counts = {value: size for _, value, size in self.listed(f"bin:{measure}")}
        inside = [value for value in entry_counts if min(ends) < int(value) < max(ends)]
        outside = [value for value in entry_counts if value not in inside]
        if sum(entry_counts[value] for value in inside) > sum(entry_counts[value] for value in outside):
            # Read the bins inside or outside the range, whichever have fewer entries.
            bits = self.having("measure", [measure]) & ~self.having(f"bin:{measure}", outside)
        else:
            bits = self.having(f"bin:{measure}", inside)
        if low > high:
            return entry_sets.none_of(self.chunks)
        for end in ends:
            bits = bits | self._part_of_bin(measure, end, low, high)
        return bits

    def _part_of_bin(self, measure: str, place: int, first: float, last: float) -> Bits:
        """Return a bin's entries whose figure is in a range. If the range covers more than half of the bin, read the
        figures outside it instead.
        """
        query = _QUERIES["part_of_bin"]
        low, high = entry_sets.bin_span(place)
        first, last = max(first, low), min(last, high)
        if last - first <= (high - low) / 2:
            return self._rows(f"{query} AND number >= ? AND number <= ?", measure, first, last)
        bits = self.having(f"bin:{measure}", [str(place)])
        if first > low:
            bits = bits & ~self._rows(f"{query} AND number >= ? AND number < ?", measure, low, first)
        if last < high:
            bits = bits & ~self._rows(f"{query} AND number > ? AND number <= ?", measure, last, high)
        return bits


class Walk:
    """The selected images in an order. Finds images after a key, the image at a place, and an image's place."""

    def __init__(self, db: Db, selection: Selection, order: Order) -> None:
        self._db, self._selection, self._order = db, selection, order
        self._falling = order.falling and order.sort != "source"
        measures = {"check": f"check:{order.check}", "score": SCORE, "newest": "", "oldest": ""}
        self._measure = measures.get(order.sort, order.sort)
        query = "SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = ?"
        self._number = first_value(db, query, [self._measure]) or 0

    def from_key(self, key: PageKey | None) -> Iterator[PageKey]:
        """Yield the keys of the images that come after `key`; all keys if `key` is not given."""
        if not self._measure:
            newest_first = self._order.sort == "newest"
            yield from map(PageKey, self._selection.by_entry(key.entry if key is not None else None, newest_first))
            return
        start = (key.number, key.entry) if key is not None and key.number is not None else None
        if key is None or start is not None:
            yield from self._numbered(start)
        behind = key.entry if key is not None and start is None else None
        yield from map(PageKey, self._selection.by_entry(behind, True, self._having))

    def at(self, place: int) -> PageKey | None:
        """Return the key of the image at a zero-based place of the order; None beyond the end."""
        selected, falling = self._selection.whole, True
        if not self._measure:
            falling = self._order.sort == "newest"
        elif (few := self._few()) is not None:
            if place < len(few):
                return few[place]
            place -= len(few)
            selected = selected & ~self._having
        else:
            for number, value, size in self._bins():
                inside = self._selection.common(number, size)
                if place < inside:
                    return self._at_in_bin(number, int(value), place)
                place -= inside
            selected = selected & ~self._having
        entry = entry_sets.from_place(selected, place, falling)
        return PageKey(entry) if entry is not None else None

    def place(self, entry: int) -> int | None:
        """Return the zero-based place of an entry in the order; None if the entry is not selected."""
        selected = self._selection.whole
        if not self._measure:
            return entry_sets.place_of(selected, entry, self._order.sort == "newest")
        if not entry_sets.has(selected, np.array([entry]))[0]:
            return None
        query = "SELECT number FROM catalogue_numbers WHERE entry = ? AND measure = ?"
        figure = first_value(self._db, query, [entry, self._number])
        if figure is None:
            behind = entry_sets.place_of(selected & ~self._having, entry, True)
            return None if behind is None else entry_sets.size(selected & self._having) + behind
        if (few := self._few()) is not None:
            return few.index(PageKey(entry, figure))
        place, of_entry = 0, np.array([entry])
        for number, value, size in self._bins():
            stored = list(self._selection.stored(number))
            if entry_sets.has(entry_sets.of_rows(stored, self._selection.chunks), of_entry)[0]:
                return place + self._place_in_bin(number, int(value), figure, entry)
            place += size if self._selection.everything else entry_sets.common(stored, selected)
        raise AssertionError(f"the figure of entry {entry} is in no bin")

    @cached_property
    def _having(self) -> Bits:
        return self._selection.having("measure", [self._measure])

    def _bins(self) -> list[tuple[int, str, int]]:
        bins = self._selection.listed(f"bin:{self._measure}")
        return sorted(bins, key=lambda one: int(one[1]), reverse=self._falling)

    def _numbered(self, start: tuple[float, int] | None) -> Iterator[PageKey]:
        if (few := self._few()) is not None:
            yield from self._behind(few, start)
            return
        start_bin = entry_sets.bin_of(start[0] / self._scale) if start is not None else None
        for number, value, _ in self._bins():
            if start_bin is None or (int(value) <= start_bin if self._falling else int(value) >= start_bin):
                yield from self._in_bin(number, int(value), start)

    def _few(self) -> list[PageKey] | None:
        having = self._selection.whole & self._having
        return self._looked_up(entry_sets.entries_of(having)) if entry_sets.size(having) <= _FEW else None

    def _looked_up(self, entries: Numbers) -> list[PageKey]:
        listed = json.dumps(entries.tolist())
        rows = sorted(self._db.execute(_QUERIES["looked_up"], [self._number, listed]), reverse=self._falling)
        return [PageKey(entry, number) for number, entry in rows]

    def _behind(self, keys: Iterable[PageKey], start: tuple[float, int] | None) -> Iterator[PageKey]:
        """Yield the keys after the position `start` (figure, entry), or all keys. Each key must have a figure."""
        for key in keys:
            assert key.number is not None
            position = (key.number, key.entry)
            if start is None or (position < start if self._falling else position > start):
                yield key

    @property
    def _scale(self) -> float:
        return entry_sets.REVIEWS if self._measure in ("reviewed", "source") else 1.0

    def _inside(self, number: int) -> Numbers:
        return entry_sets.inside(self._selection.stored(number), self._selection.whole)

    def _at_in_bin(self, number: int, place: int, offset: int) -> PageKey | None:
        falling = self._falling
        inside = entry_sets.of_rows(self._selection.stored(number), self._selection.chunks)
        if (inside & ~self._selection.whole).any():
            return next(islice(self._in_bin(number, place), offset, None), None)
        # Nothing is filtered out, so SQLite can count through the bin, once it is known how many figures at its very
        # edge belong to the neighbouring bin.
        low, high = (edge * self._scale for edge in entry_sets.bin_span(place))
        edge = 2 * entry_sets.SLACK * self._scale
        ends = (high - edge, high) if falling else (low, low + edge)
        query = "FROM catalogue_numbers WHERE measure = ? AND number >= ? AND number <= ?"
        at_edge = entry_sets.listed(first_value(self._db, f"SELECT group_concat(entry) {query}", [self._number, *ends]))
        neighbours = len(at_edge) - int(entry_sets.has(inside, at_edge).sum())
        order = "DESC" if falling else "ASC"
        one = f"SELECT number, entry {query} ORDER BY number {order}, entry {order} LIMIT 1 OFFSET ?"
        row = self._db.execute(one, [self._number, low, high, offset + neighbours]).fetchone()
        return PageKey(row[1], row[0]) if row is not None else None

    def _place_in_bin(self, number: int, place: int, figure: float, entry: int) -> int:
        """Return the number of selected entries that come before `entry` in its bin."""
        low, high = (edge * self._scale for edge in entry_sets.bin_span(place))
        sign, last = (">", "number <= :high") if self._falling else ("<", "number >= :low")
        query = _QUERIES["before_in_bin"].format(last=last, sign=sign)
        values = {"measure": self._number, "low": low, "high": high, "figure": figure, "entry": entry}
        inside = entry_sets.of_entries(self._inside(number), self._selection.chunks)
        return int(entry_sets.has(inside, entry_sets.listed(first_value(self._db, query, values))).sum())

    def _in_bin(self, number: int, place: int, start: tuple[float, int] | None = None) -> Iterator[PageKey]:
        """Yield the keys of one bin in order, after the position `start` (figure, entry)."""
        entries, falling = self._inside(number), self._falling
        if len(entries) <= _FEW:
            yield from self._behind(self._looked_up(entries), start)
            return
        inside = entry_sets.of_entries(entries, self._selection.chunks)
        sign, order = ("<", "DESC") if falling else (">", "ASC")
        low, high = (edge * self._scale for edge in entry_sets.bin_span(place))
        at = start or ((high, 1 << 62) if falling else (low, 0))
        block = _FIRST_BLOCK
        while True:
            query = _QUERIES["block_of_bin"].format(sign=sign, order=order, block=block)
            rows = self._db.execute(query, [self._number, *at]).fetchall()
            if not rows:
                return
            is_selected = entry_sets.has(inside, np.array([entry for _, entry in rows], dtype=np.int64))
            for place_in_block in is_selected.nonzero()[0]:
                figure, entry = rows[place_in_block]
                yield PageKey(entry, figure)
            at, block = rows[-1], min(4 * block, _LARGEST_BLOCK)
            if (at[0] < low) if falling else (at[0] > high):
                return


class InformationWalk:
    """Order by number of reasons to review an image, largest first. A stratum holds images with the same number."""

    def __init__(self, selection: Selection, strata: Sequence[Bits]) -> None:
        self._selection, self._strata = selection, strata

    def from_key(self, key: PageKey | None) -> Iterator[PageKey]:
        """Yield the keys after `key`. A verdict may change the stratum of an image, but not the stratum in its key."""
        start = self._stratum(key) if key is not None else 0
        for number in range(start, len(self._strata)):
            behind = key.entry if key is not None and number == start else None
            for entry in self._selection.by_entry(behind, True, ~self._strata[number]):
                yield self._key(entry, number)

    def at(self, place: int) -> PageKey | None:
        """Return the key of the image at a zero-based place of the order; None beyond the end."""
        for number, stratum in enumerate(self._strata):
            inside = stratum & self._selection.whole
            if place < (size := entry_sets.size(inside)):
                entry = entry_sets.from_place(inside, place, True)
                return self._key(entry, number) if entry is not None else None
            place -= size
        return None

    def place(self, entry: int) -> int | None:
        """Return the zero-based place of an entry in the order; None if the entry is not selected."""
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
    """Return the images that match a filter, or the `held` ones, in an order that can be walked from any place."""
    selection = Selection(db, image_filter, held)
    if order.sort != "information":
        return Walk(db, selection, order)
    return InformationWalk(selection, held.strata if held is not None and held.strata else _strata(db, selection))


def hold(db: Db, image_filter: ImageFilter, order: Order) -> Held:
    """Return the images that match a filter now. The result stays the same when verdicts change what matches.

    A set of a million images takes 125 kB. For the order "information", seven further sets store the order. Other
    orders are not stored. In the order "reviewed", an image therefore moves when it gets a verdict.
    """
    selection = Selection(db, image_filter)
    return Held(selection.whole, _strata(db, selection) if order.sort == "information" else ())


def _strata(db: Db, selection: Selection) -> tuple[Bits, ...]:
    """Return sets of entries by number of reasons to review, most first. The last set holds entries with a verdict."""
    decided = selection.having("review", ["accepted", "rejected"])
    open_ones = selection.bits & ~decided
    reasons = (
        selection.value_of_any("check:", "cannot tell"),
        selection.value_of_any("check:", "failed"),
        selection.having("study", ["no consensus"]),
        selection.value_of_any("model:", "newly wrong"),
        _without_decision(db, selection, open_ones),
    )
    assert len(reasons) == REASONS
    # Add up each entry's reasons as binary numbers, with one array for each digit.
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
    if not first_value(db, reviewed):
        return open_ones
    places: dict[str, list[str]] = defaultdict(list)
    for line, place in db.execute(_QUERIES["open_cells"]):
        places[line].append(place)
    lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line, unreviewed in places.items():
        lines[tuple(unreviewed)].append(line)
    in_open_cells = entry_sets.none_of(selection.chunks)
    for held_places, held_lines in lines.items():
        in_open_cells |= selection.of_facet("class", held_lines) & selection.of_facet("edit type", held_places)
    return in_open_cells


def counts(selection: Selection, facets: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Count the selected entries by facet and value. `facets` maps each facet to the maximum number of values. The
    values that are most common in the whole catalogue are counted.
    """

    counts_by_facet: dict[str, dict[str, int]] = {}
    for facet, most in facets.items():
        values = sorted(selection.listed(facet), key=lambda one: (-one[2], one[1]))[:most]
        counts_by_facet[facet] = {value: selection.common(number, entries) for number, value, entries in values}
    return counts_by_facet
