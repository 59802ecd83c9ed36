"""File locks. The kernel releases a lock when its process ends, however it ends. POSIX only."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from core.errors import UserError

_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
"""Error numbers that mean that a drive has no file locks, such as a network drive without a lock service."""
HELD = ".in-use"
"""Suffix of the lock file that lies beside a folder made by `held_folder`."""


def take_lock(file: IO[bytes] | IO[str] | int, path: Path) -> None:
    """Lock an open file until it is closed. `path` is for the error message. Raises BlockingIOError if the file is
    already locked, UserError if the drive has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise no_locks(path) from error
        raise


def keeps_locks(folder: Path) -> bool:
    """Return False if a folder's drive does not support file locks. Return True if this cannot be tested."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True


def no_locks(path: Path) -> UserError:
    """Return the error for a file on a drive without locks."""
    return UserError(
        f"The drive of {path} has no file locks, so two programs could damage this file: pick a folder on a local disk."
    )


@contextmanager
def held_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder, named `prefix` and random letters, for the `with` block. First remove leftover folders
    of killed processes with the same prefix. Raises OSError if the folder cannot be made.
    """
    for left in parent.glob(f"{glob.escape(prefix)}*{HELD}"):
        with suppress(OSError, UserError), open(left, "rb") as file:
            take_lock(file, left)
            _remove(left)
    with _held_name(parent, prefix) as lock_file:
        folder = lock_file.with_name(lock_file.name.removesuffix(HELD))
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(lock_file)


@contextmanager
def _held_name(parent: Path, prefix: str) -> Iterator[Path]:
    """Make and lock the lock file of a new folder, and yield its path. The file exists before the folder and is removed
    after it, so that another process can remove both if this one is killed.
    """
    while True:
        descriptor, name = tempfile.mkstemp(HELD, prefix, parent)
        try:
            with suppress(UserError):  # without locks only this process removes its folder
                take_lock(descriptor, Path(name))
            if os.path.exists(name):
                yield Path(name)
                return
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
        # Another process removed the file before it was locked, so try again.


def _remove(lock: Path) -> None:
    """Remove the folder that a lock file protects. If that succeeds, remove the lock file too."""
    folder = lock.with_name(lock.name.removesuffix(HELD))
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        lock.unlink(missing_ok=True)
