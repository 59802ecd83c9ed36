"""Figures of a study. Every share has its interval, its n and what was left out; words say what is undefined. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from core.figures import percent
from core.studies import StudyData
from core.study_report import NONE, QuestionResult, Slice, Slices, StudyReport
from core.words import count_of
from ui.markup import Html
from ui.study.plots import AGREEMENT, LOW, RATING, Axis, is_low, share_axis, votes_over_time
from ui.study.words import same_share
from ui.templating import render

FOLDED = 12
"""So many rows of a table of classes are shown at once; the others unfold."""
NamedSlices = list[tuple[str, Slice]]


def by_question(report: StudyReport) -> Html:
    """Every question in one row, with its interval plot."""
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
        legend=_legend(telling),
    )


def _votes(result: QuestionResult) -> dict[str, int]:
    """How often each answer was given."""
    return {answer.answer: answer.votes for answer in result.answers}


def _legend(telling: Sequence[QuestionResult]) -> str:
    sentences = ["Dot and line: the share of valid images with its 95 % Wilson interval, over images with a consensus."]
    sentences.append("It counts which images were drawn; an image that fools most people is found valid all the same.")
    if any(result.after.bounds.missing for result in telling):
        sentences.append("Pale: if all discarded images were invalid, or valid.")
    if any(not same_share(result.after, result.before) for result in telling):
        sentences.append("Ring: before exclusions.")
    if any(is_low(result.after) for result in telling):
        sentences.append(f"Orange: below {100 * LOW:.0f} %.")
    return " ".join(sentences)


def slices(report: StudyReport) -> Html | None:
    """The share of valid images by class, edit type, sample, and whether the model under test is right."""
    titles = ("Model under test", "By sample", "By class", "By edit type")
    named = zip(titles, _named(report.image_slices), strict=True)
    boxes = [(title, words, found, share_axis(part for _, part in found)) for title, (words, found) in named if found]
    return render("study/slices.html", boxes=boxes, folded=FOLDED) if boxes else None


def _named(parts: Slices) -> Iterable[tuple[str, NamedSlices]]:
    """What images are parted by, with the parts by name. Images that have no class, sample and so on have a part."""
    for words, found in (
        ("model", parts.by_model),
        ("sample", parts.by_group),
        ("class", parts.by_class),
        ("edit type", parts.by_edit_type),
    ):
        none = "not asked of the model" if words == "model" else f"no {words}"
        yield words, [(none if part.name == NONE else part.name, part) for part in found]


def agreement_box(report: StudyReport) -> Html:
    """All measures on one scale, and what they mean."""
    found = report.agreement
    on = f"{count_of(found.raw.n_items, 'item')} with two votes or more, {found.raw.raters:.3g} votes each on average"
    if found.prevalence is not None:
        on += f"; {percent(found.prevalence)} of votes are “{found.frequent}”"
    return render("study/agreement.html", axis=AGREEMENT, found=found, on=on)


def timeline(report: StudyReport, times: Sequence[datetime]) -> Html | None:
    """How the votes came in; `times` in their order."""
    needed = report.items * report.study.rules.votes
    drawn = votes_over_time(times, needed)
    if drawn is None or report.first is None or report.last is None:
        return None
    points, height = drawn
    label = f"{len(times)} votes from {times[0]:%d %b %H:%M} to {times[-1]:%d %b %H:%M}"
    return render("study/timeline.html", report=report, points=points, needed=needed, height=height, label=label)


def questions_in_detail(report: StudyReport, data: StudyData) -> Html:
    """Every question, folded; the only one of a study unfolded."""
    return render(
        "study/questions_in_detail.html",
        report=report,
        items={item.id: item for item in data.items},
        agreement_axis=AGREEMENT,
        questions=[_question(result, alone=len(report.questions) == 1) for result in report.questions],
    )


def _question(result: QuestionResult, alone: bool) -> tuple[QuestionResult, dict[str, int], NamedSlices, Axis]:
    """A question with its votes, and the parts of its images on one axis unless it is alone."""
    parts = [] if alone else [named for _, found in _named(result.slices) for named in found]
    return result, _votes(result), parts, share_axis(part for _, part in parts)
