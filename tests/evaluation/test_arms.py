"""What trainings have brought: what is planted is found, and its intervals count seeds and sources."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.retraining.arm_statistics import Arms, Measured

SEEDS = 5


def measured(
    chance: np.random.Generator, accuracy: float, sources: int = 200, of_seed: float = 0.02, of_source: float = 0.1
) -> Measured:
    """What models are right about whose accuracy differs from seed to seed, and from source to source."""
    source = np.repeat(np.arange(sources), 4)
    shift = chance.normal(0, of_source, sources)[source] + chance.normal(0, of_seed, SEEDS)[:, None]
    return Measured(source, chance.random((SEEDS, len(source))) < np.clip(accuracy + shift, 0, 1))


def test_what_an_arm_has_won_is_found_with_its_interval() -> None:
    chance = np.random.default_rng(2)
    arms = Arms(
        {
            "original only": {"original": measured(chance, 0.85), "generated": measured(chance, 0.45)},
            "+ generated": {"original": measured(chance, 0.85), "generated": measured(chance, 0.70)},
        },
        "original only",
    )
    rows = {(row.arm, row.set): row for row in arms.rows()}
    gain = rows["+ generated", "generated"].gain
    assert gain.value is not None and gain.low is not None and gain.high is not None
    assert gain.low < 0.25 < gain.high and gain.low > 0.15
    assert not rows["+ generated", "original"].gain.clear_of_zero
    assert rows["original only", "generated"].gain.why == "the others are compared with it"
    (won,) = arms.won_back("original", "generated")
    assert won.share.value == pytest.approx(0.25 / 0.40, abs=0.1) and won.share.low is not None and won.share.low > 0.4


@pytest.mark.slow
def test_intervals_hold_what_is_true_whatever_differs_seeds_or_sources() -> None:
    chance = np.random.default_rng(7)
    for of_seed, of_source in ((0.05, 0.0), (0.0, 0.3)):
        held, studies = 0, 60
        for study in range(studies):
            source = np.repeat(np.arange(60), 3)
            shift = chance.normal(0, of_source, 60)[source] + chance.normal(0, of_seed, 12)[:, None]
            one = Measured(source, chance.random((12, 180)) < np.clip(0.5 + shift, 0, 1))
            row = Arms({"a": {"set": one}}, "a", study).rows()[0].accuracy
            assert row.low is not None and row.high is not None
            held += row.low <= 0.5 <= row.high
        assert held / studies >= 0.85


def test_arms_that_were_measured_otherwise_and_a_model_that_loses_nothing() -> None:
    chance = np.random.default_rng(1)
    one, fewer = measured(chance, 0.8), measured(chance, 0.8, sources=100)
    with pytest.raises(ValueError, match="other images of set"):
        Arms({"a": {"set": one}, "b": {"set": fewer}}, "a")
    same = {"original": one, "generated": one}
    (won,) = Arms({"a": same, "b": same}, "a").won_back("original", "generated")
    assert won.share.value is None and won.share.why == "the model loses nothing on the generated images"
    less = Measured(one.source, one.right.copy())
    less.right[:, ::100] = False
    for base in ({"original": one, "generated": less}, {"original": one, "generated": measured(chance, 0.6)}):
        (won,) = Arms({"a": base, "b": base}, "a").won_back("original", "generated")
        told = won.share.why == "what the model loses on the generated images may be chance"
        assert (won.share.value is None) == told == (base["generated"] is less)
    alone = Measured(np.array([0, 0]), np.array([[True, False]]))
    row = Arms({"a": {"set": alone}}, "a").rows()[0]
    assert row.accuracy.value == 0.5 and row.accuracy.low is None
