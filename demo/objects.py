"""Draws an object scene: one labelled object in front of the sky, on ground or water."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from demo.canvas import Canvas, Colour, Point
from demo.light import Light, mix, shade, strew
from demo.scene import WATER_CLASSES, Scene

_WOOD: Colour = (122, 88, 58)
_LEAF: Colour = (62, 140, 62)


class _Pen:
    """Draws parts of an object. In its coordinates, (0, 0) is the middle and one unit is `size` long."""

    def __init__(self, canvas: Canvas, light: Light, middle: Point, size: float, mirrored: bool) -> None:
        self.canvas, self.light = canvas, light
        self._middle, self._size, self._sign = middle, size, -1 if mirrored else 1

    def at(self, x: float, y: float) -> Point:
        return (self._middle[0] + self._sign * x * self._size, self._middle[1] + y * self._size)

    def shape(self, points: list[Point], colour: Colour, glows: bool = False) -> None:
        self.canvas.polygon([self.at(*p) for p in points], self.light.on(colour, 0.2, glows), "object")

    def oval(
        self,
        x: float,
        y: float,
        rx: float,
        ry: float,
        colour: Colour,
        angle: float = 0,
        start: float = 0,
        end: float = 360,
    ) -> None:
        radii = (rx * self._size, ry * self._size)
        self.canvas.ellipse(self.at(x, y), radii, self.light.on(colour, 0.2), "object", self._sign * angle, start, end)

    def stroke(self, a: Point, b: Point, width: float, colour: Colour, semantic: str = "object") -> None:
        self.canvas.line(self.at(*a), self.at(*b), width * self._size, self.light.on(colour, 0.2), semantic)


def draw_object_scene(canvas: Canvas, scene: Scene, light: Light) -> None:
    """Paint the whole scene except rain and snow."""
    rng = random.Random(f"object {scene.seed}")
    flying = scene.label in ("bird", "balloon", "butterfly", "kite")
    horizon = rng.uniform(0.68, 0.82) if flying else rng.uniform(0.52, 0.66)
    light.sky(canvas, horizon, random.Random(f"sky {scene.seed}"))
    water = scene.label in WATER_CLASSES
    surface = light.water() if water else light.ground()
    _hills(canvas, light, horizon, random.Random(f"hills {scene.seed}"))
    rows = canvas.rows(light.on(surface, 0.8), light.on(surface, 0.0), horizon, 1.0)
    canvas.polygon([(0, horizon), (1, horizon), (1, 1), (0, 1)], rows, "ground")
    details = random.Random(f"surface {scene.seed}")
    for _ in range(9):
        x, y = details.random(), horizon + (1 - horizon) * details.uniform(0.12, 0.95)
        length = details.uniform(0.03, 0.08)
        canvas.line((x, y), (x + length, y), 0.009, light.on(shade(surface, 1.18 if water else 0.90), 0.3), "ground")
    if not water:
        strew(canvas, light, horizon, random.Random(f"strewn {scene.seed}"))
    size = rng.uniform(0.23, 0.32)
    middle_y = rng.uniform(0.36, 0.50) if flying else horizon + rng.uniform(0.02, 0.07)
    pen = _Pen(canvas, light, (rng.uniform(0.38, 0.62), middle_y), size, rng.random() < 0.5)
    if scene.subject:
        _DRAWINGS[scene.label](pen, light.paint(scene.look.colours[0]), rng)


def _hills(canvas: Canvas, light: Light, horizon: float, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        centre, radii = (rng.uniform(-0.1, 1.1), horizon), (rng.uniform(0.18, 0.42), rng.uniform(0.04, 0.13))
        canvas.ellipse(centre, radii, light.on(light.hill(), 0.7), "vegetation", start=180, end=360)


def _bird(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    tilt = rng.uniform(-0.06, 0.06)
    pen.stroke((-2.6, 0.76 + tilt), (2.6, 0.76 - tilt), 0.13, _WOOD, "vegetation")
    for x in (-0.12, 0.18):
        pen.stroke((x, 0.4), (x, 0.74), 0.06, (206, 140, 60))
    pen.shape([(-0.5, 0.05), (-1.35, 0.22), (-1.28, 0.48), (-0.4, 0.42)], shade(paint, 0.74))
    pen.oval(0, 0.1, 0.74, 0.50, paint, -12)
    pen.oval(0.62, -0.42, 0.36, 0.34, paint)
    pen.oval(-0.12, 0.10, 0.46, 0.27, shade(paint, 0.74), -18)
    pen.shape([(0.92, -0.52), (1.30, -0.38), (0.92, -0.28)], (238, 158, 50))
    pen.oval(0.72, -0.48, 0.075, 0.075, (24, 24, 28))


def _boat(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    mast = rng.uniform(1.25, 1.55)
    pen.stroke((0, 0.2), (0, -mast), 0.09, _WOOD)
    pen.shape([(0.09, -mast + 0.05), (0.09, 0.0), (0.92, 0.0)], (246, 242, 232))
    pen.shape([(-0.09, -mast + 0.25), (-0.09, 0.0), (-0.66, 0.0)], (224, 220, 212))
    pen.shape([(-1.2, 0.14), (1.25, 0.14), (0.82, 0.66), (-0.86, 0.66)], paint)
    pen.shape([(-1.2, 0.14), (1.25, 0.14), (1.17, 0.25), (-1.13, 0.25)], shade(paint, 0.72))


def _house(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    roof = (236, 240, 246) if pen.light.snowy else shade(paint, 0.62)
    side = rng.uniform(0.84, 1.0)
    pen.shape([(-side, -0.1), (side, -0.1), (side, 1.0), (-side, 1.0)], paint)
    pen.shape([(0.42, -0.72), (0.62, -0.72), (0.62, -0.25), (0.42, -0.25)], (146, 92, 80))
    pen.shape([(-side - 0.2, -0.08), (0, -0.98), (side + 0.2, -0.08)], roof)
    pane: Colour = (252, 218, 124) if pen.light.dark else (158, 198, 222)
    for x in (-0.66, 0.30):
        pen.shape([(x, 0.12), (x + 0.36, 0.12), (x + 0.36, 0.48), (x, 0.48)], pane, glows=pen.light.dark)
    pen.shape([(-0.17, 0.42), (0.17, 0.42), (0.17, 1.0), (-0.17, 1.0)], (98, 66, 46))


def _flower(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    petals, turn, ring = rng.choice((5, 6, 7)), rng.random() * math.tau, 0.50
    pen.stroke((0, -0.5), (0.05, 1.25), 0.10, _LEAF)
    pen.oval(-0.30, 0.72, 0.32, 0.13, _LEAF, 32)
    pen.oval(0.36, 0.86, 0.32, 0.13, _LEAF, -32)
    for k in range(petals):
        angle = turn + math.tau * k / petals
        pen.oval(
            ring * math.cos(angle), -0.6 + ring * math.sin(angle), 0.34, 0.34, shade(paint, 0.86 if k % 2 else 1.0)
        )
    middle = (104, 66, 34) if paint[0] > 225 and paint[1] > 180 else (250, 208, 60)
    pen.oval(0, -0.6, 0.28, 0.28, middle)


def _mushroom(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    height = rng.uniform(0.9, 1.15)
    pen.shape([(-0.26, -0.1), (0.26, -0.1), (0.36, height), (-0.36, height)], (236, 224, 202))
    pen.oval(0, 0, 1.05, 0.92, paint, 0, 180, 360)
    pen.oval(0, 0.0, 1.05, 0.16, shade(paint, 0.70))
    dot = (250, 246, 236) if sum(paint) < 680 else (210, 190, 160)
    for x, y, r in ((-0.55, -0.34, 0.14), (0.05, -0.58, 0.17), (0.56, -0.28, 0.13)):
        pen.oval(x, y, r, r * 0.85, dot)


def _balloon(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    pen.shape([(-0.62, 0.12), (0.62, 0.12), (0.20, 0.86), (-0.20, 0.86)], paint)
    pen.oval(0, -0.28, 0.88, 0.92, paint)
    stripe = shade(paint, 0.74)
    pen.oval(0, -0.28, 0.46, 0.92, stripe)
    pen.shape([(-0.44, 0.12), (0.44, 0.12), (0.14, 0.86), (-0.14, 0.86)], stripe)
    pen.oval(0, -0.28, 0.18, 0.92, paint)
    basket = 1.12 + rng.uniform(0, 0.12)
    for x in (-0.18, 0.18):
        pen.stroke((x, 0.84), (x * 0.95, basket), 0.035, _WOOD)
    pen.shape([(-0.22, basket), (0.22, basket), (0.18, basket + 0.30), (-0.18, basket + 0.30)], (158, 112, 66))


def _butterfly(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    spread = rng.uniform(0.92, 1.12)
    for side in (-1, 1):
        pen.oval(side * 0.58 * spread, -0.36, 0.60, 0.48, paint, side * 32)
        pen.oval(side * 0.46 * spread, 0.42, 0.42, 0.36, shade(paint, 0.74), side * -30)
        pen.oval(side * 0.66 * spread, -0.42, 0.20, 0.17, mix(paint, (255, 255, 255), 0.65))
        pen.stroke((0, -0.5), (side * 0.26, -0.95), 0.045, (52, 44, 48))
    pen.oval(0, 0, 0.10, 0.60, (52, 44, 48))


def _umbrella(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    lean = rng.uniform(-0.12, 0.12)
    pen.stroke((lean, -0.9), (0, 0.95), 0.08, (98, 82, 72))
    pen.oval(-0.14, 0.95, 0.16, 0.16, (98, 82, 72), 0, 0, 180)
    pen.oval(lean, -0.02, 1.18, 0.98, paint, 0, 180, 360)
    pen.oval(lean, -0.02, 0.46, 0.98, shade(paint, 0.74), 0, 180, 360)
    pen.shape([(lean - 0.05, -0.96), (lean + 0.05, -0.96), (lean + 0.03, -1.16), (lean - 0.03, -1.16)], (98, 82, 72))


def _lighthouse(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    height = rng.uniform(1.35, 1.6)
    pen.oval(0, 0.42, 1.15, 0.34, (128, 120, 116))
    widths = (0.46, 0.40, 0.34, 0.28, 0.22)
    for k in range(4):
        low, high = 0.3 - (0.3 + height) * k / 4, 0.3 - (0.3 + height) * (k + 1) / 4
        colour = paint if k % 2 == 0 else mix(paint, (250, 248, 244), 0.82) if sum(paint) < 680 else (176, 180, 188)
        pen.shape([(-widths[k], low), (widths[k], low), (widths[k + 1], high), (-widths[k + 1], high)], colour)
    pen.shape([(-0.28, -height), (0.28, -height), (0.28, -height + 0.08), (-0.28, -height + 0.08)], (70, 70, 78))
    pen.shape(
        [(-0.18, -height - 0.3), (0.18, -height - 0.3), (0.18, -height), (-0.18, -height)],
        (255, 236, 150),
        glows=pen.light.dark,
    )
    pen.shape([(-0.26, -height - 0.3), (0, -height - 0.58), (0.26, -height - 0.3)], shade(paint, 0.62))


def _kite(pen: _Pen, paint: Colour, rng: random.Random) -> None:
    slant = rng.uniform(0.05, 0.25)
    top, right, bottom, left = (slant, -1.0), (0.74, -0.18), (-slant, 0.92), (-0.74, -0.10)
    pen.stroke(bottom, (-0.9, 2.4), 0.035, (90, 84, 84))
    pen.shape([top, right, bottom, left], paint)
    pen.shape([top, right, (0, -0.14)], shade(paint, 0.74))
    pen.shape([left, (0, -0.14), bottom], shade(paint, 0.74))
    for k, x in ((1, -0.10), (2, -0.28)):
        y = 0.92 + 0.38 * k
        pen.shape(
            [(x - slant - 0.2, y - 0.12), (x - slant, y), (x - slant - 0.2, y + 0.12)],
            mix(paint, (255, 255, 255), 0.35),
        )
        pen.shape(
            [(x - slant + 0.2, y - 0.12), (x - slant, y), (x - slant + 0.2, y + 0.12)],
            mix(paint, (255, 255, 255), 0.35),
        )


_DRAWINGS: dict[str, Callable[[_Pen, Colour, random.Random], None]] = {
    "bird": _bird,
    "boat": _boat,
    "house": _house,
    "flower": _flower,
    "mushroom": _mushroom,
    "balloon": _balloon,
    "butterfly": _butterfly,
    "umbrella": _umbrella,
    "lighthouse": _lighthouse,
    "kite": _kite,
}
