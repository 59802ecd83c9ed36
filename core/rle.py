"""Run lengths as COCO writes them: counts of pixels outside and inside a region, column by column, packed into text
like `rleToString` in pycocotools' maskApi.c. The first three counts are stored unchanged. Count n, from 4 on, is stored
as count n minus count n - 2. Each number is cut into groups of five bits. A sixth bit says that another group follows,
and character "0" represents 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GROUPS = 13
"""Maximum number of groups of five bits in an integer of 64 bits."""
MOST_PIXELS = 1 << 40


def counts_of(region: NDArray[np.bool_], left: int = 0, top: int = 0, size: tuple[int, int] | None = None) -> list[int]:
    """Return the counts of a region, bool (height, width), laid at (left, top) into an image of `size`."""
    height, width = region.shape if size is None else (size[1], size[0])
    columns, rows = np.nonzero(region.T)
    places = (columns + left) * height + rows + top
    if not len(places):
        return [height * width]
    breaks = np.flatnonzero(np.diff(places) != 1)
    starts, ends = places[np.r_[0, breaks + 1]], places[np.r_[breaks, len(places) - 1]] + 1
    edges = np.column_stack([starts, ends]).ravel()
    counts = np.diff(np.r_[0, edges, height * width])
    return [int(count) for count in (counts if counts[-1] else counts[:-1])]


def packed(counts: Sequence[int]) -> str:
    """Pack run lengths into text."""
    values = np.asarray(counts, np.int64)
    steps = values.copy()
    steps[3:] -= values[1:-2]
    shifts = steps[:, None] >> (5 * np.arange(_GROUPS + 1))[None, :]
    bits, rest = shifts[:, :_GROUPS] & 31, shifts[:, 1:]
    ends = ((rest == 0) & (bits & 16 == 0)) | ((rest == -1) & (bits & 16 != 0))
    last = ends.argmax(axis=1)[:, None]
    place = np.arange(_GROUPS)[None, :]
    signs = (bits | np.where(place < last, 32, 0)) + 48
    return bytes(signs[place <= last].astype(np.uint8)).decode("ascii")


def unpacked(text: str) -> list[int]:
    """Unpack run lengths from text. Raises ValueError if the text is invalid."""
    signs = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64) - 48
    if not len(signs):
        return []
    if signs.min() < 0 or signs.max() > 63 or signs[-1] & 32:
        raise ValueError("this text is no list of run lengths")
    ends = np.flatnonzero(signs & 32 == 0)
    starts = np.r_[0, ends[:-1] + 1]
    if (ends - starts >= _GROUPS).any():
        raise ValueError("a run length is too large")
    group = np.arange(len(signs)) - np.repeat(starts, ends - starts + 1)
    values = np.add.reduceat((signs & 31) << (5 * group), starts)
    negative = signs[ends] & 16 != 0
    values = np.where(negative, values - (np.int64(1) << (5 * (ends - starts + 1))), values)
    for place in (1, 2):
        values[place::2] = np.cumsum(values[place::2])
    return [int(value) for value in values]


def region_of(counts: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the region, bool (height, width), of counts. Raises ValueError if they do not add up to `size`."""
    width, height = size
    lengths = np.asarray(counts, np.int64)
    if (lengths < 0).any() or (lengths > MOST_PIXELS).any() or int(lengths.sum()) != width * height:
        raise ValueError("the run lengths are not of this size")
    inside = np.arange(len(lengths)) % 2 == 1
    return np.repeat(inside, lengths).reshape(width, height).T
