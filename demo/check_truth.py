"""Finds the true defects of a generated image of the drawn world, to compare the checks of images with them.

The scene tells where everything is and how it should look after its edits. Judge models, which share nothing with the
generator and the models of the checks, recognise what the generated image shows. Details that they miss even in the
ideal (rendered) image do not count against the generated one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from demo.language import TIME_PHRASES, WorldKeyword
from demo.render import render
from demo.scene import (
    GROUNDS,
    HILLS,
    PROTECTED_ROAD_CLASSES,
    SEMANTIC_CLASSES,
    TREES,
    WALLS,
    WATERS,
    Scene,
)
from pipeline.checks.images import gradients

if TYPE_CHECKING:
    from demo.judges import Judges

THINGS = ("vehicle", "pedestrian")
"""Classes whose single objects are checked separately."""
SURROUNDINGS = ("building", "vegetation")
"""Classes beside the road that an edit may change, as they are not protected."""
SMALLEST, LARGE = 20, 164
"""Minimum pixels of an object that is checked; minimum pixels of an object that counts as large (1 % of the image)."""
OUTLINE = 4.0
"""Minimum difference of grey values between neighbouring pixels that counts as an outline."""
MELTED = 0.6
"""Minimum visible share of a large object's outlines. With less, the object counts as deformed. The value was chosen by
eye on 266 buildings."""
HALF, QUARTER = 0.5, 0.25
"""Minimum visible share of a single object, and of a protected class as a whole. With less, they count as lost."""


PARTS = {"ground": GROUNDS, "trees": TREES, "walls": WALLS, "water": WATERS, "hills": HILLS}
"""Parts of a scene's background that edits may change, each with the words for its possible looks."""
CHANGED = 20
"""Minimum difference, 0 to 255, from which a pixel counts as changed by an edit."""


@dataclass(frozen=True)
class Truth:
    """The defects of an image. A good image has none: all fields are False."""

    edit_missing: bool
    label_lost: bool
    class_lost: bool
    thing_lost: bool
    surroundings_lost: bool = False
    form_lost: bool = False

    @property
    def broken(self) -> bool:
        """True if the image is not a valid test case."""
        return any(getattr(self, wrong) for wrong in Truth.__dataclass_fields__)


WEAKER = {"stormy": "rainy"}
"""Weather that may appear instead of the requested one without making the image invalid. A storm without lightning
looks like rain under a darker sky. The report's first table still counts it as a missing edit."""


def edited_scene(scene: Scene, edits: Iterable[tuple[str, str]]) -> Scene:
    """Return the scene after these edits: pairs of a part of the scene (`WorldKeyword.slot`) and its new word."""
    for slot, alternative in edits:
        if slot == "time":
            scene = scene.with_look(time=next(time for time, phrase in TIME_PHRASES.items() if phrase == alternative))
        elif slot.startswith("colour"):
            colours = list(scene.look.colours)
            colours[int(slot.split()[1])] = alternative
            scene = scene.with_look(colours=tuple(colours))
        else:
            scene = scene.with_look(**{slot: alternative})
    return scene


def slots_of(keywords: Iterable[WorldKeyword], keyword: str) -> tuple[str, ...]:
    """Return the parts of the scene, such as "weather" or "colour 0", that a word of the caption describes. One colour
    may belong to several objects.
    """
    return tuple(word.slot for word in keywords if word.text == keyword)


def truth_of(scene: Scene, edits: Iterable[tuple[str, str]], image: np.ndarray, judges: Judges) -> Truth:
    """Return the true defects of a scene's image, uint8 (128, 128, 3), after `edits` (see `edited_scene`)."""
    edits = tuple(edits)
    goal = edited_scene(scene, edits)
    ideal, mask = render(goal)
    seen, ideal_reading = judges.read(image), judges.read(ideal)
    missing = False
    for slot, _ in edits:
        if slot == "weather":
            shown = {goal.look.weather, WEAKER.get(goal.look.weather, "")} - {scene.look.weather}
            missing |= ideal_reading.weather == goal.look.weather and seen.weather not in shown
        elif slot == "time":
            missing |= seen.time != goal.look.time == ideal_reading.time
        elif slot in PARTS:
            missing |= not part_shows(scene, goal, slot, image)
        else:
            place = int(slot.split()[1])
            pixels, colour = painted_pixels(scene, place), goal.look.colours[place]
            missing |= bool(pixels.any()) and seen.colour(pixels) != colour == ideal_reading.colour(pixels)
    label_lost = scene.family == "object" and seen.label != scene.label == ideal_reading.label
    if scene.family != "road":
        return Truth(missing, label_lost, False, False)
    class_lost = thing_lost = surroundings_lost = form_lost = False
    for name in (*PROTECTED_ROAD_CLASSES, *SURROUNDINGS):
        number = SEMANTIC_CLASSES.index(name)
        for thing, piece in _pieces(mask == number, name in THINGS or name in SURROUNDINGS):
            found, could = (float((reading.mask[piece] == number).mean()) for reading in (seen, ideal_reading))
            large = thing and piece.sum() >= LARGE
            form_lost |= large and outlines_drawn(image, ideal, piece) < MELTED
            if could < HALF:
                continue
            if name in SURROUNDINGS:
                surroundings_lost |= large and found < HALF
            elif thing:
                thing_lost |= found < HALF
            else:
                class_lost |= found < QUARTER
    return Truth(missing, label_lost, class_lost, thing_lost, surroundings_lost, form_lost)


def outlines_drawn(image: np.ndarray, ideal: np.ndarray, piece: np.ndarray) -> float:
    """Return the share, 0 to 1, of an object's outlines in `ideal` that `image` has too: at most a pixel away and in
    the same direction. Return 1 if there are none. `piece` has the object's pixels, bool (128, 128).
    """
    import cv2

    ideal_x, ideal_y = gradients(ideal)
    drawn_x, drawn_y = gradients(image)
    strength = np.hypot(ideal_x, ideal_y)
    moved = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]
    along = [
        np.abs(np.roll(drawn_x, by, (0, 1)) * ideal_x + np.roll(drawn_y, by, (0, 1)) * ideal_y) / (strength + 1e-6)
        for by in moved
    ]
    drawn = np.minimum(np.max(along, 0), strength)
    where = (cv2.dilate(piece.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0) & (strength > OUTLINE)
    return float(drawn[where].sum() / strength[where].sum()) if where.sum() >= SMALLEST else 1.0


def _pieces(where: np.ndarray, things: bool) -> list[tuple[bool, np.ndarray]]:
    """Return (False, pixels) for a whole class and, if `things`, (True, pixels) for each of its objects. Leave out
    those with fewer than `SMALLEST` pixels.
    """
    import cv2

    pieces = [(False, where)] if where.sum() >= SMALLEST else []
    if things:
        count, numbers = cv2.connectedComponents(where.astype(np.uint8))
        pieces += [(True, piece) for one in range(1, count) if (piece := numbers == one).sum() >= SMALLEST]
    return pieces


def part_shows(scene: Scene, goal: Scene, slot: str, image: np.ndarray) -> bool:
    """Return True if the image shows an edit of a part of the background, `slot` in `PARTS`.

    The mean colour of the changed pixels decides, since the generator cannot draw all textures. It must be nearer to
    `goal` than to the scene before. Return True if the edit changes nothing visible, such as the ground under snow.
    """
    ideal = render(goal)[0].astype(float)
    before = render(goal.with_look(**{slot: getattr(scene.look, slot)}))[0].astype(float)
    changed = np.abs(ideal - before).max(2) > CHANGED
    if not changed.any():
        return True
    seen, new, old = (pixels[changed].mean(0) for pixels in (image, ideal, before))
    return bool(np.abs(seen - new).sum() <= np.abs(seen - old).sum())


def painted_pixels(scene: Scene, place: int) -> np.ndarray:
    """Return the pixels, bool (128, 128), that are painted with the colour `scene.look.colours[place]`."""
    drawn = []
    for colour in ("white", "blue"):
        colours = list(scene.look.colours)
        colours[place] = colour
        drawn.append(render(scene.with_look(weather="sunny", time="day", colours=tuple(colours)))[0].astype(int))
    return np.asarray(np.abs(drawn[0] - drawn[1]).max(2) > 60)
