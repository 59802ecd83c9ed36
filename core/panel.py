"""Settings for studies with participants from a panel such as Prolific: ids, return address, personal questions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

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
    """A question to participants about themselves. An answer is always optional."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Settings for participants from a panel. They may change during a study, as they are not part of its rules."""

    parameter: str = ""
    """Parameter of the invitation link that holds the participant's id, such as PROLIFIC_PID; "" without a panel."""
    code: str = ""
    """Completion code that the participant enters at the panel to be paid."""
    address: str = ""
    """Address to which a participant returns at the end. {participant} is replaced by the participant's id."""
    questions: tuple[PersonQuestion, ...] = ()


def check_panel(panel: Panel) -> tuple[str, str]:
    """Check the settings. Return the field with the first problem and a sentence about it, or ("", "")."""
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
            words = "needs two or more different answers, or none for a line of text"
            return "questions", f"“{question.text[:60]}” {words}."
    texts = [question.text for question in panel.questions]
    if len(set(texts)) < len(texts):
        return "questions", "Two questions about the person are the same: take one out."
    if "worker" in texts:
        return "questions", "“worker” is the name of a column in the file of the answers: word the question otherwise."
    return "", ""


def read_person_questions(text: str) -> tuple[PersonQuestion, ...]:
    """Parse lines with a question and its answers, such as "How old are you? | under 30 | 30 to 60 | over 60"."""
    questions = []
    for line in text.splitlines():
        words, *options = (" ".join(part.split()) for part in line.split("|"))
        if words:
            questions.append(PersonQuestion(words, tuple(option for option in options if option)))
    return tuple(questions)


def written_questions(panel: Panel) -> str:
    """Write questions as text. Inverse of `read_person_questions`."""
    return "\n".join(" | ".join((question.text, *question.options)) for question in panel.questions)


def address_back(panel: Panel, participant: str) -> str:
    """Return the address to which this participant returns; "" if the panel has none."""
    return panel.address.replace(_HOLE, quote(participant, safe=""))


def checked_participant(text: str) -> str:
    """Return the participant's id without surrounding spaces; "" if it is invalid."""
    text = text.strip()
    return text if text.isprintable() and 0 < len(text) <= LONGEST_PARTICIPANT else ""
