"""Tests for the alignment of tokens for attention control. `test_inverting` draws images with it."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.attention import MOST, AttentionControl, aligned

pytestmark = [pytest.mark.slow]
START, END, PAD = 0, 99, 98


def windows(*tokens: int, count: int = 1, length: int = 6) -> list[list[int]]:
    """Split tokens into `count` windows of `length` tokens, with a start, an end and padding."""
    pieces = [list(tokens[at : at + length - 2]) for at in range(0, len(tokens), length - 2)]
    pieces += [[]] * (count - len(pieces))
    found = [[START, *piece, END] for piece in pieces]
    return [window + [PAD] * (length - len(window)) for window in found]


def pairs(moved: torch.Tensor) -> set[tuple[int, int]]:
    """Return the pairs of aligned positions (source, prompt)."""
    return {(int(one), int(other)) for one, other in moved.nonzero()}


def test_replaced_tokens_take_the_maps_of_those_that_they_replace() -> None:
    found = aligned(windows(1, 2, 3), windows(1, 7, 3), END)
    assert pairs(found.moved) == {(at, at) for at in range(6)} and not found.own.any()
    assert found.gone.nonzero().flatten().tolist() == found.new.nonzero().flatten().tolist() == [2]


def test_inserted_tokens_keep_their_own_maps_and_the_rest_moves_on() -> None:
    found = aligned(windows(1, 2, length=7), windows(1, 8, 9, 2, length=7), END)
    assert found.own.nonzero().flatten().tolist() == [2, 3]
    # The start, the first word, the second word, the end, and the padding, which keeps its position.
    assert pairs(found.moved) == {(0, 0), (1, 1), (2, 4), (3, 5), (6, 6)}
    assert not found.gone.any() and found.new.nonzero().flatten().tolist() == [2, 3]


def test_padding_goes_with_padding_when_words_are_dropped() -> None:
    found = aligned(windows(1, 2, 3, 4), windows(1, 4), END)
    assert found.gone.nonzero().flatten().tolist() == [2, 3]
    assert pairs(found.moved) == {(0, 0), (1, 1), (4, 2), (5, 3), (5, 4), (5, 5)}, "a source without padding: its end"


def test_words_are_aligned_across_windows() -> None:
    found = aligned(windows(1, 2, 3, 4, 5, count=2), windows(9, 8, 1, 2, 3, 4, 5, count=2), END)
    assert {(1, 3), (2, 4), (3, 7), (4, 8), (7, 9)} < pairs(found.moved)
    assert found.own.nonzero().flatten().tolist() == [1, 2]
    assert {(0, 0), (5, 5), (6, 6)} < pairs(found.moved), "each window has its start and its end"


@pytest.mark.parametrize("source", [(1, 2, 3), (1, 2, 3, 4, 5)])
def test_every_token_has_a_map_and_no_more_than_one(source: tuple[int, ...]) -> None:
    found = aligned(windows(*source, count=2), windows(3, 1, 4, 2, 5, 6, count=2), END)
    assert (found.moved.sum(0) + found.own == 1).all()


def test_maps_stay_probabilities_and_those_of_the_source_and_of_guidance_stay_as_they_are() -> None:
    rows = [aligned(windows(1, 2, 3), windows(*prompt), END) for prompt in ((1, 3), (4, 1, 2, 3))]
    control = AttentionControl(rows, 1, [0, 1])
    maps = torch.rand(6, 2, 4, 6, generator=torch.Generator().manual_seed(1)).softmax(-1)
    changed = control.change(maps, True)
    assert torch.allclose(changed.sum(-1), torch.ones(6, 2, 4)) and changed[:4].equal(maps[:4])
    assert not changed[4].allclose(maps[4])
    taken = control.change(maps[..., :4], False)
    assert taken[4].equal(maps[4, ..., :4]) and taken[5].equal(maps[3, ..., :4]), "each row has its own steps"
    control.step = 1
    assert control.change(maps, True).equal(maps) and not control.wants(True, 4) and not control.wants(False, 4)


def test_a_faint_change_is_strengthened_where_it_is_and_a_plain_one_stays_as_it_is() -> None:
    alike = aligned(windows(1, 2), windows(1, 3), END)
    change = torch.zeros(4, 4, 8, 8)
    change[1, :, 4:], change[2, :, 4:] = 0.1, 2.0  # source, weak edit, strong edit, source's own prompt
    faint = AttentionControl([alike] * 3, 0, [0] * 3, least_change=0.6)
    kept = faint.limited(change, 0.5)
    assert kept[[0, 2, 3]].equal(change[[0, 2, 3]]) and kept[1:].equal(faint.limited(change[1:], 0.5))
    assert kept[1, :, 5:].allclose(torch.tensor(0.1 * MOST)) and kept[1, :, :3].eq(0).all()
    near = faint.limited(change * 2.5, 0.5)
    assert near[1, :, 5:].allclose(torch.tensor(0.3)), "no further than to the least change"

    left = torch.zeros(8, 8)
    left[:, :4] = 1
    painted = AttentionControl([alike] * 3, 0, [0] * 3, region=left, least_change=0.6).limited(change, 0.5)
    assert painted[1:].equal((kept * left)[1:])
    assert AttentionControl([alike] * 3, 0, [0] * 3).limited(change, 0.5).equal(change)
