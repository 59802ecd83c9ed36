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
"""Ending of the file beside a folder of `held_folder` that its process holds a lock on."""


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
    for left in parent.glob(f"{prefix}*{_HELD}"):
        with suppress(OSError, UserError), open(left, "rb") as file:
            take_lock(file, left)
            _remove(left)
    with _held_name(parent, prefix) as held:
        folder = held.with_name(held.name.removesuffix(_HELD))
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(held)


@contextmanager
def _held_name(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a file for a new folder, and hold a lock on it. It is there before the folder and after it, so that a kill
    at any moment leaves none that nobody removes.
    """
    while True:
        descriptor, name = tempfile.mkstemp(_HELD, prefix, parent)
        try:
            with suppress(UserError):  # a drive without locks: then nobody removes the folder but this process
                take_lock(descriptor, Path(name))
            if os.path.exists(name):
                yield Path(name)
                return
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
        # Otherwise another process took it for a dead one's before it was locked.


def _remove(held: Path) -> None:
    """Remove a folder, then its file, which stays as long as there is anything of the folder."""
    folder = held.with_name(held.name.removesuffix(_HELD))
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        held.unlink(missing_ok=True)
