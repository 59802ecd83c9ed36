"""A studio with scripted models, for tests of methods and recipes on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.profiles.profile import load_profile
from services.studio import Studio
from tests.services.runs.test_predictions import Bright
from tests.support.scripted import ScriptedModels
from tests.support.workspaces import workspace_in


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with workspace_in(tmp_path / "workspace") as workspace:
        made = Studio(load_profile("demo"), ScriptedModels(), workspace)
        made.predictions.load = lambda wanted: Bright("classification", wanted.title)
        yield made
        made.close()
