"""The plots and tables of a study as markup: questions with their intervals, parts of the images, agreement.

Pure functions from a `Report` to markup. Every share comes with its interval, its n and what was left out; what is
undefined stands there in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from study.intervals import percent
from study.report_types import QuestionResult, Report, Slice, Slices
from ui.study.plots import (
    LOW,
    RATING,
    Axis,
    agreement_scale,
    answer_bar,
    interval,
    mean_interval,
    ruler,
    share_axis,
    votes_over_time,
)
from ui.study.words import count, same_share, text_of_question
from ui.views.markup import Child, Html, el

FOLDED = 12
"""So many rows of a table of classes are shown at once; the others unfold."""


def by_question(report: Report) -> Html:
    """Every question in one row, with its interval plot."""
    telling = [result for result in report.questions if result.question.valid]
    ratings = [result for result in report.questions if result.question.kind == "scale" and not result.question.valid]
    others = [result for result in report.questions if result not in telling and result not in ratings]
    body: list[Child] = []
    if telling:
        axis = share_axis([part for result in telling for part in (result.after, result.before)])
        rows = [_question_row(result, axis) for result in telling]
        if len(telling) > 1:
            rows.append(_row("the image as a whole", report.images, axis, report.images_before, look="whole"))
        body.append(_table("question", axis, rows))
    if ratings:
        body.append(
            el(
                "table",
                _head("question", "mean", RATING, "n", "votes"),
                el("tbody", [_rating_row(result) for result in ratings]),
                class_="plots",
            )
        )
    if others:
        body.append(el("table", el("tbody", [_other_row(result) for result in others]), class_="plots plain"))
    legend = _legend(report, telling) if telling else None
    return el("section", el("h2", "By question"), body, legend, class_="card box", id="part-questions")


def _legend(report: Report, telling: Sequence[QuestionResult]) -> Html:
    said = ["Dot and line: the share of valid images with its 95 % Wilson interval, over images with a consensus."]
    if any(result.after.bounds.missing for result in telling):
        said.append("Pale: if all discarded images were invalid, or valid.")
    if any(not same_share(result.after, result.before) for result in telling):
        said.append("Ring: before exclusions.")
    if any(result.after.rate.value is not None and result.after.rate.value < LOW for result in telling):
        said.append(f"Orange: below {100 * LOW:.0f} %.")
    return el("p", " ".join(said), class_="mut small")


def _question_row(result: QuestionResult, axis: Axis) -> Html:
    return _row(result.question.id, result.after, axis, result.before, title=text_of_question(result.question))


def _rating_row(result: QuestionResult) -> Html:
    mean = result.mean
    assert mean is not None
    votes = sum(answer.votes for answer in result.answers)
    value: list[Child] = [f"{mean.value:.2f}" if mean.value is not None else "–"]
    if mean.low is not None and mean.high is not None:
        value.append(el("small", f"{mean.low:.2f} to {mean.high:.2f}", class_="mut"))
    return el(
        "tr",
        el("th", result.question.id, scope="row", title=text_of_question(result.question)),
        el("td", value, class_="n"),
        el("td", mean_interval(mean), class_="plot-cell"),
        el("td", f"{mean.n:,}", class_="n"),
        el("td", f"{votes:,}", class_="n"),
    )


def _other_row(result: QuestionResult) -> Html:
    name = el("th", result.question.id, scope="row", title=text_of_question(result.question))
    if result.question.kind == "text":
        return el("tr", name, el("td", count(len(result.remarks), "answer"), " in free text"))
    counts = {answer.answer: answer.votes for answer in result.answers}
    said = ", ".join(f"{votes} {answer}" for answer, votes in counts.items() if votes) or "no vote yet"
    return el("tr", name, el("td", answer_bar(counts), el("span", said, class_="mut small")))


def slices(report: Report) -> Html | None:
    """The share of valid images by class, edit type, sample, and whether the model under test is right."""
    parts = report.image_slices
    boxes = [
        slice_box(title, words, found)
        for title, words, found in (
            ("Model under test", "model", parts.by_model),
            ("By sample", "sample", parts.by_group),
            ("By class", "class", parts.by_class),
            ("By edit type", "edit type", parts.by_edit_type),
        )
        if found
    ]
    return el("div", boxes, class_="boxes", id="part-slices") if boxes else None


def slice_box(title: str, words: str, parts: Sequence[Slice]) -> Html:
    """A table of parts of the images with their intervals; those beyond `FOLDED` unfold."""
    axis = share_axis(parts)
    rows = [_row(part.name, part, axis) for part in parts]
    body = [_table(words, axis, rows[:FOLDED])]
    if len(rows) > FOLDED:
        rest = _table(words, axis, rows[FOLDED:])
        body.append(
            el("details", el("summary", f"{len(rows) - FOLDED} more"), rest, id=f"more-{words.replace(' ', '-')}")
        )
    return el("section", el("h2", title), body, class_="card box")


def slices_of_question(result: QuestionResult) -> Html | None:
    """The same of one question, for its details."""
    parts: Slices = result.slices
    every = [*parts.by_model, *parts.by_group, *parts.by_class, *parts.by_edit_type]
    if not every:
        return None
    axis = share_axis(every)
    return _table("part", axis, [_row(part.name, part, axis) for part in every])


def _table(words: str, axis: Axis, rows: Sequence[Child]) -> Html:
    return el("table", _head(words, "valid", axis, "n", "dropped", "waiting"), el("tbody", rows), class_="plots")


def _head(words: str, value: str, axis: Axis, *counts: str) -> Html:
    cells = [
        el("th", words, scope="col"),
        el("th", value, scope="col", class_="n"),
        el("th", ruler(axis), scope="col", class_="plot-cell", aria_label="with interval"),
        [el("th", name, scope="col", class_="n") for name in counts],
    ]
    return el("thead", el("tr", cells))


def _row(
    name: str, part: Slice, axis: Axis, before: Slice | None = None, title: str = "", look: str | None = None
) -> Html:
    """One row of shares: name, share, plot, n, and what was dropped or still waits."""
    value: list[Child] = [percent(part.rate.value) if part.rate.value is not None else "–"]
    if part.rate.low is not None and part.rate.high is not None:
        value.append(el("small", f"{100 * part.rate.low:.1f} to {100 * part.rate.high:.1f}", class_="mut"))
    return el(
        "tr",
        el("th", name, scope="row", title=title or None),
        el("td", value, class_="n"),
        el("td", interval(part, axis, before), class_="plot-cell"),
        el("td", f"{part.rate.n:,}", class_="n"),
        el("td", f"{part.discarded + part.short:,}", class_="n"),
        el("td", f"{part.waiting:,}" if part.waiting else "–", class_="n mut"),
        class_=look,
    )


def agreement_box(report: Report) -> Html:
    """All measures on one scale, and what they mean."""
    found = report.agreement
    body: list[Child] = []
    if found.raw.value is not None:
        body.append(agreement_scale(found))
        on = f"{count(found.raw.n_items, 'item')} with two votes or more, {found.raw.raters:.3g} votes each on average"
        if found.prevalence is not None:
            on += f"; {percent(found.prevalence)} of votes are “{found.frequent}”"
        body.append(el("p", on, class_="mut small"))
    body.append(el("p", found.words))
    return el("section", el("h2", "Agreement"), body, _meanings(), class_="card box", id="part-agreement")


_MEANINGS = (
    ("raw", "share of pairs of votes on the same image that are equal; chance is not allowed for"),
    (
        "alpha",
        "Krippendorff's alpha: 1 is full agreement, 0 what chance would give. When nearly all votes are the same, "
        "chance alone agrees nearly always, and alpha is low by construction",
    ),
    ("AC1", "Gwet's AC1: beyond chance too, but not pulled down by one frequent answer"),
    ("kappa", "Fleiss' kappa: for comparison with older studies; it has alpha's weakness"),
    ("ordinal alpha", "for scales: 4 against 5 is a smaller disagreement than 1 against 5"),
)


def _meanings() -> Html:
    """What each measure is, folded."""
    said = [[el("dt", name), el("dd", words)] for name, words in _MEANINGS]
    return el("details", el("summary", "What the measures are"), el("dl", said), id="meanings", class_="folded")


def timeline(report: Report, times: Sequence[datetime]) -> Html | None:
    """How the votes came in; `times` in their order."""
    needed = report.items * report.study.rules.votes
    drawn = votes_over_time(times, needed)
    if drawn is None or report.first is None or report.last is None:
        return None
    return el(
        "section",
        el("h2", "Votes over time"),
        drawn,
        el(
            "p",
            el("span", f"{report.first:%d %b %Y, %H:%M}"),
            el("span", f"dashed: the {needed:,} that are needed"),
            el("span", f"{report.last:%d %b %Y, %H:%M} UTC"),
            class_="mut small r-ends",
        ),
        class_="card box",
        id="part-timeline",
    )
