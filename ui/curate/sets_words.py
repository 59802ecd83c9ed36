"""Constants, addresses and texts that the pages of test sets share. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from core.data_files import DataTable
from core.image_filter import ImageFilter
from core.test_sets import SPLITS, EntryCount, Review, SetVersion, ShownEntry, Split, TestSet, split_to_load
from services.test_sets.drafts import Readiness
from services.work_queue import WorkView
from ui.explore.parts import Tone
from ui.markup import Html
from ui.templating import render

SETS = "/curate/sets"
SHORT = 12
"""Number of characters of an id that pages show."""
PAGE = 120
"""Maximum number of images on one page of a list."""
SPLIT_WORDS: Mapping[Split, str] = {"train": "train", "validation": "validation", "test": "test", "": "no split"}
SHORT_SPLITS: Mapping[Split, str] = {**SPLIT_WORDS, "validation": "val."}
REVIEW_WORDS: Mapping[Review, tuple[str, Tone]] = {
    "accepted": ("accepted", "ok"),
    "rejected": ("rejected", "bad"),
    "open": ("not reviewed", "warn"),
    "none": ("", ""),
}


OBSTACLE_WORDS: Mapping[str, str] = {
    "empty": "Add images",
    "not accepted": "Not accepted",
    "no split": "Without a split",
    "leak": "In two splits",
    "unchanged": "No change yet",
}


@dataclass(frozen=True)
class FormatWords:
    """Instructions to load a test set of one format: programs that can load it, and a line of Python."""

    loads: str
    line: str
    """Line of Python that loads the format. SET is replaced by the unpacked folder."""
    folders: Mapping[str, str] = field(default_factory=lambda: {"validation": "validation", "": "unsplit"})
    """Folder name by split. The key "" is for images without a split. Any other split gives its name to its folder."""

    def line_of(self, folder: str, splits: Collection[Split]) -> str:
        """Return the line of Python that loads the test split from `folder`, or another split if none exists."""
        split = split_to_load(splits)
        return self.line.replace("test", self.folders.get(split, split)).replace("SET", folder)


FORMATS = DataTable(__file__, FormatWords)


@dataclass(frozen=True)
class SetPlace:
    """Filter and page number of the images on a set's page, as its address states them."""

    filter: ImageFilter = field(default_factory=ImageFilter)
    against: str = ""
    """Kind of obstacle to the release. Only images with it are shown; "" shows all."""
    page: int = 1

    @property
    def query(self) -> dict[str, list[str]]:
        """Return the parameters of the address, without the number of the page."""
        parts = defaultdict[str, list[str]](list)
        for name, value in self.filter.pairs + ([("against", self.against)] if self.against else []):
            parts[name].append(value)
        return dict(parts)


@dataclass(frozen=True)
class ShownVersion:
    """Values that the page of a set shows."""

    held: TestSet
    version: SetVersion
    place: SetPlace
    entries: Sequence[ShownEntry]
    found: int
    """Number of images that match the filter, on all pages of the list."""
    counts: Sequence[EntryCount]
    readiness: Readiness | None
    """Obstacles to the release of a draft; None for a released version."""
    exports: Sequence[WorkView]
    """Exports of the version, in progress or finished."""
    work: Sequence[WorkView]
    workspace: str
    trouble: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Hashes of the images on this page that hinder the release, by kind of obstacle."""

    def address(self, meant: ImageFilter | None = None, against: str = "") -> str:
        """Return the address of images in filter `meant`. For a problem `against`, show only images with it."""
        place = SetPlace(meant or ImageFilter(), against)
        query = urlencode({"version": self.version.key, **place.query}, doseq=True)
        return f"{set_address(self.held.id)}?{query}"

    def choice(self, meant: ImageFilter) -> tuple[str, bool]:
        """Return the address of a filter's images, and False. If the page shows this filter already, return the address
        of all images, and True.
        """
        on = meant != ImageFilter() and self.place.filter == meant
        return self.address(None if on else meant), on


def set_address(set_id: str, end: str = "", **query: str | int) -> str:
    """Return the address of a page of a test set. Query values of "" and 0 are left out."""
    parameters = urlencode({name: value for name, value in query.items() if value not in ("", 0)})
    return f"{SETS}/{set_id}{end}" + (f"?{parameters}" if parameters else "")


def version_title(version: SetVersion) -> str:
    """Return the title of a version, such as "Version 2 (draft)"."""
    return f"Version {version.place}" + (" (draft)" if version.is_draft else "")


def splits_in_words(version: SetVersion) -> str:
    """Return how many images each split has, such as "train 80, test 20"; "" if it has none."""
    counts = version.splits
    return ", ".join(f"{SPLIT_WORDS[split]} {counts[split]:,}" for split in SPLITS if split and counts.get(split))


def pages(address: str, query: Mapping[str, str | list[str]], at: int, total: int, size: int = PAGE) -> Html | None:
    """Return links to the pages of a list, or None if one page is enough. `at` is the current page, from 1."""
    last = max(1, -(-total // size))
    if last == 1:
        return None

    def address_of(number: int) -> str:
        parts = urlencode({**query, **({"page": number} if number > 1 else {})}, doseq=True)
        return f"{address}?{parts}" if parts else address

    numbers = sorted({1, last, *range(max(1, at - 2), min(last, at + 2) + 1)})
    return render("curate/set_places.html", address=address_of, numbers=numbers, at=at, last=last)
