"""Cells that the words of a hypothesis name in a batch, and the answer of images to it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from core.words import meaning
from services.evaluation.search_questions import DrawnImage, Part, answer_of, matched

NAMES = tuple(
    (label, edit_type, alternative)
    for label in ("car", "kite")
    for edit_type, alternative in (
        ("time of day", "dusk"),
        ("time of day", "night"),
        ("weather", "rain"),
        ("weather", "light rain"),
        ("attribute", "white"),
    )
    if (label, alternative) != ("kite", "white")
)
SPELLINGS = [Counter({f"at {alternative}": 2, alternative: 1}) for _, _, alternative in NAMES]


def of(question: str) -> list[tuple[str, str]]:
    """Return label and alternative of each part that a question names."""
    return [(part.label, part.meaning) for part in matched(question, NAMES).parts]


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Kites at dusk", [("kite", "dusk")]),
        ("at DUSK", [("", "dusk")]),
        ("kites", [("kite", "")]),
        ("in light rain", [("", "light rain")]),
        ("cars in rain, or at night?", [("car", "night"), ("car", "rain")]),
        ("any time of day", [("", "dusk"), ("", "night")]),
        ("a kite, in weather with rain", [("kite", "rain")]),
        ("twilight", []),
    ],
)
def test_words_name_labels_and_edits(question: str, parts: list[tuple[str, str]]) -> None:
    assert of(question) == parts


def test_words_that_name_nothing_and_pairs_that_no_caption_joins_are_told() -> None:
    found = matched("white kites and small cars at twilight", NAMES)
    assert found.unknown == ("small", "twilight")
    assert found.missing == ("kite, white",)
    assert [(part.label, part.meaning) for part in found.parts] == [("car", "white")]


def drawn(cell: int, outcomes: list[bool], first: int, is_random: bool = False, asked: str = "") -> list[DrawnImage]:
    """Return images of one cell, each of another source."""
    return [DrawnImage(cell, 10 * cell + n, first + n, bad, is_random, asked) for n, bad in enumerate(outcomes)]


def test_a_part_of_one_cell_is_answered_by_all_its_images_one_of_each_source() -> None:
    part, waiting = Part("car", "time of day", "dusk"), np.full(len(NAMES), 3)
    images = drawn(0, [True] * 9, 0)
    twice = [DrawnImage(0, 0, 50, False, True, "")]
    found = answer_of(part, NAMES, SPELLINGS, waiting, images + twice, 0.1, 18)
    assert (found.images, found.faults, found.waiting) == (10, 9, 3)
    assert found.spellings == ("at dusk", "dusk")
    assert (found.share.value, found.share.n, found.answer) == (1.0, 9, "weak")
    assert answer_of(part, NAMES, SPELLINGS, waiting, images[:2], 0.1, 18).answer == "cannot tell"
    right = drawn(0, [False] * 150, 0)
    assert answer_of(part, NAMES, SPELLINGS, waiting, right, 0.1, 18).answer == "not weak"
    assert answer_of(part, NAMES, SPELLINGS, waiting, [], 0.1, 18).share.value is None


def test_images_that_were_aimed_at_faults_do_not_count_for_a_part_of_several_cells() -> None:
    part, waiting = Part("", "time of day", "dusk"), np.full(len(NAMES), 3)
    kite = NAMES.index(("kite", "time of day", "dusk"))
    aimed = drawn(0, [True] * 8, 0)
    fair = drawn(kite, [False, False], 20, is_random=True) + drawn(kite, [True], 30, asked=part.key)
    other = drawn(0, [True], 40, asked="another part")
    found = answer_of(part, NAMES, SPELLINGS, waiting, aimed + fair + other, 0.1, 18)
    assert (found.images, found.faults) == (12, 10)
    assert found.share.n == 2, "two images of one source count once"
    waiting[0] = 0  # its last image is the test case 40, so later ones are no random sample of both cells
    late = drawn(kite, [True] * 3, 60, asked=part.key)
    found = answer_of(part, NAMES, SPELLINGS, waiting, aimed + fair + other + late, 0.1, 18)
    assert found.share.n == 2
    waiting[kite] = 0
    found = answer_of(part, NAMES, SPELLINGS, waiting, aimed + fair + other + late, 0.1, 18)
    assert found.share.n == 11, "if all is drawn, all of it counts"


def test_names_of_cells_are_meanings() -> None:
    assert all(meaning(alternative) == alternative for _, _, alternative in NAMES)
