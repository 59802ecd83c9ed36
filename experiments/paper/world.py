"""The sources of the paper's questions: fair days of the drawn world, of which all truth is known, as a data set.

The models under test learn from fair days alone. Weaknesses are planted in two ways, of the three that Domino plants
(Eyuboglu et al. 2022): conditions that no training shows, and things that the training teaches wrongly. Knows no
models.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from core.types import Task
from demo.data_set import fair_scene, image_name, write_data_set, write_scene
from demo.language import TIME_PHRASES
from demo.render import render
from demo.scene import (
    COLOURS,
    FAIR_TIMES,
    FAIR_WEATHERS,
    OBJECT_CLASSES,
    PROTECTED_ROAD_CLASSES,
    TIMES,
    WEATHERS,
    Scene,
    fair,
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
        return image_name(self.number)

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
    return Source(family, number, fair_scene(FIRST_SEED[family] + number, family, number))


def shift_scenes(family: Family, number: int) -> Iterator[Scene]:
    """So many scenes as the renderer draws them in fog and at night, of none of the sources."""
    for place in range(number):
        seed = FIRST_SHIFT[family] + place
        label = OBJECT_CLASSES[place % len(OBJECT_CLASSES)] if family == "object" else None
        yield random_scene(seed, family, label).with_look(**SHIFTS[place // len(OBJECT_CLASSES) % len(SHIFTS)])


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


def write_data(folder: Path, family: Family, size: Size) -> None:
    """Write the sources of a family as a data set of the layout "csv". What is there already stays."""
    sources = [source(family, number) for number in range(size.sources)]
    more = [{"side": side(one), "quota": f"{one.quota.captions}"} for one in sources]
    write_data_set(folder / family, [(one.scene, own) for one, own in zip(sources, more, strict=True)])


def write_shift(folder: Path, family: Family, size: Size) -> Sequence[tuple[Path, Scene]]:
    """The scenes of the shift set, each with its file; its mask is called as `mask_file` says."""
    root = folder / f"{family}-shift"
    found = []
    for place, scene in enumerate(shift_scenes(family, size.shift)):
        file = root / f"{place:04}.png"
        if not file.exists():
            write_scene(scene, file, mask_file(file))
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
