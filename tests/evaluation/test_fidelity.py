"""KID and FID of vectors: compared with plain definitions and planted distances, and refused for too few images."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, stats

from core.figures import Floats
from evaluation.fidelity import BLOCKS, FEWEST_OF_BLOCK, fid, kid, perplexity_ratio


def unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def of_sources(sources: int, images: int, away: float, fate: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the vectors of one original of each source, and of `images` generated ones near it, moved by `away`."""
    centres = fate.normal(0, 1, (sources, 8))
    near = np.repeat(centres, images, axis=0) + fate.normal(0, 0.3, (sources * images, 8))
    return unit(centres + fate.normal(0, 0.3, centres.shape)), unit(near + away * np.eye(8)[0])


def test_the_fid_is_that_of_the_definition() -> None:
    fate = np.random.default_rng(1)
    one, other = fate.normal(0, 1, (60, 5)), fate.normal(0.4, 1.5, (60, 5))
    covariances = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    product = np.real(np.trace(np.asarray(linalg.sqrtm(covariances[0] @ covariances[1]))))
    means = ((one.mean(axis=0) - other.mean(axis=0)) ** 2).sum()
    assert fid(one, other).value == pytest.approx(means + np.trace(sum(covariances)) - 2 * product)
    assert fid(one, one[::-1]).value == pytest.approx(0, abs=1e-9)
    assert fid(one, np.vstack([other, other])).n == 60, "as many of both sides"


def test_the_kid_is_that_of_the_definition_with_one_image_of_each_source() -> None:
    """Compare with the definition, computed pair by pair."""
    fate = np.random.default_rng(2)
    sources = np.arange(BLOCKS * FEWEST_OF_BLOCK)
    before, after = of_sources(len(sources), 1, 0.5, fate)

    def kernel(x: Floats, y: Floats) -> float:
        return float((x @ y + 1) ** 3)

    blocks = []
    for block in np.array_split(np.random.default_rng(0).permutation(sources), BLOCKS):
        pairs = [(i, j) for i in block for j in block if i != j]
        total = sum(kernel(before[i], before[j]) + kernel(after[i], after[j]) for i, j in pairs)
        blocks.append((total - 2 * sum(kernel(before[i], after[j]) for i, j in pairs)) / len(pairs))
    assert kid(before, after, sources, sources).value == pytest.approx(np.mean(blocks))


def test_the_interval_holds_0_as_often_as_it_says_and_leaves_it_out_where_images_differ() -> None:
    """Each source has several images, which look alike. They count as one, and do not seem nearer to the originals."""
    fate, sources, trials = np.random.default_rng(3), 120, 150
    own, other = np.arange(sources), np.repeat(np.arange(sources), 3)
    same = [kid(*of_sources(sources, 3, 0.0, fate), own, other) for _ in range(trials)]
    wrong = sum(one.clear_of_zero for one in same)
    assert wrong <= 0.05 * trials + 2.5 * np.sqrt(trials * 0.05 * 0.95), wrong
    values = [one.value for one in same if one.value is not None]
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(trials), "unbiased"
    far = kid(*of_sources(sources, 3, 1.0, fate), own, other)
    assert far.clear_of_zero and far.value is not None and far.value > 0 and far.sources == sources and far.n == 360


def test_too_few_are_said() -> None:
    fate = np.random.default_rng(4)
    few = np.arange(BLOCKS * FEWEST_OF_BLOCK - 1)
    vectors = of_sources(len(few), 1, 0.0, fate)
    near, distance = kid(*vectors, few, few), fid(*vectors)
    assert near.value is None and "too few to say: 79 sources" in near.why
    assert distance.value is not None and distance.low is None and "bias" in distance.why
    assert "too few to say: 8 images" in fid(np.eye(8), np.eye(8)).why
    nothing = kid(np.zeros((0, 8)), np.zeros((0, 8)), np.zeros(0, int), np.zeros(0, int))
    assert nothing.value is None and nothing.n == 0


def test_the_perplexity_ratio_is_that_of_paired_logarithms() -> None:
    """Compare with scipy's paired t test, whose interval is of the mean difference."""
    fate = np.random.default_rng(5)
    before, after = fate.normal(3.0, 0.4, 40), fate.normal(3.1, 0.4, 40)
    test = stats.ttest_rel(after, before)
    found, ends = perplexity_ratio(before, after), test.confidence_interval(0.95)
    assert found.value == pytest.approx(np.exp(np.mean(after - before))) and (found.n, found.sources) == (40, 40)
    assert (found.low, found.high) == pytest.approx((np.exp(ends.low), np.exp(ends.high)))
    assert perplexity_ratio(before[:1], after[:1]).why == "too few pairs of captions"
