"""What somebody looks at in the catalogue, as the address of the gallery says it: a filter, and an order.

A view is a question: what fits it changes with the workspace. A test set is a list, and never changes by itself.
"""

from __future__ import annotations

import math
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
from pydantic import Field

from core.catalogue import FACETS, SORTS, STANDINGS, Between, CatalogueFilter, Facet, Order, ScoreBand
from core.errors import UserError
from services.edit_conflicts import LARGEST_ID
from storage.curation.selection import UNREAD

LONGEST_VIEW = 16_000
"""Characters of a view: browsers and servers take an address of so many."""
MOST_PARTS = 200
LONGEST_VALUE = 1200
MOST_CORNERS = 200
"""Corners of a region of the map."""
REST = ("others", "none")
"""What the map calls images that have only values without a colour of their own, and those that have no value."""
MOST_COLOURS = 30
"""Colours of the map that a view may name."""
CHECK_OUTCOMES = ("passed", "failed", "cannot tell")
ViewText = Annotated[
    str,
    Field(
        max_length=LONGEST_VIEW,
        description="A filter and an order as the address of the gallery says them behind its “?”, such as "
        "class=bird&review=open",
    ),
]
"""A field of a command that takes a view."""
NONE = "none"
"""Names, in an address, a facet of which images have no value; or the score, where they have none."""
SCORE = "score"
LONGEST_LIST = 14_000
_LARGEST_SET = 2_000_000
"""Bytes of a list of entries, unpacked: 16 million of them."""
_ONCE = ("entries", "run", "source", "text", "edited", "like", "near", "alike", "region", "sort", "falling")


@dataclass(frozen=True)
class ShownColours:
    """Which colours of the map were shown when a region of it was picked: an image has the colour of the first value
    that it has, whatever else it has.
    """

    by: str
    """What the points are coloured by: a facet, or "model:" and the name of a model under test."""
    values: tuple[tuple[str, bool], ...] = ()
    """Those with a colour of their own, in the order of the legend, and whether they are shown."""
    others: bool = False
    """Whether images that have only other values are shown."""
    none: bool = False
    """Whether images that have no value are shown."""

    @property
    def parts(self) -> list[str]:
        """What an address says."""
        shown = [f"{'+' if shown else '-'}{value}" for value, shown in self.values]
        return [self.by, *shown, *(name for name in REST if getattr(self, name))]

    @staticmethod
    def of(parts: list[str]) -> ShownColours | None:
        """What such parts say; None where there are none. Raises UserError for parts that mean nothing."""
        if not parts:
            return None
        by, *shown = parts
        if by not in FACETS and (not by.startswith("model:") or by == "model:"):
            raise _meaningless("colours", by)
        for one in shown:
            if one not in REST and (one[0] not in "+-" or len(one) == 1):
                raise _meaningless("colours", one)
        if len(shown) > MOST_COLOURS:
            raise UserError(f"These are too many colours: at most {MOST_COLOURS} are taken.", field="view")
        values = tuple((one[1:], one[0] == "+") for one in shown if one not in REST)
        return ShownColours(by, values, "others" in shown, "none" in shown)


@dataclass(frozen=True)
class View:
    """Which images are looked at, and in which order."""

    wanted: CatalogueFilter = field(default_factory=CatalogueFilter)
    order: Order = field(default_factory=Order)
    like: str = ""
    """Words that say what the images show; those that show it most stand first. "" for none."""
    near: int = 0
    """The entry that the images look like, the most alike first; 0 for none."""
    alike: bool = False
    """Only images that look like another one of them, group by group."""
    region: tuple[tuple[float, float], ...] = ()
    """The corners of a region of the map that they lie in; () for none."""
    colours: ShownColours | None = None
    """Those that the region means, and it goes with it; None for all."""

    @property
    def by_meaning(self) -> bool:
        """The order is that of what the images show, and `order` does not count."""
        return bool(self.like or self.near or self.alike)

    @property
    def is_filter(self) -> bool:
        """Whether `wanted` says all of it: what is near on the map, or looks alike, no filter can say."""
        return not (self.by_meaning or self.region)

    @staticmethod
    def read(text: str) -> View:
        """The view that a text says. Raises UserError for what says none."""
        if len(text) > LONGEST_VIEW:
            raise UserError(f"This filter is too long: at most {LONGEST_VIEW} characters are taken.", field="view")
        try:
            pairs = parse_qsl(text.removeprefix("?"), max_num_fields=MOST_PARTS)
        except ValueError as error:
            raise UserError(f"This filter has too many parts: at most {MOST_PARTS} are taken.", field="view") from error
        return View.of(pairs)

    @staticmethod
    def of(pairs: Iterable[tuple[str, str]]) -> View:
        """The view that these names and values say. What is said twice of what can be said once counts as it was said
        last. Raises UserError for a name or a value that means nothing.
        """
        facets: dict[Facet, list[str]] = defaultdict(list)
        without: dict[Facet, list[str]] = defaultdict(list)
        checks: dict[str, list[str]] = defaultdict(list)
        models: dict[str, list[str]] = defaultdict(list)
        between: list[Between] = []
        scores: list[ScoreBand | None] = []
        colours: list[str] = []
        once: dict[str, str] = {}
        for name, value in pairs:
            if not value or (len(value) > LONGEST_VALUE and name not in ("region", "entries")):
                raise _meaningless(name, value)
            if name in FACETS:
                facets[name].append(value)  # type: ignore[index]
            elif name.startswith("-") and name[1:] in FACETS:
                without[name[1:]].append(value)  # type: ignore[index]
            elif name == NONE and value in FACETS:
                facets[value].append("")  # type: ignore[index]
            elif name == NONE and value == SCORE:
                scores.append(None)
            elif name == "check":
                check, _, outcome = value.rpartition(":")
                checks[check].append(_one_of(name, value, outcome, CHECK_OUTCOMES))
            elif name == "model":
                model, _, standing = value.rpartition(":")
                models[model].append(_one_of(name, value, standing, (*STANDINGS, UNREAD)))
            elif name == "range":
                between.append(_range(value))
            elif name == SCORE:
                scores.append(_band(value))
            elif name == "colours":
                colours.append(value)
            elif name in _ONCE:
                once[name] = value
            else:
                raise _meaningless(name, value)
        wanted = CatalogueFilter(
            facets={name: tuple(dict.fromkeys(values)) for name, values in facets.items()},
            without={name: tuple(dict.fromkeys(values)) for name, values in without.items()},
            checks={name: tuple(dict.fromkeys(values)) for name, values in checks.items()},
            models={name: tuple(dict.fromkeys(values)) for name, values in models.items()},
            between=tuple(between),
            scores=tuple(dict.fromkeys(scores)),
            run=once.get("run", ""),
            source=once.get("source", ""),
            text=once.get("text", ""),
            edited=once.get("edited", ""),
            within=_unpacked(once["entries"]) if "entries" in once else None,
        )
        return View(
            wanted,
            _order(once.get("sort", ""), "falling" in once),
            once.get("like", ""),
            _entry(once.get("near", "")),
            "alike" in once,
            _region(once.get("region", "")),
            ShownColours.of(colours),
        )

    def without_range(self, check: str) -> View:
        """The same, whatever the figure of a check."""
        between = tuple(one for one in self.wanted.between if one.check != check)
        return replace(self, wanted=replace(self.wanted, between=between))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """What `of` reads: the same view gives the same pairs."""
        wanted, order = self.wanted, self.order
        pairs = [
            (str(name), value) if value else (NONE, name) for name, values in wanted.facets.items() for value in values
        ]
        pairs += [(f"-{name}", value) for name, values in wanted.without.items() for value in values]
        pairs += [("check", f"{name}:{value}") for name, values in wanted.checks.items() for value in values]
        pairs += [("model", f"{name}:{value}") for name, values in wanted.models.items() for value in values]
        pairs += [("range", f"{one.check}:{one.low:g}:{one.high:g}") for one in wanted.between]
        pairs += [(SCORE, band_text(one)) if one is not None else (NONE, SCORE) for one in wanted.scores]
        once = {name: getattr(wanted, name) for name in ("run", "source", "text", "edited")} | {"like": self.like}
        pairs += [(name, value) for name, value in once.items() if value]
        if wanted.within is not None:
            pairs.append(("entries", _packed(wanted.within)))
        if self.near:
            pairs.append(("near", str(self.near)))
        if self.alike:
            pairs.append(("alike", "1"))
        if self.region:
            pairs.append(("region", " ".join(f"{x:g},{y:g}" for x, y in self.region)))
            pairs += [("colours", part) for part in self.colours.parts] if self.colours is not None else []
        if order.sort != "newest":
            pairs.append(("sort", f"{order.sort}:{order.check}" if order.check else order.sort))
        if order.falling:
            pairs.append(("falling", "1"))
        return pairs

    @property
    def text(self) -> str:
        """What `read` reads; "" for all images, the newest first."""
        return urlencode(self.pairs)


def address(view: View | None = None, page: str = "/curate/") -> str:
    """Where the gallery shows a view."""
    text = view.text if view is not None else ""
    return f"{page}?{text}" if text else page


def facet_view(facets: Mapping[Facet, tuple[str, ...]], **more: Any) -> View:
    """All images that have these values."""
    return View(CatalogueFilter(facets=facets, **more))


def list_address(entries: Sequence[int]) -> str:
    """Where the gallery shows a list of entries that no filter says, such as the images behind a figure. Raises
    UserError for one that no address can hold.
    """
    if len(_packed(entries)) > LONGEST_LIST:
        raise UserError(
            f"These are {len(entries):,} images without a filter in common, which no address can hold: open a number "
            "with fewer images, or begin from a filter."
        )
    return address(View(CatalogueFilter(within=tuple(entries))))


def _packed(entries: Sequence[int]) -> str:
    """Entries as letters and digits: a bit each, compressed."""
    if not entries:
        return "0"
    bits = np.zeros(max(entries) + 1, bool)
    bits[list(entries)] = True
    return urlsafe_b64encode(zlib.compress(np.packbits(bits, bitorder="little").tobytes(), 9)).decode().rstrip("=")


def _unpacked(text: str) -> tuple[int, ...]:
    if text == "0":
        return ()
    try:
        packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        bits = zlib.decompressobj().decompress(packed, _LARGEST_SET)
    except (ValueError, zlib.error):
        raise _meaningless("entries", text) from None
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")).tolist())


def _meaningless(name: str, value: str) -> UserError:
    return UserError(
        f"“{name[:40]}={value[:80]}” is no part of a filter here: take it out of the address.", field="view"
    )


def _one_of(name: str, value: str, held: str, known: tuple[str, ...]) -> str:
    if held not in known or held == value:
        raise _meaningless(name, value)
    return held


def _range(value: str) -> Between:
    try:
        check, low, high = value.rsplit(":", 2)
        between = Between(check, float(low), float(high))
    except ValueError:
        raise _meaningless("range", value) from None
    if not check or not (math.isfinite(between.low) and math.isfinite(between.high)):
        raise _meaningless("range", value)
    return between


def band_text(band: ScoreBand) -> str:
    """A band of scores as an address says it, such as "0.5:" for all from 0.5 on."""
    return ":".join("" if end is None else f"{end:g}" for end in (band.low, band.high))


def _band(value: str) -> ScoreBand:
    low, colon, high = value.partition(":")
    try:
        band = ScoreBand(*(float(end) if end else None for end in (low, high)))
    except ValueError:
        raise _meaningless(SCORE, value) from None
    if not colon or not all(math.isfinite(end) for end in (band.low, band.high) if end is not None):
        raise _meaningless(SCORE, value)
    return band


def _order(text: str, falling: bool) -> Order:
    sort, _, check = text.partition(":")
    if not text:
        return Order(falling=falling)
    if sort not in SORTS or (sort == "check") != bool(check):
        raise _meaningless("sort", text)
    return Order(sort, check, falling)  # type: ignore[arg-type]


def _entry(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= LARGEST_ID):
        raise _meaningless("near", text)
    return int(text)


def _region(text: str) -> tuple[tuple[float, float], ...]:
    if not text:
        return ()
    try:
        corners = tuple((float(x), float(y)) for x, _, y in (corner.partition(",") for corner in text.split()))
    except ValueError:
        raise _meaningless("region", text) from None
    if not 3 <= len(corners) <= MOST_CORNERS or not all(math.isfinite(place) for corner in corners for place in corner):
        raise _meaningless("region", text)
    return corners
