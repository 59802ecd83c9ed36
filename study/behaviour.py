"""Behaviour of a simulated worker: accuracy, bias, speed and laziness. Uses random draws, no HTTP."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from core.studies import Question

LAZY_SECONDS = 0.4
"""Number of seconds for a lazy answer, unless the worker is faster anyway."""
SPREAD = 0.4
"""Standard deviation of the logarithm of the seconds. Two thirds of the answers take 0.67 to 1.5 times the median."""


@dataclass(frozen=True)
class Behaviour:
    """Parameters of a simulated worker."""

    accuracy: float = 0.95
    """Probability of the true answer, 0 to 1. A wrong answer is another option; on a scale it is one step away."""
    bias: float = 0.0
    """Tendency to one answer whatever the image shows, -1 to 1. Above 0, it is the probability of answering "yes", the
    first option, or 5 on a scale. Below 0, `-bias` is the probability of "no", the last option, or 1 on a scale."""
    seconds: float = 4.0
    """Median number of seconds for an item, 0 to 600. With 0 the worker answers at once."""
    lazy: float = 0.0
    """Probability of answering an item without looking at it, 0 to 1. Lazy answers are always the same and quick."""

    def __post_init__(self) -> None:
        for name, low, high in (("accuracy", 0, 1), ("bias", -1, 1), ("seconds", 0, 600), ("lazy", 0, 1)):
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise ValueError(f"The {name} of a simulated worker is from {low} to {high}; {value} is not.")


def judge(
    behaviour: Behaviour,
    questions: Sequence[Question],
    true: Callable[[Question], str],
    habit: Mapping[str, str],
    drawn: random.Random,
) -> tuple[dict[str, str], float]:
    """Return the answers to all questions and the seconds that they take. `true` returns a question's true answer;
    `habit` has the answers of a lazy worker.
    """
    lazy = drawn.random() < behaviour.lazy
    answers: dict[str, str] = {}
    for question in questions:
        if question.follows and answers.get(question.follows) != question.follows_answer:
            continue
        if question.kind == "text":
            answers[question.id] = "said by a simulated worker"
        else:
            answers[question.id] = habit[question.id] if lazy else _answer(behaviour, question, true(question), drawn)
    seconds = behaviour.seconds * math.exp(drawn.gauss(0, SPREAD))
    return answers, min(seconds, LAZY_SECONDS) if lazy else seconds


def habit_of(questions: Sequence[Question], drawn: random.Random) -> dict[str, str]:
    """Return the answers that a lazy worker always gives, by question."""
    return {question.id: drawn.choice(question.answers()) for question in questions if question.answers()}


def _answer(behaviour: Behaviour, question: Question, true: str, drawn: random.Random) -> str:
    options = question.answers()
    if drawn.random() < abs(behaviour.bias):
        high = options[-1] if question.kind == "scale" else options[0]
        low = options[0] if question.kind == "scale" else options[-1]
        return high if behaviour.bias > 0 else low
    if drawn.random() < behaviour.accuracy:
        return true
    others = [option for option in options if option != true]
    if question.kind == "scale":
        others = [option for option in others if abs(int(option) - int(true)) == 1]
    return drawn.choice(others)


def read_crew(text: str, usual: Behaviour) -> tuple[int, Behaviour]:
    """Parse workers and their behaviour, such as "3:lazy=0.9"; the rest is as `usual`. Raises ValueError."""
    number, _, rest = text.partition(":")
    known = {each.name for each in fields(Behaviour)}
    changed: dict[str, Any] = {}
    try:
        count = int(number)
        for part in filter(None, rest.split(",")):
            name, _, value = part.partition("=")
            if name.strip() not in known:
                raise KeyError(name)
            changed[name.strip()] = float(value)
    except (ValueError, KeyError) as error:
        message = f"“{text[:80]}” is no crew: write it as 3:lazy=0.9,accuracy=0.6 ({', '.join(known)})."
        raise ValueError(message) from error
    if not 1 <= count <= 1000:
        raise ValueError("A crew has 1 to 1,000 workers.")
    return count, replace(usual, **changed)
