"""What is asked of the catalogue of images that can be curated, and what comes back. Plain frozen dataclasses; no SQL.

All times are in UTC and carry their zone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from core.types import Check, Edit, TaskKind

Verdict = Literal["accepted", "rejected", "open"]
Standing = Literal["right", "newly wrong", "wrong", "cannot tell", "not measured"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)
"""How a model under test stands on an image that it has read: "newly wrong" where it gets the source right, "wrong"
where it gets the source wrong too or nobody knows, "not measured" where class maps wait to be compared."""
Facet = Literal[
    "kind", "class", "edit type", "edits", "profile", "recipe", "method", "review", "weather", "time of day", "study",
    "tag", "import", "split", "batch",
]  # fmt: skip
FACETS: tuple[Facet, ...] = get_args(Facet)
"""What an image can be filtered by. "class": the label, or each protected class. "edits": how many, in digits.
"weather" and "time of day": the alternative of an edit of this type. "study": what the votes say ("undecided" until
they do). "import" and "split": of each import that has brought it in. "batch": of the batch that has made it, as
`core.batches.Batch.facet` says it."""
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


@dataclass(frozen=True)
class Between:
    """A range of the figure of a check, both ends included. What has no figure is not in it."""

    check: str
    low: float = -1000.0
    high: float = 1000.0


@dataclass(frozen=True)
class ScoreBand:
    """A range of the score of validity: from `low` up to `high`, which is not in it. What has no score is not in it."""

    low: float | None = None
    """None: whatever is below."""
    high: float | None = None


@dataclass(frozen=True)
class CatalogueFilter:
    """Which images are meant. All that is said has to hold; of several values of one facet, one has to. The value ""
    means the images that have none.
    """

    facets: Mapping[Facet, tuple[str, ...]] = field(default_factory=dict)
    without: Mapping[Facet, tuple[str, ...]] = field(default_factory=dict)
    """Values that it must not have."""
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of a check, its outcomes: "passed", "failed", "cannot tell"."""
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By model under test, where it has to stand: of `STANDINGS`, or "unread"."""
    between: tuple[Between, ...] = ()
    scores: tuple[ScoreBand | None, ...] = ()
    """Bands of the score of validity, of which one has to hold; None: it has no score."""
    run: str = ""
    source: str = ""
    """The SHA-256 of the source image."""
    text: str = ""
    """Words that its captions and edits have, whatever their letters' case, endings and accents."""
    edited: str = ""
    """Words that its edits have."""
    within: tuple[int, ...] | None = None
    """The entries of which they have to be, whatever found those; None for all."""
    not_in_study: str = ""
    """The id of a study whose items are left out."""
    test_cases: bool = False
    """Only test cases of this workspace: no images that were imported."""

    @property
    def words(self) -> str:
        """What it says, such as “class: bird or dog; not tag: odd; edges kept: failed”; "" for everything."""
        named = [*self.facets.items(), *((f"not {name}", values) for name, values in self.without.items())]
        named += [*self.checks.items(), *self.models.items()]
        parts = [f"{name}: {' or '.join(value or 'none' for value in values)}" for name, values in named]
        parts += [f"{one.check}: {one.low:g} to {one.high:g}" for one in self.between]
        parts += [" or ".join(f"validity score {_band(one)}" for one in self.scores)] if self.scores else []
        parts += [f"run: {self.run}"] if self.run else []
        parts += [f"source: {self.source[:8]}"] if self.source else []
        parts += [f"captions: {self.text}"] if self.text else []
        parts += [f"edits: {self.edited}"] if self.edited else []
        parts += [f"{len(self.within):,} images of a list"] if self.within is not None else []
        parts += ["not in a study"] if self.not_in_study else []
        parts += ["test cases alone"] if self.test_cases else []
        return "; ".join(parts)


def _band(band: ScoreBand | None) -> str:
    if band is None:
        return "none"
    ends = [f"from {band.low:g}"] if band.low is not None else []
    ends += [f"below {band.high:g}"] if band.high is not None else []
    return " ".join(ends) or "any"


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
