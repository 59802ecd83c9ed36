"""Intervals are compared with statsmodels and scipy, bounds and plans with published figures and a simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.figures import percent
from core.studies import ControlPolicy, Eligibility
from study import intervals
from study.intervals import bootstrap, bootstrap_mean, bounds, wilson
from study.power import items_for, plan, survival
from tests.support.study_data import BIRD, known


def test_published_wilson():
    found = wilson(100, 100)
    assert (round(known(found.low), 3), found.high) == (0.963, 1.0)
    assert found.words == "100 % (100 of 100; 95 % Wilson interval 96.3 to 100.0 %)"


@pytest.mark.parametrize(("count", "n"), [(0, 1), (1, 1), (0, 10), (5, 10), (92, 93), (11, 13), (299, 300), (62, 75)])
def test_wilson_is_that_of_statsmodels(count, n):
    from statsmodels.stats.proportion import proportion_confint

    found = wilson(count, n)
    low, high = proportion_confint(count, n, method="wilson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.value == count / n and 0 <= known(found.low) <= known(found.value) <= known(found.high) <= 1


def test_wilson_of_nothing_is_words():
    found = wilson(0, 0, nothing="no image found a consensus")
    assert found.value is None and found.low is None and found.high is None
    assert found.words == "undefined: no image found a consensus"
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson(3, 2)


def test_percent_never_rounds_to_all_or_nothing():
    assert [percent(s) for s in (0.0, 0.0001, 0.968, 0.9999, 1.0)] == ["0 %", "0.1 %", "96.8 %", "99.9 %", "100 %"]


def test_bootstrap_is_that_of_scipy(monkeypatch):
    from scipy import stats

    monkeypatch.setattr(intervals, "SAMPLES", 20_000)
    rng = np.random.default_rng(3)
    images = [(int(rng.binomial(n, 0.3 + 0.6 * rng.random())), int(n)) for n in rng.integers(3, 6, 150)]
    found = bootstrap(images, seed=1)
    good, all_votes = np.array(images).T
    theirs = stats.bootstrap(
        (good, all_votes),
        lambda g, v, axis: g.sum(axis=axis) / v.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        batch=2000,
        random_state=2,
    ).confidence_interval
    assert found.value == good.sum() / all_votes.sum()
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.004)
    assert found == bootstrap(images, seed=1)


def test_bootstrap_over_images_is_wider_than_votes_taken_as_independent():
    images = [(5, 5)] * 50 + [(0, 5)] * 50
    by_image, by_vote = (known(one.high) - known(one.low) for one in (bootstrap(images), wilson(250, 500)))
    assert by_image > 1.8 * by_vote


def test_bootstrap_of_a_mean_is_that_of_scipy(monkeypatch):
    from scipy import stats

    monkeypatch.setattr(intervals, "SAMPLES", 20_000)
    values = list(np.random.default_rng(5).integers(1, 6, 80) * 1.0)
    found = bootstrap_mean(values)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, batch=2000, random_state=2)
    assert found.value == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx(theirs.confidence_interval, abs=0.02)


def test_bootstrap_says_what_it_cannot_say():
    assert bootstrap([]).words == bootstrap([(0, 0)]).words == "undefined: no vote counts yet"
    alike = bootstrap([(5, 5)] * 10)
    assert alike.value == 1.0 and alike.low is None and "all images have the same share" in alike.words
    assert bootstrap_mean([]).value is None
    assert "one image only" in bootstrap_mean([3.0]).words
    assert bootstrap_mean([3.0, 3.0]).low is None
    with pytest.raises(ValueError, match="more votes for it"):
        bootstrap([(2, 1)])


def test_bounds():
    # Figures of a mock-up: 96.8 % of 251 images are valid, and 18 have no consensus.
    found = bounds(243, 251, 18)
    assert (found.worst, found.best) == (243 / 269, 261 / 269)
    assert found.words == "90.3 % if all 18 discarded images were invalid, 97.0 % if all 18 discarded images were valid"
    assert bounds(0, 0, 0).worst is None
    assert "if both discarded images were invalid" in bounds(9, 10, 2).words
    assert "if the discarded image was valid" in bounds(9, 10, 1).words
    assert bounds(0, 0, 4).words.startswith("0 % if") and bounds(0, 0, 4).best == 1.0
    assert "nothing to bound" in bounds(9, 10, 0).words
    with pytest.raises(ValueError, match="valid <= decided"):
        bounds(3, 2, 0)


def test_published_survival():
    yes, no = survival(0.7, votes=5, consensus=4)
    assert round(yes + no, 2) == 0.56 and round(yes / (yes + no), 2) == 0.94


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.96, 1.0])
@pytest.mark.parametrize(("votes", "consensus"), [(1, 1), (3, 2), (5, 4), (7, 5)])
def test_survival_is_binomial(p, votes, consensus):
    from scipy import stats

    yes, no = stats.binom.sf(consensus - 1, votes, p), stats.binom.cdf(votes - consensus, votes, p)
    assert survival(p, votes, consensus) == pytest.approx((yes, no), abs=1e-12)


def test_survival_needs_a_majority():
    with pytest.raises(ValueError, match=r"more than half of the votes and at most all of them\.$"):
        survival(0.5, votes=4, consensus=2)


def test_plan_is_what_a_simulation_finds():
    from statsmodels.stats.proportion import proportion_confint

    rng, n, valid, accuracy = np.random.default_rng(11), 50_000, 0.9, 0.9
    truth = rng.random(n) < valid
    says_valid = rng.binomial(5, np.where(truth, accuracy, 1 - accuracy))
    decided = (says_valid >= 4) | (says_valid <= 1)
    found = plan(400, BIRD, valid, accuracy)
    assert found.survive == pytest.approx(decided.mean(), abs=0.006)
    assert found.rate == pytest.approx((says_valid[decided] >= 4).mean(), abs=0.004)
    survivors = 400 * found.survive
    low, high = proportion_confint(found.rate * survivors, survivors, method="wilson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.width == pytest.approx(found.high - found.low)


def test_plan_counts_people_and_time():
    rules = replace(BIRD, seconds_expected=9.0, controls=ControlPolicy(share=0.1))
    found = plan(400, rules, minutes=30, lost=0.0)
    assert found.votes == 2000
    # 2,000 votes are nine tenths of the shown images: 2,223 at 9 seconds each, 200 in half an hour.
    assert found.annotators == 12
    assert found.items_each == 186 and found.minutes_each == pytest.approx(27.9)
    assert found.hours == pytest.approx(2000 / 0.9 * 9 / 3600)
    assert "12 annotators with about 28 minutes each, 186 images a person." in found.words
    with_quiz = plan(400, replace(rules, eligibility=Eligibility(quiz=10)), lost=0.0)
    assert with_quiz.annotators == 12 and with_quiz.items_each == 196
    assert plan(400, rules, lost=0.05).hours == pytest.approx(found.hours / 0.95)


def test_plan_never_has_fewer_annotators_than_votes():
    found = plan(3, BIRD, lost=0.0)
    assert found.annotators == 5 and "invite one or two more" in found.words
    # Nobody sees an item twice, however much time they have.
    assert plan(3, BIRD, lost=0.5).annotators >= 8


def test_plans_that_are_none():
    for wrong, said in (
        ({"items": 0}, "at least one image"),
        ({"items": 5, "valid": 1.2}, "between 0 and 100"),
        ({"items": 5, "accuracy": 0.3}, "between 50 and 100"),
        ({"items": 5, "minutes": 0.01}, "more time"),
        ({"items": 5, "lost": 1.0}, "below 100 %"),
    ):
        with pytest.raises(ValueError, match=said):
            plan(rules=BIRD, **wrong)


def test_items_for_a_width():
    n = items_for(0.05, BIRD)
    assert plan(n, BIRD).width <= 0.05 < plan(n - 1, BIRD).width
    with pytest.raises(ValueError, match="points wide"):
        items_for(0.0, BIRD)
