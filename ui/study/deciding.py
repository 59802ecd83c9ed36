"""What a lead decides of workers and images, as it is sent: approve, reject, exclude, readmit, block, adjudicate."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI

from pipeline.errors import UserError
from study.types import Adjudication, ApprovalVerdict, Worker
from ui.studio import Studio
from ui.study.adjudication import address, cases, following
from ui.study.frame import study_address
from ui.study.posting import FieldError, Missing, add_post, text_of
from ui.study.reports import reports_of

LONGEST_REASON = 500
LARGEST = 16_000
_VERDICTS: Mapping[str, ApprovalVerdict] = {"approved": "approved", "rejected": "rejected", "pending": "pending"}
Said = Mapping[str, Any]


def add_deciding(app: FastAPI, studio: Studio) -> None:
    """Add what the pages of results, workers and adjudication send."""
    studies = studio.workspace.studies

    def worker_of(study_id: str, data: Mapping[str, Any]) -> Worker:
        """The worker who is meant, who has to be one of this study."""
        name = text_of(data, "worker", 100)
        study = studies.study(study_id)
        for worker in studies.workers(study.id):
            if worker.id == name:
                return worker
        raise Missing("There is no such worker in this study.")

    def decide(data: Mapping[str, Any], study_id: str) -> Said:
        worker = worker_of(study_id, data)
        verdict = _VERDICTS.get(text_of(data, "verdict", 20))
        if verdict is None:
            raise UserError("A worker's assignments are approved, rejected, or pending again.")
        reason = _reason(data) if verdict == "rejected" else text_of(data, "reason", LONGEST_REASON)
        studies.decide(study_id, worker.id, verdict, reason)
        return changed()

    def approve_all(data: Mapping[str, Any], study_id: str) -> Said:
        for worker in reports_of(studio).of(studies.study(study_id).id).report.workers:
            if worker.exclusion is None and worker.decided["pending"]:
                studies.decide(study_id, worker.worker, "approved", "")
        return changed()

    def exclude(data: Mapping[str, Any], study_id: str) -> Said:
        worker = worker_of(study_id, data)
        studies.exclude(study_id, worker.id, _reason(data), "person")
        return changed()

    def readmit(data: Mapping[str, Any], study_id: str) -> Said:
        worker = worker_of(study_id, data)
        studies.readmit(study_id, worker.id, _reason(data))
        return changed()

    def block(data: Mapping[str, Any], study_id: str) -> Said:
        worker = worker_of(study_id, data)
        studies.block(worker.id, bool(text_of(data, "blocked", 1)))
        return changed()

    def code(data: Mapping[str, Any], study_id: str) -> Said:
        worker = worker_of(study_id, data)
        new = studies.new_code(worker.id)
        studies.close_sessions("worker", worker.id)
        return {
            "code": new,
            "words": f"The new code of {worker.id}. It is shown this once: write it down or copy it now.",
        }

    def adjudicate(data: Mapping[str, Any], study_id: str) -> Said:
        study = studies.study(study_id)
        question, answer = text_of(data, "question", 40), text_of(data, "answer", 100)
        reason = text_of(data, "reason", LONGEST_REASON)
        report = reports_of(studio).of(study.id).report
        found = cases(report)
        place = next(
            (n for n, case in enumerate(found) if (case.item, case.question) == (data.get("item"), question)), None
        )
        if place is None:
            raise Missing("This question needs no decision any more: it has a consensus, or waits for votes.")
        asked = next(one.question for one in report.questions if one.question.id == question)
        if answer and answer not in asked.answers():
            raise FieldError("answer", "Please choose one of the answers offered.")
        studies.adjudicate(study.id, found[place].item, question, answer, reason)
        decision = Adjudication(found[place].item, question, answer, reason, datetime.now(UTC))
        reports_of(studio).adjudicated(study.id, decision)
        after = following(found, place) if answer else place
        return {"next": address(report, found[after]) if after is not None else study_address(study.id, "adjudication")}

    def changed() -> Said:
        reports_of(studio).changed()
        return {"done": True}

    for name, act in (
        ("decide", decide),
        ("approve-all", approve_all),
        ("exclude", exclude),
        ("readmit", readmit),
        ("block", block),
        ("code", code),
        ("adjudicate", adjudicate),
    ):
        add_post(app, f"/study/api/{{study_id}}/{name}", act, LARGEST)


def _reason(data: Mapping[str, Any]) -> str:
    """A reason, which has to be given: it stands in the methods paragraph or is told to the worker."""
    reason = text_of(data, "reason", LONGEST_REASON)
    if not reason:
        raise FieldError("reason", "Please give the reason in a few words.")
    return reason
