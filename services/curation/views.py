"""A view of the catalogue: a filter and an order, as written in the address of the gallery.

A view is a query, so its images change with the workspace. A test set is a fixed list of images.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from core.catalogue import Order
from core.errors import UserError
from core.image_filter import FACETS, FIELD, LONGEST_VALUE, ImageFilter, packed, pairs_of
from services.edit_conflicts import LARGEST_ID

MOST_CORNERS = 200
"""Maximum number of corners of a region of the map."""
REST = ("others", "none")
"""Names on the map for images whose values have no colour of their own, and for images without a value."""
MOST_COLOURS = 30
"""Maximum number of map colours that the address of a view may list, including the names in `REST`."""
LONGEST_LIST = 14_000
_ONCE = ("like", "near", "picture", "alike", "region", "sort", "falling")
_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ShownColours:
    """Colours shown on the map when a region was picked. An image is coloured by its first value of the facet `by`."""

    by: str
    """Facet that the colours represent, or "model:" and the name of a model under test."""
    values: tuple[tuple[str, bool], ...] = ()
    """Values with their own colour, in legend order, each with True if it is shown."""
    others: bool = False
    """True if images are shown whose values have no colour of their own."""
    none: bool = False
    """True if images without a value are shown."""

    @property
    def parts(self) -> list[str]:
        """Return the colours as texts for the address of a view. Inverse of `of`."""
        shown = [f"{'+' if shown else '-'}{value}" for value, shown in self.values]
        return [self.by, *shown, *(name for name in REST if getattr(self, name))]

    @staticmethod
    def of(parts: list[str]) -> ShownColours | None:
        """Return the colours from the texts of `parts`; None if there are none. Raises UserError for invalid texts."""
        if not parts:
            return None
        by, *shown = parts
        if by not in FACETS and (not by.startswith("model:") or by == "model:"):
            raise _unreadable("colours", by)
        for one in shown:
            if one not in REST and (one[0] not in "+-" or len(one) == 1):
                raise _unreadable("colours", one)
        if len(shown) > MOST_COLOURS:
            raise UserError(f"These are too many colours: at most {MOST_COLOURS} are allowed.", field=FIELD)
        values = tuple((one[1:], one[0] == "+") for one in shown if one not in REST)
        return ShownColours(by, values, "others" in shown, "none" in shown)


@dataclass(frozen=True)
class View:
    """A selection of images and their order."""

    filter: ImageFilter = field(default_factory=ImageFilter)
    order: Order = field(default_factory=Order)
    like: str = ""
    """Text to search for; images that match best come first. "" for no search."""
    near: int = 0
    """Id of an entry to search for; the most similar images come first. 0 for no search."""
    picture: str = ""
    """SHA-256 of a user's stored picture to search for; the most similar images come first. "" for no search."""
    alike: bool = False
    """True to select only near-duplicates: images that look nearly like another image of the view."""
    grouped: bool = False
    """True to sort near-duplicates by group, ignoring `order`."""
    region: tuple[tuple[float, float], ...] = ()
    """Corners of a region of the map. Only images inside are selected; () for no region."""
    colours: ShownColours | None = None
    """Colours that select images in the region; None to select all images in the region."""

    @property
    def ranked(self) -> bool:
        """Return True if the images are sorted by similarity to a search target, so that `order` is ignored."""
        return bool(self.like or self.near or self.picture)

    @property
    def is_filter(self) -> bool:
        """Return True if the view selects by `filter` alone, without a search, near-duplicates or a map region."""
        return not (self.ranked or self.alike or self.region)

    @staticmethod
    def read(text: str) -> View:
        """Parse the query part of an address. Inverse of `address`. Raises UserError if a part is invalid."""
        return View.of(pairs_of(text))

    @staticmethod
    def of(pairs: Iterable[tuple[str, str]]) -> View:
        """Parse (name, value) pairs. If a single-valued name repeats, its last value counts. Raises UserError."""
        of_filter: list[tuple[str, str]] = []
        colours: list[str] = []
        once: dict[str, str] = {}
        for name, value in pairs:
            if name not in _ONCE and name != "colours":
                of_filter.append((name, value))
            elif not value or (len(value) > LONGEST_VALUE and name != "region"):
                raise _unreadable(name, value)
            elif name == "colours":
                colours.append(value)
            else:
                once[name] = value
        return View(
            ImageFilter.of(of_filter),
            Order.read(once.get("sort", ""), "falling" in once),
            once.get("like", ""),
            _entry(once.get("near", "")),
            _picture(once.get("picture", "")),
            "alike" in once,
            "alike" in once and "sort" not in once,
            _region(once.get("region", "")),
            ShownColours.of(colours),
        )

    def toggled(self, name: str, value: str) -> View:
        """Return the view with the part `name`=`value` added, or removed if the view has it."""
        pair = name, value
        return View.of([one for one in self.pairs if one != pair] if pair in self.pairs else [*self.pairs, pair])

    def without(self, name: str, begin: str = "") -> View:
        """Return the view without the parts called `name` whose value begins with `begin`."""
        return View.of([(one, value) for one, value in self.pairs if one != name or not value.startswith(begin)])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the view as names and values, the inverse of `of`. Equal views return equal pairs."""
        once = {"like": self.like, "near": self.near, "picture": self.picture, "alike": int(self.alike)}
        pairs = self.filter.pairs + [(name, str(value)) for name, value in once.items() if value]
        if self.region:
            pairs.append(("region", " ".join(f"{x:g},{y:g}" for x, y in self.region)))
            pairs += [("colours", part) for part in self.colours.parts] if self.colours is not None else []
        return pairs + self.sort_pairs

    @property
    def sort_pairs(self) -> list[tuple[str, str]]:
        """Return the order as names and values for an address; [] for the default order. The default is by group for
        near-duplicates, and newest first for other views.
        """
        sort = self.order.address or ("newest" if self.alike else "")
        if self.grouped or not sort:
            return []
        return [("sort", sort)] + ([("falling", "1")] if self.order.falling else [])

    @property
    def address(self) -> str:
        """Return the view as the query part of an address; "" for all images, the newest first."""
        return urlencode(self.pairs)


def filter_of(query: Any) -> Any:
    """Return the filter given as the query part of an address, or as a mapping of names to a value or a list of values.
    A sort order in the query is ignored, so that any address of the gallery can be used as a filter. Return a `query`
    of another type unchanged.

    Raises UserError if a part is invalid, or selects by similarity or a map region, which filters cannot do.
    """
    if isinstance(query, Mapping):
        listed = {str(name): value if isinstance(value, list | tuple) else [value] for name, value in query.items()}
        view = View.of((name, str(value)) for name, values in listed.items() for value in values)
    elif isinstance(query, str):
        view = View.read(query)
    else:
        return query
    if not view.is_filter:
        raise UserError(
            "A search by similarity and a map region cannot be used as filters. Remove them, or put the images found "
            "into a test set.",
            field=FIELD,
        )
    return view.filter


Filter = Annotated[
    ImageFilter,
    BeforeValidator(filter_of),
    PlainSerializer(lambda image_filter: image_filter.address),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]
"""Type of a command's field for a filter: the part of a gallery address after “?”, such as “class=bird&review=open”, or
an object with the same names and values.
"""
WHICH = "Which images: a filter as count_test_cases describes it, such as “class=bird&review=open”; empty for all"
"""Description of a field for a filter."""


def gallery_address(shown: View | ImageFilter | None = None) -> str:
    """Return the address at which the gallery shows a view or a filter."""
    return f"/curate/?{shown.address}" if shown is not None and shown.address else "/curate/"


def list_address(entries: Sequence[int]) -> str:
    """Return the gallery address that shows exactly these entries. Raises UserError if they are too many."""
    if len(packed(entries)) > LONGEST_LIST:
        raise UserError(
            f"These {len(entries):,} images are too many to list in an address: choose fewer images, or use a filter "
            "instead."
        )
    return gallery_address(ImageFilter(entries=tuple(entries)))


def _unreadable(name: str, value: str) -> UserError:
    return UserError(f"“{name[:40]}={value[:80]}” cannot be read: take it out of the address.", field=FIELD)


def _entry(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= LARGEST_ID):
        raise _unreadable("near", text)
    return int(text)


def _picture(text: str) -> str:
    if text and not _SHA.fullmatch(text):
        raise _unreadable("picture", text)
    return text


def _region(text: str) -> tuple[tuple[float, float], ...]:
    if not text:
        return ()
    try:
        corners = tuple((float(x), float(y)) for x, _, y in (corner.partition(",") for corner in text.split()))
    except ValueError:
        raise _unreadable("region", text) from None
    if not 3 <= len(corners) <= MOST_CORNERS or not all(math.isfinite(place) for corner in corners for place in corner):
        raise _unreadable("region", text)
    return corners
