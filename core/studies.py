"""The types of a validity study. Plain frozen dataclasses; no SQL, no pages, no pictures.

Words: a *study* has *items* (an image to be judged), some of them *control items* whose right answers are known. A
*worker* gets an *assignment* (one item, leased for a while) and answers its *questions*: a *vote*.
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
"""Words written with an initial vowel but spoken without: a unicorn, a European. (But: an uninhabited island.)"""

QuestionKind = Literal["yes-no", "choice", "scale", "text"]
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
StudyState = Literal["draft", "running", "paused", "closed"]
ItemKind = Literal["item", "control", "quiz", "training"]
ITEM_KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
WORK: tuple[ItemKind, ...] = ("item", "control", "quiz")
"""Kinds of items whose assignments are approved or rejected. Training is not, so every count names its kinds."""
LONGEST_WHY = 1000
"""Maximum characters of the explanation of a training item's right answers."""
LONGEST_STUDY_TEXT = 10_000
"""Maximum characters of the instructions, and of the consent."""
MOST_TRAINING = 20
"""Maximum training items of a study."""
AssignmentState = Literal["leased", "submitted", "expired"]
ApprovalVerdict = Literal["approved", "rejected", "pending"]
Side = Literal["left", "right"]
SCALE: tuple[str, ...] = ("1", "2", "3", "4", "5")
YES_NO: tuple[str, ...] = ("yes", "no")
Answers = Mapping[str, str]
"""Answer by question id: an option as written, "yes" or "no", "1" to "5", or free text."""


@dataclass(frozen=True)
class Question:
    """One question about an image. No answer is ever preselected."""

    id: str
    """Lower case letters, digits and hyphens; unique in its study, a column of its exports."""
    text: str
    """Text of the question. May contain {label}: the class of the item."""
    kind: QuestionKind
    options: tuple[str, ...] = ()
    """Options of a choice, 2 to 9. Other kinds have fixed ones."""
    low: str = ""
    """Meaning of 1 on a scale."""
    high: str = ""
    """Meaning of 5 on a scale."""
    valid: tuple[str, ...] = ()
    """Answers that declare the image valid; () for a question that is not about validity."""
    required: bool = True
    only_with: str = ""
    """Asked only for items that show this class; "" for all."""
    follows: str = ""
    """Asked only if the question with this id was answered with `follows_answer`; "" for always."""
    follows_answer: str = ""

    def answers(self) -> tuple[str, ...]:
        """Return the possible answers; () for free text."""
        return {"yes-no": YES_NO, "scale": SCALE}.get(self.kind, self.options)


@dataclass(frozen=True)
class Eligibility:
    """Rules for who may take part. The defaults are the paper's: more than 95 % approved, at least 50 finished."""

    min_approval: Annotated[
        float, FormNumber(0, 99.99, "Approval above", "approved of all decided assignments", "%", whole=False)
    ] = 0.95
    """Lower bound, 0 to 1. The share approved / (approved + rejected) of a worker has to exceed it."""
    min_finished: Annotated[
        int, FormNumber(0, 100_000, "Decided assignments", "at least, in all studies; 0 asks for none")
    ] = 50
    """Minimum number of decided assignments in all studies. With 0, everybody not below `min_approval` may join."""
    quiz: Annotated[int, FormNumber(0, 50, "Quiz", "in place of a record; 0 for none", "questions")] = 0
    """Number of quiz items that replace a record that is too short; 0 for no quiz."""
    quiz_pass: Annotated[float, FormNumber(0, 100, "Right in the quiz", "at least", "%", whole=False)] = 0.8
    """Share of the quiz that has to be right, 0 to 1."""


@dataclass(frozen=True)
class ControlPolicy:
    """Rules for control items, fixed before the first vote."""

    share: Annotated[float, FormNumber(0, 50, "Share of control items", "0 for none", "%", whole=False)] = 0.1
    """Share of the items shown to a worker, 0 to 0.5."""
    min_seen: Annotated[
        int, FormNumber(1, 100, "A worker is judged after", "nobody is excluded earlier", "control items")
    ] = 4
    """Number of control items that a worker sees before they are judged. With 4 and 0.75 one slip is forgiven: a worker
    who is right 95 times of 100 is excluded at that point once in 70, one who guesses twice in three."""
    min_right: Annotated[
        float,
        FormNumber(0, 100, "Control items right", "below it all votes of this worker are replaced", "%", whole=False),
    ] = 0.75
    """A worker with a smaller share of control items right is excluded, and all their votes are replaced."""


@dataclass(frozen=True)
class InstructionExample:
    """A picture in the instructions, with its answer and the reason."""

    sha: str
    answer: str
    why: str


@dataclass(frozen=True)
class LeftOutItem:
    """A control, quiz or training item to leave out: a person removed it or answered it."""

    kind: ItemKind
    image_sha: str
    """SHA-256 of its image before it was disguised."""
    source_sha: str
    label: str


@dataclass(frozen=True)
class Rules:
    """Rules of a study. Frozen and numbered at the start; a version never changes."""

    questions: tuple[Question, ...]
    template: str = ""
    """Question template that it started from; "" for own questions."""
    votes: Annotated[int, FormNumber(1, 50, "Votes an image", "by as many different workers")] = 5
    """Number of votes of distinct workers for every item (K)."""
    consensus: Annotated[
        int, FormNumber(1, 50, "Consensus", "so many equal answers, or the question of the image is discarded")
    ] = 4
    """Number of equal answers, out of K, that decide. With fewer, the question is discarded for the item."""
    controls: ControlPolicy = field(default_factory=ControlPolicy)
    eligibility: Eligibility = field(default_factory=Eligibility)
    training: Annotated[
        int, FormNumber(0, MOST_TRAINING, "Training", "before all else, with feedback; 0 for none", "images")
    ] = 0
    """Number of training items that every worker answers first, with feedback on each; 0 for none."""
    show_source: bool = False
    """Show source and generated image side by side; the side is random and recorded."""
    show_captions: bool = False
    """Show both captions with changed words marked."""
    consent: str = ""
    """Text that a worker agrees to before the first item."""
    instructions: str = ""
    examples: tuple[InstructionExample, ...] = ()
    most_items: Annotated[
        int, FormNumber(0, 100_000, "Images a person, at most", "so that nobody judges everything; 0 for no limit")
    ] = 0
    """Maximum items for one worker, besides those with a known answer; 0 for no limit."""
    lease_minutes: Annotated[
        float, FormNumber(1, 240, "An image is held for", "then somebody else gets it", "min", whole=False)
    ] = 15.0
    """Minutes after which an unanswered item goes to another worker."""
    seconds_expected: Annotated[float, FormNumber(0.1, 600, "Time a vote takes", "for the plan", "s", whole=False)] = (
        8.0
    )
    too_fast_seconds: Annotated[
        float, FormNumber(0, 60, "Too fast below", "reported, nobody is excluded for it", "s", whole=False)
    ] = 1.0
    """A vote below this time counts as too fast (reported, never excluded by itself)."""
    seed: Annotated[int, FormNumber(0, 2**31 - 1, "Seed", "of samples, order and sides")] = 0
    left_out: tuple[LeftOutItem, ...] = ()
    """Candidates that are not made into control, quiz or training items."""
    version: int = 0
    """Version of the rules: 0 for a draft, 1 at the start of the study, then counted up."""


@dataclass(frozen=True)
class NewItem:
    """An item to add to a study; its images are in the workspace already."""

    image_sha: str
    source_sha: str | None = None
    kind: ItemKind = "item"
    expected: Answers = field(default_factory=dict)
    """The right answers of a control, quiz or training item."""
    why: str = ""
    """Explanation of a training item's right answers, shown after the worker's answer."""
    label: str = ""
    classes: tuple[str, ...] = ()
    """Classes that the image shows, for questions asked only then, such as "vehicle"."""
    edit_types: tuple[str, ...] = ()
    caption: str = ""
    counterfactual: str = ""
    test_case: int | None = None
    """Id of its test case in this workspace, or None."""
    model: str = ""
    """Model under test that `model_right` refers to."""
    model_right: bool | None = None
    group: str = ""
    """Sample that it was drawn for, such as "random" or "misclassified"."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Origin: file name, run, prompt, model, seed. Never shown to a worker."""


@dataclass(frozen=True)
class Item(NewItem):
    """An item of a study."""

    id: int = 0
    public: str = ""
    """Opaque name for exports."""


@dataclass(frozen=True)
class Vote:
    """One worker's current vote on one item, not withdrawn."""

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
    """Viewing time that the page measured and the server bounded."""
    side: Side
    """Side of the generated image beside its source."""
    changes: int = 0
    """Number of times that it was undone or answered again."""
    verdict: ApprovalVerdict = "pending"
    reason: str = ""
    decided: datetime | None = None
    """Time of its approval or rejection here; None while pending and for imported votes."""
    imported: bool = False
    """True if it was imported from a file: its collection is unknown here."""


@dataclass(frozen=True)
class Worker:
    """A pseudonymous worker with their record."""

    id: str
    """Name, such as heron-41."""
    created: datetime
    approved: int = 0
    """Number of approved assignments in all studies."""
    rejected: int = 0
    pending: int = 0
    blocked: bool = False

    @property
    def finished(self) -> int:
        """Number of decided assignments."""
        return self.approved + self.rejected

    @property
    def approval(self) -> float | None:
        """Approved / (approved + rejected), or None before the first decision."""
        return self.approved / self.finished if self.finished else None


@dataclass(frozen=True)
class Exclusion:
    """A worker whose votes do not count in a study, with the reason. Can be reversed."""

    worker: str
    reason: str
    by: Literal["rule", "person"]
    created: datetime


@dataclass(frozen=True)
class Adjudication:
    """A person's answer where the workers had no consensus; kept apart from the votes."""

    item: int
    question: str
    answer: str
    reason: str
    created: datetime


@dataclass(frozen=True)
class Study:
    """A study as shown in the list."""

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
    """Number of current votes on items by workers who are not excluded, at most K an item."""
    needed: int = 0
    """Number of votes needed: items * rules.votes."""
    workers: int = 0
    """Number of workers who answered anything but training, not those who were only invited or joined."""
    link: str = ""
    """Token of the open invitation; "" if it is off."""
    archived: bool = False
    """True if archived: last in the list, and accepts no votes."""


@dataclass(frozen=True)
class StudyData:
    """All data for an analysis."""

    study: Study
    items: tuple[Item, ...]
    votes: tuple[Vote, ...]
    """Votes by time of first submission."""
    workers: tuple[Worker, ...]
    exclusions: tuple[Exclusion, ...]
    adjudications: tuple[Adjudication, ...]
    history: tuple[tuple[Rules, datetime], ...] = ()
    """Versions of the rules with the time from which each is valid, oldest first; () for a draft."""
    same_browser: tuple[tuple[str, ...], ...] = ()
    """Groups of workers from the same browser: perhaps one person."""
    linked: bool = False
    """True if anybody could join by an open link, under any number of names."""
    panelled: bool = False
    """True if only people named by a panel could join by the open link."""


def asked(questions: Sequence[Question], item: NewItem, answers: Answers) -> tuple[Question, ...]:
    """Return the questions for this item, in order, given the answers so far.

    A question with `only_with` is asked if the item shows that class (case is ignored); a follow-up if the question
    before it is asked and was answered so.
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
    """Return the question's text for an item, with {label} filled in and the fitting article ("an owl").

    Of a label with several names ("tench, Tinca tinca") the first is used; a missing label becomes "its subject".
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
    """Label of the field, if the text does not name it."""

    @property
    def words(self) -> str:
        """The text with the label of its field, for use away from that field."""
        return f"{self.label}: {self.text[:1].lower()}{self.text[1:]}" if self.label else self.text


@dataclass(frozen=True)
class Finding:
    """A problem that a lead should fix, or at least know."""

    field: str
    """Field of the set-up that fixes it."""
    text: str
    stops: bool
    """True if the study cannot start with it."""


@dataclass(frozen=True)
class QuestionFeedback:
    """Feedback on a worker's answer to one question."""

    question: str
    given: str
    """Answer given; "" if left open, or not asked after earlier answers."""
    expected: str
    """Right answer; "" if none is known. Then the given answer counts as neither right nor wrong."""
    right: bool | None
    """True if the answer was right; None if no right answer is known."""


@dataclass(frozen=True)
class Feedback:
    """Feedback on a worker's answers to a training item."""

    right: bool
    """True if all known answers were given."""
    answers: tuple[QuestionFeedback, ...]
    why: str
    """Explanation, or ""."""


def right(item: NewItem, answers: Answers, questions: Sequence[Question]) -> bool:
    """Return True if every known answer of an item was given. Raises ValueError for an item without a known answer."""
    expected = [q for q in asked(questions, item, {**answers, **item.expected}) if q.id in item.expected]
    if not expected:
        raise ValueError("A control item needs the right answer to at least one of its questions.")
    return all(
        answers.get(question.id, "").strip().casefold() == item.expected[question.id].strip().casefold()
        for question in expected
    )
