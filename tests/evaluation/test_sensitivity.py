"""Tests for edits that hurt a model: a planted weakness is found, and signs, intervals and corrections are right."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.sensitivity import Changes, sensitivity
from experiments.paper.breaking import by_name


def test_the_edit_that_hurts_comes_first_and_one_that_helps_has_its_sign() -> None:
    from scipy import stats

    chance = np.random.default_rng(6)
    source = np.repeat(np.arange(60), 4)
    kinds = np.tile(["fog", "night", "red", "snow"], 60)
    shift = {"fog": -0.4, "night": 0.0, "red": 0.1, "snow": -0.05}
    before = np.full(240, 0.7)
    after = before + np.array([shift[kind] for kind in kinds]) + chance.normal(0, 0.05, 240)
    rows = by_name(Changes(source, after, before, after < 0.5), [[kind] for kind in kinds])
    assert [row.name for row in rows] == ["fog", "snow", "night", "red"]
    named = {row.name: row for row in rows}
    fog = (after - before)[kinds == "fog"]
    test = stats.ttest_1samp(fog, 0.0)
    assert named["fog"].change.value == pytest.approx(fog.mean())
    assert named["fog"].change.low == pytest.approx(test.confidence_interval().low, abs=0.02)
    assert named["fog"].p_value is not None and named["fog"].p_value < 1e-6 and test.pvalue < 1e-6
    assert named["fog"].hurts and named["snow"].hurts and not named["night"].hurts and not named["red"].hurts
    assert named["red"].change.low is not None and named["red"].change.low > 0
    assert named["fog"].newly_wrong == pytest.approx(np.mean(after[kinds == "fog"] < 0.5))
    assert (named["fog"].n, named["fog"].sources) == (60, 60)


def test_test_cases_of_one_source_are_not_counted_as_independent() -> None:
    from scipy import stats

    chance = np.random.default_rng(3)
    of_source = np.repeat(chance.normal(-0.05, 0.2, 12), 10)
    source, zero = np.repeat(np.arange(12), 10), np.zeros(120)
    (row,) = by_name(Changes(source, of_source, zero, zero > 0), [["fog"]] * 120)
    means, images = (stats.ttest_1samp(of_source[::step], 0.0) for step in (10, 1))
    assert row.p_value is not None and row.p_value > means.pvalue > 10 * images.pvalue
    assert row.change.high is not None and row.change.high > means.confidence_interval().high


def test_each_source_weighs_the_same_or_each_test_case() -> None:
    source = np.repeat([0, 1, 2], [1, 1, 18])
    zero, after = np.zeros(20), np.where(source == 2, -0.3, 0.6)
    changes, case = Changes(source, after, zero, after < 0), np.arange(20)
    (row,) = sensitivity(changes, case, np.zeros(20, np.int64), ("fog",))
    assert (row.change.value, row.newly_wrong) == pytest.approx((0.3, 1 / 3))
    (row,) = sensitivity(changes, case, np.zeros(20, np.int64), ("fog",), "case")
    assert (row.change.value, row.newly_wrong) == pytest.approx((-0.21, 0.9))


def test_where_few_sources_change_the_interval_still_reaches_what_was_not_seen() -> None:
    """One of 100 sources changes, so the interval still contains one in twenty."""
    after = np.zeros(100)
    after[0] = -0.8
    (row,) = by_name(Changes(np.arange(100), after, np.zeros(100), after < 0), [["fog"]] * 100)
    assert row.change.value == pytest.approx(-0.008)
    assert row.change.low is not None and row.change.low < -0.03 and not row.hurts


def test_a_case_with_two_edits_counts_in_both_and_few_cases_give_no_figure() -> None:
    source, zero = np.arange(30), np.zeros(30)
    after = np.full(30, -0.2) + np.linspace(-0.01, 0.01, 30)
    after[0] = np.nan
    names = [["fog", "red"] if place < 25 else ["fog", "fog"] for place in range(30)]
    names[29] = ["fog", "rare"]
    rows = by_name(Changes(source, after, zero, source >= 24), names)
    assert [(row.name, row.n) for row in rows] == [("red", 24), ("fog", 29), ("rare", 1)]
    assert rows[2].change.value is None and rows[2].change.why == "fewer than 20 test cases"
    assert rows[2].p_value is None and rows[2].newly_wrong is None
    assert [row.newly_wrong_cases for row in rows] == [1, 6, 1], "they are counted, however few there are"
    assert by_name(Changes(source, np.full(30, np.nan), zero, zero > 0), names) == ()


def test_rows_without_a_figure_begin_with_those_of_most_newly_wrong_test_cases() -> None:
    source, zero = np.arange(12), np.zeros(12)
    names = [[name] for name in ("amber", "bare", "night", "fog") for _ in range(3)]
    wrong = np.isin(source, [6, 7, 9])  # two wrong cases at night, one in fog
    rows = by_name(Changes(source, np.full(12, -0.1), zero, wrong), names)
    assert [(row.name, row.newly_wrong_cases) for row in rows] == [("night", 2), ("fog", 1), ("amber", 0), ("bare", 0)]
