"""Types for curating images, without SQL. Times are in UTC and carry their zone. Sizes are (width, height) in pixels.
Hashes are SHA-256. A missing text is "".
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
"""Orders of images: by arrival ("newest", "oldest"), by the figure of a check ("check"), by the time of review
("reviewed"), by source (newest source first, and its oldest image first), by what a person learns from reviewing the
image ("information", see `Order`), and by validity score ("score")."""
SORTS: tuple[Sort, ...] = get_args(Sort)


@dataclass(frozen=True)
class Order:
    """An order of images. Images without a figure or review come last, newest first.

    In the order "information", images without a verdict come first, and those with most reasons to review them lead.
    The reasons are: a check cannot tell; a check failed; the votes of a study have no consensus; a model under test is
    wrong on the image but right on its source; no image of the same class and edit type has a verdict yet. Among equals
    the newest comes first. Images with a verdict come last.
    """

    sort: Sort = "newest"
    check: str = ""
    """Name of the check whose figure decides the order "check"; "" for all other orders."""
    falling: bool = False
    """True to put the largest figure or latest review first, in the orders "check", "score" and "reviewed"."""

    @property
    def address(self) -> str:
        """The order as text for a web address ("check:edges kept"); "" for the default order. Inverse of `read`."""
        if self.sort == "newest":
            return ""
        return f"{self.sort}:{self.check}" if self.check else self.sort

    @staticmethod
    def read(address: str, falling: bool = False) -> Order:
        """Parse the text that `address` returns. Raises UserError if there is no such order."""
        sort, _, check = address.partition(":")
        if address and (sort == "check") != bool(check):
            needed = "Name the check of the order, as sort=check:NAME."
            raise UserError(
                needed if sort == "check" else "Only the order sort=check takes the name of a check: leave it out.",
                field="order",
            )
        return Order(chosen("sort", sort, SORTS, "order") if address else "newest", check, falling)


@dataclass(frozen=True)
class PageKey:
    """Position of an image in an order of images. The next page begins after it."""

    entry: int
    number: float | None = None
    """Number that decides the image's place: a figure, or the number of reasons to review it. None if the image has no
    such number or the order uses none."""

    @property
    def text(self) -> str:
        """The position as text for a web address or a script. Inverse of `read`."""
        return str(self.entry) if self.number is None else f"{self.number!r}:{self.entry}"

    @staticmethod
    def read(text: str) -> PageKey:
        """Parse the text of a position. Raises ValueError if the text is invalid."""
        number, _, entry = text.rpartition(":")
        key = PageKey(int(entry), float(number) if number else None)
        if (key.number is not None and not math.isfinite(key.number)) or abs(key.entry) >> 62:
            raise ValueError(f"not a position in an order: {text[:80]!r}")
        return key


@dataclass(frozen=True)
class CatalogueEntry:
    """One image that can be curated."""

    id: int
    """Number in the catalogue; it never changes."""
    test_case: int | None
    """Id of the test case; None for an imported image."""
    run: str
    run_name: str
    image_sha: str
    image_path: Path
    image_size: tuple[int, int]
    source_sha: str
    kind: TaskKind
    classes: tuple[str, ...]
    """The label of a classification task, or the protected classes of a segmentation task."""
    caption: str
    counterfactual: str
    edits: tuple[Edit, ...]
    profile: str
    recipe: str
    method: str
    checks: tuple[Check, ...]
    verdict: Verdict
    reason: str
    reviewer: str
    reviewed: datetime | None
    standings: Mapping[str, Standing]
    study_outcomes: tuple[str, ...]
    tags: tuple[str, ...]
    created: datetime
    key: PageKey
    name: str = ""
    import_name: str = ""
    score: float | None = None
    """Estimated probability that people find the image valid, 0 to 1; None if it was not scored."""


@dataclass(frozen=True)
class CataloguePage:
    """A page of images in some order."""

    entries: tuple[CatalogueEntry, ...]
    more: bool


@dataclass(frozen=True)
class Count:
    """Number of images that match a filter."""

    number: int
    exact: bool = True
    """False if more images match than `number` says."""


@dataclass(frozen=True)
class Cell:
    """A cell of a coverage table. An image with two edit types or two classes counts in each of their cells."""

    line: str
    """Value of the table's row, such as a class; "" for images without a value."""
    place: str
    reviews: Mapping[str, int]
    models: Mapping[str, Mapping[str, int]]

    @property
    def entries(self) -> int:
        return sum(self.reviews.values())


@dataclass(frozen=True)
class Unmeasured:
    """Ids of an image and of its source whose class maps, predicted by a model, have not been compared yet."""

    entry: int
    test_case: int
    prediction: int
    source_prediction: int
    state: int
    """Id of the run's state, which includes the mask. A comparison is stored only if the state is still the same."""


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: number of images with a figure from `low` up to but not including `high`."""

    low: float
    high: float
    entries: int


@dataclass(frozen=True)
class ScoreCounts:
    """Distribution of the validity scores."""

    at_least: int
    """Number of images with a score at or above the threshold."""
    below: int
    not_scored: int
    bars: tuple[Bar, ...]
    """Histogram of the scores, lowest first, without empty bars."""
