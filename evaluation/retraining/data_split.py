"""Splits of a data set for training, tuning and testing. All images of a source are in the same split. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import accumulate
from typing import Literal, get_args

Side = Literal["train", "tune", "test"]
SIDES: tuple[Side, ...] = get_args(Side)
SHARES: Mapping[Side, float] = {"train": 0.6, "tune": 0.15, "test": 0.25}
"""Share of the sources in each split, 0 to 1."""


def side_of(source: str, seed: int) -> Side:
    """Return the split of a source. It depends only on the source's name and the seed, not on other sources."""
    drawn = hashlib.blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()
    place = int.from_bytes(drawn, "big") / 2**64
    ends = accumulate(SHARES.values())
    return next((side for side, end in zip(SHARES, ends, strict=True) if place < end), "test")
