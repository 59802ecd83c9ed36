"""Figures of a study. Every share has its interval, its n and what was left out; words say what is undefined. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.figures import percent
from core.studies import StudyData
from core.study_report import NONE, QuestionResult, Slice, Slices, StudyReport
from core.words import count_of
from ui.explore.parts import box, muted, named_row, small
from ui.markup import Child, Html, el
from ui.study.disagreements import remarks
from ui.study.plots import (
    LOW,
    RATING,
    Axis,
    agreement_scale,
    answer_bar,
    histogram,
    interval,
    mean_interval,
    ruler,
    share_axis,
    votes_over_time,
)
from ui.study.words import ends, same_share, share, text_of_question, when

FOLDED = 12
"""So many rows of a table of classes are shown at once; the others unfold."""
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


def by_question(report: StudyReport) -> Html:
    """Every question in one row, with its interval plot."""
    telling = [result for result in report.questions if result.question.valid]
    ratings = [result for result in report.questions if result.question.kind == "scale" and not result.question.valid]
    others = [result for result in report.questions if result not in telling and result not in ratings]
    body: list[Child] = []
    if telling:
        axis = share_axis([part for result in telling for part in (result.after, result.before)])
        rows = [
            _row(result.question.id, result.after, axis, result.before, title=text_of_question(result.question))
            for result in telling
        ]
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
    legend = _legend(telling) if telling else None
    return box("By question", body, legend, id="part-questions")


def _legend(telling: Sequence[QuestionResult]) -> Html:
    sentences = ["Dot and line: the share of valid images with its 95 % Wilson interval, over images with a consensus."]
    sentences.append("It counts which images were drawn; an image that fools most people is found valid all the same.")
    if any(result.after.bounds.missing for result in telling):
        sentences.append("Pale: if all discarded images were invalid, or valid.")
    if any(not same_share(result.after, result.before) for result in telling):
        sentences.append("Ring: before exclusions.")
    if any(result.after.rate.value is not None and result.after.rate.value < LOW for result in telling):
        sentences.append(f"Orange: below {100 * LOW:.0f} %.")
    return small(" ".join(sentences))


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
        return el("tr", name, el("td", count_of(len(result.remarks), "answer"), " in free text"))
    counts = {answer.answer: answer.votes for answer in result.answers}
    votes_text = ", ".join(f"{votes} {answer}" for answer, votes in counts.items() if votes) or "no vote counts yet"
    return el("tr", name, el("td", answer_bar(counts), el("span", votes_text, class_="mut small")))


def slices(report: StudyReport) -> Html | None:
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
    rows = [_row(_named(part, words), part, axis) for part in parts]
    body = [_table(words, axis, rows[:FOLDED])]
    if len(rows) > FOLDED:
        rest = _table(words, axis, rows[FOLDED:])
        body.append(
            el("details", el("summary", f"{len(rows) - FOLDED} more"), rest, id=f"more-{words.replace(' ', '-')}")
        )
    return box(title, body)


def slices_of_question(result: QuestionResult) -> Html | None:
    """The same of one question, for its details."""
    parts: Slices = result.slices
    every = [
        (part, words)
        for words, found in (
            ("model", parts.by_model),
            ("sample", parts.by_group),
            ("class", parts.by_class),
            ("edit type", parts.by_edit_type),
        )
        for part in found
    ]
    if not every:
        return None
    axis = share_axis([part for part, _ in every])
    return _table("part", axis, [_row(_named(part, words), part, axis) for part, words in every])


def _named(part: Slice, words: str) -> str:
    """The name of a part; images that have no class, sample and so on are said to have none."""
    if part.name != NONE:
        return part.name
    return "not asked of the model" if words == "model" else f"no {words}"


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


def agreement_box(report: StudyReport) -> Html:
    """All measures on one scale, and what they mean."""
    found = report.agreement
    body: list[Child] = []
    if found.raw.value is not None:
        body.append(agreement_scale(found))
        on = (
            f"{count_of(found.raw.n_items, 'item')} with two votes or more, {found.raw.raters:.3g} votes each "
            "on average"
        )
        if found.prevalence is not None:
            on += f"; {percent(found.prevalence)} of votes are “{found.frequent}”"
        body.append(small(on))
    body.append(el("p", found.words))
    return box("Agreement", body, _meanings(), id="part-agreement")


def _meanings() -> Html:
    """What each measure is, folded."""
    entries = [[el("dt", name), el("dd", words)] for name, words in _MEANINGS]
    return el("details", el("summary", "What the measures are"), el("dl", entries), id="meanings", class_="folded")


def timeline(report: StudyReport, times: Sequence[datetime]) -> Html | None:
    """How the votes came in; `times` in their order."""
    needed = report.items * report.study.rules.votes
    drawn = votes_over_time(times, needed)
    if drawn is None or report.first is None or report.last is None:
        return None
    return box(
        "Votes over time",
        drawn,
        el(
            "p",
            el("span", when(report.first)),
            el("span", f"dashed: the {needed:,} that are needed"),
            el("span", when(report.last)),
            class_="mut small r-ends",
        ),
        id="part-timeline",
    )


def questions_in_detail(report: StudyReport, data: StudyData) -> Html:
    """Every question, folded; the only one of a study unfolded."""
    alone = len(report.questions) == 1
    questions = [_question(result, report, data, alone) for result in report.questions]
    return box("Each question", questions, id="part-details")


def _question(result: QuestionResult, report: StudyReport, data: StudyData, alone: bool) -> Html:
    question = result.question
    head = el("summary", el("b", question.id), " ", el("span", text_of_question(question), class_="mut"))
    if question.kind == "text":
        body: Child = _remarks(result, report, data)
    else:
        slices = None if alone else slices_of_question(result)
        body = [
            el("div", el("h3", "Answers"), _answers(result), el("h3", "In words"), _words(result, report)),
            el("div", el("h3", "Agreement"), _agreement(result), el("h3", "By part") if slices else None, slices),
        ]
    return el(
        "details",
        head,
        el("div", body, class_="halves" if question.kind != "text" else None),
        id=f"question-{question.id}",
        class_="folded r-question",
        open=alone,
    )


def _answers(result: QuestionResult) -> list[Child]:
    """How often each answer was given and agreed on."""
    counts = {answer.answer: answer.votes for answer in result.answers}
    scale = result.question.kind == "scale"
    rows = [
        named_row(
            _meaning(result, answer.answer),
            el("td", f"{answer.votes:,}", class_="n"),
            el("td", f"{answer.share.count:,}", class_="n"),
            el("td", percent(answer.share.value) if answer.share.value is not None else "–", class_="n"),
        )
        for answer in result.answers
    ]
    head = el(
        "tr",
        el("th", "answer", scope="col"),
        [
            el("th", words, scope="col", class_="n", title=title)
            for words, title in (
                ("votes", "votes that count"),
                ("images", "images with a consensus on it"),
                ("share", "of all images with a consensus"),
            )
        ],
    )
    return [
        histogram(counts) if scale else answer_bar(counts, result.question.valid),
        el("table", el("thead", head), el("tbody", rows)),
    ]


def _meaning(result: QuestionResult, answer: str) -> list[Child]:
    """An answer and what it stands for."""
    question = result.question
    means = {"1": question.low, "5": question.high}.get(answer, "") if question.kind == "scale" else ""
    if answer in question.valid:
        means = "valid"
    return [answer, el("small", f" {means}", class_="mut") if means else None]


def _words(result: QuestionResult, report: StudyReport) -> Html:
    """The figures that have no plot."""
    lines: list[Child] = []
    if result.question.valid:
        lines.append(_rate("Result", result.after))
        if not same_share(result.after, result.before):
            lines.append(_rate("Before exclusions", result.before))
        elif report.exclusions:
            lines.append("Before exclusions: the same.")
        if result.adjudicated is not None:
            lines.append(f"{_rate('With your adjudications', result.adjudicated)} Not part of the result.")
        lines.append(f"By single votes: {result.votes.words}.")
        if result.second.majority.value is not None:
            ties = f", {count_of(result.second.ties, 'tie')} left out" if result.second.ties else ""
            lines.append(f"By the most frequent answer: {result.second.majority.words}{ties}.")
        lines.append(result.second.words)
    elif result.mean is not None:
        lines.append(f"Mean rating: {result.mean.words}.")
    lost = result.after.discarded + result.after.short
    if lost and not result.question.valid:
        lines.append(f"{count_of(lost, 'image')} without a consensus.")
    if result.after.waiting:
        lines.append(f"{count_of(result.after.waiting, 'image')} still waiting for votes.")
    return el("ul", [el("li", line) for line in lines], class_="words")


def _rate(name: str, part: Slice) -> str:
    """One sentence on a share: the figure, its interval, what was dropped and what that could mean."""
    if part.rate.value is None:
        return f"{name}: {part.rate.words}."
    dropped = f"; {part.discarded + part.short} dropped: {part.bounds.words}" if part.bounds.missing else ""
    return f"{name}: {share(part)}, {ends(part)}{dropped}."


def _agreement(result: QuestionResult) -> list[Child]:
    found, before = result.agreement, result.agreement_before
    body: list[Child] = [agreement_scale(found)] if found.raw.value is not None else []
    body.append(el("p", found.words))
    if before.ac1.value != found.ac1.value and before.raw.value is not None:
        measures = ((before.raw, "raw"), (before.alpha, "alpha"), (before.ac1, "AC1"), (before.fleiss, "kappa"))
        values = ", ".join(f"{name} {measure.words}" for measure, name in measures if measure.value is not None)
        body.append(small(f"Before exclusions: {values}."))
    return body


def _remarks(result: QuestionResult, report: StudyReport, data: StudyData) -> Html:
    """What was written."""
    if not result.remarks:
        return muted("Nobody has written anything yet.")
    return remarks(report, result.remarks, data)
