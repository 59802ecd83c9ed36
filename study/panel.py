"""People who come from a panel, such as Prolific: how they are known, sent back and paid, and what they are asked of
themselves. What they say of themselves stands apart from their votes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from core.csv_tables import Row
from core.studies import WORK, ApprovalVerdict, ItemKind, StudyData

MOST_QUESTIONS = 10
LONGEST_QUESTION = 200
MOST_ANSWERS = 12
LONGEST_PARTICIPANT = 100
LONGEST_ADDRESS = 500
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_CODE = re.compile(r"[\w.-]{0,60}", re.ASCII)
_HOLE = "{participant}"


@dataclass(frozen=True)
class PersonQuestion:
    """Something about the person, which may always be left open."""

    text: str
    options: tuple[str, ...] = ()
    """() for a line of text."""


@dataclass(frozen=True)
class Panel:
    """How a study deals with the people of a panel. May change while it runs: it is no rule of the study."""

    parameter: str = ""
    """The parameter of the link that names the participant, such as PROLIFIC_PID; "" for nobody's panel."""
    code: str = ""
    """What a participant gives the panel at the end."""
    address: str = ""
    """Where a participant goes back to; {participant} stands for their id."""
    questions: tuple[PersonQuestion, ...] = ()


def check_panel(panel: Panel) -> tuple[str, str]:
    """What is wrong, as field and sentence; ("", "") for nothing."""
    if panel.parameter and not _PARAMETER.fullmatch(panel.parameter):
        return "parameter", "The name of a parameter has letters, digits, and - _ . only, such as PROLIFIC_PID."
    if not _CODE.fullmatch(panel.code):
        return "code", "A completion code has letters, digits, and - _ . only, at most 60."
    if panel.address:
        address = urlsplit(panel.address.replace(_HOLE, "x"))
        if address.scheme not in ("http", "https") or not address.netloc or len(panel.address) > LONGEST_ADDRESS:
            return "address", "The address to go back to begins with https://, and has at most 500 characters."
    if len(panel.questions) > MOST_QUESTIONS:
        return "questions", f"Ask at most {MOST_QUESTIONS} questions about the person."
    for question in panel.questions:
        if len(question.text) > LONGEST_QUESTION or len(question.options) > MOST_ANSWERS:
            words = f"A question has at most {LONGEST_QUESTION} characters and {MOST_ANSWERS} answers"
            return "questions", f"{words}: shorten “{question.text[:60]}”."
        if len(question.options) == 1 or len(set(question.options)) < len(question.options):
            return (
                "questions",
                f"“{question.text[:60]}” needs two or more different answers, or none for a line of text.",
            )
    texts = [question.text for question in panel.questions]
    if len(set(texts)) < len(texts):
        return "questions", "Two questions about the person are the same: take one out."
    if "worker" in texts:
        return "questions", "“worker” is the name of a column in the file of the answers: word the question otherwise."
    return "", ""


def read_person_questions(text: str) -> tuple[PersonQuestion, ...]:
    """One a line, its answers after it, parted by |: "How old are you? | under 30 | 30 to 60 | over 60"."""
    found = []
    for line in text.splitlines():
        words, *options = (" ".join(part.split()) for part in line.split("|"))
        if words:
            found.append(PersonQuestion(words, tuple(option for option in options if option)))
    return tuple(found)


def written_questions(panel: Panel) -> str:
    """As `read_person_questions` reads them."""
    return "\n".join(" | ".join((question.text, *question.options)) for question in panel.questions)


def address_back(panel: Panel, participant: str) -> str:
    """Where this participant goes back to; "" for nowhere."""
    return panel.address.replace(_HOLE, quote(participant, safe=""))


def checked_participant(text: str) -> str:
    """The id as it is kept; "" for one that is none."""
    text = text.strip()
    return text if text.isprintable() and 0 < len(text) <= LONGEST_PARTICIPANT else ""


PAYMENT_COLUMNS = (
    "worker participant items controls quiz training minutes first last approved rejected pending excluded"
).split()


def payment_rows(data: StudyData, participants: Mapping[str, str]) -> list[Row]:
    """For everybody who voted or came from a panel: what they did, the minutes they looked, what was decided.

    The minutes are those of all that they were asked, the training too: it is time that they gave.
    """
    excluded = {exclusion.worker for exclusion in data.exclusions}
    rows: list[Row] = []
    for worker in data.workers:
        votes = [vote for vote in data.votes if vote.worker == worker.id]
        if not votes and worker.id not in participants:
            continue
        row: Row = {"worker": worker.id, "participant": participants.get(worker.id, "")}
        row |= {column: sum(vote.kind == kind for vote in votes) for column, kind in _COUNTED.items()}
        row |= {
            "minutes": round(sum(vote.seconds for vote in votes) / 60, 1),
            "first": min((vote.accepted for vote in votes), default=None),
            "last": max((vote.submitted for vote in votes), default=None),
            "excluded": worker.id in excluded,
        }
        decided = [vote.verdict for vote in votes if vote.kind in WORK]
        row |= {verdict: decided.count(verdict) for verdict in _VERDICTS}
        rows.append(row)
    return rows


_COUNTED: Mapping[str, ItemKind] = {"items": "item", "controls": "control", "quiz": "quiz", "training": "training"}
_VERDICTS: tuple[ApprovalVerdict, ...] = ("approved", "rejected", "pending")


def people_columns(panel: Panel, answers: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The worker, the questions that are asked now, and those of before that somebody has answered."""
    now = [question.text for question in panel.questions]
    return ["worker", *dict.fromkeys([*now, *(text for said in answers.values() for text in said)])]


def people_rows(data: StudyData, columns: Sequence[str], answers: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """What everybody said of themselves, by pseudonym: a column a question. No vote and no id of a panel."""
    said = ((worker.id, answers.get(worker.id, {})) for worker in data.workers)
    return [{**{text: of.get(text, "") for text in columns}, "worker": worker} for worker, of in said]
