"""Seeds: each run has one, from which the seed of everything made in it is derived."""

from __future__ import annotations

import hashlib

LARGEST = 2**31 - 1
"""Largest seed that every sampler accepts."""


def next_seed(seed: int, tries: int) -> int:
    """Return the seed of the next try after `tries` failures that began with `seed`."""
    return derive_seed(seed, tries) if tries else seed


def derive_seed(seed: int, *place: int) -> int:
    """Return the first 31 bits of sha256 over `seed` and a place such as (caption 2, image 0): 0 to `LARGEST`.

    It depends on nothing else, so adding, removing or reordering other things changes no seed.
    """
    text = "/".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & LARGEST
