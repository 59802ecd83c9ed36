"""The page of results: its parts in their order, figures in tiles, the export menu, the methods paragraph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from core.figures import percent
from core.studies import Study, StudyData
from core.study_report import NONE, Agreement, QuestionResult, Slice, Slices, StudyReport
from core.words import count_of
from ui.markup import Html, el, fingerprint
from ui.study.disagreements import disagreements_box
from ui.study.plots import AGREEMENT, LOW, RATING, Axis, is_low, share_axis, votes_over_time
from ui.study.words import ends, figure, same_share, share
from ui.study.workers import workers_box
from ui.templating import render

COLUMNS = (("questions", "agreement"), ("divided", "timeline"))
"""Parts shown in two columns if there is room."""
FOLDED = 12
"""Rows of a table of classes that are shown at once; the others unfold."""
NamedSlices = list[tuple[str, Slice]]


def parts(report: StudyReport, data: StudyData, paragraph: str) -> Mapping[str, Html | None]:
    """Return the parts of the results page by name, in order; None where there is nothing to show."""
    excluded = {exclusion.worker for exclusion in data.exclusions}
    times = [vote.submitted for vote in data.votes if vote.kind == "item" and vote.worker not in excluded]
    items = {item.id: item for item in data.items}
    tiles = [_validity(report), _discarded(report), _agreement(report.agreement), _excluded(report)]
    return {
        "progress": progress(report),
        "notes": render("study/notes.html", notes=report.notes) if report.notes else None,
        "tiles": render("study/tiles.html", tiles=tiles),
        "questions": by_question(report),
        "divided": disagreements_box(report, data),
        "slices": slices(report),
        "details": questions_in_detail(report, data),
        "agreement": agreement_box(report),
        "timeline": timeline(report, sorted(times)),
        "workers": workers_box(report),
        "comments": render("study/comments.html", report=report, items=items) if report.comments else None,
        "methods": render("study/methods.html", paragraph=paragraph),
    }


def layout(found: Mapping[str, Html | None]) -> list[Html]:
    """Return the parts of the page in their slots, which the page fills again when something changes."""
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
    """Return the slot of a part, with the fingerprint of its content."""
    return el("div", part, class_="slot", data_part=name, data_stamp=fingerprint(part or Html("")))


def sent(found: Mapping[str, Html | None]) -> Mapping[str, Mapping[str, str]]:
    """Return the fingerprint and markup of each part, for a page that is left open."""
    return {name: {"stamp": fingerprint(part or Html("")), "html": part or ""} for name, part in found.items()}


def result_buttons(study: Study) -> Html:
    """Return the buttons in the head of the results page, with a menu of downloads."""
    return render("study/result_buttons.html", study=study, away=False)


def progress(report: StudyReport) -> Html:
    """Return the part that shows how many votes are in."""
    needed = report.items * report.study.rules.votes
    return render(
        "study/progress.html",
        report=report,
        needed=needed,
        share=report.votes_counted / needed if needed else 0.0,
    )


Tile = tuple[str, str, str, list[str]]
"""A figure that a lead looks at first: its name, its title, the figure, and lines about it."""


def _validity(report: StudyReport) -> Tile:
    rate, before, apart = report.images.rate, report.images_before, report.images_adjudicated
    if not any(result.question.valid for result in report.questions):
        return "valid", "Valid images", "not asked", ["no question asks whether an image is valid"]
    if rate.value is None:
        return "valid", "Valid images", "no figure yet", [rate.words.removeprefix("undefined: ")]
    lines = [ends(report.images)]
    if same_share(report.images, before):
        lines.append("the same before exclusions" if report.exclusions else "")
    else:
        lines.append(f"before exclusions {share(before)}, n = {before.rate.n}")
    if apart is not None:
        lines.append(f"with your adjudications {share(apart)}, n = {apart.rate.n}, not part of the result")
    return "valid", "Valid images", percent(rate.value), lines


def _discarded(report: StudyReport) -> Tile:
    part = report.images
    lines = []
    if part.bounds.missing and part.bounds.worst is not None and part.bounds.best is not None:
        worst, best = percent(part.bounds.worst), percent(part.bounds.best)
        lines.append(f"worst {worst}, best {best} if all of them were counted")
    elif part.rate.n:
        lines.append("every image with all its votes has a consensus")
    if part.short:
        lines.append(f"{count_of(part.short, 'image')} of them with too few votes")
    if part.waiting:
        lines.append(f"{count_of(part.waiting, 'image')} still waiting for votes")
    return "discarded", "No consensus", f"{part.discarded + part.short:,}", lines


def _agreement(found: Agreement) -> Tile:
    if found.ac1.value is None:
        return "agreement", "Agreement", "no figure yet", [found.words]
    measures = f"raw {found.raw.words} · alpha {figure(found.alpha.words)}"
    if found.ordinal is not None:
        measures += f" · ordinal alpha {figure(found.ordinal.words)}"
    lines = [measures]
    if found.pulled_down and found.prevalence is not None:
        lines.append(f"{percent(found.prevalence)} of votes are “{found.frequent}”: alpha is low by construction")
    return "agreement", "Agreement", f"AC1 {found.ac1.words}", lines


def _excluded(report: StudyReport) -> Tile:
    total = sum(1 for worker in report.workers if worker.votes or worker.exclusion or worker.controls.n)
    out = len(report.exclusions)
    rule = sum(exclusion.by == "rule" for exclusion in report.exclusions)
    lines = []
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
    return "excluded", "Excluded by controls" if rule == out else "Excluded", f"{out} of {total}", lines


def by_question(report: StudyReport) -> Html:
    """Return every question in one row, with its interval plot."""
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
    """Count the votes for each answer."""
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
    """Return the share of valid images by class, edit type, sample and outcome of the model under test, or None."""
    titles = ("Model under test", "By sample", "By class", "By edit type")
    named = zip(titles, _named(report.image_slices), strict=True)
    boxes = [(title, words, found, share_axis(part for _, part in found)) for title, (words, found) in named if found]
    return render("study/slices.html", boxes=boxes, folded=FOLDED) if boxes else None


def _named(parts: Slices) -> Iterable[tuple[str, NamedSlices]]:
    """Yield each grouping of images with its parts by name. Images without a class, sample and so on have a part."""
    for words, found in (
        ("model", parts.by_model),
        ("sample", parts.by_group),
        ("class", parts.by_class),
        ("edit type", parts.by_edit_type),
    ):
        none = "not asked of the model" if words == "model" else f"no {words}"
        yield words, [(none if part.name == NONE else part.name, part) for part in found]


def agreement_box(report: StudyReport) -> Html:
    """Return all measures of agreement on one scale, and what they mean."""
    found = report.agreement
    on = f"{count_of(found.raw.n_items, 'item')} with two votes or more, {found.raw.raters:.3g} votes each on average"
    if found.prevalence is not None:
        on += f"; {percent(found.prevalence)} of votes are “{found.frequent}”"
    return render("study/agreement.html", axis=AGREEMENT, found=found, on=on)


def timeline(report: StudyReport, times: Sequence[datetime]) -> Html | None:
    """Return the curve of votes over time, or None without votes. `times` are sorted."""
    needed = report.items * report.study.rules.votes
    drawn = votes_over_time(times, needed)
    if drawn is None or report.first is None or report.last is None:
        return None
    points, height = drawn
    label = f"{len(times)} votes from {times[0]:%d %b %H:%M} to {times[-1]:%d %b %H:%M}"
    return render("study/timeline.html", report=report, points=points, needed=needed, height=height, label=label)


def questions_in_detail(report: StudyReport, data: StudyData) -> Html:
    """Return every question, folded; the only question of a study is unfolded."""
    return render(
        "study/questions_in_detail.html",
        report=report,
        items={item.id: item for item in data.items},
        agreement_axis=AGREEMENT,
        questions=[_question(result, is_only=len(report.questions) == 1) for result in report.questions],
    )


def _question(result: QuestionResult, is_only: bool) -> tuple[QuestionResult, dict[str, int], NamedSlices, Axis]:
    """Return a question, its votes, its groups of images unless it is the only question, and an axis for them."""
    parts = [] if is_only else [named for _, found in _named(result.slices) for named in found]
    return result, _votes(result), parts, share_axis(part for _, part in parts)
