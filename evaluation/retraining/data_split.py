"""Splits of a data set to learn from, to tune on, and to measure on: all images of a source stay together. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

Side = Literal["train", "tune", "test"]
SIDES: tuple[Side, ...] = get_args(Side)
SHARES: Mapping[Side, float] = {"train": 0.6, "tune": 0.15, "test": 0.25}
"""Default share of the sources in each split."""


def side_of(source: str, seed: int, shares: Mapping[Side, float] = SHARES) -> Side:
    """Return a source's split, by its hash and the seed alone: other sources do not matter. `shares` add up to 1."""
    drawn = hashlib.blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()
    place, below = int.from_bytes(drawn, "big") / 2**64, 0.0
    for side in SIDES:
        below += shares.get(side, 0.0)
        if place < below:
            return side
    return next(side for side in reversed(SIDES) if shares.get(side, 0.0))
