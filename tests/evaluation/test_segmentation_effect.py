"""Figures of a segmenter under test, compared with scikit-learn and worked examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.evaluation_results import SegmentationEffect
from core.figures import Floats
from core.predictions import DROPPED, ClassFigures
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG
from evaluation.segmentation import (
    IGNORED,
    Pixels,
    at_least,
    confusion,
    iou,
    iou_in_masks,
    loss_effect,
    lost_by,
    mean_iou,
    missed_by,
    right_pixels,
    segmentation_effect,
)

NAMES = ("road", "vehicle", "pedestrian")


def maps(chance: np.random.Generator, wrong: float, size: int = 24) -> Floats:
    """Return the confusion matrix of a random image in which this share of the pixels is predicted wrong."""
    truth = chance.integers(0, 3, (size, size)).astype(np.uint8)
    said = np.where(chance.random(truth.shape) < wrong, (truth + 1) % 4, truth).astype(np.uint8)
    return confusion(truth, said, 3)


def pixels(chance: np.random.Generator, source: list[int], wrong: float) -> Pixels:
    """Return the confusion matrices of images of these sources."""
    return Pixels(np.array(source), np.stack([maps(chance, wrong) for _ in source]))


def an_effect(control: bool = True) -> tuple[SegmentationEffect, Pixels, Pixels]:
    """Return a segmenter's figures: a little worse on reconstructions, and much worse on test cases."""
    chance, sources = np.random.default_rng(4), list(range(30))
    original, generated = pixels(chance, sources, 0.1), pixels(chance, sources * 3, 0.5)
    drawn = pixels(chance, sources, 0.2) if control else None
    kept = np.arange(90) < 60
    found = segmentation_effect(original, generated, drawn, kept, NAMES, ["train"] * 30)
    return found, original, generated


def test_the_matrix_and_its_ious_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import confusion_matrix, jaccard_score

    chance = np.random.default_rng(1)
    truth, said = (chance.integers(0, 3, 5000).astype(np.uint8) for _ in range(2))
    counts = confusion(truth, said, 3)
    assert (counts[:, :3] == confusion_matrix(truth, said)).all() and not counts[:, 3].any()
    assert iou(counts) == pytest.approx(jaccard_score(truth, said, average=None))
    assert mean_iou(counts) == pytest.approx(jaccard_score(truth, said, average="macro"))


def test_ignored_pixels_other_classes_and_classes_that_are_nowhere() -> None:
    truth = np.array([0, 0, 1, IGNORED, 1], dtype=np.uint8)
    said = np.array([0, 9, 1, 0, 0], dtype=np.uint8)
    counts = confusion(truth, said, 3)
    assert counts.tolist() == [[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0]]
    assert iou(counts)[:2] == pytest.approx([1 / 3, 1 / 2]) and np.isnan(iou(counts)[2])
    assert mean_iou(counts) == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert np.isnan(mean_iou(np.zeros((3, 4))))
    with pytest.raises(ValueError, match="not compared"):
        confusion(truth, said[:2], 3)


def test_what_the_edits_cost_is_what_exceeds_drawing() -> None:
    found, original, generated = an_effect()
    before, after = mean_iou(original.counts.sum(axis=0)), mean_iou(generated.counts.sum(axis=0))
    assert found.miou_original.value == pytest.approx(before) and found.miou_generated.value == pytest.approx(after)
    assert found.difference.value == pytest.approx(after - before)
    assert found.excess.value == pytest.approx(after - (found.miou_reconstructed.value or 0.0))
    assert found.excess.high is not None and found.excess.high < 0
    assert found.kept == 60 and found.miou_where_kept.n == 60
    for name, row in zip(NAMES, found.classes, strict=True):
        assert row.name == name and row.iou_generated is not None and row.iou_original is not None
        assert row.iou_generated < row.iou_original
    assert found.confusion_generated.sum(axis=1) == pytest.approx(1.0)


def test_without_reconstructions_or_images_it_says_so() -> None:
    found, *_ = an_effect(control=False)
    assert found.excess.why == "there are no reconstructions of these sources"
    assert found.classes[0].iou_reconstructed is None
    none = Pixels(np.zeros(0, dtype=np.int64), np.zeros((0, 3, 4)))
    empty = segmentation_effect(none, none, None, np.zeros(0, dtype=bool), NAMES, [])
    assert empty.miou_generated.why == "there is nothing to count" and empty.classes[0].iou_original is None
    with pytest.raises(ValueError, match="train, val"):
        segmentation_effect(none, none, None, np.zeros(0, dtype=bool), NAMES, ["train", "val"])


ROAD, VEHICLE, PEDESTRIAN = ([1, 0, 0], [0, 1, 0], [0, 0, 1])


def image(*found: float) -> Floats:
    """Return the confusion matrix of an image in which this share of each class is found, and the rest is predicted
    as no class. A class with the share NaN has no pixel.
    """
    counts = np.zeros((3, 4))
    for row, share in enumerate(found):
        if np.isfinite(share):
            counts[row, row], counts[row, 3] = 100 * share, 100 * (1 - share)
    return counts


def of(sources: list[int], *images: Floats) -> Pixels:
    return Pixels(np.array(sources, np.int64), np.stack(images) if images else np.zeros((0, 3, 4)))


def test_a_class_is_lost_where_it_was_found_and_falls_by_enough() -> None:
    nan = np.nan
    original = of([0, 1, 2], image(0.9, 0.1, nan), image(0.9, 0.9, 0.9), image(0.1, 0.1, 0.1))
    cases = of(
        [0, 0, 1, 1, 1, 2, 3],
        image(0.76, 0.0, nan),  # the road falls by less than the limit, and the vehicle was not found before
        image(0.7, 0.9, nan),
        image(0.5, 0.2, 0.9),  # road and vehicle fall, the vehicle more
        image(0.9, 0.9, 0.2),
        image(0.2, 0.9, 0.9),
        image(0.0, 0.0, 0.0),  # the original of this case shows nothing found
        image(0.0, 0.0, 0.0),  # the original of this case was not read
    )
    protected = np.array([[True, True, True]] * 4 + [[False, True, True]] + [[True, True, True]] * 2)
    singles = [(0,), (1,), (2,)]
    held = lost_by(original, cases, protected, singles)
    assert held.right.tolist() == [RIGHT, WRONG, WRONG, WRONG, RIGHT, UNKNOWN, UNKNOWN]
    assert held.most.tolist() == [-1, 0, 1, 2, -1, -1, -1]
    assert held.lost.tolist() == [
        *([False] * 3, ROAD, [1, 1, 0], PEDESTRIAN, [False] * 3, [False] * 3, [False] * 3),
    ]
    before, after = iou_in_masks(original, singles), iou_in_masks(cases, singles)
    for row, source in enumerate(cases.source[:6].tolist()):
        for column in np.flatnonzero(protected[row]).tolist():
            pair = (float(before[source, column]), float(after[row, column]))
            if np.isfinite(pair).all():
                figures = ClassFigures("", *pair)
                assert held.could[row, column] == figures.found and held.lost[row, column] == figures.dropped
    missed = missed_by(original, np.ones((3, 3), bool), singles)
    assert missed.right.tolist() == [WRONG, RIGHT, WRONG] and missed.most.tolist() == [1, -1, 0]
    assert missed_by(original, np.zeros((3, 3), bool), singles).right.tolist() == [UNKNOWN] * 3

    effect = loss_effect(missed, held, None, NAMES, ["test"] * 4)
    assert (effect.sources, effect.cases, effect.left_out, effect.newly_wrong) == (2, 5, 2, 2)
    assert effect.generated.value == pytest.approx((1 / 2 + 2 / 3) / 2) and effect.missed.value == 1 / 2
    assert effect.excess.why == "there are no reconstructions of these sources"
    assert [(one.name, one.lost, one.cases) for one in effect.classes] == [
        *(("road", 2, 4), ("vehicle", 1, 3), ("pedestrian", 1, 3)),
    ]
    drawn = lost_by(original, of([0, 1], image(0.9, 0.1, nan), image(0.1, 0.9, 0.9)), np.ones((2, 3), bool), singles)
    both = loss_effect(missed, held, drawn, NAMES, ["test"] * 4)
    assert both.reconstructed.value == 1 / 2 and both.excess.value == pytest.approx(7 / 12 - 1 / 2)
    assert both.classes[0].lost_in_controls == 1 and both.classes[0].controls == 2


def test_several_groups_are_one_class_where_one_name_means_them_all() -> None:
    counts = np.array([[[10, 0, 0, 0], [0, 4, 6, 0], [0, 5, 5, 0]]], np.float64)
    together = iou_in_masks(of([0], *counts), [(1,), (1, 2), ()])
    assert together[0, 0] == pytest.approx(4 / 15) and together[0, 1] == 1.0 and np.isnan(together[0, 2])
    assert right_pixels(of([0], *counts)).tolist() == [19 / 30] and np.isnan(right_pixels(of([0], np.zeros((3, 4))))[0])


def test_nothing_is_lost_where_nothing_is_there() -> None:
    none, nobody = of([]), np.zeros((0, 3), bool)
    held = lost_by(none, none, nobody, [(0,), (1,), (2,)])
    effect = loss_effect(missed_by(none, nobody, [(0,), (1,), (2,)]), held, None, NAMES, [])
    assert effect.generated.why == "there is nothing to count" and not effect.classes
    without = lost_by(of([0], image(1, 1, 1)), of([0], image(0, 0, 0)), np.zeros((1, 0), bool), [])
    assert without.right.tolist() == [UNKNOWN] and DROPPED > 0


def test_a_cell_above_zero_has_images() -> None:
    chance = np.random.default_rng(9)
    held = pixels(chance, [0] * 20, 0.4)
    equal = Pixels(np.zeros(7, np.int64), np.stack([maps(np.random.default_rng(2), 0.3)] * 7))
    for one in (held, equal):
        whole = one.counts.sum(axis=0)
        shares = whole / whole.sum(axis=1, keepdims=True)
        opened = at_least(one.counts, shares, one.counts.sum(axis=2))
        assert (opened.any(axis=0) == (shares > 0)).all()
        own = one.counts / one.counts.sum(axis=2, keepdims=True)
        assert own[opened].min() >= 0 and (own[~opened] < np.broadcast_to(shares, own.shape)[~opened] + 1e-12).all()


def test_pixels_of_each_test_case_are_compared_with_those_of_the_control_of_its_own_way() -> None:
    original = of([0, 1], image(1, 1, 1), image(1, 1, 1))
    cases = of([0, 0, 0, 1, 1], *(image(share, share, share) for share in (0.5, 0.7, 0.2, 0.6, 0.1)))
    control = of([0, 0, 1], *(image(share, share, share) for share in (0.9, 0.4, 0.8)))
    ways = np.array([0, 0, 1, 0, -1]), np.array([0, 1, 0])
    mixed = replace(cases, way=ways[0]), replace(control, way=ways[1])
    found = segmentation_effect(original, *mixed, np.zeros(5, bool), NAMES, [""] * 2)
    # No pixel is predicted as another class, so the IoU equals the share found.
    assert found.miou_generated_controlled.value == pytest.approx(((0.5 + 0.7 + 0.2) / 3 + 0.6) / 2)
    assert found.miou_reconstructed.value == pytest.approx(((2 * 0.9 + 0.4) / 3 + 0.8) / 2)
    assert found.miou_generated.value == pytest.approx(((0.5 + 0.7 + 0.2) / 3 + (0.6 + 0.1) / 2) / 2)
    none = segmentation_effect(
        original, replace(cases, way=ways[0] * 0 - 1), mixed[1], np.zeros(5, bool), NAMES, [""] * 2
    )
    assert none.excess.why == "no reconstruction of these sources can be compared" and not none.controlled
