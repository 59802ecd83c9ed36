"""Draws a road scene: road, pavements, lane marking, trees, buildings, vehicles, pedestrians."""

from __future__ import annotations

import random
from dataclasses import dataclass

from demo.canvas import Canvas, Colour, Point
from demo.light import Light, mix, shade, strew
from demo.scene import Scene

_ASPHALT: Colour = (104, 104, 112)
_PAVING: Colour = (184, 178, 170)
_MARKING: Colour = (238, 238, 232)
_SKIN: tuple[Colour, ...] = ((246, 210, 178), (208, 158, 118), (140, 96, 66))
_CLOTHES: tuple[Colour, ...] = (
    (204, 52, 60),
    (44, 86, 176),
    (238, 190, 60),
    (86, 140, 84),
    (150, 80, 150),
    (70, 74, 84),
)


@dataclass(frozen=True)
class _Perspective:
    """The perspective of a straight road. `nearness` is 0 at the horizon and 1 at the picture's lower edge."""

    horizon: float
    vanishing_x: float
    bottom_x: float
    half_width: float
    pavement: float

    def y(self, nearness: float) -> float:
        return self.horizon + (1 - self.horizon) * nearness

    def x(self, across: float, nearness: float) -> float:
        """Return the x coordinate of a point. `across` is -1 at the left edge of the road and 1 at the right edge."""
        return self.vanishing_x + (self.bottom_x - self.vanishing_x + across * self.half_width) * nearness


def draw_road_scene(canvas: Canvas, scene: Scene, light: Light) -> None:
    """Paint the whole scene except rain and snow."""
    rng = random.Random(f"road {scene.seed}")
    view = _Perspective(
        horizon=rng.uniform(0.36, 0.48),
        vanishing_x=rng.uniform(0.36, 0.64),
        bottom_x=rng.uniform(0.42, 0.58),
        half_width=rng.uniform(0.40, 0.52),
        pavement=rng.uniform(1.30, 1.46),
    )
    light.sky(canvas, view.horizon, random.Random(f"sky {scene.seed}"))
    ground = light.ground()
    _surface(canvas, light, view, [(0, view.horizon), (1, view.horizon), (1, 1), (0, 1)], ground, "ground")
    strew(canvas, light, view.horizon, random.Random(f"strewn {scene.seed}"))
    _skyline(canvas, scene, light, view, random.Random(f"skyline {scene.seed}"))
    paving = mix(_PAVING, ground, 0.45) if light.snowy else _PAVING
    wet = 0.80 if light.wet else 1.0
    _strip(canvas, light, view, -view.pavement, view.pavement, shade(paving, wet), "pavement")
    _strip(canvas, light, view, -1, 1, shade(_ASPHALT, wet), "road")
    _markings(canvas, light, view, rng)
    _roadside(canvas, scene, light, view, random.Random(f"roadside {scene.seed}"))
    _traffic(canvas, scene, light, view, random.Random(f"traffic {scene.seed}"))


def _surface(
    canvas: Canvas, light: Light, view: _Perspective, points: list[Point], colour: Colour, semantic: str
) -> None:
    rows = canvas.rows(light.on(colour, 1.0), light.on(colour, 0.0), view.horizon, 1.0)
    canvas.polygon(points, rows, semantic)


def _strip(
    canvas: Canvas, light: Light, view: _Perspective, left: float, right: float, colour: Colour, semantic: str
) -> None:
    tip = (view.vanishing_x, view.horizon)
    points = [tip, tip, (view.x(right, 1.05), view.y(1.05)), (view.x(left, 1.05), view.y(1.05))]
    _surface(canvas, light, view, points, colour, semantic)


def _markings(canvas: Canvas, light: Light, view: _Perspective, rng: random.Random) -> None:
    nearness, gap = rng.uniform(0.10, 0.14), rng.uniform(1.30, 1.40)
    while nearness < 1:
        end = nearness * gap
        a, b = nearness, min(end, 1.05)
        width = 0.035
        points = [
            (view.x(-width, a), view.y(a)),
            (view.x(width, a), view.y(a)),
            (view.x(width, b), view.y(b)),
            (view.x(-width, b), view.y(b)),
        ]
        canvas.polygon(points, light.on(_MARKING, 1 - a), "lane marking")
        nearness = end * gap


def _skyline(canvas: Canvas, scene: Scene, light: Light, view: _Perspective, rng: random.Random) -> None:
    """Paint distant low hills or roofs at the horizon."""
    x = -0.05
    while x < 1.05:
        width, height = rng.uniform(0.10, 0.22), rng.uniform(0.015, 0.05)
        if scene.background == "buildings":
            height *= 1.5
            canvas.rectangle(
                x, view.horizon - height, width * 0.55, height, light.on((142, 142, 156), 0.95), "building"
            )
        else:
            centre = (x + width / 2, view.horizon)
            leaf = (206, 216, 214) if light.snowy else (92, 138, 96)
            canvas.ellipse(centre, (width * 0.7, height), light.on(leaf, 0.95), "vegetation", start=180, end=360)
        x += width


def _roadside(canvas: Canvas, scene: Scene, light: Light, view: _Perspective, rng: random.Random) -> None:
    """Paint trees and buildings on both sides of the road, beginning with the farthest."""
    places: list[tuple[float, int, str, float, float, int]] = []
    for side in (-1, 1):
        nearness = rng.uniform(0.14, 0.20)
        while nearness < 0.95:
            kind = scene.background
            if kind == "trees and buildings":
                kind = ("trees", "buildings")[len(places) % 2]
            places.append((nearness, side, kind, rng.random(), rng.random(), rng.randrange(1000)))
            nearness *= rng.uniform(1.5, 2.1)
    for nearness, side, kind, a, b, number in sorted(places):
        foot = (view.x(side * (view.pavement + 0.16 + 0.3 * a), nearness), view.y(nearness))
        if kind == "trees":
            _tree(canvas, light, foot, nearness * (0.85 + 0.4 * b), 1 - nearness, number)
        else:
            _building(canvas, light, foot, side, nearness * (0.8 + 0.4 * b), 1 - nearness, number)


def _tree(canvas: Canvas, light: Light, foot: Point, size: float, distance: float, number: int) -> None:
    x, y = foot
    trunk, crown = 0.26 * size, 0.30 * size
    leaves = shade(light.leaves(), 0.88 + number % 7 * 0.04)
    if light.snowy:
        leaves = mix(leaves, (238, 242, 246), 0.40)
    canvas.rectangle(
        x - 0.03 * size, y - trunk * 1.3, 0.06 * size, trunk * 1.3, light.on((108, 78, 52), distance), "vegetation"
    )
    dark, pale = light.on(shade(leaves, 0.84), distance), light.on(leaves, distance)
    if number % 3 == 0:
        for step, width in ((0.0, 0.30), (0.26, 0.24), (0.50, 0.17)):
            base = y - trunk - step * size
            canvas.polygon(
                [(x - width * size, base), (x + width * size, base), (x, base - 0.42 * size)],
                dark if step == 0 else pale,
                "vegetation",
            )
    else:
        tall = 1.25 if number % 3 == 1 else 0.95
        centre = (x, y - trunk - crown * tall * 0.8)
        canvas.ellipse(centre, (crown, crown * tall), dark, "vegetation")
        canvas.ellipse(
            (centre[0] - crown * 0.16, centre[1] - crown * 0.16),
            (crown * 0.74, crown * tall * 0.74),
            pale,
            "vegetation",
        )


def _building(canvas: Canvas, light: Light, foot: Point, side: int, size: float, distance: float, number: int) -> None:
    width, height = 0.62 * size, (0.70 + 0.5 * ((number * 7) % 10) / 10) * size
    x = foot[0] if side > 0 else foot[0] - width
    wall = shade(light.wall(), 0.86 + number % 6 * 0.04)
    top = foot[1] - height
    canvas.rectangle(x, top, width, height, light.on(wall, distance), "building")
    cap = (236, 240, 246) if light.snowy else shade(wall, 0.72)
    canvas.rectangle(
        x - 0.02 * size, top - 0.05 * size, width + 0.04 * size, 0.06 * size, light.on(cap, distance), "building"
    )
    columns, rows = 3, 3 + number % 2
    for column in range(columns):
        for row in range(rows):
            lit = light.dark and (number + 3 * column + 5 * row) % 3 != 0
            pane = light.on((252, 216, 120), distance * 0.5, glows=True) if lit else light.on((112, 148, 178), distance)
            left = x + width * (0.12 + 0.29 * column)
            upper = top + height * (0.10 + 0.84 * row / rows)
            canvas.rectangle(left, upper, width * 0.18, height * 0.52 / rows, pane)


def _traffic(canvas: Canvas, scene: Scene, light: Light, view: _Perspective, rng: random.Random) -> None:
    """Paint vehicles and pedestrians, beginning with the farthest. Vehicles alternate lanes, so none hides another."""
    spans = {1: ((0.42, 0.86),), 2: ((0.66, 0.88), (0.32, 0.44)), 3: ((0.76, 0.90), (0.46, 0.54), (0.27, 0.33))}
    lane = rng.choice((-1, 1))
    things: list[tuple[float, str, int, float]] = []
    for index in range(scene.vehicles):
        things.append((rng.uniform(*spans[scene.vehicles][index]), "vehicle", index, lane * rng.uniform(0.42, 0.56)))
        lane = -lane
    sides = [-1, 1]
    rng.shuffle(sides)
    for index in range(scene.pedestrians):
        across = sides[index] * ((1 + view.pavement) / 2 + 0.02)
        things.append((rng.uniform(0.40, 0.78), "pedestrian", rng.randrange(1000), across))
    for nearness, kind, number, across in sorted(things):
        foot = (view.x(across, nearness), view.y(nearness))
        if kind == "vehicle":
            _vehicle(
                canvas,
                light,
                foot,
                nearness * view.half_width / 0.46,
                1 - nearness,
                scene.look.colours[number],
                across < 0,
            )
        else:
            _pedestrian(canvas, light, foot, nearness, 1 - nearness, number)


def _vehicle(
    canvas: Canvas, light: Light, foot: Point, size: float, distance: float, colour: str, towards: bool
) -> None:
    x, y = foot
    half, height = 0.185 * size, 0.135 * size
    paint = light.paint(colour)
    body, dark = light.on(paint, distance), light.on(shade(paint, 0.72), distance)
    canvas.ellipse((x, y), (half * 1.12, 0.022 * size), light.on((52, 52, 58), distance), "vehicle")
    for side in (-1, 1):
        canvas.rectangle(
            x + side * half * 0.78 - 0.026 * size,
            y - 0.05 * size,
            0.052 * size,
            0.06 * size,
            light.on((30, 30, 34), distance),
            "vehicle",
        )
    shoulder, roof = y - 0.03 * size - height, y - 0.03 * size - height - 0.105 * size
    canvas.polygon(
        [(x - half * 0.86, shoulder), (x - half * 0.62, roof), (x + half * 0.62, roof), (x + half * 0.86, shoulder)],
        body,
        "vehicle",
    )
    glass = light.on((150, 190, 214) if not light.dark else (96, 110, 140), distance)
    canvas.polygon(
        [
            (x - half * 0.70, shoulder),
            (x - half * 0.52, roof + 0.02 * size),
            (x + half * 0.52, roof + 0.02 * size),
            (x + half * 0.70, shoulder),
        ],
        glass,
        "vehicle",
    )
    canvas.polygon(
        [
            (x - half, shoulder + 0.03 * size),
            (x - half * 0.9, shoulder),
            (x + half * 0.9, shoulder),
            (x + half, shoulder + 0.03 * size),
            (x + half, y - 0.025 * size),
            (x - half, y - 0.025 * size),
        ],
        body,
        "vehicle",
    )
    canvas.rectangle(x - half, y - 0.062 * size, 2 * half, 0.04 * size, dark, "vehicle")
    lamp = (255, 246, 200) if towards else (232, 44, 40)
    for side in (-1, 1):
        centre = (x + side * half * 0.74, shoulder + 0.048 * size)
        canvas.ellipse(
            centre, (0.030 * size, 0.020 * size), light.on(lamp, distance * 0.4, glows=light.dark), "vehicle"
        )


def _pedestrian(canvas: Canvas, light: Light, foot: Point, size: float, distance: float, number: int) -> None:
    x, y = foot
    height = 0.36 * size
    coat = light.on(_CLOTHES[number % len(_CLOTHES)], distance)
    trousers = light.on((58, 62, 84), distance)
    for side in (-1, 1):
        canvas.line((x, y - 0.46 * height), (x + side * 0.10 * height, y), 0.11 * height, trousers, "pedestrian")
    canvas.polygon(
        [
            (x - 0.15 * height, y - 0.80 * height),
            (x + 0.15 * height, y - 0.80 * height),
            (x + 0.13 * height, y - 0.40 * height),
            (x - 0.13 * height, y - 0.40 * height),
        ],
        coat,
        "pedestrian",
    )
    for side in (-1, 1):
        canvas.line(
            (x + side * 0.15 * height, y - 0.78 * height),
            (x + side * 0.22 * height, y - 0.46 * height),
            0.07 * height,
            coat,
            "pedestrian",
        )
    canvas.ellipse(
        (x, y - 0.90 * height), (0.10 * height, 0.11 * height), light.on(_SKIN[number % 3], distance), "pedestrian"
    )
