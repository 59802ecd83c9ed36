"""The conditioning: a source image to its control image, of the kind that the settings say. Pure and deterministic.

Canny edges are computed here, a segmentation map is painted from the mask that is given, and what a model draws (soft
edges, line art, depth) comes from a detector, behind a seam.

The edges should tell where things are and not which weather or hour it is, or both would come back in every test
case. So specks (flakes, drops, sensor noise) are filtered out first, and the contrast is stretched, so that the same
thresholds find the same things by day, at night and in fog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.ade import colour_of
from pipeline.errors import UserError
from pipeline.masks import carried
from pipeline.seams import Detector
from pipeline.settings import ConditioningSettings, ControlKind

DARK_PERCENTILE, BRIGHT_PERCENTILE = 2.0, 98.0
"""Luminances that the stretch takes to black and to white: lamps and black corners do not count."""
MAX_GAIN = 5.0
"""The most that a flat image is stretched; beyond it noise would turn into edges."""
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True)
class NamedMask:
    """What each pixel of the source image shows."""

    image: Image.Image
    """L: the number of a class at every pixel."""
    classes: Mapping[int, str] = field(default_factory=dict)
    """The names of the numbers."""


def control_image(
    image: Image.Image,
    settings: ConditioningSettings,
    detector: Callable[[ControlKind], Detector] | None = None,
    mask: NamedMask | None = None,
) -> Image.Image:
    """The control image of an RGB image: RGB, same size, white (or the colours of a map) on black.

    `detector` gives the model that draws a kind, `mask` is the source's. Raises UserError when the kind needs one of
    them and it is not there.
    """
    if settings.kind == "canny":
        return condition(image, settings)
    if settings.kind == "segmentation":
        if mask is None:
            raise UserError("A segmentation map is painted from a mask, and this run has none: add one, or take edges.")
        return painted(mask, image.size)
    if detector is None:
        raise UserError(f"No model for {settings.kind} is at hand: choose another kind of control image.")
    drawn = detector(settings.kind).draw(image, settings)
    # Detectors work at sizes of their own; what is held to the source must lie on it pixel by pixel.
    return drawn if drawn.size == image.size else drawn.resize(image.size, Image.Resampling.BILINEAR)


def painted(mask: NamedMask, size: tuple[int, int]) -> Image.Image:
    """A mask in the colours of ADE20K, which the ControlNet for segmentation maps was trained on; RGB, of `size`."""
    numbers = np.asarray(carried(mask.image.convert("L"), size), np.uint8)
    table = np.zeros((256, 3), np.uint8)
    for number, name in mask.classes.items():
        if 0 <= number < 256:
            table[number] = colour_of(name)
    return Image.fromarray(table[numbers])


def edges(image: NDArray[np.uint8], settings: ConditioningSettings) -> NDArray[np.uint8]:
    """Edges of an RGB image (h, w, 3) uint8 as (h, w) uint8: 255 on an edge, 0 elsewhere.

    Raises ValueError for any other shape or type.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"edges takes (h, w, 3) uint8, not {image.shape} {image.dtype}")
    return edges_of_smooth(smoothed(image, settings), settings)


def smoothed(image: NDArray[np.uint8], settings: ConditioningSettings) -> NDArray[np.uint8]:
    """What the edges are looked for in: (h, w, 3) uint8 without specks, contrast stretched. Knows no thresholds."""
    import cv2

    smooth = np.ascontiguousarray(image)
    if settings.median > 1:
        smooth = np.asarray(cv2.medianBlur(smooth, settings.median), np.uint8)
    return stretched(smooth) if settings.stretch else smooth


def edges_of_smooth(smooth: NDArray[np.uint8], settings: ConditioningSettings) -> NDArray[np.uint8]:
    """The second half of `edges`: the thresholds alone, for whoever keeps the first half."""
    import cv2

    # On three channels Canny takes the strongest gradient of them, which keeps red on green of the same brightness.
    return np.asarray(cv2.Canny(smooth, settings.low, settings.high, L2gradient=True), np.uint8)


def stretched(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The image with its luminances spread from black to white. One gain for all channels, so that hues stay."""
    luminance = image.astype(np.float32) @ _LUMA
    dark, bright = np.percentile(luminance, (DARK_PERCENTILE, BRIGHT_PERCENTILE))
    gain = min(MAX_GAIN, 255.0 / max(float(bright - dark), 1.0))
    # Every value of every channel goes the same way, so a table of the 256 is enough.
    table = np.clip((np.arange(256, dtype=np.float32) - dark) * gain, 0, 255).astype(np.uint8)
    return table[image]


def condition(image: Image.Image, settings: ConditioningSettings) -> Image.Image:
    """The Canny edges of an RGB image: white on black, RGB, same size."""
    found = edges(np.asarray(image.convert("RGB"), np.uint8), settings)
    return Image.fromarray(np.repeat(found[:, :, None], 3, axis=2))


def as_png(image: NDArray[np.uint8]) -> bytes:
    """A PNG of RGB (h, w, 3) uint8, or of the edges (h, w) of `edges` in one bit a pixel.

    Packed for speed: it is looked at once, a few milliseconds later.
    """
    import cv2

    pixels, how = image, [cv2.IMWRITE_PNG_COMPRESSION, 1]
    if image.ndim == 2:
        how += [cv2.IMWRITE_PNG_BILEVEL, 1]
    else:
        pixels = image[:, :, ::-1]
    done, data = cv2.imencode(".png", pixels, how)
    if not done:
        raise ValueError(f"no PNG can be made of {image.shape} {image.dtype}")
    return bytes(data)
