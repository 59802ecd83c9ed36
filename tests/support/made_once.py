"""Folders that are slow to fill. The first test of a run that needs one fills it, in whichever process."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


class MadeOnce:
    """Makes named folders that all processes of a test run share. No test may write into them."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        own = factory.getbasetemp()
        self._folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the folder of this name. `make` fills it if no process has done so yet."""
        made = self._folder / f"made-{name}"
        with open(self._folder / f"made-{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                half = Path(tempfile.mkdtemp(dir=self._folder))
                make(half)
                half.rename(made)
        return made
