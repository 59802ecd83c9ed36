"""Titles and explanations of the checks of an image, and a check as JSON-ready values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.data_files import DataTable
from core.types import Check, to_plain


@dataclass(frozen=True)
class CheckWords:
    """Title and explanation of a check, for pages and reports."""

    title: str
    explanation: str
    """Meaning of the check and of its figure, in one or two sentences."""
    yes_or_no: bool = False
    """True if the figure is only 1 for passed and 0 for failed. Pages then leave it out."""


WORDS = DataTable(__file__, CheckWords, "images")
"""Title and explanation of each check of an image, by the check's recorded name."""
CAPTION_WORDS = DataTable(__file__, str, "captions")
"""Explanation of each check of a caption, by the check's name. Pages show it if the check did not pass."""


def words_of(check: Check) -> CheckWords:
    """Return the words for a check. A check without words has its name as title."""
    return WORDS.get(check.name, CheckWords(check.name, ""))


def described(check: Check) -> dict[str, Any]:
    """Return a check as JSON-ready values, with its title, outcome and explanation."""
    words = words_of(check)
    return {**to_plain(check), "title": words.title, "outcome": check.outcome, "explanation": words.explanation}
