"""The preview: what the annotators' page would be given of this draft, step by step. Nothing is recorded or leased."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from study.controls import next_kind
from study.types import Item, Side, Study
from ui.annotate.shown import shown_item, shown_study
from ui.studio import Studio
from ui.study.posting import text_of
from ui.study.words import image_url

SOMEBODY = "preview"
"""Stands where a worker's name decides when a control item comes."""


@dataclass(frozen=True)
class _Way:
    """All that one annotator would see, in order."""

    quiz: tuple[Item, ...]
    items: tuple[Item, ...]
    """Control items among them."""


def preview_next(studio: Studio, data: Mapping[str, Any]) -> dict[str, Any]:
    """The step with the number that was sent, from 1: consent, the quiz, then the images.

    It looks like a reply of the annotators' page. Raises UserError for an unknown study or a number that is none.
    """
    studies = studio.workspace.studies
    study = studies.study(text_of(data, "study", 80))
    number = data.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 1_000_000:
        raise UserError("There is no such step of the preview. Please reload the page.")
    way = _way(study, tuple(item for item in studies.items(study.id) if not item.removed))
    if not study.rules.questions:
        return _step(study, "closed", "There is no question yet: write one, then look again.")
    if number == 1:
        return _step(study, "consent", "Please read what you agree to before the first image.")
    place = number - 2
    if place < len(way.quiz):
        text = f"A short quiz comes first: question {place + 1} of {len(way.quiz)}."
        return _step(study, "quiz", text, place, len(way.quiz) - place, way.quiz[place], number)
    place -= len(way.quiz)
    if place < len(way.items):
        return _step(study, "item", "", place, len(way.items) - place, way.items[place], number)
    words = "You have judged all images. There is no other one for you in this study."
    return _step(study, "done", words if way.items else "There is no image in this study yet.", len(way.items))


def _way(study: Study, items: tuple[Item, ...]) -> _Way:
    """Items in a random order that stays, with control items where `next_kind` puts them."""
    drawn = random.Random(f"preview {study.rules.seed}")
    plain = [item for item in items if item.kind == "item"]
    controls = [item for item in items if item.kind == "control"]
    quiz = [item for item in items if item.kind == "quiz"][: study.rules.eligibility.quiz]
    drawn.shuffle(plain)
    drawn.shuffle(controls)
    shown: list[Item] = []
    seen = controls_seen = 0
    while seen < len(plain):
        if next_kind(study.rules, SOMEBODY, seen, controls_seen) == "control" and controls_seen < len(controls):
            shown.append(controls[controls_seen])
            controls_seen += 1
        else:
            shown.append(plain[seen])
            seen += 1
    return _Way(tuple(quiz), tuple(shown))


def _step(
    study: Study, status: str, text: str, done: int = 0, left: int = 0, item: Item | None = None, number: int = 0
) -> dict[str, Any]:
    examples = study.rules.examples
    assignment: dict[str, Any] | None = None
    if item is not None:
        side: Side = random.Random(f"{study.rules.seed} {number}").choice(("left", "right"))
        source = image_url(item.source_sha) if item.source_sha else None
        shown = shown_item(study.rules, item, image_url(item.image_sha), source, side)
        assignment = {"id": f"preview-{number}", **shown, "answers": {}, "comment": ""}
    return {
        "status": status,
        "text": text,
        "done": done,
        "left": left,
        "study": shown_study(study, lambda place: image_url(examples[place].sha)),
        "assignment": assignment,
    }
