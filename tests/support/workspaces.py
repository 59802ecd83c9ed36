"""Workspaces for tests, without the time that making a database takes."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from storage.workspace import DATABASE, Workspace


def workspace_in(folder: str | Path) -> Workspace:
    """Return the workspace in `folder`, to be opened. Where there is none, its empty database is put there first."""
    path = Path(folder) / DATABASE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".new")
        whole.write_bytes(_empty_database())
        whole.replace(path)  # another process may look at it already, and must not see half a database
    return Workspace(folder)


@cache
def _empty_database() -> bytes:
    """Make the database of a new workspace, once in this process."""
    with tempfile.TemporaryDirectory() as folder:
        with Workspace(folder):
            pass
        return (Path(folder) / DATABASE).read_bytes()
