"""Two models on the same test cases: the paired difference over sources, and the sentence about it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, comparison_answer, paired_difference

NAMES = ("ResNet-50", "ViT-B")


def told(source: NDArray[np.int64], first: NDArray[np.bool_], second: NDArray[np.bool_]) -> str:
    """Return the sentence that compares two models, given whether each is wrong on each test case."""
    return comparison_answer(NAMES, paired_difference(source, answers(first), answers(second)))


def answers(wrong: NDArray[np.bool_]) -> NDArray[np.int8]:
    return np.where(wrong, WRONG, RIGHT).astype(np.int8)


def world(
    sources: int, errors: tuple[float, float], seed: int = 3
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return sources with 1 to 40 test cases, and the errors of two models that depend on how hard a source is."""
    fate = np.random.default_rng(seed)
    source = np.repeat(np.arange(sources), fate.integers(1, 41, sources))
    hard = fate.uniform(0.5, 1.5, sources)[source]
    first, second = (fate.random(len(source)) < hard * error for error in errors)
    return source, first, second


def test_each_source_weighs_the_same_however_many_test_cases_it_has() -> None:
    source = np.array([0] * 8 + [1, 2, 3])
    first = np.array([True] * 8 + [False, False, False])
    second = np.array([False] * 8 + [False, False, True])
    found = paired_difference(source, answers(first), answers(second))
    assert (found.first.value, found.second.value, found.difference.value) == (0.25, 0.25, 0.0)
    assert found.difference.low is not None and found.difference.low < -0.3, "four sources say little"
    by_case = paired_difference(source, answers(first), answers(second), "case")
    assert by_case.difference.value == pytest.approx((1 - 8) / 11)
    assert (found.only_first, found.only_second, found.cases, found.sources) == (8, 1, 11, 4)


def test_the_difference_is_that_of_sources_and_its_interval_that_of_a_paired_test() -> None:
    from scipy import stats

    source, first, second = world(200, (0.3, 0.2))
    found = paired_difference(source, answers(first), answers(second)).difference
    by_source = [second[source == n].mean() - first[source == n].mean() for n in range(200)]
    assert found.value == pytest.approx(np.mean(by_source))
    usual = stats.ttest_1samp(by_source, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((usual.low, usual.high), abs=0.006)


def test_a_pair_on_the_same_sources_is_surer_than_two_models_on_their_own() -> None:
    fate = np.random.default_rng(1)
    source = np.repeat(np.arange(60), 10)
    hard = fate.random(60)[source] < 0.5
    first, second = hard, hard & (fate.random(600) < 0.8)
    found = paired_difference(source, answers(first), answers(second))
    low, high = found.difference.low, found.difference.high
    alone = found.first
    assert low is not None and high is not None and alone.low is not None and alone.high is not None
    assert high - low < 0.5 * (alone.high - alone.low)


def test_only_test_cases_that_can_be_compared_with_both_count() -> None:
    source, first, second = world(30, (0.5, 0.1))
    one, two = answers(first), answers(second)
    one[::7], two[::5] = UNKNOWN, UNKNOWN
    known = (one != UNKNOWN) & (two != UNKNOWN)
    found = paired_difference(source, one, two)
    assert found.cases == known.sum() and found.left_out == len(source) - known.sum()
    alone = paired_difference(source[known], one[known], two[known])
    assert found.difference == alone.difference and found.first == alone.first


def test_the_better_model_is_named_whichever_stands_first() -> None:
    source, first, second = world(100, (0.3, 0.15))
    said, turned = told(source, first, second), told(source, second, first)
    assert "ResNet-50 is wrong on " in said and "where each source weighs the same (100 sources)" in said
    assert "ViT-B is better: ResNet-50 is wrong on +" in said
    assert "ResNet-50 is better: ViT-B is wrong on +" in turned


def test_a_difference_that_may_be_chance_is_called_so() -> None:
    source, first, second = world(40, (0.2, 0.2))
    assert told(source, first, second).endswith(", may be chance.") and "is better" not in told(source, first, second)


def test_too_little_names_no_model_as_better() -> None:
    one = told(np.zeros(5, np.int64), np.ones(5, bool), np.zeros(5, bool))
    assert "one source only" in one and "too little to say which is better" in one
    same = told(np.arange(30), np.ones(30, bool), np.ones(30, bool))
    assert "is better:" not in same and "wrong about the same test cases. With so few, a difference of -" in same
    nothing = np.full(3, UNKNOWN, np.int8)
    found = paired_difference(np.arange(3), nothing, nothing)
    assert found.difference.value is None and found.left_out == 3
    assert comparison_answer(NAMES, found).startswith("Which of them is better cannot be told: no test case")
