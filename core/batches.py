"""Types of a batch: a whole data set that is turned into test cases. Positions in an order count from 0. Sizes are
(width, height) in pixels. Hashes are SHA-256. A missing text is "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from core.images import StoredImage
from core.stored_runs import SavedCase
from core.types import CounterfactualCaption, StageName, StageValue, Task

Pass = Literal["captions", "language", "images"]
"""Name of a pass of a batch over its sources. There are three: captions, then language model texts, then images."""
PASSES: tuple[Pass, ...] = get_args(Pass)
WorkState = Literal["planned", "leased", "done", "failed", "skipped"]
Wish = Literal["go", "pause", "cancel"]


@dataclass(frozen=True)
class Item:
    """An image of a data set, before the image's file is read."""

    key: str
    """Name of the image in the data set, with "/" between folders: unique, and the same each time the set is read."""
    label: str = ""
    split: str = ""
    """"train", "validation", "test" or another name that the set uses; "" if the set is not split."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the image as the data set states them, such as {"weather": "rainy", "time of day": "night"}."""
    stamp: str = ""
    """Text that changes when the file is changed, to detect that. A copy on another machine has another stamp."""


@dataclass(frozen=True)
class Batch:
    """A whole data set that is being turned into test cases."""

    id: int
    name: str
    plan: str
    """TOML text of the plan, as it was read."""
    digest: str
    profile: str
    recipe: str
    settings: Mapping[str, Any]
    at_once: int
    stage: Pass
    """The pass that is running, or the last finished pass."""
    planned: bool
    """True if all sources of the batch are registered."""
    approved: datetime | None
    """Time at which a person approved the captions, or None."""
    wish: Wish
    running: bool
    notes: tuple[str, ...]
    created: datetime
    finished: datetime | None

    @property
    def facet(self) -> str:
        """Value of the filter "batch" for this batch, such as "Birds #3". The number tells equal names apart."""
        return f"{self.name} #{self.id}"


@dataclass(frozen=True)
class BatchSource:
    """One source image of a batch."""

    id: int
    item: Item
    run: str | None
    """Id of the run that starts from this source; None until the source is read."""
    first: str
    """Key of the earliest source of the batch with the same picture as this source; "" before the file is read."""


@dataclass(frozen=True)
class SourceRun:
    """The run of a source with the current values of its text stages."""

    source_sha: str
    size: tuple[int, int]
    mask_sha: str
    mask_classes: Mapping[int, str]
    values: Mapping[StageName, StageValue[Any]]


@dataclass(frozen=True)
class NewWork:
    """A piece of work for one source, to add to a batch."""

    source: int
    key: str
    """Hash of everything that the result of the work depends on."""
    lot: int
    """Number of the lot, a group of pieces of work that one worker does together."""
    place: int
    seed: int
    counterfactual: CounterfactualCaption | None = None


@dataclass(frozen=True)
class PlannedDrawing:
    """An image that is planned to be drawn. It may be drawn or skipped already."""

    id: int
    counterfactual: CounterfactualCaption
    seed: int
    begun: bool
    """True if a worker has started to draw the image at least once."""
    skipped: bool
    waits: bool = False
    """True if the image is skipped until a search for weaknesses of a model chooses it."""


ChosenBy = Literal["", "aim", "random"]
"""Reason why a search chose an image: "aim" (it may show a weakness) or "random" (by chance). "" if not chosen."""


@dataclass(frozen=True)
class Candidate:
    """An image of a batch that is drawn, or will be if a search for weaknesses of a model chooses it."""

    id: int
    """Id of the piece of work that draws the image."""
    source: int
    """Id of the image's source (`BatchSource`)."""
    run: str
    label: str
    counterfactual: CounterfactualCaption
    state: WorkState
    waits: bool
    chosen_by: ChosenBy
    asked: str
    """Key of a part of a person's question. A search chose the image to answer this part. "" for other images."""
    test_case: int | None


@dataclass(frozen=True)
class Chosen:
    """An image that a search for weaknesses of a model chose to be drawn."""

    id: int
    lot: int
    place: int
    chosen_by: ChosenBy
    asked: str


@dataclass(frozen=True)
class Piece:
    """A piece of work in a batch: read a source, write text about it, or draw an image."""

    id: int
    place: int
    item: Item
    seed: int
    seeds: int = 0
    """Number of seeds already used up. A try that fails because of its seed uses this seed up."""
    tries: int = 0
    counterfactual: CounterfactualCaption | None = None
    run: SourceRun | None = None
    """The run of the piece's source; None until the source is read."""


@dataclass(frozen=True)
class Lot:
    """Several pieces of work of the same pass. One worker does them together."""

    stage: Pass
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ReadSource:
    """A source image that was read. Its files are on the disk."""

    image: StoredImage
    task: Task
    notes: tuple[str, ...] = ()
    """Corrections made to the picture, one sentence each."""
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
    """Reason why the work failed, in one sentence; "" if it succeeded."""
    seed_spent: bool = False
    """True if the failure depends on the seed. If True, another try takes a new seed. If False, it keeps the seed."""
    final: bool = False
    """True if another try would fail in the same way."""


@dataclass(frozen=True)
class Counted:
    """Pieces of work in one state, in one pass of a batch: their number, and the seconds that workers spent on them."""

    number: int
    seconds: float


@dataclass(frozen=True)
class FailedGroup:
    """Pieces of work in one pass of a batch. All of them failed, or all were skipped, for the same reason."""

    stage: Pass
    state: WorkState
    reason: str
    number: int
    examples: Sequence[str]
