"""The page of results: its parts in their order, the export menu and the methods paragraph. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from study.methods import paragraph
from study.report_types import Report
from study.types import Study, StudyData
from ui.study.details import questions_in_detail
from ui.study.divided import divided, item_address
from ui.study.figures import agreement_box, by_question, slices, timeline
from ui.study.frame import study_address
from ui.study.tiles import notes, progress, tiles
from ui.study.workers_page import workers_box
from ui.views.markup import Child, Html, el, fingerprint
from ui.views.parts import icon

EXPORTS = (
    ("study.zip", "The whole study", "votes, results, rules and pictures, with a manifest"),
    ("votes.csv", "Votes", "task, worker, label: as crowd-kit reads them"),
    ("turk.csv", "Mechanical Turk's columns", "as a batch result file, so that existing scripts run"),
    ("results.csv", "Results, CSV", "a row for every figure, with interval and n"),
    ("results.parquet", "Results, Parquet", "the same, typed"),
    ("results.json", "Results, JSON", "the same, nested"),
    ("truth.csv", "Sheet of true answers", "to fill in, for simulated annotators"),
)
"""File, name, what is in it."""
COMMENTS = 100


def parts(report: Report, data: StudyData) -> Mapping[str, Html | None]:
    """The parts of the page by name, in their order; None where there is nothing to show."""
    excluded = {exclusion.worker for exclusion in data.exclusions}
    times = [vote.submitted for vote in data.votes if vote.kind == "item" and vote.worker not in excluded]
    return {
        "progress": progress(report),
        "notes": notes(report),
        "tiles": tiles(report),
        "questions": by_question(report),
        "divided": divided(report, data),
        "slices": slices(report),
        "details": questions_in_detail(report),
        "agreement": agreement_box(report),
        "timeline": timeline(report, sorted(times)),
        "workers": workers_box(report),
        "comments": _comments(report, data),
        "methods": methods(report),
    }


COLUMNS = (("questions", "agreement", "timeline"), ("divided",))
"""What stands in two columns, where there is room."""


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
    return el("button", "Copy methods paragraph", type="button", class_="btn", data_copy_from="#methods-text")


def methods(report: Report) -> Html:
    """The paragraph, ready to paste."""
    return el(
        "section",
        el(
            "header",
            el("h2", "Methods paragraph"),
            el("span", class_="grow"),
            el("button", "Copy", type="button", class_="btn s", data_copy_from="#methods-text"),
        ),
        el("p", paragraph(report), id="methods-text", class_="methods"),
        class_="card box",
        id="part-methods",
    )


def _comments(report: Report, data: StudyData) -> Html | None:
    """What workers wrote beside their answers."""
    if not report.comments:
        return None
    items = {item.id: item for item in data.items}
    lines: list[Child] = [
        el(
            "li",
            remark.text,
            " ",
            el("small", el("a", remark.worker, href=item_address(report.study, items[remark.item]))),
        )
        for remark in report.comments[:COMMENTS]
    ]
    more = len(report.comments) - COMMENTS
    return el(
        "section",
        el("h2", "Comments"),
        el("ul", lines, class_="words"),
        el("p", f"and {more} more, in the exports", class_="mut") if more > 0 else None,
        class_="card box",
        id="part-comments",
    )
