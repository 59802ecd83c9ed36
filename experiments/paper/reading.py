"""Reads what was made: what the models under test say of every image, what its checks measured, and what is true of it.

What is true is worked out from the scene, which knows how its picture should look after the edit, and read off the
image by judges that share nothing with the generator, its CLIP or the models under test (`demo.check_truth`). It is as
good as those judges are. Of an edit that the world cannot place in the scene, nobody can tell.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.figures import Floats
from core.masks import MASK_KEPT, NamedMask
from core.predictions import Prediction
from core.settings import UnderTestSettings
from core.types import Edit
from demo.check_truth import PARTS, Truth, truth_of
from demo.language import TIME_PHRASES, canonical
from demo.scene import COLOURS, OBJECT_CLASSES, SEMANTIC_CLASSES, WEATHERS, Scene
from evaluation.answers import answers_of, fitted_map, groups_of_numbers
from evaluation.class_mapping import ClassMap, map_classes
from evaluation.effectiveness import Answers
from evaluation.models import ModelUnderTest
from evaluation.segmentation import Pixels, confusion
from experiments.demo_report.walk import Walk, edited_slots
from experiments.paper import world
from experiments.paper.making import Made
from experiments.paper.size import Family
from experiments.paper.world import Source
from pipeline.profiles.profile import load_profile

VALID, BROKEN, CANNOT_TELL = 1, 0, -1
_WORDS: dict[str, tuple[str, ...]] = {
    "weather": WEATHERS,
    "time of day": tuple(TIME_PHRASES.values()),
    "attribute": COLOURS,
    "background": tuple(word for words in PARTS.values() for word in words),
}
"""What the judges can recognise, by edit type."""
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Read:
    """All that is known of the images of a family. The sources are numbered from 0, in their order."""

    family: Family
    weights: Path
    """Of the model under test."""
    sources: tuple[Source, ...]
    cases: tuple[Made, ...]
    controls: tuple[Made, ...]
    classes: tuple[str, ...]
    """Of the model under test."""
    said: tuple[Floats, Floats, Floats]
    """Of the sources, the cases and the controls. Of a classifier the probabilities, (images, classes); of a segmenter
    the pixels of each class and what it says of them, (images, classes, classes + 1)."""
    truth: NDArray[np.int8]
    """`VALID`, `BROKEN` or `CANNOT_TELL`, of each case."""
    why: tuple[tuple[str, ...], ...]
    """What is wrong with each case."""
    checks: tuple[str, ...]
    """Their names."""
    measured: Floats
    """(cases, checks); NaN where one could not tell."""
    kept: NDArray[np.bool_]
    """Whether a check by another segmenter found the mask in its place, of each case; False where there is none."""

    @property
    def of_case(self) -> Numbers:
        """The number of the source of each case."""
        return np.array([one.source for one in self.cases], np.int64)

    @property
    def of_control(self) -> Numbers:
        """The same of the controls."""
        return np.array([one.source for one in self.controls], np.int64)

    @property
    def edit_types(self) -> tuple[str, ...]:
        """That of the edit of each case."""
        return tuple(one.told.edits[0].edit_type for one in self.cases)

    @property
    def alternatives(self) -> tuple[str, ...]:
        """What the edit of each case brings in, by its first name."""
        return tuple(canonical(one.told.edits[0].alternative) for one in self.cases)

    @property
    def label(self) -> Numbers:
        """The number of the label of each source among `OBJECT_CLASSES`."""
        return np.array([OBJECT_CLASSES.index(one.scene.label) for one in self.sources], np.int64)

    @property
    def mapping(self) -> ClassMap:
        """The labels of the data set on the classes of the model."""
        if self.family == "object":
            return map_classes(OBJECT_CLASSES, self.classes)
        return map_classes(SEMANTIC_CLASSES, self.classes, "segmentation")

    def answers(self) -> tuple[tuple[Answers, Floats], ...]:
        """Of a classifier: its answers to sources, cases and controls, with the probability of the true class."""
        found = []
        places = (np.arange(len(self.sources)), self.of_case, self.of_control)
        for rows, own in zip(self.said, places, strict=True):
            found.append(answers_of(self.mapping, self.label[own], own, rows.argmax(axis=1), rows))
        return tuple(found)

    def pixels(self) -> tuple[Pixels, Pixels, Pixels]:
        """Of a segmenter: its counts of sources, cases and controls."""
        first, cases, controls = self.said
        return (
            Pixels(np.arange(len(self.sources)), first),
            Pixels(self.of_case, cases),
            Pixels(self.of_control, controls),
        )


@dataclass(frozen=True)
class Judged:
    """What is true of one image, and what its checks measured."""

    truth: int
    why: tuple[str, ...]
    checks: dict[str, float]
    kept: bool


def slots_of(scene: Scene, caption: str, edit: Edit) -> list[tuple[str, str]] | None:
    """What an edit changes of a scene: slots and their new words; None where the world knows no such edit of it."""
    words = _WORDS.get(edit.edit_type, ())
    if canonical(edit.keyword) not in words or canonical(edit.alternative) not in words:
        return None
    # What the walk of the report knows of a scene beside these is not looked at.
    walk = Walk(0, scene, Image.new("RGB", (1, 1)), np.zeros((1, 1)), world.task_of(scene), caption)
    slots = edited_slots(walk, edit)
    if edit.edit_type == "background":
        old, new = canonical(edit.keyword), canonical(edit.alternative)
        slots = [(slot, new) for slot, known in PARTS.items() if old in known and new in known]
    return slots or None


def judged(family: Family, made: Made) -> Judged:
    """What is true of an image, read by judges that are loaded once in a process."""
    judges, checker = _judges()
    one = world.source(family, made.source)
    image = Image.open(made.image).convert("RGB")
    checks = {name: value for name, value in made.checks.items() if value is not None}
    kept = False
    if family == "road":
        picture, mask = Image.fromarray(world.picture_of(one.scene)), np.asarray(world.mask_of(one.scene))
        found = checker.checks(picture, image, mask, made.told.edits)
        checks |= {check.name: check.value for check in found if check.value is not None}
        kept = any(check.name == MASK_KEPT and check.passed is True for check in found)
    edits = [slots_of(one.scene, made.caption, edit) for edit in made.told.edits]
    if any(slots is None for slots in edits):
        return Judged(CANNOT_TELL, (), checks, kept)
    slots = [slot for some in edits for slot in some or ()]
    truth = truth_of(one.scene, slots, np.asarray(image), judges)
    why = tuple(name for name in Truth.__dataclass_fields__ if getattr(truth, name))
    return Judged(BROKEN if truth.broken else VALID, why, checks, kept)


@lru_cache(maxsize=1)
def _judges() -> Any:
    from demo.judges import Judges
    from demo.mask_checker import MaskChecker

    return Judges(), MaskChecker(load_profile("demo"))


def one_thread() -> None:
    """Of torch, in a process of several."""
    import torch

    torch.set_num_threads(1)


def judge_all(family: Family, cases: Sequence[Made], workers: int) -> list[Judged]:
    """Of all cases, in their order, by so many processes; in this one with one."""
    if workers < 2:
        return [judged(family, one) for one in cases]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=one_thread) as processes:
        return list(processes.map(partial(judged, family), cases, chunksize=20))


def predict(family: Family, weights: Path, files: Sequence[tuple[str, int]]) -> tuple[Floats, tuple[str, ...]]:
    """What the model under test of a family says of images, given by file and the number of their source: as
    `Read.said` has it; and its classes.
    """
    model = ModelUnderTest(UnderTestSettings(source="file", file=str(weights)))
    classes = model.identity.classes
    batches = model.predict_many(partial(_opened, file) for file, _ in files)
    if family == "object":
        rows = [one.probabilities for one in batches if one.probabilities is not None]
        return np.concatenate(rows).astype(np.float64), classes
    mapping = map_classes(SEMANTIC_CLASSES, classes, "segmentation")
    counts, place = [], 0
    names = dict(enumerate(SEMANTIC_CLASSES))
    for batch in batches:
        for one in batch.predictions:
            mask = world.mask_of(world.source(family, files[place][1]).scene)
            counts.append(count_pixels(mapping, NamedMask(mask, names), one))
            place += 1
    return np.stack(counts), classes


def count_pixels(mapping: ClassMap, mask: NamedMask, prediction: Prediction) -> Floats:
    """How many pixels of a mask are said to be what, (groups, groups + 1) in the order of `mapping.groups`, measured at
    the size of the mask. Raises ValueError for a mask with a class that the map does not know.
    """
    true, said = groups_of_numbers(mapping, mask.classes)
    seen = fitted_map(prediction, mask.image.size)
    return confusion(true[np.asarray(mask.image)], said[seen], len(mapping.groups))


def _opened(file: str) -> Image.Image:
    with Image.open(file) as opened:
        return opened.convert("RGB")


def read(family: Family, weights: Path, data: Path, made: Sequence[Made], workers: int) -> Read:
    """Read all images of a family, whose sources lie in the folder `data`, with the model under test."""
    cases = tuple(one for one in made if not one.control and len(one.told.edits) == 1)
    controls = tuple(one for one in made if one.control)
    numbers = sorted({one.source for one in made})
    place = {number: at for at, number in enumerate(numbers)}
    sources = tuple(world.source(family, number) for number in numbers)
    groups: tuple[list[tuple[str, int]], ...] = (
        [(str(data / one.key), one.number) for one in sources],
        [(one.image, one.source) for one in cases],
        [(one.image, one.source) for one in controls],
    )
    said, classes = predict(family, weights, [file for group in groups for file in group])
    ends = np.cumsum([len(group) for group in groups])
    found = judge_all(family, cases, workers)
    names = tuple(sorted({name for one in found for name in one.checks}))
    return Read(
        family,
        weights,
        sources,
        tuple(replace(one, source=place[one.source]) for one in cases),
        tuple(replace(one, source=place[one.source]) for one in controls),
        classes,
        (said[: ends[0]], said[ends[0] : ends[1]], said[ends[1] :]),
        np.array([one.truth for one in found], np.int8),
        tuple(one.why for one in found),
        names,
        np.array([[one.checks.get(name, np.nan) for name in names] for one in found]),
        np.array([one.kept for one in found], bool),
    )
