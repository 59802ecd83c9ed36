"""Results of an analysis of a study. Plain frozen dataclasses; every figure that may be undefined has words."""

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
    """Validity of a group of images. The unit is the image: it counts once, however many votes it has."""

    name: str
    """"" for all; else a class, an edit type, a sample, "NAME: right" or "NAME: wrong" for a model under test."""
    items: int
    """Number of items asked: decided + discarded + short + waiting."""
    rate: Proportion
    """Valid among those with a consensus (rate.n of them), with the Wilson interval."""
    discarded: int
    """Number of items with all votes but no consensus."""
    short: int
    """Number of items with too few votes in a closed study."""
    waiting: int
    """Number of items whose votes are still to come."""
    bounds: Bounds
    """Rates if all discarded and short items were invalid, and if all were valid."""


@dataclass(frozen=True)
class Slices:
    """Validity by group of images. Images without a label, say, form a last group "(none)"; () if no image has one."""

    by_class: tuple[Slice, ...] = ()
    """Results by label, or by shown classes for images without a label. An image can be in several."""
    by_edit_type: tuple[Slice, ...] = ()
    """Results by edit type. An image with edits of two types is in both."""
    by_group: tuple[Slice, ...] = ()
    """Results by the sample that an image was drawn for."""
    by_model: tuple[Slice, ...] = ()
    """Results by whether the model under test is right on the image."""


@dataclass(frozen=True)
class AnswerShare:
    """One possible answer of a question."""

    answer: str
    votes: int
    share: Proportion
    """Images with a consensus on it among all with a consensus."""


@dataclass(frozen=True)
class SecondOpinion:
    """Results of other ways to aggregate the same votes. Images that wait for votes are left out."""

    majority: Proportion
    """Share of valid images by the most frequent answer, without ties."""
    ties: int
    dawid_skene: Proportion
    """Share of valid images by Dawid and Skene's model, which answers every image with a vote."""
    differ: tuple[int, ...]
    """Items whose consensus differs from Dawid and Skene's answer."""
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
    """Result without the votes of excluded workers, and with those of their replacements. This is THE result."""
    before: Slice
    """Result as if nobody had been excluded: the first K votes of anybody."""
    adjudicated: Slice | None
    """Result of `after` with a person's answers where the workers had no consensus; None without adjudications. Not a
    result of the workers: report it apart."""
    votes: Proportion
    """Share of counted votes for valid, with a bootstrap over images, including waiting ones."""
    answers: tuple[AnswerShare, ...]
    """Empty for free text."""
    mean: Mean | None
    """Mean of the images' mean ratings on a scale, 1 to 5; None for other kinds."""
    agreement: Agreement
    agreement_before: Agreement
    second: SecondOpinion
    slices: Slices
    remarks: tuple[Remark, ...]
    """Answers to a free-text question."""


@dataclass(frozen=True)
class Disagreement:
    """A question of an item on which its workers disagree."""

    item: int
    question: str
    """Id of the question."""
    counts: Mapping[str, int]
    """Votes by answer, the most frequent first."""
    status: Status
    disagreement: float
    """Share of pairs of votes that differ, 0 to 1."""
    adjudication: Adjudication | None
    words: str
    """Counts in words, such as "3 yes, 2 no"."""


@dataclass(frozen=True)
class WorkerFigures:
    """Figures of one worker in this study."""

    worker: str
    votes: int
    """Number of votes on items."""
    counted: int
    """Number of votes in the result: not excluded and among the first K."""
    controls: Proportion
    """Share of control items answered right."""
    with_consensus: Proportion
    """Share of answers equal to the consensus, if there is one, which may include the worker's own vote."""
    median_seconds: float | None
    """Median over items and control items, or None."""
    too_fast: Proportion
    """Share of answers faster than the rules' `too_fast_seconds`. A hint, not a verdict."""
    changed: int
    """Number of votes that were undone or answered again."""
    approval: float | None
    """Approved / (approved + rejected) in all studies, 0 to 1; None before the first decision."""
    finished: int
    """Decided assignments in all studies."""
    decided: Mapping[ApprovalVerdict, int]
    """Number of assignments in this study by decision; all three keys exist."""
    exclusion: Exclusion | None
    blocked: bool
    words: str
    """One line for the table, such as "excluded: ...; 47 votes left out"."""
    judged: bool = True
    """True if they saw enough control items for the rule, or were excluded, or there are none."""
    same_browser: tuple[str, ...] = ()
    """Other workers of the study from the same browser."""

    @property
    def answered(self) -> bool:
        """True if the worker answered an item, a control or a quiz item. Training does not count."""
        return any(self.decided.values())


@dataclass(frozen=True)
class RulesChange:
    """A new version of the rules after the start: values before and since."""

    version: int
    since: datetime
    votes: tuple[int, int]
    """Votes an image: before, since."""
    consensus: tuple[int, int]
    votes_in: int
    """Number of votes on items before the change, which its author could see."""
    words: str
    """Summary in one sentence."""


@dataclass(frozen=True)
class Conditions:
    """Actual conditions of items and workers, regardless of the rules."""

    with_source: int
    """Number of items shown beside their source."""
    with_captions: int
    """Number of items shown with both captions."""
    controls_shown: int
    """Number of answers to control items, by all workers."""
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
    """The full report of a study. Changes until the study is closed."""

    study: Study
    items: int
    complete: int
    """Number of items with all K votes."""
    votes_cast: int
    """Number of votes on items, by anybody."""
    votes_imported: int
    """Number of votes cast that were imported from a file."""
    votes_excluded: int
    """Number of votes cast by excluded workers."""
    votes_surplus: int
    """Number of other votes beyond the first K of an item (after a readmission)."""
    votes_counted: int
    """votes_cast - votes_excluded - votes_surplus."""
    further_people: int
    """Minimum number of people who must join so that every image can get all its votes; 0 for a closed study."""
    images: Slice
    """Validity of images: valid if every asked question on validity agrees; see consensus.image_outcome."""
    images_before: Slice
    images_adjudicated: Slice | None
    image_slices: Slices
    agreement: Agreement
    """Agreement over all questions on validity with the same kind of answers. An (image, question) is one item."""
    controls: Proportion
    """Share of right answers to control items, all workers; the interval assumes independence."""
    questions: tuple[QuestionResult, ...]
    disagreements: tuple[Disagreement, ...]
    """Disagreements, the most divided first."""
    workers: tuple[WorkerFigures, ...]
    """Workers, those with most votes first."""
    exclusions: tuple[Exclusion, ...]
    comments: tuple[Remark, ...]
    """Comments on items, including those of excluded workers."""
    first: datetime | None
    last: datetime | None
    """Times of the first and last vote on items."""
    changes: tuple[RulesChange, ...]
    """Changes of the rules after the start, earliest first."""
    first_rules: Rules
    as_announced: Slice | None
    """Result of `images` by the rules at the start; None if they did not change."""
    conditions: Conditions
    notes: tuple[str, ...]
    """Warnings to read before trusting a figure: no votes, one worker, still running."""


@dataclass(frozen=True)
class Measure:
    """One figure of agreement, or words for its absence."""

    value: float | None
    """1 is full agreement, 0 is chance level (for the raw measure: no agreement); below 0 is worse than chance."""
    words: str
    n_items: int
    """Number of items with at least two votes."""
    raters: float
    """Mean votes per item, over those items."""


HIGH_PREVALENCE = 0.8
"""Share of one answer, 0 to 1, from which chance-corrected measures that use the margins (alpha, kappa) fall by
construction (Feinstein and Cicchetti 1990, Journal of Clinical Epidemiology 43)."""


@dataclass(frozen=True)
class Agreement:
    """Measures of agreement, which have to be read together."""

    raw: Measure
    alpha: Measure
    ac1: Measure
    fleiss: Measure
    ordinal: Measure | None
    """Alpha that counts near misses on a scale as partial agreement; None for questions without an order."""
    prevalence: float | None
    """Share of the most frequent answer in all votes, 0 to 1."""
    frequent: str
    """The most frequent answer."""
    words: str
    """Joint interpretation of the figures, for readers who do not know them."""

    @property
    def pulled_down(self) -> bool:
        """True if one answer is so frequent that alpha and kappa are low by construction."""
        if self.prevalence is None or self.alpha.value is None or self.ac1.value is None:
            return False
        return self.prevalence >= HIGH_PREVALENCE and self.ac1.value - self.alpha.value > 0.1


@dataclass(frozen=True)
class PowerPlan:
    """Expected values of a study plan."""

    items: int
    votes: int
    """Number of votes on items in total: K an item."""
    survive: float
    """Expected share of items with a consensus, 0 to 1."""
    rate: float
    """Expected share of those found valid, 0 to 1: not the true share, see `words`."""
    low: float
    """Expected Wilson interval, 0 to 1."""
    high: float
    width: float
    """high - low."""
    annotators: int
    """Number of annotators to finish within `minutes_each`; at least K, as nobody votes twice on an item."""
    minutes_each: float
    """Minutes of each annotator, including control items, quiz and training."""
    items_each: int
    """Number of items shown to each, including control items, quiz and training."""
    hours: float
    """Hours of all annotators together."""
    words: str


def further_people_words(people: int) -> str:
    """Return the sentence that tells the lead how many more annotators are needed."""
    return (
        f"At least {count_of(people, 'more annotator', 'is')} needed for the missing votes: nobody votes twice on an "
        "image, and excluded workers do not vote."
    )
