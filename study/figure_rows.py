"""All figures of a report as rows, with intervals and counts: the results as one table."""

from __future__ import annotations

from collections.abc import Iterator

from core.csv_tables import Row, cells, columns_of
from core.figures import Mean, Proportion
from core.study_report import Agreement, QuestionResult, RulesChange, Slice, Slices, StudyReport

FIGURE_COLUMNS = columns_of(
    "figure question votes_used part name value:number low:number high:number count:whole n:whole unit "
    "asked:whole discarded:whole too_few:whole waiting:whole worst:number best:number words"
)
"""Columns of the table. `question` is empty for an image as a whole. `votes_used` is after or before exclusions, with
adjudications, or by the rules at the start. `part` and `name` are all, or the images of one class, edit type, sample or
verdict of the model under test, or one answer."""


def figure_rows(report: StudyReport) -> list[Row]:
    """Return all figures of a report, those of images as a whole first."""
    rows = [
        _slice("valid", "", "after exclusions", "all", report.images),
        _slice("valid", "", "before exclusions", "all", report.images_before),
    ]
    if report.images_adjudicated is not None:
        rows.append(_slice("valid", "", "with adjudications", "all", report.images_adjudicated))
    if report.as_announced is not None:
        rows.append(_slice("valid", "", "by the first rules", "all", report.as_announced))
    rows += _parts("", report.image_slices)
    rows += _agreement("", "after exclusions", report.agreement)
    rows.append(_proportion("control items right", "", "all votes", "all", "", report.controls, "answers"))
    for question in report.questions:
        rows += _question(question)
    rows += [_change(change) for change in report.changes]
    rows += [
        _count(name, number)
        for name, number in (
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
        yield _slice("valid", name, "after exclusions", "all", result.after)
        yield _slice("valid", name, "before exclusions", "all", result.before)
        if result.adjudicated is not None:
            yield _slice("valid", name, "with adjudications", "all", result.adjudicated)
        yield _proportion("valid votes", name, "after exclusions", "all", "", result.votes, "votes")
        yield _proportion("valid by majority", name, "after exclusions", "all", "", result.second.majority, "images")
        model = result.second.dawid_skene
        yield _proportion("valid by Dawid and Skene", name, "after exclusions", "all", "", model, "images")
        yield from _parts(name, result.slices)
    if result.question.kind == "text":
        return
    for answer in result.answers:
        yield _proportion("consensus", name, "after exclusions", "answer", answer.answer, answer.share, "images")
        yield _count("votes", answer.votes, name, "answer", answer.answer)
    if result.mean is not None:
        yield _mean(name, result.mean)
    yield from _agreement(name, "after exclusions", result.agreement)
    yield from _agreement(name, "before exclusions", result.agreement_before)


def _change(change: RulesChange) -> Row:
    return {
        "figure": "change of rules",
        "question": "",
        "part": "all",
        "name": f"version {change.version}",
        "count": change.votes_in,
        "unit": "votes in by then",
        "words": change.words,
    }


def _parts(question: str, slices: Slices) -> Iterator[Row]:
    for part, part_slices in (
        ("class", slices.by_class),
        ("edit type", slices.by_edit_type),
        ("sample", slices.by_group),
        ("model under test", slices.by_model),
    ):
        for each in part_slices:
            yield _slice("valid", question, "after exclusions", part, each)


def _slice(figure: str, question: str, used: str, part: str, value: Slice) -> Row:
    return {
        **_proportion(figure, question, used, part, value.name, value.rate, "images"),
        "asked": value.items,
        "discarded": value.discarded,
        "too_few": value.short,
        "waiting": value.waiting,
        "worst": value.bounds.worst,
        "best": value.bounds.best,
    }


def _proportion(figure: str, question: str, used: str, part: str, name: str, value: Proportion, unit: str) -> Row:
    return {
        "figure": figure,
        "question": question,
        "votes_used": used,
        "part": part,
        "name": name,
        "unit": unit,
        **cells(value, "value low high count n words"),
    }


def _mean(question: str, value: Mean) -> Row:
    return {
        "figure": "mean rating",
        "question": question,
        "votes_used": "after exclusions",
        "part": "all",
        "unit": "images",
        **cells(value, "value low high n words"),
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
            yield {
                "figure": figure,
                "question": question,
                "votes_used": used,
                "part": "all",
                "n": measure.n_items,
                "unit": "images",
                **cells(measure, "value words"),
            }
    if value.prevalence is not None:
        yield {
            "figure": "most frequent answer",
            "question": question,
            "votes_used": used,
            "part": "answer",
            "name": value.frequent,
            "value": value.prevalence,
            "unit": "votes",
        }


def _count(figure: str, number: int, question: str = "", part: str = "all", name: str = "") -> Row:
    row: Row = {"figure": figure, "question": question, "part": part, "name": name, "count": number}
    return row
