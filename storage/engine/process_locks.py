"""Lock files in `open/` that show which processes have the workspace open. Each process locks one file.

The kernel releases a lock when its process ends, however it ends. A process id would not do, as ids are reused and a
restarted container may have the same id or another host name. Call `enter` and `sweep` only while holding the
database's write lock, so that no two processes check the folder at once. POSIX only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from core.locks import take_lock


class Presence:
    """Lock file of this process. It can also check the lock files of other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own: tuple[Path, int] | None = None

    def enter(self, number: int) -> None:
        """Lock the file of process `number` until `leave`. Raises OSError; UserError if the drive has no locks."""
        path = self.folder / f"{number}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._own = path, descriptor
        take_lock(descriptor, path)

    def leave(self) -> None:
        """Release the lock. A second call does nothing."""
        lock, self._own = self._own, None
        if lock is not None:
            path, descriptor = lock
            with suppress(OSError):  # on a disk that became read-only it stays, unlocked
                path.unlink()
            os.close(descriptor)

    def alive(self, number: int) -> bool:
        """Return True if process `number` still has the workspace open."""
        return _held(self.folder / f"{number}.lock")

    def sweep(self) -> None:
        """Remove lock files that no running process holds."""
        for path in self.folder.glob("*.lock"):
            if not _held(path):
                path.unlink(missing_ok=True)


def _held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        take_lock(descriptor, path)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # also releases the lock if it was free
    return False
