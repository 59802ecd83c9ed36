"""Images that can be curated as the catalogue gives them: entries in an order, counts, cells. Plain; no SQL.

All times are in UTC and carry their zone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from core.errors import UserError
from core.image_filter import Standing, chosen
from core.types import Check, Edit, TaskKind

CoverageGrid = Literal["class x edit type", "weather x time of day"]
GRIDS: tuple[CoverageGrid, ...] = get_args(CoverageGrid)

Verdict = Literal["accepted", "rejected", "open"]
Sort = Literal["newest", "oldest", "check", "reviewed", "source", "information", "score"]
"""By which order: when it came in, the figure of a check, when it was reviewed, all of one source together (the newest
source first, the oldest image of it first), what a look at it tells most (see `Order`), or the score of validity."""
SORTS: tuple[Sort, ...] = get_args(Sort)


@dataclass(frozen=True)
class Order:
    """An order of images. What has no figure, or no review, stands behind all that has one, the newest first.

    By information, images without a verdict stand first, by how many of these hold: a check cannot tell; a check
    failed; the votes of a study have no consensus; a model under test is newly wrong; no image in its cell of class and
    edit type has a verdict yet. Of equally many the newest stands first, and all that have a verdict stand last.
    """

    sort: Sort = "newest"
    check: str = ""
    """The name of a check, for "check"."""
    falling: bool = False
    """For "check", "score" and "reviewed": the largest figure, or the latest review, first."""

    @property
    def address(self) -> str:
        """The sort and its check, such as "check:edges kept"; "" for the usual one. `read` reads it back."""
        if self.sort == "newest":
            return ""
        return f"{self.sort}:{self.check}" if self.check else self.sort

    @staticmethod
    def read(address: str, falling: bool = False) -> Order:
        """Raises UserError for an order that does not exist."""
        sort, _, check = address.partition(":")
        if address and (sort == "check") != bool(check):
            raise UserError(
                "Name the check of the order, as sort=check:NAME."
                if sort == "check"
                else "Only sort=check names a check.",
                field="order",
            )
        return Order(chosen("sort", sort, SORTS, "order") if address else "newest", check, falling)


@dataclass(frozen=True)
class PageKey:
    """A place in an order: that of one image."""

    entry: int
    number: float | None = None
    """Its figure in the order; None where it has none, or none counts. By information: how many reasons there are to
    look at it."""

    @property
    def text(self) -> str:
        """For an address or a script; `read` reads it back."""
        return str(self.entry) if self.number is None else f"{self.number!r}:{self.entry}"

    @staticmethod
    def read(text: str) -> PageKey:
        """Raises ValueError for what is no key."""
        number, _, entry = text.rpartition(":")
        key = PageKey(int(entry), float(number) if number else None)
        if (key.number is not None and not math.isfinite(key.number)) or abs(key.entry) >> 62:
            raise ValueError(f"there is no place {text[:80]!r}")
        return key


@dataclass(frozen=True)
class CatalogueEntry:
    """One image that can be curated."""

    id: int
    """Its number in the catalogue; it never changes."""
    test_case: int | None
    """None of an image that was imported."""
    run: str
    """"" where there is none."""
    run_name: str
    image_sha: str
    image_path: Path
    image_size: tuple[int, int]
    """Width and height in pixels."""
    source_sha: str
    """"" where there is none."""
    kind: TaskKind
    classes: tuple[str, ...]
    """The label, or the protected classes."""
    caption: str
    """Of the source image, the latest."""
    counterfactual: str
    edits: tuple[Edit, ...]
    profile: str
    recipe: str
    method: str
    checks: tuple[Check, ...]
    verdict: Verdict
    reason: str
    """Of the verdict; "" where none was given."""
    reviewer: str
    """Who gave the verdict; "" where nobody is named."""
    reviewed: datetime | None
    """Since when the verdict counts."""
    standings: Mapping[str, Standing]
    """By model under test."""
    study_outcomes: tuple[str, ...]
    """What the votes of studies say of it, each once."""
    tags: tuple[str, ...]
    created: datetime
    key: PageKey
    """Its place in the order that was asked for."""
    name: str = ""
    """Of an image that was imported: its own in its set."""
    import_name: str = ""
    """Of an image that was imported: of what it came with."""
    score: float | None = None
    """How likely people find it valid, 0 to 1; None where it was not scored."""


@dataclass(frozen=True)
class CataloguePage:
    """Some images in an order."""

    entries: tuple[CatalogueEntry, ...]
    more: bool
    """Whether others follow, in the direction that was asked for."""


@dataclass(frozen=True)
class Count:
    """How many images fit."""

    number: int
    exact: bool = True
    """Where it is not, there are more than `number`."""


@dataclass(frozen=True)
class Cell:
    """A cell of a coverage table. An image with two edit types, or two classes, counts in each."""

    line: str
    """"" for what has none."""
    place: str
    reviews: Mapping[str, int]
    """By verdict, how many images."""
    models: Mapping[str, Mapping[str, int]]
    """By model under test, how many images stand where."""

    @property
    def entries(self) -> int:
        return sum(self.reviews.values())


@dataclass(frozen=True)
class Unmeasured:
    """An image whose class maps wait to be compared, and what that would hang on."""

    entry: int
    test_case: int
    prediction: int
    source_prediction: int
    state: int
    """Of its run: it names the mask."""


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: how many images have a figure from `low` up to `high`, which is not in it."""

    low: float
    high: float
    entries: int


@dataclass(frozen=True)
class ScoreCounts:
    """How many images have which score of validity."""

    at_least: int
    """With a score from the threshold on."""
    below: int
    not_scored: int
    bars: tuple[Bar, ...]
    """How the scores are spread, the lowest first; none is empty."""
