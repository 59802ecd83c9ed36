"""Locks on files. The kernel lets go of a lock when its process ends, however it ends. POSIX only."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from core.errors import UserError

_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
"""What a drive without locks answers, such as a network drive without its lock service."""


_HELD = ".in-use"
"""A file in a folder of `held_folder` that its process holds a lock on."""


def take_lock(file: IO[bytes] | IO[str] | int, path: Path) -> None:
    """Lock an open file until it is closed. `path` is what the error names.

    Raises BlockingIOError if another one holds the lock, UserError if the drive keeps no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise no_locks(path) from error
        raise


def keeps_locks(folder: Path) -> bool:
    """Return False if the drive of a folder keeps no locks. True also for a folder that cannot be asked."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True


def no_locks(path: Path) -> UserError:
    """The error to show for a file on a drive that keeps no locks."""
    return UserError(
        f"The drive of {path} keeps no locks, without which two programs could spoil it: pick a folder on a local disk."
    )


@contextmanager
def held_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder for this process, named by `prefix` and a few random letters; it is removed at the end. What
    killed processes left under the same prefix is removed first. Raises OSError.
    """
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError, UserError), open(left / _HELD, "rb") as file:  # without the file nobody can tell
            take_lock(file, left)
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        with open(folder / f"{_HELD}-soon", "wb") as file:
            with suppress(UserError):  # a drive without locks: then nobody removes the folder but this process
                take_lock(file, folder)
                os.replace(file.name, folder / _HELD)  # named so once it is locked
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
