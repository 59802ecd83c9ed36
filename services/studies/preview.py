"""The preview of a study: the steps that an annotator would go through. Nothing is stored or leased."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from core.studies import ITEM_KINDS, Feedback, Item, Side, Study
from services.studies.annotation import MOST_ANSWERS, Status
from services.studies.drafts import StudyCommand
from storage.studies.studies import Studies
from study.control_items import next_kind
from study.training import feedback

SOMEBODY = "preview"
"""Name of the imaginary worker of a preview. The places of control items depend on a worker's name."""
MOST_STEPS = 1_000_000


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_STEPS:
        raise ValueError("There is no such step of the preview. Please reload the page.")
    return value


class PreviewStep(StudyCommand, name="preview-step"):
    """Show a step of the preview of a study: consent, training with feedback, quiz, then the items."""

    number: Annotated[int, BeforeValidator(_number)] = Field(description="The step, from 1")
    answers: dict[str, str] = Field(
        default={},
        max_length=MOST_ANSWERS,
        description="Answers to the training item of the step before; not stored, only used for feedback",
    )


@dataclass(frozen=True)
class Previewed:
    """A step of the preview, as an annotator would see it."""

    study: Study
    number: int
    status: Status
    text: str
    done: int = 0
    left: int = 0
    item: Item | None = None
    side: Side = "left"
    feedback: Feedback | None = None
    """Feedback on the answers to the training item of the step before; None unless the status is "feedback"."""
    undo: bool = True
    """True if the page may go back a step. False after a training item, whose answer is final."""


def preview_step(studies: Studies, sent: PreviewStep) -> Previewed:
    """Return the step of the preview with this number. Raises UserError for an unknown study."""
    study, number = studies.get(sent.study), sent.number
    training, quiz, items = _way(study, studies.items(study.id))
    if not study.rules.questions:
        words = "There is no question yet: add a question, then open the preview again."
        return Previewed(study, number, "closed", words)
    if number == 1:
        return Previewed(study, number, "consent", "Please read what you agree to before the first image.")
    side: Side = random.Random(f"{study.rules.seed} {number}").choice(("left", "right"))
    place = number - 2
    if place < 2 * len(training):
        # Each training item has two steps, question and feedback, and stays on the same side of the page.
        at, explains, of = place // 2, place % 2, len(training)
        item, side = training[at], random.Random(f"{study.rules.seed} training {at}").choice(("left", "right"))
        if explains:
            explained = feedback(item, sent.answers, study.rules.questions)
            return Previewed(study, number, "feedback", "", at, of - at, item, side, explained, undo=False)
        text = f"A short training comes first: image {at + 1} of {of}. After each answer you are told what is right."
        return Previewed(study, number, "training", text, at, of - at, item, side, undo=False)
    place -= 2 * len(training)
    undo = bool(place) or not training
    if place < len(quiz):
        text = f"A short quiz comes first: question {place + 1} of {len(quiz)}."
        return Previewed(study, number, "quiz", text, place, len(quiz) - place, quiz[place], side, undo=undo)
    place -= len(quiz)
    if place < len(items):
        return Previewed(study, number, "item", "", place, len(items) - place, items[place], side, undo=undo)
    words = "You have judged all images. There are no more for you in this study."
    return Previewed(study, number, "done", words if items else "There is no image in this study yet.", len(items))


def _way(study: Study, items: tuple[Item, ...]) -> tuple[list[Item], list[Item], list[Item]]:
    """Return, in order, the training items, the quiz items, and all other items that one annotator would see. The
    others come in a fixed random order, with control items as often as in the study.
    """
    chance = random.Random(f"preview {study.rules.seed}")
    plain, controls, quiz, training = ([item for item in items if item.kind == kind] for kind in ITEM_KINDS)
    training = [item for item in training if item.expected][: study.rules.training]
    chance.shuffle(plain)
    chance.shuffle(controls)
    shown: list[Item] = []
    seen = 0
    while seen < len(plain):
        controls_seen = len(shown) - seen
        if next_kind(study.rules, SOMEBODY, seen, controls_seen) == "control" and controls_seen < len(controls):
            shown.append(controls[controls_seen])
        else:
            shown.append(plain[seen])
            seen += 1
    return training, quiz[: study.rules.eligibility.quiz], shown
