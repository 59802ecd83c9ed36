"""Results of the analysis of a study. Frozen dataclasses. A figure that may be undefined has words that say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from core.consensus import Status
from core.figures import Bounds, Mean, Proportion
from core.studies import Adjudication, ApprovalVerdict, Exclusion, Question, Rules, Study
from core.words import count_of

NONE = "(none)"
"""Name of the group of images without a class, edit type, sample or verdict, if other images have one."""


@dataclass(frozen=True)
class Slice:
    """Validity of a group of images. Each image counts once, however many votes it has."""

    name: str
    """Name of the group: a class, edit type or sample, "NAME: right" or "NAME: wrong" for a model, or "" for all."""
    items: int
    """Number of items for which the question is asked: decided + discarded + short + waiting."""
    rate: Proportion
    """Share of valid images among those with a consensus (`rate.n` of them), with the Wilson interval."""
    discarded: int
    """Number of items with all votes but no consensus."""
    short: int
    """Number of items with too few votes in a closed study."""
    waiting: int
    bounds: Bounds
    """Bounds of the rate: if all `discarded` and `short` items were invalid, and if all of these items were valid."""


@dataclass(frozen=True)
class Slices:
    """Validity by group. Images without a value are the last group, "(none)". No groups if no image has a value."""

    by_class: tuple[Slice, ...] = ()
    """Results by class: the label, or each shown class if the image has no label."""
    by_edit_type: tuple[Slice, ...] = ()
    """Results by edit type. An image with edits of two types is in both."""
    by_group: tuple[Slice, ...] = ()
    by_model: tuple[Slice, ...] = ()
    """Results by model under test, and by whether it is right on the image."""


@dataclass(frozen=True)
class AnswerShare:
    """One possible answer to a question: its votes, and its share of the images with a consensus."""

    answer: str
    votes: int
    share: Proportion


@dataclass(frozen=True)
class SecondOpinion:
    """Validity by two other ways to aggregate the same votes. Images that wait for votes are left out."""

    majority: Proportion
    """Share of valid images if the most frequent answer decides. Ties are left out."""
    ties: int
    dawid_skene: Proportion
    """Share of valid images by Dawid and Skene's model. It decides every image that has a vote."""
    differ: tuple[int, ...]
    """Ids of items whose consensus differs from the answer of Dawid and Skene's model."""
    words: str


@dataclass(frozen=True)
class Remark:
    """A text by a worker: the answer to a free-text question, or a comment."""

    item: int
    worker: str
    text: str


@dataclass(frozen=True)
class QuestionResult:
    """All figures of one question."""

    question: Question
    after: Slice
    """The result to report: without the votes of excluded workers, and with the votes that replaced them."""
    before: Slice
    """Result as if nobody had been excluded: the first K votes on each item, by all workers."""
    adjudicated: Slice | None
    """Result of `after`, completed by a person's answers where workers had no consensus. None if no person answered. It
    is not a result of the workers, so report it separately."""
    votes: Proportion
    """Share of "valid" among all counted votes, with a bootstrap interval over images. This includes votes on images
    that wait for further votes."""
    answers: tuple[AnswerShare, ...]
    """Share of each possible answer; empty for free text."""
    mean: Mean | None
    """Mean of the images' mean ratings on a scale, 1 to 5; None for other kinds."""
    agreement: Agreement
    agreement_before: Agreement
    second: SecondOpinion
    slices: Slices
    remarks: tuple[Remark, ...]


@dataclass(frozen=True)
class Disagreement:
    """A question of an item on which its workers disagree."""

    item: int
    question: str
    counts: Mapping[str, int]
    status: Status
    disagreement: float
    adjudication: Adjudication | None
    words: str


@dataclass(frozen=True)
class WorkerFigures:
    """Figures of one worker in this study."""

    worker: str
    votes: int
    counted: int
    """Number of the worker's votes that count; 0 if excluded. Only the first `Rules.votes` votes on an item count."""
    controls: Proportion
    with_consensus: Proportion
    """Share of answers that equal the consensus, if one exists. The worker's own vote may be part of the consensus."""
    median_seconds: float | None
    """Median number of seconds on items and control items; None without an answer."""
    too_fast: Proportion
    """Share of answers faster than the rules' `too_fast_seconds`. A high share is a hint, not a proof."""
    changed: int
    approval: float | None
    finished: int
    decided: Mapping[ApprovalVerdict, int]
    """Number of assignments in this study by decision. All three decisions are keys."""
    exclusion: Exclusion | None
    blocked: bool
    words: str
    judged: bool = True
    """False if the study has control items, but the worker saw too few to be judged and is not excluded."""
    same_browser: tuple[str, ...] = ()
    """Other workers of the study who used the same browser."""

    @property
    def answered(self) -> bool:
        """True if the worker answered an item, a control item or a quiz item. Training does not count."""
        return any(self.decided.values())


@dataclass(frozen=True)
class RulesChange:
    """A change of the rules after the start of the study, with the values before and after."""

    version: int
    since: datetime
    votes: tuple[int, int]
    consensus: tuple[int, int]
    votes_in: int
    """Number of votes on items before the change. The author of the change could see them."""
    words: str


@dataclass(frozen=True)
class Conditions:
    """Conditions under which items were really shown and workers joined. They can differ from the rules."""

    with_source: int
    """Number of items shown beside their source."""
    with_captions: int
    controls_shown: int
    shown: int
    """Number of answers to items and control items, by all workers, without imported ones."""
    linked: bool
    """True if anybody could join by an open link, under any number of names."""
    panelled: bool
    """True if only people named by a panel could join by the open link."""
    same_browser: tuple[tuple[str, ...], ...]
    """Groups of workers who voted from the same browser: perhaps one person under several names."""


@dataclass(frozen=True)
class StudyReport:
    """The full report of a study. Its figures change until the study is closed."""

    study: Study
    items: int
    complete: int
    """Number of items with all K votes."""
    votes_cast: int
    votes_imported: int
    """Number of votes cast that were imported from a file."""
    votes_excluded: int
    """Number of votes that excluded workers cast on items."""
    votes_surplus: int
    """Number of votes beyond those that the items need (`Rules.votes`). Votes of excluded workers are left out."""
    votes_counted: int
    """Number of votes that count: votes_cast - votes_excluded - votes_surplus."""
    further_people: int
    """Minimum number of people who must join so that every image can get all its votes; 0 for a closed study."""
    images: Slice
    """Validity of images. An image is valid if all its questions on validity say so; see `consensus.image_outcome`."""
    images_before: Slice
    images_adjudicated: Slice | None
    image_slices: Slices
    agreement: Agreement
    """Agreement over all questions on validity with the same kind of answers. Each (image, question) is one item."""
    controls: Proportion
    """Share of control items answered right, over all workers. The interval assumes that answers are independent."""
    questions: tuple[QuestionResult, ...]
    disagreements: tuple[Disagreement, ...]
    """Disagreements, the most divided first."""
    workers: tuple[WorkerFigures, ...]
    """Figures of each worker, the worker with most votes first."""
    exclusions: tuple[Exclusion, ...]
    comments: tuple[Remark, ...]
    """Comments on items, including those of excluded workers."""
    first: datetime | None
    last: datetime | None
    """Time of the last vote on items; None without votes."""
    changes: tuple[RulesChange, ...]
    """Changes of the rules after the start, earliest first."""
    first_rules: Rules
    as_announced: Slice | None
    """Validity of images by the rules at the start of the study; None if the rules did not change."""
    conditions: Conditions
    notes: tuple[str, ...]
    """Warnings to read before trusting a figure, such as no votes, one worker only, or a study still running."""


@dataclass(frozen=True)
class Measure:
    """One measure of agreement, or words that say why it is undefined."""

    value: float | None
    """1 is full agreement. 0 is chance agreement (raw measure: no agreement). Negative values are worse than chance."""
    words: str
    n_items: int
    """Number of items with at least two votes."""
    raters: float
    """Mean number of votes on an item, over the items with at least two votes."""


HIGH_PREVALENCE = 0.8
"""Share of the most frequent answer, 0 to 1. If one answer has this share or more, alpha and kappa are low even if
workers agree, since chance agreement is high (Feinstein and Cicchetti 1990, Journal of Clinical Epidemiology 43)."""


@dataclass(frozen=True)
class Agreement:
    """Measures of agreement. Read them together, as each misleads alone."""

    raw: Measure
    alpha: Measure
    ac1: Measure
    fleiss: Measure
    ordinal: Measure | None
    """Alpha for a scale, where neighbouring answers count as partial agreement; None for questions without an order."""
    prevalence: float | None
    frequent: str
    words: str
    """Explanation of all measures together, for readers who do not know them."""

    @property
    def pulled_down(self) -> bool:
        """True if one answer is so frequent that alpha and kappa are low even if workers agree."""
        if self.prevalence is None or self.alpha.value is None or self.ac1.value is None:
            return False
        return self.prevalence >= HIGH_PREVALENCE and self.ac1.value - self.alpha.value > 0.1


@dataclass(frozen=True)
class PowerPlan:
    """Predicted results of a planned study, and the people and time that it needs."""

    items: int
    votes: int
    survive: float
    """Expected share of items with a consensus, 0 to 1."""
    rate: float
    """Expected share of valid images, 0 to 1, among images with a consensus. The assumed true share is in `words`."""
    low: float
    high: float
    width: float
    annotators: int
    """Number of annotators needed if each works for `minutes_each` and nobody votes twice on an item."""
    minutes_each: float
    """Minutes of work for each annotator, including control items, quiz and training."""
    items_each: int
    hours: float
    words: str


def further_people_words(people: int) -> str:
    """Return the sentence that tells the lead how many more annotators are needed."""
    return (
        f"At least {count_of(people, 'more annotator', 'is')} needed for the missing votes: nobody votes twice on an "
        "image, and excluded workers do not vote."
    )
