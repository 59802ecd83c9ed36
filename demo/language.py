"""The text of a scene: its caption, and the words of the caption that may change.

A caption can have one of `FORMS` forms, and most words have synonyms ("misty" for "foggy"). Captions are scored in one
canonical wording. The function `canonical` returns the canonical word for a synonym. The sentences on the ground and
the water depend on the weather too. So a change of weather has consequences that a plain swap of words would miss.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from demo.scene import COLOURS, GROUNDS, HILLS, TIMES, TREES, WALLS, WATER_CLASSES, WATERS, WEATHERS, Scene

TIME_PHRASES = {
    "dawn": "at dawn",
    "day": "by day",
    "sunset": "at sunset",
    "dusk": "at dusk",
    "night": "at night",
}
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "red": ("scarlet", "crimson"),
    "orange": ("amber",),
    "yellow": ("lemon",),
    "green": ("emerald",),
    "blue": ("azure",),
    "purple": ("violet",),
    "white": ("ivory",),
    "pink": ("rosy",),
    "brown": ("chestnut",),
    "black": ("ebony",),
    "turquoise": ("teal",),
    "sunny": ("fine", "bright"),
    "cloudy": ("overcast",),
    "rainy": ("drizzly",),
    "snowy": ("wintry",),
    "foggy": ("misty",),
    "stormy": ("thundery",),
    "hazy": ("dusty",),
    "at dawn": ("at daybreak", "at sunrise"),
    "by day": ("in daylight", "at noon"),
    "at sunset": ("at sundown",),
    "at dusk": ("at twilight",),
    "at night": ("after dark", "at midnight"),
    "grassy": ("verdant",),
    "rocky": ("stony",),
    "muddy": ("boggy",),
    "russet": ("reddish",),
    "withered": ("dry",),
    "wooden": ("timber",),
    "wooded": ("forested",),
    "bare": ("barren",),
}
"""Synonyms of the standard words that describe a scene."""
_CANONICAL = {name: word for word, names in OTHER_NAMES.items() for name in names}
FORMS = 3
NUMBER_WORDS = ("no", "one", "two", "three")
POSTURES = {
    "bird": "sits on a twig",
    "boat": "floats on the water",
    "house": "stands alone",
    "flower": "grows tall",
    "mushroom": "grows in the open",
    "balloon": "drifts in the sky",
    "butterfly": "flies low",
    "umbrella": "stands open",
    "lighthouse": "stands by the water",
    "kite": "flies high",
}
CAR_PLACES = {1: ("",), 2: ("near ", "far "), 3: ("near ", "middle ", "far ")}
CARS_TOLD: tuple[dict[int, tuple[str, ...]], ...] = (
    {count: tuple(f"the {place}car is " for place in places) for count, places in CAR_PLACES.items()},
    {
        1: ("the car is ",),
        2: ("the car in front is ", "the one behind it "),
        3: ("the car in front is ", "the one behind it ", "the last one "),
    },
    {
        1: ("the car is ",),
        2: ("the first car is ", "the second car is "),
        3: ("the first car is ", "the second car is ", "the third car is "),
    },
)
"""Words before the colour of each car. The index is the form of the caption, the key is the number of cars."""
PEDESTRIAN_SENTENCES = (
    ("The pavement is empty.", "A pedestrian walks on the pavement.", "Two pedestrians walk on the pavement."),
    ("The pavement is empty.", "A pedestrian walks on the pavement.", "Two pedestrians walk on the pavement."),
    ("Nobody is on the pavement.", "One pedestrian is on the pavement.", "Two pedestrians are on the pavement."),
)
"""Sentences on pedestrians. The first index is the form of the caption, the second the number of pedestrians."""


@dataclass(frozen=True)
class Wording:
    """The wording of a caption: the number of its form (sentence patterns), and synonyms that replace words."""

    form: int = 0
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def name(self, word: str) -> str:
        """Return this wording's synonym of a word, such as "scarlet" for "red". Without a synonym, return the word."""
        return self.names.get(word, word)


CANONICAL = Wording()


@dataclass(frozen=True)
class WorldKeyword:
    """A word or phrase of the caption that may change, its edit type, and its alternatives."""

    text: str
    edit_type: str
    alternatives: tuple[str, ...]
    slot: str
    """The part of the scene that the word describes: "weather", "time", "ground", "trees", ..., or "colour 0", "colour
    1", ..."""


def canonical(word: str) -> str:
    """Return the standard word for a synonym in `OTHER_NAMES`. Return any other word unchanged."""
    return _CANONICAL.get(word, word)


def random_wording(rng: random.Random, plain: float = 0.4, other_name: float = 0.35) -> Wording:
    """Return the canonical wording with probability `plain`. Otherwise return a random form, which replaces each word
    by a synonym with probability `other_name`.
    """
    if rng.random() < plain:
        return CANONICAL
    names = {word: rng.choice(names) for word, names in OTHER_NAMES.items() if rng.random() < other_name}
    return Wording(rng.randrange(FORMS), names)


def ground_sentence(weather: str, ground: str) -> str:
    """Return the sentence on the ground, which depends on the weather."""
    match canonical(weather):
        case "snowy":
            return "Snow covers the ground."
        case "rainy" | "stormy":
            return f"The ground is wet and {ground}."
        case _:
            return f"The ground is {ground}."


def water_sentence(weather: str, water: str) -> str:
    """Return the sentence on the water, which depends on the weather."""
    match canonical(weather):
        case "snowy":
            return f"Snow falls on the {water} water."
        case "rainy":
            return f"Rain falls on the {water} water."
        case "stormy":
            return f"Waves rise on the {water} water."
        case _:
            return f"The water is {water}."


def article(word: str) -> str:
    """Return the article for a word at the start of a sentence: "A" or "An"."""
    return "An" if word[:1] in "aeiou" else "A"


def caption(scene: Scene, wording: Wording = CANONICAL) -> str:
    """Return the caption of a scene: three to six sentences."""
    return _object_caption(scene, wording) if scene.family == "object" else _road_caption(scene, wording)


def _object_caption(scene: Scene, wording: Wording) -> str:
    look, label, name = scene.look, scene.label, wording.name
    weather, when, colour = name(look.weather), name(TIME_PHRASES[look.time]), name(look.colours[0])
    first = article(colour)
    match wording.form:
        case _ if not scene.subject:
            sentences = [f"An empty place in {weather} weather {when}."]
        case 0:
            sentences = [f"{first} {colour} {label} in {weather} weather {when}.", f"The {label} {POSTURES[label]}."]
        case 1:
            sentences = [f"{first} {colour} {label} {POSTURES[label]} {when}.", f"The weather is {weather}."]
        case _:
            sentences = [f"{article(weather)} {weather} scene {when}.", f"{first} {colour} {label} {POSTURES[label]}."]
    if scene.label in WATER_CLASSES:
        sentences.append(water_sentence(weather, name(look.water)))
    else:
        sentences.append(ground_sentence(weather, name(look.ground)))
    sentences.append(f"Behind it rise {name(look.hills)} hills.")
    return " ".join(sentences)


def _road_caption(scene: Scene, wording: Wording) -> str:
    look, name = scene.look, wording.name
    weather, when = name(look.weather), name(TIME_PHRASES[look.time])
    cars = f"{NUMBER_WORDS[scene.vehicles]} {'car' if scene.vehicles == 1 else 'cars'}"
    match wording.form:
        case 0:
            sentences = [f"A road with {cars} in {weather} weather {when}."]
        case 1:
            sentences = [f"A road with {cars} {when}.", f"The weather is {weather}."]
        case _:
            sentences = [
                f"{article(weather)} {weather} scene {when}.",
                f"There {'is' if scene.vehicles == 1 else 'are'} {cars} on a road.",
            ]
    if scene.vehicles:
        colours = zip(CARS_TOLD[wording.form][scene.vehicles], look.colours, strict=True)
        parts = [f"{before}{name(colour)}" for before, colour in colours]
        joined = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
        sentences.append(joined[0].upper() + joined[1:] + ".")
    sentences.append(PEDESTRIAN_SENTENCES[wording.form][scene.pedestrians])
    sides = {"trees": f"{name(look.trees)} trees", "buildings": f"{name(look.walls)} buildings"}
    lined = " and ".join(text for side, text in sides.items() if side in scene.background)
    sentences.append(f"The road is lined with {lined}.")
    sentences.append(ground_sentence(weather, name(look.ground)))
    return " ".join(sentences)


def keywords(scene: Scene) -> list[WorldKeyword]:
    """Return the words of `caption(scene)` that may change, in order, each with all its alternatives."""
    look = scene.look

    def word(text: str, edit_type: str, choices: tuple[str, ...], slot: str) -> WorldKeyword:
        return WorldKeyword(text, edit_type, tuple(other for other in choices if other != text), slot)

    colours = [word(colour, "attribute", COLOURS, f"colour {i}") for i, colour in enumerate(look.colours)]
    weather = word(look.weather, "weather", WEATHERS, "weather")
    time = word(TIME_PHRASES[look.time], "time of day", tuple(TIME_PHRASES[t] for t in TIMES), "time")
    words = [*colours, weather, time] if scene.family == "object" else [weather, time, *colours]
    if "trees" in scene.background:
        words.append(word(look.trees, "background", TREES, "trees"))
    if "buildings" in scene.background:
        words.append(word(look.walls, "background", WALLS, "walls"))
    if scene.label in WATER_CLASSES:
        words.append(word(look.water, "background", WATERS, "water"))
    elif look.weather != "snowy":
        words.append(word(look.ground, "background", GROUNDS, "ground"))
    if scene.family == "object":
        words.append(word(look.hills, "background", HILLS, "hills"))
    return words


def protected_words(scene: Scene) -> tuple[str, ...]:
    """Return words that the caption must keep: the label, or the visible protected objects."""
    if scene.family == "object":
        return (scene.label,)
    words = ["road", "car" if scene.vehicles == 1 else "cars", "pavement"]
    if scene.pedestrians:
        words.append("pedestrian" if scene.pedestrians == 1 else "pedestrians")
    return tuple(words)
