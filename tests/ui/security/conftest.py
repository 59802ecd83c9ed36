"""A workspace, and a client of a studio with a password, for tests of access."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from services.passwords import SECRET, hashed
from storage.workspace import Workspace
from tests.support.guarded import CHEAP, PASSWORD, application
from tests.support.workspaces import workspace_in


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


@pytest.fixture(scope="module")
def kept() -> str:
    return hashed(PASSWORD, CHEAP)


@pytest.fixture
def locked(workspace: Workspace, kept: str) -> Iterator[TestClient]:
    workspace.studies.sessions.set_secret(SECRET, kept)
    with TestClient(application(workspace, "0.0.0.0"), base_url="http://studio.test", follow_redirects=False) as client:
        yield client
