"""What each check of an image is called and what it looks at, in plain words, and all of one check as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.data_files import DataTable
from core.types import Check, to_plain


@dataclass(frozen=True)
class CheckWords:
    """How a person reads a check."""

    title: str
    explanation: str
    """What it looks at and what its figure means, in a sentence or two."""


WORDS = DataTable(__file__, CheckWords, "images")
"""By the name of the check, which is what is recorded."""
CAPTION_WORDS = DataTable(__file__, str, "captions")
"""What it means that a check of a caption did not pass, by its name."""


def words_of(check: Check) -> CheckWords:
    """The words for a check; one without any is called by its own name."""
    return WORDS.get(check.name, CheckWords(check.name, ""))


def described(check: Check) -> dict[str, Any]:
    """All of a check as JSON-ready values."""
    words = words_of(check)
    return {**to_plain(check), "title": words.title, "outcome": check.outcome, "explanation": words.explanation}
