"""Tests for clusters of edits: planted clusters are found with their effect, and without an effect few are reported."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import evaluation.edit_clusters as edit_clusters_module
from core.figures import Floats, Numbers
from evaluation.edit_clusters import SMALLEST, edit_clusters

DIMENSIONS = 16


def directions(kinds: Numbers, fate: np.random.Generator, spread: float = 0.05) -> Floats:
    """Return a vector of random length for each edit: the direction of its kind, with noise of this `spread`."""
    vectors = np.eye(DIMENSIONS)[kinds] + fate.normal(0, spread, (len(kinds), DIMENSIONS))
    return np.asarray(vectors * fate.uniform(0.3, 2, (len(kinds), 1)))


def test_planted_groups_are_found_and_the_one_that_hurts_comes_first() -> None:
    fate = np.random.default_rng(1)
    kinds = np.tile([0, 1, 2], 30)
    label = np.repeat([4, 7], 45)
    source = np.arange(90) // 2 + 100
    hurts = (kinds == 1) & (label == 7)
    change = np.where(hurts, -0.4, 0.0) + fate.normal(0, 0.05, 90)
    found = edit_clusters(directions(kinds, fate), change, source, label)
    assert sorted((one.label, *set(kinds[list(one.cases)].tolist())) for one in found) == [
        (each, kind) for each in (4, 7) for kind in (0, 1, 2)
    ]
    assert sorted(case for one in found for case in one.cases) == list(range(90))
    worst, *others = found
    assert set(worst.cases) == set(np.flatnonzero(hurts)) and worst.change.n == 15
    low, high = worst.change.low, worst.change.high
    assert low is not None and high is not None and low < -0.4 < high < -0.2
    assert worst.p_value is not None and worst.p_adjusted is not None and worst.p_value <= worst.p_adjusted < 0.05
    assert all(one.p_adjusted is not None and one.p_adjusted >= 0.05 for one in others if one.label == 4)


def test_the_most_typical_edit_comes_first() -> None:
    fate = np.random.default_rng(3)
    kinds = np.repeat([0, 1], 12)
    vectors = directions(kinds, fate)
    found = edit_clusters(vectors, np.zeros(24), np.arange(24), np.zeros(24, int))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for one in found:
        nearness = unit[list(one.cases)] @ unit[list(one.cases)].mean(axis=0)
        assert list(nearness) == sorted(nearness, reverse=True)


@pytest.mark.parametrize("together", [True, False])
def test_without_an_effect_no_more_is_claimed_than_the_level_says(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources differ much, and in one case all edits of a source are of one kind, which misleads a test by image."""
    monkeypatch.setattr(edit_clusters_module, "PERMUTATIONS", 99)
    fate = np.random.default_rng(5)
    claimed, classes = 0, 60
    for _ in range(classes):
        source = np.repeat(np.arange(16), 3)
        kinds = np.repeat(np.arange(16) % 2, 3) if together else fate.permutation(48) % 2
        change = fate.normal(0, 0.2, 16)[source] + fate.normal(0, 0.05, 48)
        found = edit_clusters(directions(kinds, fate), change, source, np.zeros(48, int))
        claimed += any(one.p_adjusted is not None and one.p_adjusted < 0.05 for one in found)
    assert claimed <= 0.05 * classes + 2.5 * np.sqrt(classes * 0.05 * 0.95), claimed


def test_what_is_not_known_or_too_little_is_in_no_group() -> None:
    fate = np.random.default_rng(2)
    kinds = np.repeat([0, 1], 10)
    vectors, change = directions(kinds, fate), np.full(20, -0.1)
    change[0], vectors[11] = np.nan, 0
    one_source = np.where(kinds == 0, 0, np.arange(20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = edit_clusters(vectors, change, one_source, np.zeros(20, int))
    assert {0, 11}.isdisjoint(case for one in found for case in one.cases) and len(found) == 2
    alone = next(one for one in found if kinds[one.cases[0]] == 0)
    assert alone.p_value is None and alone.p_adjusted is None and "one source" in alone.change.why
    assert edit_clusters(vectors, change, one_source, np.arange(20)) == (), f"fewer than {2 * SMALLEST} of a class"
    empty = np.zeros(0, int)
    assert edit_clusters(np.zeros((0, 4)), np.zeros(0), empty, empty) == ()
