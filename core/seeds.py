"""Seeds. Each run has a seed, and everything made in the run has a seed derived from it."""

from __future__ import annotations

import hashlib

LARGEST = 2**31 - 1
"""Largest seed that every sampler accepts."""


def next_seed(seed: int, tries: int) -> int:
    """Return the seed of the next try after `tries` failures. The first try used `seed`."""
    return derive_seed(seed, tries) if tries else seed


def derive_seed(seed: int, *place: int) -> int:
    """Return a seed from 0 to `LARGEST` that depends only on `seed` and a place such as (caption 2, image 0): 31 bits
    of SHA-256 over both. Adding, removing or reordering other things does not change it.
    """
    text = "/".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & LARGEST
