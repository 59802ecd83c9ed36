"""Fixtures of the evaluation tests: an empty workspace, and the services on a test's workspace. A file whose tests
need scenes defines its own fixture `workspace`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # all of these files are slow, and so are their imports
    from services.evaluation.retraining.jobs import Retrainings
    from services.evaluation.service import EvaluationService
    from storage.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    from tests.support.workspaces import workspace_in

    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


@pytest.fixture
def service(workspace: Workspace) -> Iterator[EvaluationService]:
    from tests.support.evaluation_cases import service_of

    made = service_of(workspace)
    yield made
    made.close()


@pytest.fixture
def retrainings(workspace: Workspace, service: EvaluationService) -> Iterator[Retrainings]:
    from services.evaluation.retraining.jobs import Retrainings

    made = Retrainings(workspace, service)
    yield made
    made.close()
