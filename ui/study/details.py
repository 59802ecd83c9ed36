"""What is known of one question, behind its row: answers, agreement, before exclusions, a second opinion. Pure."""

from __future__ import annotations

from study.intervals import percent
from study.report_types import QuestionResult, Report, Slice
from ui.study.figures import slices_of_question
from ui.study.plots import agreement_scale, answer_bar, histogram
from ui.study.words import count, ends, same_share, share, text_of_question
from ui.views.markup import Child, Html, el

REMARKS = 100
"""So many answers in free text are shown; the exports have all of them."""


def questions_in_detail(report: Report) -> Html:
    """Every question, folded; the only one of a study unfolded."""
    alone = len(report.questions) == 1
    return el(
        "section",
        el("h2", "Each question"),
        [_question(result, report, alone) for result in report.questions],
        class_="card box",
        id="part-details",
    )


def _question(result: QuestionResult, report: Report, alone: bool) -> Html:
    question = result.question
    head = el("summary", el("b", question.id), " ", el("span", text_of_question(question), class_="mut"))
    if question.kind == "text":
        body: Child = _remarks(result, report)
    else:
        slices = None if alone else slices_of_question(result)
        body = [
            el("div", el("h3", "Answers"), _answers(result), el("h3", "In words"), _words(result, report)),
            el("div", el("h3", "Agreement"), _agreement(result), el("h3", "By part") if slices else None, slices),
        ]
    return el(
        "details",
        head,
        el("div", body, class_="halves"),
        id=f"question-{question.id}",
        class_="folded r-question",
        open=alone,
    )


def _answers(result: QuestionResult) -> list[Child]:
    """How often each answer was given and agreed on."""
    counts = {answer.answer: answer.votes for answer in result.answers}
    scale = result.question.kind == "scale"
    rows = [
        el(
            "tr",
            el("th", _meaning(result, answer.answer), scope="row"),
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


def _words(result: QuestionResult, report: Report) -> Html:
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
            ties = f", {count(result.second.ties, 'tie')} left out" if result.second.ties else ""
            lines.append(f"By the most frequent answer: {result.second.majority.words}{ties}.")
        lines.append(result.second.words)
    elif result.mean is not None:
        lines.append(f"Mean rating: {result.mean.words}.")
    lost = result.after.discarded + result.after.short
    if lost and not result.question.valid:
        lines.append(f"{count(lost, 'image')} without a consensus.")
    if result.after.waiting:
        lines.append(f"{count(result.after.waiting, 'image')} still waiting for votes.")
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
        said = ", ".join(f"{name} {measure.words}" for measure, name in measures if measure.value is not None)
        body.append(el("p", f"Before exclusions: {said}.", class_="mut small"))
    return body


def _remarks(result: QuestionResult, report: Report) -> Html:
    """What was written."""
    if not result.remarks:
        return el("p", "Nobody has written anything yet.", class_="mut")
    lines = [
        el("li", remark.text, " ", el("small", remark.worker, class_="mut")) for remark in result.remarks[:REMARKS]
    ]
    more = len(result.remarks) - REMARKS
    return el("div", el("ul", lines, class_="words"), el("p", f"and {more} more", class_="mut") if more > 0 else None)
