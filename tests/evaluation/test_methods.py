"""Methods compared on the same sources: intervals cover, and what is not comparable is not compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.figures import Figure, Flags
from evaluation.methods import (
    MethodFigure,
    MethodImages,
    MethodTable,
    compare_methods,
    difference_of,
    quotient_of,
    weak_cells,
)
from evaluation.validity import Judged

WEATHER, BACKGROUND = 0, 1
TYPES = ("weather", "background")


def images_of(chance: np.random.Generator, valid: tuple[float, ...], sources: int, images: int = 4) -> MethodImages:
    """Return images of a method for each share of valid ones. Some sources are hard for all methods, and half of the
    valid images are faults. Method 2, if there is one, edits backgrounds only.
    """
    hard = chance.normal(0, 0.15, sources)
    source = np.repeat(np.arange(sources), images)
    columns = []
    for method, share in enumerate(valid):
        is_valid = chance.random(len(source)) < np.clip(share + hard[source], 0, 1)
        wrong = chance.random(len(source)) < 0.5
        kind = np.full(len(source), BACKGROUND) if method == 2 else np.arange(len(source)) % 2
        passed = is_valid.astype(int)
        columns.append(
            [np.full(len(source), method), source, kind, kind, np.full(len(source), -1), passed, passed, passed]
            + [wrong.astype(int)] * 2
        )
    return MethodImages(*(np.concatenate(one) for one in zip(*columns, strict=True)))


def none(images: MethodImages, methods: int) -> np.ndarray:
    return np.full((methods, int(images.source.max()) + 1), np.nan)


def figure(table: MethodTable, name: str) -> MethodFigure:
    return next(one for one in table.figures if one.name == name)


def covers(found: Figure | None, truth: float) -> bool:
    assert found is not None and found.low is not None and found.high is not None
    return found.low <= truth <= found.high


def test_intervals_of_figures_and_of_paired_differences_cover() -> None:
    times, hits = 100, dict.fromkeys(("valid", "difference", "per 100", "difference per 100", "per minute"), 0)
    for seed in range(times):
        chance = np.random.default_rng(seed)
        images = images_of(chance, (0.8, 0.6), 40)
        seconds = chance.gamma(4, 3, (2, 40))  # 12 a source, for 4 images
        (table, *_) = compare_methods(images, (), none(images, 2), seconds)
        valid, per_100 = figure(table, "valid"), figure(table, "failures of 100")
        hits["valid"] += covers(valid.values[1], 0.6)
        hits["difference"] += covers(valid.differences[1], -0.2)
        hits["per 100"] += covers(per_100.values[1], 30)
        hits["difference per 100"] += covers(per_100.differences[1], -10)
        hits["per minute"] += covers(figure(table, "failures a minute").values[1], 0.3 * 4 * 5)
    # The first method's share is a little below 0.8, since a source cannot be more than valid.
    assert all(count >= 0.9 * times for count in hits.values()), hits


def test_pairing_narrows_the_difference_if_sources_are_hard_for_both() -> None:
    hard = np.arange(80) % 2
    source = np.repeat(np.arange(80), 2)
    passed = np.tile(1 - hard[source], 2)
    images = images_of(np.random.default_rng(0), (0.5, 0.5), 80, 2)
    images = replace(images, passed=passed)
    valid = figure(compare_methods(images, (), none(images, 2), none(images, 2))[0], "valid")
    one, apart = valid.values[0].width, valid.differences[1]
    assert apart is not None and apart.width is not None and one is not None and apart.width < one / 2


def test_a_method_of_one_edit_type_is_compared_within_it() -> None:
    images = images_of(np.random.default_rng(1), (0.8, 0.6, 0.9), 30)
    tables = compare_methods(images, TYPES, none(images, 3), none(images, 3))
    assert [one.edit_type for one in tables] == ["", "weather", "background"]
    everything, weather, background = (figure(one, "valid") for one in tables)
    assert everything.differences[0] is None and everything.differences[1] is not None
    assert everything.differences[1].value is not None
    assert everything.differences[2] == Figure(None, why="it makes edits of one type: compare within this type")
    assert everything.values[2].value is not None, "its own figure is told"
    assert background.differences[2] is not None and background.differences[2].value is not None
    assert weather.values[2].value is None and tables[1].images == (60, 60, 0)


def test_missing_sources_are_counted_and_the_difference_takes_those_of_both() -> None:
    images = images_of(np.random.default_rng(2), (0.8, 0.6), 30)
    first = (images.method == 0) | (images.source < 10)
    kept = MethodImages(*(column[first] for column in vars(images).values()))
    (table, *_) = compare_methods(kept, (), none(images, 2), none(images, 2))
    assert table.sources == (30, 10) and table.shared == (30, 10) and table.images == (120, 40)
    apart = figure(table, "valid").differences[1]
    assert apart is not None and (apart.sources, apart.n) == (10, 40)


def test_few_images_and_unknown_times_cannot_tell() -> None:
    images = images_of(np.random.default_rng(3), (0.8, 0.6), 4)
    (table, *_) = compare_methods(images, (), none(images, 2), none(images, 2))
    assert all(one.value is None for each in table.figures for one in each.values)
    assert figure(table, "valid").values[0].why == "fewer than 20 images"
    images = images_of(np.random.default_rng(3), (0.8, 0.6), 20)
    (table, *_) = compare_methods(images, (), none(images, 2), none(images, 2))
    assert figure(table, "failures a minute").values[0].why.startswith("its model time, or the validity")
    assert figure(table, "excess").values[0].why == "it has no control set"


def test_the_excess_is_over_the_own_control_set_and_time_without_an_image_counts() -> None:
    images = images_of(np.random.default_rng(4), (1.0, 1.0), 50)
    control = np.stack([np.full(50, 0.4), np.full(50, 0.0)])
    half = (images.method == 0) | (images.source < 25)  # the second method made nothing of half of its sources
    kept = MethodImages(*(column[half] for column in vars(images).values()))
    seconds = np.full((2, 50), 60.0)
    (table, *_) = compare_methods(kept, (), control, seconds)
    excess, wrong = figure(table, "excess"), figure(table, "wrong")
    for place, less in ((0, 0.4), (1, 0.0)):
        error = wrong.values[place].value
        assert error is not None and excess.values[place].value == pytest.approx(error - less)
    a_minute = figure(table, "failures a minute")
    made = int((kept.valid_failure[kept.method == 1] == 1).sum())
    assert a_minute.values[1].value == pytest.approx(made / 50)


def test_a_rejected_image_is_invalid_whatever_its_checks_say() -> None:
    images = images_of(np.random.default_rng(5), (1.0, 1.0), 30)
    rejected = (images.method == 1) & (images.source % 2 == 0)
    images = replace(images, passed=np.ones(len(images), int), judged=np.where(rejected, 0, -1))
    (table, *_) = compare_methods(images, (), none(images, 2), none(images, 2))
    assert figure(table, "valid").values[1].value == 0.5


def test_a_fault_of_unknown_validity_is_left_out_as_a_right_answer_is() -> None:
    """Otherwise the faults alone would be missing, and the rate would be too low."""
    images = images_of(np.random.default_rng(8), (1.0, 1.0), 40)
    half = np.arange(len(images)) % 4 < 2
    images = replace(images, passed=np.where(half, -1, 1), judged=np.full(len(images), -1))
    (table, *_) = compare_methods(images, (), none(images, 2), np.full((2, 40), 60.0))
    for method in (0, 1):
        known = images.fault[(images.method == method) & ~half]
        assert figure(table, "failures of 100").values[method].value == pytest.approx(100 * known.mean())
        assert figure(table, "failures a minute").values[method].value == pytest.approx(known.sum() / 20)
    nothing = replace(images, passed=np.full(len(images), -1))
    (table, *_) = compare_methods(nothing, (), none(images, 2), np.full((2, 40), 60.0))
    assert figure(table, "failures of 100").values[0].value is None


def test_cells_are_told_by_images_of_different_sources() -> None:
    images = images_of(np.random.default_rng(6), (1.0, 1.0), 30)
    wrong = (images.method == 0) & (images.cell == WEATHER)
    images = replace(images, fault=wrong.astype(int))
    assert weak_cells(images, 0).tolist() == [WEATHER] and weak_cells(images, 1).tolist() == []
    one_source = replace(images, source=np.zeros(len(images), np.int64))
    assert weak_cells(one_source, 0).tolist() == [], "many images of one source are one"


def test_votes_on_a_sample_by_method_tell_what_all_images_are() -> None:
    chance = np.random.default_rng(7)
    images = images_of(chance, (0.8, 0.5), 60)
    truth, wrong = images.passed == 1, images.fault == 1
    images = replace(images, passed=np.full(len(images), -1))  # no check tells
    asked = np.zeros(len(images), bool)
    for method in (0, 1):
        for is_wrong in (False, True):
            inside = np.flatnonzero((images.method == method) & (wrong == is_wrong))
            asked[chance.choice(inside, 50, replace=False)] = True

    def votes(own: Flags) -> tuple[Judged, tuple[str, ...]] | None:
        if not (own & asked).any():
            return None
        yes = (truth & asked)[own].astype(np.int64)
        stratum = (2 * images.method + wrong)[own]
        judged = Judged(images.source[own], wrong[own], stratum, yes, asked[own].astype(np.int64))
        return judged, ("right, A", "wrong, A", "right, B", "wrong, B")

    seconds = np.full((2, 60), 12.0)
    (table, *_) = compare_methods(images, (), none(images, 2), seconds, votes=votes)
    valid, per_100 = figure(table, "valid by votes"), figure(table, "failures of 100 by votes")
    for method in (0, 1):
        own = images.method == method
        assert covers(valid.values[method], truth[own].mean())
        assert covers(per_100.values[method], 100 * (truth & wrong)[own].mean())
        a_minute = figure(table, "failures a minute by votes").values[method]
        assert covers(a_minute, (truth & wrong)[own].sum() / 12)
    apart = valid.differences[1]
    assert covers(apart, truth[images.method == 1].mean() - truth[images.method == 0].mean())
    assert not covers(apart, 0.0) and not covers(apart, -0.6)
    assert figure(table, "valid").values[0].why == "neither people nor a shared check judged the images"


def test_differences_and_quotients_of_figures_keep_bounds_and_reasons() -> None:
    one, other = Figure(0.5, 0.4, 0.7, 30, 10), Figure(0.2, 0.1, 0.3, 20, 9)
    apart = difference_of(one, other)
    assert apart.value == pytest.approx(0.3) and (apart.n, apart.sources) == (20, 9)
    assert apart.low == pytest.approx(0.3 - np.hypot(0.1, 0.1)) and apart.high == pytest.approx(
        0.3 + np.hypot(0.2, 0.1)
    )
    bounded = difference_of(Figure(None, 0.2, 0.6, why="no image was judged"), other)
    assert bounded.value is None and bounded.low == pytest.approx(-0.1) and bounded.why == "no image was judged"
    assert difference_of(Figure(None, why="none"), other) == Figure(None, n=0, sources=0, why="none")
    assert quotient_of(Figure(0.0, 0.0, 0.1), Figure(2.0, 1.0, 4.0)) == Figure(0.0, 0.0, 0.1)
    found = quotient_of(Figure(0.4, 0.2, 0.8), Figure(2.0, 2.0, 2.0))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.1, 0.4))
    assert quotient_of(one, Figure(None, why="not timed")).why == "not timed"
