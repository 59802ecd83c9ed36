"""Types of study data in a workspace, in addition to `core.studies`. Times are in UTC and carry their zone; a missing
text is "".
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
    """Raised if a worker's claim, vote or undo is refused. Holds a sentence for the worker and a code for programs."""

    def __init__(self, kind: RefusalKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: RefusalKind = kind


@dataclass(frozen=True)
class UnsentAnswers:
    """A worker's draft for an item. It is stored so that it can be restored, and does not count as a vote."""

    answers: Answers
    """Answers to some of the questions. They are not checked."""
    comment: str
    seconds: float
    """Number of seconds that the worker had looked at the item when the draft was stored."""
    at: float
    """Milliseconds since 1970 by the clock of the worker's browser. Of two drafts the later one counts."""


@dataclass(frozen=True)
class Assignment:
    """One item leased to one worker. A worker has at most one assignment for each item."""

    id: int
    public: str
    """Opaque token that the worker's browser gets. It reveals nothing about the item."""
    image_token: str
    source_token: str
    """Opaque tokens of image and source, valid only for this assignment. `source_token` is "" without a source."""
    side: Side
    item: Item
    worker: str
    study_id: str
    number: int
    """One-based position in the worker's order in this study, counted across all kinds of items."""
    state: AssignmentState
    accepted: datetime
    expires: datetime
    answers: Answers = field(default_factory=dict)
    comment: str = ""
    draft: UnsentAnswers | None = None


@dataclass(frozen=True)
class Enrolment:
    """State of a worker in one study. Only answered assignments that the worker did not undo are counted."""

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
    """True if a person readmitted this worker. Rules do not exclude a readmitted worker again."""


@dataclass(frozen=True)
class Session:
    """A signed-in browser."""

    role: Role
    worker: str
    expires: datetime


@dataclass(frozen=True)
class Candidate:
    """A test case that may become an item of a study."""

    test_case: int
    run_id: str
    run_name: str
    profile: str
    label: str
    classes: tuple[str, ...]
    image_sha: str
    source_sha: str
    caption: str
    counterfactual: CounterfactualCaption
    edit_types: tuple[str, ...]
    verdict: Literal["accepted", "rejected", ""]
    predictions: Mapping[str, tuple[Prediction | None, Prediction | None]]
    """Latest predictions for the source and for the image, by model under test; None for a missing one."""
    origin: Mapping[str, Any]
    """Run, prompt, model, seed, settings and profile, in the form of `NewItem.origin`."""


@dataclass(frozen=True)
class LogEntry:
    """One entry of the study's log. Entries never change."""

    id: int
    created: datetime
    event: str
    """Kind of event in one or two words, such as "started", "worker excluded" or "refused"."""
    detail: str
    study_id: str = ""
    worker: str = ""


class ImportedVote(NamedTuple):
    """A vote that was collected elsewhere."""

    item: int
    worker: str
    answers: Answers
    comment: str
    accepted: datetime
    submitted: datetime
    seconds: float
    verdict: ApprovalVerdict = "pending"
    reason: str = ""
    """Reason for the approval or rejection of the vote, or ""."""
    right: bool | None = None
    """True if an item with a known answer was answered right, False if wrong; None to leave it out of the figures."""
    side: Side = "left"
    changes: int = 0
