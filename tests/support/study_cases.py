"""A workspace with drawn test cases for tests of the set-up: real pictures and masks of the drawn world with true
captions, and predictions of a model under test that a test sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from core.predictions import Guess, Prediction
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from demo.language import caption
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, Scene, random_scene
from pipeline.methods.controlnet import ControlNetSettings
from pipeline.recipes import RECONSTRUCTION
from storage.workspace import Workspace
from tests.support.cases import made_case

MODEL = "classifier of the test"
LABELS = ("bird", "boat", "mushroom", "lighthouse")
CHANGES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("weather", {"weather": "snowy"}, "snowy weather"),
    ("weather", {"weather": "rainy"}, "rainy weather"),
    ("time of day", {"time": "night"}, "at night"),
    ("time of day", {"time": "sunset"}, "at sunset"),
)


def object_runs(workspace: Workspace, runs: int, cases: int = 4, wrong: Sequence[int] = ()) -> list[int]:
    """Create runs of single objects with `cases` (at most 4) test cases each. Return the test cases in order.

    The model is wrong on the test cases with the numbers `wrong`, counted from 0 over all runs.
    """
    made: list[int] = []
    for number in range(runs):
        label = LABELS[number % len(LABELS)]
        scene = random_scene(1000 + number, "object", label)
        scene = replace(scene, look=replace(scene.look, weather="sunny", time="day"))
        run = _run(workspace, scene, Task("classification", label=label), f"{label} {number}")
        for change in CHANGES[:cases]:
            guess = "balloon" if len(made) in wrong else label
            made.append(_case(workspace, run, scene, change, guess))
        _read(workspace, _picture(scene), label)
    return made


def reconstructions(workspace: Workspace, number: int) -> list[int]:
    """Add `number` reconstructions to the latest run. Return the test cases."""
    run = workspace.runs.search()[0].id
    pictures = [Image.new("RGB", (8, 8), (shade, 0, 0)) for shade in range(number)]
    return [workspace.test_cases.append(run, None, made_case(one, recipe=RECONSTRUCTION.name)) for one in pictures]


def road_runs(workspace: Workspace, runs: int, cases: int = 2) -> list[int]:
    """Create runs of road scenes with masks. Every second run has no pedestrian. Return the test cases."""
    made: list[int] = []
    for number in range(runs):
        scene = replace(random_scene(2000 + number, "road"), pedestrians=number % 2)
        scene = replace(scene, look=replace(scene.look, weather="sunny", time="day"))
        task = Task("segmentation", protected=tuple(PROTECTED_ROAD_CLASSES))
        run = _run(workspace, scene, task, f"street {number}")
        workspace.runs.set_mask(run, Image.fromarray(render(scene)[1]), dict(enumerate(SEMANTIC_CLASSES)))
        made += [_case(workspace, run, scene, change, "") for change in CHANGES[:cases]]
    return made


def _run(workspace: Workspace, scene: Scene, task: Task, name: str) -> str:
    run = workspace.runs.create(_picture(scene), task, "demo", name, {})
    workspace.runs.append_value(run, "caption", StageValue(Caption(caption(scene)), Trace(author="model"), ""))
    return run


def _case(workspace: Workspace, run: str, scene: Scene, change: tuple[str, dict[str, Any], str], guess: str) -> int:
    edit_type, look, words = change
    drawn = replace(scene, look=replace(scene.look, **look))
    image = _picture(drawn)
    edit = Edit("sunny weather by day", words, edit_type)  # type: ignore[arg-type]
    case = made_case(
        image,
        counterfactual=CounterfactualCaption(caption(drawn), (edit,)),
        seed=scene.seed,
        method="controlnet",
        model="drawn",
        prompt=caption(drawn),
        settings=ControlNetSettings(),
    )
    number = workspace.test_cases.append(run, None, case)
    if guess:
        _read(workspace, image, guess)
    return number


def _read(workspace: Workspace, image: Image.Image, guess: str) -> None:
    prediction = Prediction("classification", MODEL, top=(Guess(guess, 0.9),))
    workspace.predictions.append(workspace.images.add(image), MODEL, prediction)


def _picture(scene: Scene) -> Image.Image:
    return Image.fromarray(render(scene)[0])
