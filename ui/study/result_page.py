"""The page of results: its parts in order, figures in tiles, the menu of exports, the paragraph for a paper. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from core.studies import StudyData
from core.study_report import NONE, QuestionResult, Slice, Slices, StudyReport
from ui.markup import Html, el, fingerprint
from ui.study.disagreements import disagreements_box
from ui.study.plots import AGREEMENT, LOW, RATING, Axis, share_axis, votes_over_time
from ui.study.workers import workers_box
from ui.templating import render

COLUMNS = (("questions", "agreement"), ("divided", "timeline"))
"""Names of the parts in the left and in the right column. In a narrow window they form one column."""
FOLDED = 12
"""Maximum number of visible rows of a table of classes; the others unfold."""
NamedSlices = list[tuple[str, Slice]]


def parts(report: StudyReport, data: StudyData, paragraph: str) -> Mapping[str, Html | None]:
    """Return the parts of the results page by name, in order; None for a part with nothing to show."""
    excluded = {exclusion.worker for exclusion in data.exclusions}
    times = [vote.submitted for vote in data.votes if vote.kind == "item" and vote.worker not in excluded]
    items = {item.id: item for item in data.items}
    known = sum(1 for worker in report.workers if worker.votes or worker.exclusion or worker.controls.n)
    return {
        "progress": render("study/progress.html", report=report),
        "notes": render("study/notes.html", notes=report.notes) if report.notes else None,
        "tiles": render("study/tiles.html", report=report, known=known),
        "questions": by_question(report),
        "divided": disagreements_box(report, data),
        "slices": slices(report),
        "details": questions_in_detail(report, data),
        "agreement": render("study/agreement.html", axis=AGREEMENT, found=report.agreement),
        "timeline": timeline(report, sorted(times)),
        "workers": workers_box(report),
        "comments": render("study/comments.html", report=report, items=items) if report.comments else None,
        "methods": render("study/methods.html", paragraph=paragraph),
    }


def layout(found: Mapping[str, Html | None]) -> list[Html]:
    """Return the parts of the page, each in a slot. The page's script replaces a slot's content when it changes."""
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
    """Return the slot for a part, with the hash of its content; an empty slot without a part."""
    return el("div", part, class_="slot", data_part=name, data_stamp=fingerprint(part or Html("")))


def sent(found: Mapping[str, Html | None]) -> Mapping[str, Mapping[str, str]]:
    """Return hash and HTML of each part, by name, for an open page that updates itself."""
    return {name: {"stamp": fingerprint(part or Html("")), "html": part or ""} for name, part in found.items()}


def by_question(report: StudyReport) -> Html:
    """Return all questions, one in each row, with a plot of intervals."""
    telling = [result for result in report.questions if result.question.valid]
    ratings = [result for result in report.questions if result.question.kind == "scale" and not result.question.valid]
    return render(
        "study/by_question.html",
        report=report,
        telling=telling,
        axis=share_axis(part for result in telling for part in (result.after, result.before)),
        ratings=ratings,
        rating_axis=RATING,
        others=[result for result in report.questions if result not in telling and result not in ratings],
        votes={result.question.id: _votes(result) for result in report.questions},
        low=LOW,
    )


def _votes(result: QuestionResult) -> dict[str, int]:
    return {answer.answer: answer.votes for answer in result.answers}


def slices(report: StudyReport) -> Html | None:
    """Return the shares of valid images, grouped in four ways: by whether the model under test is right, by sample, by
    class, and by edit type. None if there are no groups.
    """
    titles = ("Model under test", "By sample", "By class", "By edit type")
    named = zip(titles, _named(report.image_slices), strict=True)
    boxes = [(title, words, found, share_axis(part for _, part in found)) for title, (words, found) in named if found]
    return render("study/slices.html", boxes=boxes, folded=FOLDED) if boxes else None


def _named(parts: Slices) -> Iterable[tuple[str, NamedSlices]]:
    """Yield (name of a grouping, its groups by name). Images without a value form a group too."""
    for words, found in (
        ("model", parts.by_model),
        ("sample", parts.by_group),
        ("class", parts.by_class),
        ("edit type", parts.by_edit_type),
    ):
        none = "not asked of the model" if words == "model" else f"no {words}"
        yield words, [(none if part.name == NONE else part.name, part) for part in found]


def timeline(report: StudyReport, times: Sequence[datetime]) -> Html | None:
    """Return the plot of votes over time, or None for fewer than two votes. `times` are sorted."""
    needed = report.items * report.study.rules.votes
    if (drawn := votes_over_time(times, needed)) is None:
        return None
    points, height = drawn
    label = f"{len(times)} votes from {times[0]:%d %b %H:%M} to {times[-1]:%d %b %H:%M}"
    return render("study/timeline.html", report=report, points=points, needed=needed, height=height, label=label)


def questions_in_detail(report: StudyReport, data: StudyData) -> Html:
    """Return the details of every question, folded. A single question is unfolded."""
    return render(
        "study/questions_in_detail.html",
        report=report,
        items={item.id: item for item in data.items},
        agreement_axis=AGREEMENT,
        questions=[_question(result, is_only=len(report.questions) == 1) for result in report.questions],
    )


def _question(result: QuestionResult, is_only: bool) -> tuple[QuestionResult, dict[str, int], NamedSlices, Axis]:
    """Return a question, its votes by answer, its groups of images (none if `is_only`), and the axis for the groups."""
    parts = [] if is_only else [named for _, found in _named(result.slices) for named in found]
    return result, _votes(result), parts, share_axis(part for _, part in parts)
