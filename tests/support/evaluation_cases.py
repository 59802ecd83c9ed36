"""A small workspace of drawn scenes for the tests of evaluations: sources, test cases with edits, reconstructions."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.image_filter import ImageFilter
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
from services.evaluation.service import EvaluationService
from services.evaluation.types import EvaluationQuestion, Subject
from storage.workspace import Workspace
from tests.support.made_once import MadeOnce
from tests.support.workspaces import workspace_in

PIXELS = 96
"""Width and height of the scenes in pixels. At this size the demo's models see the whole picture."""
PATIENCE = 600
"""Maximum number of seconds for loading a model and reading the images, on a busy machine."""
READ_OBJECTS, READ_STREETS = 14, 4
"""Numbers of scenes that the demo's models have read. The streets are on fair days."""
FEW = 3, 2
"""Numbers of other weathers and other times of day for each scene to train with, so that there are few images of
both types.
"""


def model_of(kind: TaskKind) -> UnderTestSettings:
    """Return the demo's model under test for a task."""
    settings = load_profile("demo").model_under_test.of(kind)
    assert settings is not None
    return settings


CLASSIFIER, SEGMENTER = model_of("classification"), model_of("segmentation")
OBJECTS = Subject(filter=ImageFilter(facets={"kind": ("classification",)}))
STREETS = Subject(filter=ImageFilter(facets={"kind": ("segmentation",)}))
BIRDS, ROADS = EvaluationQuestion(OBJECTS, CLASSIFIER), EvaluationQuestion(STREETS, SEGMENTER)


def drawn(scene: Scene) -> Image.Image:
    return Image.fromarray(render(scene, PIXELS)[0])


def pixels_of(
    mapping: ClassMap, masks: Sequence[NamedMask], predictions: Sequence[Prediction], source: NDArray[np.int64]
) -> Pixels:
    """Count the pixels of images with their masks, one by one."""
    size = len(mapping.groups)
    counts = [count_pixels(mapping, mask, one) for mask, one in zip(masks, predictions, strict=True)]
    return Pixels(source, np.stack(counts) if counts else np.zeros((0, size, size + 1)))


def fill(
    workspace: Workspace,
    scenes: int,
    road: bool = False,
    controls: bool = True,
    seed: int = 5,
    fair: bool = False,
    label: str = "",
    most: tuple[int, int] = (len(WEATHERS), len(TIMES)),
) -> list[str]:
    """Add a run for each scene, with a test case of each other weather and time of day. Return the ids of the runs.

    `fair` makes all scenes sunny by day, as the demo's models know them. `label` replaces the random labels. `most`
    is the maximum number of other weathers and of other times of day.
    """
    family = "road" if road else "object"
    sources = [random_scene(seed * 1000 + number, family, label or None) for number in range(scenes)]
    if fair:
        sources = [scene.with_look(weather="sunny", time="day") for scene in sources]
    return [_run(workspace, scene, road, controls, most) for scene in sources]


def service_of(workspace: Workspace) -> EvaluationService:
    return EvaluationService(load_profile("demo"), workspace, lambda wanted: None)


def read_all(service: EvaluationService, question: EvaluationQuestion) -> None:
    done = service.work.wait(service.begin(question).id, PATIENCE)
    assert done.state == "done", done.error


def scenes_that_are_read(made_once: MadeOnce, folder: Path) -> Path:
    """Copy a workspace with `READ_OBJECTS` and `READ_STREETS`, read by the models of the demo, to `folder`."""

    def make(at: Path) -> None:
        with workspace_in(at / "workspace") as workspace:
            fill(workspace, READ_OBJECTS)
            fill(workspace, READ_STREETS, road=True, fair=True)
            service = service_of(workspace)
            for question in (BIRDS, ROADS):
                read_all(service, question)
            service.close()

    return Path(shutil.copytree(made_once("scenes-that-are-read", make) / "workspace", folder / "workspace"))


def scenes_to_learn_from(made_once: MadeOnce, folder: Path) -> Path:
    """Copy a workspace with 14 scenes of objects and 10 of streets, each with `FEW` test cases, to `folder`."""

    def make(at: Path) -> None:
        with workspace_in(at / "workspace") as workspace:
            fill(workspace, 14, most=FEW)
            fill(workspace, 10, road=True, most=FEW)

    return Path(shutil.copytree(made_once("scenes-to-learn-from", make) / "workspace", folder / "workspace"))


def _run(workspace: Workspace, scene: Scene, road: bool, controls: bool, most: tuple[int, int]) -> str:
    task = Task("segmentation", protected=PROTECTED_ROAD_CLASSES) if road else Task("classification", scene.label)
    run = workspace.runs.create(drawn(scene), task, "demo", f"Scene {scene.seed}", {})
    value = StageValue(Caption(caption(scene)), Trace("model", model="demo/blip"), "k")
    workspace.runs.append_value(run, "caption", value)
    if road:
        mask = Image.fromarray(render(scene, PIXELS)[1])
        workspace.runs.set_mask(run, mask, dict(enumerate(SEMANTIC_CLASSES)))
    look = scene.look
    weathers, times = [one for one in WEATHERS if one != look.weather], [one for one in TIMES if one != look.time]
    changed = [(scene.with_look(weather=one), (Edit(look.weather, one, "weather"),)) for one in weathers[-most[0] :]]
    changed += [(scene.with_look(time=one), (Edit(look.time, one, "time of day"),)) for one in times[-most[1] :]]
    cases = [case_of(task, one, edits, number) for number, (one, edits) in enumerate(changed)]
    if controls:
        again = drawn(scene).point(lambda value: min(255, value + 2))  # a little lighter, with no other change
        cases.append(replace(case_of(task, scene, (), 99, RECONSTRUCTION.name), image=again))
    workspace.test_cases.extend(run, None, cases)
    return run


def case_of(task: Task, scene: Scene, edits: Sequence[Edit], seed: int, recipe: str = DEFAULT_RECIPE) -> TestCase:
    """Return a test case of a scene, as if `recipe` had drawn it."""
    counterfactual = CounterfactualCaption(caption(scene), tuple(edits))
    lineage = Lineage(
        *(counterfactual, seed, "controlnet", "demo/sd", counterfactual.text, "", ControlNetSettings(), 0.1),
        recipe=recipe,
        task=task,
    )
    return TestCase(drawn(scene), lineage, {CONTROL_IMAGE: Image.new("RGB", (PIXELS, PIXELS))}, ())
