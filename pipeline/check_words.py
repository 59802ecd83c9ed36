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
        "shapes kept",
        "The share of the source's outlines that are found again in the image, 0 to 1. "
        "With few of them, something moved, vanished or melted.",
    ),
    "edit shows": CheckWords(
        "edit visible",
        "How much better the image fits its new caption than the source image does, by CLIP. "
        "Above 0 it looks more like the edited scene than the source did.",
    ),
    "like the source": CheckWords(
        "close to the source",
        "How alike source and image are as a whole, by CLIP, -1 to 1: a test case changes something, not everything.",
    ),
    "fits its caption": CheckWords(
        "fits its caption", "How well the image and its new caption go together, by CLIP, -1 to 1."
    ),
    "edit direction": CheckWords(
        "changed as asked",
        "Whether the image changed in the direction in which its caption changed, by CLIP, -1 to 1. "
        "It is low where something else changed instead.",
    ),
    "label seen": CheckWords(
        "label recognisable",
        "How likely the label is among all labels, by CLIP, 0 to 1, asked of the image alone.",
    ),
    "mask kept": CheckWords(
        "masked things in place",
        "How well the model under test still finds what the mask marks, in the image (mean IoU, 0 to 1). "
        "Where it is weak already on the source, it cannot tell.",
    ),
}
"""By the name of the check, which is what is recorded."""
CAPTION_WORDS = {
    "caption not empty": "There is no text.",
    "edits made": "What was to come into the caption is not in it, or what was to go still is.",
    "label kept": "The caption no longer names the label.",
    "protected kept": "Something that the task protects is no longer named.",
    "protected named as often": "Something that the task protects is named less often than before.",
    "nothing protected added": "Something of a protected kind is named that the picture does not show.",
    "nothing unasked changed": "Words were changed that no edit asked for.",
    "nothing lost": "An object or a sentence of the caption is gone that no edit takes away.",
    "no repetition": "The same words come again and again.",
    "no contradiction": "Two things are said that cannot be true of one picture.",
    "protected changed on purpose": "A word that the task protects was changed because a person insisted.",
}
"""What it means that a check of a caption did not pass, by its name."""


def words_of(check: Check) -> CheckWords:
    """The words for a check; one without any is called by its own name."""
    return WORDS.get(check.name, CheckWords(check.name, ""))


def described(check: Check) -> dict[str, Any]:
    """All of a check as JSON-ready values."""
    words = words_of(check)
    return {**to_plain(check), "title": words.title, "outcome": check.outcome, "explanation": words.explanation}
