"""Focus of the demo's classifier, alone and beside a second model: on the page, in reports and in commands."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.latest import Latest
from core.regions import region_of
from core.settings import UnderTestSettings
from core.types import StageValue, Trace
from demo.scene import random_scene
from evaluation import focus as figures
from evaluation.focus import AIC, DELETION, FIGURES, MASS, PURITY, REASONS, SHARE, SIC
from evaluation.models import ModelUnderTest
from pipeline.profiles.profile import load_profile
from services.evaluation import focus
from services.evaluation.facts import file_of
from services.evaluation.focus import SUBJECT_MASK
from services.evaluation.subjects import Cases
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.demo_server import demo_models
from tests.support.evaluation_cases import BIRDS, CLASSIFIER, PIXELS, ROADS, drawn, read_all, scenes_that_are_read
from tests.support.made_once import MadeOnce
from ui.evaluate.page import report_html

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SECONDS = 600
HALF = Image.new("L", (PIXELS, PIXELS))
HALF.paste(255, (0, 0, PIXELS // 2, PIXELS))
OTHER = replace(BIRDS, model=CLASSIFIER.model_copy(update={"mean": "0.4, 0.4, 0.4", "std": "0.5, 0.5, 0.5"}))


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Studio]:
    """Studio on scenes; one has a marked subject. One of its test cases has the subject elsewhere."""
    with Workspace(scenes_that_are_read(made_once, tmp_path_factory.mktemp("focus"))) as workspace:
        table = workspace.case_columns.table()
        run = table.runs.of(np.flatnonzero(~table.segmentation)[:1])[0]
        workspace.runs.append_value(run, "region", StageValue(region_of(HALF), Trace("person"), "k"))
        moved = made_case(drawn(random_scene(99, "object")), task=workspace.runs.get(run).task)
        mask = Image.fromarray(255 - np.asarray(HALF))
        workspace.test_cases.append(run, None, replace(moved, artifacts={**moved.artifacts, SUBJECT_MASK: mask}))
        made = Studio(load_profile("demo"), demo_models(), workspace)
        read_all(made.evaluations, BIRDS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(focus, "SUBJECT", "region")
            patch.setattr(figures, "STEPS", 4)
            patch.setattr(focus, "MOST_INFORMATION", 8)
            yield made
        made.close()


def looked(studio: Studio, **more: str) -> None:
    sent = studio.commands.send("begin-focus", {"filter": "kind=classification", **more})
    done = studio.focus.work.wait(sent["work"], SECONDS)
    assert done.state == "done", done.error


def test_a_model_looks_once_and_everything_is_told(studio: Studio) -> None:
    cases = studio.evaluations.cases(BIRDS.subject)
    before = studio.focus.figures(BIRDS)
    assert before.images == 0 and before.missing > len(cases.pictures) and "not computed yet" in before.notes[-1]
    looked(studio)
    found = studio.focus.figures(BIRDS)
    assert (found.missing, found.images, found.layers) == (0, len(cases.pictures), ("layer4",))
    rows = {(row.images, row.name): row.figures[0] for row in found.rows}
    assert {name for _, name in rows} == {*FIGURES} and {group for group, _ in rows} == {*focus.GROUPS}
    assert rows["originals", DELETION].value is None and "fewer than 20" in rows["originals", DELETION].why
    assert 0 <= (rows["test cases", DELETION].value or -1) <= 1 and rows["test cases", PURITY].n == len(cases.generated)
    # Only one source, with its test cases and its reconstruction, has a mask: too few for a figure.
    assert 5 <= rows["test cases", SHARE].n < 20 and rows["test cases", MASS].value is None
    counted = {(name, reason): number for _, name, reason, _, number in found.left_out}
    assert {name for name, _ in counted} <= {AIC, SIC} and {reason for _, reason in counted} <= {*REASONS.values()}
    assert (
        sum(number for (name, _), number in counted.items() if name == SIC)
        + sum(rows[group, SIC].n for group in focus.GROUPS)
        == found.left_out[0][3]
    )
    assert len(found.pictures) == 3 * focus.PICTURES and len(found.maps[0]) == found.images
    assert Image.open(io.BytesIO(found.pictures[0][2][0])).format == "WEBP"
    sent = studio.commands.send("begin-focus", {"filter": "kind=classification"})
    assert studio.focus.work.wait(sent["work"], SECONDS).total == 0, "nothing is looked at twice"


def test_the_figures_are_those_of_the_model_asked_image_by_image(studio: Studio) -> None:
    looked(studio)
    _, images = chosen_of = studio.focus._chosen_of(BIRDS)
    cam, classes = ModelUnderTest(CLASSIFIER).grad_cam(), studio.evaluations.cases(BIRDS.subject).labels
    chosen = [seen for seen in images if seen.mask is not None]
    groups = {seen.group for seen in chosen}
    assert groups == {*focus.GROUPS} and sum(not seen.mask[0] for seen in chosen if seen.mask) == 1
    for seen, key in zip(images, studio.focus._keys(BIRDS, *chosen_of), strict=True):
        if seen.mask is None or key is None:
            continue
        number = list(ModelUnderTest(CLASSIFIER).identity.classes).index(classes[seen.label])
        mask = HALF if seen.mask[0] else Image.fromarray(255 - np.asarray(HALF))
        own = cam.look(studio.workspace.images.load(seen.sha), [number], mask)
        kept = studio.focus._looks.get(key)
        assert kept is not None and kept.figures == pytest.approx(dict(own.figures), abs=1e-5)
        break


def test_two_models_stand_side_by_side(studio: Studio) -> None:
    read_all(studio.evaluations, OTHER)
    key = next(one.key for one in studio.evaluations.models(BIRDS.subject) if "0.4, 0.4, 0.4" in one.title)
    looked(studio, beside=key)
    found = studio.focus.figures(BIRDS, OTHER)
    assert found.missing == 0 and len(found.models) == 2 and all(len(row.figures) == 3 for row in found.rows)
    row = next(row for row in found.rows if (row.images, row.name) == ("test cases", DELETION))
    first, second, difference = (one.value or 0.0 for one in row.figures)
    assert difference == pytest.approx(second - first) and len({one.n for one in row.figures}) == 1
    assert all(len(pictures) == 2 for _, _, pictures in found.pictures) and len(found.maps) == 2
    evaluated = studio.evaluations.evaluate(BIRDS)
    text = file_of(evaluated, "markdown", focus=found).decode()
    assert "## Where the model looks" in text and "less classifier.safetensors" in text
    lines = file_of(evaluated, "csv", focus=found).decode().splitlines()
    assert sum(line.startswith("focus,") for line in lines) == 3 * len(found.rows) + len(found.left_out)
    page = report_html(evaluated, None, lambda sha: b"", None, found)
    part = page[page.index('id="part-focus"') :].split("</section>")[0]
    assert part.count("data:image/webp") == 6 * focus.PICTURES and "<button" not in part and "second less first" in part
    shown = studio.commands.send("show-focus", {"filter": "kind=classification", "beside": key})
    assert shown["missing"] == 0 and len(json.dumps(shown, allow_nan=False)) > 1000


def test_images_may_come_while_figures_are_made(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read of the images finds one more, as while a control set is drawn."""
    readings, some = itertools.count(1), studio.focus._some

    def growing(cases: Cases) -> tuple[Cases, list[Any]]:
        return cases, some(cases)[1][: next(readings)]

    monkeypatch.setattr(studio.focus, "_some", growing)
    monkeypatch.setattr(studio.focus, "_chosen", Latest(0))
    monkeypatch.setattr(studio.focus, "_found", Latest(0))
    assert studio.focus.figures(BIRDS).images <= 1


def test_what_cannot_be_looked_into_says_so(studio: Studio, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only classifiers have Grad-CAM maps"):
        studio.focus.begin(ROADS)
    server = replace(BIRDS, model=UnderTestSettings(source="http", address="http://localhost:1/predict"))
    with pytest.raises(UserError, match="is no torch network"):
        studio.focus.figures(server)
    unknown = replace(BIRDS, model=CLASSIFIER.model_copy(update={"mean": "0.3, 0.3, 0.3", "std": "0.5, 0.5, 0.5"}))
    with pytest.raises(UserError, match="This model is not loaded"):
        studio.focus.figures(unknown)
