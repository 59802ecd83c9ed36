"""What votes on a sample make of an error rate: the paper's own figures, worked examples, and how often intervals hold
what is true.
"""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.validity import MANY, Judged, expected_width, sample_sizes, validity_effect

STRATA = ("right", "wrong, weather", "wrong, colour")


def a_study(
    chance: np.random.Generator,
    sources: int = 300,
    judged: int = 120,
    telling: float = 0.0,
    votes: int = 5,
) -> tuple[Judged, float, float]:
    """Images of a model and votes on some of them; and how many are wrong and valid, and wrong of the valid ones, in
    the world that they are from. `telling`: how much the score knows, 0 to 1; people vote as what is true with 0.97.
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
    both = 0.5 * (0.5 * 0.9 + 0.5 * 0.6)  # hard is uniform, so half of all images are wrong
    return Judged(source, wrong, stratum, votes_for, given, score), both, both / (both + 0.5 * 0.98)


def test_the_papers_figures_are_what_its_way_gives() -> None:
    """Its Table I and its study: 47.0 % wrong, of 98 judged failures 81 valid: 38.9 %, and 34.8 to 41.8 %."""
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
    assert [(row.judged, row.valid) for row in found.rows] == [(300, 299), (98, 81)]


def test_strata_are_weighed_as_they_are_and_not_as_they_were_judged() -> None:
    """A worked example: 80 right, 10 wrong of each kind; of each five are judged."""
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
    """A worked example of prediction-powered inference with all of the score: mean of all and the mean of what it
    misses."""
    score = np.array([0.9, 0.8, 0.7, 0.2, 0.6, 0.5])
    votes = np.array([1, 1, 1, 1, 0, 0])
    held = Judged(
        np.arange(6), np.ones(6, dtype=bool), np.zeros(6, dtype=int), np.array([1, 1, 1, 0, 0, 0]), votes, score
    )
    found = validity_effect(held, ("wrong",))
    weight = found.score_weight
    assert weight is not None and 0 < weight <= 1
    mended = weight * score.mean() + (np.array([1, 1, 1, 0]) - weight * score[:4]).mean()
    assert found.with_score.value == pytest.approx(mended)


@pytest.mark.slow
@pytest.mark.parametrize("telling", [0.0, 0.8])
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
        assert widths[1] < 0.85 * widths[0]  # what the score knows is worth votes
    else:
        assert widths[1] < 1.05 * widths[0]  # and one that knows nothing costs none


@pytest.mark.slow
@pytest.mark.parametrize("sources", [MANY // 2, 2 * MANY])
def test_the_ends_are_those_of_sources_drawn_one_by_one(sources: int) -> None:
    """An independent implementation: whole sources are drawn image by image, whether or not anybody judged them."""
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
        # By chance, an end of 4,000 resamples is some 0.04 of a standard error off, and so is the other's.
        assert [figure.low, figure.high] == pytest.approx([low, high], abs=0.05 * (high - low))


def test_without_votes_or_with_strata_that_nobody_judged_it_says_so() -> None:
    source = np.arange(40)
    wrong, stratum = source < 20, np.where(source < 20, np.where(source < 10, 1, 2), 0)
    none = np.zeros(40, dtype=int)
    found = validity_effect(Judged(source, wrong, stratum, none, none), STRATA)
    assert found.as_measured.value == 0.5 and found.by_strata.why == "nobody judged an image yet"
    votes = np.where(stratum == 2, 0, 3)
    found = validity_effect(Judged(source, wrong, stratum, votes, votes), STRATA)
    assert found.not_judged_in == ("wrong, colour",) and found.rows[2].share_valid is None
    found = validity_effect(Judged(source, wrong, stratum, none, np.where(stratum == 0, 3, 0)), STRATA)
    assert found.by_strata.why == "no wrong image was judged"


def test_a_sample_is_shared_out_and_its_width_foretold() -> None:
    assert sample_sizes([800, 150, 50, 2], 100) == (72, 17, 9, 2)
    assert sum(sample_sizes([800, 150, 50, 2], 100)) == 100
    assert sample_sizes([3, 4], 100) == (3, 4)
    assert expected_width([1.0], [100], 0.5) == pytest.approx(2 * 1.96 * 0.05, rel=1e-3)
