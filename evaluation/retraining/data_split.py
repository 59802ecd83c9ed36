"""Splits of a data set to learn from, to tune on, and to measure on: all images of a source stay together. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import accumulate
from typing import Literal, get_args

Side = Literal["train", "tune", "test"]
SIDES: tuple[Side, ...] = get_args(Side)
SHARES: Mapping[Side, float] = {"train": 0.6, "tune": 0.15, "test": 0.25}
"""Share of the sources in each split."""


def side_of(source: str, seed: int) -> Side:
    """Return a source's split, by its hash and the seed alone: other sources do not matter."""
    drawn = hashlib.blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()
    place = int.from_bytes(drawn, "big") / 2**64
    ends = accumulate(SHARES.values())
    return next((side for side, end in zip(SHARES, ends, strict=True) if place < end), "test")
