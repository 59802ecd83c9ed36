"""Regions: parts of a source image that may change. A person paints a region over the image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core import rle
from core.errors import UserError
from core.figures import percent
from core.images import MAX_SIDE

INSIDE = 255
"""Value of a mask's pixels where the image may change."""
_DAMAGED = "The painted region cannot be read, as its run lengths do not add up to its size: paint it again."


@dataclass(frozen=True)
class Region:
    """The part of a source image that may change."""

    text: str = ""
    """Width, height and run lengths, such as "96x64 P2b0": see `core.rle`. "" for the whole image."""

    @property
    def whole(self) -> bool:
        return not self.text

    @property
    def share(self) -> float:
        """The share of the image that may change, 0 to 1. Raises UserError if `text` is invalid."""
        return _share(self.text)

    def describe(self) -> str:
        """Return in words the share of the picture that may change, such as "25 % of the picture"."""
        if self.whole:
            return "the whole picture"
        try:
            return f"{percent(self.share)} of the picture"
        except UserError:
            return "a region that cannot be read"

    def inverse(self) -> Region:
        """Return the region of all other pixels; the whole image stays the whole image. Raises UserError if damaged."""
        return _inverse(self.text)

    def require_fit(self, size: tuple[int, int]) -> None:
        """Raise UserError if nothing is painted, or if the painted image was not of `size` (width, height)."""
        if self.whole:
            return
        if (painted := _size(self.text)) != size:
            raise UserError(
                f"The region was painted on a picture of {painted[0]}x{painted[1]} pixels, but this picture has "
                f"{size[0]}x{size[1]} pixels: paint the region again."
            )
        if not self.share:
            raise UserError("Nothing is painted, so nothing could change: paint something, or take the whole picture.")

    def mask(self, size: tuple[int, int]) -> Image.Image | None:
        """Return an image of mode L and `size` (width, height), with INSIDE where the source may change; None for the
        whole image. Raises UserError if the region does not fit the image or nothing is painted (see `require_fit`).
        """
        self.require_fit(size)
        return None if self.whole else Image.fromarray(np.where(_pixels(self.text), np.uint8(INSIDE), np.uint8(0)))


WHOLE = Region()


def region_of(mask: Image.Image) -> Region:
    """Return the region of a mask of mode L: its pixels of 128 or more. `WHOLE` if no pixel is below 128."""
    pixels = np.asarray(mask) >= 128
    if pixels.all():
        return WHOLE
    return Region(f"{mask.width}x{mask.height} {rle.packed(rle.counts_of(pixels))}")


def _size(text: str) -> tuple[int, int]:
    match = re.match(r"(\d{1,4})x(\d{1,4}) ", text)
    if match is None or max(size := (int(match[1]), int(match[2]))) > MAX_SIDE:
        raise UserError(_DAMAGED)
    return size


def _pixels(text: str) -> NDArray[np.bool_]:
    size = _size(text)
    try:
        return rle.region_of(rle.unpacked(text.partition(" ")[2]), size)
    except ValueError as error:  # also UnicodeError
        raise UserError(_DAMAGED) from error


@lru_cache(maxsize=1024)
def _share(text: str) -> float:
    return float(_pixels(text).mean()) if text else 1.0


@lru_cache(maxsize=1024)
def _inverse(text: str) -> Region:
    return region_of(Image.fromarray(np.where(_pixels(text), np.uint8(0), np.uint8(255)))) if text else WHOLE
