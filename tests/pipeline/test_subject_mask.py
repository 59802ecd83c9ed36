"""The choice of the subject among a segmenter's finds, the cleaning of its mask, and the messages about both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.seams import Found
from pipeline.subject_mask import take, tidied

SIZE = (100, 80)


def block(left: int, top: int, right: int, bottom: int) -> NDArray[np.bool_]:
    mask = np.zeros(SIZE[::-1], bool)
    mask[top:bottom, left:right] = True
    return mask


def found(mask: NDArray[np.bool_], score: float = 0.9) -> Found:
    return Found(mask, score)


def test_one_thing_is_taken_without_a_word() -> None:
    mask, notes = take([found(block(10, 10, 50, 50))], "bird")
    assert np.array_equal(mask, block(10, 10, 50, 50)) and notes == ()


def test_of_several_the_largest_is_taken_or_all() -> None:
    small, large = found(block(0, 0, 10, 10), 0.9), found(block(50, 20, 90, 60), 0.8)
    largest, notes = take([small, large], "car")
    assert np.array_equal(largest, large.mask)
    assert notes == ("2 things fit “car”: the largest was taken.",)
    both, notes = take([small, large], "car", "all")
    assert np.array_equal(both, small.mask | large.mask)
    assert notes == ("2 things fit “car”: all of them were taken.",)


def test_a_tiny_a_huge_and_an_unsure_subject_are_pointed_out() -> None:
    tiny, notes = take([found(block(0, 0, 6, 6))], "bird")
    assert notes == ("The subject covers only 0.4 % of the picture: look at its mask.",) and tiny.sum() == 36
    _, notes = take([found(block(0, 0, 100, 79))], "bird")
    assert notes == ("The subject covers 98.8 % of the picture: look at its mask.",)
    _, notes = take([found(block(10, 10, 50, 50), 0.18)], "bird")
    assert notes == ("The segmenter is not sure of the subject (score 0.18 of 1): look at its mask.",)


def test_small_holes_are_filled_and_specks_dropped() -> None:
    clean = block(10, 10, 60, 60)
    mask = clean.copy()
    mask[20:24, 20:24] = False  # a hole of 16 pixels in 2,500
    mask[70:73, 90:93] = True  # a speck of 9 pixels
    assert np.array_equal(tidied(mask), clean)


def test_large_holes_and_large_loose_parts_stay() -> None:
    mask = block(10, 10, 60, 60) & ~block(20, 20, 40, 40) | block(80, 10, 90, 60)
    assert np.array_equal(tidied(mask), mask)


def test_an_empty_mask_stays_empty() -> None:
    assert not tidied(np.zeros((8, 8), bool)).any()
