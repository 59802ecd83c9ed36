"""The set-up form as data: rules from what was typed, and what is wrong, by field. No HTML, and nothing is saved.

Every field that can be read counts at once, the others keep their last good value: nothing that is right gets lost
because something else is wrong. What is right by itself may still not go together; that is said, and stops the start.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BeforeValidator

from core.studies import MOST_TRAINING, QUESTION_KINDS, Example, Question, QuestionKind, Rules
from storage.engine.rows import whole
from study.questions import check_rules

LONGEST_NAME = 120
LONGEST_TEXT = 10_000


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong, at one field of the form."""

    field: str
    text: str
    label: str = ""
    """What the field is called, where the text does not say it."""

    @property
    def words(self) -> str:
        """The text away from its field."""
        return f"{self.label}: {self.text[:1].lower()}{self.text[1:]}" if self.label else self.text


@dataclass(frozen=True)
class NumberField:
    """A number of the form. `percent`: typed as 0 to 100, held as 0 to 1."""

    name: str
    low: float
    high: float
    whole: bool = True
    percent: bool = False
    label: str = ""


NUMBERS = (
    NumberField("votes", 1, 50, label="Votes an image"),
    NumberField("consensus", 1, 50, label="Consensus"),
    NumberField("most_items", 0, 100_000, label="Images a person, at most"),
    NumberField("lease_minutes", 1, 240, whole=False, label="An image is held for"),
    NumberField("seconds_expected", 0.1, 600, whole=False, label="Time a vote takes"),
    NumberField("too_fast_seconds", 0, 60, whole=False, label="Too fast below"),
    NumberField("seed", 0, 2**31 - 1, label="Seed"),
    NumberField("share", 0, 50, whole=False, percent=True, label="Share of control items"),
    NumberField("min_seen", 1, 100, label="Control items, judged after"),
    NumberField("min_right", 0, 100, whole=False, percent=True, label="Control items right"),
    NumberField("min_approval", 0, 99.99, whole=False, percent=True, label="Approval above"),
    NumberField("min_finished", 0, 100_000, label="Decided assignments"),
    NumberField("training", 0, MOST_TRAINING, label="Training"),
    NumberField("quiz", 0, 50, label="Quiz"),
    NumberField("quiz_pass", 0, 100, whole=False, percent=True, label="Right in the quiz"),
)
_OF_CONTROLS = ("share", "min_seen", "min_right")
_OF_ELIGIBILITY = ("min_approval", "min_finished", "quiz", "quiz_pass")
_QUESTION = "questions.{place}.text"
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
_BASE = Rules(questions=(Question("valid", "Is it valid?", "yes-no", valid=("yes",)),))


def read_name(data: Mapping[str, Any]) -> str:
    """The name of a study. Raises ValueError with a sentence."""
    value = data.get("name")
    name = " ".join(value.split()) if isinstance(value, str) else ""
    if not name:
        raise ValueError("Give the study a name.")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"The name has {len(name)} characters; at most {LONGEST_NAME} fit.")
    return name


def read_draft_name(data: Mapping[str, Any], held: str) -> tuple[str, tuple[Trouble, ...]]:
    """The name after what was typed, and what is wrong with it."""
    if "name" not in data:
        return held, ()
    try:
        return read_name(data), ()
    except ValueError as error:
        return held, (Trouble("name", str(error)),)


def read_rules(data: Mapping[str, Any], held: Rules) -> tuple[Rules, tuple[Trouble, ...]]:
    """The rules after what was typed, and what could not be read. What is missing in `data` stays as it is."""
    trouble: list[Trouble] = []
    numbers: dict[str, float | int] = {}
    for field in NUMBERS:
        if field.name not in data:
            continue
        try:
            numbers[field.name] = read_number(data[field.name], field)
        except ValueError as error:
            trouble.append(Trouble(field.name, str(error), field.label))
    changed: dict[str, Any] = {
        name: value for name, value in numbers.items() if name not in _OF_CONTROLS + _OF_ELIGIBILITY
    }
    changed["controls"] = replace(held.controls, **{k: v for k, v in numbers.items() if k in _OF_CONTROLS})  # type: ignore[arg-type]
    changed["eligibility"] = replace(held.eligibility, **{k: v for k, v in numbers.items() if k in _OF_ELIGIBILITY})  # type: ignore[arg-type]
    for name in ("instructions", "consent"):
        if name in data:
            text = _text(data[name])
            if len(text) > LONGEST_TEXT:
                words = f"This has {len(text)} characters; at most {LONGEST_TEXT:,} fit."
                trouble.append(Trouble(name, words, name.capitalize()))
            else:
                changed[name] = text
    for name in ("show_source", "show_captions"):
        if name in data:
            changed[name] = data[name] is True
    if isinstance(data.get("questions"), list):
        changed["questions"] = _questions(data["questions"])
    if isinstance(data.get("examples"), list):
        changed["examples"] = _examples(data["examples"], held.examples)
    return replace(held, **changed), tuple(trouble)


def read_number(value: object, field: NumberField) -> float | int:
    """A number as it was typed, within its range: a comma parts the thousands of a whole number, or is a decimal one.

    Raises ValueError with a sentence.
    """
    unit = " %" if field.percent else ""
    span = f"from {field.low:g} to {field.high:,.10g}{unit}"
    kind = "a whole number" if field.whole else "a number"
    text = str(value).strip().rstrip("%").strip() if isinstance(value, str | int | float) else ""
    thousands = field.whole and _THOUSANDS.fullmatch(text)
    text = text.replace(",", "" if thousands else ".")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (field.whole and number != int(number)):
        raise ValueError(f"Give {kind} {span}.")
    if not field.low <= number <= field.high:
        raise ValueError(f"It has to be {kind} {span}.")
    if field.whole:
        return int(number)
    # 95 % is held as 0.95 and not as 0.9500000000000001.
    return round(number / 100, 10) if field.percent else number


def typed_number(field: NumberField) -> BeforeValidator:
    """The validator of a field of a command that holds a number as it was typed."""
    return BeforeValidator(lambda value: read_number(value, field))


def typed_text(longest: int, one_line: bool = False) -> BeforeValidator:
    """The validator of a text as it was typed: trimmed, at most `longest` characters, spaces of any kind as one."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("This has to be text. Please reload the page.")
        text = whole(" ".join(value.split()) if one_line else value.strip())
        if len(text) > longest:
            raise ValueError(f"This has {len(text)} characters; at most {longest} fit.")
        return text

    return BeforeValidator(read)


def troubles(rules: Rules) -> tuple[Trouble, ...]:
    """What does not go together in these rules, each at the field where it can be put right."""
    found: list[Trouble] = []

    def check(field: str, **part: Any) -> bool:
        try:
            check_rules(replace(_BASE, **part))
        except ValueError as error:
            found.append(Trouble(field, str(error)))
            return False
        return True

    if not rules.questions:
        check("questions", questions=())
    sound: list[Question] = []
    # A question is checked with those before it; a free text alone is no fault of its own, so the first one is joined.
    for place, question in enumerate(rules.questions):
        if check(_QUESTION.format(place=place), questions=(*sound, question, _counted(sound, question))):
            sound.append(question)
    if rules.questions and len(sound) == len(rules.questions):
        check("questions", questions=rules.questions)
    check("consensus", votes=rules.votes, consensus=rules.consensus)
    check("share", controls=rules.controls)
    check("min_finished", eligibility=rules.eligibility)
    check("training", training=rules.training)
    check("instructions", instructions=rules.instructions, consent=rules.consent)
    check("examples", examples=rules.examples)
    return tuple(found)


def _counted(before: Sequence[Question], question: Question) -> Question:
    """A question with fixed answers and a short name that no other has."""
    taken = {other.id for other in (*before, question)}
    return replace(_BASE.questions[0], id=next(f"q{n}" for n in range(len(taken) + 1) if f"q{n}" not in taken))


def _questions(sent: Sequence[object]) -> tuple[Question, ...]:
    """The questions as they were typed; a missing short name is made of the text, `follows` is a place from 0."""
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
    """A short name for a question, of its first words, that no other has."""
    words = [word for word in re.findall(r"[a-z0-9]+", text.casefold()) if word not in _SMALL]
    name = "-".join(words[:3])[:30].strip("-") or "question"
    return next(
        candidate
        for candidate in (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        if candidate not in taken
    )


_SMALL = frozenset("a an and are as at be do does how in is it of on or still that the this to was what which".split())


def _examples(sent: Sequence[object], held: Sequence[Example]) -> tuple[Example, ...]:
    """The examples with what was typed; only pictures that are examples already: they are added elsewhere."""
    known = {example.sha for example in held}
    return tuple(
        Example(str(entry["sha"]), _text(entry.get("answer"))[:400], _text(entry.get("why"))[:1000])
        for entry in sent[:40]
        if isinstance(entry, Mapping) and entry.get("sha") in known
    )


def _text(value: object) -> str:
    return whole(value.replace("\r\n", "\n").strip()) if isinstance(value, str) else ""


def moved(questions: Sequence[Question], act: str, place: int) -> tuple[Question, ...]:
    """The questions after one of the buttons of question `place`: "up", "down", "remove", or "add" at the end."""
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
    known: set[str] = set()
    sound: list[Question] = []
    for question in after:
        # What it followed may be gone, or stand behind it now.
        sound.append(question if not question.follows or question.follows in known else _alone(question))
        known.add(question.id)
    return tuple(sound)


def _alone(question: Question) -> Question:
    return replace(question, follows="", follows_answer="")


def default_rules(template_rules: Rules, quiz: int, seed: int) -> Rules:
    """What a new draft begins with: the paper's, with a quiz for those who have no record yet."""
    return replace(template_rules, eligibility=replace(template_rules.eligibility, quiz=quiz), seed=seed)
