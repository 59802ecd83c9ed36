"""Mechanical Turk's result file: a study's votes in its columns, so that existing scripts run.

The columns are those of a batch's result download, in its order; `Answer.` and the question's short name hold the
answers. What Turk has no column for stands in columns of ours that begin with `Answer._`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from core.csv_tables import Row, cells
from core.studies import WORK, ApprovalVerdict, Item, Rules, StudyData, Vote, Worker
from study.tables import about_item, counted_assignments

HEAD = (
    "HITId HITTypeId Title Description Keywords Reward CreationTime MaxAssignments RequesterAnnotation "
    "AssignmentDurationInSeconds AutoApprovalDelayInSeconds Expiration NumberOfSimilarHITs LifetimeInSeconds "
    "AssignmentId WorkerId AssignmentStatus AcceptTime SubmitTime AutoApprovalTime ApprovalTime RejectionTime "
    "RequesterFeedback WorkTimeInSeconds LifetimeApprovalRate Last30DaysApprovalRate Last7DaysApprovalRate"
).split()
INPUTS = "image source kind label classes edit_types caption counterfactual group model model_right".split()
"""Of Input.*."""
OURS = ("_comment", "_seconds", "_side", "_changes", "_counted", "_excluded")
"""Of Answer.*: no question can have these names. Exact seconds, as Turk's are whole; where the generated
image stood; how often the answer was changed; whether the vote is in the result;
who excluded its worker ("rule" or "person") and why."""
TAIL = ("Approve", "Reject")

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def turk_columns(rules: Rules) -> list[str]:
    """The header for a study by these rules."""
    answers = [f"Answer.{question.id}" for question in rules.questions]
    return [*HEAD, *(f"Input.{n}" for n in INPUTS), *answers, *(f"Answer.{n}" for n in OURS), *TAIL]


def turk_rows(data: StudyData) -> list[Row]:
    """One row a vote, of items, control and quiz items alike (`Input.kind` says which), in the order they came.

    Training is no work that is approved or rejected, so it is in no such file.

    What a study does not have stays empty: reward, automatic approval, expiry, rates of the last days.
    """
    study, rules = data.study, data.study.rules
    items, workers = {item.id: item for item in data.items}, {worker.id: worker for worker in data.workers}
    inside, excluded = counted_assignments(data), {ex.worker: f"{ex.by}: {ex.reason}" for ex in data.exclusions}
    rows: list[Row] = []
    for vote in (vote for vote in data.votes if vote.kind in WORK):
        item = items[vote.item]
        row: Row = {
            "HITId": item.public,
            "HITTypeId": study.id,
            "Title": study.name,
            "Description": " ".join(rules.instructions.split()),
            "Keywords": rules.template,
            "CreationTime": turk_time(study.created),
            "MaxAssignments": rules.votes,
            "RequesterAnnotation": f"study:{study.id};rules:{rules.version};",
            "AssignmentDurationInSeconds": round(60 * rules.lease_minutes),
            "AssignmentId": f"{study.id}-{vote.assignment}",
            "WorkerId": vote.worker,
            "AssignmentStatus": "Submitted" if vote.verdict == "pending" else vote.verdict.capitalize(),
            "AcceptTime": turk_time(vote.accepted),
            "SubmitTime": turk_time(vote.submitted),
            "ApprovalTime": _decided(vote, "approved"),
            "RejectionTime": _decided(vote, "rejected"),
            "RequesterFeedback": vote.reason,
            "WorkTimeInSeconds": math.ceil(vote.seconds),
            "LifetimeApprovalRate": _rate(workers.get(vote.worker)),
            "Answer._comment": vote.comment,
            "Answer._seconds": vote.seconds,
            "Answer._side": vote.side,
            "Answer._changes": vote.changes,
            "Answer._counted": vote.assignment in inside,
            "Answer._excluded": excluded.get(vote.worker, ""),
        }
        row |= {f"Input.{name}": value for name, value in _inputs(vote, item).items()}
        row |= {f"Answer.{question.id}": vote.answers.get(question.id, "") for question in rules.questions}
        rows.append(row)
    return rows


def _decided(vote: Vote, verdict: ApprovalVerdict) -> str:
    return turk_time(vote.decided) if vote.decided and vote.verdict == verdict else ""


def _inputs(vote: Vote, item: Item) -> Row:
    return {
        "image": f"{item.public}.png",
        "source": f"{item.public}.source.png" if item.source_sha else "",
        "kind": vote.kind,
        **about_item(item),
        **cells(item, "caption counterfactual"),
    }


def _rate(worker: Worker | None) -> str:
    """As "98% (118/120)"; "0% (0/0)" before the first decision, as Turk has it."""
    if worker is None or worker.approval is None:
        return "0% (0/0)"
    return f"{round(100 * worker.approval)}% ({worker.approved}/{worker.finished})"


def turk_time(time: datetime) -> str:
    """As "Tue Nov 18 13:06:51 UTC 2014": whole seconds."""
    time = time.astimezone(UTC)
    day, month = DAYS[time.weekday()], MONTHS[time.month - 1]
    return f"{day} {month} {time.day:02} {time:%H:%M:%S} UTC {time.year}"
