"""Judges generated images: whether the edit shows, the label is right, and all objects are where they should be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import cv2
import numpy as np
from PIL import Image, ImageDraw

from core.lineage import TestCase
from core.words import count_of
from demo.check_truth import edited_scene, painted_pixels, part_shows
from demo.language import TIME_PHRASES, canonical
from demo.render import render
from demo.scene import MAX_VEHICLES, SEMANTIC_CLASSES
from experiments.demo_report.rows import Row, percent, share
from experiments.demo_report.walk import Walk, edited_slots, edited_things

if TYPE_CHECKING:
    from demo.judges import Judges

IOU_FLOORS = {"road": 0.85, "vehicle": 0.6}
"""Minimum IoU of a class over all generated road scenes."""
IOU_MARGINS = {"pavement": 0.06, "lane marking": 0.10, "pedestrian": 0.10}
"""Maximum loss of IoU by class, from unedited to edited scenes. Judges misread thin objects even in unedited scenes."""
THINGS = ("vehicle", "pedestrian", "object")
"""Classes that consist of single objects, which can be counted."""
SMALLEST = 12
"""Minimum number of connected pixels that count as an object. Smaller patches are often errors of the judges."""
FOUND = 0.25
"""Minimum share of an object's pixels that the judges read as its class. Below it, the object counts as lost."""


class Overlap:
    """Intersection over union of one class, computed over the pixels of all scenes together."""

    def __init__(self, name: str) -> None:
        self._number, self._both, self._either = SEMANTIC_CLASSES.index(name), 0, 0

    def add(self, truth: np.ndarray, seen: np.ndarray) -> None:
        """Count the pixels of one more scene: its true mask and the mask that the judges see, of the same size."""
        a, b = truth == self._number, seen == self._number
        self._both += int((a & b).sum())
        self._either += int((a | b).sum())

    @property
    def value(self) -> float:
        """IoU, 0 to 1. NaN if no true mask and no mask of the judges shows the class."""
        return self._both / self._either if self._either else math.nan


@dataclass
class ImageFindings:
    """The judges' findings on all images so far, and on the unedited scenes (`untouched_`)."""

    air: list[bool] = field(default_factory=list)
    colour: list[bool] = field(default_factory=list)
    part: list[bool] = field(default_factory=list)
    """One entry for each edit of ground, trees, walls, water or hills: True if the image shows the edit."""
    label: list[bool] = field(default_factory=list)
    untouched_air: list[bool] = field(default_factory=list)
    untouched_colour: list[bool] = field(default_factory=list)
    untouched_label: list[bool] = field(default_factory=list)
    other_colours: list[bool] = field(default_factory=list)
    """True for each object that the edit should not change and that kept its colour."""
    third_car: list[bool] = field(default_factory=list)
    """One entry for each image whose farthest car, the third, should keep its colour: True if it did."""
    whole: list[bool] = field(default_factory=list)
    """True for each image with no object lost or added. Objects that judges misread in the ideal image do not count."""
    as_drawn: list[bool] = field(default_factory=list)
    """True for each image with no object lost or added, compared with the true mask of the drawn scene."""
    untouched_whole: list[bool] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    kept: dict[str, Overlap] = field(default_factory=lambda: _overlaps())
    untouched_kept: dict[str, Overlap] = field(default_factory=lambda: _overlaps())

    def add(self, walk: Walk, case: TestCase, judges: Judges) -> None:
        """Judge one image with one edit, together with its source scene."""
        edit = case.lineage.counterfactual.edits[0]
        scene, source = walk.scene, judges.read(np.asarray(walk.image))
        reading, new = judges.read(np.asarray(case.image)), canonical(edit.alternative)
        slots = edited_slots(walk, edit)
        goal = edited_scene(scene, slots)
        if edit.edit_type == "weather":
            self.air.append(reading.weather == new)
        elif edit.edit_type == "time of day":
            self.air.append(TIME_PHRASES[reading.time] == new)
        elif edit.edit_type == "background":
            ((slot, _),) = slots
            self.part.append(part_shows(scene, goal, slot, np.asarray(case.image)))
        else:
            places = [painted_pixels(scene, place) for place in edited_things(walk, edit)]
            self.colour.append(all(reading.colour(pixels) == new for pixels in places if pixels.any()))
        edited = edited_things(walk, edit) if edit.edit_type == "attribute" else []
        for place, colour in enumerate(scene.look.colours):
            pixels = painted_pixels(scene, place)
            if place not in edited and pixels.any():
                self.other_colours.append(reading.colour(pixels) == colour)
                self.third_car += [self.other_colours[-1]] if place == MAX_VEHICLES - 1 else []
        lost, added = lost_and_added(walk.mask, reading.mask, judges.read(render(goal)[0]).mask)
        self.whole.append(not lost and not added)
        self.as_drawn.append(not any(lost_and_added(walk.mask, reading.mask)))
        self.untouched_whole.append(not any(lost_and_added(walk.mask, source.mask)))
        self.lost.update(lost)
        self.added.update(added)
        self.untouched_air += [source.weather == scene.look.weather, source.time == scene.look.time]
        for place, colour in enumerate(scene.look.colours):
            pixels = painted_pixels(scene, place)
            if pixels.any():
                self.untouched_colour.append(source.colour(pixels) == colour)
        if scene.family == "object":
            self.label.append(reading.label == scene.label)
            self.untouched_label.append(source.label == scene.label)
            return
        for name, overlap in self.kept.items():
            overlap.add(walk.mask, reading.mask)
            self.untouched_kept[name].add(walk.mask, source.mask)

    def rows(self) -> list[Row]:
        """Return the figures with their required minima."""
        air = "generated image shows the edited weather or time of day"
        floors = dict(IOU_FLOORS)
        floors |= {name: self.untouched_kept[name].value - margin for name, margin in IOU_MARGINS.items()}
        third = f"the third car's: {percent(self.third_car)}"
        masks_in_words = (
            f"lost: {_counted(self.lost)}; added: {_counted(self.added)}; beside the mask instead of the ideal image: "
            f"{percent(self.as_drawn)}, untouched scenes {percent(self.untouched_whole)}"
        )
        return [
            share(air, self.air, 0.85, _beside(self.untouched_air)),
            share("generated image shows the edited colour", self.colour, 0.75, _beside(self.untouched_colour)),
            share("generated image shows the edited ground, trees, walls, water or hills", self.part, 0.75),
            share("colours that were not edited are kept", self.other_colours, 0.90, third),
            share("label still right in the generated image", self.label, 0.93, _beside(self.untouched_label)),
            share("nothing lost and nothing added in the generated image", self.whole, 0.90, masks_in_words),
            *(
                Row(
                    f"{name} pixels kept",
                    self.kept[name].value,
                    floor,
                    "IoU",
                    beside=f"untouched scenes: {self.untouched_kept[name].value:.3f}",
                )
                for name, floor in floors.items()
            ),
        ]


def lost_and_added(truth: np.ndarray, seen: np.ndarray, ideal: np.ndarray | None = None) -> tuple[list[str], list[str]]:
    """Return the classes of the lost objects, which only `truth` shows, and of the added objects, which only `seen`
    shows.

    All arguments are uint8 (height, width) of indices into `SEMANTIC_CLASSES`. `ideal` is the judges' mask of the ideal
    picture. If the judges miss or imagine an object in the ideal picture too, the object is neither lost nor added.
    Objects that touch count as one.
    """
    lost, added, readable = [], [], truth if ideal is None else ideal
    for name in THINGS:
        number = SEMANTIC_CLASSES.index(name)
        in_mask, seen_there, could = (mask == number for mask in (truth, seen, readable))
        patches = [patch for patch in _patches(in_mask) if could[patch].mean() >= FOUND]
        lost += [name for patch in patches if seen_there[patch].mean() < FOUND]
        near = cv2.dilate((in_mask | could).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
        added += [name for patch in _patches(seen_there) if not near[patch].any()]
    return lost, added


def contact_sheet(cases: Sequence[tuple[Walk, TestCase]]) -> Image.Image:
    """Return one picture of all cases, two per row: source, control image and generated image, with the edit below."""
    side, line, gap = cases[0][0].image.width, 16, 6
    cell = (3 * side + 2 * gap, side + line + gap)
    rows = (len(cases) + 1) // 2
    sheet = Image.new("RGB", (2 * cell[0] + 3 * gap, rows * cell[1] + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (walk, case) in enumerate(cases):
        left, top = gap + place % 2 * (cell[0] + gap), gap + place // 2 * cell[1]
        for column, image in enumerate((walk.image, case.artifacts["control image"], case.image)):
            sheet.paste(image, (left + column * (side + gap), top))
        words = "; ".join(f"{edit.keyword} -> {edit.alternative}" for edit in case.lineage.counterfactual.edits)
        draw.text((left, top + side + 2), words, fill="black")
    return sheet


def _overlaps() -> dict[str, Overlap]:
    return {name: Overlap(name) for name in (*IOU_FLOORS, *IOU_MARGINS)}


def _patches(pixels: np.ndarray) -> list[np.ndarray]:
    """Return the connected patches with at least `SMALLEST` pixels in a mask. Each is a bool (height, width)."""
    count, numbered, stats, _ = cv2.connectedComponentsWithStats(pixels.astype(np.uint8), connectivity=8)
    return [numbered == number for number in range(1, count) if stats[number, cv2.CC_STAT_AREA] >= SMALLEST]


def _counted(found: Counter[str]) -> str:
    return ", ".join(count_of(count, name) for name, count in found.most_common()) or "none"


def _beside(hits: list[bool]) -> str:
    return f"judges on untouched scenes: {percent(hits)}"
