"""Who has the workspace open: one lock file a process in `open/`, held as long as the process lives.

The kernel lets go of the lock when a process ends, however it ends. A process id would not do: ids are used again,
and a restarted container has another host name or the same id. Call `enter` and `sweep` only while holding the
database's write lock, so that no two processes look at the folder at once. POSIX only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from core.locks import take_lock


class Presence:
    """This process's own lock file, and a look at those of others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own: tuple[Path, int] | None = None

    def enter(self, number: int) -> None:
        """Hold the lock file of process `number` until `leave` or the end of this process. Raises OSError,
        and UserError on a drive without locks.
        """
        path = self.folder / f"{number}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._own = path, descriptor
        take_lock(descriptor, path)

    def leave(self) -> None:
        """Give the lock back. A second call does nothing."""
        own, self._own = self._own, None
        if own is not None:
            path, descriptor = own
            with suppress(OSError):  # on a disk that can only be read by now it stays, and nobody holds it
                path.unlink()
            os.close(descriptor)

    def alive(self, number: int) -> bool:
        """Whether process `number` still has the workspace open."""
        return _held(self.folder / f"{number}.lock")

    def sweep(self) -> None:
        """Remove the lock files that nobody holds."""
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
        os.close(descriptor)  # and with it the lock, where it was free
    return False
