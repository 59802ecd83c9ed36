"""The parts of a batch, in the form that `storage.batches.ledger` takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from core.images import StoredImage
from core.stored_runs import SavedCase
from core.types import CounterfactualCaption, StageName, StageValue, Task

Pass = Literal["captions", "language", "images"]
"""The passes of a batch, in order: captions of all sources, all text of the language model, then all images."""
PASSES: tuple[Pass, ...] = get_args(Pass)
WorkState = Literal["planned", "leased", "done", "failed", "skipped"]
Wish = Literal["go", "pause", "cancel"]


@dataclass(frozen=True)
class Item:
    """One image of a data set, not yet read."""

    key: str
    """Name in the data set, with "/" between folders: unique, and the same at every reading."""
    label: str = ""
    """Class of the image, or ""."""
    split: str = ""
    """"train", "validation", "test" or another name that the set uses; "" if the set is not split."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that the set states of the image, such as {"weather": "rainy", "time of day": "night"}."""
    stamp: str = ""
    """Stamp of the file: `read` with it detects a changed file. A copy on another machine has another stamp."""


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
    """Number of images drawn together."""
    stage: Pass
    """The pass that is running or was finished last."""
    planned: bool
    """True if all its sources are registered."""
    approved: datetime | None
    """Time at which a person approved the captions, or None."""
    wish: Wish
    running: bool
    """True if a process is working on the batch now."""
    notes: tuple[str, ...]
    """Notes on how its items were chosen."""
    created: datetime
    finished: datetime | None

    @property
    def facet(self) -> str:
        """Value of the facet "batch" in the catalogue, such as "Birds #3": two batches may share a name."""
        return f"{self.name} #{self.id}"


@dataclass(frozen=True)
class BatchSource:
    """One source image of a batch."""

    id: int
    item: Item
    run: str | None
    """Id of its run; None until the source is read."""
    first: str
    """Key of the first source in the batch with the same picture, usually its own; "" before it is read."""


@dataclass(frozen=True)
class SourceRun:
    """The run of a source with its values so far."""

    source_sha: str
    size: tuple[int, int]
    """Width and height of the source image, in pixels."""
    mask_sha: str
    """SHA-256 of the mask, or ""."""
    mask_classes: Mapping[int, str]
    values: Mapping[StageName, StageValue[Any]]


@dataclass(frozen=True)
class NewWork:
    """Work that is added to a batch for one source."""

    source: int
    key: str
    """Hash of everything that the result of the work depends on."""
    lot: int
    """Number of the lot: work of one lot is done together."""
    place: int
    """Zero-based place in the lot."""
    seed: int
    counterfactual: CounterfactualCaption | None = None


@dataclass(frozen=True)
class PlannedDrawing:
    """An image that is planned or was planned before."""

    id: int
    counterfactual: CounterfactualCaption
    seed: int
    begun: bool
    """True if it was tried already or a worker has it."""
    skipped: bool


@dataclass(frozen=True)
class Piece:
    """A piece of work: read a source, write text about it, or draw an image."""

    id: int
    place: int
    """Zero-based place in its lot."""
    item: Item
    seed: int
    seeds: int = 0
    """Number of seeds that failed tries have used up. The next try takes the next seed."""
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
    """True if the failure depends on the seed: another try takes the next seed, else the same."""
    final: bool = False
    """True if another try would fail in the same way."""


@dataclass(frozen=True)
class Counted:
    """Number of pieces of work that are in one state, in one pass of a batch, and the worker seconds spent on them."""

    number: int
    seconds: float


@dataclass(frozen=True)
class FailedGroup:
    """Work of a pass that failed or was skipped for the same reason."""

    stage: Pass
    state: WorkState
    reason: str
    number: int
    examples: Sequence[str]
    """Names of some of its sources."""
