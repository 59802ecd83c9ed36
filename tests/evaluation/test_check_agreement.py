"""Precision and recall of a check against votes: by hand, without votes, and intervals that contain the truth."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.validity_score import check_agreement


def test_by_hand() -> None:
    failed = np.array([1, 1, 1, 0, 0, 0, 0], bool)
    passed = np.array([0, 0, 0, 1, 1, 1, 0], bool)  # it cannot tell for the last image
    valid = np.array([0, 0, 1, 0, 1, 1, 0], bool)
    found = check_agreement(failed, passed, valid, np.array([0, 0, 1, 1, 2, 2, 3]), cannot_tell=1)
    for share in (found.precision, found.recall):
        assert share.value == pytest.approx(2 / 3) and (share.n, share.sources) == (3, 2)
    assert (found.judged, found.cannot_tell) == (6, 1)


def test_without_a_failure_or_an_invalid_image_the_share_is_unknown_and_it_is_said() -> None:
    no, yes, source = np.zeros(3, bool), np.ones(3, bool), np.arange(3)
    found = check_agreement(no, yes, yes, source)
    assert found.precision.value is found.recall.value is None and found.precision.why == "there is nothing to count"
    one = check_agreement(yes, no, no, np.zeros(3, np.int64)).precision
    assert one.value == 1 and one.low is None and "one source only" in one.why


def test_intervals_contain_the_truth_although_images_share_sources() -> None:
    """Invalid images cluster in sources, so that intervals over images would be too narrow."""
    chance, hits, runs, images = np.random.default_rng(5), 0, 300, 4
    for _ in range(runs):
        of_source = chance.beta(0.6, 0.4, 30)  # mean 0.6: the share of failing images that are invalid
        valid = chance.random((30, images)) >= of_source[:, None]
        every, source = np.ones(30 * images, bool), np.repeat(np.arange(30), images)
        precision = check_agreement(every, ~every, valid.ravel(), source).precision
        assert precision.low is not None and precision.high is not None
        hits += precision.low <= 0.6 <= precision.high
    assert 0.92 <= hits / runs <= 0.99
