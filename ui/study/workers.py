"""The workers of a study: the list, the page of one worker with every vote, and the results of control items. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.consensus import ItemOutcome, counted, outcomes_of
from core.studies import WORK, Item, StudyData, Vote, right
from core.study_report import StudyReport, WorkerFigures
from ui.explore.parts import Tone
from ui.markup import Html
from ui.study.plots import worker_scatter
from ui.templating import render

SHOWN = 8
PAGE = 100
SHOWN_CONTROLS = 12


def workers_box(report: StudyReport) -> Html:
    """Return the workers for the page of results: first the excluded ones, then those with most votes."""
    first = sorted(report.workers, key=lambda worker: worker.exclusion is None)[:SHOWN]
    return render("study/workers_box.html", report=report, workers=first)


def all_workers(report: StudyReport) -> Html:
    """Return the list of all workers, with buttons for the lead's decisions."""
    fit = [worker for worker in report.workers if worker.exclusion is None and worker.decided["pending"]]
    return render(
        "study/workers.html",
        report=report,
        rules=report.study.rules,
        fit=fit,
        pending=sum(worker.decided["pending"] for worker in fit),
        idle=sum(not worker.answered for worker in report.workers),
        scatter=worker_scatter(report.workers, report.study.rules.too_fast_seconds),
    )


def worker_page(report: StudyReport, data: StudyData, worker: WorkerFigures, page: int = 1) -> Html:
    """Return the page of one worker: figures, decisions, and every vote beside the other workers' consensus."""
    votes = [vote for vote in data.votes if vote.worker == worker.worker]
    pages = max(1, -(-len(votes) // PAGE))
    page = min(max(1, page), pages)
    items = {item.id: item for item in data.items}
    shown = [vote for vote in votes[(page - 1) * PAGE : page * PAGE] if vote.item in items]
    outcomes = _outcomes(data, {vote.item for vote in shown})
    questions = report.study.rules.questions
    return render(
        "study/worker.html",
        report=report,
        worker=worker,
        pages=pages,
        page=page,
        counted=len(votes),
        trained=sum(vote.kind == "training" for vote in votes),
        votes=[(vote, items[vote.item], _found(vote, outcomes.get(vote.item, {}))) for vote in shown],
        is_right=lambda vote, item: right(item, vote.answers, questions),
        several=len(questions) > 1,
        work=WORK,
    )


def _outcomes(data: StudyData, item_ids: set[int]) -> Mapping[int, Mapping[str, ItemOutcome]]:
    """Return the outcome of these items' questions over all workers, by item id and question."""
    items = [item for item in data.items if item.id in item_ids and item.kind == "item"]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    votes = counted([vote for vote in data.votes if vote.item in item_ids], data.study.rules.votes, excluded)
    return outcomes_of(items, votes, data.study.rules, data.study.state == "closed")


def _found(vote: Vote, outcomes: Mapping[str, ItemOutcome]) -> list[tuple[str, str, Tone]]:
    """Return (name of a question, consensus or status, colour) for a vote's questions, unless they wait for votes. The
    colour is "ok" if the vote agrees with the consensus.
    """
    outcomes_found: list[tuple[str, str, Tone]] = []
    for name, outcome in outcomes.items():
        if outcome.status == "consensus" and outcome.counts:
            outcomes_found.append((name, outcome.answer, "ok" if vote.answers.get(name) == outcome.answer else "warn"))
        elif outcome.counts and outcome.status != "waiting":
            outcomes_found.append((name, outcome.status, ""))
    return outcomes_found


def control_items_box(report: StudyReport, data: StudyData) -> Html | None:
    """Return the control items with most wrong answers, or None if no control item was answered."""
    found = _judged(data)
    if not found:
        return None
    good = sum(all(answers) for _, answers in found)
    return render("study/controls.html", study=report.study, good=good, judged=len(found), tiles=found[:SHOWN_CONTROLS])


def _judged(data: StudyData) -> list[tuple[Item, Sequence[bool]]]:
    """Return each answered control item with a bool for each vote: True if right. The worst item is first."""
    answers_of: dict[int, list[bool]] = {}
    items = {item.id: item for item in data.items if item.kind == "control" and item.expected}
    for vote in data.votes:
        if vote.item in items:
            judged = right(items[vote.item], vote.answers, data.study.rules.questions)
            answers_of.setdefault(vote.item, []).append(judged)
    found = [(items[number], answers) for number, answers in answers_of.items()]
    return sorted(found, key=lambda pair: (sum(pair[1]) / len(pair[1]), -len(pair[1]), pair[0].id))
