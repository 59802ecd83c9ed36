"""Figures of a model under test, compared with scipy, statsmodels, scikit-learn and worked examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from core.evaluation_results import ClassRow, Effectiveness
from core.figures import Figure
from evaluation.by_source import (
    GROUPS,
    LEAST,
    MeansOfSources,
    adjusted,
    clustering,
    means_of_groups,
    one_split,
    ratio_of,
)
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, Answers, calibration, effectiveness
from evaluation.report import answer, with_interval
from experiments.coverage.covered import Covered, summary, table
from experiments.coverage.intervals import World, measured, settled

LABELS = ("bird", "boat", "car")


def answers(source: list[int], right: list[int], said: list[int] | None = None, sure: float = 0.8) -> Answers:
    """Return answers about images of these sources."""
    return Answers(
        np.array(source, dtype=np.int64),
        np.array(right, dtype=np.int8),
        np.array(said if said is not None else [0] * len(source), dtype=np.int64),
        np.full(len(source), sure),
    )


def a_world(sources: int = 400, cases: int = 5, seed: int = 1) -> tuple[Answers, Answers, Answers, NDArray[np.int64]]:
    """Return originals, test cases and reconstructions of a model that finds some sources harder, and the labels."""
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
    """Return all figures of the model in `a_world`."""
    original, generated, control, label = a_world(sources)
    return effectiveness(original, generated, control, label, LABELS, [splits] * sources)


def mid_p(wrong: int, sources: int) -> tuple[float, float]:
    """Return the ends of the mid-P form of Clopper and Pearson's exact interval, found numerically."""
    from scipy import optimize, stats

    def above(share: float) -> float:
        return float(stats.binom.sf(wrong, sources, share) + stats.binom.pmf(wrong, sources, share) / 2)

    low = 0.0 if not wrong else optimize.brentq(lambda share: above(share) - 0.025, 0, 1)
    high = 1.0 if wrong == sources else optimize.brentq(lambda share: above(share) - 0.975, 0, 1)
    return low, high


@pytest.mark.parametrize(("wrong", "sources"), [(0, 5), (0, 100), (1, 30), (2, 2), (15, 30), (99, 100), (100, 100)])
def test_a_share_of_sources_has_the_exact_interval(wrong: int, sources: int) -> None:
    """So an error rate of 0 has an interval too."""
    shares = np.zeros((sources, 1))
    shares[:wrong] = 1.0
    found = MeansOfSources(shares).figure(lambda of: of[..., 0], 0)
    low, high = mid_p(wrong, sources)
    assert found.value == wrong / sources
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_many_sources_are_put_into_groups_and_the_ends_hold() -> None:
    """The ends are those of the normal distribution, which is exact enough for this many sources."""
    from scipy import stats

    chance, sources = np.random.default_rng(8), 3 * GROUPS
    shares, weights = chance.beta(4.0, 1.0, sources), chance.integers(1, 9, sources).astype(float)
    found = MeansOfSources(shares[:, None], weights).figure(lambda of: of[..., 0], sources)
    value = float(np.average(shares, weights=weights))
    error = float(((weights * (shares - value)) ** 2).sum()) ** 0.5 / float(weights.sum())
    low, high = stats.norm.interval(0.95, value, error)
    assert found.value == pytest.approx(value) and found.sources == sources
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_a_ratio_of_a_mean_that_is_never_seen_has_a_bound() -> None:
    shares = np.stack([np.zeros(40), np.repeat([0.0, 1.0], 20)], axis=1)
    found = ratio_of(MeansOfSources(shares), 1, 0, 40, "never wrong")
    assert found.value is None and found.low is not None and found.high is None
    assert 2 < found.low < 0.5 / mid_p(0, 40)[1] * 1.2
    assert found.why == f"never wrong; at least {found.low:.1f} times"
    alone = ratio_of(MeansOfSources(shares[:1]), 1, 0, 1, "never wrong")
    assert (alone.value, alone.low, alone.why) == (None, None, "never wrong")


@pytest.mark.parametrize(
    ("figure", "world"),
    [
        ("error", World(30, "skewed", 0.02, 0.7)),
        ("error, each test case weighs the same", World(30, "skewed", 0.1, 0.3)),
        ("error of a class", World(10, "equal", 0.1, 0.3)),
        ("generated less reconstructed, where edits do nothing", World(100, "equal", 0.02, 0.0)),
        ("generated less original", World(5, "equal", 0.1, 0.3)),
        ("generated over original", World(30, "skewed", 0.02, 0.3)),
        ("change by an edit", World(20, "equal", 0.1, 0.0)),
        ("mean IoU", World(10, "skewed", 0.02, 0.3)),
    ],
)
def test_intervals_cover_what_is_true_where_it_is_hard(figure: str, world: World) -> None:
    """Like `python -m experiments.coverage` with fewer repetitions. Coverage may be three standard errors below the
    goal.
    """
    found = measured(figure, world, 300)
    assert found.covers is not None and found.covers >= LEAST - 3 * (LEAST * (1 - LEAST) / 300) ** 0.5
    assert found.shown == 1.0
    if "nothing" in figure:
        assert found.claims <= 0.025 + 3 * (0.025 * 0.975 / 300) ** 0.5


@pytest.mark.slow
def test_the_interval_of_a_miou_covers_where_few_sources_with_unequal_areas_are_wrong() -> None:
    """Coverage was 91 % while a source that is not seen had the mean area of each class."""
    covers = measured("mean IoU", World(100, "skewed", 0.02, 0.7), 1000).covers
    assert covers is not None and covers >= LEAST


def test_an_interval_only_where_something_is_wrong_would_not_hold_the_truth() -> None:
    """So the page also shows an interval where no image is wrong. docs/coverage.md explains it."""
    chance, groups, sources, error = np.random.default_rng(1), 2_000, 10, 0.005
    worth = 1 / 0.7 - 1
    shares = chance.binomial(5, chance.beta(error * worth, (1 - error) * worth, (groups, sources))) / 5
    group = np.repeat(np.arange(groups), sources)
    figures, _ = means_of_groups(shares.ravel(), np.ones(group.shape), group, groups, np.zeros(groups, np.int64), 0.0)
    holds = np.array([one.low is not None and one.low <= error <= (one.high or 1.0) for one in figures])
    assert holds.mean() > LEAST
    assert holds[shares.any(axis=1)].mean() < 0.6


def test_the_table_of_coverage_marks_what_does_not_cover() -> None:
    world = {"sources": "5", "test cases": "equal"}
    found = [
        Covered("error", world, "0 %", 0.0, 1.0, 1.0, 0.0, 0.0),
        Covered("error", world, "10 %", 0.1, 0.9, 0.4, 0.1, 0.1),
        Covered("error", {**world, "sources": "1"}, "10 %", 0.1, None, 0.0, 0.0, 0.1),
    ]
    lines = table(found)
    assert lines[2] == "| sources | test cases | 0 % | 10 % |"
    assert lines[4:6] == ["| 5 | equal | 100.0 | **90.0** (40 %) |", "| 1 | equal |  | too few |"]
    assert summary(found) == (
        "Of 3 worlds 0 are covered in 93% to 98% of the repetitions, 1 more often, and 1 less often; in 1 there are "
        "too few to say; least often in 90.0 %."
    )
    again = replace(found[1], covers=0.937, shown=1.0, again=10_000)
    assert table([again])[4] == "| 5 | equal | 93.7 (n = 10,000) |"
    assert summary(found[:1]).endswith("in 100.0 %. In at most 0.0 % something above 0 is claimed.")


def test_a_cell_below_the_goal_is_measured_again_by_other_chance_and_stays_if_it_is_low() -> None:
    world = World(100, "skewed", 0.001, 0.7)
    by_chance = measured("error of a class", world, 1000)
    assert by_chance.covers is not None and by_chance.covers < LEAST and not by_chance.again
    again = settled("error of a class", world, 1000)
    assert again.again == 10_000 and again.covers is not None and LEAST <= again.covers <= 0.945
    fewer = measured("error of a class", replace(world, sources=30), 1000)
    assert settled("error of a class", replace(world, sources=30), 1000) == fewer


def test_means_of_many_groups_are_those_of_each_group() -> None:
    from scipy import stats

    chance = np.random.default_rng(8)
    values, group = chance.uniform(-1, 1, 90), chance.integers(0, 4, 90)
    group[group == 2] = 1
    values[group == 3] = 0.0
    found, p_values = means_of_groups(values, np.ones(90), group, 5, np.arange(5), lowest=-1.0)
    for number in (0, 1):
        own = values[group == number]
        ends = MeansOfSources((own[:, None] + 1) / 2).figure(lambda of: 2 * of[..., 0] - 1, 0)
        assert found[number].value == pytest.approx(own.mean())
        assert (found[number].low, found[number].high) == pytest.approx((ends.low, ends.high), abs=0.04)
    assert found[2].why == found[4].why == "there is nothing to count" and np.isnan(p_values[4])
    assert p_values[3] == pytest.approx(1.0)
    shifted = values - 0.3
    _, p_values = means_of_groups(shifted, np.ones(90), group, 4, np.arange(4), lowest=-1.3)
    test = stats.ttest_1samp(shifted[group == 0], 0).pvalue
    assert p_values[0] == pytest.approx(test, abs=0.03)


def test_a_mean_of_a_group_whose_sources_have_one_image_is_a_jeffreys_interval_widened_by_student() -> None:
    from scipy import stats

    values = np.repeat([0.0, 1.0], [17, 3])
    found, _ = means_of_groups(values, np.ones(20), np.zeros(20, np.int64), 1, np.array([20]))
    worth = 21 * (1.959964 / stats.t.ppf(0.975, 20)) ** 2
    share = 3.5 / 21
    low, high = stats.beta.interval(0.95, share * worth, (1 - share) * worth)
    assert (found[0].low, found[0].high) == pytest.approx((low, high))
    nothing, _ = means_of_groups(np.zeros(20), np.ones(20), np.zeros(20, np.int64), 1, np.array([20]))
    assert (nothing[0].value, nothing[0].low) == (0.0, 0.0) and nothing[0].high is not None
    assert 0.1 < nothing[0].high < 0.2


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
    assert found.flips.p_value is None  # the five test cases of a source are not independent
    wrong = (generated.right == WRONG).reshape(-1, 5).sum(axis=1)
    assert found.together.all_wrong == int((wrong == 5).sum())
    assert found.together.none_wrong == int((wrong == 0).sum())
    assert found.together.some_wrong == int(((wrong > 0) & (wrong < 5)).sum())
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
    assert found.factor.why.startswith("the model is right about every original; at least 0.")
    assert found.classes[0].error_generated.why == "fewer than 20 test cases"
    row = found.classes[0]
    assert (row.wrong_originals, row.sources, row.wrong_cases, row.cases) == (0, 2, 1, 2), (
        "they are counted all the same"
    )
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
    # 0.9, 0.9 and 1.0 are in the last bin: sum 2.8, 2 of 3 right. 0.3 is alone in its bin: 1 of 1 right.
    assert found.expected_error == pytest.approx((abs(2.8 - 2) + abs(0.3 - 1)) / 4)
    assert found.images[3] == 1 and found.images[9] == 3 and found.accuracy[9] == pytest.approx(2 / 3)
    assert found.confidence[0] is None


def unequal() -> tuple[Answers, Answers, Answers, NDArray[np.int64]]:
    """Return sources with 1 to 20 test cases, and their labels. Sources with 20 are easier. The first 15 of 40
    sources are harder, and only they have reconstructions.
    """
    chance = np.random.default_rng(11)
    size = np.tile([1, 2, 3, 20], 10)
    hard = np.where(size == 20, 0.1, 0.6)
    hard[:15] = 0.7
    source = np.repeat(np.arange(40), size)

    def drawn(source: NDArray[np.int64]) -> Answers:
        right = np.where(chance.random(len(source)) < hard[source], WRONG, RIGHT).astype(np.int8)
        return Answers(source, right, np.zeros(len(source), np.int64), np.full(len(source), 0.8))

    return drawn(np.arange(40)), drawn(source), drawn(np.arange(15)), np.tile(np.arange(2), 20)


def test_all_figures_of_one_comparison_weigh_sources_alike() -> None:
    original, generated, control, label = unequal()
    wrong, size = (np.bincount(generated.source, weights=held) for held in (generated.right == WRONG, None))
    shares, before = wrong / size, (original.right == WRONG).astype(float)
    found = effectiveness(original, generated, control, label, LABELS, [""] * 40)
    assert found.error_generated.value == pytest.approx(shares.mean())
    assert found.difference.value == pytest.approx((shares - before).mean())
    by_case = effectiveness(original, generated, control, label, LABELS, [""] * 40, "case")
    assert by_case.error_generated.value == pytest.approx(wrong.sum() / size.sum())
    assert by_case.error_original.value == pytest.approx(np.average(before, weights=size))
    for one in (found, by_case):
        for figures in ((one.error_original, one.error_generated, one.difference), *map(_of_class, one.classes)):
            first, second, change = (figure.value for figure in figures)
            assert first is not None and second is not None and change == pytest.approx(second - first)
    assert (found.weighing, by_case.weighing) == ("source", "case")


def _of_class(row: ClassRow) -> tuple[Figure, Figure, Figure]:
    return row.error_original, row.error_generated, row.difference


def test_reconstructions_of_some_sources_are_compared_on_these_alone() -> None:
    original, generated, control, label = unequal()
    found = effectiveness(original, generated, control, label, LABELS, [""] * 40)
    assert (found.controlled, found.sources, found.excess.sources) == (15, 40, 15)
    first, cases, drawn = (one.where(one.source < 15) for one in (original, generated, control))
    inside = effectiveness(first, cases, drawn, label[:15], LABELS, [""] * 15)
    for ours, theirs in (
        (found.excess, inside.excess),
        (found.error_reconstructed, inside.error_reconstructed),
        (found.error_original_controlled, inside.error_original),
        (found.error_generated_controlled, inside.error_generated),
    ):
        # The last digit of a sum depends on the order of its terms in memory.
        assert [ours.value, ours.low, ours.high] == pytest.approx([theirs.value, theirs.low, theirs.high], rel=1e-12)
        assert replace(ours, value=theirs.value, low=theirs.low, high=theirs.high) == theirs
    words = answer("resnet50", found, None, ())
    assert "On the 15 of 40 sources that have a reconstruction, it is wrong on" in words
    assert with_interval(found.excess, points=True) in words and "Drawing alone" not in words


def test_reconstructions_without_an_error_do_not_prove_that_edits_do_something() -> None:
    """One test case in 200 is wrong, and no reconstruction: that may be chance."""
    sources = np.arange(100)
    generated = answers(sources.tolist() * 4, [WRONG, WRONG, *[RIGHT] * 398])
    control = original = answers(sources.tolist(), [RIGHT] * 100)
    found = effectiveness(original, generated, control, np.zeros(100, np.int64), LABELS, [""] * 100)
    assert (found.error_reconstructed.value, found.excess.value) == (0.0, 0.005)
    assert not found.excess.clear_of_zero and "may be chance" in answer("resnet50", found, None, ())


def test_each_test_case_is_compared_with_the_control_of_its_own_way() -> None:
    """Computed by hand: source 0 has controls of two recipes, source 1 of one and a case without a control, source 2
    none.
    """
    case_source, case_way = [0, 0, 0, 1, 1, 2], [0, 0, 1, 0, -1, 1]
    wrong_case = [1, 0, 1, 1, 1, 1]
    control_source, control_way, wrong_control = [0, 0, 0, 1, 2], [0, 0, 1, 0, 0], [1, 0, 0, 0, 1]
    first = answers([0, 1, 2], [RIGHT] * 3)
    cases = replace(answers(case_source, [WRONG if one else RIGHT for one in wrong_case]), way=np.array(case_way))
    control = answers(control_source, [WRONG if one else RIGHT for one in wrong_control])
    control = replace(control, way=np.array(control_way))
    found = effectiveness(first, cases, control, np.zeros(3, np.int64), LABELS, [""] * 3)
    # Source 0: half the controls of recipe 0 are wrong, and two of three cases have that recipe. Source 1: one case
    # counts.
    assert found.error_generated_controlled.value == pytest.approx((2 / 3 + 1) / 2)
    assert found.error_reconstructed.value == pytest.approx((2 * 0.5 / 3 + 0) / 2)
    assert found.excess.value == pytest.approx((2 / 3 + 1) / 2 - (1 / 3) / 2)
    assert (found.controlled, found.excess.n, found.error_reconstructed.n) == (2, 4, 4)
    assert found.error_generated.value == pytest.approx((2 / 3 + 1 + 1) / 3), "all test cases count elsewhere"


def test_one_way_for_all_is_as_without_ways() -> None:
    original, generated, control, label = a_world()
    cases, drawn = (replace(one, way=np.zeros(len(one), np.int64)) for one in (generated, control))
    found = effectiveness(original, cases, drawn, label, LABELS, ["test"] * 400)
    assert found.excess == of_world().excess and found.error_reconstructed == of_world().error_reconstructed
