"""The search for weak cells: what it believes, what it tells, and which images it draws next."""

from __future__ import annotations

import numpy as np
import pytest

from core.figures import Numbers
from evaluation.search import (
    EVERY,
    FALSE,
    WEAK,
    Cells,
    anytime_interval,
    beliefs,
    detected,
    log_evidence,
    next_round,
)

LABELS, ALTERNATIVES = 5, 8
CELLS = Cells(
    label=np.tile(np.arange(LABELS), ALTERNATIVES),
    alternative=np.repeat(np.arange(ALTERNATIVES), LABELS),
    edit_type=np.repeat(np.arange(ALTERNATIVES) // 4, LABELS),
)
NONE = np.zeros(len(CELLS), np.int64)


def of(**by_cell: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """Return the numbers of images and of faults of all cells; keys such as c7 name cells that have some."""
    images, faults = NONE.copy(), NONE.copy()
    for name, (n, k) in by_cell.items():
        images[int(name[1:])], faults[int(name[1:])] = n, k
    return images, faults


def test_a_cell_is_suspected_for_its_own_images_and_for_those_of_its_alternative_and_label() -> None:
    images, faults = of(c0=(6, 4), c1=(6, 3), c2=(6, 4), c9=(6, 0), c13=(6, 0))
    found = beliefs(CELLS, images, faults).weak
    assert found[0] > 0.9 > 0.1 > found[9]
    assert found[3] > 2 * found[18], "three weak cells of alternative 0, whose label 3 was right elsewhere"
    label = np.arange(0, 40, LABELS)[:4]
    images, faults = NONE.copy(), NONE.copy()
    images[label], faults[label] = 5, 3
    found = beliefs(CELLS, images, faults).weak
    assert found[20] > 2 * found[21], "four weak cells of label 0"


def test_without_images_all_cells_are_alike() -> None:
    found = beliefs(CELLS, NONE, NONE)
    assert np.ptp(found.weak) == pytest.approx(0.0) and 0.05 < found.weak[0] < 0.2
    assert not detected(NONE, NONE).any() and log_evidence(NONE, NONE) == pytest.approx(0.0)


def test_a_cell_is_detected_by_many_faults_not_by_two() -> None:
    assert not detected(*of(c0=(2, 2))).any()
    assert detected(*of(c0=(8, 8), c1=(40, 4))).nonzero()[0].tolist() == [0]
    assert detected(*of(c0=(30, 15))).any() and not detected(*of(c0=(30, 6))).any()


def test_the_evidence_against_a_cell_that_is_not_weak_is_at_most_one_on_average() -> None:
    """At a moment that each search chooses itself: after a fault streak, the worst time to look for chance."""
    chance = np.random.default_rng(0)
    values = []
    for share in (WEAK, WEAK / 2):
        outcomes = chance.random((20_000, 40)) < share
        images, faults = np.arange(1, 41), outcomes.cumsum(axis=1)
        stop = np.where((faults >= 2).any(axis=1), (faults >= 2).argmax(axis=1), 39)
        rows = np.arange(len(outcomes))
        values.append(np.exp(log_evidence(images[stop], faults[rows, stop])).mean())
    assert max(values) < 1.05


def test_of_many_searches_few_tell_a_cell_that_is_not_weak() -> None:
    """All cells are at the limit, and it looks after each image. `experiments.search_replays` tests many more."""
    chance, false = np.random.default_rng(1), 0
    for _ in range(40):
        images, faults = NONE.copy(), NONE.copy()
        for _ in range(60):
            cell = next_round(CELLS, images, faults, 30 - images, 1, chance).cell[0]
            images[cell] += 1
            faults[cell] += chance.random() < WEAK
            if detected(images, faults).any():
                false += 1
                break
    assert false <= 40 * FALSE + 3


def test_a_round_goes_where_cells_are_likely_weak_and_marks_what_is_random() -> None:
    chance = np.random.default_rng(2)
    images, faults = of(c0=(4, 3), c1=(4, 2), c2=(4, 3), c30=(8, 0))
    pick = next_round(CELLS, images, faults, np.full(40, 10), 20, chance)
    assert pick.uniform.sum() == 4 and (pick.uniform == ((20 + np.arange(20)) % EVERY == EVERY - 1)).all()
    aimed = pick.cell[~pick.uniform]
    assert (CELLS.alternative[aimed] == 0).all() and len(set(aimed.tolist())) >= 3


def test_a_detected_cell_gets_no_more_and_an_empty_one_none() -> None:
    chance = np.random.default_rng(3)
    images, faults = of(c0=(12, 12), c1=(3, 3))
    left = np.full(40, 2)
    left[1] = 0
    pick = next_round(CELLS, images, faults, left, 30, chance)
    assert 0 not in pick.cell[~pick.uniform] and 1 not in pick.cell
    assert np.bincount(pick.cell, minlength=40).max() <= 2
    assert len(next_round(CELLS, images, faults, np.minimum(left, 1), 100, chance).cell) == 39, "all that is left"
    assert len(next_round(CELLS, images, faults, NONE, 10, chance).cell) == 0


def test_images_go_to_cells_that_they_can_still_tell() -> None:
    images, faults = of(c0=(4, 3), c7=(4, 3))
    left = np.full(40, 20)
    left[0] = 1
    pick = next_round(CELLS, images, faults, left, 4, np.random.default_rng(6), budget=40)
    assert 7 in pick.cell and 0 not in pick.cell
    images, faults = of(c0=(5, 3), c7=(3, 2))
    pick = next_round(CELLS, images, faults, np.full(40, 20), 1, np.random.default_rng(6), budget=5)
    assert pick.cell == 0, "it needs fewer images than the other"


def test_a_cell_with_enough_evidence_for_several_cells_together_waits_for_the_others() -> None:
    images, faults = of(c0=(9, 5), c7=(6, 3), c14=(6, 3), c21=(6, 3), c28=(6, 3))
    pick = next_round(CELLS, images, faults, np.full(40, 20), 20, np.random.default_rng(7), budget=200)
    assert not detected(images, faults).any() and 0 not in pick.cell[~pick.uniform]


def test_cells_whose_images_are_rarely_valid_wait() -> None:
    chance, valid = np.random.default_rng(4), np.where(CELLS.alternative < 4, 0.2, 0.9)
    pick = next_round(CELLS, NONE, NONE, np.full(40, 5), 20, chance, valid)
    assert (CELLS.alternative[pick.cell[~pick.uniform]] >= 4).all()


def test_an_interval_that_is_looked_at_all_the_time_holds_the_share_in_95_percent() -> None:
    most = 60
    low, high = np.full((2, most, most + 1), np.nan)
    for n in range(1, most + 1):
        for k in range(n + 1):
            low[n - 1, k], high[n - 1, k] = anytime_interval(n, k)
    for share in (0.02, 0.1, 0.5):
        faults = (np.random.default_rng(3).random((5_000, most)) < share).cumsum(axis=1)
        looks = np.arange(most), faults
        missed = (low[looks] > share) | (high[looks] < share)
        assert missed.any(axis=1).mean() <= 0.05
    assert anytime_interval(0, 0) == (0.0, 1.0)
    assert anytime_interval(100, 50)[0] > 0.33 and anytime_interval(100, 50)[1] < 0.67
    assert anytime_interval(20, 0)[0] == 0.0 and anytime_interval(20, 20)[1] == 1.0


def test_open_questions_get_a_share_of_the_round_and_the_random_fifth_remains() -> None:
    chance, alternative = np.random.default_rng(5), np.arange(5)
    asked: Numbers = np.zeros(len(CELLS), np.int64)
    for _ in range(400):
        pick = next_round(CELLS, NONE, NONE, np.full(40, 10), 20, chance, questions=[alternative, np.array([39])])
        assert pick.uniform.sum() == 4 and not (pick.uniform & (pick.question >= 0)).any()
        assert set(pick.cell[pick.question == 0]) <= {*alternative.tolist()} and set(pick.cell[pick.question == 1]) == {
            39
        }
        asked += np.bincount(pick.cell[pick.question == 0], minlength=40)
    assert asked[:5].min() > 0.8 * asked[:5].mean(), "each image of the question is as likely"
    left = np.full(40, 10)
    left[39] = 0
    pick = next_round(CELLS, NONE, NONE, left, 20, chance, questions=[np.array([39])])
    assert len(pick.cell) == 20 and (pick.question == -1).all(), "a question without images left holds nothing up"
