"""RQ3: gain from retraining with generated images, compared with other trainings of equally many updates.

Sources are split before anything is learnt, and images made from a source stay in its split. Training starts from the
weights under test. No arm learns from a weather edit: that is the unseen edit type.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.evaluation_results import AUGMENTED, CONTROL, ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL, ArmRow
from core.figures import Figure, Floats
from core.perceptual_hashes import near_any, perceptual_hash
from core.settings import UnderTestSettings
from demo.scene import OBJECT_CLASSES, Scene
from evaluation.retraining.arm_statistics import (
    ARMS,
    BY_VOTES,
    CONTROLS,
    GENERATED,
    RANKED,
    Arms,
    Measured,
    WonBack,
)
from evaluation.retraining.data_split import SIDES, Side
from evaluation.retraining.stored_training import Training, learnt, right_of
from evaluation.retraining.training import Arm, Augmentation, Example, TrainingRecipe
from evaluation.segmentation import mean_iou
from experiments.paper.prioritising import doubtful_first, ours
from experiments.paper.reading import CANNOT_TELL, VALID, Numbers, Read, one_thread
from experiments.paper.shared_images import Pictured, Shared, shared
from experiments.paper.size import Family, Size
from experiments.paper.under_test import KINDS
from experiments.paper.validity import sides_of, votes_on
from experiments.paper.world import mask_file, side

UNSEEN = "weather"
"""The edit type whose images no training uses. It tests edits that were never seen."""
_BATCH: Mapping[Family, int] = {"object": 16, "road": 8}
# Optimiser and rates were set on runs with 60 and 24 other sources, as the report says.
_WAYS: Mapping[Family, Literal["sgd", "adam"]] = {"object": "adam", "road": "sgd"}
_RATE: Mapping[Family, float] = {"object": 0.0003, "road": 0.01}
_LOOKS = 4
_MOST_TUNE = 100
"""Maximum number of generated images in the tuning set, which also has the originals."""


@dataclass(frozen=True)
class Retraining:
    """Results of RQ3 for one task. An arm is a way to train. Accuracy is the share of right images or pixels."""

    rows: tuple[ArmRow, ...]
    won_back: tuple[WonBack, ...]
    beside: Mapping[tuple[str, str, str], Figure]
    """Accuracy of an arm minus accuracy of another arm, by both names and the name of the test set."""
    miou: Mapping[tuple[str, str], float]
    """A segmenter's mIoU, averaged over training seeds, by arm and test set."""
    examples: Mapping[str, int]
    """Number of images that each arm (way to train) learns from."""
    images: Mapping[str, int]
    """Number of images in each test set."""
    shared: tuple[Shared, ...]
    """Pairs of equal or similar images in different splits. There must be none."""
    alike: int
    """Number of images left out of training or tuning, since an image of the tuning or test split looks like them."""
    seeds: int
    recipe: TrainingRecipe

    def row(self, arm: str, on: str) -> ArmRow:
        """Return the results of one arm on one test set."""
        return next(one for one in self.rows if (one.arm, one.set) == (arm, on))


@dataclass(frozen=True, eq=False)
class Parts:
    """All images of one task with their splits, ready as training examples."""

    found: Read
    data: Path
    shift: Sequence[tuple[Path, Scene]]

    @cached_property
    def pictured(self) -> Mapping[Side, Mapping[Path, Pictured]]:
        """Originals, test cases and reconstructions, by split and then by file."""
        by_side: dict[Side, dict[Path, Pictured]] = {one: {} for one in SIDES}
        files = [(one, self.data / one.key) for one in self.found.sources]
        files += [
            (self.found.sources[one.source], Path(one.image)) for one in (*self.found.cases, *self.found.controls)
        ]
        for source, file in files:
            by_side[side(source)][file] = _pictured(file, source.number)
        return by_side

    @cached_property
    def alike(self) -> frozenset[Path]:
        """Files of images that look like an image of a later split (train, tune, test). Training and tuning leave them
        out, so that the test keeps all its images.
        """
        later, similar = list[int](), set[Path]()
        for one in reversed(SIDES):
            looks = {file: picture.look for file, picture in self.pictured[one].items()}
            near = near_any(list(looks.values()), later)
            similar |= {file for file, too in zip(looks, near.tolist(), strict=True) if too}
            later += looks.values()
        return frozenset(similar)

    def original(self, where: Side) -> tuple[list[Example], list[int]]:
        """Return the source images of the split `where` as examples, with the numbers of their sources."""
        rows = [at for at, one in enumerate(self.found.sources) if side(one) == where]
        rows = [at for at in rows if self.data / self.found.sources[at].key not in self.alike]
        return [self._example(self.data / self.found.sources[at].key, at) for at in rows], rows

    def made(self, rows: Numbers) -> tuple[list[Example], list[int]]:
        """Return the test cases `rows` as examples, with the numbers of their sources."""
        cases = [one for one in (self.found.cases[row] for row in rows) if Path(one.image) not in self.alike]
        return [self._example(Path(one.image), one.source) for one in cases], [one.source for one in cases]

    def controls(self, where: Side) -> list[Example]:
        """Return the reconstructions (sources redrawn without an edit) of the split `where` as examples."""
        controls = [one for one in self.found.controls if side(self.found.sources[one.source]) == where]
        return [self._example(Path(one.image), one.source) for one in controls if Path(one.image) not in self.alike]

    def natural(self) -> tuple[list[Example], list[int]]:
        """Return the examples of the shift set (fog and night), with one source number each."""
        examples = []
        for file, scene in self.shift:
            target: int | Path = OBJECT_CLASSES.index(scene.label) if self.found.family == "object" else mask_file(file)
            examples.append(Example(file, target))
        return examples, list(range(len(examples)))

    def _example(self, image: Path, source: int) -> Example:
        one = self.found.sources[source]
        if self.found.family == "object":
            return Example(image, OBJECT_CLASSES.index(one.scene.label))
        return Example(image, self.data / one.key.replace("images", "masks"))

    @property
    def rows(self) -> dict[tuple[Side, bool], Numbers]:
        """Indices of the test cases by (split, unseen). `unseen` is True if no training sees the edit type."""
        sides, unseen = np.array(sides_of(self.found)), np.array(self.found.edit_types) == UNSEEN
        return {(one, new): np.flatnonzero((sides == one) & (unseen == new)) for one in SIDES for new in (True, False)}


def retraining(parts: Parts, size: Size, folder: Path, workers: int) -> Retraining:
    """Train and measure all arms (ways to train) for one task. Finished trainings are reused."""
    family, found = parts.found.family, parts.found
    recipe = TrainingRecipe(
        "short fine-tuning", size.updates, _BATCH[family], _WAYS[family], _RATE[family], weight_decay=1e-4, looks=_LOOKS
    )
    arms, sets, sources = arms_of(parts), dict[str, tuple[Example, ...]](), dict[str, list[int]]()
    rows, valid = parts.rows, found.truth == VALID
    for name, (examples, own) in {
        ON_ORIGINAL: parts.original("test"),
        ON_GENERATED: parts.made(_where(rows["test", False], valid)),
        ON_UNSEEN: parts.made(_where(rows["test", True], valid)),
        ON_SHIFT: parts.natural(),
    }.items():
        if examples:
            sets[name], sources[name] = tuple(examples), own
    tune = (
        *parts.original("tune")[0],
        *parts.made(rows["tune", False][:: max(1, len(rows["tune", False]) // _MOST_TUNE)])[0],
    )
    model = UnderTestSettings(source="file", file=str(found.weights))
    trainings = {
        (arm.name, seed): Training(
            model, arm, seed, recipe, tune, sets, folder / family / f"{ARMS.index(arm.name)}-{seed}"
        )
        for arm in arms
        for seed in range(size.seeds)
    }
    predictions = _all(trainings, workers)
    kind = KINDS[family]
    measured = {
        arm.name: {
            name: Measured(
                np.array(sources[name], np.int64),
                np.stack([right_of(kind, predictions[arm.name, seed][name]) for seed in range(size.seeds)]),
            )
            for name in sets
        }
        for arm in arms
    }
    compared = Arms(measured, ORIGINAL)
    return Retraining(
        compared.rows(),
        compared.won_back(ON_ORIGINAL, ON_GENERATED) if ON_GENERATED in sets and ON_ORIGINAL in sets else (),
        {
            (row.arm, control, row.set): row.gain
            for control in CONTROLS
            for row in Arms(measured, control).rows()
            if row.arm != control
        },
        _miou(predictions, sets, size.seeds) if kind == "segmentation" else {},
        {arm.name: len(arm.examples) for arm in arms},
        {name: len(own) for name, own in sets.items()},
        shared_images(parts),
        len(parts.alike),
        size.seeds,
        recipe,
    )


def arms_of(parts: Parts) -> tuple[Arm, ...]:
    """Return all arms (ways to train) with their images, which come from the train split."""
    found, rows = parts.found, parts.rows["train", False]
    originals, _ = parts.original("train")
    accepted = rows[votes_on(found, rows, seed=7).valid & (found.truth[rows] != CANNOT_TELL)]
    order = ours(found, rows) if found.family == "object" else doubtful_first(found, rows)
    learnt_from: Mapping[str, Sequence[Example]] = {
        ORIGINAL: (),
        AUGMENTED: (),
        CONTROL: parts.controls("train"),
        GENERATED: parts.made(rows)[0],
        BY_VOTES: parts.made(accepted)[0],
        RANKED: parts.made(order[: (len(order) + 1) // 2])[0],
    }

    def way(name: str) -> Augmentation:
        # A road's masks must stay in place: there an arm with any augmentation jitters colours.
        return "randaugment" if name == AUGMENTED else ""

    return tuple(Arm(name, (*originals, *more), way(name)) for name, more in learnt_from.items())


def shared_images(parts: Parts) -> tuple[Shared, ...]:
    """Return pairs of equal or similar pictures that are in different splits, though no pair should exist."""
    used = {
        one: [picture for file, picture in own.items() if file not in parts.alike]
        for one, own in parts.pictured.items()
    }
    return tuple(shared(used))


def _pictured(file: Path, source: int) -> Pictured:
    data = file.read_bytes()
    with Image.open(file) as image:
        look = perceptual_hash(image)
    return Pictured(file.name, f"{source}", hashlib.sha256(data).hexdigest(), look)


def _where(rows: Numbers, selected: NDArray[np.bool_]) -> Numbers:
    return rows[selected[rows]]


def _all(trainings: Mapping[tuple[str, int], Training], workers: int) -> dict[tuple[str, int], dict[str, Floats]]:
    if workers < 2:
        return {key: learnt(one) for key, one in trainings.items()}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=one_thread) as processes:
        running = {processes.submit(learnt, one): key for key, one in trainings.items()}
        for number, ended in enumerate(as_completed(running), 1):
            ended.result()
            if number % 5 == 0 or number == len(running):
                print(f"  {number} of {len(running)} trainings are done", flush=True)
        return {key: ended.result() for ended, key in running.items()}


def _miou(
    predictions: Mapping[tuple[str, int], Mapping[str, Floats]], sets: Mapping[str, Sequence[Example]], seeds: int
) -> dict[tuple[str, str], float]:
    return {
        (arm, name): float(np.mean([mean_iou(predictions[arm, seed][name].sum(axis=0)) for seed in range(seeds)]))
        for arm in ARMS
        for name in sets
    }
