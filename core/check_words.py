"""What each check of an image is called and what it looks at, in plain words, and all of one check as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.types import Check, to_plain


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
    "edges in place": CheckWords(
        "shapes in place",
        "How much more of the source's outlines is found again in an edited image than chance would find, up to 1: at "
        "0 they stand anywhere. With a low figure something moved, vanished or was drawn anew.",
    ),
    "framing kept": CheckWords(
        "framing kept",
        "The share of the source's frame that an edited image shows, 0 to 1. An editor may shift or zoom the picture "
        "as a whole: a little is moved back, which is said here. With a low figure masks and boxes do not fit.",
    ),
    "forms kept": CheckWords(
        "nothing melted",
        "How well the outlines of each large piece of the mask, such as one building, run in the direction that they "
        "have in the source, 0 to 1: the least of them. By chance it is 0.5.",
    ),
    "edit shows": CheckWords(
        "edit visible",
        "How much better the image fits its new caption than the caption without the edit, by CLIP. "
        "Above 0 it looks more like the edited scene than like the source.",
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
        "How much better the image fits its caption than the same caption with any other label, by CLIP. "
        "Below 0 another label fits better. Where CLIP does not see it in the source either, it cannot tell.",
    ),
    "source inverted": CheckWords(
        "source found in its noise",
        "How exactly the source is drawn again from its inverted noise, from which this image was drawn, in decibels "
        "(PSNR) against the source as the image generator encodes it. From 35 on the inversion is right.",
    ),
    "mask kept": CheckWords(
        "masked things in place",
        "How much of each protected class of the mask a model other than the one under test still finds, 0 to 1: the "
        "least of them. Where the profile has no such model, it is the model under test, which can only vouch for it.",
    ),
    "safety checker": CheckWords(
        "safe to show",
        "What the safety checker of the image generator says. An image that it flags is refused and never shown.",
    ),
    "things kept": CheckWords(
        "each thing still there",
        "How much of each single thing of the mask, such as one car, a model other than the one under test still "
        "finds, 0 to 1: the least of them.",
    ),
    "surroundings kept": CheckWords(
        "surroundings in place",
        "How much of each large piece of what the mask does not protect, such as one building, a model other than the "
        "one under test still finds, 0 to 1: the least of them.",
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
