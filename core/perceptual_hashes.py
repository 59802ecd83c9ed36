"""Perceptual hashes: a hash of a picture's look, and the search for close hashes. Knows no models.

The hash is pHash: the signs of the lowest frequencies of a small grey copy, relative to their median (Zauner,
"Implementation and Benchmarking of Perceptual Image Hash Functions", 2010, section 3.2.1). If a picture is saved as
JPEG, scaled or made a little brighter, only a few bits of its hash change. A crop changes many. The hash of the
mirrored picture can be computed except for a few bits, as mirroring changes the sign of every other frequency.
`core.twins` also finds crops and shifts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    from scipy.cluster.hierarchy import DisjointSet

DISTANCE = 3
"""Maximum number of differing bits between the hashes of pictures that look alike. No two of 1,000 scenes that the demo
drew are so close. Of the scenes' JPEG copies of quality 60, 98 % are so close to the scene. Of the scenes' copies with
10 % more brightness, 99 % are so close to the scene."""
BITS = 64
_SIDE, _LOWEST = 32, 8
_BLOCKS = 2 * DISTANCE
_CLEAN = [
    np.uint64(sum(((1 << BITS * (one + 1) // _BLOCKS) - 1) ^ ((1 << BITS * one // _BLOCKS) - 1) for one in some))
    for some in combinations(range(_BLOCKS), DISTANCE)
]
"""Bit masks, one for each choice of three of a hash's six blocks. A mask keeps only these three blocks."""
_ODD = int("01010101" * 8, 2)
"""Mask of the hash bits that change if the picture is mirrored: the bits of the odd horizontal frequencies."""
_PAIRS = 1 << 21
_BAND = BITS // (DISTANCE + 1)
_MASK = (1 << _BAND) - 1

K = TypeVar("K", bound=Hashable)


def perceptual_hash(image: Image.Image) -> int:
    """Return the 64-bit hash of a picture of any mode and size."""
    from scipy.fft import dctn

    grey = image.convert("RGB").convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    # Without rounding, float errors would decide the hash of a picture of one colour.
    lowest = np.round(dctn(np.asarray(grey, np.float64), norm="ortho")[:_LOWEST, :_LOWEST], 3)
    bits = np.packbits((lowest > np.median(lowest)).ravel())
    return int.from_bytes(bits.tobytes(), "big")


def mirrored(value: int) -> int:
    """Estimate the hash of the mirrored picture. In 97 % of 400 drawn scenes at most 6 bits of it are wrong."""
    return value ^ _ODD


class NearHashes:
    """A set of hashes that finds those close to another hash without comparing all of them. A hash has four bands of 16
    bits. Two hashes that differ in at most three bits have at least one band in common.
    """

    def __init__(self) -> None:
        self._bands: dict[tuple[int, int], list[int]] = {}
        self._known: set[int] = set()

    def add(self, value: int) -> None:
        """Add a hash. Adding the same hash again has no effect."""
        if value not in self._known:
            self._known.add(value)
            for band in _bands(value):
                self._bands.setdefault(band, []).append(value)

    def near(self, value: int) -> dict[int, int]:
        """Return the hashes at most `DISTANCE` bits away, each with its distance in bits."""
        distances: dict[int, int] = {}
        for band in _bands(value):
            for other in self._bands.get(band, ()):
                if other not in distances and (away := (other ^ value).bit_count()) <= DISTANCE:
                    distances[other] = away
        return distances


def near_any(values: Sequence[int], others: Sequence[int]) -> NDArray[np.bool_]:
    """Return flags (values,): True for each hash that is at most `DISTANCE` bits from one of `others`, mirrored or not.
    Use this for hundreds of thousands of hashes, or for similar pictures such as those of one street. `NearHashes` is
    slow there, because too many hashes share 16 bits. This search cuts a hash into six blocks, and compares only hashes
    with three equal blocks. Hashes that differ in at most three bits have three or more equal blocks.
    """
    given_hashes = np.array(others, np.uint64)
    known = np.unique(np.concatenate([given_hashes, given_hashes ^ np.uint64(_ODD)]))
    unique_values, place = np.unique(np.array(values, np.uint64), return_inverse=True)
    is_near = np.isin(unique_values, known)
    for mask in _CLEAN:
        left = np.flatnonzero(~is_near)
        if not len(left) or not len(known):
            break
        order = np.argsort(known & mask, kind="stable")
        keys, masked = (known & mask)[order], unique_values[left] & mask
        begin, end = (np.searchsorted(keys, masked, side) for side in ("left", "right"))
        number = end - begin
        # Process as many pairs at a time as fit into memory; one hash alone may have more.
        cuts = np.flatnonzero(np.diff(np.cumsum(number) // _PAIRS)) + 1
        for some in np.split(np.arange(len(left)), cuts):
            first = np.cumsum(number[some]) - number[some]
            which = np.repeat(some, number[some])
            pair = np.arange(len(which)) + np.repeat(begin[some] - first, number[some])
            away = np.bitwise_count(unique_values[left[which]] ^ known[order[pair]])
            is_near[left[which[away <= DISTANCE]]] = True
    return is_near[place]


def join_alike(groups: DisjointSet, hashes: Mapping[K, int]) -> None:
    """Add the keys of `hashes` to the groups. Merge the groups of keys whose hashes, mirrored or not, differ in at most
    `DISTANCE` bits.
    """
    holders: dict[int, K] = {}
    near = NearHashes()
    for thing, value in hashes.items():
        groups.add(thing)
        if value in holders:
            groups.merge(thing, holders[value])
            continue
        for other in [*near.near(value), *near.near(mirrored(value))]:
            groups.merge(thing, holders[other])
        holders[value] = thing
        near.add(value)


def _bands(value: int) -> Iterator[tuple[int, int]]:
    return ((place, value >> (place * _BAND) & _MASK) for place in range(BITS // _BAND))
