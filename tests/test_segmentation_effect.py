"""Figures of a segmenter under test: against scikit-learn and worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, jaccard_score

from evaluation.by_source import Floats
from evaluation.segmentation import IGNORED, Pixels, SegmentationEffect, confusion, iou, mean_iou, segmentation_effect

NAMES = ("road", "vehicle", "pedestrian")


def maps(chance: np.random.Generator, wrong: float, size: int = 24) -> Floats:
    """The confusion matrix of one image of which so much is said wrong."""
    truth = chance.integers(0, 3, (size, size)).astype(np.uint8)
    said = np.where(chance.random(truth.shape) < wrong, (truth + 1) % 4, truth).astype(np.uint8)
    return confusion(truth, said, 3)


def pixels(chance: np.random.Generator, source: list[int], wrong: float) -> Pixels:
    """Images of these sources."""
    return Pixels(np.array(source), np.stack([maps(chance, wrong) for _ in source]))


def an_effect(control: bool = True) -> tuple[SegmentationEffect, Pixels, Pixels]:
    """A segmenter that is a little worse on reconstructions, and much worse on test cases."""
    chance, sources = np.random.default_rng(4), list(range(30))
    original, generated = pixels(chance, sources, 0.1), pixels(chance, sources * 3, 0.5)
    drawn = pixels(chance, sources, 0.2) if control else None
    kept = np.arange(90) < 60
    found = segmentation_effect(original, generated, drawn, kept, NAMES, ["train"] * 30)
    return found, original, generated


def test_the_matrix_and_its_ious_are_those_of_scikit_learn() -> None:
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
