"""Figures of a model under test on generated images: against scipy, statsmodels, scikit-learn and worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from core.evaluation_results import Effectiveness
from core.figures import Figure, Floats
from evaluation.by_source import (
    CONFIDENCE,
    FEWEST_SOURCES,
    GROUPS,
    SAMPLES,
    Resampled,
    Statistic,
    adjusted,
    clustering,
    distinct_rows,
    means_of_groups,
    one_split,
)
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, Answers, calibration, effectiveness

LABELS = ("bird", "boat", "car")


def interval(
    sums: Floats, statistic: Statistic, n: int, seed: int = 0, samples: int = SAMPLES, share: bool = False
) -> Figure:
    """One figure alone."""
    return Resampled(sums, seed, samples).figure(statistic, n, share)


def mean_by_source(values: Floats, source: NDArray[np.int64], weights: Floats | None = None) -> Figure:
    """The mean of one value an image, with the interval of the sandwich estimator: the reference for
    `means_of_groups`.
    """
    from scipy import stats

    if not len(values):
        return Figure(None, why="there is nothing to count")
    weighed = np.ones(len(values)) if weights is None else weights
    value = float(np.average(values, weights=weighed))
    _, number = np.unique(source, return_inverse=True)
    sources = int(number.max()) + 1
    if sources < FEWEST_SOURCES:
        return Figure(value, n=len(values), sources=sources, why="no interval, since there is one source only")
    away = np.bincount(number, weights=weighed * (values - value), minlength=sources)
    variance = sources / (sources - 1) * float((away**2).sum()) / float(weighed.sum()) ** 2
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, sources - 1)) * variance**0.5
    return Figure(value, value - reach, value + reach, len(values), sources)


def answers(source: list[int], right: list[int], said: list[int] | None = None, sure: float = 0.8) -> Answers:
    """Answers about images of these sources."""
    return Answers(
        np.array(source, dtype=np.int64),
        np.array(right, dtype=np.int8),
        np.array(said if said is not None else [0] * len(source), dtype=np.int64),
        np.full(len(source), sure),
    )


def a_world(sources: int = 400, cases: int = 5, seed: int = 1) -> tuple[Answers, Answers, Answers, NDArray[np.int64]]:
    """Originals, test cases and reconstructions of a model that finds some sources harder than others."""
    chance = np.random.default_rng(seed)
    hard = chance.beta(0.6, 1.4, sources)
    label = chance.integers(0, len(LABELS), sources)

    def drawn(times: int, harder: float) -> Answers:
        source = np.repeat(np.arange(sources), times)
        wrong = chance.random(len(source)) < np.clip(hard[source] * harder, 0, 1)
        said = np.where(wrong, (label[source] + 1) % len(LABELS), label[source])
        return Answers(source, np.where(wrong, WRONG, RIGHT).astype(np.int8), said, chance.random(len(source)))

    return drawn(1, 0.3), drawn(cases, 1.5), drawn(1, 0.5), label


def of_world(splits: str = "test", sources: int = 400) -> Effectiveness:
    """All figures of that world."""
    original, generated, control, label = a_world(sources)
    return effectiveness(original, generated, control, label, LABELS, [splits] * sources)


def test_the_bootstrap_over_sources_is_that_of_scipy() -> None:
    from scipy import stats

    _, generated, _, _ = a_world(120)
    wrong = np.bincount(generated.source, weights=generated.right == WRONG)
    size = np.bincount(generated.source).astype(float)

    def share(held: Floats) -> Floats:
        return held[..., 0] / held[..., 1]

    ours = interval(np.stack([wrong, size], axis=1), share, int(size.sum()), samples=40_000)
    theirs = stats.bootstrap(
        (wrong, size),
        lambda a, b, axis=-1: a.sum(axis=axis) / b.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=40_000,
        method="BCa",
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.002)
    assert ours.high == pytest.approx(theirs.high, abs=0.002)
    assert ours.value == pytest.approx(wrong.sum() / size.sum())


@pytest.mark.slow
def test_of_many_sources_that_differ_groups_are_drawn_and_the_ends_hold() -> None:
    """As of scipy, which draws each source. Sources that are alike are none of that: they are drawn as kinds."""
    from scipy import stats

    chance, sources = np.random.default_rng(8), 3 * GROUPS
    size = chance.gamma(2.0, 1000.0, sources)
    hit = size * chance.beta(4.0, 1.0, sources)

    def share(held: Floats) -> Floats:
        return held[..., 0] / held[..., 1]

    ours = interval(np.stack([hit, size], axis=1), share, sources, samples=4_000)
    theirs = stats.bootstrap(
        (hit, size),
        lambda a, b, axis=-1: a.sum(axis=axis) / b.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=4_000,
        batch=200,
        method="percentile",
        rng=np.random.default_rng(3),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.06 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.06 * width)
    assert ours.sources == sources


@pytest.mark.parametrize("rows", [0, 1, 400])
def test_rows_that_are_alike_are_found_as_numpy_finds_them(rows: int) -> None:
    held = np.random.default_rng(2).integers(-1, 2, (rows, 3)).astype(float)
    for found, expected in zip(distinct_rows(held), np.unique(held, axis=0, return_counts=True), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_intervals_cover_what_is_true_as_often_as_they_say() -> None:
    from scipy import stats

    chance, covered, naive = np.random.default_rng(5), 0, 0
    for study in range(400):
        hard = chance.beta(0.6, 1.4, 80)
        wrong = chance.binomial(5, hard).astype(float)
        found = interval(np.stack([wrong, np.full(80, 5.0)], axis=1), lambda h: h[..., 0] / h[..., 1], 400, study, 1000)
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.3 <= found.high
        alone = stats.binomtest(int(wrong.sum()), 400).proportion_ci(method="wilson")
        naive += alone.low <= 0.3 <= alone.high
    assert 0.92 <= covered / 400 <= 0.98
    assert naive / 400 < 0.8  # images that are counted as independent promise too much


def test_where_nothing_is_wrong_it_is_not_certain_that_nothing_ever_is() -> None:
    from statsmodels.stats.proportion import proportion_confint

    def share(held: Floats) -> Floats:
        return np.asarray(held[..., 1] / held[..., 0])

    sums = np.array([[2.0, 0.0], [3.0, 0.0], [2.0, 0.0]] * 10)
    exact = proportion_confint(0, 30, method="beta")
    found = interval(sums, share, 70, share=True)
    assert (found.value, found.low, found.high) == pytest.approx((0.0, *exact))
    every = np.stack([sums[:, 0], sums[:, 0]], axis=1)
    found = interval(every, share, 70, share=True)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, *proportion_confint(30, 30, method="beta")))
    # A difference that is 0 for every source, whatever else is in the sums.
    found = interval(np.stack([sums[:, 0], sums[:, 1]], axis=1), lambda held: held[..., 1] / held[..., 0], 70)
    assert found.value == 0 and found.low is None and found.why == "no interval, since all sources are alike in it"


def test_a_mean_counts_a_source_once() -> None:
    from scipy import stats

    values, source = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0]), np.array([0, 0, 1, 1, 2, 2])
    found = mean_by_source(values, source)
    means = stats.t.interval(0.95, 2, loc=0.5, scale=np.std([1.0, 0.0, 0.5], ddof=1) / 3**0.5)
    assert (found.value, found.n, found.sources) == (0.5, 6, 3)
    assert found.low == pytest.approx(means[0]) and found.high == pytest.approx(means[1])
    assert mean_by_source(values[:2], source[:2]).why == "no interval, since there is one source only"
    assert mean_by_source(values[:0], source[:0]).value is None


def test_means_of_many_groups_are_those_of_each_group() -> None:
    from scipy import stats

    chance = np.random.default_rng(8)
    values, weights, group = (
        chance.normal(0.2, 1, 90),
        chance.integers(1, 6, 90).astype(float),
        chance.integers(0, 4, 90),
    )
    group[group == 2] = 1
    values[group == 3] = 0.0
    found, p_values = means_of_groups(values, weights, group, 5, np.arange(5))
    for number in (0, 1):
        own = group == number
        alone = mean_by_source(values[own], np.arange(int(own.sum())), weights=weights[own])
        assert (found[number].value, found[number].low) == pytest.approx((alone.value, alone.low))
    assert found[2].why == found[4].why == "there is nothing to count" and np.isnan(p_values[4])
    assert p_values[3] == 1.0
    _, p_values = means_of_groups(values, np.ones(90), group, 4, np.arange(4))
    assert p_values[0] == pytest.approx(stats.ttest_1samp(values[group == 0], 0).pvalue)


def test_the_correlation_within_sources_is_that_of_an_analysis_of_variance() -> None:
    from scipy import stats

    chance = np.random.default_rng(2)
    size = 4
    wrong = (chance.random((30, size)) < chance.beta(0.5, 0.5, 30)[:, None]).astype(float)
    found = clustering(wrong.ravel(), np.repeat(np.arange(30), size))
    ratio = stats.f_oneway(*wrong).statistic
    assert found.correlation == pytest.approx((ratio - 1) / (ratio + size - 1))
    assert found.correlation is not None and found.design_effect is not None
    assert found.design_effect == pytest.approx(1 + (size - 1) * found.correlation)
    assert found.effective == pytest.approx(30 * size / found.design_effect)
    alone = clustering(wrong[:, 0], np.arange(30))
    assert (alone.correlation, alone.design_effect, alone.effective) == (None, 1.0, 30.0)
    assert clustering(np.ones(6), np.array([0, 0, 1, 1, 2, 2])).why == "all images are alike"


@pytest.mark.slow
def test_many_questions_are_corrected_as_statsmodels_does() -> None:
    from statsmodels.stats.multitest import multipletests

    p_values = np.random.default_rng(4).random(30) ** 3
    assert adjusted(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    with_gap = adjusted(np.insert(p_values, 7, np.nan))
    assert np.isnan(with_gap[7]) and np.delete(with_gap, 7) == pytest.approx(adjusted(p_values))
    assert len(adjusted(np.array([]))) == 0


def test_errors_flips_and_what_they_are_worth() -> None:
    from sklearn.metrics import confusion_matrix

    found = of_world()
    original, generated, control, label = a_world()
    assert found.error_original.value == pytest.approx(np.mean(original.right == WRONG))
    assert found.error_generated.value == pytest.approx(np.mean(generated.right == WRONG))
    assert found.excess.value == pytest.approx(np.mean(generated.right == WRONG) - np.mean(control.right == WRONG))
    assert found.factor.value == pytest.approx(found.error_generated.value / found.error_original.value)  # type: ignore[operator]
    before = original.right[generated.source]
    lost = int(((before == RIGHT) & (generated.right == WRONG)).sum())
    assert (found.flips.newly_wrong, found.flips.pairs) == (lost, 2000)
    assert found.flips.p_value is None  # five of a source are not independent
    assert found.flips.net.value == pytest.approx(found.difference.value)
    wrong = (generated.right == WRONG).reshape(-1, 5).sum(axis=1)
    assert found.together.all_wrong == int((wrong == 5).sum())
    assert found.together.none_wrong == int((wrong == 0).sum())
    assert sum(of for _, _, of in found.together.by_number) == 400
    assert found.clustering.effective is not None and found.clustering.effective < 1200
    matrix = confusion_matrix(label[generated.source], generated.said, normalize="true")
    assert found.confusion[1].shares[:, :3] == pytest.approx(matrix)
    row = found.classes[0]
    own = label == 0
    assert row.error_generated.value == pytest.approx(np.mean(generated.right[own[generated.source]] == WRONG))
    assert row.p_adjusted is not None and row.p_value is not None and row.p_adjusted >= row.p_value


def test_one_test_case_a_source_is_tested_as_statsmodels_does() -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    original, generated, _, label = a_world(200, 1)
    found = effectiveness(original, generated, None, label, LABELS, [""] * 200)
    table = np.zeros((2, 2))
    np.add.at(table, (original.right, generated.right), 1)
    assert found.flips.p_value == pytest.approx(mcnemar(table, exact=True).pvalue)
    assert found.split == "" and found.error_reconstructed.value is None
    assert found.excess.why == "there are no reconstructions of these sources"


def test_what_cannot_be_compared_is_left_out_and_told() -> None:
    original = answers([0, 1, 2, 3], [RIGHT, RIGHT, UNKNOWN, WRONG])
    generated = answers([0, 0, 1, 2, 4], [WRONG, UNKNOWN, RIGHT, WRONG, WRONG], [1, -1, 0, 0, 0])
    found = effectiveness(original, generated, None, np.zeros(5, dtype=np.int64), LABELS, ["test"] * 4)
    assert (found.sources, found.cases, found.left_out) == (2, 2, 2)
    assert found.error_generated.value == 0.5 and found.error_original.value == 0.0
    assert found.factor.why == "the model is right about every original"
    assert found.classes[0].error_generated.why == "fewer than 20 test cases"
    assert found.confusion[1].shares[0] == pytest.approx([0.5, 0.5, 0.0, 0.0])


def test_no_image_one_image_and_a_class_that_never_occurs_give_words_and_no_nan() -> None:
    nothing = effectiveness(answers([], []), answers([], []), None, np.zeros(0, dtype=np.int64), LABELS, [])
    assert nothing.error_generated.value is None and nothing.error_generated.why == "there is nothing to count"
    assert nothing.calibration[0].expected_error is None
    one = effectiveness(answers([0], [RIGHT]), answers([0], [WRONG]), None, np.array([2]), LABELS, [""])
    assert (one.error_generated.value, one.error_generated.low) == (1.0, None)
    assert one.error_generated.why == "no interval, since there is one source only"
    assert [row.label for row in one.classes] == ["car"]
    assert np.isnan(one.confusion[0].shares[0]).all() and one.confusion[0].images[0] == 0


def test_one_split_is_said_and_several_are_refused_for_all_figures() -> None:
    assert [one_split(splits) for splits in ([], ["", ""], ["test", "test"])] == ["", "", "test"]
    with pytest.raises(ValueError, match="several splits are not mixed: test, without a split"):
        one_split(["test", "", "test"])


def test_sources_of_several_splits_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="test, train"):
        effectiveness(*a_world(2)[:3], a_world(2)[3], LABELS, ["train", "test"])
    assert of_world("validation").split == "validation"


def test_the_calibration_error_is_that_of_a_worked_example() -> None:
    held = Answers(
        np.arange(4), np.array([1, 0, 1, 1], dtype=np.int8), np.zeros(4, dtype=np.int64), np.array([0.9, 0.9, 0.3, 1.0])
    )
    found = calibration(held, bins=10)
    # 0.9, 0.9 and 1.0 share the last bin: 2.8 for 2 of 3; 0.3 for 1 of 1.
    assert found.expected_error == pytest.approx((abs(2.8 - 2) + abs(0.3 - 1)) / 4)
    assert found.images[3] == 1 and found.images[9] == 3 and found.accuracy[9] == pytest.approx(2 / 3)
    assert found.confidence[0] is None
