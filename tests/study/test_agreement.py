"""Measures of agreement, compared with krippendorff, statsmodels and published worked examples."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from study.agreement import ALL_AGREE, NO_PAIRS, ac1, agreement, alpha, fleiss, level, raw
from tests.support.study_data import known

FOUR_RATERS = [
    ("1", "1", "1"),
    ("2", "2", "3", "2"),
    ("3", "3", "3", "3"),
    ("3", "3", "3", "3"),
    ("2", "2", "2", "2"),
    ("1", "2", "3", "4"),
    ("4", "4", "4", "4"),
    ("1", "1", "2", "1"),
    ("2", "2", "2", "2"),
    ("5", "5", "5"),
    ("1", "1"),
    ("3",),
]
"""Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, section C: four observers, missing values. Gwet 2014
computes his coefficients on the same data."""

HIGH_PREVALENCE = (
    [["yes"] * 5] * 804
    + [["yes"] * 4 + ["no"]] * 155
    + [["yes"] * 3 + ["no"] * 2] * 16
    + [["yes"] + ["no"] * 4] * 5
    + [["no"] * 5] * 20
)
"""Published counts of a study of 1,000 images, 97 to 98 % of them valid, with five raters who are right in about 96
% of cases, and its published figures.
"""


def reliability(ratings, order):
    """Return ratings with raters in rows and items in columns, as krippendorff needs them."""
    numbers = {answer: i for i, answer in enumerate(order)}
    table = np.full((max(map(len, ratings)), len(ratings)), np.nan)
    for column, given in enumerate(ratings):
        for row, answer in enumerate(given):
            table[row, column] = numbers[answer]
    return table


def drawn(seed, answers, items=60, raters=5, missing=0.2, good=0.7):
    """Return random ratings with gaps. Raters agree more often the larger `good` is."""
    rng = random.Random(seed)
    ratings = []
    for _ in range(items):
        truth = rng.choice(answers)
        given = [truth if rng.random() < good else rng.choice(answers) for _ in range(raters)]
        ratings.append([answer for answer in given if rng.random() >= missing])
    return ratings


def test_published_example_with_missing_values():
    order = ["1", "2", "3", "4", "5"]
    assert alpha(FOUR_RATERS).value == pytest.approx(0.743, abs=5e-4)  # Krippendorff 2011, nominal
    assert alpha(FOUR_RATERS, order).value == pytest.approx(0.815, abs=5e-4)  # the same, ordinal
    assert raw(FOUR_RATERS).value == pytest.approx(0.8181818, abs=1e-6)  # Gwet 2014, p_a
    assert ac1(FOUR_RATERS, order).value == pytest.approx(0.77544, abs=1e-5)  # Gwet 2014
    assert fleiss(FOUR_RATERS).value == pytest.approx(0.76117, abs=1e-5)  # Gwet 2014, Fleiss generalised
    assert raw(FOUR_RATERS).n_items == 11
    assert raw(FOUR_RATERS).raters == pytest.approx(40 / 11)


def test_fleiss_own_example():
    from statsmodels.stats.inter_rater import fleiss_kappa

    # Fleiss 1971, table 1 as it is usually reprinted: 10 subjects, 14 raters, 5 categories, kappa 0.210.
    table = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    ratings = [[str(c) for c, n in enumerate(row) for _ in range(n)] for row in table]
    assert fleiss(ratings).value == pytest.approx(0.210, abs=5e-4)
    assert fleiss(ratings).value == pytest.approx(fleiss_kappa(np.array(table)))


def test_high_prevalence_breaks_alpha_and_kappa_but_not_ac1():
    import krippendorff
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    found = agreement(HIGH_PREVALENCE, ("yes", "no"))
    assert round(known(found.raw.value), 3) == 0.926
    assert round(known(found.alpha.value), 2) == 0.36
    assert round(known(found.fleiss.value), 2) == 0.36
    assert round(known(found.ac1.value), 3) == 0.917
    table, _ = aggregate_raters(np.array(HIGH_PREVALENCE))
    assert found.fleiss.value == pytest.approx(fleiss_kappa(table))
    assert found.alpha.value == pytest.approx(
        krippendorff.alpha(reliability(HIGH_PREVALENCE, ("yes", "no")), level_of_measurement="nominal")
    )
    assert found.frequent == "yes" and found.prevalence == pytest.approx(0.9386)
    assert "low by construction" in found.words and "AC1" in found.words and found.pulled_down


def test_an_answer_of_three_quarters_excuses_no_low_alpha():
    chance = random.Random(1)
    votes = [tuple("yes" if chance.random() < 0.74 else "no" for _ in range(3)) for _ in range(60)]
    found = agreement(votes, ("yes", "no"))
    assert known(found.alpha.value) < 0.2 and known(found.ac1.value) - known(found.alpha.value) > 0.1
    assert not found.pulled_down and "low by construction" not in found.words


@pytest.mark.parametrize("seed", range(8))
def test_alpha_is_that_of_krippendorff(seed):
    import krippendorff

    order = ["1", "2", "3", "4", "5"]
    ratings = drawn(seed, order, good=0.1 * seed)
    table = reliability(ratings, order)
    nominal = krippendorff.alpha(table, level_of_measurement="nominal", value_domain=range(5))
    ordinal = krippendorff.alpha(table, level_of_measurement="ordinal", value_domain=range(5))
    assert alpha(ratings).value == pytest.approx(nominal, abs=1e-12)
    assert alpha(ratings, order).value == pytest.approx(ordinal, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_fleiss_is_that_of_statsmodels_where_all_items_have_as_many_votes(seed):
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    ratings = drawn(seed, ["yes", "no", "unsure"], missing=0.0, good=0.1 * seed)
    table, _ = aggregate_raters(np.array(ratings))
    assert fleiss(ratings).value == pytest.approx(fleiss_kappa(table), abs=1e-12)
    # Alpha of complete data is kappa corrected for small samples: 1 - (1 - kappa) (nm - 1) / nm (Krippendorff 2011).
    n = table.sum()
    assert alpha(ratings).value == pytest.approx(1 - (1 - fleiss_kappa(table)) * (n - 1) / n, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_ac1_is_gwets_formula_written_out(seed):
    # With two answers and complete data: p_e = 2 pi (1 - pi) (Gwet 2008, equation 5 for two raters).
    ratings = drawn(seed, ["yes", "no"], raters=2, missing=0.0)
    pi = np.mean([given.count("yes") / 2 for given in ratings])
    p_o = np.mean([len(set(given)) == 1 for given in ratings])
    p_e = 2 * pi * (1 - pi)
    assert ac1(ratings, ("yes", "no")).value == pytest.approx((p_o - p_e) / (1 - p_e), abs=1e-12)


def test_answers_that_nobody_gave_count_as_possible():
    ratings = [["1", "2"], ["1", "1"]]
    assert known(ac1(ratings, ("1", "2", "3", "4", "5")).value) > known(ac1(ratings).value)


@pytest.mark.parametrize("ratings", [[], [[]], [["yes"]], [["yes"], [], ["no"]]])
def test_no_pair_is_said_in_words(ratings):
    for measure in (raw, alpha, ac1, fleiss):
        found = measure(ratings)
        assert found.value is None and found.words == NO_PAIRS and found.n_items == 0
    words = agreement(ratings, ("yes", "no")).words
    assert words in ("No vote counts yet.", "No item has two votes yet, so nothing can be said of agreement.")


def test_all_votes_alike_is_said_in_words():
    ratings = [["yes"] * 5] * 20
    found = agreement(ratings, ("yes", "no"))
    assert (found.raw.value, found.ac1.value, found.prevalence) == (1.0, 1.0, 1.0)
    assert found.alpha.value is None and found.alpha.words == ALL_AGREE == "undefined: all votes agree"
    assert found.fleiss.value is None and found.fleiss.words == ALL_AGREE
    assert ac1(ratings).value is None  # no rater gave another answer
    assert "every vote is “yes”" in found.words


def test_alike_but_for_items_with_one_vote():
    # No pair has the only "no". So alpha sees a single answer, while kappa and AC1 see the "no" in the margins.
    ratings = [["yes", "yes"], ["yes", "yes"], ["no"]]
    assert alpha(ratings).value is None
    for measure in (ac1, fleiss):
        assert measure(ratings).value == pytest.approx(1.0)


def test_a_scale_gets_ordinal_alpha():
    near = [["4", "5"], ["1", "2"], ["2", "1"], ["5", "4"], ["3", "3"]] * 4
    found = agreement(near, ("1", "2", "3", "4", "5"), ordered=True)
    assert found.ordinal is not None and known(found.ordinal.value) > known(found.alpha.value)
    assert "neighbouring answers" in found.words
    with pytest.raises(ValueError, match="order of the scale"):
        alpha([["1", "6"]], ("1", "2", "3", "4", "5"))


def test_levels_and_prevalence():
    assert [level(v) for v in (-0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)] == [
        "worse than chance", "slight", "fair", "moderate", "substantial", "nearly perfect", "nearly perfect",
    ]  # fmt: skip
    found = agreement([["a", "b"], ["a"]])
    assert (found.frequent, found.prevalence) == ("a", 2 / 3)
    assert agreement([]).prevalence is None


@pytest.mark.parametrize("seed", range(20))
def test_never_nan(seed):
    ratings = drawn(seed, ["yes", "no"], items=3, raters=3, missing=0.6)
    found = agreement(ratings, ("yes", "no"))
    for measure in (found.raw, found.alpha, found.ac1, found.fleiss):
        assert measure.value is None or math.isfinite(measure.value)
        assert measure.words
