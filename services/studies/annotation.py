"""The annotation service: gives workers their next item by the rules of the study, and stores their answers.

Every method reads the workspace again: a worker may have two pages, reload a page, or go on after the server restarts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from core.data_files import DataTable
from core.errors import UserError
from core.panel import PersonQuestion, address_back
from core.stored_studies import Assignment, Enrolment, UnsentAnswers, VoteRefused
from core.studies import Feedback, Item, ItemKind, Study, right
from core.words import count_of
from services.commands import Command, Commands, does
from storage.studies.studies import Studies
from study.control_items import judge, next_kind
from study.eligibility import Standing, StandingKind, standing
from study.questions import check_answers
from study.training import feedback

Status = StandingKind | Literal["item", "feedback", "person", "done", "waiting", "paused", "closed"]
"""Status of a worker's page. The value "may vote" of `StandingKind` never occurs."""
LONGEST_COMMENT = 2000
"""Maximum number of characters of a comment or a text answer."""
LONGEST_NAME = 200
"""Maximum number of characters of a code, a link or an id. Real ones are far shorter."""
LONGEST_KEY = 100
MOST_ANSWERS = 40
_TEXTS = DataTable(__file__, str)
"""Sentences for a worker who gets no item, by reason."""
log = logging.getLogger(__name__)


class NotYours(UserError):
    """Raised if something does not exist or is somebody else's. The message hides which of the two."""

    def __init__(self) -> None:
        super().__init__("There is no such thing, or it is not yours. Please reload the page.")


class WorkerNotAllowed(UserError):
    """Raised if a command is not allowed to the worker now. The message says why."""


class UnfitAnswers(UserError):
    """Raised if answers do not fit the questions. The message says which answer, and what to do."""


class Over(UserError):
    """Raised if the study is closed."""


@dataclass(frozen=True)
class AnnotationStep:
    """The next step of a worker in a study, with the worker's progress."""

    status: Status
    text: str
    """A sentence for the worker; "" if there is nothing to say beside the item."""
    study: Study
    done: int
    """Number of answered items, including control items; during a quiz or training, only items of that part."""
    left: int
    """Number of items still to come, including control items; during a quiz or training, only items of that part."""
    assignment: Assignment | None = None
    """The item to judge and its lease; None unless the status is "item", "training", "feedback" or "quiz"."""
    feedback: Feedback | None = None
    """Feedback on the saved answer to a training item; None unless the status is "feedback"."""
    ahead: Item | None = None
    """The item that probably comes next, so that the page can load its picture early; None if unknown."""
    undo: bool = False
    """True if the last answer can be undone."""
    person: tuple[PersonQuestion, ...] = ()
    """Optional questions about the worker, asked once; empty unless the status is "person"."""
    completion: tuple[str, str] = ("", "")
    """Completion code and return address of a panel participant; empty unless the status is "done" or "closed"."""


@dataclass(frozen=True)
class ListedStudy:
    """A study in a worker's list."""

    study: Study
    done: int
    left: int


def _line(most: int) -> BeforeValidator:
    def read(value: object, info: ValidationInfo) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > most or not value.isprintable():
            raise ValueError(f"“{info.field_name}” has to be a text of 1 to {most} characters.")
        return value.strip()

    return BeforeValidator(read)


def _typed(value: object, info: ValidationInfo) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"“{info.field_name}” has to be text.")
    return without_signs(value or "").strip()


def _answers(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_ANSWERS:
        raise ValueError("“answers” has to hold an answer by question.")
    return {key: without_signs(answer) if isinstance(answer, str) else answer for key, answer in value.items()}


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("“seconds” has to be a number from 0 on.")
    return float(min(value, 86_400))


def without_signs(text: str) -> str:
    """Return the text without surrogates and control characters, except line ends and tabs."""
    cleaned = "".join(letter for letter in text if (letter >= " " and letter != "\x7f") or letter in "\n\t")
    return cleaned.encode("utf-8", "ignore").decode("utf-8")


Name = Annotated[str, _line(LONGEST_NAME)]
"""Type of a command's field for a code, a link or an id."""
AssignmentId = Annotated[Name, Field(description="The id of the item's assignment")]
GivenAnswers = Annotated[dict[str, Any], BeforeValidator(_answers)]
Key = Annotated[str, _line(LONGEST_KEY)]
"""Type of a command's field for the key by which a repeated request is recognised."""


class WorkerCommand(Command):
    """A command of a worker. The server sets `worker` from the page's session. A request cannot set `worker`."""

    worker: str = Field(description="The pseudonym of the worker")


class OfStudy(WorkerCommand):
    """A command of a worker in one study."""

    study: Name = Field(description="The id of the study")


class AnnotationService:
    """Hands out items and takes answers. Thread-safe. `picture` raises UserError for a missing or damaged image."""

    def __init__(self, studies: Studies, picture: Callable[[str], object]) -> None:
        self._studies, self._picture = studies, picture
        self.judging = studies.assignments.judging
        """Returns, by study id, the SHA-256 of the images that a worker may judge now."""

    def places(self, worker: str) -> tuple[ListedStudy, ...]:
        """Return a worker's studies: running ones first, and in each state those with work left before the others."""
        listed = []
        for study_id in self._studies.workers.enrolled(worker):
            study, enrolment = self._of(study_id, worker)
            listed.append(ListedStudy(study, *self._progress(study, enrolment)))
        order = ("running", "paused", "draft", "closed")
        return tuple(sorted(listed, key=lambda place: (order.index(place.study.state), not place.left)))

    def commands(self) -> Commands:
        """Return a worker's commands by name."""
        commands = Commands()
        commands.take_on(self)
        return commands

    @does("next", OfStudy)
    def next(self, study: str, worker: str) -> AnnotationStep:
        """Return the worker's next step: an item, now leased to the worker, or why there is none. Raises NotYours."""
        joined, enrolment = self._judged(*self._of(study, worker))
        now = self._standing(joined, worker, enrolment)
        if joined.state == "closed":
            return self._without(joined, enrolment, "closed", _TEXTS["closed"])
        if now.kind in ("not eligible", "excluded"):
            return self._without(joined, enrolment, now.kind, now.text)
        if joined.state in ("draft", "paused"):
            return self._without(joined, enrolment, "paused", _TEXTS[joined.state])
        if now.kind == "consent":
            return self._without(joined, enrolment, "consent", now.text)
        questions = self._studies.panels.get(study).questions
        if questions and not self._studies.panels.was_asked(study, worker):
            step = self._without(joined, enrolment, "person", "A few questions about you first.")
            return replace(step, person=questions)
        if enrolment.training_seen and (unread := self._studies.assignments.to_read(study, worker)) is not None:
            return self._with(joined, enrolment, unread)
        if now.kind in ("training", "quiz"):
            return self._first(joined, enrolment, now)
        return self._item(joined, enrolment)

    @does("consent", OfStudy)
    def consent(self, study: str, worker: str) -> AnnotationStep:
        """Record that the worker agrees to take part in a study, and return the next step. Raises NotYours."""
        self._of(study, worker)
        self._studies.workers.consent(study, worker)
        return self.next(study, worker)

    @does("person", OfStudy)
    def about(
        self,
        study: str,
        worker: str,
        answers: Annotated[GivenAnswers, Field(description="The answer by the text of each question")],
    ) -> AnnotationStep:
        """Store the worker's answers to the questions about themselves, separately from the votes, and return the next
        step. Each question may be skipped. Later answers change nothing. Raises NotYours. Raises UnfitAnswers if an
        answer is too long or was not offered.
        """
        self._of(study, worker)
        typed = {}
        for question in self._studies.panels.get(study).questions:
            answer = answers.get(question.text, "")
            if not isinstance(answer, str) or (answer and question.options and answer not in question.options):
                raise UnfitAnswers(f"Please choose one of the answers offered for “{question.text}”, or none.")
            if len(answer) > LONGEST_NAME:
                raise UnfitAnswers(
                    f"Please answer “{question.text}” in at most {LONGEST_NAME} characters, or not at all."
                )
            if answer.strip():
                typed[question.text] = answer.strip()
        if not self._studies.panels.was_asked(study, worker):
            self._studies.panels.answer(study, worker, typed)
        return self.next(study, worker)

    @does("submit", WorkerCommand)
    def submit(
        self,
        *,
        worker: str,
        assignment: AssignmentId,
        answers: Annotated[GivenAnswers, Field(description="The answer by question id")],
        comment: Annotated[str, BeforeValidator(_typed), Field(description="A comment by the worker")] = "",
        seconds: Annotated[float, BeforeValidator(_seconds), Field(description="Seconds that the worker looked")] = 0.0,
        key: Annotated[Key, Field(description="A text of your choice. Answers with an equal key count once")],
    ) -> AnnotationStep:
        """Save the answers to an item and return the next step. Sending the same key again saves nothing. Raises
        NotYours for another worker's assignment, WorkerNotAllowed for a worker who may not vote, Over for a closed
        study, UnfitAnswers for answers that do not fit the questions, and VoteRefused for an item with enough votes or
        a paused study.
        """
        leased = self.assignment(assignment, worker)
        study, enrolment = self._of(leased.study_id, worker)
        if len(comment) > LONGEST_COMMENT:
            raise UnfitAnswers(f"The comment has {len(comment)} characters; at most {LONGEST_COMMENT}, please.")
        try:
            checked = check_answers(study.rules, leased.item, answers)
        except ValueError as error:
            raise UnfitAnswers(str(error)) from error
        # An answer that is saved already may be sent again, even if the worker may not vote any more: the storage knows
        # its key.
        if leased.state != "submitted":
            self._require(study, worker, enrolment, leased)
        item = leased.item
        was_right = None if item.kind == "item" else right(item, checked, study.rules.questions)
        self._studies.assignments.submit(leased.public, worker, checked, comment, seconds, key, was_right)
        return self.next(study.id, worker)

    @does("draft", WorkerCommand)
    def keep_draft(
        self,
        worker: str,
        assignment: AssignmentId,
        answers: Annotated[GivenAnswers, Field(description="The answers so far by question id")],
        comment: Annotated[str, BeforeValidator(_typed), Field(description="The comment so far")] = "",
        seconds: Annotated[float, BeforeValidator(_seconds), Field(description="Seconds of viewing so far")] = 0.0,
        at: Annotated[
            float, Field(ge=0, le=1e14, description="Milliseconds since 1970, by the clock of the browser")
        ] = 0.0,
    ) -> bool:
        """Save answers that are not submitted yet, so that they come back with the item. They are no vote. Return
        False, with nothing saved, if the item was submitted. Raises NotYours for another worker's assignment, and
        UnfitAnswers for a too long text.
        """
        leased = self.assignment(assignment, worker)
        study, _ = self._of(leased.study_id, worker)
        texts = [comment, *(answer for answer in answers.values() if isinstance(answer, str))]
        if max(map(len, texts)) > LONGEST_COMMENT:
            raise UnfitAnswers(f"A text is too long: at most {LONGEST_COMMENT} characters, please.")
        known = {question.id for question in study.rules.questions}
        unsent = {key: text for key, text in answers.items() if key in known and isinstance(text, str)}
        draft = UnsentAnswers(unsent, comment, seconds, at) if unsent or comment else None
        return self._studies.assignments.keep_draft(leased.public, worker, draft)

    @does("go-on", WorkerCommand)
    def go_on(self, worker: str, assignment: AssignmentId) -> AnnotationStep:
        """Record that the worker has read the feedback on a training item, and return the next step. Repeating this
        changes nothing. Raises NotYours.
        """
        leased = self.assignment(assignment, worker)
        if leased.item.kind != "training":
            raise NotYours
        self._studies.assignments.read_on(leased.public, worker)
        return self.next(leased.study_id, worker)

    @does("undo", OfStudy)
    def undo(self, study: str, worker: str) -> AnnotationStep:
        """Undo the worker's last answer, except in training, so that its item comes again. Raises NotYours, Over or
        WorkerNotAllowed, and UserError if there is no answer to undo.
        """
        joined, enrolment = self._of(study, worker)
        if joined.state == "closed":
            raise Over("This study is closed: answers can no longer be taken back.")
        now = self._standing(joined, worker, enrolment)
        if now.kind not in ("may vote", "training", "quiz"):
            raise WorkerNotAllowed(now.text)
        assignment = self._studies.assignments.undo(study, worker)
        if assignment is None:
            raise UserError("There is no answer to take back: only the last answer can be taken back, and only once.")
        return self._with(*self._of(study, worker), assignment)

    @does("pause", OfStudy)
    def pause(self, study: str, worker: str) -> None:
        """Release the items that are leased to the worker, so that other workers can get them."""
        self._of(study, worker)
        self._studies.assignments.release(study, worker)

    def assignment(self, public: str, worker: str) -> Assignment:
        """Return an assignment of this worker. Raises NotYours for any other."""
        assignment = self._studies.assignments.get(public)
        if assignment is None or assignment.worker != worker:
            raise NotYours
        return assignment

    def image(self, token: str, worker: str) -> str:
        """Return the SHA-256 of the image that a token of this worker represents. Raises NotYours for other tokens."""
        sha = self._studies.assignments.image_of(token, worker)
        if sha is None:
            raise NotYours
        return sha

    def example(self, study_id: str, number: int, worker: str) -> str:
        """Return the SHA-256 of a study's example `number` (from 0). Raises NotYours if none exists."""
        examples = self._of(study_id, worker)[0].rules.examples
        if not 0 <= number < len(examples):
            raise NotYours
        return examples[number].sha

    def _of(self, study_id: str, worker: str) -> tuple[Study, Enrolment]:
        enrolment = self._studies.workers.enrolment(study_id, worker)
        if enrolment is None:
            raise NotYours
        return self._studies.get(study_id), enrolment

    def _standing(self, study: Study, worker: str, enrolment: Enrolment) -> Standing:
        # If a study has fewer training items than its rules require, all that it has are enough.
        rules = replace(study.rules, training=_training(study))
        return standing(self._studies.workers.get(worker), enrolment, rules)

    def _require(self, study: Study, worker: str, enrolment: Enrolment, assignment: Assignment) -> None:
        """Raise Over for a closed study, VoteRefused for a lost picture, WorkerNotAllowed if no answer is allowed."""
        if study.state == "closed":
            raise Over("This study is closed: it takes no more answers. Those that you have sent are kept.")
        if self._lost(assignment.item):
            raise VoteRefused("full", "The picture of this item can no longer be shown. Please go on to the next.")
        now = self._standing(study, worker, enrolment)
        kind = assignment.item.kind
        if now.kind != (kind if kind in ("training", "quiz") else "may vote"):
            raise WorkerNotAllowed(now.text or f"The {kind} is over: please go on with what comes next.")

    def _judged(self, study: Study, enrolment: Enrolment) -> tuple[Study, Enrolment]:
        """Exclude the worker if the control policy requires it. Return study and enrolment after this decision."""
        if study.state != "closed" and enrolment.exclusion is None and not enrolment.readmitted:
            reason = judge(study.rules.controls, enrolment.controls_seen, enrolment.controls_right)
            if reason:
                self._studies.workers.exclude(study.id, enrolment.worker, reason, "rule")
                return self._of(study.id, enrolment.worker)
        return study, enrolment

    def _first(self, study: Study, enrolment: Enrolment, now: Standing) -> AnnotationStep:
        """Return the step with the worker's next training or quiz item. `now` says which of the two kinds is due."""
        kind: ItemKind = "training" if now.kind == "training" else "quiz"
        assignment = self._claim(study, enrolment.worker, kind)
        if assignment is not None and assignment.item.kind != kind:  # a lease from before the quiz was required again
            self._studies.assignments.release(study.id, enrolment.worker)
            assignment = self._claim(study, enrolment.worker, kind)
        if assignment is not None and assignment.item.kind == kind:
            return self._with(study, enrolment, assignment, now.text)
        log.warning("study %s has fewer %s items than its rules ask for", study.id, kind)
        text = f"The {kind} has no further question for you. Please tell the person who invited you."
        return self._without(study, enrolment, "not eligible", text)

    def _item(self, study: Study, enrolment: Enrolment) -> AnnotationStep:
        kind = next_kind(study.rules, enrolment.worker, enrolment.items_seen, enrolment.controls_seen)
        assignment = self._claim(study, enrolment.worker, kind)
        if assignment is None and kind == "control":  # the worker has judged all control items
            assignment = self._claim(study, enrolment.worker, "item")
        if assignment is not None:
            return self._with(study, enrolment, assignment)
        most = study.rules.most_items
        if most and enrolment.items_seen >= most:
            return self._without(study, enrolment, "done", _TEXTS["enough"].format(count_of(most, "image")))
        if self._studies.assignments.waiting(study.id, enrolment.worker):
            return self._without(study, enrolment, "waiting", _TEXTS["others"])
        if self._studies.assignments.without_picture(study.id) and self._progress(study, enrolment)[1]:
            return self._without(study, enrolment, "waiting", _TEXTS["no pictures"])
        judged = enrolment.items_seen + enrolment.controls_seen
        text = _TEXTS["all judged"].format(count_of(judged, "image")) if judged else _TEXTS["none left"]
        return self._without(study, enrolment, "done", text)

    def _claim(self, study: Study, worker: str, kind: ItemKind) -> Assignment | None:
        """Lease the next item with readable pictures. Items with unreadable pictures are skipped and logged."""
        assignments = self._studies.assignments
        assignments.lost = frozenset(sha for sha in assignments.lost if not self._is_whole(sha))
        while (claimed := assignments.claim(study.id, worker, kind)) is not None and (lost := self._lost(claimed.item)):
            assignments.set_aside(study.id, worker, lost)
        return claimed

    def _lost(self, item: Item) -> list[str]:
        """Return the SHA-256s of an item's pictures that cannot be read."""
        return [sha for sha in (item.image_sha, item.source_sha) if sha and not self._is_whole(sha)]

    def _is_whole(self, sha: str) -> bool:
        try:
            self._picture(sha)
        except UserError:
            return False
        return True

    def _with(self, study: Study, enrolment: Enrolment, assignment: Assignment, text: str = "") -> AnnotationStep:
        ahead = self._ahead(study, enrolment, assignment)
        if assignment.item.kind == "training":
            of, seen = _training(study), enrolment.training_seen
            if assignment.state != "submitted":
                return AnnotationStep("training", text, study, seen, max(1, of - seen), assignment, ahead=ahead)
            result = feedback(assignment.item, assignment.answers, study.rules.questions)
            return AnnotationStep("feedback", "", study, seen - 1, of - seen + 1, assignment, result, ahead)
        undo = self._studies.assignments.can_undo(study.id, enrolment.worker)
        if assignment.item.kind == "quiz":
            done, of = enrolment.quiz_seen, study.rules.eligibility.quiz
            return AnnotationStep("quiz", text, study, done, max(1, of - done), assignment, ahead=ahead, undo=undo)
        done, left = self._progress(study, enrolment)
        text = text or _begins(enrolment)
        return AnnotationStep("item", text, study, done, max(1, left), assignment, ahead=ahead, undo=undo)

    def _ahead(self, study: Study, enrolment: Enrolment, assignment: Assignment) -> Item | None:
        """Return the item that `next` would probably give after this assignment, or None."""
        ahead = partial(self._studies.assignments.ahead, study.id, enrolment.worker)
        now = assignment.item.kind
        if now == "training":
            seen = enrolment.training_seen + (assignment.state != "submitted")
            return ahead("training", assignment.id) if seen < _training(study) else None
        if now == "quiz" and enrolment.quiz_seen + 1 < study.rules.eligibility.quiz:
            return ahead("quiz", assignment.id)
        items, controls = enrolment.items_seen + (now == "item"), enrolment.controls_seen + (now == "control")
        kind: ItemKind = next_kind(study.rules, enrolment.worker, items, controls)
        if kind == "item" and study.rules.most_items and items >= study.rules.most_items:
            return None
        return ahead(kind, assignment.id) or (ahead("item", assignment.id) if kind == "control" else None)

    def _without(self, study: Study, enrolment: Enrolment, status: Status, text: str) -> AnnotationStep:
        undo = status in ("done", "waiting") and self._studies.assignments.can_undo(study.id, enrolment.worker)
        completion = ("", "")
        if status in ("done", "closed") and enrolment.items_seen:
            panel = self._studies.panels.get(study.id)
            participant = self._studies.panels.participant(study.id, enrolment.worker)
            completion = (panel.code, address_back(panel, participant)) if participant else completion
        progress = self._progress(study, enrolment)
        return AnnotationStep(status, text, study, *progress, undo=undo, completion=completion)

    def _progress(self, study: Study, enrolment: Enrolment) -> tuple[int, int]:
        """Return the numbers of answered and remaining items. Control items count, so that no jump reveals them."""
        items = enrolment.items_seen
        _, left = self._studies.assignments.progress(study.id, enrolment.worker)
        controls = enrolment.controls_seen
        # Control items still to come are counted as `next_kind` will choose them.
        most = controls + (self._studies.assignments.controls_left(study.id, enrolment.worker) if study.controls else 0)
        while controls < most and next_kind(study.rules, enrolment.worker, items + left, controls) == "control":
            controls += 1
        return items + enrolment.controls_seen, left + controls - enrolment.controls_seen


def _begins(enrolment: Enrolment) -> str:
    """Return the message to show with the first item after a quiz or training; "" for later items."""
    if enrolment.items_seen or enrolment.controls_seen or not (enrolment.quiz_seen or enrolment.training_seen):
        return ""
    over = "You have passed the quiz" if enrolment.quiz_seen else "The training is over"
    return f"{over}: from here on your answers count."


def _training(study: Study) -> int:
    return min(study.rules.training, study.training)
