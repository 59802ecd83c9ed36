"""Finds words that cannot both describe one picture, such as snow and desert. `contradictions.toml` has the rules."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from core.errors import UserError
from core.types import Data
from core.words import contains

RULES = Path(__file__).resolve().parent / "contradictions.toml"


Phrase = Annotated[str, Field(pattern=r"\S")]


class Rule(Data):
    """A rule: a text that has a phrase of the list `one` and a phrase of the list `other` contradicts itself."""

    says: str = Field(min_length=1)
    """Reason why the words contradict each other: a sentence without a full stop."""
    one: tuple[Phrase, ...] = Field(min_length=1)
    other: tuple[Phrase, ...] = Field(min_length=1)


@lru_cache(maxsize=4)
def load_rules(path: Path = RULES) -> tuple[Rule, ...]:
    """Read the rules of a file. Raises UserError, naming the rule, if one is malformed."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"The rules in {path} cannot be read ({error}): correct the file.") from error
    try:
        return TypeAdapter(tuple[Rule, ...]).validate_python(data.get("rules", []))
    except ValidationError as error:
        number = next((place for place in error.errors()[0]["loc"] if isinstance(place, int)), 0) + 1
        rule = f"Rule {number} in {path}"
        raise UserError(f"{rule} is malformed: it needs a text “says” and two lists, “one” and “other”.") from error


@lru_cache(maxsize=1000)
def contradictions(text: str, rules: tuple[Rule, ...]) -> tuple[tuple[str, str], ...]:
    """Return a pair for each rule that a text breaks: the rule's `says`, and a message with the clashing words."""
    broken, lower = [], text.lower()
    for rule in rules:
        # A search for the letters alone is far quicker than one for whole words, and rules out most words.
        one = next((word for word in rule.one if word.lower() in lower and contains(text, word)), None)
        other = next((word for word in rule.other if word.lower() in lower and contains(text, word)), None)
        if one is not None and other is not None:
            reason = f"{rule.says[0].lower()}{rule.says[1:]}"
            broken.append((rule.says, f"“{one}” and “{other}” do not go together: {reason}."))
    return tuple(broken)


def new_contradictions(before: str, after: str) -> list[str]:
    """Return a sentence for each rule that the text `after` breaks and the text `before` does not."""
    known = {says for says, _ in contradictions(before, load_rules())}
    return [sentence for says, sentence in contradictions(after, load_rules()) if says not in known]
