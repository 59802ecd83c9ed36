"""Collect what is known about generated images: predictions of models under test, results of checks, and the truth.

The scene tells how its picture should look after the edit. Independent judge models (`demo.check_truth`) compare the
image with that. The truth is only as good as these judges. The truth of edits that the drawn world lacks is unknown.
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
"""Words that the judges can recognise, by edit type."""
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Read:
    """Everything known about the images of one task. Sources are numbered from 0. A case is a test case."""

    family: Family
    weights: Path
    """Weights of the model under test."""
    sources: tuple[Source, ...]
    cases: tuple[Made, ...]
    controls: tuple[Made, ...]
    classes: tuple[str, ...]
    """Class names of the model under test."""
    said: tuple[Floats, Floats, Floats]
    """Predictions for sources, cases and controls: a classifier's probabilities (images, classes), or a segmenter's
    pixel counts by true and predicted class (images, classes, classes + 1)."""
    truth: NDArray[np.int8]
    """`VALID`, `BROKEN` or `CANNOT_TELL` for each case."""
    why: tuple[tuple[str, ...], ...]
    """Names of each case's defects. They are the reasons why it is broken."""
    checks: tuple[str, ...]
    """Names of the checks."""
    measured: Floats
    """Values that the checks measured, (cases, checks). NaN where a check could not tell."""
    kept: NDArray[np.bool_]
    """True for each case whose mask still fits, according to another segmenter. False if that was not checked."""

    @property
    def of_case(self) -> Numbers:
        """Number of each case's source."""
        return np.array([one.source for one in self.cases], np.int64)

    @property
    def of_control(self) -> Numbers:
        """Number of each reconstruction's source."""
        return np.array([one.source for one in self.controls], np.int64)

    @property
    def edit_types(self) -> tuple[str, ...]:
        """Edit type of each case."""
        return tuple(one.counterfactual.edits[0].edit_type for one in self.cases)

    @property
    def alternatives(self) -> tuple[str, ...]:
        """New word of each case's edit, with synonyms replaced by the standard word (`canonical`)."""
        return tuple(canonical(one.counterfactual.edits[0].alternative) for one in self.cases)

    @property
    def label(self) -> Numbers:
        """Index in `OBJECT_CLASSES` of each source's label."""
        return np.array([OBJECT_CLASSES.index(one.scene.label) for one in self.sources], np.int64)

    @property
    def mapping(self) -> ClassMap:
        """Map from the labels of the data set to the classes of the model."""
        if self.family == "object":
            return map_classes(OBJECT_CLASSES, self.classes)
        return map_classes(SEMANTIC_CLASSES, self.classes, "segmentation")

    def answers(self) -> tuple[tuple[Answers, Floats], ...]:
        """Return a classifier's answers to sources, cases and controls, each with the true classes' probabilities."""
        found = []
        places = (np.arange(len(self.sources)), self.of_case, self.of_control)
        for rows, own in zip(self.said, places, strict=True):
            found.append(answers_of(self.mapping, self.label[own], own, rows.argmax(axis=1), rows))
        return tuple(found)

    def pixels(self) -> tuple[Pixels, Pixels, Pixels]:
        """Return a segmenter's pixel counts on sources, cases and reconstructions."""
        first, cases, controls = self.said
        return (
            Pixels(np.arange(len(self.sources)), first),
            Pixels(self.of_case, cases),
            Pixels(self.of_control, controls),
        )


@dataclass(frozen=True)
class Judged:
    """The truth about one image, and the value that each check measured."""

    truth: int
    why: tuple[str, ...]
    checks: dict[str, float]
    kept: bool


def slots_of(scene: Scene, caption: str, edit: Edit) -> list[tuple[str, str]] | None:
    """Return the parts of a scene that an edit changes, with their new words. None if no scene can show the edit."""
    words = _WORDS.get(edit.edit_type, ())
    if canonical(edit.keyword) not in words or canonical(edit.alternative) not in words:
        return None
    # `edited_slots` reads only the scene and the caption of a walk.
    walk = Walk(0, scene, Image.new("RGB", (1, 1)), np.zeros((1, 1)), world.task_of(scene), caption)
    slots = edited_slots(walk, edit)
    if edit.edit_type == "background":
        old, new = canonical(edit.keyword), canonical(edit.alternative)
        slots = [(slot, new) for slot, known in PARTS.items() if old in known and new in known]
    return slots or None


def judged(family: Family, made: Made) -> Judged:
    """Judge one image by the drawn world's truth. Each process loads the judge models only once."""
    judges, checker = _judges()
    one = world.source(family, made.source)
    image = Image.open(made.image).convert("RGB")
    checks = {name: value for name, value in made.checks.items() if value is not None}
    mask_kept = False
    if family == "road":
        picture, mask = Image.fromarray(world.picture_of(one.scene)), np.asarray(world.mask_of(one.scene))
        mask_checks = checker.checks(picture, image, mask, made.counterfactual.edits)
        checks |= {check.name: check.value for check in mask_checks if check.value is not None}
        mask_kept = any(check.name == MASK_KEPT and check.passed is True for check in mask_checks)
    edits = [slots_of(one.scene, made.caption, edit) for edit in made.counterfactual.edits]
    if any(slots is None for slots in edits):
        return Judged(CANNOT_TELL, (), checks, mask_kept)
    slots = [slot for some in edits for slot in some or ()]
    truth = truth_of(one.scene, slots, np.asarray(image), judges)
    why = tuple(name for name in Truth.__dataclass_fields__ if getattr(truth, name))
    return Judged(BROKEN if truth.broken else VALID, why, checks, mask_kept)


@lru_cache(maxsize=1)
def _judges() -> Any:
    from demo.judges import Judges
    from demo.mask_checker import MaskChecker

    return Judges(), MaskChecker(load_profile("demo"))


def one_thread() -> None:
    """Limit torch to one thread. Each worker process calls this when it starts."""
    import torch

    torch.set_num_threads(1)


def judge_all(family: Family, cases: Sequence[Made], workers: int) -> list[Judged]:
    """Judge all cases and return the results in the same order. Use `workers` processes, or only the calling process
    if `workers` is below 2.
    """
    if workers < 2:
        return [judged(family, one) for one in cases]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=one_thread) as processes:
        return list(processes.map(partial(judged, family), cases, chunksize=20))


def predict(family: Family, weights: Path, files: Sequence[tuple[str, int]]) -> tuple[Floats, tuple[str, ...]]:
    """Return a model's predictions, shaped as in `Read.said`, and its classes. `files` holds each image file with the
    number of its source.
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
    """Count the pixels of a mask by true and predicted group of classes, (groups, groups + 1), at the size of the mask.
    Groups have the order of `mapping.groups`. The last column counts pixels predicted as a class of no group.
    Raises ValueError if the mask has a class that the map does not know.
    """
    true, predicted = groups_of_numbers(mapping, mask.classes)
    seen = fitted_map(prediction, mask.image.size)
    return confusion(true[np.asarray(mask.image)], predicted[seen], len(mapping.groups))


def _opened(file: str) -> Image.Image:
    with Image.open(file) as opened:
        return opened.convert("RGB")


def read(family: Family, weights: Path, data: Path, made: Sequence[Made], workers: int) -> Read:
    """Predict, check and judge all images of one task. The folder `data` holds its sources."""
    cases = tuple(one for one in made if not one.control and len(one.counterfactual.edits) == 1)
    controls = tuple(one for one in made if one.control)
    numbers = sorted({one.source for one in made})
    place = {number: at for at, number in enumerate(numbers)}
    sources = tuple(world.source(family, number) for number in numbers)
    groups: tuple[list[tuple[str, int]], ...] = (
        [(str(data / one.key), one.number) for one in sources],
        [(one.image, one.source) for one in cases],
        [(one.image, one.source) for one in controls],
    )
    predictions, classes = predict(family, weights, [file for group in groups for file in group])
    ends = np.cumsum([len(group) for group in groups])
    judgements = judge_all(family, cases, workers)
    names = tuple(sorted({name for one in judgements for name in one.checks}))
    return Read(
        family,
        weights,
        sources,
        tuple(replace(one, source=place[one.source]) for one in cases),
        tuple(replace(one, source=place[one.source]) for one in controls),
        classes,
        (predictions[: ends[0]], predictions[ends[0] : ends[1]], predictions[ends[1] :]),
        np.array([one.truth for one in judgements], np.int8),
        tuple(one.why for one in judgements),
        names,
        np.array([[one.checks.get(name, np.nan) for name in names] for one in judgements]),
        np.array([one.kept for one in judgements], bool),
    )
