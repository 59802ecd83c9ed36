"""Images are found by where their drawing started, also those of a workspace of an earlier version."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from core.image_filter import ImageFilter
from core.lineage import MethodSettings
from core.settings import GenerationSettings
from core.types import Task
from pipeline.methods.controlnet import ControlNetSettings
from storage.damage import catalogue_faults
from storage.schema import migrations
from storage.workspace import DATABASE, Workspace
from tests.support.cases import made_case

NOISE = ControlNetSettings()
INVERTED = ControlNetSettings(generation=GenerationSettings(start="inverted"), inverted_under="A bird.")


def draw(workspace: Workspace, *settings: MethodSettings) -> None:
    """Add a run with an image of the method “controlnet” for each of these settings."""
    source = Image.new("RGB", (8, 8))
    run = workspace.runs.create(source, Task("classification", "bird"), "demo", "A bird", {})
    cases = [
        made_case(Image.new("RGB", (8, 8), (20 * place, 9, 9)), method="controlnet", settings=one)
        for place, one in enumerate(settings)
    ]
    workspace.test_cases.extend(run, None, cases)


def test_a_workspace_of_an_earlier_version_learns_the_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "STEPS", migrations.STEPS[:3])
    with Workspace(tmp_path) as workspace:
        draw(workspace, NOISE, INVERTED, INVERTED, MethodSettings())
    monkeypatch.undo()
    with Workspace(tmp_path) as workspace:
        assert workspace.catalogue.facets()["start"] == {"inverted": 2, "noise": 1}
        draw(workspace, INVERTED, NOISE)
        assert workspace.catalogue.facets()["start"] == {"inverted": 3, "noise": 2}
        assert len(workspace.catalogue.ids(ImageFilter(facets={"start": ("inverted",)}))) == 3
        assert workspace.case_columns.table().starts.of(slice(None)) == [
            *("noise", "inverted", "inverted", "", "inverted", "noise")
        ]
    assert catalogue_faults(tmp_path / DATABASE) == ()
