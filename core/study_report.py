"""What an analysis says. Plain frozen dataclasses; every figure that may be undefined carries words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from core.consensus import Status
from core.figures import Bounds, Mean, Proportion
from core.studies import Adjudication, ApprovalVerdict, Exclusion, Question, Rules, Study
from core.words import count_of

NONE = "(none)"
"""The part of the images that have no class, edit type, sample or verdict, where others have one."""


@dataclass(frozen=True)
class Slice:
    """How many images of some kind are valid. The unit is the image: it counts once, however many votes it has."""

    name: str
    """"" for all; else a class, an edit type, a sample, "NAME: right" or "NAME: wrong" for a model under test."""
    items: int
    """That were asked: decided + discarded + short + waiting."""
    rate: Proportion
    """Valid among those with a consensus (rate.n of them), with the Wilson interval."""
    discarded: int
    """All votes in, no consensus."""
    short: int
    """The study is closed and too few votes were left."""
    waiting: int
    """Votes are still to come."""
    bounds: Bounds
    """If all discarded and short ones were invalid, and if all were valid."""


@dataclass(frozen=True)
class Slices:
    """The same figure for parts of the images. Those that have no label, say, are a part of their own, named "(none)",
    the last; () where no image has one."""

    by_class: tuple[Slice, ...] = ()
    """By label; by what is shown, where there is no label (an image can be in several)."""
    by_edit_type: tuple[Slice, ...] = ()
    """An image with edits of two types is in both."""
    by_group: tuple[Slice, ...] = ()
    """By the sample that an image was drawn for."""
    by_model: tuple[Slice, ...] = ()
    """By whether the model under test is right on it."""


@dataclass(frozen=True)
class AnswerShare:
    """One possible answer of a question."""

    answer: str
    votes: int
    share: Proportion
    """Images with a consensus on it among all with a consensus."""


@dataclass(frozen=True)
class SecondOpinion:
    """What other ways to aggregate the same votes say. Images that wait for votes are left out."""

    majority: Proportion
    """Valid by the most frequent answer, ties left out."""
    ties: int
    dawid_skene: Proportion
    """Valid by Dawid and Skene's model, which gives every image with a vote an answer."""
    differ: tuple[int, ...]
    """Items whose consensus is not Dawid and Skene's answer."""
    words: str


@dataclass(frozen=True)
class Remark:
    """A text that a worker wrote: the answer to a question in free text, or a comment."""

    item: int
    worker: str
    text: str


@dataclass(frozen=True)
class QuestionResult:
    """All figures of one question."""

    question: Question
    after: Slice
    """Votes of excluded workers left out, replacements in. THE result."""
    before: Slice
    """As if nobody had been excluded: the first K votes of anybody."""
    adjudicated: Slice | None
    """As `after`, a person's answer standing in where the workers found none; None without adjudications. Not a result
    of the workers: report it apart."""
    votes: Proportion
    """Share of counted votes that say valid, with a bootstrap over images; those of waiting images too."""
    answers: tuple[AnswerShare, ...]
    """Empty for free text."""
    mean: Mean | None
    """Of a scale: mean of the images' mean ratings, 1 to 5."""
    agreement: Agreement
    agreement_before: Agreement
    second: SecondOpinion
    slices: Slices
    remarks: tuple[Remark, ...]
    """Of a question in free text."""


@dataclass(frozen=True)
class Disagreement:
    """A question of an item that its workers did not answer alike."""

    item: int
    question: str
    """Its id."""
    counts: Mapping[str, int]
    """Votes by answer, the most frequent first."""
    status: Status
    disagreement: float
    """Share of pairs of votes that differ, 0 to 1."""
    adjudication: Adjudication | None
    words: str
    """Such as "3 yes, 2 no"."""


@dataclass(frozen=True)
class WorkerFigures:
    """One worker in this study."""

    worker: str
    votes: int
    """On items."""
    counted: int
    """Of those, in the result: neither excluded nor beyond the first K."""
    controls: Proportion
    """Control items answered right."""
    with_consensus: Proportion
    """Answers equal to the consensus, where there is one; the worker's own vote is part of it if it counts."""
    median_seconds: float | None
    """Of items and control items; None without one."""
    too_fast: Proportion
    """Of the same: faster than the rules' `too_fast_seconds`. A hint, not a verdict."""
    changed: int
    """Votes that were undone or answered anew."""
    approval: float | None
    """Approved / (approved + rejected) in all studies, 0 to 1; None before the first decision."""
    finished: int
    """Assignments decided on in all studies."""
    decided: Mapping[ApprovalVerdict, int]
    """Assignments of this study by what was decided; all three are there."""
    exclusion: Exclusion | None
    blocked: bool
    words: str
    """One line for the table, such as "excluded: ...; 47 votes left out"."""
    judged: bool = True
    """Whether they saw as many control items as the rule judges by, or were excluded. True where there are none."""
    same_browser: tuple[str, ...] = ()
    """Other workers of the study who came from the same browser as this one."""

    @property
    def answered(self) -> bool:
        """Whether they have answered anything that counts: an item, a control or a quiz item, not the training."""
        return any(self.decided.values())


@dataclass(frozen=True)
class RulesChange:
    """A new version of the rules after the start: what was asked for before and since."""

    version: int
    since: datetime
    votes: tuple[int, int]
    """Of an image: before, since."""
    consensus: tuple[int, int]
    votes_in: int
    """Votes on items that had been cast by then: what the change was made in the knowledge of."""
    words: str
    """One sentence that says all of it."""


@dataclass(frozen=True)
class Conditions:
    """What items and workers had in fact, whatever the rules allow for."""

    with_source: int
    """Items that were shown beside their source."""
    with_captions: int
    """Items that were shown with both captions."""
    controls_shown: int
    """Answers to control items, of all workers."""
    shown: int
    """Answers to items and control items, of all workers, those from a file left out."""
    linked: bool
    """There was an open link by which anybody could join, under as many names as they liked."""
    panelled: bool
    """There was an open link by which only people whom a panel named could join."""
    same_browser: tuple[tuple[str, ...], ...]
    """Workers who voted from one and the same browser: perhaps one person under several names."""


@dataclass(frozen=True)
class StudyReport:
    """All that is known of a study at the moment. Live as long as it is not closed."""

    study: Study
    items: int
    complete: int
    """Items with all K votes."""
    votes_cast: int
    """On items, by anybody."""
    votes_imported: int
    """Of those, brought in from a file."""
    votes_excluded: int
    """Of those, by excluded workers."""
    votes_surplus: int
    """Of the others, beyond the first K of an item (after a readmission)."""
    votes_counted: int
    """votes_cast - votes_excluded - votes_surplus."""
    further_people: int
    """The least number of people who have to join before every image can get all its votes; 0 of a closed study."""
    images: Slice
    """An image is valid when every question on validity that it was asked says so; see consensus.image_outcome."""
    images_before: Slice
    images_adjudicated: Slice | None
    image_slices: Slices
    agreement: Agreement
    """Of all questions on validity with the same kind of answers together, an (image, question) being one item."""
    controls: Proportion
    """Answers to control items that are right, of all workers; the interval takes them for independent."""
    questions: tuple[QuestionResult, ...]
    disagreements: tuple[Disagreement, ...]
    """The most divided first."""
    workers: tuple[WorkerFigures, ...]
    """The one with most votes first."""
    exclusions: tuple[Exclusion, ...]
    comments: tuple[Remark, ...]
    """On items, those of excluded workers too."""
    first: datetime | None
    last: datetime | None
    """Of the votes on items."""
    changes: tuple[RulesChange, ...]
    """Of the rules, after the start; the earliest first."""
    first_rules: Rules
    as_announced: Slice | None
    """As `images`, by the rules that the study started with; None if they are the same."""
    conditions: Conditions
    notes: tuple[str, ...]
    """What a reader has to know before they trust a figure: no votes, one worker, still running."""


@dataclass(frozen=True)
class Measure:
    """One figure of agreement, or the words that say why there is none."""

    value: float | None
    """1 is full agreement, 0 what chance gives (for the raw one: no agreement); below 0 is worse than chance."""
    words: str
    n_items: int
    """Items with at least two votes."""
    raters: float
    """Votes an item, the mean over those items."""


HIGH_PREVALENCE = 0.8
"""From such a share of one answer on, 0 to 1, chance-corrected measures that use the margins (alpha, kappa) fall by
construction (Feinstein and Cicchetti 1990, Journal of Clinical Epidemiology 43)."""


@dataclass(frozen=True)
class Agreement:
    """The measures that have to be read together."""

    raw: Measure
    alpha: Measure
    ac1: Measure
    fleiss: Measure
    ordinal: Measure | None
    """Alpha that takes near misses on a scale for half agreement; None for questions without an order."""
    prevalence: float | None
    """Share of the most frequent answer in all votes, 0 to 1."""
    frequent: str
    """That answer."""
    words: str
    """What the figures mean together, for a person who does not know them."""

    @property
    def pulled_down(self) -> bool:
        """Whether one answer is so frequent that alpha and kappa are low by construction."""
        if self.prevalence is None or self.alpha.value is None or self.ac1.value is None:
            return False
        return self.prevalence >= HIGH_PREVALENCE and self.ac1.value - self.alpha.value > 0.1


@dataclass(frozen=True)
class PowerPlan:
    """The figures of a plan, as expected values."""

    items: int
    votes: int
    """On items, all together: K an item."""
    survive: float
    """Share of the items expected to find a consensus, 0 to 1."""
    rate: float
    """Share of those expected to be valid by it, 0 to 1: not the true share, see `words`."""
    low: float
    """The Wilson interval to expect, 0 to 1."""
    high: float
    width: float
    """high - low."""
    annotators: int
    """To finish within `minutes_each`; never fewer than K, because nobody votes twice on an item."""
    minutes_each: float
    """Of each of so many annotators, control items, quiz and training included."""
    items_each: int
    """What each of them is shown, control items, quiz and training included."""
    hours: float
    """Of all annotators together."""
    words: str


def further_people_words(people: int) -> str:
    """Return the sentence that tells the lead how many more annotators the missing votes take."""
    return (
        f"At least {count_of(people, 'more annotator', 'is')} needed for the missing votes: nobody votes twice on an "
        "image, and excluded workers do not vote."
    )
