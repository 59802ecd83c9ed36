"""The sources of the paper's questions: fair days of the drawn world, of which all truth is known, as a data set.

The demo's models under test learnt from fair days alone, so the sources are what they do well on, and every other
weather and hour is a weakness that was planted. Knows no models.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from PIL import Image

from core.types import Task
from demo.language import TIME_PHRASES
from demo.render import render
from demo.scene import OBJECT_CLASSES, PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, TIMES, WEATHERS, Scene, random_scene
from evaluation.retraining.data_split import Side, side_of
from experiments.paper.size import Size

Family = Literal["object", "road"]
FAMILIES: tuple[Family, ...] = get_args(Family)
FIRST_SEED = {"object": 7_100_000, "road": 7_600_000}
"""No training saw these scenes, and neither did the checks of the models under test. Nothing was chosen on them: rates
of learning, and what counts as new in a ranking, were chosen on scenes from 7,000,000 and 7,500,000 on.
"""
FIRST_SHIFT = {"object": 8_100_000, "road": 8_600_000}
FIRST_CELL = 9_100_000
FAIR_WEATHERS, FAIR_TIMES = ("sunny", "cloudy"), ("day",)
"""What the models under test learnt from, as `demo.under_test.fair` has it."""
PLANTED = (
    *(weather for weather in WEATHERS if weather not in FAIR_WEATHERS),
    *(TIME_PHRASES[time] for time in TIMES if time not in FAIR_TIMES),
)
"""The conditions that were left out of their training, by their first names: the planted weaknesses."""
PLANTED_TYPES = ("weather", "time of day")
"""The edit types that bring them about."""
SHIFTS: tuple[dict[str, str], ...] = ({"weather": "foggy", "time": "day"}, {"weather": "sunny", "time": "night"})
"""What scenes of the shift set look like, in turns."""
SPLIT = "unseen by the models under test"
"""That of all sources."""


@dataclass(frozen=True)
class Source:
    """A source image of which everything is known."""

    family: Family
    number: int
    scene: Scene

    @property
    def key(self) -> str:
        """Its file in the data set, which says which one it is."""
        return f"images/{self.number:04}.png"

    @property
    def task(self) -> Task:
        """What a model under test has to do with it."""
        return task_of(self.scene)


def task_of(scene: Scene) -> Task:
    """The task of a scene, as the demo has it."""
    if scene.family == "object":
        return Task("classification", label=scene.label)
    return Task("segmentation", protected=PROTECTED_ROAD_CLASSES)


def source(family: Family, number: int) -> Source:
    """The source of a number: a fair day. Classes take turns."""
    seed = FIRST_SEED[family] + number
    rng = random.Random(f"fair {seed}")
    label = OBJECT_CLASSES[number % len(OBJECT_CLASSES)] if family == "object" else None
    scene = random_scene(seed, family, label)
    return Source(family, number, scene.with_look(weather=rng.choice(FAIR_WEATHERS), time=rng.choice(FAIR_TIMES)))


def shift_scenes(family: Family, number: int) -> Iterator[Scene]:
    """So many scenes as the renderer draws them in fog and at night, of none of the sources."""
    for place in range(number):
        seed = FIRST_SHIFT[family] + place
        label = OBJECT_CLASSES[place % len(OBJECT_CLASSES)] if family == "object" else None
        yield random_scene(seed, family, label).with_look(**SHIFTS[place // len(OBJECT_CLASSES) % len(SHIFTS)])


def under(scene: Scene, condition: str) -> Scene:
    """The scene under a condition of `PLANTED`."""
    times = {said: time for time, said in TIME_PHRASES.items()}
    return scene.with_look(time=times[condition]) if condition in times else scene.with_look(weather=condition)


def cell_scenes(label: str, condition: str, number: int) -> Iterator[Scene]:
    """So many fair days of a class under a condition, as the renderer draws them, of none of the sources."""
    for place in range(number):
        yield under(random_scene(FIRST_CELL + place, "object", label).with_look(weather="sunny", time="day"), condition)


def side(one: Source) -> Side:
    """Train, tune or test: it hangs on the source alone, and all that is made of it goes with it."""
    return side_of(f"{one.family} {one.scene.seed}", seed=0)


def write_data(folder: Path, family: Family, size: Size) -> Path:
    """The sources of a family as a data set of the layout "csv": images, labels or masks, and a table. What is there
    already stays.
    """
    root = folder / family
    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / "masks").mkdir(exist_ok=True)
    rows = list[dict[str, str]]()
    for number in range(size.sources):
        one = source(family, number)
        mask = one.key.replace("images", "masks")
        if not (root / one.key).exists():
            _write(one.scene, root / one.key, root / mask)
        own = {"label": one.scene.label} if family == "object" else {"mask": mask}
        rows.append({"image": one.key, **own, "side": side(one)})
    with (root / "sources.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return root


def write_shift(folder: Path, family: Family, size: Size) -> Sequence[tuple[Path, Scene]]:
    """The scenes of the shift set, each with its file; its mask is called as `mask_file` says."""
    root = folder / f"{family}-shift"
    root.mkdir(parents=True, exist_ok=True)
    found = []
    for place, scene in enumerate(shift_scenes(family, size.shift)):
        file = root / f"{place:04}.png"
        if not file.exists():
            _write(scene, file, mask_file(file))
        found.append((file, scene))
    return found


def mask_file(image: Path) -> Path:
    """Where the mask of a scene of the shift set lies."""
    return image.with_suffix(".mask.png")


def mask_of(scene: Scene) -> Image.Image:
    """Its mask, mode L, with indices into `SEMANTIC_CLASSES`."""
    return Image.fromarray(render(scene)[1])


def picture_of(scene: Scene) -> np.ndarray:
    """Its picture, uint8 (128, 128, 3)."""
    return render(scene)[0]


def mask_classes() -> str:
    """The classes of the masks, as the option of a layout takes them."""
    return ", ".join(f"{number} {name}" for number, name in enumerate(SEMANTIC_CLASSES))


def _write(scene: Scene, image: Path, mask: Path) -> None:
    pixels, numbers = render(scene)
    Image.fromarray(numbers).save(mask)
    half = image.with_suffix(".half")
    Image.fromarray(pixels).save(half, "PNG")
    half.replace(image)  # an image that is there is whole, and its mask too
