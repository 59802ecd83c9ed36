"""One seed for a run, and from it one of its own for everything that is made."""

from __future__ import annotations

import hashlib

LARGEST = 2**31 - 1
"""Every sampler takes a seed up to here."""


def next_seed(seed: int, tries: int) -> int:
    """The seed with which something is tried that failed with `seed` and the next ones so many times."""
    return derive_seed(seed, tries) if tries else seed


def derive_seed(seed: int, *place: int) -> int:
    """The seed of one thing: the first 31 bits of sha256 over `seed` and its place, such as (caption 2, image 0).

    It hangs on nothing else: leaving out, adding or reordering other things leaves it as it is. 0 to `LARGEST`.
    """
    text = "/".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & LARGEST
