"""A workspace of drawn scenes and their ideal counterfactuals, for pages that show many images.

`python -m tests.support.drawn FOLDER --scenes 200` fills a folder to look at. No model is asked: the results of checks
and of models under test are random.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from core.lineage import Lineage, TestCase
from core.predictions import Guess, Prediction
from core.types import Caption, Check, CounterfactualCaption, Edit, StageValue, Task, Trace
from demo.language import caption
from demo.render import render
from demo.scene import COLOURS, PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, TIMES, WEATHERS, Scene, random_scene
from pipeline.methods.controlnet import CONTROL_IMAGE, ControlNetSettings
from storage.evaluation.predictions import NewPrediction
from storage.workspace import Workspace

MODEL = "demo/drawn-things-classifier"
PIXELS = 160


def fill(workspace: Workspace, scenes: int, variants: int = 6, seed: int = 1, pixels: int = PIXELS) -> None:
    """Add a run with `variants` test cases for each scene. More than half of them are reviewed. A seed repeats its
    images.
    """
    fate = random.Random(seed)
    for number in range(scenes):
        scene = random_scene(seed * 100_000 + number, "object" if number % 3 else "road")
        _run(workspace, fate, scene, variants, pixels)


def _run(workspace: Workspace, fate: random.Random, scene: Scene, variants: int, pixels: int) -> None:
    picture = _picture(scene, pixels)
    road = scene.family == "road"
    task = Task("segmentation", protected=PROTECTED_ROAD_CLASSES) if road else Task("classification", scene.label)
    name = f"{'Street' if road else scene.label.capitalize()} {scene.seed % 100_000}"
    run = workspace.runs.create(picture, task, "demo", name, {})
    text = caption(scene)
    trace = Trace("model", model="demo/blip", prompt="", raw_reply=text, seed=7, seconds=0.2)
    workspace.runs.append_value(run, "caption", StageValue(Caption(text), trace, "k"))
    if road:
        _, mask = render(scene, pixels)
        workspace.runs.set_mask(run, Image.fromarray(mask), dict(enumerate(SEMANTIC_CLASSES)))
    cases = list(_cases(fate, scene, task, variants, pixels))
    numbers = workspace.test_cases.extend(run, None, cases)
    for case_id in numbers:
        chance = fate.random()
        if chance < 0.42:
            workspace.test_cases.review(case_id, "accepted")
        elif chance < 0.55:
            workspace.test_cases.review(case_id, "rejected", fate.choice(("edit does not show", "not realistic")))
    if not road and fate.random() < 0.8:
        read = [workspace.runs.get(run).source_sha]
        read += [workspace.test_cases.get(one).image_sha for one in numbers]
        labels = [scene.label, *(scene.label if fate.random() < 0.7 else "boat" for _ in numbers)]
        workspace.predictions.extend(
            NewPrediction(sha, MODEL, Prediction("classification", MODEL, (Guess(label, 0.8),)))
            for sha, label in zip(read, labels, strict=True)
        )


def _cases(fate: random.Random, scene: Scene, task: Task, variants: int, pixels: int) -> Iterator[TestCase]:
    control = Image.new("RGB", (pixels, pixels))
    for _ in range(variants):
        changed, edits = _changed(fate, scene)
        checks = [
            Check("label seen", (value := round(fate.gauss(0.4, 0.25), 3)) > 0, value, threshold=0.0),
            Check("edges kept", (value := round(min(1.0, fate.gauss(0.75, 0.12)), 3)) > 0.5, value, threshold=0.5),
            Check("edit shows", fate.choice((True, True, True, None, False)), round(fate.gauss(0.2, 0.1), 3)),
        ]
        settings = ControlNetSettings()
        counterfactual = CounterfactualCaption(caption(changed), edits)
        lineage = Lineage(
            counterfactual,
            fate.randrange(10_000),
            "controlnet",
            "demo/sd",
            counterfactual.text,
            "",
            settings,
            0.4,
            task=task,
        )
        yield TestCase(_picture(changed, pixels), lineage, {CONTROL_IMAGE: control}, tuple(checks))


def _changed(fate: random.Random, scene: Scene) -> tuple[Scene, tuple[Edit, ...]]:
    """Return the scene with one or two changes of its look, and the edits."""
    look, edits, changes = scene.look, [], dict[str, object]()
    for kind in fate.sample(("weather", "time of day", "attribute"), fate.choice((1, 1, 2))):
        if kind == "weather":
            changes["weather"] = fate.choice([one for one in WEATHERS if one != look.weather])
            edits.append(Edit(look.weather, str(changes["weather"]), "weather"))
        elif kind == "time of day":
            changes["time"] = fate.choice([one for one in TIMES if one != look.time])
            edits.append(Edit(look.time, str(changes["time"]), "time of day"))
        elif look.colours:
            colour = fate.choice([one for one in COLOURS if one != look.colours[0]])
            changes["colours"] = (colour, *look.colours[1:])
            edits.append(Edit(look.colours[0], colour, "attribute"))
    return scene.with_look(**changes), tuple(edits)


def _picture(scene: Scene, pixels: int) -> Image.Image:
    return Image.fromarray(render(scene, pixels)[0])


def main() -> None:
    """Fill the workspace in a folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.drawn", description="Fills a workspace to look at.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=100)
    options = parser.parse_args()
    with Workspace(options.folder) as workspace:
        fill(workspace, options.scenes)


if __name__ == "__main__":
    main()
