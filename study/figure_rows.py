"""All figures of a report as rows, with intervals and counts: the results as one table."""

from __future__ import annotations

from collections.abc import Iterator

from core.csv_tables import Row, cells, columns_of
from core.study_report import Agreement, QuestionResult, Slice, Slices, StudyReport

FIGURE_COLUMNS = columns_of(
    "figure question votes_used part name value:number low:number high:number count:whole n:whole unit "
    "asked:whole discarded:whole too_few:whole waiting:whole worst:number best:number words"
)
"""Columns of the table. `question` is empty for results on whole images. `votes_used` says which votes count: "after
exclusions", "before exclusions", "with adjudications", "by the first rules" or "all votes"; it is empty for counts.
`part` and `name` say what the row covers: all images, one answer, or the images of one class, edit type, sample or
verdict of the model under test."""
_SHARE = "value low high count n words"


def figure_rows(report: StudyReport) -> list[Row]:
    """Return all figures of a report as rows. Figures about whole images, over all questions, come first."""
    rows = _whole("", report.images, report.images_before, report.images_adjudicated, report.as_announced)
    rows += _parts("", report.image_slices)
    rows += _agreement("", "after exclusions", report.agreement)
    rows.append(_row("control items right", "", "all votes", unit="answers") | cells(report.controls, _SHARE))
    for question in report.questions:
        rows += _question(question)
    rows += [
        _row("change of rules", name=f"version {change.version}", unit="votes in by then")
        | {"count": change.votes_in, "words": change.words}
        for change in report.changes
    ]
    rows += [
        _row(figure) | {"count": number}
        for figure, number in (
            ("images", report.items),
            ("images with all votes", report.complete),
            ("votes cast", report.votes_cast),
            ("votes of excluded workers", report.votes_excluded),
            ("votes beyond the number of an image", report.votes_surplus),
            ("votes counted", report.votes_counted),
            ("workers", sum(worker.answered for worker in report.workers)),
            ("workers who have answered nothing", sum(not worker.answered for worker in report.workers)),
            ("workers who share a browser", len({name for names in report.conditions.same_browser for name in names})),
            ("workers excluded", len(report.exclusions)),
            ("workers not judged", sum(not worker.judged for worker in report.workers if worker.counted)),
            ("votes of workers not judged", sum(worker.counted for worker in report.workers if not worker.judged)),
        )
    ]
    return rows


def _question(result: QuestionResult) -> Iterator[Row]:
    name = result.question.id
    if result.question.valid:
        yield from _whole(name, result.after, result.before, result.adjudicated)
        for figure, share, unit in (
            ("valid votes", result.votes, "votes"),
            ("valid by majority", result.second.majority, "images"),
            ("valid by Dawid and Skene", result.second.dawid_skene, "images"),
        ):
            yield _row(figure, name, "after exclusions", unit=unit) | cells(share, _SHARE)
        yield from _parts(name, result.slices)
    if result.question.kind == "text":
        return
    for answer in result.answers:
        consensus = _row("consensus", name, "after exclusions", "answer", answer.answer, "images")
        yield consensus | cells(answer.share, _SHARE)
        yield _row("votes", name, "", "answer", answer.answer) | {"count": answer.votes}
    if result.mean is not None:
        mean = _row("mean rating", name, "after exclusions", unit="images")
        yield mean | cells(result.mean, "value low high n words")
    yield from _agreement(name, "after exclusions", result.agreement)
    yield from _agreement(name, "before exclusions", result.agreement_before)


def _parts(question: str, slices: Slices) -> Iterator[Row]:
    for part, part_slices in (
        ("class", slices.by_class),
        ("edit type", slices.by_edit_type),
        ("sample", slices.by_group),
        ("model under test", slices.by_model),
    ):
        for each in part_slices:
            yield _slice(question, "after exclusions", part, each)


def _whole(question: str, *shares: Slice | None) -> list[Row]:
    """Return rows of up to four shares: after exclusions, before exclusions, with adjudications, by the first rules."""
    uses = ("after exclusions", "before exclusions", "with adjudications", "by the first rules")
    return [_slice(question, used, "all", share) for used, share in zip(uses, shares, strict=False) if share]


def _slice(question: str, used: str, part: str, value: Slice) -> Row:
    return {
        **_row("valid", question, used, part, value.name, "images"),
        **cells(value.rate, _SHARE),
        "asked": value.items,
        "discarded": value.discarded,
        "too_few": value.short,
        "waiting": value.waiting,
        **cells(value.bounds, "worst best"),
    }


def _agreement(question: str, used: str, value: Agreement) -> Iterator[Row]:
    measures = {
        "raw agreement": value.raw,
        "Krippendorff's alpha": value.alpha,
        "Krippendorff's alpha, ordinal": value.ordinal,
        "Gwet's AC1": value.ac1,
        "Fleiss' kappa": value.fleiss,
    }
    for figure, measure in measures.items():
        if measure is not None:
            found = {"n": measure.n_items, **cells(measure, "value words")}
            yield _row(figure, question, used, unit="images") | found
    if value.prevalence is not None:
        frequent = _row("most frequent answer", question, used, "answer", value.frequent, "votes")
        yield frequent | {"value": value.prevalence}


def _row(figure: str, question: str = "", used: str = "", part: str = "all", name: str = "", unit: str = "") -> Row:
    return {"figure": figure, "question": question, "votes_used": used, "part": part, "name": name, "unit": unit}
