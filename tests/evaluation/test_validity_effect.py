"""Error rates corrected by votes on a sample: the paper's figures, worked examples, and coverage of the intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.samples import expected_width, sample_sizes
from evaluation.validity import Judged, validity_effect
from evaluation.worker_errors import HARD, VALID, Ballots, drawn_states
from experiments.coverage.of_votes import WORLDS, measured

STRATA = ("right", "wrong, weather", "wrong, colour")
NAMES = ("source", "wrong", "stratum", "votes_for", "votes", "score")
"""Columns of `Judged`."""


def a_study(
    chance: np.random.Generator,
    sources: int = 300,
    judged: int = 120,
    telling: float = 0.0,
    votes: int = 5,
) -> tuple[Judged, float, float]:
    """Return a model's images with votes on some of them, the true share of images that are wrong and valid, and the
    true error rate of valid images. `telling` is how much the score knows, from 0 to 1. Each vote is true with
    probability 0.97.
    """
    images = 4 * sources
    source = np.repeat(np.arange(sources), 4)
    hard = chance.beta(1.0, 1.0, sources)[source]
    wrong = chance.random(images) < hard
    kind = chance.integers(1, 3, images)
    stratum = np.where(wrong, kind, 0)
    chances = np.array([0.98, 0.9, 0.6])[stratum]
    valid = chance.random(images) < chances
    votes_for, given = np.zeros(images, dtype=int), np.zeros(images, dtype=int)
    for number in range(3):
        own = np.flatnonzero(stratum == number)
        some = chance.choice(own, min(judged // 3, len(own)), replace=False)
        given[some] = votes
        votes_for[some] = chance.binomial(votes, np.where(valid[some], 0.97, 0.03))
    score = np.clip(telling * valid + (1 - telling) * chance.random(images), 0, 1)
    both = 0.5 * (0.5 * 0.9 + 0.5 * 0.6)  # `hard` is uniform, so half of all images are wrong
    return Judged(source, wrong, stratum, votes_for, given, score), both, both / (both + 0.5 * 0.98)


def test_the_papers_figures_are_what_its_way_gives() -> None:
    """The paper's Table I and study: 47.0 % are wrong, and 81 of 98 judged failures are valid. This gives 38.9 %
    (34.8 to 41.8 %).
    """
    from scipy import stats

    images = 10_000
    wrong = np.arange(images) < 4700
    votes = np.zeros(images, dtype=int)
    votes[:98], votes[9000:9300] = 1, 1
    votes_for = np.zeros(images, dtype=int)
    votes_for[:81], votes_for[9000:9299] = 1, 1
    held = Judged(np.arange(images), wrong, np.where(wrong, 1, 0), votes_for, votes)
    found = validity_effect(held, ("right", "wrong"))
    assert found.as_measured.value == pytest.approx(0.47)
    assert found.times_valid.value == pytest.approx(0.47 * 81 / 98)
    assert found.by_strata.value == pytest.approx(0.47 * 81 / 98)
    wilson = stats.binomtest(81, 98).proportion_ci(method="wilson")
    assert found.times_valid.low == pytest.approx(0.47 * wilson.low, abs=0.012)
    assert found.times_valid.high == pytest.approx(0.47 * wilson.high, abs=0.01)
    assert found.with_score.value is None and found.score_weight is None
    assert found.judged == 398


def test_strata_are_weighed_as_they_are_and_not_as_they_were_judged() -> None:
    """A worked example: 80 images are right, and 10 are wrong in each of two ways. Five images of each group are
    judged.
    """
    stratum = np.repeat([0, 1, 2], [80, 10, 10])
    votes, votes_for = np.zeros(100, dtype=int), np.zeros(100, dtype=int)
    for begin, valid in ((0, 5), (80, 4), (90, 2)):
        votes[begin : begin + 5] = 3
        votes_for[begin : begin + valid] = 3
    held = Judged(np.arange(100), stratum > 0, stratum, votes_for, votes)
    found = validity_effect(held, STRATA)
    assert found.by_strata.value == pytest.approx(0.1 * 0.8 + 0.1 * 0.4)
    assert found.times_valid.value == pytest.approx(0.2 * 6 / 10)
    assert found.among_valid.value == pytest.approx(0.12 / (0.12 + 0.8))


def test_the_score_is_mended_by_the_votes() -> None:
    """A worked example of prediction-powered inference with the full weight of the score: the mean score of all
    images, plus the mean error of the score on judged images.
    """
    times = 15
    score = np.tile([0.9, 0.8, 0.7, 0.2, 0.6, 0.5], times)
    votes, votes_for = np.tile([1, 1, 1, 1, 0, 0], times), np.tile([1, 1, 1, 0, 0, 0], times)
    held = Judged(np.arange(6 * times), np.ones(6 * times, bool), np.zeros(6 * times, int), votes_for, votes, score)
    found = validity_effect(held, ("wrong",))
    weight = found.score_weight
    assert weight is not None and 0 < weight <= 1
    mended = weight * score.mean() + (np.array([1, 1, 1, 0]) - weight * score[:4]).mean()
    assert found.with_score.value == pytest.approx(mended)

    told = validity_effect(Judged(*(getattr(held, name)[:60] for name in NAMES)), ("wrong",))
    assert told.with_score.value is None and told.with_score.why == "fewer than 50 wrong images were judged"


@pytest.mark.slow
@pytest.mark.parametrize("telling", [pytest.param(0.0, marks=pytest.mark.soak), 0.8])
def test_intervals_hold_what_is_true_whatever_the_score_knows(telling: float) -> None:
    chance = np.random.default_rng(11)
    held_true, widths = np.zeros(3), np.zeros(2)
    studies = 300
    for study in range(studies):
        held, both, among = a_study(chance, telling=telling)
        found = validity_effect(held, STRATA, study, 400)
        for place, (figure, true) in enumerate(
            ((found.by_strata, both), (found.with_score, both), (found.among_valid, among))
        ):
            assert figure.low is not None and figure.high is not None
            held_true[place] += figure.low <= true <= figure.high
        widths += [found.by_strata.high - found.by_strata.low, found.with_score.high - found.with_score.low]  # type: ignore[operator]
    assert (held_true / studies >= 0.91).all() and (held_true / studies <= 0.995).all(), held_true
    if telling:
        assert widths[1] < 0.85 * widths[0]  # a score that predicts votes narrows the interval
    else:
        assert widths[1] < 1.05 * widths[0]  # a score that predicts nothing hardly widens the interval


@pytest.mark.slow
@pytest.mark.parametrize("sources", [250, 1500])
def test_the_ends_are_those_of_sources_drawn_one_by_one(sources: int) -> None:
    """Compare with an independent implementation, which draws whole sources one by one, judged or not."""
    held, _, _ = a_study(np.random.default_rng(5), sources, judged=150, telling=0.5)
    found, chance = validity_effect(held, STRATA, resamples=4000), np.random.default_rng(6)
    weight, score = found.score_weight, held.score
    assert weight is not None and score is not None
    valid = np.where(held.votes > 0, 2 * held.votes_for > held.votes, False)
    drawn = []
    for _ in range(4000):
        images = (chance.integers(0, sources, sources)[:, None] * 4 + np.arange(4)).ravel()
        wrong, asked, good, sure = (one[images] for one in (held.wrong, held.votes > 0, valid, score))
        both = mended = all_valid = 0.0
        for number in range(len(STRATA)):
            own = held.stratum[images] == number
            judged = own & asked
            share = own.mean()
            both += share * (wrong & good)[judged].mean()
            mended += share * (weight * (wrong * sure)[own].mean())
            mended += share * ((wrong & good)[judged] - weight * (wrong * sure)[judged]).mean()
            all_valid += share * good[judged].mean()
        drawn.append([wrong.mean(), wrong.mean() * good[asked & wrong].mean(), both, mended, both / all_valid])
    expected = np.quantile(drawn, [0.025, 0.975], axis=0).T
    figures = (found.as_measured, found.times_valid, found.by_strata, found.with_score, found.among_valid)
    for figure, (low, high) in zip(figures, expected, strict=True):
        # The end of an interval from 4,000 resamples varies by some 0.011 of the width, in both implementations.
        assert [figure.low, figure.high] == pytest.approx([low, high], abs=0.07 * (high - low))


def test_without_votes_or_with_strata_that_nobody_judged_it_says_so() -> None:
    source = np.arange(40)
    wrong, stratum = source < 20, np.where(source < 20, np.where(source < 10, 1, 2), 0)
    none = np.zeros(40, dtype=int)
    found = validity_effect(Judged(source, wrong, stratum, none, none), STRATA)
    assert found.as_measured.value == 0.5 and found.by_strata.why == "nobody judged an image yet"
    assert found.by_strata.low is None and found.undecided.value is None
    votes = np.where(stratum == 2, 0, 3)
    found = validity_effect(Judged(source, wrong, stratum, votes, votes), STRATA)
    assert found.not_judged_in == ("wrong, colour",)
    # All judged wrong images are valid, which is half of them. The others are unknown: bounds and no value.
    assert found.by_strata.value is None and found.by_strata.why == "no image of “wrong, colour” was judged"
    assert [found.at_least.value, found.at_most.value] == pytest.approx([0.25, 0.5])
    assert found.by_strata.low is not None and found.by_strata.high is not None
    assert found.by_strata.low < 0.25 and found.by_strata.high > 0.5
    assert found.with_score.value is None and found.among_valid.value is None
    found = validity_effect(Judged(source, wrong, stratum, none, np.where(stratum == 0, 3, 0)), STRATA)
    assert found.by_strata.why == "no wrong image was judged" and found.by_strata.value is None
    assert found.by_strata.low == 0.0 and found.at_least.value == 0.0 and found.at_most.value == 0.5


def test_of_wrong_images_alone_no_more_than_are_wrong_are_wrong_and_valid() -> None:
    """The paper's case: 98 wrong images were judged. A right image cannot be wrong and valid, and needs no votes."""
    images = 1000
    wrong = np.arange(images) < 643
    votes, votes_for = np.zeros(images, int), np.zeros(images, int)
    votes[:98], votes_for[:80] = 5, 5
    for strata, names in ((wrong.astype(int), ("right", "wrong")), (np.zeros(images, int), ("all",))):
        found = validity_effect(Judged(np.arange(images), wrong, strata, votes_for, votes), names)
        assert found.as_measured.value == pytest.approx(0.643)
        assert found.by_strata.value == pytest.approx(0.643 * 80 / 98)
        assert found.by_strata.high is not None and found.by_strata.high < 0.643
        # The validity of the right images is unknown: all may be valid, or none.
        both = 0.643 * 80 / 98
        assert found.among_valid.value is None and found.among_valid.high == 1.0
        assert found.among_valid.low is not None and found.among_valid.low < both / (both + 0.357)


def test_every_source_weighs_the_same_and_its_images_share_its_weight() -> None:
    """One source has eight images, all wrong and invalid. Two sources have one image each, wrong and valid."""
    source, wrong = np.array([0] * 8 + [1, 2]), np.ones(10, bool)
    votes, votes_for = np.ones(10, int), np.array([0] * 8 + [1, 1])
    held = Judged(source, wrong, np.zeros(10, int), votes_for, votes)
    found, by_case = (validity_effect(held, ("wrong",), weighing=one) for one in ("source", "case"))  # type: ignore[arg-type]
    assert found.by_strata.value == pytest.approx(2 / 3) and found.by_strata.n == 10
    assert by_case.by_strata.value == pytest.approx(2 / 10)


def test_the_interval_of_one_kind_of_images_lies_between_the_exact_ones() -> None:
    """The ends of Clopper and Pearson's interval are quantiles of two beta distributions. Here each is drawn half
    the time.
    """
    from scipy import optimize, stats

    images, n = 5000, 20
    for good in (1, 3, 13, 19):
        votes, votes_for = np.zeros(images, int), np.zeros(images, int)
        votes[:n], votes_for[:good] = 1, 1
        held = Judged(np.arange(images), np.ones(images, bool), np.zeros(images, int), votes_for, votes)
        figure = validity_effect(held, ("wrong",), resamples=20_000).by_strata
        both = stats.beta(good, n - good + 1), stats.beta(good + 1, n - good)
        ends = [
            optimize.brentq(lambda x, p=p, both=both: both[0].cdf(x) + both[1].cdf(x) - 2 * p, 0, 1)
            for p in (0.025, 0.975)
        ]
        assert [figure.low, figure.high] == pytest.approx(ends, abs=0.01), good
    none = np.zeros(images, int)
    held = Judged(np.arange(images), np.ones(images, bool), none, none, np.where(np.arange(images) < n, 1, 0))
    figure = validity_effect(held, ("wrong",), resamples=20_000).by_strata
    # With none of 20 valid, half of the draws are 0. The upper end is that of a one-sided interval of 95 %.
    assert (figure.value, figure.low) == (0.0, 0.0)
    assert figure.high == pytest.approx(stats.beta(1, n).ppf(0.95), abs=0.01)


def test_images_without_a_consensus_are_counted_and_bound_the_figure() -> None:
    """A worked example of Manski's bounds: 60 of 100 images are wrong. Of 40 judged images 20 are valid, 12 not, 8
    undecided.
    """
    wrong = np.arange(100) < 60
    votes, votes_for, undecided = np.zeros(100, int), np.zeros(100, int), np.zeros(100, bool)
    votes[:32], votes_for[:20], undecided[32:40] = 5, 5, True
    held = Judged(np.arange(100), wrong, wrong.astype(int), votes_for, votes, undecided=undecided)
    found = validity_effect(held, ("right", "wrong"))
    assert (found.judged, found.discarded, found.undecided.value) == (32, 8, 0.2)
    assert found.by_strata.value == pytest.approx(0.6 * 20 / 32)
    assert [found.at_least.value, found.at_most.value] == pytest.approx([0.6 * 20 / 40, 0.6 * 28 / 40])
    low, high, least, most = found.by_strata.low, found.by_strata.high, found.at_least.value, found.at_most.value
    assert None not in (low, least, most, high) and low < least < most < high  # type: ignore[operator]
    agreed = validity_effect(replace(held, undecided=None), ("right", "wrong"))
    assert agreed.discarded == 0 and agreed.at_least.value == agreed.at_most.value == agreed.by_strata.value


def test_of_a_selected_part_the_other_images_bound_the_figure() -> None:
    """Only accepted images were judged. Nothing is known of the 30 wrong images that are not accepted."""
    wrong, accepted = np.arange(100) < 60, np.arange(100) % 2 == 0
    votes = np.where(accepted, 1, 0)
    held = Judged(np.arange(100), wrong, wrong.astype(int), votes, votes, outside=~accepted)
    found = validity_effect(held, ("right", "wrong"))
    assert found.by_strata.value is None and found.by_strata.why == "no other image was judged"
    assert [found.at_least.value, found.at_most.value] == pytest.approx([0.3, 0.6])


def test_two_studies_that_cannot_both_be_right_give_no_figure() -> None:
    """The paper's figures: 299 of 300 random images are valid, but only 81 of 98 wrong images, while 47 % are wrong."""
    images = 4000
    wrong = np.arange(images) % 100 < 47
    of_all, of_wrong = np.arange(300), np.flatnonzero(wrong)[-98:]
    votes, votes_for, study = np.zeros(images, int), np.zeros(images, int), np.full(images, -1)
    for number, places, good in ((0, of_all, 299), (1, of_wrong, 81)):
        votes[places], study[places], votes_for[places[:good]] = 5, number, 5
    held = Judged(
        np.arange(images), wrong, wrong.astype(int), votes_for, votes, study=study, studies=("Random", "Misclassified")
    )
    found = validity_effect(held, ("right", "wrong"))
    assert found.by_strata.value is None and found.by_strata.low is None
    assert found.by_strata.why.startswith("the studies “Misclassified”, with 81 of 98 wrong images valid, and “Random”")
    assert "contradict each other" in found.by_strata.why
    assert "but 299 of 300 were found to be. Were both samples asked the same question?" in found.by_strata.why
    votes_for[of_all[wrong[:300]][::6]] = 0  # as few valid ones among the wrong as in the other study
    assert validity_effect(held, ("right", "wrong")).by_strata.value is not None


def test_workers_who_always_say_yes_are_seen_by_control_items() -> None:
    """Five workers judge 60 images, half of them valid, and two always say yes. So no image gets four votes for no."""
    rng = np.random.default_rng(4)
    truth = np.arange(60) % 2 == 0
    worker, image = np.tile(np.arange(5), 60), np.repeat(np.arange(60), 5)
    said = np.where(worker < 2, True, np.where(rng.random(300) < 0.95, truth[image], ~truth[image]))
    known = np.tile([1, 1, 1, 0, 0, 0], 5)
    of_control = np.repeat(np.arange(5), 6)
    ballots = Ballots(
        np.concatenate([image, np.full(30, -1)]),
        np.concatenate([worker, of_control]),
        np.concatenate([said, np.where(of_control < 2, True, known == 1)]),
        np.concatenate([np.full(300, -1), known]),
    )
    votes = np.bincount(image, said, 60)
    assert (votes[~truth] >= 2).all(), "no invalid image has a consensus of four"
    states = drawn_states(ballots, np.arange(60), np.zeros(60, int), np.full(60, -1))
    found = (states == VALID).mean(axis=0)
    assert ((found > 0.5) == truth).mean() > 0.95 and (states == HARD).mean() < 0.1
    again = drawn_states(ballots, np.arange(60), np.zeros(60, int), np.full(60, -1))
    assert (states == again).all(), "the same votes say the same"
    # The bounds come from the same estimate, so the measured value lies between them. Without split votes all agree.
    votes_for, ones = votes.astype(int), np.ones(60, bool)
    split = (votes_for > 1) & (votes_for < 4)
    held = Judged(
        np.arange(60), ones, np.zeros(60, int), votes_for, np.where(split, 0, 5), undecided=split, ballots=ballots
    )
    found = validity_effect(held, ("wrong",))
    least, value, most = found.at_least.value, found.by_strata.value, found.at_most.value
    assert least is not None and value is not None and most is not None
    assert least <= value <= most and found.discarded == split.sum() > 20 and 0.45 < least < 0.55 < 0.9 < most
    sure = replace(held, undecided=None, votes=np.full(60, 5))
    every = validity_effect(sure, ("wrong",))
    assert every.at_least.value == every.by_strata.value == every.at_most.value


@pytest.mark.slow  # crowd-kit is loaded
def test_what_votes_say_agrees_with_crowd_kit() -> None:
    """Without control items, compare with the answers of Dawid and Skene by crowd-kit."""
    import pandas
    from crowdkit import aggregation

    rng = np.random.default_rng(6)
    truth, right = rng.random(150) < 0.7, np.array([0.95, 0.9, 0.9, 0.8, 0.65])
    image, worker = np.repeat(np.arange(150), 5), np.tile(np.arange(5), 150)
    said = np.where(rng.random(750) < right[worker], truth[image], ~truth[image])
    table = pandas.DataFrame({"task": image, "worker": worker, "label": said})
    theirs = aggregation.DawidSkene(100).fit_predict(table).sort_index().to_numpy(bool)
    ballots = Ballots(image, worker, said, np.full(750, -1))
    states = drawn_states(ballots, np.arange(150), np.zeros(150, int), np.full(150, -1))
    ours = (states == VALID).mean(axis=0) + (states == HARD).mean(axis=0) / 2 > 0.5
    assert (ours == theirs).mean() >= 0.97


_EASY = ("random study of 10", "random study of 30", "few wrong (2 %), random study of 100", "98 wrong images judged")
_CREWS = ("2 of 5 always say yes, with control items", "hard invalid images", "one vote of 90 %")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "repetitions"),
    [pytest.param(_EASY, 50, id="samples"), pytest.param(_CREWS, 8, marks=pytest.mark.soak, id="crews")],
)
def test_intervals_hold_what_is_true_where_it_is_hard(names: tuple[str, ...], repetitions: int) -> None:
    """A short form of `python -m experiments.coverage`. Earlier methods covered 41.7, 77.7 and 88 % of the random
    studies, and 25, 40 and 87 % of those with workers who err together. The limit allows for chance around 95 %.
    """
    from scipy import stats

    worlds = [world for world in WORLDS if world.name in names]
    assert len(worlds) == len(names)
    for row in (row for number, world in enumerate(worlds) for row in measured(world, number, repetitions, 3)):
        least = stats.binom.ppf(0.001, repetitions, 0.95) / repetitions
        assert row.covers is not None and row.covers >= least, row
        assert row.mean is not None and abs(row.mean - row.truth) < 0.15 * row.truth, row


def test_a_sample_is_shared_out_and_its_width_foretold() -> None:
    assert sample_sizes([800, 150, 50, 2], 100) == (72, 17, 9, 2)
    assert sum(sample_sizes([800, 150, 50, 2], 100)) == 100
    assert sample_sizes([3, 4], 100) == (3, 4)
    assert expected_width([1.0], [100], 0.5) == pytest.approx(2 * 1.96 * 0.05, rel=1e-3)
    # Nothing is known of a stratum without a judged image.
    assert expected_width([0.9, 0.1], [100, 0], 0.5) == pytest.approx(0.9 * 2 * 1.96 * 0.05 + 0.1, rel=1e-3)


def test_a_sample_is_never_larger_than_asked_and_begins_with_the_largest_wrong_strata() -> None:
    images = [300, 40, 200, 90, 100, 20, 60, 70]
    wrong = [False, True] * 4
    assert sample_sizes(images, 10, wrong=wrong) == (0, 0, 0, 5, 0, 0, 0, 5)
    assert sample_sizes(images, 3, wrong=wrong) == (0, 0, 0, 3, 0, 0, 0, 0)
    for judged in range(0, 900, 7):
        sizes = sample_sizes(images, judged, wrong=wrong)
        assert sum(sizes) == min(judged, sum(images))
        assert all(0 <= size <= there for size, there in zip(sizes, images, strict=True))
