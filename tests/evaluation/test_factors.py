"""Main effects and interactions of factors on the answers of a model, and factors that drawing mixes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from core.evaluation_results import EffectRow, FactorEffects
from core.figures import Floats, Numbers
from evaluation.factors import ANY, APART, FEWEST, OTHER, Levels, effects, mixed
from experiments.coverage.of_factors import FactorWorld, missed, shares

NIGHT, RAIN = ("time of day", "night"), ("weather", "rain")


def full(sources: int, factors: int = 2) -> Levels:
    """Return all combinations of two levels of factors, for each source."""
    combos = np.array(list(product((0, 1), repeat=factors)))
    names = [("night",), ("rain",), ("red",)][:factors]
    titles = ("time of day", "weather", "attribute")[:factors]
    return Levels(np.repeat(np.arange(sources), len(combos)), np.tile(combos, (sources, 1)), titles, names)


def answers(images: Levels, seed: int = 0, night: float = 0.0, together: float = 0.0) -> Floats:
    chance = np.random.default_rng(seed)
    both = images.levels[:, 0] * images.levels[:, 1]
    wrong = 0.1 + night * images.levels[:, 0] + together * both
    return (chance.random(len(wrong)) < wrong).astype(np.float64)


def row(found: FactorEffects, *parts: tuple[str, str]) -> EffectRow:
    return next(one for one in found.rows if one.parts == parts)


def test_it_is_not_the_night_but_the_night_and_the_rain() -> None:
    images = full(300)
    found = effects(images, answers(images, together=0.4))
    assert row(found, NIGHT, RAIN).answer == "raises"
    assert [row(found, one).answer for one in (NIGHT, RAIN)] == ["cannot tell"] * 2
    other = effects(images, answers(images, night=0.4))
    assert row(other, NIGHT).answer == "raises" and row(other, NIGHT, RAIN).answer == "cannot tell"
    helps = effects(images, 1 - answers(images, together=0.4))
    assert row(helps, NIGHT, RAIN).answer == "lowers"
    assert found.unchanged.n == found.unchanged.sources == 300 and found.unchanged.value == pytest.approx(0.1, abs=0.05)


def test_with_all_combinations_the_effects_are_differences_of_cells() -> None:
    images = full(60)
    wrong = answers(images, 4, night=0.2, together=0.3)
    cells = wrong.reshape(60, 2, 2)
    found = effects(images, wrong)
    night, both = row(found, NIGHT), row(found, NIGHT, RAIN)
    assert night.effect.value == pytest.approx((cells[:, 1, 0] - cells[:, 0, 0]).mean())
    sums = cells[:, 1, 1] - cells[:, 1, 0] - cells[:, 0, 1] + cells[:, 0, 0]
    assert both.effect.value == pytest.approx(sums.mean())
    # Alone, the jackknife gives the usual interval of a mean; the unseen source makes it a little wider.
    usual = stats.ttest_1samp(sums, 0.0).confidence_interval()
    assert both.effect.width is not None
    assert usual.high - usual.low < both.effect.width < 1.1 * (usual.high - usual.low)
    assert night.images == tuple(np.flatnonzero(images.levels[:, 0])) and both.effect.n == 60


def test_images_of_one_source_are_not_independent() -> None:
    """Each answer counted four times tells no more than once."""
    images = full(40)
    wrong = answers(images, 2, together=0.4)
    often = Levels(np.tile(images.source, 4), np.tile(images.levels, (4, 1)), images.factors, images.names)
    once, four = (row(effects(*one), NIGHT, RAIN).effect for one in ((images, wrong), (often, np.tile(wrong, 4))))
    assert (four.low, four.high) == pytest.approx((once.low, once.high)) and four.sources == 40


def test_an_effect_that_never_shows_is_not_certain_to_be_nothing() -> None:
    images = full(30)
    found = row(effects(images, np.zeros(len(images.source))), NIGHT).effect
    assert found.value == 0 and found.low is not None and found.low < -0.05 and found.high == -found.low


def test_an_effect_that_cannot_be_told_says_how_many_sources_would_do() -> None:
    images = full(30)
    wrong = answers(images, 1, together=0.25)
    found = row(effects(images, wrong), NIGHT, RAIN)
    assert found.answer == "cannot tell" and found.needed is not None and found.needed > 30
    times = -(-found.needed // 30) + 1
    more = full(30 * times)
    assert row(effects(more, np.tile(wrong, times)), NIGHT, RAIN).answer == "raises"
    few = effects(full(FEWEST - 1), answers(full(FEWEST - 1)))
    assert {one.effect.why for one in few.rows} == {f"fewer than {FEWEST} sources"}


def test_without_the_unchanged_images_or_apart_effects_are_not_told() -> None:
    images = full(50)
    wrong = answers(images)
    changed = images.levels.sum(axis=1) > 0
    found = effects(images.where(changed), wrong[changed])
    assert {one.effect.why for one in found.rows} == {APART} and found.unchanged.value is None
    together = np.equal(*images.levels.T)
    found = effects(images.where(together), wrong[together])
    assert all(one.answer == "cannot tell" and one.p_adjusted is None for one in found.rows)


def test_unknown_answers_and_sources_without_a_factor_are_left_out() -> None:
    images = full(80)
    wrong = answers(images, night=0.4)
    unknown = wrong.copy()
    unknown[::7] = np.nan
    found = effects(images, unknown)
    assert found.images == np.isfinite(unknown).sum() and row(found, NIGHT).answer == "raises"
    assert not set(row(found, NIGHT).images) & set(range(0, 320, 7)), "images are those of the caller"
    half = images.where((images.source < 40) | (images.levels[:, 1] == 0))
    found = effects(half, wrong[(images.source < 40) | (images.levels[:, 1] == 0)])
    assert (row(found, RAIN).effect.sources, row(found, NIGHT).effect.sources) == (40, 80)


def test_rare_alternatives_are_put_together_and_rare_combinations_counted() -> None:
    images = full(60)
    levels: Numbers = images.levels.copy()
    colour = images.source % 60
    levels[:, 0] *= np.where(colour < 40, 1, 2 + colour % 10)
    many = replace(images, levels=levels, names=[("night", *(f"dusk {at}" for at in range(10))), ("rain",)])
    found = effects(many, answers(images))
    assert {one.parts for one in found.rows} == {
        (NIGHT,), (("time of day", OTHER),), (RAIN,), (NIGHT, RAIN), (("time of day", OTHER), RAIN)
    }  # fmt: skip
    assert found.few == 0 and row(found, ("time of day", OTHER)).effect.sources == 20
    by_factor = effects(many.by_factor(), answers(images))
    assert {one.parts for one in by_factor.rows} == {
        (("time of day", ANY),), (("weather", ANY),), (("time of day", ANY), ("weather", ANY))
    }  # fmt: skip


def test_each_source_weighs_the_same_or_each_image_does() -> None:
    images = full(20)
    often = np.concatenate([np.arange(80), *[np.arange(4)] * 30])
    wrong = ((images.source == 0) & (images.levels[:, 0] == 1)).astype(np.float64)
    uneven = Levels(images.source[often], images.levels[often], images.factors, images.names)
    assert row(effects(uneven, wrong[often]), NIGHT).effect.value == pytest.approx(1 / 20)
    assert row(effects(uneven, wrong[often], "case"), NIGHT).effect.value == pytest.approx(31 / 50)


def test_drawing_that_changes_the_colour_with_the_weather_is_told() -> None:
    images = full(100, 3)
    chance = np.random.default_rng(0)
    looks = np.clip(0.8 * images.levels + chance.normal(0.1, 0.05, images.levels.shape), 0, 1)
    rain_alone = (images.levels[:, 1] == 1) & (images.levels[:, 2] == 0)
    looks[rain_alone, 2] = np.clip(looks[rain_alone, 2] + 0.3, 0, 1)
    looks[images.source > 90, 2] = np.nan  # sources without this factor
    found = mixed(images, looks)
    assert len(found) == 6 and {(one.asked, one.seen) for one in found if one.mixes} == {("weather", "attribute")}
    first = found[0]
    assert first.effect.value == pytest.approx(0.3, abs=0.02) and first.effect.sources == 91
    assert first.own.value is not None and 0.6 < first.own.value < 0.9


@pytest.mark.parametrize("world", [FactorWorld(200, 3, 1, 7, 0.1, True), FactorWorld(200, 4, 1, 4, 0.1, False)])
def test_planted_interactions_are_found_and_no_others(world: FactorWorld) -> None:
    found = shares(world, 60)
    assert not world.planted or (found.found is not None and found.found >= 0.85)
    assert found.false <= 0.12 and found.covers >= 0.93 and "false" not in missed(world, found, 60)
