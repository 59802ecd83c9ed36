"""Orders of test cases: worked examples of the figures, and planted weak cells that our order finds first."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.ranking import by_new_faults, by_score, chance_wrong, combined, deep_gini, entropy, judge


def test_how_unsure_a_classifier_is() -> None:
    from scipy import stats

    said = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    assert deep_gini(said) == pytest.approx([0.0, 0.5, 0.62])
    assert entropy(said) == pytest.approx(stats.entropy(said, axis=1))
    assert by_score(entropy(said)).tolist() == [2, 1, 0]
    assert by_score(np.array([0.5, 0.7, 0.5])).tolist() == [1, 0, 2]


def test_the_figures_of_an_order_are_those_of_a_worked_example() -> None:
    """Ten images have two faults, first seen at ranks 2 and 5. APFD is 1 - 7/20 + 1/20, and the best possible is 1 -
    3/20 + 1/20.
    """
    fault = [None, "a", "a", None, "b", None, None, "a", None, None]
    found = judge("as they are", np.arange(10), fault, (0.1, 0.2, 0.5))
    assert found.apfd == pytest.approx(0.70 / 0.90)
    assert (found.faults, found.all_faults) == ({0.1: 0, 0.2: 1, 0.5: 2}, 2)
    assert found.images == {0.1: 1, 0.2: 2, 0.5: 5}
    assert [found.found(images) for images in range(11)] == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert judge("best", np.array([1, 4, *(place for place in range(10) if place not in (1, 4))]), fault).apfd == 1.0
    assert judge("nothing", np.arange(3), [None] * 3).apfd is None
    assert judge("no image", np.arange(0), []).images[0.01] == 0


def test_an_image_of_a_cell_that_was_seen_comes_later() -> None:
    chance = np.array([0.9, 0.8, 0.3, 0.2])
    order = by_new_faults(chance, np.ones(4), ["fog", "fog", "night", "snow"])
    # After the first fog image, another one shows a new fault with probability 0.1 x 0.8.
    assert order.tolist() == [0, 2, 3, 1]
    assert by_new_faults(chance, np.array([0.0, 1, 1, 1]), ["fog", "fog", "night", "snow"]).tolist() == [1, 2, 3, 0]
    assert by_new_faults(np.array([]), np.array([]), []).tolist() == []


def test_planted_weak_cells_are_found_at_five_per_cent_of_the_images() -> None:
    chance = np.random.default_rng(9)
    classes, alternatives, images = 8, 12, 4000
    weak = {(int(one) // alternatives, int(one) % alternatives) for one in chance.choice(96, 20, replace=False)}
    label, alternative = chance.integers(0, classes, images), chance.integers(0, alternatives, images)
    cells = list(zip(label.tolist(), alternative.tolist(), strict=True))
    rate = np.array([0.6 if cell in weak else 0.02 for cell in cells])
    wrong, valid = chance.random(images) < rate, chance.random(images) < 0.85
    fault = [cell if w and v and cell in weak else None for cell, w, v in zip(cells, wrong, valid, strict=True)]
    # The classifier's own doubt: it predicts some faults, but in half of them the classifier is sure of itself.
    doubt = np.where(wrong & (chance.random(images) < 0.5), 0.6, 0.2) + chance.normal(0, 0.15, images)
    past = chance.integers(0, images, 1000)
    known: dict[tuple[str, ...], tuple[int, int]] = {}
    for place in past:
        key = (str(alternative[place]), str(label[place]))
        failed, of = known.get(key, (0, 0))
        known[key] = (failed + int(wrong[place]), of + 1)
    foretold = chance_wrong(known, [(str(a), str(c)) for c, a in cells])
    before = judge("ours, before an image is made", by_new_faults(foretold, np.full(images, 0.85), cells), fault)
    random = judge("random", chance.permutation(images), fault)
    assert before.all_faults == 20 and before.faults[0.05] >= 18  # 90 % of all faults
    assert before.faults[0.01] > 2 * random.faults[0.01]
    share = float(wrong[past].mean())
    doubtful = np.clip((doubt - 0.2) / 0.8, 0.02, 0.98)
    after = judge("ours", by_new_faults(combined(foretold, doubtful, share), np.full(images, 0.85), cells), fault)
    plain = judge("entropy", by_score(doubt), fault)
    assert after.apfd is not None and plain.apfd is not None and before.apfd is not None and random.apfd is not None
    assert after.apfd > before.apfd > random.apfd and plain.apfd > random.apfd
    assert after.faults[0.01] >= plain.faults[0.01]


def test_two_chances_that_tell_nothing_of_each_other() -> None:
    assert combined(np.array([0.5, 0.2]), np.array([0.5, 0.5]), 0.5) == pytest.approx([0.5, 0.2])
    assert combined(np.array([0.2]), np.array([0.2]), 0.2) == pytest.approx([0.2])  # both equal the mean: nothing new
    assert combined(np.array([0.5]), np.array([0.5]), 0.1) == pytest.approx([0.9])


def test_what_is_known_of_few_images_leans_on_what_is_known_of_more() -> None:
    known: dict[tuple[str, ...], tuple[int, int]] = {
        ("weather", "fog"): (8, 10),
        ("weather", "rain"): (0, 1),
        ("colour", "red"): (1, 40),
    }
    fog, rain, snow, blue, size = chance_wrong(
        known, [("weather", "fog"), ("weather", "rain"), ("weather", "snow"), ("colour", "blue"), ("size", "large")]
    )
    everything = (9 + 4 * 0.5) / (51 + 4)
    weather = (8 + 4 * everything) / (11 + 4)
    assert snow == pytest.approx(weather) and fog == pytest.approx((8 + 4 * weather) / 14)
    assert size == pytest.approx(everything)
    assert fog > snow > rain > blue
