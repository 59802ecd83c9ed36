"""Compare two class maps, class by class. Pure: takes pictures of class numbers, knows no models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from core.figures import Flags
from core.masks import LARGE_PIECE, MASK_KEPT, UNLABELLED, NamedMask, numbers_of
from core.predictions import DROPPED, ClassFigures
from core.thresholds import Band
from core.types import Check, Task
from core.words import classes_in

if TYPE_CHECKING:
    from scipy import sparse

THINGS_KEPT = "things kept"
"""Name of the check that single objects of the mask are still there."""
SURROUNDINGS_KEPT = "surroundings kept"
"""Name of the check that the unprotected parts of the picture are still there."""
MASK_CHECKS = (MASK_KEPT, THINGS_KEPT, SURROUNDINGS_KEPT)
SEEN = 0.5
"""Minimum share of a class or object that a segmenter must find in the source. Otherwise it cannot judge the result."""
SMALLEST_THING = 0.0012
"""Minimum size of a class or object to be checked, as a share of the mask's pixels: 20 of 128 x 128."""
MASK_BANDS: Mapping[str, Band] = dict.fromkeys(MASK_CHECKS, Band(failed_below=0.25, passed_from=0.5))
"""Default thresholds of the mask checks, for the share of a class's or object's pixels that is still found."""


def iou(
    a: Image.Image, b: Image.Image, of_a: Sequence[int], of_b: Sequence[int], ignored: int | None = None
) -> float | None:
    """Return the intersection over union (IoU), 0 to 1, of two regions: the pixels of `a` with a number in `of_a`, and
    the pixels of `b` with a number in `of_b`. `b` is first resized to `a` (nearest). Pixels of `a` with the number
    `ignored` do not count. None if both regions are empty.
    """
    numbers = np.asarray(a)
    left = np.isin(numbers, of_a)
    fitted = b if b.size == a.size else b.resize(a.size, Image.Resampling.NEAREST)
    right = np.isin(np.asarray(fitted), of_b) & (numbers != ignored if ignored is not None else True)
    union = int((left | right).sum())
    return int((left & right).sum()) / union if union else None


def share(numbers: Image.Image, of: Sequence[int]) -> float:
    """Return the share, 0 to 1, of an image's pixels whose class number is in `of`."""
    return float(np.isin(np.asarray(numbers), of).mean())


def class_figures(
    source: Image.Image,
    generated: Image.Image,
    classes: Sequence[str],
    protected: Sequence[str],
    mask: NamedMask | None = None,
) -> tuple[ClassFigures, ...]:
    """Return two IoUs of the mask for each protected class that mask and model have: with the prediction on the source,
    and with the prediction on the generated image. A missing mask is replaced by the prediction on the source.
    """
    true_map, figures = mask or NamedMask(source, dict(enumerate(classes))), []
    for name in protected:
        true, seen = numbers_of(name, true_map.classes), numbers_of(name, classes)
        if true and seen and share(true_map.image, true) > 0:
            before, after = (iou(true_map.image, image, true, seen, UNLABELLED) for image in (source, generated))
            figures.append(ClassFigures(name, before, after))
    return tuple(figures)


@dataclass(frozen=True)
class Kept:
    """An area of a mask, and the shares of this area that a segmenter finds in the source and in the result, 0 to 1."""

    name: str
    check: str
    """Name of the check for the area. Protected classes, single objects and surroundings have different checks."""
    source: float
    found: float


def kept_in_mask(
    source: Image.Image,
    found: Image.Image,
    classes: Sequence[str],
    mask: Image.Image,
    mask_classes: Mapping[int, str],
    protected: Sequence[str],
    things: Sequence[str],
    edited: Sequence[str] = (),
) -> tuple[Kept, ...]:
    """Return how much of each area of the mask a segmenter finds in the source and in the generated image. `source`
    and `found` are the segmenter's class maps of these images, in the mask's size. An area is a protected class, a
    connected piece of a protected class in `things`, or a large connected piece of another class. No area is returned
    for tiny pieces, for classes unknown to the segmenter, and for unprotected classes that a word in `edited` names.
    """
    numbers, before, after = (np.asarray(image) for image in (mask, source, found))
    guarded = {number for name in protected for number in numbers_of(name, mask_classes)}
    all_classes = Task("segmentation", protected=tuple(mask_classes.values()))
    changed = {name for words in edited for name in classes_in(words, all_classes)}
    around = [
        name for number, name in mask_classes.items() if number not in {*guarded, UNLABELLED} and name not in changed
    ]
    shares_kept = list[Kept]()

    def look(check: str, name: str, where: np.ndarray) -> None:
        seen = numbers_of(name, classes)
        if seen:
            shares = (float(np.isin(one[where], seen).mean()) for one in (before, after))
            shares_kept.append(Kept(name, check, *shares))

    for name in protected:
        where = np.isin(numbers, numbers_of(name, mask_classes))
        if where.sum() >= SMALLEST_THING * numbers.size:
            look(MASK_KEPT, name, where)
            for piece in _pieces(where, SMALLEST_THING) if name in things else ():
                look(THINGS_KEPT, name, piece)
    for name in around:
        for piece in _pieces(np.isin(numbers, numbers_of(name, mask_classes)), LARGE_PIECE):
            look(SURROUNDINGS_KEPT, name, piece)
    return tuple(shares_kept)


def hold(
    sources: sparse.csr_array,
    images: sparse.csr_array,
    classes: Sequence[str],
    mask_classes: Mapping[int, str],
    protected: Sequence[str],
    bands: Mapping[str, Band],
) -> Flags:
    """Return flags (images,): True if the image passes the mask check of `kept_in_mask` and `kept_checks`. `images` are
    each image's counts from `evaluation.answers.pairs_of_images`, and `sources` those of its source. All masks use the
    same class numbers.
    """
    line = {**MASK_BANDS, **bands}[MASK_KEPT]
    looked, holds = np.zeros(images.shape[0], bool), np.ones(images.shape[0], bool)
    whole = images.sum(axis=1)
    for name in protected:
        seen = numbers_of(name, classes)
        if not seen:
            continue
        inside, predicted = np.zeros((256, 256)), np.zeros((256, 256))
        inside[list(numbers_of(name, mask_classes))] = 1
        predicted[:, list(seen)] = 1
        large = images @ inside.ravel() >= SMALLEST_THING * whole
        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = (
                (pairs @ (inside * predicted).ravel()) / (pairs @ inside.ravel()) for pairs in (sources, images)
            )
            holds &= ~large | ((before >= SEEN) & (after >= line.passed_from))
        looked |= large
    return looked & holds


def _pieces(where: np.ndarray, smallest: float) -> Iterator[np.ndarray]:
    import cv2

    count, numbers = cv2.connectedComponents(where.astype(np.uint8))
    for one in range(1, count):
        piece = numbers == one
        if piece.sum() >= smallest * piece.size:
            yield piece


def kept_checks(shares: Sequence[Kept], bands: Mapping[str, Band]) -> tuple[Check, ...]:
    """Return up to three checks by a second segmenter: one of protected classes, one of single objects, and one of
    surroundings. Each check judges the area of which the segmenter finds the smallest share in the generated image.
    """
    lines, checks = {**MASK_BANDS, **bands}, list[Check]()
    for name in MASK_CHECKS:
        of_check = [one for one in shares if one.check == name]
        known = [one for one in of_check if one.source >= SEEN]
        unknown = list(dict.fromkeys(one.name for one in of_check if one.source < SEEN))
        if not of_check:
            continue
        if not known:
            checks.append(Check(name, None, None, f"The checking model does not find {_and(unknown)} in the source."))
            continue
        least = min(known, key=lambda one: one.found)
        much = "Much" if name == MASK_KEPT else "A piece"
        lost = f"{much} of the class “{least.name}” is no longer where the mask has it."
        check = lines[name].judge(name, least.found, lost)
        if check.passed and unknown:
            note = f"The rest is there; {_and(unknown)} the checking model does not find in the source either."
            check = Check(name, None, least.found, note, check.threshold)
        checks.append(check)
    return tuple(checks)


def _and(names: Sequence[str]) -> str:
    return " and ".join(f"“{name}”" for name in names)


def mask_check(figures: Sequence[ClassFigures]) -> Check | None:
    """Return a check: does the model under test still find the mask's classes? None without figures. Its figure is the
    mIoU (mean over protected classes, 0 to 1) of mask and prediction on the generated image. It passes if the mIoU on
    the source is at least `SEEN` and falls by less than `DROPPED`. Otherwise it is undecided: either the image is bad,
    or the model fails on a good image.
    """
    pairs = [
        (known.source, known.generated) for known in figures if known.source is not None and known.generated is not None
    ]
    if not pairs:
        return None
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    figures_said = f"The model under test finds the mask in the source at {before:.2f}, here at {after:.2f} (mIoU)"
    if before < SEEN:
        return Check(MASK_KEPT, None, after, f"{figures_said}: it is too weak on the source to tell.", SEEN)
    if before - after < DROPPED:
        return Check(MASK_KEPT, True, after, "", before - DROPPED)
    note = (
        f"{figures_said}: it fails on this image, or something protected is no longer where the mask has it. Compare "
        "mask and class map."
    )
    return Check(MASK_KEPT, None, after, note, before - DROPPED)
