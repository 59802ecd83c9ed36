"""Writes the samples of the demo profile: `python -m demo.make_samples`.

A sample is NAME.png, NAME.json (task, seed, true caption, mask classes) and NAME.mask.png (class numbers as grey
values). skies.png holds the colours of every sky of the drawn world.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from demo.language import caption
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, TIMES, WEATHERS, Look, Scene, random_scene
from pipeline.profiles.profile import SKIES, sky_of

FOLDER = Path(__file__).resolve().parent / "samples"
FIRST_SKY = 5_300_000


def _road(
    seed: int, background: str, pedestrians: int, weather: str, time: str, colours: tuple[str, ...], **look: str
) -> Scene:
    scene_look = Look(weather, time, colours, "grassy", **look)
    return Scene("road", seed, scene_look, vehicles=len(colours), pedestrians=pedestrians, background=background)


def _object(label: str, seed: int, colour: str, weather: str, time: str, ground: str = "grassy", **look: str) -> Scene:
    return Scene("object", seed, Look(weather, time, (colour,), ground, **look), label=label)


SAMPLES: dict[str, Scene] = {
    "street-two-cars": _road(367, "trees", 1, "sunny", "day", ("blue", "red")),
    "bird-on-a-twig": _object("bird", 12, "yellow", "sunny", "day"),
    "town-at-night": _road(107, "buildings", 0, "sunny", "night", ("yellow", "white", "red"), walls="whitewashed"),
    "sailing-boat": _object("boat", 41, "blue", "cloudy", "day", water="silvery"),
    "snowy-avenue": _road(212, "trees and buildings", 1, "snowy", "day", ("green",), trees="golden", walls="stone"),
    "red-mushroom": _object("mushroom", 33, "red", "sunny", "day"),
    "lighthouse": _object("lighthouse", 58, "red", "sunny", "sunset", hills="heathery"),
    "rainy-street": _road(55, "buildings", 2, "rainy", "day", ("orange", "purple"), walls="plastered"),
    "balloon": _object("balloon", 71, "orange", "cloudy", "dawn"),
    "butterfly": _object("butterfly", 90, "purple", "sunny", "day", "sandy", hills="bare"),
}
"""The sample scenes, by name. No training sees them, since their seeds are below `demo.train.common.TRAIN_SEEDS`."""


def task(scene: Scene) -> dict[str, object]:
    """Return the task of a scene, in the fields of `core.types.Task`."""
    if scene.family == "object":
        return {"kind": "classification", "label": scene.label}
    return {"kind": "segmentation", "protected": list(PROTECTED_ROAD_CLASSES)}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, scene in SAMPLES.items():
        picture, mask = render(scene)
        Image.fromarray(picture).save(FOLDER / f"{name}.png", optimize=True)
        Image.fromarray(mask).save(FOLDER / f"{name}.mask.png", optimize=True)
        about = {"task": task(scene), "caption": caption(scene), "seed": scene.seed, "mask_classes": SEMANTIC_CLASSES}
        (FOLDER / f"{name}.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    skies().save(FOLDER / SKIES, optimize=True)


def skies() -> Image.Image:
    """Return a picture with a column for each weather and time of day: the colours of the sky, from its top down."""
    low = random_scene(FIRST_SKY, "object", "mushroom")  # too low to cover the sky
    looks = (low.with_look(weather=weather, time=time) for weather in WEATHERS for time in TIMES)
    columns = [np.median(sky_of(Image.fromarray(render(look)[0])), axis=1) for look in looks]
    return Image.fromarray(np.stack(columns, axis=1).round().astype(np.uint8))


if __name__ == "__main__":
    main()
