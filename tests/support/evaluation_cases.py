"""A small workspace of drawn scenes for the tests of evaluations: sources, test cases with edits, reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.lineage import DEFAULT_RECIPE, Lineage, TestCase
from core.masks import NamedMask
from core.predictions import Prediction
from core.settings import UnderTestSettings
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, TaskKind, Trace
from demo.language import caption
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, TIMES, WEATHERS, Scene, random_scene
from evaluation.class_mapping import ClassMap
from evaluation.segmentation import Pixels
from experiments.paper.reading import count_pixels
from pipeline.methods.controlnet import CONTROL_IMAGE, ControlNetSettings
from pipeline.profiles.profile import load_profile
from pipeline.recipes import RECONSTRUCTION
from storage.workspace import Workspace
from tests.support.drawn import PIXELS


def model_of(kind: TaskKind) -> UnderTestSettings:
    """The model under test of the demo."""
    wanted = load_profile("demo").model_under_test.of(kind)
    assert wanted is not None
    return wanted


def drawn(scene: Scene) -> Image.Image:
    return Image.fromarray(render(scene, PIXELS)[0])


def pixels_of(
    mapping: ClassMap, masks: Sequence[NamedMask], predictions: Sequence[Prediction], source: NDArray[np.int64]
) -> Pixels:
    """The counts of images with their masks, one by one."""
    size = len(mapping.groups)
    counts = [count_pixels(mapping, mask, one) for mask, one in zip(masks, predictions, strict=True)]
    return Pixels(source, np.stack(counts) if counts else np.zeros((0, size, size + 1)))


def fill(
    workspace: Workspace, scenes: int, road: bool = False, controls: bool = True, seed: int = 5, fair: bool = False
) -> list[str]:
    """Adds a run for each scene, with a test case of each other weather and time of day; gives the ids of the runs.
    `fair`: all scenes are of sunny days, which the models of the demo know.
    """
    sources = [random_scene(seed * 1000 + number, "road" if road else "object") for number in range(scenes)]
    if fair:
        sources = [scene.with_look(weather="sunny", time="day") for scene in sources]
    return [_run(workspace, scene, road, controls) for scene in sources]


def _run(workspace: Workspace, scene: Scene, road: bool, controls: bool) -> str:
    task = Task("segmentation", protected=PROTECTED_ROAD_CLASSES) if road else Task("classification", scene.label)
    run = workspace.runs.create(drawn(scene), task, "demo", f"Scene {scene.seed}", {})
    said = StageValue(Caption(caption(scene)), Trace("model", model="demo/blip"), "k")
    workspace.runs.append_value(run, "caption", said)
    if road:
        mask = Image.fromarray(render(scene, PIXELS)[1])
        workspace.runs.set_mask(run, mask, dict(enumerate(SEMANTIC_CLASSES)))
    look = scene.look
    changed = [
        (scene.with_look(weather=one), (Edit(look.weather, one, "weather"),)) for one in WEATHERS if one != look.weather
    ]
    changed += [
        (scene.with_look(time=one), (Edit(look.time, one, "time of day"),)) for one in TIMES if one != look.time
    ]
    cases = [_case(task, one, edits, number) for number, (one, edits) in enumerate(changed)]
    if controls:
        again = drawn(scene).point(lambda value: min(255, value + 2))  # a shade lighter, and nothing else
        cases.append(replace(_case(task, scene, (), 99, RECONSTRUCTION.name), image=again))
    workspace.test_cases.extend(run, None, cases)
    return run


def _case(task: Task, scene: Scene, edits: Sequence[Edit], seed: int, recipe: str = DEFAULT_RECIPE) -> TestCase:
    told = CounterfactualCaption(caption(scene), tuple(edits))
    lineage = Lineage(
        *(told, seed, "controlnet", "demo/sd", told.text, "", ControlNetSettings(), 0.1), recipe=recipe, task=task
    )
    return TestCase(drawn(scene), lineage, {CONTROL_IMAGE: Image.new("RGB", (PIXELS, PIXELS))}, ())
