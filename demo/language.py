"""What the drawn world says of a scene: its caption, and which words of it may change.

The caption is canonical (one scene, one text), so that a captioner can be scored against it. Two sentences
depend on the weather beside the weather word itself (the state of the ground, the water): changing the
weather has consequences that a plain word swap would miss.
"""

from __future__ import annotations

from dataclasses import dataclass

from demo.scene import COLOURS, GROUNDS, TIMES, WATER_CLASSES, WEATHERS, Scene

TIME_PHRASES = {"day": "by day", "sunset": "at sunset", "night": "at night"}
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
PEDESTRIAN_SENTENCES = (
    "The pavement is empty.",
    "A pedestrian walks on the pavement.",
    "Two pedestrians walk on the pavement.",
)


@dataclass(frozen=True)
class WorldKeyword:
    """A word or phrase of the caption that may change, what kind of edit that is, and what it may become."""

    text: str
    edit_type: str
    alternatives: tuple[str, ...]
    slot: str
    """Which part of the look it names: "weather", "time", "ground" or "colour 0", "colour 1", ..."""


def ground_sentence(weather: str, ground: str) -> str:
    """The sentence on the ground, which the weather rewrites."""
    if weather == "snowy":
        return "Snow covers the ground."
    if weather == "rainy":
        return f"The ground is wet and {ground}."
    return f"The ground is {ground}."


def water_sentence(weather: str) -> str:
    """The sentence on the water, which the weather rewrites."""
    return {"snowy": "Snow falls on the water.", "rainy": "Rain falls on the water."}.get(weather, "The water is calm.")


def caption(scene: Scene) -> str:
    """The canonical caption of a scene: three to five sentences."""
    look = scene.look
    when = f"in {look.weather} weather {TIME_PHRASES[look.time]}"
    if scene.family == "object":
        surface = (
            water_sentence(look.weather) if scene.label in WATER_CLASSES else ground_sentence(look.weather, look.ground)
        )
        article = "An" if look.colours[0][0] in "aeiou" else "A"
        return f"{article} {look.colours[0]} {scene.label} {when}. The {scene.label} {POSTURES[scene.label]}. {surface}"
    plural = "car" if scene.vehicles == 1 else "cars"
    sentences = [f"A road with {NUMBER_WORDS[scene.vehicles]} {plural} {when}."]
    if scene.vehicles:
        parts = [
            f"the {place}car is {colour}"
            for place, colour in zip(CAR_PLACES[scene.vehicles], look.colours, strict=True)
        ]
        joined = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
        sentences.append(joined[0].upper() + joined[1:] + ".")
    sentences.append(PEDESTRIAN_SENTENCES[scene.pedestrians])
    sentences.append(f"{scene.background.capitalize()} line the road.")
    sentences.append(ground_sentence(look.weather, look.ground))
    return " ".join(sentences)


def keywords(scene: Scene) -> list[WorldKeyword]:
    """The words of `caption(scene)` that may change, in caption order, each with every alternative of the world."""
    look = scene.look
    colour_words = [
        WorldKeyword(colour, "attribute", tuple(c for c in COLOURS if c != colour), f"colour {i}")
        for i, colour in enumerate(look.colours)
    ]
    weather = WorldKeyword(look.weather, "weather", tuple(w for w in WEATHERS if w != look.weather), "weather")
    time = WorldKeyword(
        TIME_PHRASES[look.time], "time of day", tuple(TIME_PHRASES[t] for t in TIMES if t != look.time), "time"
    )
    found = [*colour_words, weather, time] if scene.family == "object" else [weather, time, *colour_words]
    if look.weather != "snowy" and scene.label not in WATER_CLASSES:
        found.append(WorldKeyword(look.ground, "background", tuple(g for g in GROUNDS if g != look.ground), "ground"))
    return found


def protected_words(scene: Scene) -> tuple[str, ...]:
    """Words that the caption must keep: the label, or the protected things that the scene shows."""
    if scene.family == "object":
        return (scene.label,)
    words = ["road", "car" if scene.vehicles == 1 else "cars", "pavement"]
    if scene.pedestrians:
        words.append("pedestrian" if scene.pedestrians == 1 else "pedestrians")
    return tuple(words)
