"""Compare recipes on the same drawn sources: `python -m experiments.compare_recipes --results FILE`.

Each recipe makes test cases of every source with the demo profile, and also redraws the source without an edit. Models
that serve as judges check that an image shows its drawn scene with the edits. The demo's models under test predict the
image. FILE gets a line per source, so that a stopped run can resume. `--out` writes the report as Markdown.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
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
from evaluation.methods import MethodImages, compare_methods
from evaluation.models import ModelUnderTest
from evaluation.outcomes import FOUND
from experiments.demo_report.speed import processor_seconds
from experiments.demo_report.walk import PLANNED, Walk, can_be_judged, edited_slots
from experiments.resumable import measure_each
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import recipe_of
from pipeline.request import MemoryStore, Request
from services.evaluation.methods import method_rows

FIRST_SEED = 2_700_000
"""First seed of the scenes. Neither training nor the calibration of checks uses these seeds."""
RECIPES = ("dillema", "lance")
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
        """Return True if the likeliest class is not the label, or if the IoU of a protected class is below 0.5."""
        if task.kind == "classification":
            return not self.accuracy(task, image, mask)
        seen = self._class_names(task, image)
        for name in task.protected:
            in_mask, predicted = mask == SEMANTIC_CLASSES.index(name), seen == name
            if in_mask.any() and (in_mask & predicted).sum() < FOUND * (in_mask | predicted).sum():
                return True
        return False

    def accuracy(self, task: Task, image: Image.Image, mask: np.ndarray) -> float:
        """Return 1 if the likeliest class is the label, else 0. For segmentation, return the share of pixels predicted
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
    """Return the object or road scene `number`, and a `Walk` that holds it. It shows a sunny or cloudy day."""
    scene = fair_scene(first_seed + number, "road" if number % 2 else "object", number // 2)
    pixels, mask = render(scene)
    road = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
    task = road if scene.family == "road" else Task("classification", label=scene.label)
    return Walk(number, scene, Image.fromarray(pixels), mask, task), scene


def made(driver: Driver, recipe: str, walk: Walk) -> tuple[list[TestCase], MemoryStore, float]:
    """Return the images made of a source, the run's store, and the CPU seconds of text stages, inversion, drawing."""
    own, begun, store = recipe_of(recipe), processor_seconds(), MemoryStore(walk.image)
    try:
        driver.run(Request(walk.task, own.settings_in(driver.profile), recipe, walk.number), store)
    except UserError:  # the source's captions are unreadable, or none passes the checks
        return [], store, processor_seconds() - begun
    return store.cases, store, processor_seconds() - begun


def measured(driver: Driver, walk: Walk, scene: Scene, judges: Judges, models: ModelsUnderTest) -> dict[str, Any]:
    """Make the images of a source with each recipe, judge them, and return one line of the results."""
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
                continue  # the judges do not know its words; only `drawn` counts it
            truth = truth_of(scene, slots, np.asarray(case.image), judges)
            wrong = models.wrong(walk.task, case.image, walk.mask)
            findings = {"valid": not truth.broken, "shows": not truth.edit_missing, "wrong": wrong}
            images.append({"kind": edits[0].edit_type, **findings})
        line[recipe] = {
            "images": images,
            "drawn": len(cases),
            "seconds": seconds,
            "control": [models.wrong(walk.task, case.image, walk.mask) for case in controls],
        }
    return line


def report(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown report with the figures of both recipes and their differences."""
    first, second = (recipe_of(name).title for name in RECIPES)
    text = [f"Sources: {len(lines)}. Intervals are 95 % over sources; differences are over the sources of both."]
    for family in ("road", "object"):
        chosen = [line for line in lines if line["family"] == family]
        if not any(line[recipe]["images"] for line in chosen for recipe in RECIPES):
            continue
        for table in compare_methods(*_columns(chosen)):
            heads = f"{family}, {table.edit_type or 'all edits'} | {first} | {second} | {second} less {first}"
            text += ["", f"| {heads} |", "|---" * 4 + "|"]
            for name, values, differences in method_rows(table):
                text.append(f"| {' | '.join([name, *values, *filter(None, differences)])} |")
            text.append(f"| images | {table.images[0]} | {table.images[1]} | |")
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


def _columns(lines: Sequence[Mapping[str, Any]]) -> tuple[MethodImages, Sequence[str], Floats, Floats]:
    """Return the arguments of `compare_methods`. The known validity of each image replaces people's votes."""
    rows = []
    control, seconds = np.full((2, len(RECIPES), len(lines)), np.nan)
    for method, recipe in enumerate(RECIPES):
        for source, line in enumerate(lines):
            own = line[recipe]
            seconds[method, source] = own["seconds"]
            if own["control"]:
                control[method, source] = np.mean(own["control"])
            for image in own["images"]:
                kind = PLANNED.index(image["kind"]) if image["kind"] in PLANNED else -1
                fault = image["wrong"] and line["right on the source"]
                truth = image["valid"], -1, image["shows"], -1, image["wrong"], fault
                rows.append((method, source, kind, -1, *truth))
    return MethodImages(*np.array(rows, np.int64).T), PLANNED, control, seconds


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
