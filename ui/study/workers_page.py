"""The workers of a study: their figures, and what a lead decides of them. Pure functions to markup."""

from __future__ import annotations

from study.intervals import Proportion, percent
from study.report_types import Report, WorkerFigures
from study.types import Study
from ui.study.frame import study_address
from ui.study.one_image import worker_address
from ui.study.plots import worker_scatter
from ui.study.words import count
from ui.views.markup import Attribute, Child, Html, el
from ui.views.parts import Tone, pill

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
    ("approval", "", "approved / (approved + rejected), in all studies"),
    ("this study", "", "what was decided of the assignments of this study"),
    ("", "", ""),
)


def workers_box(report: Report) -> Html:
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


def all_workers(report: Report) -> Html:
    """Everybody, with what a lead can decide."""
    if not report.workers:
        return el("section", el("h2", "Workers"), _nobody(), class_="card box", id="part-all-workers")
    study = report.study
    fit = [worker for worker in report.workers if worker.exclusion is None and worker.decided["pending"]]
    waiting = sum(worker.decided["pending"] for worker in fit)
    approve = el(
        "button",
        f"Approve {count(waiting, 'pending assignment')} of {count(len(fit), 'worker')}",
        type="button",
        class_="btn s",
        id="approve-all",
        data_decide=f"/study/api/{study.id}/approve-all",
        data_ask="Approve all pending assignments of everybody who is not excluded? Each approval can be reversed.",
        data_title="Approve",
    )
    drawn = worker_scatter(report.workers, study.rules.too_fast_seconds)
    rows = [row(report, worker, actions_of(study, worker)) for worker in report.workers]
    table = el("table", head(True), el("tbody", rows), class_="workers sortable")
    scatter = el(
        "section",
        el("h2", "Speed and agreement"),
        drawn,
        el(
            "p",
            _SCATTER,
            class_="mut small",
        ),
        class_="card box",
    )
    return el(
        "div",
        el(
            "section",
            el(
                "header",
                el("h2", count(len(report.workers), "worker")),
                el("span", class_="grow"),
                approve if fit else None,
            ),
            el("div", table, class_="scroll"),
            el("p", _policy(report), class_="mut small"),
            class_="card box",
        ),
        scatter if drawn is not None else None,
        class_="r-stack",
        id="part-all-workers",
    )


def _nobody() -> Html:
    return el("p", "Nobody has joined yet. Invitations are under “Invite and run”.", class_="mut")


def _policy(report: Report) -> str:
    """What excludes a worker by itself, and what decisions do."""
    policy = report.study.rules.controls
    said = (
        f"The rule excludes a worker with less than {100 * policy.min_right:.4g} % of control items right, after "
        f"{policy.min_seen} of them; their votes are replaced. "
        if policy.share
        else ""
    )
    return (
        f"{said}Approving and rejecting makes a worker's record, which later studies ask for; it changes no figure of "
        "this one. Excluding takes all votes of a worker out of the result, and readmitting counts them again."
    )


def head(actions: bool) -> Html:
    """The names of the columns."""
    cells = [el("th", words, scope="col", class_=look or None, title=title or None) for words, look, title in _COLUMNS]
    if actions:
        cells.append(el("th", el("span", "actions", class_="unseen"), scope="col", data_fixed=True))
    return el("thead", el("tr", cells))


def row(report: Report, worker: WorkerFigures, actions: Html | None) -> Html:
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
        el("td", _record(worker), class_="close", data_sort=-1 if worker.approval is None else worker.approval),
        el("td", _decided(worker), class_="close", data_sort=worker.decided["pending"]),
        el("td", worker.words, class_="mut", title=worker.words),
    ]
    if actions is not None:
        cells.append(el("td", actions, class_="actions"))
    return el("tr", cells, class_="out" if worker.exclusion is not None else None, id=f"worker-{worker.worker}")


def _share(found: Proportion, said: str = "") -> Html:
    """A share in a cell, its words on the pointer."""
    if found.value is None:
        return el("td", "–", class_="n", title=found.words, data_sort=-1)
    return el("td", said or percent(found.value), class_="n", title=found.words, data_sort=found.value)


def _record(worker: WorkerFigures) -> list[Child]:
    """The approval rate, or the state that matters more."""
    said: list[Child] = []
    if worker.exclusion is not None:
        said.append(pill("excluded", "bad"))
    if worker.blocked:
        said.append(pill("blocked", "bad"))
    if worker.approval is None:
        said.append(pill("no record yet"))
    else:
        tone: Tone = "ok" if worker.approval > 0.95 else "warn"
        said.append(pill(percent(worker.approval), tone, title=f"{count(worker.finished, 'assignment')} decided"))
    return said


def _decided(worker: WorkerFigures) -> str:
    """As "40 approved, 2 pending"."""
    said = [f"{n:,} {verdict}" for verdict, n in worker.decided.items() if n]
    return ", ".join(said) or "nothing yet"


def actions_of(study: Study, worker: WorkerFigures) -> Html:
    """The buttons of a row: approve and reject in sight, the rarer ones behind."""
    name, decided = worker.worker, worker.decided
    shown: list[Child] = []
    if decided["pending"] or decided["rejected"]:
        shown.append(_act(study, "Approve", "decide", name, verdict="approved"))
    if decided["pending"] or decided["approved"]:
        words = f"Reject all assignments of {name} in this study? It lowers the approval rate, and can be reversed."
        shown.append(_act(study, "Reject…", "decide", name, words, reason=True, verdict="rejected"))
    hidden: list[Child] = []
    if decided["approved"] or decided["rejected"]:
        words = f"Take back what was decided of {name}? The assignments are pending again."
        hidden.append(_act(study, "Undecide…", "decide", name, words, verdict="pending"))
    if worker.exclusion is None:
        words = (
            f"Leave all votes of {name} out of the result? "
            + ("Other workers are asked for replacement votes. " if study.state in ("running", "paused") else "")
            + "It can be reversed, and the methods paragraph says it."
        )
        hidden.append(_act(study, "Exclude…", "exclude", name, words, reason=True))
    else:
        words = (
            f"Let the votes of {name} count again? Of an item with more than {study.rules.votes} votes the first count."
        )
        hidden.append(_act(study, "Readmit…", "readmit", name, words, reason=True))
    if worker.blocked:
        hidden.append(_act(study, "Unblock…", "block", name, f"Let {name} take part in studies again?", blocked=""))
    else:
        words = f"Keep {name} from voting in every study of this workspace? Votes that are cast stay."
        hidden.append(_act(study, "Block…", "block", name, words, blocked="1"))
    words = f"Make a new code for {name}? The old one stops working, and {name} is signed out."
    hidden.append(_act(study, "New code…", "code", name, words))
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
    return el(
        "button",
        title,
        type="button",
        class_="btn s",
        data_decide=f"/study/api/{study.id}/{what}",
        data_title=f"{title.rstrip('…')} {worker}",
        data_ask=words or None,
        data_reason="1" if reason else None,
        data_send_worker=worker,
        **{f"data_send_{name}": value for name, value in sent.items()},
    )
