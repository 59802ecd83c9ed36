"""What each check of an image is called and what it looks at, in plain words, and all of one check as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.types import Check, to_plain


@dataclass(frozen=True)
class CheckWords:
    """How a person reads a check."""

    title: str
    explanation: str
    """What it looks at and what its figure means, in a sentence or two."""


WORDS = {
    "edges kept": CheckWords(
        "edges kept",
        "The share of the source's outlines that are found again in the image, 0 to 1. "
        "Little of them means that something moved, vanished or melted.",
    ),
    "edit shows": CheckWords(
        "edit shows",
        "How much better the image fits its counterfactual caption than the caption of the source, by CLIP. "
        "Above 0 it looks more like the edited scene than like the source.",
    ),
    "like the source": CheckWords(
        "like the source",
        "CLIP similarity of source and image, -1 to 1: a test case changes something, not everything.",
    ),
    "fits its caption": CheckWords("fits its caption", "CLIP similarity of the image and its caption, -1 to 1."),
    "edit direction": CheckWords(
        "edit direction",
        "Whether the image changed in the direction in which its caption changed, by CLIP, -1 to 1.",
    ),
    "label seen": CheckWords(
        "label seen",
        "How likely the label is among all labels, by CLIP, 0 to 1, asked of the image alone.",
    ),
    "mask kept": CheckWords(
        "mask kept",
        "How well the model under test still finds the mask in the image (mean IoU, 0 to 1). "
        "Where it is weak already on the source, it cannot tell.",
    ),
}
"""By the name of the check, which is what is recorded."""


def words_of(check: Check) -> CheckWords:
    """The words for a check; one without any is called by its own name."""
    return WORDS.get(check.name, CheckWords(check.name, ""))


def described(check: Check) -> dict[str, Any]:
    """All of a check as JSON-ready values."""
    words = words_of(check)
    return {**to_plain(check), "title": words.title, "outcome": check.outcome, "explanation": words.explanation}
