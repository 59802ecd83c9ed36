"""Finds the vectors nearest to a given vector by comparing all vectors. Knows no model and no file.

The vectors are float16 and may be mapped into memory. torch multiplies float16 directly (a million vectors of 512
dimensions in 0.06 s on a core, where numpy takes 0.9 s). Exact figures need float32: a part of the vectors is converted
at a time, so memory never holds a second copy of all vectors. An index would take time to build and could miss vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 1024
"""Number of vectors converted to float32 at once. Those of 512 dimensions fit in the cache of a core."""
FEW = 8
"""Divisor. If there are fewer candidates than `len(rows) // FEW`, only candidates are compared, otherwise all rows."""
SPARE = 1000
"""Number of rows that are compared exactly, in addition to twice the requested number."""
Halves = NDArray[np.float16]
Floats = NDArray[np.float32]
Places = NDArray[np.int64]


def products(rows: Halves, directions: Floats, places: Places | None = None) -> Floats:
    """Return the dot products (rows, k) of vectors (rows, n) with `directions` (k, n). Vectors of length 1 give
    cosines. With `places`, only the rows at these indices count, in this order. `rows` is not changed, but torch
    accepts only a writable array.
    """
    import torch

    table, matrix = torch.from_numpy(rows), torch.from_numpy(np.ascontiguousarray(directions, np.float32))
    chosen = torch.from_numpy(places) if places is not None else None
    number = len(rows) if places is None else len(places)
    result = np.empty((number, len(directions)), np.float32)
    out, part = torch.from_numpy(result), torch.empty((min(AT_ONCE, max(number, 1)), rows.shape[1]))
    with torch.inference_mode():
        for first in range(0, number, AT_ONCE):
            last = min(first + AT_ONCE, number)
            widened = part[: last - first]
            widened.copy_(table[first:last] if chosen is None else table[chosen[first:last]])
            if len(directions) == 1:
                torch.mv(widened, matrix[0], out=out[first:last, 0])
            else:
                torch.mm(widened, matrix.T, out=out[first:last])
    return result


def nearest(rows: Halves, vector: Floats, most: int, inside: NDArray[np.bool_]) -> tuple[Places, Floats]:
    """Return the indices of at most `most` rows with the largest cosines with `vector`, largest first, and the cosines.
    `rows` and `vector` are unit vectors. Rows with False in `inside` are ignored. Many rows are first compared in
    float16 (errors of ten-thousandths). Then the best rows, more than twice `most`, are compared in float32. In a test
    with a million rows and a `most` of 2,000, no row was missed.
    """
    import torch

    candidates = int(np.count_nonzero(inside))
    if not candidates:  # also if there are no rows at all, so that their length is unknown
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    if candidates < len(rows) // FEW:
        places = np.flatnonzero(inside)
    else:
        with torch.inference_mode():
            rough = torch.mv(torch.from_numpy(rows), torch.from_numpy(vector.astype(np.float16))).float()
            rough[torch.from_numpy(~inside)] = -2.0  # below every cosine
            places = np.sort(torch.topk(rough, min(candidates, 2 * most + SPARE)).indices.numpy())
    cosines = products(rows, vector[None], places)[:, 0]
    chosen = largest(cosines, most)
    return places[chosen], cosines[chosen]


def largest(figures: Floats, most: int) -> Places:
    """Return the indices of at most `most` largest figures, largest first. Of equal figures, the last comes first."""
    places = np.arange(len(figures))
    if most <= 0:
        places = places[:0]
    elif most < len(figures):
        edge = np.partition(figures, len(figures) - most)[len(figures) - most]
        above, at = np.flatnonzero(figures > edge), np.flatnonzero(figures == edge)
        places = np.concatenate([above, at[len(at) - (most - len(above)) :]])
    return places[np.lexsort((-places, -figures[places]))].astype(np.int64)


def close_pairs(rows: Floats, least: float, most: int) -> list[tuple[int, int, float]]:
    """Return at most `most` pairs of vectors (n, dimensions) of length 1 whose cosine is above `least`. Each is (index,
    later index, cosine). Computes n² / 2 products: 3 seconds for 20,000 vectors of 512 dimensions on a core.
    """
    pairs: list[tuple[int, int, float]] = []
    for first in range(0, len(rows), AT_ONCE):
        last = min(first + AT_ONCE, len(rows))
        cosines = rows[first:last] @ rows[first:].T
        close = cosines > least
        close &= np.arange(close.shape[1]) > np.arange(len(close))[:, None]
        # Thousands of similar rows have millions of pairs, so only the rows that are needed for `most` are unpacked.
        room = most - len(pairs)
        enough = int(np.searchsorted(np.cumsum(np.count_nonzero(close, axis=1)), room)) + 1
        one, other = (places[:room] for places in np.nonzero(close[:enough]))
        figures = cosines[one, other]
        pairs += zip((one + first).tolist(), (other + first).tolist(), figures.tolist(), strict=True)
        if len(pairs) >= most:
            break
    return pairs
