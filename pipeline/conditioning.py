"""Conditioning: turns a source image into a control image, such as its edges. Pure and deterministic.

Canny edges are computed here, and a segmentation map is painted from the mask. Soft edges, line art and depth are drawn
by a detector, which is a model.

Edges should show where things are, but not the weather or the hour, which would come back in every test case. So specks
(flakes, drops, sensor noise) are removed first, and the contrast is stretched. The same thresholds then find the same
things by day, at night and in fog.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.data_files import DataTable
from core.errors import UserError
from core.masks import NamedMask, resized
from core.settings import ConditioningSettings, ControlKind
from pipeline.seams import Detector

DARK_PERCENTILE, BRIGHT_PERCENTILE = 2.0, 98.0
"""Percentiles of an image's luminance that become black and white when its contrast is stretched."""
MAX_GAIN = 5.0
"""Maximum factor by which contrast is stretched. A larger one would turn the noise of a flat image into edges."""
STEEP_PERCENTILE, LOWER_SHARE = 90.0, 0.5
"""Two rules for thresholds of Canny: the upper threshold is this percentile of the picture's gradients, and the lower
threshold is this share of the upper threshold. These numbers are the defaults of Canny in DIPlib."""
MIN_UPPER, MAX_UPPER = 40.0, 200.0
"""Bounds of the upper threshold that is fitted to a picture. A lower threshold would turn noise into edges. A higher
threshold could miss edges that the usual fixed thresholds for ControlNets (lower 100, upper 200) find."""
CELL = 32
"""Side, in pixels, of the squares into which a control image is divided to see where it has edges."""
FEW_EDGES = 0.15
"""Share of cells with an edge, 0 to 1, below which a control image of edges counts as nearly empty. Measured at 512
pixels with thresholds of 100 and 200: usual photographs have 0.31 or more (a flower, a cat), and a page of a book 0.16.
Below the line are the moon (0.10), a clock blurred by motion (0.02), and a cell under the microscope (0). 420 drawn
scenes of the demo, with its own settings at 128 pixels, have 0.44 or more."""
EDGE = 63
"""Grey value above which a pixel of a control image is an edge. A quarter of white, since soft edges are faint."""
OF_EDGES: frozenset[ControlKind] = frozenset(("canny", "soft edges", "line art"))
"""Kinds of control image that show edges, white on black."""
Colour = tuple[int, int, int]
UNLABELLED: Colour = (0, 0, 0)
COLOURS = DataTable(__file__, tuple[int, int, int], "colours")
"""Colours of the ADE20K challenge by class, on which ControlNets for segmentation maps were trained. The table has the
classes of street scenes and single objects. Any other class is black, as unlabelled pixels are in ADE20K."""
SAME = DataTable(__file__, str, "same")
"""Maps class names of other data sets to the ADE20K class that means the same or includes them."""
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def control_image(
    image: Image.Image,
    settings: ConditioningSettings,
    detector: Callable[[ControlKind], Detector] | None = None,
    mask: NamedMask | None = None,
) -> Image.Image:
    """Return the control image of an RGB image, in RGB and the same size. `detector` returns the model that draws a
    kind of control image; `mask` is the source's mask. Raises UserError if one of them is needed and missing.
    """
    if settings.kind == "canny":
        return condition(image, settings)
    if settings.kind == "segmentation":
        if mask is None:
            raise UserError("A segmentation map needs a mask, and this run has none: add a mask, or use edges.")
        return painted(mask, image.size)
    if detector is None:
        raise UserError(f"No model for {settings.kind} is available: choose another kind of control image.")
    drawn = detector(settings.kind).draw(image, settings)
    # Detectors work at sizes of their own, but a control image must lie on the source pixel by pixel.
    return drawn if drawn.size == image.size else drawn.resize(image.size, Image.Resampling.BILINEAR)


def cells_with_edges(control: Image.Image) -> float:
    """Return the share, 0 to 1, of a control image's squares (side `CELL`) that contain an edge."""
    is_edge = np.asarray(control.convert("L"), np.uint8) > EDGE
    for axis, side in enumerate(is_edge.shape):
        is_edge = np.logical_or.reduceat(is_edge, np.arange(0, side, CELL), axis)
    return float(is_edge.mean())


def remark_on(control: Image.Image, settings: ConditioningSettings) -> str:
    """Return a remark for a person if a control image of edges is nearly empty, else ""."""
    if settings.kind not in OF_EDGES or (share := cells_with_edges(control)) >= FEW_EDGES:
        return ""
    lower = "lower its thresholds, or " if settings.kind == "canny" and settings.high else ""
    return (
        f"The control image has edges in only {100 * share:.0f} % of its area, so the generated images may keep hardly "
        f"anything of the source: {lower}take another kind of control image."
    )


def colour_of(name: str) -> Colour:
    """Return the colour of a class by its name, in singular or plural, or `UNLABELLED` if it is not in the table."""
    plain = " ".join(name.lower().split())
    names = (SAME.get(tried, tried) for tried in (plain, plain.removesuffix("s")))
    return next((COLOURS[known] for known in names if known in COLOURS), UNLABELLED)


def painted(mask: NamedMask, size: tuple[int, int]) -> Image.Image:
    """Paint a mask in the ADE20K colours that the segmentation ControlNet expects. Return an RGB image of `size`."""
    numbers = np.asarray(resized(mask.image.convert("L"), size), np.uint8)
    table = np.zeros((256, 3), np.uint8)
    for number, name in mask.classes.items():
        if 0 <= number < 256:
            table[number] = colour_of(name)
    return Image.fromarray(table[numbers])


def edges(image: NDArray[np.uint8], settings: ConditioningSettings) -> NDArray[np.uint8]:
    """Return edges of an RGB image (h, w, 3) uint8 as (h, w) uint8, 0 or 255. Raises ValueError for other shapes."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"edges takes (h, w, 3) uint8, not {image.shape} {image.dtype}")
    return edges_in(gradients(image, settings), settings)


Gradients = tuple[NDArray[np.int16], NDArray[np.int16]]
"""Gradients to the right and downwards, each (h, w), of each pixel's steepest colour channel."""


def gradients(image: NDArray[np.uint8], settings: ConditioningSettings) -> Gradients:
    """Return the gradients after specks are removed and contrast is stretched. Each pixel has those of its steepest
    colour channel, so that red on green of the same brightness still shows an edge.
    """
    import cv2

    smooth = np.ascontiguousarray(image)
    if settings.median > 1:
        smooth = np.asarray(cv2.medianBlur(smooth, settings.median), np.uint8)
    if settings.stretch:
        smooth = stretched(smooth)
    across, down = (
        cv2.split(cv2.Sobel(smooth, cv2.CV_16S, x, 1 - x, ksize=3, borderType=cv2.BORDER_REPLICATE)) for x in (1, 0)
    )
    # A loop over channels takes a quarter of the time of argmax over all three. If equally steep, the first counts.
    right, below = across[0].copy(), down[0].copy()
    steepest = _steepness(right, below)
    for further, lower in zip(across[1:], down[1:], strict=True):
        steepness = _steepness(further, lower)
        steeper = cv2.compare(steepness, steepest, cv2.CMP_GT)
        cv2.copyTo(further, steeper, right)
        cv2.copyTo(lower, steeper, below)
        cv2.max(steepness, steepest, steepest)
    return np.asarray(right, np.int16), np.asarray(below, np.int16)


def _steepness(across: NDArray[np.int16], down: NDArray[np.int16]) -> NDArray[np.int32]:
    steepness = np.square(across, dtype=np.int32)
    steepness += np.square(down, dtype=np.int32)
    return steepness


def edges_in(slopes: Gradients, settings: ConditioningSettings) -> NDArray[np.uint8]:
    """Return Canny edges (h, w), 0 or 255. Thresholds come from the settings, or are fitted if the upper one is 0."""
    import cv2

    low, high = (settings.low, settings.high) if settings.high else fitted_thresholds(slopes)
    return np.asarray(cv2.Canny(*slopes, low, high, L2gradient=True), np.uint8)


def fitted_thresholds(slopes: Gradients) -> tuple[float, float]:
    """Return the lower and the upper threshold that fit a picture's own gradients."""
    steep = float(np.percentile(_steepness(*slopes), STEEP_PERCENTILE)) ** 0.5
    upper = min(MAX_UPPER, max(MIN_UPPER, steep))
    return LOWER_SHARE * upper, upper


def stretched(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the image with its luminances spread from black to white. One gain for all channels keeps the hues."""
    import cv2

    luminance = image.astype(np.float32) @ _LUMA
    dark, bright = np.percentile(luminance, (DARK_PERCENTILE, BRIGHT_PERCENTILE))
    gain = min(MAX_GAIN, 255.0 / max(float(bright - dark), 1.0))
    # All channels are mapped in the same way, so a table of 256 values is enough.
    table = np.clip((np.arange(256, dtype=np.float32) - dark) * gain, 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(image, table), np.uint8)


def condition(image: Image.Image, settings: ConditioningSettings) -> Image.Image:
    """Return the Canny edges of an RGB image: white on black, RGB, same size."""
    edge_map = edges(np.asarray(image.convert("RGB"), np.uint8), settings)
    return Image.fromarray(np.repeat(edge_map[:, :, None], 3, axis=2))


def as_png(image: NDArray[np.uint8], longest: int = 0) -> bytes:
    """Return a grey (h, w) or RGB (h, w, 3) uint8 image as PNG. `longest`: maximum long side in pixels, 0: no limit."""
    import cv2

    shrunk = min(1.0, longest / max(image.shape[:2])) if longest else 1.0
    pixels: NDArray[np.uint8] = image if image.ndim == 2 else image[:, :, ::-1]
    how = [cv2.IMWRITE_PNG_COMPRESSION, 1]
    if shrunk < 1:
        size = (max(1, round(image.shape[1] * shrunk)), max(1, round(image.shape[0] * shrunk)))
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
    elif image.ndim == 2:
        how += [cv2.IMWRITE_PNG_BILEVEL, 1]
    done, data = cv2.imencode(".png", pixels, how)
    if not done:
        raise ValueError(f"no PNG can be made of {image.shape} {image.dtype}")
    return bytes(data)
