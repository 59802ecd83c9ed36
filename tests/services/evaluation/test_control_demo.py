"""The control set of an evaluation, drawn by the embedded models and read by the demo's classifier."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.image_filter import ImageFilter
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Edit, StageValue, Task, Trace
from demo.language import caption
from demo.scene import random_scene
from pipeline.profiles.profile import load_profile
from pipeline.recipes import control_of, recipe_of
from pipeline.request import MemoryStore, Request
from pipeline.stages import generation
from services.evaluation.types import EvaluationQuestion, Subject
from services.studio import Studio
from tests.support.demo_server import demo_models
from tests.support.evaluation_cases import drawn, model_of
from tests.support.workspaces import workspace_in

pytestmark = [pytest.mark.demo, pytest.mark.slow, pytest.mark.soak]
ALL = Subject(filter=ImageFilter())
SOURCES, SECONDS = 3, 300


@pytest.mark.parametrize("recipe", ["dillema", "lance"])
def test_three_sources_get_their_reconstructions_and_an_excess(tmp_path: Path, recipe: str) -> None:
    with workspace_in(tmp_path) as workspace:
        studio = Studio(load_profile("demo"), demo_models(), workspace)
        for number in range(SOURCES):
            scene = random_scene(900 + number, "object").with_look(weather="sunny", time="day")
            task = Task("classification", scene.label)
            own = studio.profile.settings.model_dump(mode="json")
            run = workspace.runs.create(drawn(scene), task, "demo", f"Scene {number}", own)
            said = StageValue(Caption(caption(scene)), Trace("model", model="demo/blip"), "k")
            workspace.runs.append_value(run, "caption", said)
            snowy = caption(scene.with_look(weather="snowy"))
            edited = CounterfactualCaption(snowy, (Edit("sunny", "snowy", "weather"),))
            made, settings = recipe_of(recipe), recipe_of(recipe).settings_in(studio.profile)
            seeds = made.drawing_method.planning(settings)
            images = generation.plan(CounterfactualCaptions((edited,)), seeds, 40 + number).images
            store = MemoryStore(drawn(scene), {"caption": said.value})
            studio.driver.run(Request(task, settings, recipe, 40 + number, stages=(), images=images), store)
            (case,) = store.cases
            workspace.test_cases.append(run, None, case)
        assert (studio.evaluations.view(ALL).cases, studio.evaluations.view(ALL).controls) == (SOURCES, 0)

        assert studio.evaluations.controls is not None
        work = studio.evaluations.controls.work.wait(studio.evaluations.make_control(ALL).id, SECONDS)
        assert work.state == "done" and work.result.drawn == SOURCES, work.error or work.result
        assert studio.evaluations.view(ALL).controls == SOURCES
        control = control_of(recipe)
        drawn_by = [one.origin["recipe"] for one in workspace.test_cases.candidates()]
        assert control is not None and sorted(drawn_by) == sorted([recipe, control.name] * SOURCES)

        asked = EvaluationQuestion(ALL, model_of("classification"))
        read = studio.evaluations.work.wait(studio.evaluations.begin(asked).id, SECONDS)
        assert read.state == "done", read.error
        found = studio.evaluations.evaluate(asked)
        assert found.against_control and found.effectiveness is not None
        assert found.effectiveness.error_reconstructed.n == SOURCES and found.effectiveness.excess.value is not None
        studio.close()
