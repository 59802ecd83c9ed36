"""The description of a drawn scene, from which its picture, caption, mask and label are made.

Knows nothing of pixels or sentences; `demo.render` and `demo.language` read it. A scene has a geometry (random, from
`seed`) and a look (weather, time of day, colours, ground). Drawing the same geometry with another look gives an ideal
counterfactual image.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

WEATHERS = ("sunny", "cloudy", "rainy", "snowy", "foggy", "stormy", "hazy")
TIMES = ("dawn", "day", "sunset", "dusk", "night")
FAIR_WEATHERS, FAIR_TIMES = ("sunny", "cloudy"), ("day",)
"""Weathers and times of day that make a fair day. The models under test learn only from fair days."""
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "white", "pink", "brown", "black", "turquoise")
GROUNDS = ("grassy", "sandy", "rocky", "muddy", "flowery")
TREES = ("leafy", "golden", "russet", "blossoming", "withered")
WALLS = ("brick", "wooden", "stone", "whitewashed", "plastered")
WATERS = ("clear", "murky", "silvery", "inky")
HILLS = ("wooded", "bare", "heathery", "chalky")
OBJECT_CLASSES = (
    "bird",
    "boat",
    "house",
    "flower",
    "mushroom",
    "balloon",
    "butterfly",
    "umbrella",
    "lighthouse",
    "kite",
)
WATER_CLASSES = ("boat", "lighthouse")
BACKGROUNDS = ("trees", "buildings", "trees and buildings")
MAX_VEHICLES = 3
MAX_PEDESTRIANS = 2

SEMANTIC_CLASSES = (
    "sky",
    "ground",
    "road",
    "pavement",
    "lane marking",
    "building",
    "vegetation",
    "vehicle",
    "pedestrian",
    "object",
)
"""Class names. The values of masks are indices into this tuple. "object" is the labelled object of an object scene;
"ground" includes water."""

PROTECTED_ROAD_CLASSES = ("road", "pavement", "lane marking", "vehicle", "pedestrian")


@dataclass(frozen=True)
class Look:
    """The part of a scene's description that can change while everything stays in its place."""

    weather: str
    time: str
    colours: tuple[str, ...]
    """Colour of each vehicle, nearest first, or the one colour of the object."""
    ground: str
    trees: str = TREES[0]
    """Look of the trees in road scenes. It has no effect if the scene has no trees."""
    walls: str = WALLS[0]
    """Material of the buildings of road scenes."""
    water: str = WATERS[0]
    """Look of the water in scenes with a boat or a lighthouse."""
    hills: str = HILLS[0]
    """Look of the hills behind the object of an object scene."""


@dataclass(frozen=True)
class Scene:
    """A drawn scene. `family` is "road" (for segmentation) or "object" (for classification, with a `label`)."""

    family: str
    seed: int
    """Seed of the geometry: positions, sizes and shapes, also of clouds and snowflakes."""
    look: Look
    label: str = ""
    vehicles: int = 0
    pedestrians: int = 0
    background: str = ""
    subject: bool = True
    """False if the object was removed from an object scene."""

    def without_subject(self) -> Scene:
        """Return the same scene without its object, or without vehicles and pedestrians."""
        if self.family == "object":
            return dataclasses.replace(self, subject=False)
        return dataclasses.replace(self.with_look(colours=()), vehicles=0, pedestrians=0)

    def with_look(self, **changes: object) -> Scene:
        """Return the same scene with `changes` in its look, such as `weather="rainy"`."""
        return dataclasses.replace(self, look=dataclasses.replace(self.look, **changes))  # type: ignore[arg-type]


def random_look(rng: random.Random, colours: int) -> Look:
    """Return a random look for a scene with `colours` coloured objects."""
    return Look(
        weather=rng.choice(WEATHERS),
        time=rng.choice(TIMES),
        colours=tuple(rng.choice(COLOURS) for _ in range(colours)),
        ground=rng.choice(GROUNDS),
        trees=rng.choice(TREES),
        walls=rng.choice(WALLS),
        water=rng.choice(WATERS),
        hills=rng.choice(HILLS),
    )


def random_scene(seed: int, family: str | None = None, label: str | None = None) -> Scene:
    """Return the random scene of a seed, which has this family and label if they are given."""
    rng = random.Random(seed)
    family = family or rng.choice(("road", "object"))
    if family == "object":
        label = label or rng.choice(OBJECT_CLASSES)
        return Scene("object", seed, random_look(rng, 1), label=label)
    if family != "road":
        raise ValueError(f"family is road or object, not {family!r}")
    vehicles = rng.choices(range(MAX_VEHICLES + 1), weights=(1, 3, 3, 2))[0]
    pedestrians = rng.choices(range(MAX_PEDESTRIANS + 1), weights=(2, 2, 1))[0]
    return Scene(
        "road",
        seed,
        random_look(rng, vehicles),
        vehicles=vehicles,
        pedestrians=pedestrians,
        background=rng.choice(BACKGROUNDS),
    )


def fair(scene: Scene, rng: random.Random) -> Scene:
    """Return the scene on a fair day: sunny or cloudy, by day."""
    return scene.with_look(weather=rng.choice(FAIR_WEATHERS), time=rng.choice(FAIR_TIMES))


def is_fair(scene: Scene) -> bool:
    """Return True if the scene shows a fair day."""
    return scene.look.weather in FAIR_WEATHERS and scene.look.time in FAIR_TIMES
