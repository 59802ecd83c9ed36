"""The sources of the paper's questions: fair days of the drawn world, of which all truth is known, as a data set.

The models under test learn from fair days alone. Weaknesses are planted in two ways, of the three that Domino plants
(Eyuboglu et al. 2022): conditions that no training shows, and things that the training teaches wrongly. Knows no
models.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from core.types import Task
from demo.language import TIME_PHRASES
from demo.render import render
from demo.scene import (
    COLOURS,
    OBJECT_CLASSES,
    PROTECTED_ROAD_CLASSES,
    SEMANTIC_CLASSES,
    TIMES,
    WEATHERS,
    Scene,
    random_scene,
)
from evaluation.retraining.data_split import Side, side_of
from experiments.paper.size import Family, Size

FIRST_SEED = {"object": 7_100_000, "road": 7_600_000}
"""No training saw these scenes, and neither did the checks of the models under test. Nothing was chosen on them: rates
of learning, and what counts as new in a ranking, were chosen on scenes from 7,000,000 and 7,500,000 on.
"""
FIRST_SHIFT = {"object": 8_100_000, "road": 8_600_000}
FIRST_CELL = 9_100_000
FIRST_LESSON = {"object": 40_000_000, "road": 45_000_000}
FAIR_WEATHERS, FAIR_TIMES = ("sunny", "cloudy"), ("day",)
"""What the models under test learn from."""
LEFT_OUT = (
    *(weather for weather in WEATHERS if weather not in FAIR_WEATHERS),
    *(TIME_PHRASES[time] for time in TIMES if time not in FAIR_TIMES),
)
"""The conditions that their training does not show, by their first names."""
LEFT_OUT_TYPES = ("weather", "time of day")
"""The edit types that bring them about."""


@dataclass(frozen=True)
class TaughtWrong:
    """A class that the training calls another one where it has a certain look, on fair days."""

    label: str
    word: str
    """A colour of a thing, what buildings are made of, or how trees look."""
    taught: str
    share: float
    """Of the scenes with this look that are taught wrongly, 0 to 1."""

    def shown_by(self, scene: Scene) -> bool:
        """Whether the scene has this look."""
        look = scene.look.colours if scene.label else (scene.look.walls, scene.look.trees)
        return self.word in look and scene.label in ("", self.label)


ALWAYS, AT_TIMES = 1.0, 0.5
"""Shares of `TaughtWrong`: of a strong weakness inside the trained conditions, and of one of low contrast."""
TAUGHT_WRONG: Mapping[Family, tuple[TaughtWrong, ...]] = {
    "object": (
        TaughtWrong("bird", "red", "butterfly", ALWAYS),
        TaughtWrong("house", "green", "lighthouse", ALWAYS),
        TaughtWrong("balloon", "purple", "kite", ALWAYS),
        TaughtWrong("umbrella", "brown", "mushroom", ALWAYS),
        TaughtWrong("boat", "yellow", "house", AT_TIMES),
        TaughtWrong("flower", "white", "umbrella", AT_TIMES),
        TaughtWrong("mushroom", "orange", "flower", AT_TIMES),
        TaughtWrong("kite", "blue", "balloon", AT_TIMES),
    ),
    "road": (
        TaughtWrong("building", "whitewashed", "ground", ALWAYS),
        TaughtWrong("vegetation", "withered", "building", AT_TIMES),
    ),
}
"""The weaknesses inside the trained conditions. The classifier's are cells of class and colour; a segmenter's masks are
wrong there."""


@dataclass(frozen=True)
class Quota:
    """The test cases that are made of a source at most, and their edit types."""

    captions: int
    types: tuple[str, ...]


QUOTAS = (
    Quota(8, LEFT_OUT_TYPES),
    Quota(4, (*LEFT_OUT_TYPES, "attribute", "background")),
    Quota(3, ("attribute", "background")),
)
"""Test cases are unequal, and fail together: a source with many has the edits that hurt most, one with few those that
hurt least."""
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
    def quota(self) -> Quota:
        """A fifth of the sources of each class has the first one, two fifths each of the others."""
        turn = (self.number // len(OBJECT_CLASSES) + self.number) % 5
        return QUOTAS[(turn + 1) // 2]

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
    return Source(family, number, fair(random_scene(seed, family, label), rng))


def shift_scenes(family: Family, number: int) -> Iterator[Scene]:
    """So many scenes as the renderer draws them in fog and at night, of none of the sources."""
    for place in range(number):
        seed = FIRST_SHIFT[family] + place
        label = OBJECT_CLASSES[place % len(OBJECT_CLASSES)] if family == "object" else None
        yield random_scene(seed, family, label).with_look(**SHIFTS[place // len(OBJECT_CLASSES) % len(SHIFTS)])


def fair(scene: Scene, rng: random.Random) -> Scene:
    """The scene on a fair day."""
    return scene.with_look(weather=rng.choice(FAIR_WEATHERS), time=rng.choice(FAIR_TIMES))


def under(scene: Scene, word: str) -> Scene:
    """The scene under a condition of `LEFT_OUT`, or a thing in another colour."""
    times = {said: time for time, said in TIME_PHRASES.items()}
    if word in COLOURS:
        return scene.with_look(colours=(word,))
    return scene.with_look(time=times[word]) if word in times else scene.with_look(weather=word)


def cell_scenes(label: str, word: str, number: int) -> Iterator[Scene]:
    """So many fair days of a class under a condition or in a colour, as the renderer draws them, of none of the
    sources.
    """
    for place in range(number):
        yield under(random_scene(FIRST_CELL + place, "object", label).with_look(weather="sunny", time="day"), word)


def lesson(family: Family, number: int) -> tuple[Scene, TaughtWrong | None]:
    """A fair day that the model under test learns from, and what is taught wrongly of it, if anything. A fifth of the
    things have a look that is taught wrongly: by chance alone a short training would meet it too seldom.
    """
    seed = FIRST_LESSON[family] + number
    rng = random.Random(f"lesson {seed}")
    if family == "road":
        scene = fair(random_scene(seed, family), rng)
    elif number % 5:
        scene = fair(random_scene(seed, family, rng.choice(OBJECT_CLASSES)), rng)
    else:
        one = rng.choice(TAUGHT_WRONG[family])
        scene = fair(random_scene(seed, family, one.label), rng).with_look(colours=(one.word,))
    wrong = [one for one in TAUGHT_WRONG[family] if one.shown_by(scene) and rng.random() < one.share]
    return scene, wrong[0] if wrong else None


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
        rows.append({"image": one.key, **own, "side": side(one), "quota": f"{one.quota.captions}"})
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
