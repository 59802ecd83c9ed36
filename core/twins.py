"""Twins: two pictures, one made from the other by a flip, crop, shift or scaling, or by a mark on it.

A perceptual hash finds a picture that was saved again, but misses twins. This module makes a small copy (look) of every
picture and compares pairs of similar looks. It aligns a pair by `cv2.findTransformECC` (Evangelidis and Psarakis,
"Parametric Image Alignment Using Enhanced Correlation Coefficient Maximization", 2008), also with one look mirrored.
Two pictures are twins if nearly every pixel of one look has its colour in the other look, at most one pixel away.

`benchmarks/twins.py` measures how many twins are found, and how many other pairs are wrongly called twins. `RATES`
states the results. CLIP vectors are not used, since they do not tell twins from similar pictures. In the demo's CLIP, a
picture and its crop by 10 % have a median cosine of 0.97. Two pictures of the same things have the same median.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.progress import OnCount

SIDE = 48
"""Width and height in pixels of a look, the small copy of a picture that is compared."""
SHAPE = (SIDE, SIDE, 3)
NEIGHBOURS = 12
"""Maximum number of similar pictures with which each picture is compared. The most similar pictures are taken."""
LEAST_ALIKE = 0.94
"""Minimum cosine similarity of the signatures of two pictures. Less similar pictures are not compared."""
TOLERANCE, COARSE_TOLERANCE = 10, 8
"""Maximum difference (0 to 255) of equal colours: `TOLERANCE` after alignment, `COARSE_TOLERANCE` before alignment."""
MOST_LACKING = 0.02
"""Maximum share of pixels whose colour the other twin lacks, after alignment."""
COARSE_LACKING = 0.01, 0.11
"""Maximum shares of pixels without a match, before alignment: in the picture that has fewer such pixels, and in the
picture that has more. A crop lacks the colours that were cut off, so the larger maximum allows for a crop."""
REACH = 13
"""Width in pixels of the square in which a colour is searched before alignment. Crops by 10 % move colours less far."""
HOPELESS = 8 * MOST_LACKING
"""If more than this share of the first picture's pixels has no match in the second, the pictures are not twins."""
LEAST_OVERLAP, LARGEST_SCALE = 0.6, 1.35
"""Minimum share of overlap and maximum scale between aligned pictures. Beyond them too little is left to compare."""
RATES = (
    "Measured on drawn scenes, this finds all flips, crops of 5 % at each edge, JPEGs of quality 30 and halvings, 99 % "
    "of shifts by 3 %, and 94 % of crops of 10 % and of watermarks. It misses crops of 20 %, 36 % of the flips that "
    "are also 10 % brighter, and 87 % of the crops of 5 % that are. Of scenes of one object that differ only in where "
    "things stand, 16 % are taken for copies."
)
_PAIRS, _ROWS = 8192, 1024
_CELLS = 12
_ZOOMED = 3
"""Number of pixels that the second signature leaves out at each edge, as a crop does."""
Looks = NDArray[np.uint8]
"""Small copies (looks) of several pictures: (pictures, SIDE, SIDE, 3), RGB."""
Pairs = NDArray[np.int64]
"""Pairs of pictures: (pairs, 2), indices of pictures."""


def look_of(image: Image.Image) -> NDArray[np.uint8]:
    """Return the look (small copy) of a picture of any mode and size: (SIDE, SIDE, 3), RGB."""
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def twins_among(looks: Looks, on_count: OnCount | None = None) -> Pairs:
    """Return the pairs of indices whose pictures are twins, the lower index first."""
    return _twins(looks, _resembling(_signatures(looks), _signatures(looks), True), looks, on_count)


def twins_between(looks: Looks, others: Looks, on_count: OnCount | None = None) -> Pairs:
    """Return the pairs of twins between `looks` and `others`: the index of each picture in its array."""
    return _twins(looks, _resembling(_signatures(looks), _signatures(others), False), others, on_count)


def _signatures(looks: Looks) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return two signatures (unit vectors) of each look: with and without its edges. Mirroring changes neither."""
    import cv2

    signatures = []
    for edge in (0, _ZOOMED):
        inside = slice(edge, SIDE - edge)
        small = [cv2.resize(look[inside, inside], (6, 6), interpolation=cv2.INTER_AREA) for look in looks]
        cells = np.array(small, np.float32).reshape(len(looks), 6, 6, 3)
        both, apart = (cells + cells[:, :, ::-1]) / 2, np.abs(cells - cells[:, :, ::-1]) / 2
        both -= both.mean((1, 2), keepdims=True) / 2  # halve the mean, so that overall brightness counts less
        vectors = np.concatenate([one[:, :, :3].reshape(len(looks), 54) for one in (both, apart)], axis=1)
        signatures.append(vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + np.float32(1e-3)))
    return signatures[0], signatures[1]


def _resembling(
    own: tuple[NDArray[np.float32], NDArray[np.float32]],
    other: tuple[NDArray[np.float32], NDArray[np.float32]],
    same: bool,
) -> Pairs:
    """Return index pairs of similar pictures. `same` means that both sets are equal: each pair then comes once."""
    found_pairs = [np.zeros((0, 2), np.int64)]
    for first in range(0, len(own[0]), _ROWS):
        rows = slice(first, first + _ROWS)
        cosines = own[0][rows] @ other[0].T
        np.maximum(cosines, own[1][rows] @ other[0].T, out=cosines)
        np.maximum(cosines, own[0][rows] @ other[1].T, out=cosines)
        number = np.arange(len(cosines))
        if same:
            cosines[number, number + first] = -1
        if cosines.shape[1] > NEIGHBOURS:
            column = np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        else:
            column = np.broadcast_to(np.arange(cosines.shape[1]), cosines.shape)
        row = np.repeat(number, column.shape[1])
        close = cosines[row, column.ravel()] > LEAST_ALIKE
        found_pairs.append(np.stack([row[close] + first, column.ravel()[close]], axis=1))
    pairs = np.concatenate(found_pairs)
    return np.unique(np.sort(pairs, axis=1) if same else pairs, axis=0)


def _twins(looks: Looks, pairs: Pairs, others: Looks, on_count: OnCount | None) -> Pairs:
    likely = _likely(looks, pairs, others)
    worth = np.flatnonzero(likely.any(axis=1))

    def are_twins(place: int) -> bool:
        one, other = looks[pairs[place, 0]], others[pairs[place, 1]]
        for mirrored in np.flatnonzero(likely[place]):
            pair = np.ascontiguousarray(one[:, ::-1]) if mirrored else one, other
            if not _near(*pair):
                continue
            lacking = _laid_over(*pair)
            # Compare in the other direction too: only one of the pictures has the colours of a mark.
            if lacking <= MOST_LACKING or (lacking <= HOPELESS and _laid_over(*pair[::-1]) <= MOST_LACKING):
                return True
        return False

    are_twin_pairs = []
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # OpenCV runs in parallel
        for number, found in enumerate(pool.map(are_twins, worth.tolist()), start=1):
            are_twin_pairs.append(found)
            if on_count is not None:
                on_count(number, len(worth))
    return pairs[worth[np.array(are_twin_pairs, bool)]]


def _likely(looks: Looks, pairs: Pairs, others: Looks) -> NDArray[np.bool_]:
    """Return two flags for each pair, (pairs, 2): whether its pictures can be twins, and whether they can be twins if
    one of them is mirrored. Twins have similar colours at similar places.
    """
    own = _ranges(looks)
    other = own if others is looks else _ranges(others)
    can_be_twins = np.zeros((len(pairs), 2), bool)
    for first in range(0, len(pairs), _PAIRS):
        some = slice(first, first + _PAIRS)
        left, right = ([values[pairs[some, side]] for values in ranges] for side, ranges in enumerate((own, other)))
        for mirrored in (0, 1):
            one = [values[:, :, ::-1] for values in left] if mirrored else left
            lacking = np.sort([_lacking(right, one[2]), _lacking(one, right[2])], axis=0)
            can_be_twins[some, mirrored] = (lacking[0] <= COARSE_LACKING[0]) & (lacking[1] <= COARSE_LACKING[1])
    return can_be_twins


def _ranges(looks: Looks) -> tuple[Looks, Looks, Looks]:
    """Return the lowest and highest colour around each of 12 x 12 cells of each picture, and the mean colours."""
    import cv2

    size = SIDE // _CELLS
    about = np.ones((REACH, REACH), np.uint8)
    low, high = (
        [act(look, about)[size // 2 :: size, size // 2 :: size] for look in looks] for act in (cv2.erode, cv2.dilate)
    )
    cells = looks.reshape(len(looks), _CELLS, size, _CELLS, size, 3).mean((2, 4)).astype(np.uint8)
    shape = (len(looks), _CELLS, _CELLS, 3)
    return np.array(low, np.uint8).reshape(shape), np.array(high, np.uint8).reshape(shape), cells


def _lacking(ranges: Sequence[Looks], cells: Looks) -> NDArray[np.float64]:
    """Return for each pair the share of one picture's `cells` whose colour is outside the other's `ranges`."""
    low, high = ranges[0], ranges[1]
    away = np.maximum(np.maximum(low, cells) - cells, cells - np.minimum(high, cells))
    return (away.max(-1) > COARSE_TOLERANCE).mean((1, 2))


def _near(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    lacking = sorted(float((_away(*pair, REACH) > COARSE_TOLERANCE).mean()) for pair in ((one, other), (other, one)))
    return lacking[0] <= COARSE_LACKING[0] and lacking[1] <= COARSE_LACKING[1]


def _away(one: NDArray[np.uint8], other: NDArray[np.uint8], reach: int) -> NDArray[np.uint8]:
    """Compare each pixel of `other` with a square of `reach` pixels of `one`. Return the differences, 0 to 255."""
    import cv2

    about = np.ones((reach, reach), np.uint8)
    low, high = cv2.erode(one, about), cv2.dilate(one, about)
    distance: NDArray[np.uint8] = np.maximum(np.maximum(low, other) - other, other - np.minimum(high, other)).max(2)
    return distance


def _laid_over(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Align `one` to `other`. Compare each pixel of the aligned picture with the same pixel of `other` and its eight
    neighbours. Return the share of pixels without a similar colour there, or 1 if the pictures cannot be aligned.
    """
    import cv2

    grey = [cv2.cvtColor(look, cv2.COLOR_RGB2GRAY) for look in (other, one)]
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 20, 1e-3)
    start = np.eye(2, 3, dtype=np.float32)
    try:
        _, placed = cv2.findTransformECC(grey[0], grey[1], start, cv2.MOTION_AFFINE, stop, None, 5)
    except cv2.error:  # nothing in common, or a picture of one colour
        return 1.0
    scales = np.linalg.svd(placed[:, :2], compute_uv=False)
    if not (scales[1] > 1 / LARGEST_SCALE and scales[0] < LARGEST_SCALE):
        return 1.0
    size, back = (SIDE, SIDE), cv2.WARP_INVERSE_MAP
    overlap = cv2.warpAffine(np.full(size, 255, np.uint8), placed, size, flags=back | cv2.INTER_NEAREST) > 0
    if overlap.mean() < LEAST_OVERLAP:
        return 1.0
    laid = cv2.warpAffine(one, placed, size, flags=back | cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return float((_away(other, laid, 3)[overlap] > TOLERANCE).mean())
