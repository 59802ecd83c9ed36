"""How well two class maps agree, class by class. Pure; takes images of class numbers, knows no models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pipeline.types import Task
from pipeline.words import classes_in

DROPPED = 0.15
"""A figure that fell by this much or more is worth a look: a border redrawn a pixel off costs a small thing nearly that
much, and is no failure."""


@dataclass(frozen=True)
class ClassFigures:
    """One protected class before and after, each figure 0 to 1; None where the class is on neither side."""

    name: str
    source: float | None
    generated: float | None

    @property
    def dropped(self) -> bool:
        """Whether the model under test lost a good part of it."""
        return self.source is not None and self.generated is not None and self.source - self.generated >= DROPPED


def iou(a: Image.Image, b: Image.Image, of_a: Sequence[int], of_b: Sequence[int]) -> float | None:
    """Intersection over union of the pixels of `a` whose number is in `of_a` and those of `b` in `of_b`, 0 to 1.

    `b` is brought to the size of `a` (nearest). None when there is no such pixel in either.
    """
    left = np.isin(np.asarray(a), of_a)
    fitted = b if b.size == a.size else b.resize(a.size, Image.Resampling.NEAREST)
    right = np.isin(np.asarray(fitted), of_b)
    union = int((left | right).sum())
    return int((left & right).sum()) / union if union else None


def share(numbers: Image.Image, of: Sequence[int]) -> float:
    """How much of an image its pixels with these numbers cover, 0 to 1."""
    return float(np.isin(np.asarray(numbers), of).mean())


def numbers_of(protected: str, classes: Mapping[int, str] | Sequence[str]) -> tuple[int, ...]:
    """The numbers of the classes that stand for a protected class: of its name, or else its kinds (car: vehicle)."""
    named = tuple(classes.items() if isinstance(classes, Mapping) else enumerate(classes))
    same = tuple(number for number, name in named if name.casefold() == protected.casefold())
    task = Task("segmentation", protected=(protected,))
    return same or tuple(number for number, name in named if classes_in(name, task))


def against_mask(
    source: Image.Image,
    generated: Image.Image,
    classes: Sequence[str],
    mask: Image.Image,
    mask_classes: Mapping[int, str],
    protected: Sequence[str],
) -> tuple[ClassFigures, ...]:
    """IoU of what a model sees in source and generated image (class numbers each) with the mask, which is true of both.

    One entry for every protected class that the mask and the model both know.
    """
    figures = []
    for name in protected:
        true, seen = numbers_of(name, mask_classes), numbers_of(name, classes)
        if true and seen and share(mask, true) > 0:
            figures.append(ClassFigures(name, iou(mask, source, true, seen), iou(mask, generated, true, seen)))
    return tuple(figures)


def without_mask(
    source: Image.Image, generated: Image.Image, classes: Sequence[str], protected: Sequence[str]
) -> tuple[ClassFigures, ...]:
    """Where there is no mask: 1 for the source, and for the generated image how well it agrees with the source (IoU of
    the two class maps). Nothing that is protected may move, so a model that is right about one is right about both.
    """
    figures = []
    for name in protected:
        seen = numbers_of(name, classes)
        if seen and share(source, seen) > 0:
            figures.append(ClassFigures(name, 1.0, iou(source, generated, seen, seen)))
    return tuple(figures)
