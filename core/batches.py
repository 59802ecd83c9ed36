"""What a batch is made of, as `storage.batches.ledger` gives and takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from core.images import StoredImage
from core.stored_runs import SavedCase
from core.types import CounterfactualCaption, StageName, StageValue, Task

Pass = Literal["captions", "language", "images"]
"""Captions of all sources, then what the language model writes of all, then all images."""
PASSES: tuple[Pass, ...] = get_args(Pass)
WorkState = Literal["planned", "leased", "done", "failed", "skipped"]
Wish = Literal["go", "pause", "cancel"]


@dataclass(frozen=True)
class Item:
    """One image of a data set, not yet read."""

    key: str
    """Its name in the data set, with "/" between folders: the same at every reading, and its own."""
    label: str = ""
    """The class of the image; "" where the set has none."""
    split: str = ""
    """"train", "validation", "test", or as the set calls another one; "" where the set is not split."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What the set says of the image, such as {"weather": "rainy", "time of day": "night"}."""
    stamp: str = ""
    """Tells a file that was changed since, if it is given to `read`. A copy on another machine has another one."""


@dataclass(frozen=True)
class Batch:
    """A whole data set on its way to test cases."""

    id: int
    name: str
    plan: str
    """Its TOML text, as it was read."""
    digest: str
    profile: str
    recipe: str
    settings: Mapping[str, Any]
    at_once: int
    """How many images are drawn together."""
    stage: Pass
    """What it is at, or has come to the end of."""
    planned: bool
    """Whether all its sources are there."""
    approved: datetime | None
    """When a person said yes to the captions."""
    wish: Wish
    running: bool
    """Whether a process works on it now."""
    notes: tuple[str, ...]
    """What was told of the choice of its items."""
    created: datetime
    finished: datetime | None

    @property
    def facet(self) -> str:
        """What the catalogue finds its images by, such as "Birds #3": two batches may have one name."""
        return f"{self.name} #{self.id}"


@dataclass(frozen=True)
class BatchSource:
    """A source of a batch."""

    id: int
    item: Item
    run: str | None
    """Its run, once it is read."""
    first: str
    """The key of the first source of the batch that shows the same picture: its own, for most. "" before it is
    read."""


@dataclass(frozen=True)
class SourceRun:
    """The run of a source, with the values that it has so far."""

    source_sha: str
    size: tuple[int, int]
    """Width and height of the source image."""
    mask_sha: str
    """"" for none."""
    mask_classes: Mapping[int, str]
    values: Mapping[StageName, StageValue[Any]]


@dataclass(frozen=True)
class NewWork:
    """Something to be done with a source."""

    source: int
    key: str
    """A hash of all that it is made from."""
    lot: int
    """Work of one lot is done together."""
    place: int
    """Its place in the lot, from 0."""
    seed: int
    counterfactual: CounterfactualCaption | None = None


@dataclass(frozen=True)
class PlannedDrawing:
    """An image that is planned, or was."""

    id: int
    counterfactual: CounterfactualCaption
    seed: int
    begun: bool
    """Whether it was tried already, or a worker has it."""
    skipped: bool


@dataclass(frozen=True)
class Piece:
    """A piece of work: a source to read or to write about, or an image to draw."""

    id: int
    place: int
    """Zero-based place in its lot."""
    item: Item
    seed: int
    seeds: int = 0
    """Number of seeds that failed tries have spent. It takes the next one."""
    tries: int = 0
    counterfactual: CounterfactualCaption | None = None
    run: SourceRun | None = None
    """The run of its source. None until the source is read."""


@dataclass(frozen=True)
class Lot:
    """Pieces of one pass that a worker does together."""

    stage: Pass
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ReadSource:
    """A source image whose files are on the disk."""

    image: StoredImage
    task: Task
    notes: tuple[str, ...] = ()
    """What was put right in the picture."""
    mask: StoredImage | None = None
    mask_classes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """The result of a piece of work."""

    id: int
    seconds: float = 0.0
    source: ReadSource | None = None
    values: Mapping[StageName, StageValue[Any]] = field(default_factory=dict)
    case: SavedCase | None = None
    failed: str = ""
    """Why it could not be done, in one sentence."""
    seed_spent: bool = False
    """Whether it failed for what its seed gave: another try takes the next one. Else it takes the same."""
    final: bool = False
    """Whether another try would fail in the same way."""


@dataclass(frozen=True)
class Counted:
    """How much of a pass is in one state, and the seconds of workers that it took."""

    number: int
    seconds: float


@dataclass(frozen=True)
class FailedGroup:
    """Work of a pass that failed or was skipped for one reason."""

    stage: Pass
    state: WorkState
    reason: str
    number: int
    examples: Sequence[str]
    """Names of some of the sources."""
