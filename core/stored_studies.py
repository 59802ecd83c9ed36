"""Further study data read from a workspace, besides the types of `core.studies`. Plain data; no SQL.

All times are in UTC and carry their zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from core.errors import UserError
from core.predictions import Prediction
from core.studies import Answers, ApprovalVerdict, AssignmentState, Exclusion, Item, Side
from core.types import CounterfactualCaption

Role = Literal["lead", "worker"]
Saved = Literal["saved", "again"]
"""Result of `submit`: "saved" by this call, or "again" if an earlier call with the same key saved it."""
RefusalKind = Literal["not yours", "not running", "full", "answered", "excluded", "blocked", "not enrolled"]


class VoteRefused(UserError):
    """Refusal of a worker's claim, vote or undo: a sentence for the worker and a code for programs."""

    def __init__(self, kind: RefusalKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: RefusalKind = kind


@dataclass(frozen=True)
class UnsentAnswers:
    """A worker's draft for an item: stored to be restored, not counted as a vote."""

    answers: Answers
    """Unchecked answers to some of the questions."""
    comment: str
    seconds: float
    """Seconds that the worker had looked so far."""
    at: float
    """Time in milliseconds since 1970 by the worker's browser clock. The later of two drafts counts."""


@dataclass(frozen=True)
class Assignment:
    """One item leased to one worker. An item and a worker have at most one assignment, ever."""

    id: int
    public: str
    """Opaque token for the client; reveals nothing about the item."""
    image_token: str
    source_token: str
    """Opaque tokens of the pictures, for this assignment only; "" for a missing source."""
    side: Side
    """Side of the generated image beside its source."""
    item: Item
    worker: str
    study_id: str
    number: int
    """1, 2, ...: position in the worker's order in this study, across all kinds."""
    state: AssignmentState
    accepted: datetime
    """Time of the latest lease."""
    expires: datetime
    answers: Answers = field(default_factory=dict)
    """Answers of the latest vote, to start from after an undo; {} before the first."""
    comment: str = ""
    """Comment of the latest vote."""
    draft: UnsentAnswers | None = None


@dataclass(frozen=True)
class Enrolment:
    """State of a worker in one study. Counts include answered assignments that were not undone."""

    study_id: str
    worker: str
    consented: bool = False
    quiz_right: int = 0
    quiz_seen: int = 0
    training_seen: int = 0
    items_seen: int = 0
    controls_seen: int = 0
    controls_right: int = 0
    exclusion: Exclusion | None = None
    readmitted: bool = False
    """True if a person readmitted this worker, so that no rule excludes them again at once."""


@dataclass(frozen=True)
class Session:
    """A signed-in browser."""

    role: Role
    worker: str
    """"" for the lead."""
    expires: datetime


@dataclass(frozen=True)
class Candidate:
    """A test case that may become an item."""

    test_case: int
    run_id: str
    run_name: str
    profile: str
    label: str
    """Class of the task that it was made for; "" for segmentation."""
    classes: tuple[str, ...]
    """Protected classes of the task that it was made for."""
    image_sha: str
    source_sha: str
    caption: str
    """Caption of the source image, or ""."""
    counterfactual: CounterfactualCaption
    edit_types: tuple[str, ...]
    """Distinct edit types of the counterfactual caption, in order."""
    verdict: Literal["accepted", "rejected", ""]
    """Latest review, or ""."""
    predictions: Mapping[str, tuple[Prediction | None, Prediction | None]]
    """Latest predictions for the source and for the image, by model under test; None for a missing one."""
    origin: Mapping[str, Any]
    """Run, prompt, model, seed, settings, profile: the form of `NewItem.origin`."""


@dataclass(frozen=True)
class LogEntry:
    """One line of the log. It never changes."""

    id: int
    created: datetime
    event: str
    """One or two words, such as "started", "worker excluded", "refused"."""
    detail: str
    study_id: str = ""
    worker: str = ""


class ImportedVote(NamedTuple):
    """A vote that was collected elsewhere."""

    item: int
    """Id of an item of the study."""
    worker: str
    """The worker's name there."""
    answers: Answers
    comment: str
    accepted: datetime
    submitted: datetime
    seconds: float
    verdict: ApprovalVerdict = "pending"
    reason: str = ""
    """Reason of a verdict that is not pending."""
    right: bool | None = None
    """True if an item with a known answer was answered right; None leaves it out of the worker's figures."""
    side: Side = "left"
    changes: int = 0
