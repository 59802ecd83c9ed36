"""What travels in a validity study. Plain frozen dataclasses; no SQL, no pages, no pictures.

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
"""Words that are written with a vowel and spoken without one: a unicorn, a European. (But: an uninhabited island.)"""

QuestionKind = Literal["yes-no", "choice", "scale", "text"]
QUESTION_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
StudyState = Literal["draft", "running", "paused", "closed"]
ItemKind = Literal["item", "control", "quiz", "training"]
ITEM_KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
WORK: tuple[ItemKind, ...] = ("item", "control", "quiz")
"""What is approved or rejected. Training is none of it: whoever counts anything says which kinds count."""
LONGEST_WHY = 1000
"""Characters that say why the right answers of a training item are right."""
LONGEST_STUDY_TEXT = 10_000
"""Characters of the instructions, and of the consent."""
MOST_TRAINING = 20
"""Training items of a study, at most."""
AssignmentState = Literal["leased", "submitted", "expired"]
ApprovalVerdict = Literal["approved", "rejected", "pending"]
Side = Literal["left", "right"]
SCALE: tuple[str, ...] = ("1", "2", "3", "4", "5")
YES_NO: tuple[str, ...] = ("yes", "no")
Answers = Mapping[str, str]
"""Question id to answer: an option as it is written, "yes" or "no", "1" to "5", or free text."""


@dataclass(frozen=True)
class Question:
    """One thing that is asked of an image. Nothing is ever pre-selected."""

    id: str
    """Lower case letters, digits and hyphens; unique in its study, a column of its exports."""
    text: str
    """May hold {label}: the class of the item."""
    kind: QuestionKind
    options: tuple[str, ...] = ()
    """Of a choice: 2 to 9 of them. Other kinds have their own."""
    low: str = ""
    """Of a scale: what 1 means."""
    high: str = ""
    """Of a scale: what 5 means."""
    valid: tuple[str, ...] = ()
    """The answers that say that the image is valid; () for a question that says nothing of validity."""
    required: bool = True
    only_with: str = ""
    """Asked only of items that show this class; "" of all."""
    follows: str = ""
    """Asked only when the question with this id was answered with `follows_answer`; "" always."""
    follows_answer: str = ""

    def answers(self) -> tuple[str, ...]:
        """What may be answered; () for free text."""
        if self.kind == "yes-no":
            return YES_NO
        if self.kind == "scale":
            return SCALE
        return self.options


@dataclass(frozen=True)
class Eligibility:
    """Who may take part. The defaults are the paper's: more than 95 % approved, at least 50 finished."""

    min_approval: Annotated[
        float, FormNumber(0, 99.99, "Approval above", "approved of all decided assignments", "%", whole=False)
    ] = 0.95
    """Approved / (approved + rejected) has to be above it, 0 to 1."""
    min_finished: Annotated[
        int, FormNumber(0, 100_000, "Decided assignments", "at least, in all studies; 0 asks for none")
    ] = 50
    """Approved and rejected assignments in all studies, at least; 0 lets in everybody not below `min_approval`."""
    quiz: Annotated[int, FormNumber(0, 50, "Quiz", "in place of a record; 0 for none", "questions")] = 0
    """Quiz items that stand in for a record that is too short; 0 for no quiz."""
    quiz_pass: Annotated[float, FormNumber(0, 100, "Right in the quiz", "at least", "%", whole=False)] = 0.8
    """Share of the quiz that has to be right, 0 to 1."""


@dataclass(frozen=True)
class ControlPolicy:
    """Fixed before the first vote: what control items do."""

    share: Annotated[float, FormNumber(0, 50, "Share of control items", "0 for none", "%", whole=False)] = 0.1
    """Of what a worker is shown, 0 to 0.5."""
    min_seen: Annotated[
        int, FormNumber(1, 100, "A worker is judged after", "nobody is excluded earlier", "control items")
    ] = 4
    """Control items that a worker sees before they are judged. With 4 and 0.75 one slip is forgiven: who is right 95
    times of 100 is excluded at that point once in 70, who guesses twice in three."""
    min_right: Annotated[
        float,
        FormNumber(0, 100, "Control items right", "below it all votes of this worker are replaced", "%", whole=False),
    ] = 0.75
    """A worker with a smaller share of control items right is excluded, and all votes of theirs are replaced."""


@dataclass(frozen=True)
class InstructionExample:
    """A picture of the instructions with its answer and why."""

    sha: str
    answer: str
    why: str


@dataclass(frozen=True)
class LeftOutItem:
    """A control, quiz or training item that is not made: a person removed it, or said what its answer is."""

    kind: ItemKind
    image_sha: str
    """Its image before it was disguised."""
    source_sha: str
    label: str


@dataclass(frozen=True)
class Rules:
    """What a study goes by. Frozen and numbered when it starts; never changed after."""

    questions: tuple[Question, ...]
    template: str = ""
    """The name of the question template it began with; "" for one's own."""
    votes: Annotated[int, FormNumber(1, 50, "Votes an image", "by as many different workers")] = 5
    """Votes of distinct workers that every item gets (K)."""
    consensus: Annotated[
        int, FormNumber(1, 50, "Consensus", "so many equal answers, or the question of the image is discarded")
    ] = 4
    """Equal answers, of K, that decide; without them the question of the item is discarded."""
    controls: ControlPolicy = field(default_factory=ControlPolicy)
    eligibility: Eligibility = field(default_factory=Eligibility)
    training: Annotated[
        int, FormNumber(0, MOST_TRAINING, "Training", "before all else, with feedback; 0 for none", "images")
    ] = 0
    """Training items that every worker answers before all else, and is told of each what is right; 0 for none."""
    show_source: bool = False
    """Source and generated image side by side, the side at random and recorded."""
    show_captions: bool = False
    """Both captions, changed words marked."""
    consent: str = ""
    """What a worker agrees to before the first item."""
    instructions: str = ""
    examples: tuple[InstructionExample, ...] = ()
    most_items: Annotated[
        int, FormNumber(0, 100_000, "Images a person, at most", "so that nobody judges everything; 0 for no limit")
    ] = 0
    """Items that one worker judges at most, those with a known answer apart; 0 for as many as there are."""
    lease_minutes: Annotated[
        float, FormNumber(1, 240, "An image is held for", "then somebody else gets it", "min", whole=False)
    ] = 15.0
    """Minutes after which an item that was not answered goes to somebody else."""
    seconds_expected: Annotated[float, FormNumber(0.1, 600, "Time a vote takes", "for the plan", "s", whole=False)] = (
        8.0
    )
    too_fast_seconds: Annotated[
        float, FormNumber(0, 60, "Too fast below", "reported, nobody is excluded for it", "s", whole=False)
    ] = 1.0
    """A vote that took less is counted as too fast (reported, never excluded by itself)."""
    seed: Annotated[int, FormNumber(0, 2**31 - 1, "Seed", "of samples, order and sides")] = 0
    left_out: tuple[LeftOutItem, ...] = ()
    """What is not made as a control, quiz or training item, though it could be."""
    version: int = 0
    """0 while a draft; counted from 1 at the start."""


@dataclass(frozen=True)
class NewItem:
    """An item as it comes into a study; its images are in the workspace already."""

    image_sha: str
    source_sha: str | None = None
    kind: ItemKind = "item"
    expected: Answers = field(default_factory=dict)
    """The right answers of a control, quiz or training item."""
    why: str = ""
    """Of a training item: why these are right. Told to a worker after their answer."""
    label: str = ""
    classes: tuple[str, ...] = ()
    """What the image shows, for questions that are asked only then, such as "vehicle"."""
    edit_types: tuple[str, ...] = ()
    caption: str = ""
    counterfactual: str = ""
    test_case: int | None = None
    """The test case of this workspace that it is."""
    model: str = ""
    """The model under test whose verdict `model_right` is."""
    model_right: bool | None = None
    group: str = ""
    """The sample that it was drawn for, such as "random" or "misclassified"."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: file name, run, prompt, model, seed. Never shown to a worker."""


@dataclass(frozen=True)
class Item(NewItem):
    """An item of a study."""

    id: int = 0
    public: str = ""
    """An opaque name for exports."""


@dataclass(frozen=True)
class Vote:
    """What one worker said of one item: the current one, not withdrawn."""

    assignment: int
    item: int
    kind: ItemKind
    worker: str
    answers: Answers
    comment: str
    accepted: datetime
    """When the item was given out."""
    submitted: datetime
    seconds: float
    """That the worker looked, as the page measured it and the server bounded it."""
    side: Side
    """Where the generated image stood, when the source stood beside it."""
    changes: int = 0
    """How often it was undone or answered anew."""
    verdict: ApprovalVerdict = "pending"
    reason: str = ""
    decided: datetime | None = None
    """When it was approved or rejected here; None while it is pending, and of votes that were imported."""
    imported: bool = False
    """It came in a file: how it was collected is not known here."""


@dataclass(frozen=True)
class Worker:
    """A pseudonym with a record."""

    id: str
    """Such as heron-41."""
    created: datetime
    approved: int = 0
    """Assignments, in all studies."""
    rejected: int = 0
    pending: int = 0
    blocked: bool = False

    @property
    def finished(self) -> int:
        """Assignments that were decided on."""
        return self.approved + self.rejected

    @property
    def approval(self) -> float | None:
        """Approved / (approved + rejected); None before the first decision."""
        return self.approved / self.finished if self.finished else None


@dataclass(frozen=True)
class Exclusion:
    """A worker whose votes do not count in a study, and why. Can be reversed."""

    worker: str
    reason: str
    by: Literal["rule", "person"]
    created: datetime


@dataclass(frozen=True)
class Adjudication:
    """A person's answer where the workers found none; kept apart from the votes."""

    item: int
    question: str
    answer: str
    reason: str
    created: datetime


@dataclass(frozen=True)
class Study:
    """A study as the list shows it."""

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
    """Current votes on items, of workers who are not excluded, at most as many an item as the rules ask for."""
    needed: int = 0
    """items * rules.votes."""
    workers: int = 0
    """Who has answered anything but training; not who was invited, or joined and left."""
    link: str = ""
    """The token of the open invitation; "" when it is off."""
    archived: bool = False
    """Put away: the list shows it at its end, and it takes no vote."""


@dataclass(frozen=True)
class StudyData:
    """All that an analysis needs."""

    study: Study
    items: tuple[Item, ...]
    votes: tuple[Vote, ...]
    """In the order in which they were first submitted."""
    workers: tuple[Worker, ...]
    exclusions: tuple[Exclusion, ...]
    adjudications: tuple[Adjudication, ...]
    history: tuple[tuple[Rules, datetime], ...] = ()
    """The versions of the rules and since when each counts, oldest first; () of a draft."""
    same_browser: tuple[tuple[str, ...], ...] = ()
    """Workers who came from one and the same browser: perhaps one person."""
    linked: bool = False
    """There was an open link by which anybody could join, under as many names as they liked."""
    panelled: bool = False
    """There was an open link by which only people whom a panel named could join."""


def asked(questions: Sequence[Question], item: NewItem, answers: Answers) -> tuple[Question, ...]:
    """The questions that this item gets, in their order, given the answers so far.

    A question with `only_with` is asked when the item shows that class (upper and lower case are one); one that follows
    another when that one is asked and was answered so.
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
    """The question as this item's worker reads it: {label} filled in, with the article that fits ("an owl").

    Of a label with several names ("tench, Tinca tinca") the first is taken; "its subject" stands in for a missing one.
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
    """One thing that is wrong with the rules of a study, at one field of the form."""

    field: str
    text: str
    label: str = ""
    """What the field is called, where the text does not say it."""

    @property
    def words(self) -> str:
        """The text away from its field."""
        return f"{self.label}: {self.text[:1].lower()}{self.text[1:]}" if self.label else self.text


@dataclass(frozen=True)
class Finding:
    """Something that a lead should put right, or at least know."""

    field: str
    """The field of the set-up where it can be put right."""
    text: str
    stops: bool
    """The study cannot start with it."""


@dataclass(frozen=True)
class QuestionFeedback:
    """What a worker is told of their answer to one question."""

    question: str
    given: str
    """"" where it was left open, or not asked after the answers before it."""
    expected: str
    """"" where no answer is known: then none is right or wrong."""
    right: bool | None
    """None where no answer is known."""


@dataclass(frozen=True)
class Feedback:
    """What a worker is told of their answers to a training item."""

    right: bool
    """Whether all that is known was answered so."""
    answers: tuple[QuestionFeedback, ...]
    why: str
    """"" where nobody has said why."""


def right(item: NewItem, answers: Answers, questions: Sequence[Question]) -> bool:
    """Return True if every known answer of an item was given. Raises ValueError for an item without a known answer."""
    expected = [q for q in asked(questions, item, {**answers, **item.expected}) if q.id in item.expected]
    if not expected:
        raise ValueError("A control item needs the right answer to at least one of its questions.")
    return all(
        answers.get(question.id, "").strip().casefold() == item.expected[question.id].strip().casefold()
        for question in expected
    )
