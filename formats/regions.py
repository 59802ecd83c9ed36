"""Regions of masks: draw regions into a mask, and find the regions in a mask."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core import rle
from core.errors import UserError
from core.images import png_of
from core.masks import UNLABELLED, require_names
from formats.draft import Picture
from formats.types import Example

MOST_REGIONS = 100
"""Maximum number of regions of a class in an image to list one by one. More are written as one region."""
Numbers = NDArray[np.uint8]


def class_names(examples: Sequence[Example]) -> list[str]:
    """Return the sorted names of all mask classes and labels."""
    masked = {name for e in examples if e.mask is not None for n, name in e.mask_classes.items() if n != UNLABELLED}
    return sorted(masked | {example.label for example in examples if example.label})


def mask_numbers(picture: Picture) -> Numbers:
    """Return the class number of each mask pixel. Raises UserError if a number has no name."""
    with Image.open(io.BytesIO(picture.mask or b"")) as mask:
        grey = mask.convert("L")
    try:
        require_names(grey, picture.example.mask_classes)
    except UserError as error:
        raise UserError(f"“{picture.example.name}”: {error}") from error
    return np.asarray(grey, np.uint8)


def pieces(numbers: Numbers, number: int) -> list[tuple[int, int, NDArray[np.bool_], bool]]:
    """Return the connected regions of the class `number` as (left, top, flags of the pixels in its box, False). More
    than `MOST_REGIONS` regions are returned as a single one, with True.
    """
    import cv2

    in_class = numbers == number
    rows, columns = np.flatnonzero(in_class.any(axis=1)), np.flatnonzero(in_class.any(axis=0))
    if not len(rows):
        return []
    top, left = int(rows[0]), int(columns[0])
    box = np.ascontiguousarray(in_class[top : rows[-1] + 1, left : columns[-1] + 1])
    count, parts, boxes, _ = cv2.connectedComponentsWithStats(box.astype(np.uint8), connectivity=8)
    if count - 1 > MOST_REGIONS:
        return [(left, top, box, True)]
    regions = []
    for part in range(1, count):
        x, y, width, height = (int(side) for side in boxes[part][:4])
        regions.append((left + x, top + y, parts[y : y + height, x : x + width] == part, False))
    return regions


def area_of(annotation: Mapping[str, Any]) -> float:
    """Return the area that the annotation gives for a region; 0 if it gives no number."""
    area = annotation.get("area")
    return float(area) if isinstance(area, int | float) and -1e18 < area < 1e18 else 0.0


def painted(
    shapes: Sequence[tuple[int, Any]], size: tuple[int, int] | None = None
) -> Callable[[tuple[int, int]], bytes]:
    """Return a function that gets (width, height), draws the regions, and returns the mask as PNG. Later regions cover
    earlier regions. With `size`, the mask has this size instead. Without `size`, points are shares of width and height.
    """

    def draw(requested: tuple[int, int]) -> bytes:
        width, height = size or requested
        numbers = np.full((height, width), UNLABELLED, np.uint8)
        try:
            for number, shape in shapes:
                if isinstance(shape, dict):
                    counts = shape["counts"]
                    counts = rle.unpacked(counts) if isinstance(counts, str) else counts
                    if tuple(shape["size"]) != (height, width):
                        raise ValueError("a region is of another size")
                    numbers[rle.region_of(counts, (width, height))] = number
                else:
                    for outline in shape:
                        points = np.asarray(outline, np.float64).reshape(-1, 2)
                        fill_outline(numbers, points if size else points * requested, number)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise UserError("A region cannot be drawn: correct the region's outline or run lengths.") from error
        return png_of(Image.fromarray(numbers))

    return draw


def fill_outline(numbers: Numbers, points: NDArray[np.float64], number: int) -> None:
    """Set all pixels inside an outline to `number`. Points are (x, y) in pixels from the image's corner."""
    import cv2

    if not np.isfinite(points).all() or len(points) < 3 or np.abs(points).max() > 1e6:
        raise ValueError("this is no outline")
    # The centre of the first pixel is at 0.5. OpenCV takes coordinates with four fractional bits.
    fixed = np.rint((points - 0.5) * 16).astype(np.int32)
    cv2.fillPoly(numbers, [fixed.reshape(-1, 1, 2)], int(number), shift=4)
