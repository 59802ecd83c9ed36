"""Turns the things that a segmenter found into one tidy mask of the subject, with a remark on every choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.figures import percent
from core.words import count_of
from pipeline.seams import Found

Several = Literal["largest", "all"]
"""Choice among several things that fit the phrase: the largest one, or all of them together."""
SMALL, LARGE = 0.01, 0.95
"""Smallest and largest share of a picture that a subject usually fills."""
UNSURE = 0.3
"""Minimum score of a mask that needs no check by a person."""
_HOLE, _SPECK = 0.01, 0.01
"""Largest holes to fill and largest loose pieces to drop, as shares of the subject."""


def take(
    found: Sequence[Found], phrase: str, several: Several = "largest"
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return the subject's mask (height, width), chosen from things that fit the phrase, and remarks on the choice."""
    chosen = list(found) if several == "all" else [max(found, key=lambda thing: int(thing.mask.sum()))]
    mask = tidied(np.logical_or.reduce([thing.mask for thing in chosen]))
    notes = []
    if len(found) > 1:
        word = "all of them were taken" if several == "all" else "the largest was taken"
        notes.append(f"{count_of(len(found), 'thing')} fit “{phrase}”: {word}.")
    if (score := min(thing.score for thing in chosen)) < UNSURE:
        notes.append(f"The segmenter is not sure of the subject (score {score:.2f} of 1): look at its mask.")
    if not SMALL <= (share := float(mask.mean())) <= LARGE:
        word = "only " if share < SMALL else ""
        notes.append(f"The subject covers {word}{percent(share)} of the picture: look at its mask.")
    return mask, tuple(notes)


def tidied(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask with small holes filled and small loose pieces dropped. The largest piece always stays."""
    from scipy.ndimage import binary_fill_holes

    area = mask.sum()
    holes = binary_fill_holes(mask) & ~mask
    filled = mask | (holes & (_piece_sizes(holes) <= _HOLE * area))
    sizes = _piece_sizes(filled)
    return filled & ((sizes > _SPECK * area) | (sizes == sizes.max()))


def _piece_sizes(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each pixel the number of pixels of its connected piece, 0 outside the mask."""
    from scipy.ndimage import label

    numbers, _ = label(mask, np.ones((3, 3)))
    sizes = np.bincount(numbers.ravel())
    sizes[0] = 0
    return sizes[numbers]
