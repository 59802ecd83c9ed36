"""The light of a scene: its colours, sky, rain and snow, which depend on weather and time of day."""

from __future__ import annotations

import random

import cv2
import numpy as np

from demo.canvas import Canvas, Colour
from demo.scene import Look

PAINT: dict[str, Colour] = {
    "red": (216, 38, 38),
    "orange": (242, 132, 24),
    "yellow": (246, 214, 44),
    "green": (40, 160, 66),
    "blue": (40, 92, 216),
    "purple": (142, 62, 186),
    "white": (240, 240, 238),
    "pink": (250, 140, 186),
    "brown": (122, 74, 38),
    "black": (34, 34, 40),
    "turquoise": (44, 200, 190),
}
_TIME_TINT = {
    "dawn": (0.90, 0.80, 0.92),
    "day": (1.0, 1.0, 1.0),
    "sunset": (1.0, 0.85, 0.73),
    "dusk": (0.68, 0.60, 0.78),
    "night": (0.50, 0.53, 0.70),
}
_SKY = {
    "dawn": ((140, 172, 228), (252, 206, 214)),
    "day": ((66, 138, 236), (182, 218, 250)),
    "sunset": ((122, 92, 164), (255, 172, 100)),
    "dusk": ((44, 44, 104), (168, 96, 146)),
    "night": ((8, 12, 42), (30, 40, 88)),
}
_OVERCAST = {
    "dawn": (164, 150, 178),
    "day": (186, 193, 202),
    "sunset": (196, 152, 138),
    "dusk": (104, 88, 118),
    "night": (42, 46, 64),
}
_HAZE = {
    "dawn": (218, 200, 214),
    "day": (210, 215, 219),
    "sunset": (224, 188, 168),
    "dusk": (124, 108, 138),
    "night": (66, 70, 90),
}
_DUST: Colour = (232, 190, 116)
"""Colour of hazy air, which contains dust, unlike fog."""
_OVERCAST_SHARE = {
    "sunny": 0.0,
    "cloudy": 0.45,
    "rainy": 0.85,
    "snowy": 0.75,
    "foggy": 1.0,
    "stormy": 1.0,
    "hazy": 0.80,
}
_BRIGHTNESS = {
    "sunny": 1.0,
    "cloudy": 0.90,
    "rainy": 0.82,
    "snowy": 0.95,
    "foggy": 0.94,
    "stormy": 0.66,
    "hazy": 0.96,
}
_GREYNESS = {
    "sunny": 0.0,
    "cloudy": 0.10,
    "rainy": 0.18,
    "snowy": 0.08,
    "foggy": 0.10,
    "stormy": 0.22,
    "hazy": 0.05,
}
_GROUND: dict[str, Colour] = {
    "grassy": (104, 164, 74),
    "sandy": (222, 188, 124),
    "rocky": (148, 148, 152),
    "muddy": (112, 80, 52),
    "flowery": (120, 172, 84),
}
_STREWN: dict[str, tuple[Colour, ...]] = {
    "rocky": ((106, 106, 112), (184, 184, 186)),
    "flowery": ((250, 238, 120), (250, 250, 250), (236, 120, 160)),
}
"""Colours of the stones or flowers that lie on some kinds of ground."""
_WATER: dict[str, Colour] = {
    "clear": (62, 132, 192),
    "murky": (112, 114, 72),
    "silvery": (172, 188, 202),
    "inky": (26, 38, 84),
}
_LEAVES: dict[str, Colour] = {
    "leafy": (64, 140, 52),
    "golden": (226, 180, 52),
    "russet": (182, 78, 38),
    "blossoming": (244, 178, 206),
    "withered": (140, 118, 92),
}
_WALL: dict[str, Colour] = {
    "brick": (176, 84, 62),
    "wooden": (146, 104, 62),
    "stone": (142, 148, 160),
    "whitewashed": (240, 238, 230),
    "plastered": (234, 206, 136),
}
_HILL: dict[str, Colour] = {
    "wooded": (92, 140, 100),
    "bare": (168, 146, 118),
    "heathery": (160, 112, 160),
    "chalky": (222, 220, 206),
}
_SNOW: Colour = (240, 244, 250)
WET = ("rainy", "stormy")
"""Weathers in which rain falls."""


def mix(a: Colour, b: Colour, share: float) -> Colour:
    """Return a mix of two colours: `share` (0 to 1) of `b`, and the rest of `a`."""
    return (a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share, a[2] + (b[2] - a[2]) * share)


def shade(colour: Colour, factor: float) -> Colour:
    """Return a darker (factor below 1) or lighter (above 1) colour."""
    return (min(255.0, colour[0] * factor), min(255.0, colour[1] * factor), min(255.0, colour[2] * factor))


class Light:
    """Computes how a colour looks in a scene's weather and time of day, and from a distance."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.dark = look.time in ("dusk", "night")
        """True at dusk and at night, when lamps are lit."""
        self.snowy = look.weather == "snowy"
        self.wet = look.weather in WET
        self._haze: Colour = _HAZE[look.time]
        if look.weather == "hazy":
            tint = _TIME_TINT[look.time]
            self._haze = mix(self._haze, (_DUST[0] * tint[0], _DUST[1] * tint[1], _DUST[2] * tint[2]), 0.7)

    def on(self, colour: Colour, distance: float = 0.0, glows: bool = False) -> Colour:
        """Return the lit colour. `distance` is 0 (near) to 1 (horizon). Glowing things stay bright at night."""
        if not glows:
            tint, grey = _TIME_TINT[self.look.time], sum(colour) / 3
            colour = mix(colour, (grey, grey, grey), _GREYNESS[self.look.weather])
            bright = _BRIGHTNESS[self.look.weather]
            colour = (colour[0] * tint[0] * bright, colour[1] * tint[1] * bright, colour[2] * tint[2] * bright)
        if self.look.weather == "foggy":
            colour = mix(colour, self._haze, 0.34 + 0.40 * distance)
        elif self.look.weather == "hazy":
            colour = mix(colour, self._haze, 0.20 + 0.40 * distance)
        elif self.wet or self.snowy:
            colour = mix(colour, self._haze, 0.04 + 0.16 * distance)
        return colour

    def ground(self) -> Colour:
        """Return the unlit colour of the ground, which may be dry, wet or under snow."""
        if self.snowy:
            return _SNOW
        return shade(_GROUND[self.look.ground], 0.82 if self.wet else 1.0)

    def strewn(self) -> tuple[Colour, ...]:
        """Return the unlit colours of stones or flowers on the ground; empty if there are none, or under snow."""
        return () if self.snowy else _STREWN.get(self.look.ground, ())

    def water(self) -> Colour:
        """Return the unlit colour of water, which is greyer in wet or snowy weather."""
        grey = (120, 134, 146)
        return mix(_WATER[self.look.water], grey, 0.25) if self.wet or self.snowy else _WATER[self.look.water]

    def leaves(self) -> Colour:
        """Return the unlit colour of leaves, without snow."""
        return _LEAVES[self.look.trees]

    def wall(self) -> Colour:
        """Return the unlit colour of the buildings' walls."""
        return _WALL[self.look.walls]

    def hill(self) -> Colour:
        """Return the unlit colour of the hills, which is whiter in snowy weather."""
        return mix(_HILL[self.look.hills], _SNOW, 0.55) if self.snowy else _HILL[self.look.hills]

    def paint(self, name: str) -> Colour:
        """Return the unlit colour of a paint, such as "red"."""
        return PAINT[name]

    def sky(self, canvas: Canvas, horizon: float, rng: random.Random) -> None:
        """Paint the sky with sun, moon, stars and clouds. Any weather takes the same number of values from `rng`."""
        top, bottom = _SKY[self.look.time]
        grey: Colour = _OVERCAST[self.look.time]
        share = _OVERCAST_SHARE[self.look.weather]
        if self.look.weather == "foggy":
            grey = self._haze
        elif self.look.weather == "hazy":
            grey = mix(self._haze, _SKY[self.look.time][1], 0.2)
        elif self.wet:
            grey = shade(grey, 0.80 if self.look.weather == "rainy" else 0.52)
        canvas.fill(canvas.rows(mix(top, grey, share), mix(bottom, grey, share * 0.92), 0.0, horizon), "sky")
        light_x = rng.uniform(0.12, 0.88)
        stars = [(rng.random(), rng.random() * horizon * 0.95, rng.uniform(0.0012, 0.004)) for _ in range(26)]
        clouds = [(rng.uniform(-0.1, 1.1), rng.uniform(0.03, 0.62) * horizon, rng.uniform(0.5, 1.1)) for _ in range(5)]
        puffs = [
            [(rng.uniform(-0.1, 0.1), rng.uniform(-0.02, 0.02), rng.uniform(0.05, 0.09)) for _ in range(5)]
            for _ in clouds
        ]
        bolt = [(rng.uniform(-0.05, 0.05), (k + 1) / 6) for k in range(6)]
        if self.look.weather == "sunny":
            self._sun_or_moon(canvas, light_x, horizon, stars)
        if self.look.weather == "stormy":
            x, y = light_x, 0.0
            for dx, share in bolt:
                canvas.line((x, y), (x + dx, share * horizon * 0.8), 0.012, (250, 246, 210))
                x, y = x + dx, share * horizon * 0.8
        if self.look.weather == "cloudy":
            body = self.on((250, 250, 252))
            for (x, y, size), cloud in zip(clouds, puffs, strict=True):
                for dx, dy, radius in cloud:
                    centre = (x + dx * size * 1.6, y + dy * size + 0.012)
                    canvas.ellipse(centre, (radius * size, radius * size * 0.5), shade(body, 0.86))
                for dx, dy, radius in cloud:
                    canvas.ellipse((x + dx * size * 1.6, y + dy * size), (radius * size, radius * size * 0.5), body)

    def _sun_or_moon(self, canvas: Canvas, x: float, horizon: float, stars: list[tuple[float, float, float]]) -> None:
        if self.dark:
            for star_x, star_y, radius in stars[:: 1 if self.look.time == "night" else 3]:
                canvas.ellipse((star_x, star_y), (radius, radius), (220, 224, 240))
        if self.look.time == "night":
            canvas.ellipse((x, 0.16 * horizon / 0.45), (0.05, 0.05), (236, 236, 214))
        elif self.look.time == "sunset":
            canvas.ellipse((x, horizon - 0.05), (0.115, 0.115), (255, 196, 110))
            canvas.ellipse((x, horizon - 0.05), (0.08, 0.08), (255, 226, 140))
        elif self.look.time == "dawn":
            canvas.ellipse((x, horizon - 0.02), (0.10, 0.10), (255, 226, 222))
            canvas.ellipse((x, horizon - 0.02), (0.07, 0.07), (255, 246, 238))
        elif self.look.time == "day":
            canvas.ellipse((x, 0.14), (0.088, 0.088), (252, 238, 170))
            canvas.ellipse((x, 0.14), (0.062, 0.062), (255, 246, 196))

    def air(self, canvas: Canvas, rng: random.Random) -> None:
        """Paint rain or snow in front of everything."""
        if self.wet:
            layer, storm = np.zeros((canvas.side, canvas.side), np.uint8), self.look.weather == "stormy"
            for _ in range(110 if storm else 75):
                x, y, length = rng.uniform(0, 1.05), rng.uniform(-0.05, 1), rng.uniform(0.04, 0.085)
                start = (round(x * canvas.side), round(y * canvas.side))
                slant = 0.75 if storm else 0.22
                stop = (round((x - length * slant) * canvas.side), round((y + length) * canvas.side))
                cv2.line(layer, start, stop, 255, max(1, round(canvas.side * 0.0055)), cv2.LINE_AA)
            canvas.blend(layer, shade(self._haze, 1.25 if self.dark else 1.06), 0.62)
        elif self.look.weather == "snowy":
            flake = (255, 255, 255) if not self.dark else (214, 220, 236)
            for _ in range(85):
                radius = rng.uniform(0.004, 0.0105)
                canvas.ellipse((rng.random(), rng.random()), (radius, radius), flake)


def strew(canvas: Canvas, light: Light, horizon: float, rng: random.Random) -> None:
    """Paint stones or flowers, if any, below the horizon. Each call takes the same number of values from `rng`."""
    colours = light.strewn()
    for number in range(60):
        x, nearness = rng.random(), rng.uniform(0.05, 1.0)
        radius = rng.uniform(0.006, 0.013) * (0.4 + nearness)
        if colours:
            place = (x, horizon + (1 - horizon) * nearness)
            lit = light.on(colours[number % len(colours)], 1 - nearness)
            canvas.ellipse(place, (radius, radius * 0.7), lit)
