"""Finds words that cannot both describe one picture, such as snow and desert. The rules: `contradictions.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from core.errors import UserError
from core.words import contains

RULES = Path(__file__).resolve().parent / "contradictions.toml"


@dataclass(frozen=True)
class Rule:
    """A rule that no word of `one` may occur together with a word of `other`."""

    says: str
    """The reason, as a sentence without a full stop."""
    one: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True)
class Contradiction:
    """A rule that a text breaks, and the words that break it."""

    says: str
    words: tuple[str, str]

    def describe(self) -> str:
        """Description for a person, in one sentence."""
        return f"“{self.words[0]}” and “{self.words[1]}” do not go together: {self.says[0].lower()}{self.says[1:]}."


@lru_cache(maxsize=4)
def load_rules(path: Path = RULES) -> tuple[Rule, ...]:
    """Read the rules of a file. Raises UserError, naming the rule, if one is malformed."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"The rules in {path} cannot be read: {error}.") from error
    loaded = []
    for number, rule in enumerate(data.get("rules", []), 1):
        sides = [rule.get("one"), rule.get("other")]
        fits = set(rule) == {"says", "one", "other"} and isinstance(rule["says"], str) and rule["says"]
        if not fits or not all(isinstance(side, list) and side and all(map(_phrase, side)) for side in sides):
            raise UserError(f"Rule {number} in {path} does not fit: give a text says, and lists one and other.")
        loaded.append(Rule(rule["says"], tuple(sides[0]), tuple(sides[1])))
    return tuple(loaded)


def contradictions(text: str, rules: tuple[Rule, ...] | None = None) -> tuple[Contradiction, ...]:
    """Return the rules that a text breaks, each with the first words that break it."""
    return _contradictions(text, load_rules() if rules is None else rules)


@lru_cache(maxsize=1000)
def _contradictions(text: str, rules: tuple[Rule, ...]) -> tuple[Contradiction, ...]:
    broken, lower = [], text.lower()
    for rule in rules:
        # Searching for the letters first is far quicker than for whole words, and mostly finds nothing.
        one = next((word for word in rule.one if word.lower() in lower and contains(text, word)), None)
        other = next((word for word in rule.other if word.lower() in lower and contains(text, word)), None)
        if one is not None and other is not None:
            broken.append(Contradiction(rule.says, (one, other)))
    return tuple(broken)


def new_contradictions(before: str, after: str, rules: tuple[Rule, ...] | None = None) -> tuple[Contradiction, ...]:
    """Return the contradictions of `after` whose rule `before` did not break already."""
    known = {contradiction.says for contradiction in contradictions(before, rules)}
    return tuple(new for new in contradictions(after, rules) if new.says not in known)


def _phrase(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
