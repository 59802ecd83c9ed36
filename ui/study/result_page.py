"""The page of results: its parts in their order, figures in tiles, the export menu, the methods paragraph. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.figures import percent
from core.studies import Study, StudyData
from core.study_report import Agreement, StudyReport
from core.words import count_of
from ui.explore.parts import bar, box, button, heading, icon, muted, notice
from ui.markup import Child, Html, el, fingerprint
from ui.study.disagreements import disagreements_box, remarks
from ui.study.figures import agreement_box, by_question, questions_in_detail, slices, timeline
from ui.study.frame import study_address
from ui.study.words import ends, figure, same_share, share
from ui.study.workers import workers_box

EXPORTS = (
    ("study.zip", "The whole study", "votes, results, rules and pictures, with a manifest"),
    ("votes.csv", "Votes", "task, worker, label: as crowd-kit reads them"),
    ("answers.csv", "Answers", "every answer, counted or not and why not, with times and comments"),
    ("turk.csv", "Mechanical Turk's columns", "as a batch result file, so that existing scripts run"),
    ("results.csv", "Results, CSV", "a row for every figure, with interval and n"),
    ("results.parquet", "Results, Parquet", "the same, typed"),
    ("results.json", "Results, JSON", "the same, nested"),
    ("payment.csv", "Payment", "who did how much, in minutes, and what was approved, with the ids of a panel"),
    ("people.csv", "About the people", "what they said of themselves, if they were asked"),
    ("truth.csv", "Sheet of true answers", "to fill in, for simulated annotators"),
)
"""File, name, what is in it."""
COLUMNS = (("questions", "agreement"), ("divided", "timeline"))
"""What stands in two columns, where there is room."""


def parts(report: StudyReport, data: StudyData, paragraph: str) -> Mapping[str, Html | None]:
    """The parts of the page by name, in their order; None where there is nothing to show."""
    excluded = {exclusion.worker for exclusion in data.exclusions}
    times = [vote.submitted for vote in data.votes if vote.kind == "item" and vote.worker not in excluded]
    return {
        "progress": progress(report),
        "notes": notes(report),
        "tiles": tiles(report),
        "questions": by_question(report),
        "divided": disagreements_box(report, data),
        "slices": slices(report),
        "details": questions_in_detail(report, data),
        "agreement": agreement_box(report),
        "timeline": timeline(report, sorted(times)),
        "workers": workers_box(report),
        "comments": _comments(report, data),
        "methods": methods(paragraph),
    }


def layout(found: Mapping[str, Html | None]) -> list[Html]:
    """The parts in their places, each in a slot that the page fills again when something changes."""
    paired = {name for column in COLUMNS for name in column}
    placed: list[Html] = []
    for name, part in found.items():
        if name == COLUMNS[0][0]:
            columns = [el("div", [slot(one, found[one]) for one in column], class_="r-stack") for column in COLUMNS]
            placed.append(el("div", columns, class_="halves wide"))
        elif name not in paired:
            placed.append(slot(name, part))
    return placed


def slot(name: str, part: Html | None) -> Html:
    """The place of a part, with the fingerprint of what it shows."""
    return el("div", part, class_="slot", data_part=name, data_stamp=fingerprint(part or Html("")))


def sent(found: Mapping[str, Html | None]) -> Mapping[str, Mapping[str, str]]:
    """The parts as a page that watches fetches them: fingerprint and markup."""
    return {name: {"stamp": fingerprint(part or Html("")), "html": part or ""} for name, part in found.items()}


def export_menu(study: Study) -> Html:
    """What can be taken away."""
    links = [
        el(
            "a",
            el("b", name),
            el("small", words, class_="mut"),
            href=study_address(study.id, f"export/{file}"),
            download=True,
        )
        for file, name, words in EXPORTS
    ]
    return el(
        "details",
        el("summary", icon("down"), "Export", class_="btn p"),
        el("div", links, class_="menu-items"),
        class_="menu exports",
        id="export",
    )


def copy_methods() -> Html:
    """The button in the head of the page."""
    return button("Copy methods paragraph", data_copy_from="#methods-text")


def methods(paragraph: str) -> Html:
    """The paragraph, ready to paste."""
    return el(
        "section",
        heading("Methods paragraph", button("Copy", look="s", data_copy_from="#methods-text", id="copy-methods")),
        el("p", paragraph, id="methods-text", class_="methods"),
        class_="card box",
        id="part-methods",
    )


def _comments(report: StudyReport, data: StudyData) -> Html | None:
    """Texts that workers wrote beside their answers."""
    return box("Comments", remarks(report, report.comments, data), id="part-comments") if report.comments else None


def progress(report: StudyReport) -> Html:
    """How much is in, and how it came in."""
    needed = report.items * report.study.rules.votes
    words = [
        el("b", f"{report.votes_counted:,} of {needed:,} votes"),
        f" count · {report.complete:,} of {count_of(report.items, 'image')} complete",
    ]
    if report.votes_excluded:
        words.append(f" · {count_of(report.votes_excluded, 'vote')} of excluded workers left out")
    if report.votes_surplus:
        words.append(
            f" · {count_of(report.votes_surplus, 'vote')} beyond the first {report.study.rules.votes} left out"
        )
    return el(
        "div",
        bar(report.votes_counted / needed if needed else 0.0, "votes counted"),
        el("span", words, class_="small"),
        class_="r-progress",
        id="part-progress",
    )


def notes(report: StudyReport) -> Html | None:
    """What a reader has to know before they trust a figure."""
    if not report.notes:
        return None
    return el("div", [notice(text) for text in report.notes], class_="notes", id="part-notes")


def tiles(report: StudyReport) -> Html:
    """The four figures that a lead looks at first."""
    return el(
        "div",
        _validity(report),
        _discarded(report),
        _agreement_tile(report.agreement),
        _excluded(report),
        class_="r-tiles",
        id="part-tiles",
    )


def _tile(title: str, figure_text: str, *lines: Child, name: str) -> Html:
    return el(
        "section",
        el("h2", title),
        el("p", figure_text, class_="figure"),
        [muted(line) for line in lines if line],
        class_="card figure-tile",
        id=f"tile-{name}",
    )


def _validity(report: StudyReport) -> Html:
    rate, before, apart = report.images.rate, report.images_before, report.images_adjudicated
    if not any(result.question.valid for result in report.questions):
        return _tile("Valid images", "not asked", "no question asks whether an image is valid", name="valid")
    if rate.value is None:
        return _tile("Valid images", "no figure yet", rate.words.removeprefix("undefined: "), name="valid")
    lines: list[Child] = [ends(report.images)]
    if same_share(report.images, before):
        lines.append("the same before exclusions" if report.exclusions else "")
    else:
        lines.append(f"before exclusions {share(before)}, n = {before.rate.n}")
    if apart is not None:
        lines.append(f"with your adjudications {share(apart)}, n = {apart.rate.n}, not part of the result")
    return _tile("Valid images", percent(rate.value), *lines, name="valid")


def _discarded(report: StudyReport) -> Html:
    part = report.images
    lines: list[Child] = []
    if part.bounds.missing and part.bounds.worst is not None and part.bounds.best is not None:
        lines.append(
            f"worst {percent(part.bounds.worst)}, best {percent(part.bounds.best)} if all of them were counted"
        )
    elif part.rate.n:
        lines.append("every image with all its votes has a consensus")
    if part.short:
        lines.append(f"{count_of(part.short, 'image')} of them with too few votes")
    if part.waiting:
        lines.append(f"{count_of(part.waiting, 'image')} still waiting for votes")
    return _tile("No consensus", f"{part.discarded + part.short:,}", *lines, name="discarded")


def _agreement_tile(found: Agreement) -> Html:
    if found.ac1.value is None:
        return _tile("Agreement", "no figure yet", found.words, name="agreement")
    measures = [f"raw {found.raw.words}", f"alpha {figure(found.alpha.words)}"]
    if found.ordinal is not None:
        measures.append(f"ordinal alpha {figure(found.ordinal.words)}")
    reason = ""
    if found.prevalence is not None and found.alpha.value is not None and found.ac1.value - found.alpha.value > 0.1:
        reason = f"{percent(found.prevalence)} of votes are “{found.frequent}”: alpha is low by construction"
    return _tile("Agreement", f"AC1 {found.ac1.words}", " · ".join(measures), reason, name="agreement")


def _excluded(report: StudyReport) -> Html:
    total = sum(1 for worker in report.workers if worker.votes or worker.exclusion or worker.controls.n)
    out = len(report.exclusions)
    rule = sum(exclusion.by == "rule" for exclusion in report.exclusions)
    lines: list[Child] = []
    if out:
        lines.append(f"workers · {count_of(report.votes_excluded, 'vote')} left out")
        if rule < out:
            lines.append(f"{rule} by the control rule, {out - rule} by a person")
    elif total:
        lines.append("workers: nobody was excluded")
    else:
        lines.append("nobody has voted yet")
    if report.controls.value is not None:
        lines.append(f"{percent(report.controls.value)} of {count_of(report.controls.n, 'control answer')} right")
    elif report.study.rules.controls.share:
        lines.append("no control item was answered yet")
    else:
        lines.append("this study has no control items")
    return _tile("Excluded by controls" if rule == out else "Excluded", f"{out} of {total}", *lines, name="excluded")
