"""What a lead decides in a study that runs or is over: of workers, and of questions that the workers left open.

Approving and rejecting makes a worker's record; excluding takes their votes out of the result. Adjudication is kept
apart from the votes and never overrules a consensus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, StrictInt

from core.errors import UserError
from core.studies import Adjudication, ApprovalVerdict, Worker
from core.study_report import Disagreement, StudyReport
from services.commands import Missing, does
from services.studies.analyses import Analyses
from services.studies.draft_form import typed_text
from services.studies.drafts import StudyCommand
from services.studies.life_cycle import NewCode
from storage.studies.studies import Studies

LONGEST_REASON = 500
UNDECIDED = ("no consensus", "too few votes")
"""What a person may decide: all votes that come are in, and they are no consensus."""
FAR = 2
"""Points of a scale from which on two ratings differ in earnest."""


Reason = Annotated[str, typed_text(LONGEST_REASON)]


class WorkerDecision(StudyCommand):
    """One thing that is decided of a worker of a study."""

    worker: Annotated[str, typed_text(100)] = Field(description="The pseudonym of the worker")
    reason: Reason = Field("", description="Why; a worker is told why work was rejected, and the log keeps it")


class DecideAssignments(WorkerDecision, name="decide-assignments"):
    """Approve or reject all assignments of a worker in this study, or make them pending again."""

    verdict: ApprovalVerdict = Field(description="What they become")


class ApproveAll(StudyCommand, name="approve-all"):
    """Approve all pending assignments of everybody who is not excluded."""


class ExcludeWorker(WorkerDecision, name="exclude-worker"):
    """Leave all votes of a worker out of the result."""


class ReadmitWorker(WorkerDecision, name="readmit-worker"):
    """Let the votes of an excluded worker count again."""


class BlockWorker(WorkerDecision, name="block-worker"):
    """Keep a worker from voting in every study of the workspace, or end that."""

    blocked: bool = Field(description="Whether the worker is kept out from now on")


class RenewCode(WorkerDecision, name="renew-code"):
    """Make a new code for a worker: the old one stops working, and the worker is signed out."""


class Adjudicate(StudyCommand, name="adjudicate"):
    """Decide a question of an item that the workers did not; an empty answer takes a decision back."""

    item: StrictInt = Field(description="The id of the item")
    question: Annotated[str, typed_text(40)] = Field(description="The id of the question")
    answer: Annotated[str, typed_text(100)] = Field(description="One of its answers, or nothing")
    reason: Reason = Field("", description="Why; it goes into the exports")


@dataclass(frozen=True)
class Adjudicated:
    """What was decided, and the case that comes next; None when all are decided."""

    report: StudyReport
    next: Disagreement | None


def undecided(report: StudyReport) -> tuple[Disagreement, ...]:
    """What is left to a person: without a consensus, and not waiting for votes. Not ratings: their result is a mean."""
    scales = _scales(report)
    return tuple(case for case in report.disagreements if case.status in UNDECIDED and case.question not in scales)


def disagreements(report: StudyReport) -> tuple[Disagreement, ...]:
    """What is worth a look, the most divided first: on a scale, 4 against 5 is no disagreement; these come last."""
    scales = _scales(report)
    others = [case for case in report.disagreements if case.question not in scales]
    far = [case for case in report.disagreements if case.question in scales and _spread(case) >= FAR]
    return (*others, *sorted(far, key=_spread, reverse=True))


def cases(report: StudyReport) -> tuple[Disagreement, ...]:
    """What a person may decide, image by image, those of one image in the order of the questions."""
    order = {result.question.id: place for place, result in enumerate(report.questions)}
    return tuple(sorted(undecided(report), key=lambda case: (case.item, order[case.question])))


def chosen(found: Sequence[Disagreement], item: int | None, question: str) -> int | None:
    """The place of the case that was asked for; else of the first that nobody decided; None when all are decided."""
    for place, case in enumerate(found):
        if item is not None and (case.item, case.question) == (item, question):
            return place
    return next((place for place, case in enumerate(found) if case.adjudication is None), None)


def following(found: Sequence[Disagreement], place: int) -> int | None:
    """The next case that nobody decided, from the beginning again at the end; None when there is none."""
    around = [*range(place + 1, len(found)), *range(place)]
    return next((n for n in around if found[n].adjudication is None), None)


class StudyDecisions:
    """The decisions of the studies of one workspace. All methods may be called from any thread."""

    def __init__(self, studies: Studies, analyses: Analyses) -> None:
        self._studies, self._analyses = studies, analyses

    @does
    def decide(self, sent: DecideAssignments) -> None:
        """A rejection needs a reason, which the worker is told."""
        worker = self._worker(sent)
        reason = _reason(sent) if sent.verdict == "rejected" else sent.reason
        self._studies.workers.decide(sent.study, worker.id, sent.verdict, reason)
        self._analyses.changed()

    @does
    def approve_all(self, sent: ApproveAll) -> None:
        for worker in self._analyses.of(self._studies.get(sent.study).id).report.workers:
            if worker.exclusion is None and worker.decided["pending"]:
                self._studies.workers.decide(sent.study, worker.worker, "approved", "", only_pending=True)
        self._analyses.changed()

    @does
    def exclude(self, sent: ExcludeWorker) -> None:
        self._studies.workers.exclude(sent.study, self._worker(sent).id, _reason(sent), "person")
        self._analyses.changed()

    @does
    def readmit(self, sent: ReadmitWorker) -> None:
        self._studies.workers.readmit(sent.study, self._worker(sent).id, _reason(sent))
        self._analyses.changed()

    @does
    def block(self, sent: BlockWorker) -> None:
        self._studies.workers.block(self._worker(sent).id, sent.blocked)
        self._analyses.changed()

    @does
    def renew_code(self, sent: RenewCode) -> NewCode:
        """The new code, which is shown this once."""
        worker = self._worker(sent)
        code = self._studies.workers.new_code(worker.id)
        self._studies.sessions.close_all("worker", worker.id)
        return NewCode(worker.id, code)

    @does
    def adjudicate(self, sent: Adjudicate) -> Adjudicated:
        """Only what has no consensus and waits for no vote can be decided."""
        study = self._studies.get(sent.study)
        report = self._analyses.of(study.id).report
        found = cases(report)
        asked_for = (sent.item, sent.question)
        place = next((n for n, case in enumerate(found) if (case.item, case.question) == asked_for), None)
        if place is None:
            raise Missing("This question needs no decision any more: it has a consensus, or waits for votes.")
        question = next(one.question for one in report.questions if one.question.id == sent.question)
        if sent.answer and sent.answer not in question.answers():
            raise UserError("Please choose one of the answers offered.", field="answer")
        self._studies.adjudicate(study.id, sent.item, sent.question, sent.answer, sent.reason)
        decision = Adjudication(sent.item, sent.question, sent.answer, sent.reason, datetime.now(UTC))
        self._analyses.adjudicated(study.id, decision)
        after = following(found, place) if sent.answer else place
        return Adjudicated(report, found[after] if after is not None else None)

    def _worker(self, sent: WorkerDecision) -> Worker:
        study = self._studies.get(sent.study)
        for worker in self._studies.workers.of_study(study.id):
            if worker.id == sent.worker:
                return worker
        raise Missing("There is no such worker in this study.")


def _scales(report: StudyReport) -> frozenset[str]:
    return frozenset(question.id for question in report.study.rules.questions if question.kind == "scale")


def _spread(case: Disagreement) -> int:
    given = [int(answer) for answer in case.counts]
    return max(given, default=0) - min(given, default=0)


def _reason(sent: WorkerDecision) -> str:
    """A reason, which has to be given: it stands in the methods paragraph or is told to the worker."""
    if not sent.reason:
        raise UserError("Please give the reason in a few words.", field="reason")
    return sent.reason
