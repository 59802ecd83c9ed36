"""What the pages of test sets share: what they show, addresses, the words of splits and formats, a picture. Pure."""

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
"""Digits of an id that are shown."""
PAGE = 120
"""Images in a page."""
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
"""By the kind of what stands against a release."""


@dataclass(frozen=True)
class FormatWords:
    """What a format is good for."""

    loads: str
    line: str
    """The one line that loads it; SET stands for the unpacked folder."""
    folders: Mapping[str, str] = field(default_factory=lambda: {"validation": "validation", "": "unsplit"})
    """What its files call those splits whose folder has another name."""

    def line_of(self, folder: str, splits: Collection[Split]) -> str:
        """The line that loads an unpacked folder: its test split, or one that it has."""
        split = split_to_load(splits)
        return self.line.replace("test", self.folders.get(split, split)).replace("SET", folder)


FORMATS = DataTable(__file__, FormatWords)
"""Of each format that is written: what loads it, and how."""


@dataclass(frozen=True)
class SetPlace:
    """Which images of a version the page shows, as its address says."""

    filter: ImageFilter = field(default_factory=ImageFilter)
    against: str = ""
    """The kind of an obstacle whose images are shown."""
    page: int = 1

    @property
    def query(self) -> dict[str, list[str]]:
        """The parts of the address, without the page."""
        parts = defaultdict[str, list[str]](list)
        for name, value in self.filter.pairs + ([("against", self.against)] if self.against else []):
            parts[name].append(value)
        return dict(parts)


@dataclass(frozen=True)
class ShownVersion:
    """What the page of a set shows."""

    held: TestSet
    version: SetVersion
    place: SetPlace
    entries: Sequence[ShownEntry]
    """Of one page."""
    found: int
    """Images on all pages."""
    counts: Sequence[EntryCount]
    readiness: Readiness | None
    """Of a draft."""
    exports: Sequence[WorkView]
    """Of a version that was released."""
    work: Sequence[WorkView]
    """What is being done with the set."""
    workspace: str
    """The folder of the workspace."""
    trouble: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the kind of an obstacle, the images of the page that it is about."""

    def address(self, meant: ImageFilter | None = None, against: str = "") -> str:
        """The address of the images of the version that a filter, or an obstacle, is about; of all of them without."""
        place = SetPlace(meant or ImageFilter(), against)
        query = urlencode({"version": version_key(self.version), **place.query}, doseq=True)
        return f"{set_address(self.held.id)}?{query}"

    def choice(self, meant: ImageFilter) -> tuple[str, bool]:
        """The address of the images of a filter, and whether they are shown already: then it is that of all images."""
        on = meant != ImageFilter() and self.place.filter == meant
        return self.address(None if on else meant), on


def set_address(set_id: str, end: str = "", **query: str | int) -> str:
    """The address of a page of a test set; what is "" or 0 is left out of the query."""
    said = urlencode({name: value for name, value in query.items() if value not in ("", 0)})
    return f"{SETS}/{set_id}{end}" + (f"?{said}" if said else "")


def version_key(version: SetVersion) -> str:
    """What a version is called in an address of its set."""
    return "draft" if version.is_draft else str(version.place)


def reference(version: SetVersion) -> str:
    """What names a version in the address of a comparison."""
    return f"{version.test_set}@{version_key(version)}"


def version_title(version: SetVersion) -> str:
    """What a version is called on a page of its set."""
    return f"Version {version.place}" + (" (draft)" if version.is_draft else "")


def splits_in_words(version: SetVersion) -> str:
    """How many images each split has, such as "train 80, test 20"; "" where it has none."""
    held = version.splits
    return ", ".join(f"{SPLIT_WORDS[split]} {held[split]:,}" for split in SPLITS if split and held.get(split))


def pages(address: str, query: Mapping[str, str | list[str]], at: int, total: int, size: int = PAGE) -> Html | None:
    """Links to the pages of a list; none where one page has it all. `at` is the page that is shown, from 1."""
    last = max(1, -(-total // size))
    if last == 1:
        return None

    def address_of(number: int) -> str:
        parts = urlencode({**query, **({"page": number} if number > 1 else {})}, doseq=True)
        return f"{address}?{parts}" if parts else address

    numbers = sorted({1, last, *range(max(1, at - 2), min(last, at + 2) + 1)})
    return render("curate/set_places.html", address=address_of, numbers=numbers, at=at, last=last)
