"""How well a segmenter under test finds what is in the masks of generated images, beside their sources (the paper's
RQ2). Pure: takes counts of pixels, knows no images.

The intersection over union of a class is that of all pixels of a set, from one confusion matrix; the mean over images
of what it is on each is another figure, and is not made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.by_source import Figure, Floats, interval, one_split

IGNORED = 255
"""The number of a pixel in a mask that counts nowhere."""
SAMPLES = 2000
"""Resamples of sources: each has a matrix of its own here."""


@dataclass(frozen=True)
class Pixels:
    """Confusion matrices of images, one each."""

    source: NDArray[np.int64]
    """The number of the source of each image, from 0."""
    counts: Floats
    """(images, classes, classes + 1): pixels of a class, and what the model says of them; the last column is what is
    none of the classes."""

    def __len__(self) -> int:
        return len(self.source)

    def where(self, wanted: NDArray[np.bool_]) -> Pixels:
        """Those that are wanted."""
        return Pixels(self.source[wanted], self.counts[wanted])


@dataclass(frozen=True)
class SegmentedClass:
    """One class."""

    name: str
    iou_original: float | None
    """0 to 1; None where neither masks nor model have the class."""
    iou_generated: float | None
    iou_reconstructed: float | None
    accuracy_original: float | None
    """The share of its pixels that the model finds, 0 to 1; None where the masks have none."""
    accuracy_generated: float | None


@dataclass(frozen=True)
class SegmentationEffect:
    """Where a segmenter breaks. All figures are shares, 0 to 1; mIoU is the mean over classes that are there."""

    split: str
    sources: int
    cases: int
    miou_original: Figure
    miou_generated: Figure
    miou_reconstructed: Figure
    difference: Figure
    """Generated less original."""
    excess: Figure
    """Generated less reconstructed."""
    miou_where_kept: Figure
    """Generated, of those images whose mask demonstrably holds."""
    kept: int
    """How many those are."""
    classes: tuple[SegmentedClass, ...]
    confusion_original: Floats
    """(classes, classes + 1), in shares of the pixels of a row; NaN for a class that no mask has."""
    confusion_generated: Floats


def confusion(truth: NDArray[np.uint8], said: NDArray[np.uint8], classes: int) -> Floats:
    """How many pixels of each class are said to be what: (classes, classes + 1). Both are class numbers of one shape;
    in `truth`, numbers from `classes` on are ignored, in `said` they are none of the classes.
    """
    if truth.shape != said.shape:
        raise ValueError(f"a mask of {truth.shape} is not compared with a class map of {said.shape}")
    inside = truth < classes
    named = np.minimum(said[inside].astype(np.int64), classes)
    place = truth[inside].astype(np.int64) * (classes + 1) + named
    return np.bincount(place, minlength=classes * (classes + 1)).reshape(classes, classes + 1).astype(np.float64)


def iou(counts: Floats) -> Floats:
    """The intersection over union of each class, (..., classes), of counts (..., classes, classes + 1); NaN for a class
    that is neither in the masks nor said.
    """
    hit = np.diagonal(counts, axis1=-2, axis2=-1)
    union = counts.sum(axis=-1) + counts.sum(axis=-2)[..., :-1] - hit
    return np.divide(hit, union, out=np.full(union.shape, np.nan), where=union > 0)


def mean_iou(counts: Floats) -> Floats:
    """The mean over the classes that there are, (...); NaN where there is none."""
    found = iou(counts)
    there = np.isfinite(found)
    number = there.sum(axis=-1)
    total = np.where(there, found, 0.0).sum(axis=-1)
    return np.divide(total, number, out=np.full(number.shape, np.nan), where=number > 0)


def segmentation_effect(
    original: Pixels,
    generated: Pixels,
    reconstructed: Pixels | None,
    kept: NDArray[np.bool_],
    names: Sequence[str],
    splits: Sequence[str],
    seed: int = 0,
) -> SegmentationEffect:
    """All figures. `original` has one image a source; `kept` says of each generated image whether its mask demonstrably
    holds. Intervals by a bootstrap over sources. Raises ValueError for sources of several splits.
    """
    split = one_split(splits)
    both = np.intersect1d(original.source, generated.source)
    wanted = np.isin(generated.source, both)
    kept, cases = kept[wanted], generated.where(wanted)
    first = original.where(np.isin(original.source, both))
    size = len(names) * (len(names) + 1)

    def sums(pixels: Pixels) -> Floats:
        held = np.zeros((len(both), size))
        np.add.at(held, np.searchsorted(both, pixels.source), pixels.counts.reshape(len(pixels), size))
        return held

    def matrix(held: Floats, at: int = 0) -> Floats:
        return held[..., at * size : (at + 1) * size].reshape(*held.shape[:-1], len(names), len(names) + 1)

    def figure(pixels: Pixels) -> Figure:
        some = sums(pixels)
        some = some[np.isin(both, pixels.source)]
        return interval(some, lambda held: mean_iou(matrix(held)), len(pixels), seed, SAMPLES)

    def less(one: Pixels, other: Pixels) -> Figure:
        pair = np.concatenate([sums(one), sums(other)], axis=1)[np.isin(both, other.source)]
        return interval(pair, lambda held: mean_iou(matrix(held)) - mean_iou(matrix(held, 1)), len(one), seed, SAMPLES)

    nothing = Figure(None, why="there are no reconstructions of these sources")
    control = reconstructed.where(np.isin(reconstructed.source, both)) if reconstructed is not None else None
    has_control = control is not None and len(control) > 0
    before, after = first.counts.sum(axis=0), cases.counts.sum(axis=0)
    drawn = control.counts.sum(axis=0) if control is not None and has_control else None
    return SegmentationEffect(
        split=split,
        sources=len(both),
        cases=len(cases),
        miou_original=figure(first),
        miou_generated=figure(cases),
        miou_reconstructed=figure(control) if control is not None and has_control else nothing,
        difference=less(cases, first),
        excess=less(cases, control) if control is not None and has_control else nothing,
        miou_where_kept=figure(cases.where(kept)),
        kept=int(kept.sum()),
        classes=_classes(names, before, after, drawn),
        confusion_original=_shares(before),
        confusion_generated=_shares(after),
    )


def _classes(names: Sequence[str], before: Floats, after: Floats, drawn: Floats | None) -> tuple[SegmentedClass, ...]:
    found = [iou(before), iou(after), iou(drawn) if drawn is not None else np.full(len(names), np.nan)]
    found += [np.diagonal(_shares(before)), np.diagonal(_shares(after))]
    return tuple(
        SegmentedClass(name, *(None if np.isnan(column[at]) else float(column[at]) for column in found))
        for at, name in enumerate(names)
    )


def _shares(counts: Floats) -> Floats:
    whole = counts.sum(axis=-1, keepdims=True)
    return np.divide(counts, whole, out=np.full(counts.shape, np.nan), where=whole > 0)
