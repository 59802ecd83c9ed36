"""Reads the form in which a lead sets up a study: turns typed values into rules, with problems by field. Saves nothing.

Each readable field is used at once. An unreadable field keeps its last valid value, so that a mistake in one field
loses nothing in others. Fields that are valid alone may still conflict; conflicts are reported, and prevent the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from core.form_numbers import form_numbers
from core.studies import (
    LONGEST_STUDY_TEXT,
    LONGEST_WHY,
    QUESTION_KINDS,
    ControlPolicy,
    Eligibility,
    InstructionExample,
    Question,
    QuestionKind,
    RuleProblem,
    Rules,
)
from storage.engine.rows import whole
from study.questions import too_long

LONGEST_NAME = 120
_Part = TypeVar("_Part", Rules, ControlPolicy, Eligibility)


def read_name(data: Mapping[str, Any]) -> str:
    """Return the typed name of a study. Raises ValueError with a sentence if it is missing or too long."""
    value = data.get("name")
    name = " ".join(value.split()) if isinstance(value, str) else ""
    if not name:
        raise ValueError("Give the study a name.")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"The name has {len(name)} characters; at most {LONGEST_NAME} fit.")
    return name


def read_draft(data: Mapping[str, Any], name: str, rules: Rules) -> tuple[str, Rules, tuple[RuleProblem, ...]]:
    """Return the name and the rules with the values of the form `data`, and the problems of unreadable fields. Fields
    that are unreadable or absent keep their value.
    """
    problems: list[RuleProblem] = []
    try:
        name = read_name(data) if "name" in data else name
    except ValueError as error:
        problems.append(RuleProblem("name", str(error)))

    def with_numbers(part: _Part) -> _Part:
        numbers: dict[str, Any] = {}
        for field, number in form_numbers(part).items():
            try:
                numbers |= {field: number.read(data[field])} if field in data else {}
            except ValueError as error:
                problems.append(RuleProblem(field, str(error), number.label))
        return replace(part, **numbers)

    changed: dict[str, Any] = {}
    for field in ("instructions", "consent"):
        if field in data:
            text = _text(data[field])
            if len(text) > LONGEST_STUDY_TEXT:
                problems.append(too_long(field, text))
            else:
                changed[field] = text
    changed |= {field: data[field] is True for field in ("show_source", "show_captions") if field in data}
    if isinstance(data.get("questions"), list):
        changed["questions"] = _questions(data["questions"])
    if isinstance(data.get("examples"), list):
        changed["examples"] = _examples(data["examples"], rules.examples)
    controls, eligibility = with_numbers(rules.controls), with_numbers(rules.eligibility)
    rules = replace(with_numbers(rules), controls=controls, eligibility=eligibility, **changed)
    return name, rules, tuple(problems)


def typed_text(longest: int, one_line: bool = False) -> BeforeValidator:
    """Return a validator of typed text: trimmed, at most `longest` characters; `one_line` joins its lines."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("This has to be text. Please reload the page.")
        text = whole(" ".join(value.split()) if one_line else value.strip())
        if len(text) > longest:
            raise ValueError(f"This has {len(text)} characters; at most {longest} fit.")
        return text

    return BeforeValidator(read)


WhyText = Annotated[str, typed_text(LONGEST_WHY, one_line=True)]


def _questions(sent: Sequence[object]) -> tuple[Question, ...]:
    """Return the typed questions. A missing id is made from the text. `follows` is a position in `sent`, from 0."""
    questions: list[Question] = []
    for entry in sent[:40]:
        if isinstance(entry, Mapping):
            questions.append(_question(entry, questions))
    return tuple(questions)


def _question(entry: Mapping[str, Any], before: Sequence[Question]) -> Question:
    kind: QuestionKind = entry["kind"] if entry.get("kind") in QUESTION_KINDS else "yes-no"
    text = " ".join(_text(entry.get("text"))[:2000].split())
    name = _text(entry.get("id"))[:80] or short_name(text, [question.id for question in before])
    at = _text(entry.get("follows"))
    followed = before[int(at)] if at.isdecimal() and len(at) < 3 and int(at) < len(before) else None
    lines = _text(entry.get("options")).splitlines() if kind == "choice" else []
    question = Question(
        id=name,
        text=text,
        kind=kind,
        options=tuple(line.strip()[:200] for line in lines if line.strip())[:20],
        low=_text(entry.get("low"))[:200] if kind == "scale" else "",
        high=_text(entry.get("high"))[:200] if kind == "scale" else "",
        required=entry.get("required") is not False,
        only_with=_text(entry.get("only_with"))[:200],
        follows=followed.id if followed is not None else "",
        follows_answer=_text(entry.get("follows_answer"))[:200],
    )
    sent = entry.get("valid")
    valid = tuple(answer for answer in question.answers() if isinstance(sent, list) and answer in sent)
    if followed is None:
        question = replace(question, follows_answer="")
    elif question.follows_answer not in followed.answers():
        question = replace(question, follows_answer=next(iter(followed.answers()), ""))
    return replace(question, valid=valid)


def short_name(text: str, taken: Sequence[str]) -> str:
    """Return an id for a question, made from the first words of its text, that is not in `taken`."""
    words = [word for word in re.findall(r"[a-z0-9]+", text.casefold()) if word not in _SMALL]
    name = "-".join(words[:3])[:30].strip("-") or "question"
    candidates = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    return next(candidate for candidate in candidates if candidate not in taken)


_SMALL = frozenset("a an and are as at be do does how in is it of on or still that the this to was what which".split())


def _examples(sent: Sequence[object], before: Sequence[InstructionExample]) -> tuple[InstructionExample, ...]:
    """Return the typed examples. An example whose picture is not in `before` is left out: the form adds no pictures."""
    known = {example.sha for example in before}
    return tuple(
        InstructionExample(str(entry["sha"]), _text(entry.get("answer"))[:400], _text(entry.get("why"))[:1000])
        for entry in sent[:40]
        if isinstance(entry, Mapping) and entry.get("sha") in known
    )


def _text(value: object) -> str:
    return whole(value.replace("\r\n", "\n").strip()) if isinstance(value, str) else ""


def moved(questions: Sequence[Question], act: str, place: int) -> tuple[Question, ...]:
    """Return the questions after the act "up", "down" or "remove" on the question at the zero-based position `place`,
    or after "add", which appends a new question.
    """
    after = list(questions)
    if act == "add":
        after.append(Question(short_name("", [question.id for question in after]), "", "yes-no", valid=("yes",)))
    elif not 0 <= place < len(after):
        return tuple(after)
    elif act == "remove":
        after.pop(place)
    elif act in ("up", "down"):
        other = place + (1 if act == "down" else -1)
        if 0 <= other < len(after):
            after[place], after[other] = after[other], after[place]
    for at, question in enumerate(after):
        # The question that this one follows may be removed, or come later now.
        if question.follows not in ("", *(earlier.id for earlier in after[:at])):
            after[at] = replace(question, follows="", follows_answer="")
    return tuple(after)


def default_rules(template_rules: Rules, quiz: int, seed: int) -> Rules:
    """Return a template's rules for a new draft, with a seed, and `quiz` quiz items for workers without a record."""
    return replace(template_rules, eligibility=replace(template_rules.eligibility, quiz=quiz), seed=seed)
