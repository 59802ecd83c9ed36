"""Folders in a workspace for incomplete files: each belongs to the process that made it, and is removed after it.

A folder is named by the number of its process in the workspace, as temporary image files are, and not by its process
id, which the next process of a container has again (see `storage.engine.process_locks`).
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

_OF_PROCESS = re.compile(r"(\d+)-[0-9a-f]{8}")


def new_scratch(home: Path, process: int, alive: Callable[[int], bool]) -> Path:
    """Make a folder of this process in `home`, and remove those of dead processes. Raises OSError."""
    home.mkdir(parents=True, exist_ok=True)
    for left in left_behind(home, alive):
        shutil.rmtree(left, ignore_errors=True)
    folder = home / f"{process}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)  # another process may have removed the home with the remains
    return folder


def left_behind(home: Path, alive: Callable[[int], bool]) -> list[Path]:
    """Return the folders in `home` of dead processes."""
    matches = [_OF_PROCESS.fullmatch(left.name) for left in home.iterdir()] if home.is_dir() else []
    return [home / match[0] for match in matches if match and not alive(int(match[1]))]
