"""What a whole data set is to the studio: items by stable keys, and their images and masks when their turn comes.

A data set is read where it lies: nothing of it is copied or unpacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from core.batches import Item
from formats.types import Report, ReportRow


@dataclass(frozen=True)
class Content:
    """The files of an item, which have been looked at: the image can be decoded, and the mask fits it."""

    image: bytes
    """The file as it lies in the set."""
    mask: bytes | None = None
    """A PNG of mode L: a number of the set's `mask_classes` at every pixel, 255 for no class. None without a mask."""


class DataSet(Protocol):
    """Any thread may read it. Another process opens it anew."""

    layout: str
    """A name of `LAYOUTS`."""
    title: str
    licence: str
    """In words, with the address of its terms; "" where nobody can tell."""
    split: str
    """The split that was opened, as its items have it; "" for a set that is not split."""
    classes: tuple[str, ...]
    """The labels that there are; empty where the set has none, or takes any."""
    mask_classes: Mapping[int, str]
    """The names of the numbers in the masks; empty for a set without masks."""

    @property
    def left_out(self) -> Sequence[ReportRow]:
        """What opening the set and the latest run through `items` had to tell: files and rows that are no items."""

    def count(self) -> int:
        """How many items there are. No image is opened."""

    def items(self) -> Iterator[Item]:
        """The items in an order that stays the same. No image is opened, and no list of all is kept for them."""

    def read(self, key: str, stamp: str = "") -> Content:
        """The files of an item.

        Raises UserError, in a sentence that does not name the item, for a file that is missing, broken or (with the
        item's `stamp`) changed since, an image that the studio cannot use, a mask of another size or with class
        numbers without a name, a mask that is missing where the split has masks, and a label outside `classes`.
        """


Open = Callable[[Path, str, Mapping[str, str], Report], DataSet]
"""Opens the data set at a path: its split, "" for not said, and the options of the layout."""


@dataclass(frozen=True)
class Layout:
    """A form in which data sets are published."""

    title: str
    expected: str
    """What has to lie at the path, in words."""
    open: Open
    options: Mapping[str, str] = field(default_factory=dict)
    """What else can be said, and what it means, by name."""
