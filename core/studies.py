"""The types of a validity study. Plain frozen dataclasses; no SQL, no pages, no pictures.

Words: an *item* of a *study* is an image to be judged. The right answers of a *control item* are known. A *worker* gets
an *assignment*: one item, leased for a while. A *vote* is the worker's answers to the *questions* about the item.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from core.form_numbers import FormNumber

_UNDER_LABEL = re.compile(r"\b(an?|An?) \{label\}")
_NO_AN = re.compile(r"(?:one|once|uni(?!n|m)|use|usu|ut[ei]|eu|ufo)", re.IGNORECASE)
"""Pattern of words that begin with a vowel letter but take "a": a unicorn, a European. (But: an uninhabited island.)"""

QuestionKind = Literal["yes-no", "choice", "scale", "text"]
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
StudyState = Literal["draft", "running", "paused", "closed"]
ItemKind = Literal["item", "control", "quiz", "training"]
ITEM_KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
WORK: tuple[ItemKind, ...] = ("item", "control", "quiz")
"""Kinds of items whose assignments are approved or rejected. Training items are neither, so they are not here."""
LONGEST_WHY = 1000
"""Maximum number of characters in the explanation of a training item's right answers."""
LONGEST_STUDY_TEXT = 10_000
MOST_TRAINING = 20
AssignmentState = Literal["leased", "submitted", "expired"]
ApprovalVerdict = Literal["approved", "rejected", "pending"]
Side = Literal["left", "right"]
SCALE: tuple[str, ...] = ("1", "2", "3", "4", "5")
YES_NO: tuple[str, ...] = ("yes", "no")
Answers = Mapping[str, str]
"""A worker's answers by question id: an option as written, "yes" or "no", "1" to "5", or free text."""


@dataclass(frozen=True)
class Question:
    """One question about an image. No answer is ever preselected."""

    id: str
    """Id of lower case letters, digits and hyphens. It is unique in the study and names a column of the exports."""
    text: str
    """Text of the question. May contain {label}: the class of the item."""
    kind: QuestionKind
    options: tuple[str, ...] = ()
    """Options of a choice question, 2 to 9. Questions of other kinds have fixed options."""
    low: str = ""
    high: str = ""
    valid: tuple[str, ...] = ()
    """Answers that declare the image valid; () for a question that is not about validity."""
    required: bool = True
    only_with: str = ""
    """Class that an item must show for this question to be asked; "" to ask it about all items."""
    follows: str = ""
    """Id of an earlier question; "" if none. This question is asked only if the earlier answer is `follows_answer`."""
    follows_answer: str = ""

    def answers(self) -> tuple[str, ...]:
        """Return the possible answers; () for a question with free text."""
        return {"yes-no": YES_NO, "scale": SCALE}.get(self.kind, self.options)


@dataclass(frozen=True)
class Eligibility:
    """Rules for who may take part. By default, as in the paper: at least 50 decided assignments, over 95 % approved."""

    min_approval: Annotated[
        float, FormNumber(0, 99.99, "Approval above", "approved of all decided assignments", "%", whole=False)
    ] = 0.95
    min_finished: Annotated[
        int, FormNumber(0, 100_000, "Decided assignments", "at least, in all studies; 0 asks for none")
    ] = 50
    """Minimum number of decided assignments in all studies. With 0, only `min_approval` decides who may join."""
    quiz: Annotated[int, FormNumber(0, 50, "Quiz", "in place of a record; 0 for none", "questions")] = 0
    """Number of quiz items for a worker whose record is too short; 0 for no quiz."""
    quiz_pass: Annotated[float, FormNumber(0, 100, "Right in the quiz", "at least", "%", whole=False)] = 0.8


@dataclass(frozen=True)
class ControlPolicy:
    """Rules for control items, fixed before the first vote."""

    share: Annotated[float, FormNumber(0, 50, "Share of control items", "0 for none", "%", whole=False)] = 0.1
    min_seen: Annotated[
        int, FormNumber(1, 100, "A worker is judged after", "nobody is excluded earlier", "control items")
    ] = 4
    """Number of control items that a worker sees before the rule applies. With 4 items and `min_right` 0.75, one
    mistake is allowed. This excludes 1 % of workers who are right 95 % of the time, and 69 % of workers who guess."""
    min_right: Annotated[
        float,
        FormNumber(0, 100, "Control items right", "below it all votes of this worker are replaced", "%", whole=False),
    ] = 0.75
    """Minimum share of control items answered right, 0 to 1. A worker below it is excluded, and all their votes are
    replaced."""


@dataclass(frozen=True)
class InstructionExample:
    """A picture in the instructions, with its right answer and an explanation."""

    sha: str
    answer: str
    why: str


@dataclass(frozen=True)
class LeftOutItem:
    """A control, quiz or training item that a person has removed or answered. The studio does not make it again."""

    kind: ItemKind
    image_sha: str
    """SHA-256 of the item's image, as it was before its brightness and colours were changed."""
    source_sha: str
    label: str


@dataclass(frozen=True)
class Rules:
    """Rules of a study. At the start they get a version number. A version never changes."""

    questions: tuple[Question, ...]
    template: str = ""
    votes: Annotated[int, FormNumber(1, 50, "Votes an image", "by as many different workers")] = 5
    """Number of votes of distinct workers for every item (K)."""
    consensus: Annotated[
        int, FormNumber(1, 50, "Consensus", "with fewer equal answers, the question of the image is discarded")
    ] = 4
    """Minimum number of equal answers, out of `votes`, for a consensus. Otherwise the item's question is discarded."""
    controls: ControlPolicy = field(default_factory=ControlPolicy)
    eligibility: Eligibility = field(default_factory=Eligibility)
    training: Annotated[
        int, FormNumber(0, MOST_TRAINING, "Training", "before all else, with feedback; 0 for none", "images")
    ] = 0
    """Number of training items that every worker answers first, with feedback on each; 0 for none."""
    show_source: bool = False
    """True to show source and generated image side by side. The sides are drawn at random and recorded."""
    show_captions: bool = False
    """True to show both captions, with changed words marked."""
    consent: str = ""
    instructions: str = ""
    examples: tuple[InstructionExample, ...] = ()
    most_items: Annotated[
        int, FormNumber(0, 100_000, "Images a person, at most", "so that nobody judges everything; 0 for no limit")
    ] = 0
    """Maximum number of items for one worker, besides items with a known answer; 0 for no limit."""
    lease_minutes: Annotated[
        float, FormNumber(1, 240, "An image is held for", "then somebody else gets it", "min", whole=False)
    ] = 15.0
    seconds_expected: Annotated[float, FormNumber(0.1, 600, "Time a vote takes", "for the plan", "s", whole=False)] = (
        8.0
    )
    too_fast_seconds: Annotated[
        float, FormNumber(0, 60, "Too fast below", "reported, nobody is excluded for it", "s", whole=False)
    ] = 1.0
    """Seconds below which a vote counts as too fast. Such votes are reported, but exclude nobody."""
    seed: Annotated[int, FormNumber(0, 2**31 - 1, "Seed", "of samples, order and sides")] = 0
    left_out: tuple[LeftOutItem, ...] = ()
    version: int = 0
    """Number of the version of the rules: 0 for a draft, 1 at the start of the study, plus 1 for each later change."""


@dataclass(frozen=True)
class NewItem:
    """An item to add to a study; its images are in the workspace already."""

    image_sha: str
    source_sha: str | None = None
    kind: ItemKind = "item"
    expected: Answers = field(default_factory=dict)
    why: str = ""
    """Explanation of a training item's right answers, shown after the worker's answer."""
    label: str = ""
    classes: tuple[str, ...] = ()
    """Classes that the image shows, such as "vehicle". They decide which questions with `only_with` are asked."""
    edit_types: tuple[str, ...] = ()
    caption: str = ""
    counterfactual: str = ""
    test_case: int | None = None
    model: str = ""
    model_right: bool | None = None
    group: str = ""
    """Name of the sample that the item was drawn for, such as "random" or "misclassified"."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the image: file name, run, prompt, model, seed. Never shown to a worker."""


@dataclass(frozen=True)
class Item(NewItem):
    """An item of a study: an image that workers judge."""

    id: int = 0
    public: str = ""
    """Name of the item in exports. It reveals nothing about the item."""


@dataclass(frozen=True)
class Vote:
    """One worker's latest vote on one item, unless it was withdrawn."""

    assignment: int
    item: int
    kind: ItemKind
    worker: str
    answers: Answers
    comment: str
    accepted: datetime
    """Time at which the item was leased."""
    submitted: datetime
    seconds: float
    """Seconds of viewing as measured by the page, at most the time since the item was leased."""
    side: Side
    changes: int = 0
    """Number of times that the worker undid or changed this vote."""
    verdict: ApprovalVerdict = "pending"
    reason: str = ""
    decided: datetime | None = None
    """Time of the vote's approval or rejection in this workspace. None while pending and for imported votes."""
    imported: bool = False
    """True if the vote was imported from a file. How it was collected is unknown here."""


@dataclass(frozen=True)
class Worker:
    """A worker under a pseudonym, with the numbers of approved and rejected assignments."""

    id: str
    created: datetime
    approved: int = 0
    rejected: int = 0
    pending: int = 0
    blocked: bool = False

    @property
    def finished(self) -> int:
        return self.approved + self.rejected

    @property
    def approval(self) -> float | None:
        """Approved / (approved + rejected), or None before the first decision."""
        return self.approved / self.finished if self.finished else None


@dataclass(frozen=True)
class Exclusion:
    """A worker's exclusion from a study, with its reason. The worker's votes do not count. It can be reversed."""

    worker: str
    reason: str
    by: Literal["rule", "person"]
    created: datetime


@dataclass(frozen=True)
class Adjudication:
    """A person's answer for an item whose workers had no consensus. It is kept apart from the votes."""

    item: int
    question: str
    answer: str
    reason: str
    created: datetime


@dataclass(frozen=True)
class Study:
    """A study with its counts, as the list of studies shows it."""

    id: str
    name: str
    state: StudyState
    rules: Rules
    created: datetime
    changed: datetime
    items: int = 0
    controls: int = 0
    quiz: int = 0
    training: int = 0
    votes: int = 0
    """Number of current votes that count: on items, by workers who are not excluded, at most K for each item."""
    needed: int = 0
    """Number of votes that the study needs: items * rules.votes."""
    workers: int = 0
    """Number of workers who answered at least one item that is not for training."""
    link: str = ""
    """Token of the open invitation link; "" if the link is off."""
    archived: bool = False
    """True if the study is archived. It is listed last and accepts no votes."""


@dataclass(frozen=True)
class StudyData:
    """All data of a study that an analysis needs."""

    study: Study
    items: tuple[Item, ...]
    votes: tuple[Vote, ...]
    """Votes by time of first submission."""
    workers: tuple[Worker, ...]
    exclusions: tuple[Exclusion, ...]
    adjudications: tuple[Adjudication, ...]
    history: tuple[tuple[Rules, datetime], ...] = ()
    """Versions of the rules with the time at which each began, oldest first; () for a draft."""
    same_browser: tuple[tuple[str, ...], ...] = ()
    """Groups of workers from the same browser: perhaps one person."""
    linked: bool = False
    panelled: bool = False


def asked(questions: Sequence[Question], item: NewItem, answers: Answers) -> tuple[Question, ...]:
    """Return the questions for this item, in order. A question with `only_with` is asked if the item shows the class
    `only_with`, in any case. A question with `follows` is asked if question `follows` got the answer `follows_answer`.
    """
    shown = {name.casefold() for name in item.classes}
    chosen: dict[str, Question] = {}
    for question in questions:
        if question.only_with and question.only_with.casefold() not in shown:
            continue
        if question.follows and (
            question.follows not in chosen or answers.get(question.follows) != question.follows_answer
        ):
            continue
        chosen[question.id] = question
    return tuple(chosen.values())


def wording(question: Question, item: NewItem) -> str:
    """Return the question's text for an item, with the fitting article ("an owl") and the first name of its label
    ("tench, Tinca tinca") for {label}. A missing label becomes "its subject".
    """
    label = item.label.split(",")[0].replace("_", " ").strip()
    if not label:
        return _UNDER_LABEL.sub("its subject", question.text).replace("{label}", "its subject")

    def with_article(match: re.Match[str]) -> str:
        article = "an" if label[0].lower() in "aeiou" and not _NO_AN.match(label) else "a"
        return f"{article.capitalize() if match[1][0] == 'A' else article} {label}"

    return _UNDER_LABEL.sub(with_article, question.text).replace("{label}", label)


@dataclass(frozen=True)
class RuleProblem:
    """One problem in the rules of a study, at a field of the form."""

    field: str
    text: str
    label: str = ""

    @property
    def words(self) -> str:
        """The text, preceded by the label of the field, for a place where the field is not visible."""
        return f"{self.label}: {self.text[:1].lower()}{self.text[1:]}" if self.label else self.text


@dataclass(frozen=True)
class Finding:
    """A problem with a study that the study lead should fix or know."""

    field: str
    """Field of the form in which the problem can be fixed."""
    text: str
    stops: bool
    """True if the study cannot start before the problem is fixed."""


@dataclass(frozen=True)
class QuestionFeedback:
    """Feedback on a worker's answer to one question."""

    question: str
    given: str
    """Answer of the worker; "" if none exists, or if earlier answers made the question unnecessary."""
    expected: str
    """Right answer; "" if none is known. Then the given answer counts as neither right nor wrong."""
    right: bool | None


@dataclass(frozen=True)
class Feedback:
    """Feedback on a worker's answers to a training item."""

    right: bool
    answers: tuple[QuestionFeedback, ...]
    why: str


def right(item: NewItem, answers: Answers, questions: Sequence[Question]) -> bool:
    """Return True if all known right answers of an item were given. Raises ValueError if the item has none."""
    expected = [q for q in asked(questions, item, {**answers, **item.expected}) if q.id in item.expected]
    if not expected:
        raise ValueError("A control item needs the right answer to at least one of its questions.")
    return all(
        answers.get(question.id, "").strip().casefold() == item.expected[question.id].strip().casefold()
        for question in expected
    )
