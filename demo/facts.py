"""Finds the facts that a caption states, so that captions can be scored against a scene. Works on text alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from demo.language import CARS_TOLD, NUMBER_WORDS, OTHER_NAMES, TIME_PHRASES, canonical
from demo.scene import COLOURS, OBJECT_CLASSES, WEATHERS, Scene

WALKERS = ("pavement is empty|nobody is on the pavement", "pedestrian", "pedestrians")
"""Patterns that find captions with no pedestrian, one, and two."""


@dataclass(frozen=True)
class Facts:
    """The facts that a text states, in standard words (see `canonical`). Missing or ambiguous facts are "" or None."""

    label: str
    """The object class that the text names, or "road"."""
    colours: tuple[str, ...]
    """Colours of the vehicles, nearest first, or of the object."""
    weather: str
    time: str
    vehicles: int | None
    pedestrians: int | None


def facts_of(text: str) -> Facts:
    """Return the facts that a text states. Only words of the demo's captions are recognised."""
    label = _only(text, (*OBJECT_CLASSES, "road"))
    lowered = text.lower()
    if label == "road":
        colours = _colours_of_cars(lowered)
    else:
        colours = tuple(re.findall(rf"\b({'|'.join(_names(COLOURS))}) {label}\b", lowered)) if label else ()
    number = re.search(rf"\b({'|'.join(NUMBER_WORDS)}) cars?\b", lowered)
    walkers = {count for count, words in enumerate(WALKERS) if re.search(rf"\b({words})\b", lowered)}
    return Facts(
        label=label,
        colours=tuple(canonical(colour) for colour in colours),
        weather=_only(lowered, WEATHERS),
        time=_only(lowered, tuple(TIME_PHRASES.values())),
        vehicles=NUMBER_WORDS.index(number.group(1)) if number else None,
        pedestrians=walkers.pop() if len(walkers) == 1 else None,
    )


def names_in(text: str, word: str) -> list[str]:
    """Return the synonyms of `word` that `text` contains, including `word`, such as "scarlet" for "red"."""
    return [name for name in _names((word,)) if re.search(rf"\b{re.escape(name)}\b", text)]


def facts_of_scene(scene: Scene) -> Facts:
    """Return the facts that a correct caption of the scene states."""
    road = scene.family == "road"
    return Facts(
        label=scene.label or "road",
        colours=scene.look.colours,
        weather=scene.look.weather,
        time=TIME_PHRASES[scene.look.time],
        vehicles=scene.vehicles if road else None,
        pedestrians=scene.pedestrians if road else None,
    )


def _colours_of_cars(caption: str) -> tuple[str, ...]:
    """Return the colours of the cars, nearest car first. Uses the form of sentence that matches the most cars."""
    readings: list[tuple[str, ...]] = [()]
    for form in CARS_TOLD:
        for places in form.values():
            stated = [re.search(rf"\b{before}(\w+)", caption) for before in places]
            if all(stated):
                readings.append(tuple(match.group(1) for match in stated if match))
    return max(readings, key=len)


def _names(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for word in words for name in (word, *OTHER_NAMES.get(word, ())))


def _only(text: str, words: tuple[str, ...]) -> str:
    names = {canonical(name) for name in _names(words) if re.search(rf"\b{re.escape(name)}\b", text)}
    # Only whole words count, so "lighthouse" does not match "house". A text with several of the words states no fact.
    return names.pop() if len(names) == 1 else ""
