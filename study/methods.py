"""The methods paragraph: protocol, every exclusion and the results, ready to paste into a paper."""

from __future__ import annotations

from pathlib import Path

from core.figures import chosen_percent, percent
from core.studies import Question
from core.study_report import StudyReport
from core.text_templates import TextTemplates
from core.words import count_of
from study.rule_changes import as_announced_words


def paragraph(report: StudyReport) -> str:
    """The whole as one paragraph of English sentences; a study that is not closed is called preliminary."""
    questions = report.study.rules.questions
    return _TEMPLATES.paragraph(
        "methods.txt",
        report=report,
        # Of votes that all came in a file, nothing is known of how they were collected.
        brought=bool(report.votes_imported) and report.votes_imported == report.votes_cast,
        asked=[question for question in questions if not question.follows],
        follow=[question for question in questions if question.follows],
        scales=any(question.kind == "scale" for question in questions),
        votes_of={worker.worker: worker.votes for worker in report.workers},
    )


def _described(question: Question) -> str:
    if question.kind == "scale":
        ends = f", from {question.low} to {question.high}" if question.low and question.high else ""
        answers = f"1 to 5{ends}"
    elif question.kind == "text":
        answers = "free text"
    else:
        answers = ", ".join(question.answers())
    only = f"; only of images that show “{question.only_with}”" if question.only_with else ""
    return f"“{question.text.replace('{label}', '[class]')}” ({answers}{only})"


_TEMPLATES = TextTemplates(
    Path(__file__).with_name("templates"),
    count_of=count_of,
    percent=percent,
    chosen_percent=chosen_percent,
    as_announced_words=as_announced_words,
    described=_described,
)
