"""Compare recipes on the same drawn sources: `python -m experiments.compare_recipes --results FILE`.

Each recipe takes every source through its own stages with the demo profile, and draws its own control set. The drawn
world says what each image should show, judge models read what it shows, and the demo's models under test predict on it.
The file gets a line per source, so that a stopped run can resume. `--out FILE` writes the report as Markdown.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from core.errors import UserError
from core.figures import Floats
from core.lineage import TestCase
from core.types import Task
from demo.check_truth import truth_of
from demo.data_set import fair_scene
from demo.judges import Judges
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, Scene
from evaluation.by_source import MeansOfSources, Unseen
from evaluation.models import ModelUnderTest
from evaluation.outcomes import FOUND
from evaluation.report import with_interval
from experiments.demo_report.speed import processor_seconds
from experiments.demo_report.walk import PLANNED, Walk, can_be_judged, edited_slots
from experiments.resumable import measure_each
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import recipe_of
from pipeline.request import MemoryStore, Request

FIRST_SEED = 2_700_000
"""First seed of the scenes. Neither training nor the calibration of checks uses these seeds."""
RECIPES = ("dillema", "lance")
FIGURES = {
    "valid": "valid: the edit shows and nothing is lost",
    "shows": "the edit shows",
    "wrong": "the model under test is wrong",
    "excess": "wrong beyond the control set",
    "valid failure": "valid, and wrong where the source is right",
}
Images = list[dict[str, Any]]


class ModelsUnderTest:
    """The demo's classifier and segmenter."""

    def __init__(self, profile: Profile) -> None:
        models = profile.under_test()
        self._models: dict[str, ModelUnderTest] = {
            "classification": ModelUnderTest(models["classifier under test"]),
            "segmentation": ModelUnderTest(models["segmenter under test"]),
        }

    def wrong(self, task: Task, image: Image.Image, mask: np.ndarray) -> bool:
        """Return True if the label is not the likeliest class, or a protected class of the mask has an IoU
        below 0.5.
        """
        if task.kind == "classification":
            return not self.accuracy(task, image, mask)
        seen = self._class_names(task, image)
        for name in task.protected:
            in_mask, predicted = mask == SEMANTIC_CLASSES.index(name), seen == name
            if in_mask.any() and (in_mask & predicted).sum() < FOUND * (in_mask | predicted).sum():
                return True
        return False

    def accuracy(self, task: Task, image: Image.Image, mask: np.ndarray) -> float:
        """Return 1 if the label is the likeliest class, else 0. For a mask return the share of its pixels that are
        right.
        """
        if task.kind == "classification":
            return float(self._models[task.kind].predict(image).top[0].label == task.label)
        return float((self._class_names(task, image) == np.array(SEMANTIC_CLASSES)[mask]).mean())

    def _class_names(self, task: Task, image: Image.Image) -> np.ndarray:
        """Return the name of the class of each pixel."""
        prediction = self._models[task.kind].predict(image)
        seen = Image.open(io.BytesIO(prediction.class_map)).resize(image.size, Image.Resampling.NEAREST)
        return np.array(prediction.classes)[np.asarray(seen)]


def source(number: int, first_seed: int = FIRST_SEED) -> tuple[Walk, Scene]:
    """Return a scene of a fair day, since the models under test learnt from fair days. Objects and roads take turns."""
    scene = fair_scene(first_seed + number, "road" if number % 2 else "object", number // 2)
    pixels, mask = render(scene)
    road = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
    task = road if scene.family == "road" else Task("classification", label=scene.label)
    return Walk(number, scene, Image.fromarray(pixels), mask, task), scene


def made(driver: Driver, recipe: str, walk: Walk) -> tuple[list[TestCase], MemoryStore, float]:
    """Return the images of a source, the store of the run, and the CPU seconds of text, inversion and drawing."""
    own, begun, store = recipe_of(recipe), processor_seconds(), MemoryStore(walk.image)
    try:
        driver.run(Request(walk.task, own.settings_in(driver.profile), recipe, walk.number), store)
    except UserError:  # its captions are unreadable, or none passes its checks
        return [], store, processor_seconds() - begun
    return store.cases, store, processor_seconds() - begun


def measured(driver: Driver, walk: Walk, scene: Scene, judges: Judges, models: ModelsUnderTest) -> dict[str, Any]:
    """Return one line of the results: a source with its images by each recipe."""
    known = not models.wrong(walk.task, walk.image, walk.mask)
    line: dict[str, Any] = {"number": walk.number, "family": scene.family, "right on the source": known}
    for recipe in RECIPES:
        cases, store, seconds = made(driver, recipe, walk)
        controls, _, _ = made(driver, recipe_of(recipe).control, walk)
        images: Images = []
        for case in cases:
            walk.caption = store.held["caption"].value.text
            edits = case.lineage.counterfactual.edits
            slots = [slot for edit in edits if can_be_judged(edit) for slot in edited_slots(walk, edit)]
            if not slots:
                continue  # nobody could judge it; counted by `drawn`
            truth = truth_of(scene, slots, np.asarray(case.image), judges)
            wrong = models.wrong(walk.task, case.image, walk.mask)
            findings = {"valid": not truth.broken, "shows": not truth.edit_missing, "wrong": wrong}
            failure = wrong and known and not truth.broken
            images.append({"kind": edits[0].edit_type, **findings, "valid failure": failure})
        line[recipe] = {
            "images": images,
            "drawn": len(cases),
            "seconds": seconds,
            "control": [models.wrong(walk.task, case.image, walk.mask) for case in controls],
        }
    return line


def report(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures of both recipes and their difference as Markdown. Each source has the same weight."""
    first, second = (recipe_of(name).title for name in RECIPES)
    text = [
        f"Sources: {len(lines)}. Intervals are 95 % over sources; differences are between images of one source.",
        "",
        f"| images | figure | {first} | {second} | {second} less {first} | sources |",
        "|---" * 6 + "|",
    ]
    for family in ("road", "object"):
        for kind in (None, *PLANNED):
            chosen = [line for line in lines if line["family"] == family]
            for name, words in FIGURES.items():
                rows = np.array(list(_rows(chosen, kind, name)))
                if not len(rows):
                    continue
                least = -1.0 if name == "excess" else 0.0
                means = MeansOfSources(rows, None, Unseen(np.full(2, least), np.ones(2), np.arange(2)))
                cells = [with_interval(means.figure(partial(_column, place), len(rows))) for place in (0, 1)]
                apart = with_interval(means.figure(_apart, len(rows)), points=True)
                text.append(
                    f"| {family}, {kind or 'all edits'} | {words} | {cells[0]} | {cells[1]} | {apart} | {len(rows)} |"
                )
    text += ["", f"| | {first} | {second} |", "|---|---|---|"]
    for family in ("road", "object"):
        chosen = [line for line in lines if line["family"] == family]
        for words, above, below, times in (
            (f"{family}: valid failures per 100 images", "valid failure", "images", 100.0),
            (f"{family}: valid failures per minute of one core", "valid failure", "seconds", 60.0),
            (f"{family}: seconds of one core per image", "seconds", "images", 1.0),
        ):
            cells = [_per(chosen, recipe, above, below, times) for recipe in RECIPES]
            text.append(f"| {words} | {cells[0]} | {cells[1]} |")
    for recipe in RECIPES:
        drawn = sum(line[recipe]["drawn"] for line in lines)
        seen = sum(len(line[recipe]["images"]) for line in lines)
        without = sum(not line[recipe]["drawn"] for line in lines)
        text += [
            "",
            f"{recipe_of(recipe).title}: {drawn} images; {drawn - seen} of them have an edit that the world "
            f"cannot judge and are left out; {without} sources have no image.",
        ]
    return "\n".join(text)


def _rows(lines: Sequence[Mapping[str, Any]], kind: str | None, name: str) -> Iterator[list[float]]:
    """Yield one row for each source with images of an edit type by both recipes: the figure `name` by recipe."""
    for line in lines:
        row = []
        for recipe in RECIPES:
            images = [image for image in line[recipe]["images"] if kind in (None, image["kind"])]
            if images and name == "excess":
                control = line[recipe]["control"]
                row += [np.mean([image["wrong"] for image in images]) - np.mean(control)] if control else []
            elif images:
                row.append(np.mean([image[name] for image in images]))
        if len(row) == len(RECIPES):
            yield [float(one) for one in row]


def _per(lines: Sequence[Mapping[str, Any]], recipe: str, above: str, below: str, times: float) -> str:
    """Return a ratio of totals, with an interval from a bootstrap over sources (Efron 1979)."""

    def total(line: Mapping[str, Any], name: str) -> float:
        if name == "valid failure":
            return float(sum(image[name] for image in line[recipe]["images"]))
        return float(line[recipe]["seconds"] if name == "seconds" else line[recipe]["drawn"])

    pairs = np.array([[total(line, above), total(line, below)] for line in lines])
    drawn = pairs[np.random.default_rng(0).integers(0, len(pairs), (4000, len(pairs)))].sum(1)
    whole = pairs.sum(0)
    if not whole[1]:
        return "no image"
    low, high = np.quantile(times * drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    return f"{times * whole[0] / whole[1]:.2f} ({low:.2f} to {high:.2f})"


def _column(place: int, means: Floats) -> Floats:
    return means[..., place]


def _apart(means: Floats) -> Floats:
    return means[..., 1] - means[..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.compare_recipes")
    parser.add_argument("--results", type=Path, required=True, help="file of the results, one line per source")
    parser.add_argument("--sources", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file of the report")
    options = parser.parse_args()
    profile = load_profile("demo")
    driver, judges, models = Driver(profile, load_models(profile)), Judges(), ModelsUnderTest(profile)

    def measure(number: int) -> dict[str, Any]:
        walk, scene = source(number)
        return measured(driver, walk, scene, judges, models)

    text = report(measure_each({(number,): number for number in range(options.sources)}, measure, options.results))
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
