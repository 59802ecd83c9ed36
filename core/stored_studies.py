"""What comes back out of a workspace about studies, beside the types of `core.studies`. Plain data; no SQL.

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
"""What `submit` says: "saved" by this call, or "again": a call with the same key had saved it before."""
RefusalKind = Literal["not yours", "not running", "full", "answered", "excluded", "blocked", "not enrolled"]


class VoteRefused(UserError):
    """Why a worker's claim, vote or undo was not taken, as a sentence for the worker and as a word for a program."""

    def __init__(self, kind: RefusalKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: RefusalKind = kind


@dataclass(frozen=True)
class UnsentAnswers:
    """What a worker has filled in of an item and not sent: kept so that it comes back, and no vote."""

    answers: Answers
    """To some of the questions, unchecked."""
    comment: str
    seconds: float
    """That the worker had looked by then."""
    at: float
    """When, in milliseconds since 1970, by the clock of the worker's browser: of two drafts the later one counts."""


@dataclass(frozen=True)
class Assignment:
    """One item, given to one worker for a while. There is at most one for an item and a worker, ever."""

    id: int
    public: str
    """An opaque token for the client; says nothing of the item."""
    image_token: str
    source_token: str
    """Opaque tokens of the pictures, of this assignment only; that of the source is "" where there is none."""
    side: Side
    """Where the generated image stands, when the source stands beside it."""
    item: Item
    worker: str
    study_id: str
    number: int
    """1, 2, ...: the worker's own order in this study, all kinds together."""
    state: AssignmentState
    accepted: datetime
    """When it was given out, for the last time."""
    expires: datetime
    answers: Answers = field(default_factory=dict)
    """Of the latest vote, to begin from after an undo; {} before the first."""
    comment: str = ""
    """Of the latest vote."""
    draft: UnsentAnswers | None = None
    """What was filled in and not sent; None where there is nothing."""


@dataclass(frozen=True)
class Enrolment:
    """What is known of a worker in one study. The figures count answered assignments that were not undone."""

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
    """None while the worker's votes count."""
    readmitted: bool = False
    """A person readmitted this worker: a rule that excludes at once again would undo that."""


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
    """The class of the task that it was made for; "" for a segmentation."""
    classes: tuple[str, ...]
    """The classes that the task that it was made for protects."""
    image_sha: str
    source_sha: str
    caption: str
    """Of the source image; "" where the run has none."""
    counterfactual: CounterfactualCaption
    edit_types: tuple[str, ...]
    """Of the edits of the counterfactual caption, each once, in their order."""
    verdict: Literal["accepted", "rejected", ""]
    """The latest review; "" where there is none."""
    predictions: Mapping[str, tuple[Prediction | None, Prediction | None]]
    """Model under test to what it said last of the source and of the image; None where not asked."""
    origin: Mapping[str, Any]
    """Run, prompt, model, seed, settings, profile: as `NewItem.origin` takes it."""


@dataclass(frozen=True)
class LogEntry:
    """One line of what happened; never changed after."""

    id: int
    created: datetime
    event: str
    """A word or two, such as "started", "worker excluded", "refused"."""
    detail: str
    study_id: str = ""
    worker: str = ""


class ImportedVote(NamedTuple):
    """A vote that was given elsewhere."""

    item: int
    """The id of an item of the study."""
    worker: str
    """The worker's name there."""
    answers: Answers
    comment: str
    accepted: datetime
    submitted: datetime
    seconds: float
    verdict: ApprovalVerdict = "pending"
    reason: str = ""
    """Of a verdict that is not pending."""
    right: bool | None = None
    """Of an item with a known answer: whether it was answered right; None leaves it out of the worker's figures."""
    side: Side = "left"
    changes: int = 0
