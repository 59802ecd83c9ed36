"""The workers of a study: all of them, one with every vote, the control items that they were judged by. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.consensus import ItemOutcome, counted, outcomes_of
from core.figures import Proportion, percent
from core.studies import WORK, Item, Study, StudyData, Vote, right
from core.study_report import StudyReport, WorkerFigures
from core.words import count_of
from ui.explore.parts import Tone, box, button, head_table, muted, page_links, pill, press, small
from ui.markup import Attribute, Child, Html, el
from ui.study.disagreements import item_tile, picture_link, said_answers, worker_address
from ui.study.frame import study_address
from ui.study.plots import answer_bar, worker_scatter
from ui.study.words import when

SHOWN = 8
"""On the page of results."""
_SCATTER = "Across: median seconds a vote. Up: share of answers equal to the consensus. Dashed and red: excluded."
_COLUMNS = (
    ("worker", "", ""),
    ("votes", "n", "votes on items, control items apart"),
    ("controls right", "n", "control items answered right, of those seen"),
    ("with consensus", "n", "answers equal to the consensus, where there is one"),
    ("median time", "n", "seconds a vote, as the page measured it"),
    ("too fast", "n", "faster than the rules expect: a hint, not a verdict"),
    ("standing", "", "excluded, blocked or not judged yet; approved / (approved + rejected) in all studies"),
    ("work in this study", "", "assignments of this study: approved, rejected, pending"),
    ("in the result", "", "whether the votes count, and why not"),
)
PAGE = 100
"""Votes on a page."""
_TONES: Mapping[str, Tone] = {"approved": "ok", "rejected": "bad", "pending": ""}
SHOWN_CONTROLS = 12


def workers_box(report: StudyReport) -> Html:
    """The first few, on the page of results: the excluded ones, then those with most votes."""
    title = [
        el("h2", "Workers"),
        el("span", class_="grow"),
        el("a", f"All {len(report.workers)}", href=study_address(report.study.id, "workers"), class_="btn s"),
    ]
    if not report.workers:
        return el("section", el("header", title[0]), _nobody(), class_="card box", id="part-workers")
    first = sorted(report.workers, key=lambda worker: worker.exclusion is None)[:SHOWN]
    rows = [row(report, worker, None) for worker in first]
    table = el("table", head(False), el("tbody", rows), class_="workers")
    return el("section", el("header", title), el("div", table, class_="scroll"), class_="card box", id="part-workers")


def all_workers(report: StudyReport) -> Html:
    """Everybody, with what a lead can decide."""
    if not report.workers:
        return box("Workers", _nobody(), id="part-all-workers")
    study = report.study
    fit = [worker for worker in report.workers if worker.exclusion is None and worker.decided["pending"]]
    waiting = sum(worker.decided["pending"] for worker in fit)
    approve = button(
        f"Approve {count_of(waiting, 'pending assignment')} of {count_of(len(fit), 'worker')}",
        look="s",
        id="approve-all",
        data_decide=f"/study/api/{study.id}/approve-all",
        data_ask="Approve all pending assignments of everybody who is not excluded? Each approval can be reversed.",
        data_title="Approve",
    )
    idle = sum(not worker.answered for worker in report.workers)
    nothing = "without any answer" + (" but those of the training" if report.study.rules.training else "")
    drawn = worker_scatter(report.workers, study.rules.too_fast_seconds)
    rows = [row(report, worker, actions_of(study, worker)) for worker in report.workers]
    table = el("table", head(True, sorts=True), el("tbody", rows), class_="workers sortable")
    scatter = box("Speed and agreement", drawn, small(_SCATTER))
    return el(
        "div",
        el(
            "section",
            el(
                "header",
                el("h2", count_of(len(report.workers) - idle, "worker")),
                el("span", f"and {idle:,} {nothing}", class_="mut small") if idle else None,
                el("span", class_="grow"),
                approve if fit else None,
            ),
            el("div", table, class_="scroll"),
            small(_policy(report)),
            class_="card box",
        ),
        scatter if drawn is not None else None,
        class_="r-stack",
        id="part-all-workers",
    )


def _nobody() -> Html:
    return muted("Nobody has joined yet. Invitations are under “Invite and run”.")


def _policy(report: StudyReport) -> str:
    """What excludes a worker by itself, and what decisions do."""
    policy = report.study.rules.controls
    sentence = (
        f"The rule excludes a worker with less than {100 * policy.min_right:.4g} % of control items right, after "
        f"{policy.min_seen} of them; their votes are replaced. Who has seen fewer is not judged: "
        "their votes count. "
        if policy.share
        else ""
    )
    return (
        f"{sentence}Approving and rejecting makes a worker's record, which later studies ask for; it changes no figure "
        "of this one. Excluding takes all votes of a worker out of the result, and readmitting counts them again."
    )


def head(actions: bool, sorts: bool = False) -> Html:
    """The names of the columns; with `sorts` they are buttons that sort by them."""
    cells = []
    for place, (words, look, title) in enumerate(_COLUMNS):
        shown: Child = words
        if sorts and words:
            shown = press(words, class_="sort", id=f"sort-{place}")
        cells.append(el("th", shown, scope="col", class_=look or None, title=title or None, data_fixed=not words))
    if actions:
        cells.append(el("th", el("span", "actions", class_="unseen"), scope="col", data_fixed=True))
    return el("thead", el("tr", cells))


def row(report: StudyReport, worker: WorkerFigures, actions: Html | None) -> Html:
    """One worker in a table."""
    name = el("a", worker.worker, href=worker_address(report, worker.worker))
    seconds = worker.median_seconds
    cells = [
        el("th", name, scope="row", title=worker.worker),
        el("td", f"{worker.votes:,}", class_="n", data_sort=worker.votes),
        _share(worker.controls, f"{worker.controls.count} / {worker.controls.n}"),
        _share(worker.with_consensus),
        el(
            "td",
            f"{seconds:.1f} s" if seconds is not None else "–",
            class_="n",
            data_sort=-1 if seconds is None else seconds,
        ),
        _share(worker.too_fast),
        el("td", _record(report, worker), class_="close", data_sort=-1 if worker.approval is None else worker.approval),
        el("td", _decided(worker), class_="close", data_sort=worker.decided["pending"]),
        el("td", worker.words, class_="mut", title=worker.words),
    ]
    if actions is not None:
        cells.append(el("td", actions, class_="actions"))
    return el("tr", cells, class_="out" if worker.exclusion is not None else None, id=f"worker-{worker.worker}")


def _share(found: Proportion, words: str = "") -> Html:
    """A share in a cell, its words on the pointer."""
    if found.value is None:
        return el("td", "–", class_="n", title=found.words, data_sort=-1)
    return el("td", words or percent(found.value), class_="n", title=found.words, data_sort=found.value)


def _record(report: StudyReport, worker: WorkerFigures) -> list[Child]:
    """The approval rate, or the state that matters more."""
    tags: list[Child] = []
    if worker.exclusion is not None:
        tags.append(pill("excluded", "bad"))
    if worker.blocked:
        tags.append(pill("blocked", "bad"))
    if worker.counted and not worker.judged:
        least = report.study.rules.controls.min_seen
        seen = f"saw {worker.controls.n} of the {least} control items after which the rule judges"
        tags.append(pill("not judged" if report.study.state == "closed" else "not judged yet", "warn", title=seen))
    if worker.approval is None:
        tags.append(pill("no record yet"))
    else:
        tone: Tone = "ok" if worker.approval > 0.95 else "warn"
        tags.append(pill(percent(worker.approval), tone, title=f"{count_of(worker.finished, 'assignment')} decided"))
    return tags


def _decided(worker: WorkerFigures) -> str:
    """As "40 approved, 2 pending"."""
    parts = [f"{n:,} {verdict}" for verdict, n in worker.decided.items() if n]
    return ", ".join(parts) or "nothing yet"


def actions_of(study: Study, worker: WorkerFigures) -> Html:
    """The buttons of a row: approve and reject in sight, the rarer ones behind."""
    name, decided = worker.worker, worker.decided
    shown: list[Child] = []
    if decided["pending"] or decided["rejected"]:
        shown.append(_act(study, "Approve", "decide-assignments", name, verdict="approved"))
    if decided["pending"] or decided["approved"]:
        words = f"Reject all assignments of {name} in this study? It lowers the approval rate, and can be reversed."
        shown.append(_act(study, "Reject…", "decide-assignments", name, words, reason=True, verdict="rejected"))
    hidden: list[Child] = []
    if decided["approved"] or decided["rejected"]:
        words = f"Take back what was decided of {name}? The assignments are pending again."
        hidden.append(_act(study, "Undecide…", "decide-assignments", name, words, verdict="pending"))
    if worker.exclusion is None:
        words = (
            f"Leave all votes of {name} out of the result? "
            + ("Other workers are asked for replacement votes. " if study.state in ("running", "paused") else "")
            + "It can be reversed, and the methods paragraph says it."
        )
        hidden.append(_act(study, "Exclude…", "exclude-worker", name, words, reason=True))
    else:
        words = (
            f"Let the votes of {name} count again? Of an item with more than {study.rules.votes} votes the first count."
        )
        hidden.append(_act(study, "Readmit…", "readmit-worker", name, words, reason=True))
    if worker.blocked:
        hidden.append(
            _act(study, "Unblock…", "block-worker", name, f"Let {name} take part in studies again?", blocked="0")
        )
    else:
        words = f"Keep {name} from voting in every study of this workspace? Votes that are cast stay."
        hidden.append(_act(study, "Block…", "block-worker", name, words, blocked="1"))
    words = f"Make a new code for {name}? The old one stops working, and {name} is signed out."
    hidden.append(_act(study, "New code…", "renew-code", name, words))
    menu = el(
        "details",
        el("summary", "More", class_="btn s q", aria_label=f"More for {name}"),
        el("div", hidden, class_="menu-items"),
        class_="menu",
        id=f"menu-{name}",
    )
    return el("span", shown, menu)


def _act(
    study: Study, title: str, what: str, worker: str, words: str = "", reason: bool = False, **sent: Attribute
) -> Html:
    """A button that sends something, after a question and with a reason where they are given."""
    return button(
        title,
        "",
        "s",
        id="-".join(map(str, (what, *sent.values(), worker))),
        data_decide=f"/study/api/{study.id}/{what}",
        data_title=f"{title.rstrip('…')} {worker}",
        data_ask=words or None,
        data_reason="1" if reason else None,
        data_send_worker=worker,
        **{f"data_send_{name}": value for name, value in sent.items()},
    )


def worker_page(report: StudyReport, data: StudyData, worker: WorkerFigures, page: int = 1) -> Html:
    """One worker: figures, decisions, and every vote beside what the others found."""
    votes = [vote for vote in data.votes if vote.worker == worker.worker]
    trained = sum(vote.kind == "training" for vote in votes)
    pages = max(1, -(-len(votes) // PAGE))
    page = min(max(1, page), pages)
    items = {item.id: item for item in data.items}
    shown = [vote for vote in votes[(page - 1) * PAGE : page * PAGE] if vote.item in items]
    outcomes = _outcomes(data, {vote.item for vote in shown})
    columns = ("", "kind", "answers", "found by all", "time", "when", "decided")
    rows = [_vote_row(report, vote, items[vote.item], outcomes.get(vote.item, {})) for vote in shown]
    table = head_table(columns, rows, class_="votes")
    address = worker_address(report, worker.worker)
    figures = el(
        "table", head(True), el("tbody", row(report, worker, actions_of(report.study, worker))), class_="workers"
    )
    return el(
        "div",
        box(worker.worker, el("div", figures, class_="scroll")),
        box(
            count_of(len(votes) - trained, "vote")
            + (f" and {count_of(trained, 'training answer')}" if trained else ""),
            el("div", table, class_="scroll") if shown else muted("No vote yet."),
            page_links(pages, page, lambda number: f"{address}?page={number}"),
        ),
        class_="r-stack",
        id="part-worker",
    )


def _outcomes(data: StudyData, wanted: set[int]) -> Mapping[int, Mapping[str, ItemOutcome]]:
    """What all workers found of these items."""
    items = [item for item in data.items if item.id in wanted and item.kind == "item"]
    excluded = {exclusion.worker for exclusion in data.exclusions}
    votes = counted([vote for vote in data.votes if vote.item in wanted], data.study.rules.votes, excluded)
    return outcomes_of(items, votes, data.study.rules, data.study.state == "closed")


def _vote_row(report: StudyReport, vote: Vote, item: Item, outcomes: Mapping[str, ItemOutcome]) -> Html:
    """One vote beside the consensus, or beside the right answer of a control item."""
    questions = report.study.rules.questions
    several = len(questions) > 1
    if item.kind != "item":
        expected = ", ".join(f"{name}: {answer}" if several else answer for name, answer in item.expected.items())
        good = right(item, vote.answers, questions)
        found: Child = [pill("right" if good else "wrong", "ok" if good else "bad"), f" {expected}"]
    else:
        found = [_found(name, outcome, vote, several) for name, outcome in outcomes.items()]
    # Of what the figure of speed counts.
    fast = vote.kind in ("item", "control") and vote.seconds < report.study.rules.too_fast_seconds
    decided: list[Child] = []
    if vote.kind in WORK:
        decided = [
            pill(vote.verdict, _TONES[vote.verdict]),
            el("div", vote.reason, class_="mut") if vote.reason else None,
        ]
    return el(
        "tr",
        el("td", picture_link(report.study, item)),
        el("td", "" if item.kind == "item" else item.kind, class_="mut"),
        el(
            "td",
            said_answers(vote, several),
            el("div", f"“{vote.comment}”", class_="mut") if vote.comment else None,
        ),
        el("td", found),
        el("td", f"{vote.seconds:.1f} s ", pill("too fast", "warn") if fast else None, class_="close"),
        el("td", when(vote.submitted, seconds=True), class_="mut when"),
        el("td", decided),
    )


def _found(name: str, outcome: ItemOutcome, vote: Vote, several: bool) -> Html | None:
    """The consensus on a question, and whether this vote is with it; nothing while it waits for votes."""
    if not outcome.counts or outcome.status == "waiting":
        return None
    text: str = outcome.status
    tone: Tone = ""
    if outcome.status == "consensus":
        text, tone = outcome.answer, "ok" if vote.answers.get(name) == outcome.answer else "warn"
    return el("div", el("small", f"{name} ", class_="mut") if several else None, pill(text, tone))


def control_items_box(report: StudyReport, data: StudyData) -> Html | None:
    """Those that were answered wrong most often. None without an answer to any."""
    found = _judged(data)
    if not found:
        return None
    good = sum(all(answers) for _, answers in found)
    tiles = [_tile(report, item, answers) for item, answers in found[:SHOWN_CONTROLS]]
    sentence = (
        f"{good} of {len(found)} control items were answered right by everybody. Those that were answered wrong most "
        "often come first: where most workers are wrong, look whether the item is."
    )
    return box("Control items", small(sentence), el("div", tiles, class_="divided"), id="part-controls")


def _judged(data: StudyData) -> list[tuple[Item, Sequence[bool]]]:
    """Every control item with a known answer that somebody judged, and whether each of them was right; the worst
    first."""
    given: dict[int, list[bool]] = {}
    items = {item.id: item for item in data.items if item.kind == "control" and item.expected}
    for vote in data.votes:
        if vote.item in items:
            judged = right(items[vote.item], vote.answers, data.study.rules.questions)
            given.setdefault(vote.item, []).append(judged)
    found = [(items[number], answers) for number, answers in given.items()]
    return sorted(found, key=lambda pair: (sum(pair[1]) / len(pair[1]), -len(pair[1]), pair[0].id))


def _tile(report: StudyReport, item: Item, answers: Sequence[bool]) -> Html:
    good = sum(answers)
    expected = ", ".join(item.expected.values())
    words = f"{good} of {len(answers)} right · {f'{item.label}: ' if item.label else ''}{expected}"
    return item_tile(report.study, item, answer_bar({"right": good, "wrong": len(answers) - good}, ("right",)), words)
