"""Compare how well a segmenter agrees with masks on generated images and on their sources (the paper's RQ2). Pure:
takes counts of pixels, knows no images.

The intersection over union (IoU) of a class is computed over all pixels of a set, from one confusion matrix, not
averaged over images. In this matrix, either all sources or all test cases have the same weight (see
`evaluation.effectiveness`). Other figures count protected classes that a segmenter loses on an image (see `lost_by`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import LossEffect, LostClass, SegmentationEffect, SegmentedClass, Weighing
from core.figures import Columns, Figure, Flags, Floats, Numbers, ratio
from core.predictions import DROPPED
from evaluation.by_source import MeansOfSources, Unseen, matched, one_split
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, Answers, effectiveness, no_control_words

IGNORED = 255
"""Value of mask pixels that are not counted."""
ROUNDING = 1e-9
"""Relative tolerance for shares that are equal apart from rounding."""


@dataclass(frozen=True)
class Pixels(Columns):
    """Confusion matrices, one per image. `source` and `way` are the numbers of the image's source and control set."""

    source: Numbers
    counts: Floats
    """(images, classes, classes + 1): pixels by true class and predicted class. The last column counts pixels predicted
    as no class."""
    way: Numbers | None = None

    @cached_property
    def true(self) -> Floats:
        """Number of pixels of each true class, (images, classes)."""
        return np.einsum("ijk->ij", self.counts)  # four times as fast as `sum`

    @cached_property
    def said(self) -> Floats:
        """Number of pixels predicted as each class, and as none, (images, classes + 1)."""
        return np.einsum("ijk->ik", self.counts)

    @property
    def right(self) -> Floats:
        """Number of right pixels of each class, (images, classes)."""
        return np.diagonal(self.counts, axis1=-2, axis2=-1)


@dataclass(frozen=True)
class Losses:
    """Protected classes that a segmenter finds on the original but not on an image. `way` is an image's control set."""

    source: Numbers
    right: NDArray[np.int8]
    """`WRONG` if the segmenter loses a class, `RIGHT` if it loses none, `UNKNOWN` if no class could be lost."""
    lost: Flags
    """(images, classes): True if the segmenter loses the class. For originals, True if it does not find the class."""
    could: Flags
    """(images, classes): True if the segmenter could lose the class. For originals, True if the mask has the class."""
    most: Numbers
    """Index of the class with the largest loss of IoU; -1 if no class is lost."""
    way: Numbers | None = None

    @property
    def answers(self) -> Answers:
        """Results as `Answers`. An answer is wrong if a class is lost. It has no predicted label and confidence 0."""
        return Answers(self.source, self.right, np.full(len(self.source), -1), np.zeros(len(self.source)), self.way)


def confusion(truth: NDArray[np.uint8], predicted: NDArray[np.uint8], classes: int) -> Floats:
    """Return pixel counts by true and predicted class, (classes, classes + 1). Only pixels with a true class count."""
    if truth.shape != predicted.shape:
        raise ValueError(f"a mask of {truth.shape} is not compared with a class map of {predicted.shape}")
    inside = truth < classes
    named = np.minimum(predicted[inside].astype(np.int64), classes)
    place = truth[inside].astype(np.int64) * (classes + 1) + named
    return np.bincount(place, minlength=classes * (classes + 1)).reshape(classes, classes + 1).astype(np.float64)


def iou(counts: Floats) -> Floats:
    """Return each class's IoU, (..., classes), from pixel counts (..., classes, classes + 1); NaN for absent ones."""
    hit, union = _hit_and_union(counts)
    return ratio(hit, union)


def mean_iou(counts: Floats) -> Floats:
    """Return the mean IoU of present classes, (...), from pixel counts (..., classes, classes + 1); NaN without any."""
    return _mean_of_ratios(*_hit_and_union(counts))


def _hit_and_union(counts: Floats) -> tuple[Floats, Floats]:
    hit = np.diagonal(counts, axis1=-2, axis2=-1)
    return hit, counts.sum(axis=-1) + counts.sum(axis=-2)[..., :-1] - hit


def _mean_of_ratios(hit: Floats, union: Floats) -> Floats:
    present = union > 0
    total = np.divide(hit, union, out=np.zeros_like(union), where=present).sum(axis=-1)
    number = present.sum(axis=-1)
    return ratio(total, number)


def segmentation_effect(
    original: Pixels,
    generated: Pixels,
    reconstructed: Pixels | None,
    mask_holds: Flags,
    names: Sequence[str],
    splits: Sequence[str],
    weighing: Weighing = "source",
) -> SegmentationEffect:
    """Return all figures on the quality of a segmenter. `original` has one image per source. `mask_holds` is True for
    generated images that still show their mask's classes, by a check. Raises ValueError for sources of several splits.
    """
    split = one_split(splits)
    both = np.intersect1d(original.source, generated.source)
    with_original = np.isin(generated.source, both)
    mask_holds, cases = mask_holds[with_original], generated.where(with_original)
    first = original.where(np.isin(original.source, both))
    control = reconstructed.where(np.isin(reconstructed.source, both)) if reconstructed is not None else None
    of_first, of_cases, weight, has_own = _overlaps(first), _overlaps(cases), None, None
    if control is not None and cases.way is not None and control.way is not None:
        has_own, weight = matched(cases.source, cases.way, control.source, control.way)
        control, weight = control.where(weight > 0), weight[weight > 0]
    sets = {
        "original": (first.source, of_first),
        "generated": (cases.source, of_cases),
        "kept": (cases.source[mask_holds], of_cases[mask_holds]),
    }
    if control is not None and len(control):
        sets["control"] = control.source, _overlaps(control)
        has_control = [np.isin(source, control.source) for source in (first.source, cases.source)]
        has_control[1] = has_control[1] if has_own is None else has_own
        if not all(one.all() for one in has_control):  # otherwise they equal the full sets
            sets["original beside"] = first.source[has_control[0]], of_first[has_control[0]]
            sets["generated beside"] = cases.source[has_control[1]], of_cases[has_control[1]]
    cases_of = np.bincount(cases.source, minlength=int(both.max(initial=-1)) + 1)

    def weights(name: str) -> Floats:
        source, _ = sets[name]
        alike = np.bincount(source, minlength=len(cases_of))[source]
        if name == "control" and weight is not None:
            alike = np.bincount(source, weights=weight)[source] / weight
        if weighing == "source":
            return 1.0 / alike
        return np.ones(len(source)) if name == "kept" else cases_of[source] / alike

    weighed = {name: weights(name) for name in sets}
    of_source = cases_of[both].astype(np.float64) if weighing == "case" else np.ones(len(both))
    means = means_of_overlaps(
        [_by_source(source, values, weighed[name], both) for name, (source, values) in sets.items()], of_source
    )
    place = {name: at for at, name in enumerate(sets)}

    def figure(name: str, less: str = "") -> Figure:
        if "control" not in sets and (name == "control" or name.endswith(" beside")):
            return Figure(None, why=no_control_words(reconstructed))
        name = name if name in sets else name.removesuffix(" beside")
        source, _ = sets[name]

        def statistic(of: Floats) -> Floats:
            value = miou_of_set(of, place[name], len(names))
            return value - miou_of_set(of, place[less], len(names)) if less else value

        return means.figure(statistic, len(source), len(np.unique(source)))

    matrices = {"original": first.counts, "generated": cases.counts}
    if control is not None and "control" in sets:
        matrices["control"] = control.counts
    counts = {name: np.tensordot(weighed[name], matrix, 1) for name, matrix in matrices.items()}
    return SegmentationEffect(
        split=split,
        weighing=weighing,
        sources=len(both),
        cases=len(cases),
        miou_original=figure("original"),
        miou_generated=figure("generated"),
        difference=figure("generated", less="original"),
        controlled=len(np.unique(control.source)) if control is not None else 0,
        miou_original_controlled=figure("original beside"),
        miou_generated_controlled=figure("generated beside"),
        miou_reconstructed=figure("control"),
        excess=figure("generated beside", less="control"),
        miou_where_kept=figure("kept"),
        kept=int(mask_holds.sum()),
        classes=_classes(names, counts["original"], counts["generated"], counts.get("control")),
        confusion_original=_shares(counts["original"]),
        confusion_generated=_shares(counts["generated"]),
    )


def means_of_overlaps(sets: Sequence[Floats], weights: Floats) -> MeansOfSources:
    """Return mean overlaps over sources. Each array in `sets` is (sources, 2 x classes): first each class's
    intersection, then each class's union, as weighted sums over a source's images. `weights` are the sources' weights.

    For the intervals, one additional source represents unseen sources. On this source, a segmenter finds each class
    fully or not at all. The area of the class is sum(area x area) / sum(area) over the known sources. With the plain
    mean area, intervals would be too short if areas differ.
    """
    classes = sets[0].shape[1] // 2
    squares = (np.einsum("ij,ij,i->j", one, one, 1 / weights) for one in sets)
    usual = np.concatenate([np.nan_to_num(ratio(own, one.sum(axis=0))) for own, one in zip(squares, sets, strict=True)])
    union = np.tile(np.arange(2 * classes) >= classes, len(sets))
    best = np.where(union, usual, np.roll(usual, -classes))
    unseen = Unseen(np.where(union, best, 0.0), best, np.repeat(np.arange(len(sets)), 2 * classes))
    return MeansOfSources(np.concatenate(sets, axis=1) / weights[:, None], weights, unseen=unseen)


def miou_of_set(means: Floats, place: int, classes: int) -> Floats:
    """Return the mIoU, of shape (...), of the set at index `place`, from mean overlaps (..., sets x 2 x classes)."""
    overlaps = means[..., 2 * classes * place : 2 * classes * (place + 1)]
    return _mean_of_ratios(*np.split(overlaps, 2, axis=-1))


def _overlaps(pixels: Pixels) -> Floats:
    """Return pixel counts, (images, 2 x classes): the intersection of each class, then the union of each class."""
    return np.concatenate([pixels.right, pixels.true + pixels.said[:, :-1] - pixels.right], axis=1)


def _by_source(source: Numbers, values: Floats, weights: Floats, sources: Numbers) -> Floats:
    from scipy import sparse

    place = np.searchsorted(sources, source)
    of_source = sparse.csr_array((weights, (place, np.arange(len(place)))), (len(sources), len(place)))
    return of_source @ values


def _classes(names: Sequence[str], before: Floats, after: Floats, drawn: Floats | None) -> tuple[SegmentedClass, ...]:
    found = [iou(before), iou(after), iou(drawn) if drawn is not None else np.full(len(names), np.nan)]
    found += [np.diagonal(_shares(before)), np.diagonal(_shares(after))]
    return tuple(
        SegmentedClass(name, *(None if np.isnan(column[at]) else float(column[at]) for column in found))
        for at, name in enumerate(names)
    )


def _shares(counts: Floats) -> Floats:
    return ratio(counts, counts.sum(axis=-1, keepdims=True))


def right_pixels(pixels: Pixels) -> Floats:
    """Return the share of right pixels of each image, (images,); NaN if no pixel of the image counts."""
    return ratio(pixels.right.sum(axis=-1), pixels.true.sum(axis=-1))


def iou_in_masks(pixels: Pixels, classes: Sequence[Sequence[int]]) -> Floats:
    """Return each class's IoU, (images, classes); NaN if a mask lacks it. `classes`: the pixel groups of each class."""
    here, predicted, hit = (np.zeros((len(pixels), len(classes))) for _ in range(3))
    for place, own in enumerate(classes):
        here[:, place], predicted[:, place] = (one[:, list(own)].sum(axis=1) for one in (pixels.true, pixels.said))
        hit[:, place] = sum(pixels.counts[:, one, other] for one in own for other in own)
    return np.divide(hit, here + predicted - hit, out=np.full(here.shape, np.nan), where=here > 0)


def missed_by(originals: Pixels, protected: Flags, classes: Sequence[Sequence[int]]) -> Losses:
    """Return the protected classes that a segmenter does not find on originals: their IoU is below `DROPPED`.
    `protected`, (originals, classes), is True for protected classes. `classes` has the pixel groups of each class.
    """
    ious = iou_in_masks(originals, classes)
    present = protected & np.isfinite(ious)
    missed = present & (ious < DROPPED)
    return _losses(originals.source, present, missed, 1.0 - ious)


def lost_by(originals: Pixels, images: Pixels, protected: Flags, classes: Sequence[Sequence[int]]) -> Losses:
    """Return the classes that a segmenter loses on images. A class is lost if it is found on the original, and its IoU
    falls by `DROPPED` or more on the image. `protected`, (images, classes), marks the classes that count. `classes` has
    the pixel groups of each class. Without an original, no class can be lost.
    """
    ious = np.full(
        (int(max(originals.source.max(initial=-1), images.source.max(initial=-1))) + 1, len(classes)), np.nan
    )
    ious[originals.source] = iou_in_masks(originals, classes)
    before, after = ious[images.source], iou_in_masks(images, classes)
    with np.errstate(invalid="ignore"):
        lost = protected & (before >= DROPPED) & np.isfinite(after)
        fall = before - after
        return _losses(images.source, lost, lost & (fall >= DROPPED), fall)


def _losses(source: Numbers, could: Flags, lost: Flags, much: Floats) -> Losses:
    any_lost = lost.any(axis=1)
    right = np.where(could.any(axis=1), np.where(any_lost, WRONG, RIGHT), UNKNOWN).astype(np.int8)
    most = np.full(len(source), -1)
    if lost.shape[1]:
        most = np.where(any_lost, np.where(lost, much, -np.inf).argmax(axis=1), -1)
    return Losses(source, right, lost, could, most)


def loss_effect(
    original: Losses,
    generated: Losses,
    reconstructed: Losses | None,
    names: Sequence[str],
    splits: Sequence[str],
    weighing: Weighing = "source",
) -> LossEffect:
    """Return all figures on the classes that a segmenter loses. Classes with equal names count as one."""
    nothing = np.zeros(len(splits), np.int64)
    control = reconstructed.answers if reconstructed is not None else None
    whole = effectiveness(original.answers, generated.answers, control, nothing, ("",), splits, weighing)

    none = np.zeros((1, len(names)), bool)
    control_flags = (none, none) if reconstructed is None else (reconstructed.could, reconstructed.lost)
    flags = generated.could, generated.lost, *control_flags
    by_name = {name: [place for place, one in enumerate(names) if one == name] for name in names}
    classes = [LostClass(name, *(int(one[:, places].sum()) for one in flags)) for name, places in by_name.items()]
    return LossEffect(
        sources=whole.sources,
        cases=whole.cases,
        left_out=int((generated.right == UNKNOWN).sum()),
        missed=whole.error_original,
        generated=whole.error_generated,
        controlled=whole.controlled,
        generated_controlled=whole.error_generated_controlled,
        reconstructed=whole.error_reconstructed,
        excess=whole.excess,
        newly_wrong=whole.flips.newly_wrong,
        together=whole.together,
        clustering=whole.clustering,
        classes=tuple(one for one in classes if one.cases or one.controls),
    )


def at_least(part: Floats, shares: Floats, whole: Floats) -> Flags:
    """Return flags (images, classes, answers). A flag is True if the answer's share of the class's pixels in the image
    is above 0, and at least the answer's share in all images: `shares`, (classes, answers). `part` has each image's
    pixels by class and answer. `whole` has each image's pixels by class.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray((part > 0) & (part >= shares * whole[..., None] * (1 - ROUNDING)))
