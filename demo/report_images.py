"""Asks the judges about generated images: whether the edit shows, the label is right, and all is in its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from demo.language import TIME_PHRASES
from demo.render import render
from demo.report_rows import Row, percent, share
from demo.report_walk import Walk, edited_things
from demo.scene import SEMANTIC_CLASSES, Scene
from pipeline.lineage import TestCase

if TYPE_CHECKING:
    from demo.judges import Judges

IOU_FLOORS = {"road": 0.85, "vehicle": 0.6}


class Overlap:
    """Intersection over union of one class, over the pixels of all scenes together."""

    def __init__(self, name: str) -> None:
        self._number, self._both, self._either = SEMANTIC_CLASSES.index(name), 0, 0

    def add(self, truth: np.ndarray, seen: np.ndarray) -> None:
        """Two masks of the same size."""
        a, b = truth == self._number, seen == self._number
        self._both += int((a & b).sum())
        self._either += int((a | b).sum())

    @property
    def value(self) -> float:
        """0 to 1, or NaN when neither mask ever showed the class."""
        return self._both / self._either if self._either else math.nan


@dataclass
class ImageFindings:
    """What the judges found so far, for generated images and, beside, for the untouched scenes."""

    air: list[bool] = field(default_factory=list)
    colour: list[bool] = field(default_factory=list)
    label: list[bool] = field(default_factory=list)
    untouched_air: list[bool] = field(default_factory=list)
    untouched_colour: list[bool] = field(default_factory=list)
    untouched_label: list[bool] = field(default_factory=list)
    kept: dict[str, Overlap] = field(default_factory=lambda: {name: Overlap(name) for name in IOU_FLOORS})
    untouched_kept: dict[str, Overlap] = field(default_factory=lambda: {name: Overlap(name) for name in IOU_FLOORS})

    def add(self, walk: Walk, case: TestCase, judges: Judges) -> None:
        """Judge one image with one edit, and the scene that it was made from."""
        edit = case.lineage.counterfactual.edits[0]
        scene, source = walk.scene, judges.read(np.asarray(walk.image))
        made = judges.read(np.asarray(case.image))
        if edit.edit_type == "weather":
            self.air.append(made.weather == edit.alternative)
        elif edit.edit_type == "time of day":
            self.air.append(TIME_PHRASES[made.time] == edit.alternative)
        else:
            places = [painted_pixels(scene, place) for place in edited_things(walk, edit)]
            self.colour.append(all(made.colour(pixels) == edit.alternative for pixels in places if pixels.any()))
        self.untouched_air += [source.weather == scene.look.weather, source.time == scene.look.time]
        for place, colour in enumerate(scene.look.colours):
            pixels = painted_pixels(scene, place)
            if pixels.any():
                self.untouched_colour.append(source.colour(pixels) == colour)
        if scene.family == "object":
            self.label.append(made.label == scene.label)
            self.untouched_label.append(source.label == scene.label)
            return
        for name, overlap in self.kept.items():
            overlap.add(walk.mask, made.mask)
            self.untouched_kept[name].add(walk.mask, source.mask)

    def rows(self) -> list[Row]:
        """The figures against their floors."""
        air = "generated image shows the edited weather or time of day"
        return [
            share(air, self.air, 0.85, _beside(self.untouched_air)),
            share("generated image shows the edited colour", self.colour, 0.75, _beside(self.untouched_colour)),
            share("label still right in the generated image", self.label, 0.93, _beside(self.untouched_label)),
            *(
                Row(
                    f"{name} pixels kept",
                    self.kept[name].value,
                    floor,
                    "IoU",
                    beside=f"untouched scenes: {self.untouched_kept[name].value:.3f}",
                )
                for name, floor in IOU_FLOORS.items()
            ),
        ]


def contact_sheet(cases: Sequence[tuple[Walk, TestCase]]) -> Image.Image:
    """Source, control image and generated image of each case, with its edit below; two cases a row. RGB."""
    side, line, gap = cases[0][0].image.width, 16, 6
    cell = (3 * side + 2 * gap, side + line + gap)
    rows = (len(cases) + 1) // 2
    sheet = Image.new("RGB", (2 * cell[0] + 3 * gap, rows * cell[1] + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (walk, case) in enumerate(cases):
        left, top = gap + place % 2 * (cell[0] + gap), gap + place // 2 * cell[1]
        for column, image in enumerate((walk.image, case.artifacts["control image"], case.image)):
            sheet.paste(image, (left + column * (side + gap), top))
        told = "; ".join(f"{edit.keyword} -> {edit.alternative}" for edit in case.lineage.counterfactual.edits)
        draw.text((left, top + side + 2), told, fill="black")
    return sheet


def painted_pixels(scene: Scene, place: int) -> np.ndarray:
    """The pixels that the paint of one coloured thing covers, bool (128, 128): those that change with the paint."""
    drawn = []
    for colour in ("white", "blue"):
        colours = list(scene.look.colours)
        colours[place] = colour
        drawn.append(render(scene.with_look(weather="sunny", time="day", colours=tuple(colours)))[0].astype(int))
    return np.asarray(np.abs(drawn[0] - drawn[1]).max(2) > 60)


def _beside(hits: list[bool]) -> str:
    return f"judges on untouched scenes: {percent(hits)}"
