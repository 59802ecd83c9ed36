"""One worker of a study: figures, decisions, and every vote beside what the others found. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from study.consensus import Outcome, counted
from study.controls import right
from study.report_types import Report, WorkerFigures
from study.slices import outcomes_of
from study.types import Item, StudyData, Vote
from ui.study.divided import item_address
from ui.study.one_image import said_answers, worker_address
from ui.study.words import count, image_url
from ui.study.workers_page import actions_of, head, row
from ui.views.markup import Child, Html, el
from ui.views.parts import Tone, pill

PAGE = 100
"""Votes on a page."""


def worker_page(report: Report, data: StudyData, worker: WorkerFigures, page: int = 1) -> Html:
    """One worker: figures, decisions, and every vote beside what the others found."""
    votes = [vote for vote in data.votes if vote.worker == worker.worker]
    pages = max(1, -(-len(votes) // PAGE))
    page = min(max(1, page), pages)
    items = {item.id: item for item in data.items}
    shown = [vote for vote in votes[(page - 1) * PAGE : page * PAGE] if vote.item in items]
    outcomes = _outcomes(data, {vote.item for vote in shown})
    columns = [
        el("th", words, scope="col") for words in ("", "kind", "answers", "found by all", "time", "when", "decided")
    ]
    rows = [_vote_row(report, vote, items[vote.item], outcomes.get(vote.item, {})) for vote in shown]
    table = el("table", el("thead", el("tr", columns)), el("tbody", rows), class_="votes")
    address = worker_address(report, worker.worker)
    turn = [
        el("a", str(n), href=f"{address}?page={n}", class_="btn s" + (" p" if n == page else ""))
        for n in range(1, pages + 1)
    ]
    figures = el(
        "table", head(True), el("tbody", row(report, worker, actions_of(report.study, worker))), class_="workers"
    )
    return el(
        "div",
        el("section", el("h2", worker.worker), el("div", figures, class_="scroll"), class_="card box"),
        el(
            "section",
            el("h2", count(len(votes), "vote")),
            el("div", table, class_="scroll") if shown else el("p", "No vote yet.", class_="mut"),
            el("nav", turn, class_="turn", aria_label="Pages") if pages > 1 else None,
            class_="card box",
        ),
        class_="r-stack",
        id="part-worker",
    )


def _outcomes(data: StudyData, wanted: set[int]) -> Mapping[int, Mapping[str, Outcome]]:
    """What all workers found of these items."""
    items = [item for item in data.items if item.id in wanted and item.kind == "item"]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    votes = counted([vote for vote in data.votes if vote.item in wanted], data.study.rules.votes, excluded)
    return outcomes_of(items, votes, data.study.rules, data.study.state == "closed")


def _vote_row(report: Report, vote: Vote, item: Item, outcomes: Mapping[str, Outcome]) -> Html:
    """One vote beside the consensus, or beside the right answer of a control item."""
    questions = report.study.rules.questions
    several = len(questions) > 1
    if item.kind != "item":
        wanted = ", ".join(f"{name}: {answer}" if several else answer for name, answer in item.expected.items())
        good = right(item, vote.answers, questions)
        found: Child = [pill("right" if good else "wrong", "ok" if good else "bad"), f" {wanted}"]
    else:
        found = [_found(name, outcome, vote, several) for name, outcome in outcomes.items()]
    fast = vote.seconds < report.study.rules.too_fast_seconds
    decided = [pill(vote.verdict, _TONES[vote.verdict]), el("div", vote.reason, class_="mut") if vote.reason else None]
    return el(
        "tr",
        el(
            "td",
            el(
                "a",
                el("img", src=image_url(item.image_sha), alt="", loading="lazy"),
                href=item_address(report.study, item),
            ),
        ),
        el("td", {"item": "", "control": "control", "quiz": "quiz"}[item.kind], class_="mut"),
        el(
            "td",
            said_answers(vote, several),
            el("div", f"“{vote.comment}”", class_="mut") if vote.comment else None,
        ),
        el("td", found),
        el("td", f"{vote.seconds:.1f} s ", pill("too fast", "warn") if fast else None, class_="close"),
        el("td", f"{vote.submitted:%d %b, %H:%M:%S}", class_="mut"),
        el("td", decided),
    )


_TONES: Mapping[str, Tone] = {"approved": "ok", "rejected": "bad", "pending": ""}


def _found(name: str, outcome: Outcome, vote: Vote, several: bool) -> Html | None:
    """The consensus on a question, and whether this vote is with it; nothing while it waits for votes."""
    if not outcome.counts or outcome.status == "waiting":
        return None
    said: str = outcome.status
    tone: Tone = ""
    if outcome.status == "consensus":
        said, tone = outcome.answer, "ok" if vote.answers.get(name) == outcome.answer else "warn"
    return el("div", el("small", f"{name} ", class_="mut") if several else None, pill(said, tone))
