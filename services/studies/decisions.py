"""A lead's decisions in a running or closed study: on workers, and on questions without a consensus.

Approvals and rejections of assignments form a worker's record. Exclusion removes a worker's votes from the result.
Adjudications, the lead's answers to questions without a consensus, are stored apart and never override a consensus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from core.errors import UserError
from core.studies import Adjudication, ApprovalVerdict, Worker
from core.study_report import Disagreement, StudyReport
from services.commands import Missing, does
from services.studies.analyses import Analyses
from services.studies.draft_form import typed_text
from services.studies.drafts import ItemId, StudyCommand
from services.studies.life_cycle import NewCode
from storage.studies.studies import Studies

LONGEST_REASON = 500
UNDECIDED = ("no consensus", "too few votes")
"""Statuses of an item's question without a consensus. The lead may decide such a question."""
FAR = 2
"""Minimum difference between the highest and lowest rating on a scale that counts as a disagreement."""


Reason = Annotated[str, typed_text(LONGEST_REASON)]


class WorkerDecision(StudyCommand):
    """A command on a worker of a study."""

    worker: Annotated[str, typed_text(100)] = Field(description="The pseudonym of the worker")
    reason: Reason = Field("", description="The reason. It is logged, and a worker is told the reason of a rejection")


@dataclass(frozen=True)
class Adjudicated:
    """Result of an adjudication: the report, and the next case to decide, or None if all are decided."""

    report: StudyReport
    next: Disagreement | None


def undecided(report: StudyReport) -> tuple[Disagreement, ...]:
    """Return the disagreements that are left without a consensus after voting. Rating questions are left out."""
    scales = _scales(report)
    return tuple(case for case in report.disagreements if case.status in UNDECIDED and case.question not in scales)


def disagreements(report: StudyReport) -> tuple[Disagreement, ...]:
    """Return the disagreements. Ratings on a scale come last; ratings that differ by less than `FAR` are left out."""
    scales = _scales(report)
    others = [case for case in report.disagreements if case.question not in scales]
    far = [case for case in report.disagreements if case.question in scales and _spread(case) >= FAR]
    return (*others, *sorted(far, key=_spread, reverse=True))


def cases(report: StudyReport) -> tuple[Disagreement, ...]:
    """Return the questions of items that a person has to decide, sorted by item, then in the study's order."""
    order = {result.question.id: place for place, result in enumerate(report.questions)}
    return tuple(sorted(undecided(report), key=lambda case: (case.item, order[case.question])))


def chosen(found: Sequence[Disagreement], item: int | None, question: str) -> int | None:
    """Return the index in `found` of this `item` and `question`, else of the first undecided one; None if none."""
    for place, case in enumerate(found):
        if item is not None and (case.item, case.question) == (item, question):
            return place
    return next((place for place, case in enumerate(found) if case.adjudication is None), None)


def following(found: Sequence[Disagreement], place: int) -> int | None:
    """Return the index of the next undecided entry after `place`, then from 0 on; None if there is no other."""
    around = [*range(place + 1, len(found)), *range(place)]
    return next((n for n in around if found[n].adjudication is None), None)


class StudyDecisions:
    """The commands for decisions in the studies of one workspace. All methods may be called from any thread."""

    def __init__(self, studies: Studies, analyses: Analyses) -> None:
        self._studies, self._analyses = studies, analyses

    @does("decide-assignments", WorkerDecision)
    def decide(
        self,
        sent: WorkerDecision,
        verdict: Annotated[ApprovalVerdict, Field(description="The new state of the assignments")],
    ) -> None:
        """Approve or reject all assignments of a worker in this study, or reset them to pending."""
        worker = self._worker(sent)
        reason = _reason(sent) if verdict == "rejected" else sent.reason
        self._studies.workers.decide(sent.study, worker.id, verdict, reason)
        self._analyses.changed()

    @does("approve-all", StudyCommand)
    def approve_all(self, study: str) -> None:
        """Approve the pending assignments of all workers in this study, except those of excluded workers."""
        for worker in self._analyses.of(self._studies.get(study).id).report.workers:
            if worker.exclusion is None and worker.decided["pending"]:
                self._studies.workers.decide(study, worker.worker, "approved", "", only_pending=True)
        self._analyses.changed()

    @does("exclude-worker", WorkerDecision)
    def exclude(self, sent: WorkerDecision) -> None:
        """Exclude a worker from this study: all votes of the worker are left out of the result."""
        self._studies.workers.exclude(sent.study, self._worker(sent).id, _reason(sent), "person")
        self._analyses.changed()

    @does("readmit-worker", WorkerDecision)
    def readmit(self, sent: WorkerDecision) -> None:
        """Readmit an excluded worker to this study, so that the worker's votes count again."""
        self._studies.workers.readmit(sent.study, self._worker(sent).id, _reason(sent))
        self._analyses.changed()

    @does("block-worker", WorkerDecision)
    def block(
        self,
        sent: WorkerDecision,
        blocked: Annotated[bool, Field(description="True to block the worker, false to unblock them")],
    ) -> None:
        """Block a worker from every study of the workspace, or unblock them."""
        self._studies.workers.block(self._worker(sent).id, blocked)
        self._analyses.changed()

    @does("renew-code", WorkerDecision)
    def renew_code(self, sent: WorkerDecision) -> NewCode:
        """Make a new code for a worker: the old one becomes invalid, and the worker is signed out."""
        worker = self._worker(sent)
        return NewCode(worker.id, self._studies.workers.new_code(worker.id))

    @does("adjudicate", StudyCommand)
    def adjudicate(
        self,
        study: str,
        item: ItemId,
        question: Annotated[str, typed_text(40), Field(description="The id of the question")],
        answer: Annotated[str, typed_text(100), Field(description="One of its answers; empty to withdraw")],
        reason: Annotated[Reason, Field(description="The reason. It is included in the exports")] = "",
    ) -> Adjudicated:
        """Decide a question of an item that has no consensus. An empty answer withdraws the decision."""
        report = self._analyses.of(self._studies.get(study).id).report
        open_cases = cases(report)
        place = next((n for n, case in enumerate(open_cases) if (case.item, case.question) == (item, question)), None)
        if place is None:
            raise Missing("This question needs no decision any more: it has a consensus, or waits for votes.")
        question_of_case = next(one.question for one in report.questions if one.question.id == question)
        if answer and answer not in question_of_case.answers():
            raise UserError("Please choose one of the answers offered.", field="answer")
        self._studies.adjudicate(study, item, question, answer, reason)
        self._analyses.adjudicated(study, Adjudication(item, question, answer, reason, datetime.now(UTC)))
        after = following(open_cases, place) if answer else place
        return Adjudicated(report, open_cases[after] if after is not None else None)

    def _worker(self, sent: WorkerDecision) -> Worker:
        study = self._studies.get(sent.study)
        for worker in self._studies.workers.of_study(study.id):
            if worker.id == sent.worker:
                return worker
        raise Missing("There is no such worker in this study.")


def _scales(report: StudyReport) -> frozenset[str]:
    return frozenset(question.id for question in report.study.rules.questions if question.kind == "scale")


def _spread(case: Disagreement) -> int:
    ratings = [int(answer) for answer in case.counts]
    return max(ratings, default=0) - min(ratings, default=0)


def _reason(sent: WorkerDecision) -> str:
    """Return the reason of a rejection, exclusion or readmission. Raises UserError if the reason is empty."""
    if not sent.reason:
        raise UserError("Please give the reason in a few words.", field="reason")
    return sent.reason
