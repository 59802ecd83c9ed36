"""A small antialiased canvas that draws every shape twice: into the picture and into the semantic mask.

Coordinates are fractions of the picture's side (x right, y down). Colours are RGB, 0 to 255. The picture is drawn at
`SUPERSAMPLING` times its size and averaged down. The mask is not averaged, since it holds class numbers: it takes the
middle sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from demo.scene import SEMANTIC_CLASSES

SUPERSAMPLING = 2
_SHIFT = 4  # cv2 takes fixed-point coordinates; 4 bits are a sixteenth of a pixel

Point = tuple[float, float]
Colour = tuple[float, float, float]


class Canvas:
    """Picture and mask of one square scene."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.side = size * SUPERSAMPLING
        self.pixels = np.zeros((self.side, self.side, 3), np.uint8)
        self.mask = np.zeros((self.side, self.side), np.uint8)

    def picture(self) -> np.ndarray:
        """Return the picture: RGB, uint8, (size, size, 3)."""
        return cv2.resize(self.pixels, (self.size, self.size), interpolation=cv2.INTER_AREA)

    def semantic_mask(self) -> np.ndarray:
        """Return the mask: indices into `SEMANTIC_CLASSES`, uint8, (size, size)."""
        offset = SUPERSAMPLING // 2
        return np.ascontiguousarray(self.mask[offset::SUPERSAMPLING, offset::SUPERSAMPLING])

    def rows(self, top: Colour, bottom: Colour, start: float = 0.0, end: float = 1.0) -> np.ndarray:
        """Return one colour per canvas row, float (side, 3), blended from `top` at `start` to `bottom` at `end`."""
        y = (np.arange(self.side) + 0.5) / self.side
        t = np.clip((y - start) / max(end - start, 1e-6), 0, 1)[:, None]
        return np.asarray(top) * (1 - t) + np.asarray(bottom) * t

    def fill(self, row_colours: np.ndarray, semantic: str) -> None:
        """Paint the whole picture with one colour per row, and set the whole mask to one class."""
        self.pixels[:] = row_colours.astype(np.uint8)[:, None, :]
        self.mask[:] = SEMANTIC_CLASSES.index(semantic)

    def polygon(self, points: Sequence[Point], colour: Colour | np.ndarray, semantic: str | None = None) -> None:
        """Paint a polygon. `colour` is one colour, or one per row of the canvas, as `rows` returns."""
        fixed = self._fixed(points)
        if isinstance(colour, np.ndarray):
            alpha = np.zeros((self.side, self.side), np.uint8)
            cv2.fillPoly(alpha, [fixed], 255, cv2.LINE_AA, _SHIFT)
            top, bottom = self._span(points)
            # Whole pixels are copied; only the thin border where the shape covers a part of a pixel is blended.
            cover, band = alpha[top:bottom], self.pixels[top:bottom]
            colours = np.broadcast_to(colour[top:bottom, None, :].astype(np.uint8), band.shape)
            np.copyto(band, colours, where=(cover == 255)[:, :, None])
            border = np.nonzero((cover > 0) & (cover < 255))
            share = cover[border][:, None].astype(np.float32) / 255
            band[border] = band[border] * (1 - share) + colours[border] * share
        else:
            cv2.fillPoly(self.pixels, [fixed], colour, cv2.LINE_AA, _SHIFT)
        if semantic is not None:
            cv2.fillPoly(self.mask, [fixed], SEMANTIC_CLASSES.index(semantic), cv2.LINE_8, _SHIFT)

    def rectangle(
        self, x: float, y: float, width: float, height: float, colour: Colour, semantic: str | None = None
    ) -> None:
        """Paint an upright rectangle with its upper left corner at (x, y)."""
        self.polygon([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], colour, semantic)

    def ellipse(
        self,
        centre: Point,
        radii: Point,
        colour: Colour,
        semantic: str | None = None,
        angle: float = 0.0,
        start: float = 0.0,
        end: float = 360.0,
    ) -> None:
        """Paint a filled ellipse, or a sector of it between two angles in degrees (clockwise from the right)."""
        scale = self.side * (1 << _SHIFT)
        middle = (round(centre[0] * scale), round(centre[1] * scale))
        axes = (max(1, round(radii[0] * scale)), max(1, round(radii[1] * scale)))
        cv2.ellipse(self.pixels, middle, axes, angle, start, end, colour, -1, cv2.LINE_AA, _SHIFT)
        if semantic is not None:
            number = SEMANTIC_CLASSES.index(semantic)
            cv2.ellipse(self.mask, middle, axes, angle, start, end, number, -1, cv2.LINE_8, _SHIFT)

    def line(self, start: Point, end: Point, width: float, colour: Colour, semantic: str | None = None) -> None:
        """Paint a straight line. `width` is a fraction of the picture's side."""
        a, b = np.asarray(start, float), np.asarray(end, float)
        along = b - a
        length = float(np.hypot(*along)) or 1e-6
        across = np.array([-along[1], along[0]]) / length * width / 2
        corners = [a + across, b + across, b - across, a - across]
        self.polygon([(float(x), float(y)) for x, y in corners], colour, semantic)

    def blend(self, layer: np.ndarray, colour: Colour, opacity: float) -> None:
        """Blend in a colour with weight `layer` / 255 x `opacity` (0 to 1). `layer` is uint8, (side, side)."""
        weight = layer[:, :, None].astype(np.float32) * (opacity / 255)
        base = self.pixels.astype(np.float32)
        self.pixels[:] = (base + (np.asarray(colour, np.float32) - base) * weight).astype(np.uint8)

    def _fixed(self, points: Sequence[Point]) -> np.ndarray:
        return np.round(np.asarray(points, float) * self.side * (1 << _SHIFT)).astype(np.int32)

    def _span(self, points: Sequence[Point]) -> tuple[int, int]:
        ys = [y for _, y in points]
        return max(0, int(min(ys) * self.side) - 1), min(self.side, int(max(ys) * self.side) + 2)
