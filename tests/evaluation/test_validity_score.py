"""The score that predicts people's votes: compared with scikit-learn, and kept from seeing the votes that it
predicts.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from core.figures import Floats
from evaluation.validity_score import agreement, cross_fitted, learn
from experiments.coverage.of_score import measured

pytestmark = pytest.mark.slow

NAMES = ("edit shows", "label kept", "structure")


def votes(chance: np.random.Generator, images: int = 600) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64]]:
    """Return three checks (two predict validity, one does not), whether images are valid, and their
    sources.
    """
    checks = chance.normal(0, 1, (images, 3))
    valid = chance.random(images) < 1 / (1 + np.exp(-(1.0 + 2 * checks[:, 0] + checks[:, 1])))
    checks[chance.random(images) < 0.2, 1] = np.nan
    return checks, valid, chance.integers(0, 150, images)


def test_it_learns_which_checks_tell_something_and_is_calibrated() -> None:
    chance = np.random.default_rng(1)
    checks, valid, _ = votes(chance, 3000)
    score = learn(NAMES, checks, valid)
    assert score.weights[0] > score.weights[1] > abs(score.weights[2]) - 0.1 and abs(score.weights[2]) < 0.15
    others, what_people_say, source = votes(chance, 3000)
    found = agreement(score(others), what_people_say, source)
    for mean, share, number in found.bins:
        if number > 100:
            assert share == pytest.approx(mean, abs=0.08)


def test_its_figures_are_those_of_scikit_learn() -> None:
    from scipy import stats
    from sklearn.metrics import precision_score, recall_score, roc_auc_score

    chance = np.random.default_rng(2)
    checks, valid, source = votes(chance)
    score = np.round(learn(NAMES, checks, valid)(checks), 2)  # some values are equal
    found = agreement(score, valid, source, threshold=0.6)
    assert found.auc.value == pytest.approx(roc_auc_score(valid, score))
    assert found.precision == pytest.approx(precision_score(valid, score >= 0.6))
    assert found.recall == pytest.approx(recall_score(valid, score >= 0.6))
    # If every image has its own source, the interval is that of a bootstrap over images.
    alone = agreement(score, valid, np.arange(len(valid))).auc
    theirs = stats.bootstrap(
        (valid, score),
        lambda v, s: roc_auc_score(v, s),
        paired=True,
        vectorized=False,
        n_resamples=600,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert alone.low == pytest.approx(theirs.low, abs=0.01) and alone.high == pytest.approx(theirs.high, abs=0.01)


def test_no_image_is_foretold_from_votes_on_itself_or_its_kin() -> None:
    """The votes are random but the same on all images of a source. A model that has seen one of them knows the
    others.
    """
    chance = np.random.default_rng(3)
    source = np.repeat(np.arange(60), 10)
    valid = (chance.random(60) < 0.5)[source]
    checks = chance.normal(0, 1, (60, 3))[source]
    score = cross_fitted(NAMES, checks, valid, source)
    assert np.isfinite(score).all()
    assert agreement(score, valid, source).auc.value == pytest.approx(0.5, abs=0.2)


def test_cross_fitting_tells_what_a_new_study_will() -> None:
    chance = np.random.default_rng(5)
    checks, valid, source = votes(chance, 2000)
    inside = agreement(cross_fitted(NAMES, checks, valid, source), valid, source).auc
    others, what_people_say, kin = votes(chance, 2000)
    outside = agreement(learn(NAMES, checks, valid)(others), what_people_say, kin).auc
    assert inside.value is not None and outside.value is not None
    assert inside.value == pytest.approx(outside.value, abs=0.03) and inside.value > 0.75


def test_too_few_votes_and_votes_that_are_all_alike() -> None:
    checks, _, source = votes(np.random.default_rng(6), 60)
    with pytest.raises(ValueError, match="at least 20 valid images"):
        learn(NAMES, checks, np.ones(60, dtype=bool))
    found = agreement(np.full(60, 0.4), np.ones(60, dtype=bool), source)
    assert found.auc.value is None and found.precision is None and found.recall == 0.0
    nothing = checks.copy()
    nothing[:, 2] = np.nan  # no image has this check
    half = np.arange(60) % 2 == 0
    assert np.isfinite(learn(NAMES, nothing, half)(nothing)).all()


def test_the_interval_of_its_agreement_covers_with_few_sources_that_are_alike() -> None:
    """A percentile bootstrap covers only 90 % of these worlds."""
    for sources in (20, 50):
        (found,) = measured(sources, 0.9, 0.5, 0.5, repetitions=300, seed=1)
        assert found.covers is not None and 0.93 <= found.covers <= 0.99 and found.shown == 1


def test_too_few_sources_and_a_score_that_is_never_wrong_have_no_interval() -> None:
    chance = np.random.default_rng(7)
    valid, score = np.arange(60) % 2 == 0, chance.random(60)
    few = agreement(score, valid, np.arange(60) % 9).auc
    assert few.value is not None and few.low is None and "takes 10 sources of valid images and of others" in few.why
    sure = agreement(np.where(valid, 0.9, 0.1), valid, np.arange(60)).auc
    assert sure.value == 1 and sure.low is None and "too few to say" in sure.why
