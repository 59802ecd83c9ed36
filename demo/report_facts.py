"""Reads the facts out of a caption of the drawn world, so that captions can be scored against a scene. Pure text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from demo.language import CAR_PLACES, NUMBER_WORDS, TIME_PHRASES
from demo.scene import COLOURS, OBJECT_CLASSES, WEATHERS, Scene

WALKERS = ("pavement is empty", "pedestrian", "pedestrians")
"""What tells none, one and two of them."""


@dataclass(frozen=True)
class Facts:
    """What a text says; "" or None where it says nothing (or more than one thing)."""

    label: str
    """An object class, or "road"."""
    colours: tuple[str, ...]
    """Of the vehicles, nearest first; or of the object."""
    weather: str
    time: str
    vehicles: int | None
    pedestrians: int | None


def facts_of(text: str) -> Facts:
    """The facts that a text states in the world's own words."""
    label = _only(text, (*OBJECT_CLASSES, "road"))
    told = text.lower()
    places = next((CAR_PLACES[n] for n in (3, 2) if all(f"{place}car" in told for place in CAR_PLACES[n])), ("",))
    if label == "road":
        stated = [re.search(rf"\b{place}car is (\w+)", text, re.IGNORECASE) for place in places]
        colours = tuple(found.group(1) for found in stated if found)
    else:
        colours = tuple(re.findall(rf"\b({'|'.join(COLOURS)}) {label}\b", text)) if label else ()
    number = re.search(rf"\b({'|'.join(NUMBER_WORDS)}) cars?\b", text, re.IGNORECASE)
    walkers = {count for count, words in enumerate(WALKERS) if re.search(rf"\b{words}\b", told)}
    return Facts(
        label=label,
        colours=colours,
        weather=_only(text, WEATHERS),
        time=_only(text, tuple(TIME_PHRASES.values())),
        vehicles=NUMBER_WORDS.index(number.group(1).lower()) if number else None,
        pedestrians=walkers.pop() if len(walkers) == 1 else None,
    )


def facts_of_scene(scene: Scene) -> Facts:
    """The facts that a right caption states."""
    road = scene.family == "road"
    return Facts(
        label=scene.label or "road",
        colours=scene.look.colours,
        weather=scene.look.weather,
        time=TIME_PHRASES[scene.look.time],
        vehicles=scene.vehicles if road else None,
        pedestrians=scene.pedestrians if road else None,
    )


def _only(text: str, words: tuple[str, ...]) -> str:
    found = {word for word in words if re.search(rf"\b{re.escape(word)}\b", text)}
    # "lighthouse" holds no "house" as a word, but a road may line trees: more than one find is no statement.
    return found.pop() if len(found) == 1 else ""
