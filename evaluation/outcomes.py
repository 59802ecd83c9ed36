"""Compare the model under test on a generated image with the same model on the source image. A model that already fails
on the source shows nothing new. The outcome does not say whether the image is good: checks and reviews do. Pure; no
models, no pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from core.data_files import DataTable
from core.predictions import ClassFigures, Guess, Prediction, Standing, names_label
from core.types import Task
from evaluation.class_mapping import MappedLabel, map_classes

FOUND = 0.5
"""Minimum IoU (intersection over union) at which a class counts as found, as in Pascal VOC."""


@dataclass(frozen=True)
class ModelOutcome:
    """Outcome of the model under test on one generated image."""

    standing: Standing
    words: str

    @property
    def explanation(self) -> str:
        """Explanation of the outcome for users who look for faults of the model."""
        return EXPLANATIONS[self.standing]


EXPLANATIONS = DataTable(__file__, str, "standings")


def outcome_of(
    task: Task,
    source: Prediction,
    found: Prediction,
    figures: Sequence[ClassFigures] | None,
    masked: bool,
    classes: tuple[str, ...] = (),
) -> ModelOutcome:
    """Judge a generated image by two predictions: on its source (`source`), and on the image (`found`). A segmenter has
    `figures`. `masked` is True if the figures come from a comparison with a mask. A classifier has `classes`, or ().
    """
    if figures is not None:
        return _of_classes(figures, masked)
    if not source.top or not found.top:
        return ModelOutcome("cannot tell", "model: nothing to compare")
    return _of_guesses(task, source.top[0], found.top[0], classes)


@lru_cache(maxsize=256)
def mapped_label(label: str, classes: tuple[str, ...]) -> MappedLabel:
    """Return the label with the classes of a model that are right for it, by the rules of `class_mapping`."""
    return map_classes((label,), classes).labels[0]


def is_right(guess: str, label: str, classes: tuple[str, ...]) -> bool | None:
    """Return True if class `guess` fits a label; None if no class fits the label. Without `classes`, compare names."""
    if not classes:
        return names_label(guess, label)
    right = mapped_label(label, classes).classes
    return any(classes[number] == guess for number in right) if right else None


def no_class_words(label: str, classes: tuple[str, ...]) -> str:
    """Return a sentence on why a label fits no class of the model; "" if it fits one."""
    mapped = mapped_label(label, classes) if label and classes else None
    if mapped is None or mapped.classes:
        return ""
    return (
        f"“{label}” is not compared: {mapped.note or 'no class of the model fits'}. So the model is neither right nor "
        "wrong about it."
    )


def _of_guesses(task: Task, then: Guess, now: Guess, classes: tuple[str, ...]) -> ModelOutcome:
    answer = f"{now.label} {now.probability:.2f}"
    changed = f"{then.label} → {answer}" if then.label != now.label else answer
    if task.kind != "classification" or not task.label:
        return ModelOutcome("cannot tell", f"model: {changed}" if then.label != now.label else answer)
    before, after = is_right(then.label, task.label, classes), is_right(now.label, task.label, classes)
    if before is None or after is None:
        return ModelOutcome("cannot tell", f"model has no class for “{task.label}”: {changed}")
    if before and after:
        return ModelOutcome("right", f"model right: {answer}")
    if before:
        return ModelOutcome("fails here", f"model fails here: {then.label} → {answer}")
    if after:
        return ModelOutcome("right only here", f"model right here alone: {then.label} → {answer}")
    return ModelOutcome("wrong before too", f"model wrong before and after: {changed}")


def _of_classes(figures: Sequence[ClassFigures], masked: bool) -> ModelOutcome:
    known = [figure for figure in figures if figure.source is not None and figure.generated is not None]
    if not known:
        return ModelOutcome("cannot tell", "model knows nothing that is protected")
    lost = [figure.name for figure in known if figure.dropped and (figure.source or 0.0) >= FOUND]
    if lost:
        return ModelOutcome("fails here", f"model fails here: loses {_few(lost)}")
    if not masked:
        return ModelOutcome("right", "model sees what is protected where it saw it")
    missed = [figure.name for figure in known if (figure.generated or 0.0) < FOUND]
    if missed:
        return ModelOutcome("wrong before too", f"model misses {_few(missed)} before and after")
    gained = [figure.name for figure in known if (figure.source or 0.0) < FOUND]
    if gained:
        return ModelOutcome("right only here", f"model finds {_few(gained)} here alone")
    return ModelOutcome("right", "model finds what is protected")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} protected classes"
