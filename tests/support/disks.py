"""Real disks of a few megabytes: one that can be filled, and one that turns read-only after a fault."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """File system of its own in memory."""

    folder: Path

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        for size in (65536, 512):
            with open(self.folder / "fill", "ab", buffering=0) as file, suppress(OSError):
                while file.write(bytes(size)):
                    pass

    def make_room(self) -> None:
        (self.folder / "fill").unlink()


@dataclass(frozen=True)
class FaultyDisk:
    """File system in a file, which the kernel makes read-only after a fault."""

    folder: Path

    def fail(self) -> None:
        """Report a disk fault to the kernel. Files that are open cannot be written either."""
        source = _run("findmnt", "--noheadings", "--output", "SOURCE", str(self.folder)).stdout.strip()
        Path("/sys/fs/ext4", Path(source).name, "trigger_fs_error").write_text("1")


@contextmanager
def small_disk(folder: Path, megabytes: int = 24) -> Iterator[SmallDisk]:
    """Mount a small disk at a new folder. Skips the test if mounting is not allowed."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={megabytes}m", "small-disk"):
        yield SmallDisk(folder)


@contextmanager
def faulty_disk(folder: Path) -> Iterator[FaultyDisk]:
    """Mount a faulty disk at a new folder. Skips the test if mounting is not allowed."""
    file = folder.with_suffix(".disk")
    with open(file, "wb") as made:
        made.truncate(64 * 1024 * 1024)
    _run("mkfs.ext4", "-q", str(file))
    with _mounted(folder, "-o", "loop,errors=remount-ro", str(file)):
        yield FaultyDisk(folder)


@contextmanager
def _mounted(folder: Path, *what: str) -> Iterator[None]:
    folder.mkdir()
    _run("mount", *what, str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the system. Skips the test if it is missing or not allowed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"this machine has no {command[0]}")
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    return done
