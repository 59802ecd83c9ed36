"""Images drawn on a control image from the mask: another mask outdates them, the page says so, and they can be
redrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.types import Task
from pipeline.run_files.embedded import read_run_in
from services.runs.state import RunState
from services.studio import Studio
from tests.support.scripted import studio_in
from tests.ui.explore.test_ui_studio import do, part

pytestmark = pytest.mark.slow

CLASSES = {0: "sky", 1: "road", 2: "vehicle"}
BIRD = Task("classification", label="bird")
"""The task does not matter here, but the stand-ins reply about a bird."""


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with studio_in(tmp_path, "paper") as made:
        yield made


def current(state: RunState) -> list[int]:
    """Return the ids of the test cases that are not outdated."""
    return [case.id for case in state.run.test_cases if case.id not in state.outdated]


def mask(road_from: int, numbers: tuple[int, int] = (0, 1)) -> Image.Image:
    pixels = np.full((36, 52), numbers[0], np.uint8)
    pixels[road_from:] = numbers[1]
    return Image.fromarray(pixels)


def drawn(studio: Studio, kind: str, task: Task = BIRD) -> str:
    """Create a run, and draw its images on a control image of this kind. Return its id."""
    settings = studio.profile.settings.model_dump(mode="json")
    settings["generation"] |= {"steps": 2, "short_side": 64, "images_per_caption": 1}
    settings["conditioning"]["kind"] = kind
    settings["counterfactuals"] |= {"combinations": "spread", "edits_at_once": 1}  # the same captions when made again
    picture = Image.new("RGB", (52, 36), (200, 40, 40))
    run_id = studio.workspace.runs.create(picture, task, "paper", "bird", settings)
    studio.workspace.runs.set_mask(run_id, mask(20), CLASSES)
    for name in ("run-all", "generate"):
        assert not do(studio, run_id, name).problem
    state = studio.states.of(run_id)
    assert state.run.test_cases and not state.outdated
    return run_id


def test_another_task_outdates_images_and_what_was_said_of_them_stays_what_it_was(studio: Studio) -> None:
    """The label changes after images are drawn and reviewed. They stay images of the old label."""
    run_id = drawn(studio, "canny")
    number = len(studio.states.of(run_id).run.test_cases)
    first = studio.states.of(run_id).run.test_cases[0].id
    do(studio, run_id, "review", case=first, verdict="accepted")
    do(studio, run_id, "setting", setting="generation.seed_mode", value="fixed")
    do(studio, run_id, "generate")
    studio.predictions.compare(studio.states.of(run_id).run, studio.states.of(run_id).settings)

    do(studio, run_id, "task", kind="classification", label="house")
    state = studio.states.of(run_id)
    assert set(state.outdated.values()) == {"made for the label bird"} and not current(state)
    assert {case.task.label for case in state.run.test_cases} == {"bird"}
    shown = part(studio, run_id, "pictures")
    assert "made for the label bird" in shown and "accepted for bird" in shown and "results, 1 accepted" not in shown
    assert "stale: the task was changed after these images were drawn" in part(studio, run_id, "generation")
    (listed,) = studio.workspace.runs.search(10)
    assert listed.accepted == 0, "no image of a house was accepted"

    said = studio.commands.send("show-image", {"run": run_id, "case": first})
    assert said["task"]["label"] == "bird" and said["outdated"] == "made for the label bird"
    held = read_run_in(studio.exchange.saved_image(first)[1])
    assert held is not None and held.case is not None and held.review is not None
    assert held.run.task.label == "bird" and held.case.lineage.task == Task("classification", label="bird")
    assert {one.label for one in studio.workspace.test_cases.candidates()} == {"bird"}, "so a study asks about a bird"

    for name in ("run-all", "generate"):
        do(studio, run_id, name)
    state = studio.states.of(run_id)
    assert len(current(state)) == number, "the same captions are drawn for the new task"
    assert {case.task.label for case in state.run.test_cases if case.id in current(state)} == {"house"}
    do(studio, run_id, "task", kind="classification", label="bird")
    assert first in current(studio.states.of(run_id)) and studio.workspace.runs.search(10)[0].accepted == 1


def test_another_mask_outdates_what_was_drawn_on_it_and_says_so(studio: Studio) -> None:
    run_id = drawn(studio, "segmentation")
    number = len(studio.states.of(run_id).run.test_cases)
    do(studio, run_id, "setting", setting="generation.seed_mode", value="fixed")
    do(studio, run_id, "generate")
    assert "made" in studio.states.of(run_id).gate.closed, "a fixed seed gives nothing new"

    studio.workspace.runs.set_mask(run_id, mask(10), CLASSES)
    state = studio.states.of(run_id)
    assert set(state.outdated.values()) == {"of an earlier mask"} and not current(state)
    assert "stale: the mask was changed after these images were drawn" in part(studio, run_id, "generation")
    assert "of an earlier mask" in part(studio, run_id, "pictures")
    assert state.gate.plan is not None and len(state.gate.plan.images) == number, "they can be drawn on the new one"
    assert not do(studio, run_id, "generate").problem
    assert len(current(studio.states.of(run_id))) == number

    studio.workspace.runs.set_mask(run_id, mask(20), CLASSES)
    assert len(studio.states.of(run_id).outdated) == number, "with the first mask back, the first images fit again"
    do(studio, run_id, "delete-mask")
    assert not current(studio.states.of(run_id))


def test_the_same_map_under_other_numbers_outdates_nothing_and_another_class_does(studio: Studio) -> None:
    run_id = drawn(studio, "segmentation")
    studio.workspace.runs.set_mask(run_id, mask(20, (5, 7)), {5: "sky", 7: "road"})
    assert not studio.states.of(run_id).outdated
    studio.workspace.runs.set_mask(run_id, mask(20, (5, 7)), {5: "sky", 7: "vehicle"})
    assert studio.states.of(run_id).outdated


def test_images_drawn_on_edges_know_no_mask(studio: Studio) -> None:
    run_id = drawn(studio, "canny")
    studio.workspace.runs.set_mask(run_id, mask(10), CLASSES)
    assert not studio.states.of(run_id).outdated


def test_the_gate_offers_what_a_mask_gives_another_prompt_and_nothing_else(studio: Studio) -> None:
    run_id = drawn(studio, "canny", Task("segmentation", protected=("bird", "road", "vehicle")))
    cases = studio.states.of(run_id).run.test_cases
    assert {case.lineage.prompt.partition(". ")[0] for case in cases} == {"A photo with bird, road"}
    do(studio, run_id, "setting", setting="generation.seed_mode", value="fixed")
    do(studio, run_id, "generate")

    studio.workspace.runs.set_mask(run_id, mask(10), CLASSES)
    assert "are made" in studio.states.of(run_id).gate.closed, "it shows the same classes"
    studio.workspace.runs.set_mask(run_id, mask(10, (0, 2)), CLASSES)
    gate = studio.states.of(run_id).gate
    assert gate.plan is not None and len(gate.plan.images) == len(cases)
    studio.workspace.runs.set_mask(run_id, mask(10, (1, 2)), CLASSES)
    assert gate.shown and studio.states.of(run_id).gate.shown not in ("", gate.shown), "a yes is for what was shown"
    assert not do(studio, run_id, "generate").problem
    newest = studio.states.of(run_id).run.test_cases[-1].lineage
    assert newest.prompt == f"A photo with bird, road, vehicle. {newest.counterfactual.text}"
    assert "are made" in studio.states.of(run_id).gate.closed
