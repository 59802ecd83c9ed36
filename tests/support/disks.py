"""A real disk of a few megabytes, which can be full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own in the memory."""

    folder: Path

    def fill(self) -> None:
        """Leave no byte free."""
        for size in (65536, 512):
            with open(self.folder / "fill", "ab", buffering=0) as file, suppress(OSError):
                while file.write(bytes(size)):
                    pass

    def make_room(self) -> None:
        (self.folder / "fill").unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int = 24) -> Iterator[SmallDisk]:
    """Mount one at a folder that is made; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "small-disk", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no mount")
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
