"""Workspaces for tests that start from a copy of an empty database, which saves time."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from storage.workspace import DATABASE, Workspace


def workspace_in(folder: str | Path) -> Workspace:
    """Return the workspace in `folder`, not yet opened. A new one gets a copy of an empty database."""
    path = Path(folder) / DATABASE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".new")
        whole.write_bytes(_empty_database())
        whole.replace(path)  # another process may open the file already, and must not see half a database
    return Workspace(folder)


@cache
def _empty_database() -> bytes:
    """Return the database of a new workspace as bytes. It is made once in this process."""
    with tempfile.TemporaryDirectory() as folder:
        with Workspace(folder):
            pass
        return (Path(folder) / DATABASE).read_bytes()
