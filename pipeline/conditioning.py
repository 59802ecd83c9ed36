"""The conditioning: an image to its Canny edges. Pure and deterministic; knows nothing of models or files.

The edges should tell where things are and not which weather or hour it is, or both would come back in every test
case. So specks (flakes, drops, sensor noise) are filtered out first, and the contrast is stretched, so that the same
thresholds find the same things by day, at night and in fog.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.settings import ConditioningSettings

DARK_PERCENTILE, BRIGHT_PERCENTILE = 2.0, 98.0
"""Luminances that the stretch takes to black and to white: lamps and black corners do not count."""
MAX_GAIN = 5.0
"""The most that a flat image is stretched; beyond it noise would turn into edges."""
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def edges(image: NDArray[np.uint8], settings: ConditioningSettings) -> NDArray[np.uint8]:
    """Edges of an RGB image (h, w, 3) uint8 as (h, w) uint8: 255 on an edge, 0 elsewhere.

    Raises ValueError for any other shape or type.
    """
    import cv2

    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"edges takes (h, w, 3) uint8, not {image.shape} {image.dtype}")
    smooth = np.ascontiguousarray(image)
    if settings.median > 1:
        smooth = np.asarray(cv2.medianBlur(smooth, settings.median), np.uint8)
    if settings.stretch:
        smooth = stretched(smooth)
    # On three channels Canny takes the strongest gradient of them, which keeps red on green of the same brightness.
    return np.asarray(cv2.Canny(smooth, settings.low, settings.high, L2gradient=True), np.uint8)


def stretched(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The image with its luminances spread from black to white. One gain for all channels, so that hues stay."""
    luminance = image.astype(np.float32) @ _LUMA
    dark, bright = np.percentile(luminance, (DARK_PERCENTILE, BRIGHT_PERCENTILE))
    gain = min(MAX_GAIN, 255.0 / max(float(bright - dark), 1.0))
    return np.clip((image.astype(np.float32) - dark) * gain, 0, 255).astype(np.uint8)


def condition(image: Image.Image, settings: ConditioningSettings) -> Image.Image:
    """The control image of an RGB image: white edges on black, RGB, same size."""
    found = edges(np.asarray(image.convert("RGB"), np.uint8), settings)
    return Image.fromarray(np.repeat(found[:, :, None], 3, axis=2))
