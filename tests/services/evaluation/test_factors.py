"""A factor experiment on drawn scenes, read by the demo's classifier and embedder: figures, page, script, command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cli.evaluation import main
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from demo.language import caption
from demo.scene import random_scene
from evaluation.effectiveness import WRONG
from pipeline.profiles.profile import load_profile
from pipeline.recipes import RECONSTRUCTION
from services.evaluation.factors import NOTHING, Factors
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.demo_server import demo_models
from tests.support.evaluation_cases import BIRDS, case_of, drawn, fill, read_all, service_of
from tests.support.workspaces import workspace_in
from ui.evaluate.routes import _Pages
from ui.evaluate.words import Place

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SOURCES = 12
NIGHT, RAIN = Edit("by day", "at night", "time of day"), Edit("sunny", "rainy", "weather")
TOGETHER = (("weather", "rainy"), ("time of day", "at night"))


def fill_combinations(workspace: Workspace) -> None:
    """Add sunny scenes by day, each also in rain, at night, in both, and drawn again without a change."""
    for number in range(SOURCES):
        scene = random_scene(7000 + number, "object").with_look(weather="sunny", time="day")
        task = Task("classification", scene.label)
        run = workspace.runs.create(drawn(scene), task, "demo", f"Scene {number}", {})
        value = StageValue(Caption(caption(scene)), Trace("model", model="demo/blip"), "k")
        workspace.runs.append_value(run, "caption", value)
        rain, night = scene.with_look(weather="rainy"), scene.with_look(time="night")
        both = rain.with_look(time="night")
        looks = ((scene, ()), (rain, (RAIN,)), (night, (NIGHT,)), (both, (RAIN, NIGHT)))
        cases = [
            case_of(task, one, edits, at, *([] if edits else [RECONSTRUCTION.name]))
            for at, (one, edits) in enumerate(looks)
        ]
        workspace.test_cases.extend(run, None, cases)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factors")
    with workspace_in(path) as workspace:
        fill_combinations(workspace)
    return path


@pytest.fixture(scope="module")
def studio(folder: Path) -> Iterator[Studio]:
    with Workspace(folder) as workspace:
        made = Studio(load_profile("demo"), demo_models(), workspace)
        read_all(made.evaluations, BIRDS)
        yield made
        made.close()


def test_effects_are_those_of_the_models_answers_and_open_their_images(studio: Studio) -> None:
    found, result = studio.factors.figures(BIRDS), studio.evaluations.result(BIRDS)
    assert not found.problem and not found.notes and list(found.rows) == ["alternative"]
    rows = {row.parts: row for row in found.rows["alternative"]}
    assert set(rows) == {TOGETHER, TOGETHER[:1], TOGETHER[1:]}

    cases = result.cases
    number = np.bincount(cases.table.edits.row, minlength=len(cases.table))[cases.generated.row]
    night = np.zeros(len(cases.table), bool)
    night[[at for at in range(len(night)) if any(
        row == at and name == "time of day"
        for row, name in zip(cases.table.edits.row.tolist(), cases.table.edits.types.of(slice(None)), strict=True)
    )]] = True  # fmt: skip
    alone = night[cases.generated.row] & (number == 1)
    wrong, before = result.right == WRONG, result.control_right == WRONG
    effect = rows[TOGETHER[1:]].error.effect
    assert effect.value == pytest.approx(wrong[alone].mean() - before.mean())
    assert effect.low is not None and effect.high is not None and effect.low < (effect.value or 0) < effect.high
    assert (effect.n, effect.sources) == (2 * SOURCES, SOURCES)
    assert rows[TOGETHER[1:]].entries == tuple(sorted(cases.table.entry[night].tolist()))
    assert rows[TOGETHER].error.effect.n == SOURCES
    assert rows[TOGETHER[1:]].figure.value == pytest.approx(result.after[alone].mean() - result.control_after.mean())
    unchanged = found.effects["alternative"].unchanged
    assert unchanged.value == pytest.approx(before.mean()) and unchanged.n == SOURCES


def test_what_drawing_changes_unasked_is_known_once_the_embedder_has_read_the_images(
    studio: Studio, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    studio.meaning.embed(studio.evaluations.cases(BIRDS.subject).table.entry[:3].tolist())  # as the map does
    assert not studio.factors.figures(BIRDS).mixed, "the embedder has read images, but no word"
    services = studio.evaluations, studio.retrainings, studio.likeness, studio.factors, studio.focus, studio.evidence
    place = Place(filter="kind=classification", key=studio.evaluations.models(BIRDS.subject)[0].key)
    page = str(_Pages(*services).factors(place))
    assert "“at night” (time of day)" in page and "/curate/" in page and "<svg" in page
    assert "has not read these images yet" in page
    seen: list[tuple[int, int]] = []
    studio.factors.read(BIRDS, lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 4 * SOURCES - 3)
    found = studio.factors.figures(BIRDS)
    assert {(row.asked, row.seen) for row in found.mixed} == {("weather", "time of day"), ("time of day", "weather")}
    assert all((row.own.low or 0) > 0 for row in found.mixed), "each change shows where it is asked for"
    seen.clear()
    studio.factors.read(BIRDS, lambda done, total: seen.append((done, total)))
    assert not seen, "no image is read twice"

    told = studio.commands.send("show-factors", {"filter": "kind=classification"})
    asked = ["factors", "--filter", "kind=classification", "--workspace", str(folder)]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(told, allow_nan=False))
    assert len(told["tables"]["alternative"]) == 3 and told["mixed"][0]["effect"]["n"] > 0
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert text.startswith("# Which changes break classifier.safetensors together")
    assert "| “rainy” (weather) and “at night” (time of day), beyond the sum |" in text
    assert "## What drawing changes unasked" in text and "| weather | time of day | " in text


def test_without_combinations_the_section_says_what_to_draw(tmp_path: Path, studio: Studio) -> None:
    with workspace_in(tmp_path) as workspace:
        fill(workspace, 5, controls=False)
        service = service_of(workspace)
        read_all(service, BIRDS)
        found = Factors(service, studio.meaning).figures(BIRDS)
        assert found.problem == NOTHING and found.answer[0] == NOTHING
        service.close()


def test_captions_that_a_person_wrote_have_no_level(studio: Studio) -> None:
    run = studio.workspace.runs.get(studio.evaluations.cases(BIRDS.subject).table.runs.values[0])
    lineage = replace(
        run.test_cases[0].lineage, counterfactual=CounterfactualCaption("A drawing.", ()), recipe="dillema"
    )
    scene = random_scene(7000, "object")
    case = replace(case_of(run.task, scene, (), 5), lineage=lineage)
    studio.workspace.test_cases.append(run.id, None, case)
    read_all(studio.evaluations, BIRDS)
    assert studio.factors.figures(BIRDS).notes[0] == "1 test case is left out, without a known edit."
