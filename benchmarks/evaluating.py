"""Time from a click to the figures of an evaluation of 125,000 test cases, whose predictions are stored. The models are
a classifier with a thousand classes and a segmenter with a dozen.

`python -m benchmarks.evaluating` runs this alone. Making the workspaces takes minutes and 1 GB of disk.
"""

from __future__ import annotations

import gc
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sqlite_utils
from numpy.typing import NDArray

from benchmarks.catalogue import CLASSES, made_apart, prepared
from benchmarks.figures import Figure, reported
from core.image_filter import Facet, ImageFilter
from core.model_identity import ModelIdentity, Preprocessing
from core.predictions import Doubt, Guess, Prediction
from core.settings import UnderTestSettings
from core.studies import Question, Rules
from core.types import EDIT_TYPES, Task
from pipeline.profiles.profile import load_profile
from services.evaluation.predicting import model_key
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import read_cases
from services.evaluation.types import EvaluationQuestion, Subject
from storage.curation.decisions import Target
from storage.engine.rows import pack_value
from storage.evaluation.models_under_test import PIXELS, NewPixelCount
from storage.evaluation.predictions import NewPrediction
from storage.workspace import Workspace

SIZE = 125_000
CLICKED, FILTERED, OPENED = 2_000.0, 300.0, 10_000.0
"""Maximum milliseconds: from a click to all figures; for changing the filter after that; and for the first view in a
studio that has just started."""
MODEL_CLASSES = 1_000
TIMES = 8
AT_ONCE = 5_000
JUDGED = 300
"""Number of images that people have judged in a study. The paper's study has the same number of images."""
WANTED = UnderTestSettings(source="timm", name="a model under test")
PIXEL_CLASSES = tuple(f"thing {number}" for number in range(12))
IN_A_MASK, PROTECTED, SIDE = 8, 4, 512
"""Number of classes in a mask, number of protected classes of a task, and side of a mask in pixels."""


def measure(size: int = SIZE) -> list[Figure]:
    """Measure a workspace with a classifier and one with a segmenter, and return their figures."""
    figures = list[Figure]()
    labels = tuple(f"class {number}" for number in range(CLASSES))
    for make, kind, classes in ((made, "classification", labels), (made_of_pixels, "segmentation", PIXEL_CLASSES)):
        with tempfile.TemporaryDirectory() as folder:
            made_apart(make, Path(folder), size)
            with Workspace(Path(folder)) as workspace:
                figures += _measured(workspace, size, kind, classes)
    return figures


def made(folder: Path, size: int) -> None:
    """Make a workspace of `size` test cases with stored predictions of a classifier, which has a thousand classes."""
    prepared(folder, size, apart=True)
    fate = np.random.default_rng(size)
    names = tuple(f"class {number}" for number in range(MODEL_CLASSES))
    identity = ModelIdentity(WANTED.name, "random", "classification", Preprocessing((224, 224)), names)
    with Workspace(folder) as workspace:
        model = workspace.models_under_test.record(model_key(WANTED), identity, WANTED.title, WANTED.model_dump())
        table = workspace.case_columns.table()
        true = dict(zip(table.images.numbers.tolist(), table.task_labels.of(slice(None)), strict=True))
        of_source = dict(zip(table.sources.numbers.tolist(), table.task_labels.of(slice(None)), strict=True))
        images = [(sha, true[number]) for number, sha in enumerate(table.images.values)]
        images += [(sha, of_source[number]) for number, sha in enumerate(table.sources.values)]
        for first in range(0, len(images), AT_ONCE):
            some = images[first : first + AT_ONCE]
            number = np.array([int(label.split()[1]) for _, label in some])
            predicted = np.where(fate.random(len(some)) < 0.7, number, fate.integers(0, CLASSES, len(some)))
            sure = fate.uniform(0.3, 0.9, len(some)).astype(np.float32)
            rows = fate.random((len(some), MODEL_CLASSES), np.float32)
            rows[np.arange(len(some)), predicted] = 0
            rows *= ((1 - sure) / rows.sum(axis=1))[:, None]
            rows[np.arange(len(some)), predicted] = sure
            predictions = [
                NewPrediction(sha, model.key, _guessed(model.key, names[at], float(p)), probabilities=row)
                for (sha, _), at, p, row in zip(some, predicted.tolist(), sure.tolist(), rows, strict=True)
            ]
            workspace.predictions.extend(predictions, model.id)
        workspace._database.write(lambda db: judged(db, fate.choice(len(table), JUDGED, replace=False).tolist()))


def made_of_pixels(folder: Path, size: int) -> None:
    """Make a workspace of `size` test cases for a segmenter, with a mask per run and pixel counts per image."""
    numbered = dict(enumerate(PIXEL_CLASSES))
    around = (*PIXEL_CLASSES, *PIXEL_CLASSES)
    tasks = [Task("segmentation", protected=around[at : at + PROTECTED]) for at in range(len(PIXEL_CLASSES))]
    prepared(folder, size, apart=True, tasks=tasks, mask_classes=numbered)
    fate = np.random.default_rng(size)
    identity = ModelIdentity(WANTED.name, "random", "segmentation", Preprocessing((SIDE, SIDE)), PIXEL_CLASSES)
    with Workspace(folder) as workspace:
        model = workspace.models_under_test.record(model_key(WANTED), identity, WANTED.title, WANTED.model_dump())
        cases = read_cases(workspace, Subject(None, ImageFilter(facets={"kind": ("segmentation",)})))
        mask_of = {
            sha: mask
            for images in cases.all_images
            for sha, (mask, _) in zip(images.shas, images.masks, strict=True)
            if mask
        }
        _counted(workspace, model.key, mask_of, fate)
        checker = load_profile("demo").checks.own_segmenter()
        assert checker is not None
        _counted(workspace, model_key(checker), mask_of, fate)
        workspace._database.write(lambda db: judged(db, fate.choice(len(cases.table), JUDGED, replace=False).tolist()))


def _guessed(model: str, label: str, probability: float) -> Prediction:
    return Prediction("classification", model, (Guess(label, probability),))


def _counted(workspace: Workspace, key: str, mask_of: dict[str, str], fate: np.random.Generator) -> None:
    """Store predictions and random pixel counts of the segmenter `key` for all images in `mask_of`."""
    shas = list(mask_of)
    for first in range(0, len(shas), AT_ONCE):
        some = shas[first : first + AT_ONCE]
        prediction = Prediction("segmentation", key, classes=PIXEL_CLASSES)
        unsure = [Doubt(*one) for one in fate.uniform(0.1, 0.9, (len(some), 2)).tolist()]
        predictions = [NewPrediction(sha, key, prediction, doubt) for sha, doubt in zip(some, unsure, strict=True)]
        workspace.predictions.extend(predictions)
        known = workspace.models_under_test.latest(key)
        counts = [NewPixelCount(known[sha], mask_of[sha], _pixels(fate)) for sha in some]
        workspace.models_under_test.keep_pixel_counts(counts)


def _pixels(fate: np.random.Generator) -> NDArray[Any]:
    """Return random pixel counts of a segmenter. Most pixels are right; the others are predicted as one of three
    classes.
    """
    classes = fate.permutation(len(PIXEL_CLASSES))[:IN_A_MASK]
    share = fate.dirichlet(np.ones(IN_A_MASK)) * SIDE**2
    right = fate.beta(8, 1, IN_A_MASK)
    others = fate.integers(0, len(PIXEL_CLASSES), (IN_A_MASK, 3))
    counts = np.zeros((len(PIXEL_CLASSES), len(PIXEL_CLASSES)))
    counts[classes, classes] += share * right
    np.add.at(counts, (classes[:, None], others), (share * (1 - right) / 3)[:, None])
    mask, predicted = np.nonzero(counts >= 1)
    found = np.zeros(len(mask), PIXELS)
    found["mask"], found["said"], found["pixels"] = mask, predicted, counts[mask, predicted]
    return found


def judged(db: sqlite_utils.Database, rows: Sequence[int]) -> None:
    """Insert a closed study of the images `rows` into the database. Four fifths count as valid. There are no votes."""
    now = "2026-01-01T00:00:00+00:00"
    rules = pack_value(Rules((Question("valid", "Is it valid?", "yes-no", valid=("yes",)),)))
    study = {"id": "s", "name": "Judged", "state": "closed", "rules": rules, "votes": 5, "created": now, "changed": now}
    db.table("studies").insert(study)
    for place, row in enumerate(rows):
        (found,) = db.query("SELECT test_case, image, source FROM catalogue WHERE id = ?", [int(row) + 1])
        content = json.dumps({"test_case": found.pop("test_case"), "classes": [], "edit_types": []})
        item = {"study": "s", "public": f"p{place}", "kind": "item", "place": place, "content": content, "votes": 5}
        outcome = "invalid" if place % 5 == 0 else "valid"
        db.table("study_items").insert({**item, **found, "created": now, "outcome": outcome})


def _measured(workspace: Workspace, size: int, kind: str, classes: Sequence[str]) -> list[Figure]:
    name = f" of a {kind}, {size:,} test cases"
    service = EvaluationService(load_profile("demo"), workspace, lambda _: None)
    everything = Subject(None, ImageFilter(facets={"kind": (kind,)}))

    def look(subject: Subject) -> None:
        service.view(subject)
        service.models(subject)
        service.mapping(EvaluationQuestion(subject, WANTED))

    try:
        opened = _timed(lambda: look(everything))
        gc.freeze()  # the studio does so too before it serves, so that garbage collection skips its modules
        clicked = _timed(lambda: service.evaluate(EvaluationQuestion(everything, WANTED)))
        fate = random.Random(size)
        filtered, decided = [], []
        filters: list[dict[Facet, tuple[str, ...]]] = [{"class": (one,)} for one in fate.sample(classes, TIMES // 2)]
        filters += [{"edit type": (one,)} for one in fate.sample(EDIT_TYPES, TIMES // 2)]
        for facets in filters:
            of_filter = EvaluationQuestion(Subject(None, ImageFilter(facets={"kind": (kind,), **facets})), WANTED)
            filtered.append(_timed(partial(service.evaluate, of_filter)))
        for number in range(TIMES):  # an existing verdict with its reason would change nothing
            workspace.decisions.review(Target((fate.randrange(1, size),)), "rejected", f"reason {number}")
            decided.append(_timed(lambda: service.evaluate(EvaluationQuestion(everything, WANTED))))
    finally:
        service.close()
    return [
        Figure(f"first look at images{name}", (opened,), OPENED),
        Figure(f"from a click to the figures{name}", (clicked,), CLICKED),
        Figure(f"figures of a filter after that{name}", tuple(filtered), FILTERED, share=0.95),
        Figure(f"figures after somebody decided{name}", tuple(decided), CLICKED),
    ]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    return reported(measure(), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    raise SystemExit(main())
