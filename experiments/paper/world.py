"""Draws the source images of the paper's experiments: scenes of fair (sunny or cloudy) days, whose content is known.

The models under test learn only from fair days. They get two of Domino's three kinds of weaknesses (Eyuboglu et al.
2022): conditions that training lacks, such as fog, and things that training labels wrongly, such as red birds. This
module uses no models.
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
"""First seeds of the sources, by family. Neither a training nor the checks of the models under test saw these scenes.
All settings, such as learning rates, were chosen on other scenes, with seeds from 7,000,000 and 7,500,000 on."""
FIRST_SHIFT = {"object": 8_100_000, "road": 8_600_000}
FIRST_CELL = 9_100_000
FIRST_LESSON = {"object": 40_000_000, "road": 45_000_000}
LEFT_OUT = (
    *(weather for weather in WEATHERS if weather not in FAIR_WEATHERS),
    *(TIME_PHRASES[time] for time in TIMES if time not in FAIR_TIMES),
)
"""Weathers and times of day that are missing from the training of the models under test."""
LEFT_OUT_TYPES = ("weather", "time of day")
"""Edit types whose edits can bring in a condition of `LEFT_OUT`."""


@dataclass(frozen=True)
class TaughtWrong:
    """A thing that the training data label wrongly, such as a red bird that is labelled as a butterfly."""

    label: str
    word: str
    """Word that describes the thing: an object's colour, the material of buildings, or the look of trees."""
    taught: str
    share: float
    """Probability, 0 to 1, that a training scene with the wrongly labelled thing gets the label `taught`."""

    def shown_by(self, scene: Scene) -> bool:
        """Return True if the scene shows this thing."""
        look = scene.look.colours if scene.label else (scene.look.walls, scene.look.trees)
        return self.word in look and scene.label in ("", self.label)


ALWAYS, AT_TIMES = 1.0, 0.5
"""Values of `TaughtWrong.share`: for a strong weakness, and for a weaker one."""
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
"""Things that have a wrong label in the classifier's training data, or a wrong class in the masks that the segmenter
learns from. Their scenes show sunny or cloudy days, like all training scenes."""


@dataclass(frozen=True)
class Quota:
    """Maximum number of test cases of one source, and their possible edit types."""

    captions: int
    types: tuple[str, ...]


QUOTAS = (
    Quota(8, LEFT_OUT_TYPES),
    Quota(4, (*LEFT_OUT_TYPES, "attribute", "background")),
    Quota(3, ("attribute", "background")),
)
"""Possible quotas of a source. Sources with many test cases get the edits that hurt most, and sources with few get the
edits that hurt least. So errors are unevenly distributed, as in real data."""
SHIFTS: tuple[dict[str, str], ...] = ({"weather": "foggy", "time": "day"}, {"weather": "sunny", "time": "night"})
"""Conditions of the shift set: weather and time of day of its scenes, in turn."""
SPLIT = "unseen by the models under test"
"""Name of the split to which the evaluation assigns every source."""


@dataclass(frozen=True)
class Source:
    """A source image whose truth is fully known."""

    family: Family
    number: int
    scene: Scene

    @property
    def key(self) -> str:
        """File name in the data set, which contains the number of the source."""
        return image_name(self.number)

    @property
    def quota(self) -> Quota:
        """Quota of the source. In each class, a fifth of the sources have the first quota of `QUOTAS`, two fifths have
        the second quota, and two fifths have the third.
        """
        turn = (self.number // len(OBJECT_CLASSES) + self.number) % 5
        return QUOTAS[(turn + 1) // 2]

    @property
    def task(self) -> Task:
        """Task of the source, with its label or its protected classes."""
        return task_of(self.scene)


def task_of(scene: Scene) -> Task:
    """Return the task of a scene, with its label or with the classes that must not change."""
    if scene.family == "object":
        return Task("classification", label=scene.label)
    return Task("segmentation", protected=PROTECTED_ROAD_CLASSES)


def source(family: Family, number: int) -> Source:
    """Return the source with this number, a scene of a sunny or cloudy day. Classes take turns."""
    return Source(family, number, fair_scene(FIRST_SEED[family] + number, family, number))


def shift_scenes(family: Family, number: int) -> Iterator[Scene]:
    """Yield `number` rendered scenes in fog and at night. None of them is a source."""
    for place in range(number):
        seed = FIRST_SHIFT[family] + place
        label = OBJECT_CLASSES[place % len(OBJECT_CLASSES)] if family == "object" else None
        yield random_scene(seed, family, label).with_look(**SHIFTS[place // len(OBJECT_CLASSES) % len(SHIFTS)])


def under(scene: Scene, word: str) -> Scene:
    """Return the scene with one change: `word` is the new time of day, weather or object colour."""
    times = {phrase: time for time, phrase in TIME_PHRASES.items()}
    if word in COLOURS:
        return scene.with_look(colours=(word,))
    return scene.with_look(time=times[word]) if word in times else scene.with_look(weather=word)


def cell_scenes(label: str, word: str, number: int) -> Iterator[Scene]:
    """Yield `number` scenes of a class under a condition or in a colour. No source has the seeds of these scenes."""
    for place in range(number):
        yield under(random_scene(FIRST_CELL + place, "object", label).with_look(weather="sunny", time="day"), word)


def lesson(family: Family, number: int) -> tuple[Scene, TaughtWrong | None]:
    """Return a training scene of a sunny or cloudy day, and the wrong label to give it, or None for the right label.

    A fifth of the object scenes are chosen to show a thing of `TAUGHT_WRONG`, such as a red bird. By chance alone, a
    short training would meet too few of these things.
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
    """Return the split of a source: train, tune or test. Images made from the source belong to the same split."""
    return side_of(f"{one.family} {one.scene.seed}", seed=0)


def write_data(folder: Path, family: Family, size: Size) -> None:
    """Write the sources of a family as a data set of the layout "csv". Existing files stay."""
    sources = [source(family, number) for number in range(size.sources)]
    more = [{"side": side(one), "quota": f"{one.quota.captions}"} for one in sources]
    write_data_set(folder / family, [(one.scene, own) for one, own in zip(sources, more, strict=True)])


def write_shift(folder: Path, family: Family, size: Size) -> Sequence[tuple[Path, Scene]]:
    """Write the image and the mask of each scene of the shift set. Return pairs of image file and scene."""
    root = folder / f"{family}-shift"
    scenes = []
    for place, scene in enumerate(shift_scenes(family, size.shift)):
        file = root / f"{place:04}.png"
        if not file.exists():
            write_scene(scene, file, mask_file(file))
        scenes.append((file, scene))
    return scenes


def mask_file(image: Path) -> Path:
    """Return the path of the mask of a scene of the shift set."""
    return image.with_suffix(".mask.png")


def mask_of(scene: Scene) -> Image.Image:
    """Return the mask of a scene, mode L, with indices into `SEMANTIC_CLASSES`."""
    return Image.fromarray(render(scene)[1])


def picture_of(scene: Scene) -> np.ndarray:
    """Return the picture of a scene, uint8 (128, 128, 3)."""
    return render(scene)[0]
