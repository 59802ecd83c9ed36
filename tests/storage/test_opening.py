"""Folders and files that are no workspace are refused in one sentence, and left unchanged."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from core.errors import UserError
from core.types import Task
from storage.engine import database
from storage.workspace import Workspace

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
OPEN_AS = """
import os, sys
import sqlite_utils
from core.errors import UserError
from storage.workspace import Workspace
sqlite_utils.Database(memory=True)  # loads the rest, which the other user may not be allowed to read
user, *folders = sys.argv[1:]
if os.getuid() != int(user):
    os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
for folder in folders:
    try:
        Workspace(folder).open()
    except UserError as error:
        print(error)
"""


def refused(folder: Path, word: str) -> None:
    """Check that opening is refused in one sentence with the folder and `word`, and that no lock remains."""
    with pytest.raises(UserError, match=word) as caught:
        Workspace(folder).open()
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def filled(folder: Path) -> None:
    with Workspace(folder) as workspace:
        for number in range(30):
            image = Image.new("RGB", (8, 8), (number, 0, 0))
            workspace.runs.create(image, Task("classification", "bird"), "demo", f"Run {number}", {"x": "y" * 500})


def test_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    refused(tmp_path / "file" / "workspace", "Not a directory")
    refused(tmp_path / "file", "cannot be written")


def test_the_database_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "studio.db").mkdir()
    refused(tmp_path, "cannot be written")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "studio.db").write_text("Dear diary, " * 1000)
    refused(tmp_path, "is not a workspace database")
    assert (tmp_path / "studio.db").read_text().startswith("Dear diary")


def test_another_programs_database_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "studio.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE places (url TEXT)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    refused(tmp_path, "another program's database")
    assert file.read_bytes() == before


def test_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    filled(tmp_path)
    connection = sqlite3.connect(tmp_path / "studio.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    refused(tmp_path, "newer version")


def test_a_workspace_of_before_the_first_version_is_not_touched(tmp_path: Path) -> None:
    filled(tmp_path)
    connection = sqlite3.connect(tmp_path / "studio.db")
    connection.execute("PRAGMA user_version = 0")
    connection.close()
    refused(tmp_path, "was written before version 0.1.0, whose workspaces no released version opens; pick another")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def overwritten(data: bytes) -> bytes:
    return data[:4096] + b"\xff" * 12_288 + data[16_384:]


@pytest.mark.parametrize("harm", [cut, overwritten])
def test_a_damaged_database(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    filled(tmp_path)
    file = tmp_path / "studio.db"
    file.write_bytes(harm(file.read_bytes()))
    refused(tmp_path, "is damaged")


NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
static int passed_on(const char *name, int file, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, name))(file, command, argument);
}
#define PASSED_ON(name) int name(int file, int command, ...) { \\
    va_list rest; va_start(rest, command); void *argument = va_arg(rest, void *); va_end(rest); \\
    return passed_on(#name, file, command, argument); }
PASSED_ON(fcntl)
PASSED_ON(fcntl64)
int flock(int file, int operation) { errno = ENOLCK; return -1; }
"""
"""Source of a library that makes every lock fail, like a network drive without a lock service."""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_drive_without_locks_is_called_that(tmp_path: Path) -> None:
    library = tmp_path / "no_locks.so"
    build = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(build, input=NO_LOCKS, text=True, check=True)
    new, filled_before = tmp_path / "new", tmp_path / "filled"
    filled(filled_before)
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AS, str(os.getuid()), str(new), str(filled_before)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    why = "has no file locks, so two programs could damage this file: pick a folder on a local disk."
    assert done.stdout.splitlines() == [f"The drive of {at / 'studio.db'} {why}" for at in (new, filled_before)]
    with Workspace(filled_before) as workspace:
        assert len(workspace.runs.search()) == 30


def test_locks_that_fail_later_are_not_blamed_on_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with Workspace(tmp_path) as workspace:
        other = sqlite3.connect(tmp_path / "studio.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        def fails(file: object, operation: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        with pytest.raises(UserError, match="another program has kept"):
            workspace.studies.note("x", "y")
        monkeypatch.setattr("fcntl.lockf", fails)
        with pytest.raises(UserError, match="has no file locks"):
            workspace.studies.note("x", "y")
        other.close()
        monkeypatch.undo()


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "studio.db").touch()
    with Workspace(tmp_path) as workspace:
        assert workspace.runs.search() == ()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Folder that every user can reach, unlike pytest's own folders."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_read_only_place(open_to_all: Path) -> None:
    """The workspace is opened by a process without root's rights, since read-only bits do not stop root."""
    user, parts = os.getuid() or 65534, {"whole": ".", "images": "images", "open": "open", "database": "studio.db"}
    filled(open_to_all / "writable")
    for name in parts:
        shutil.copytree(open_to_all / "writable", open_to_all / name)
    for path in open_to_all.rglob("*"):
        os.chown(path, user, -1)
    for name, part in parts.items():
        (open_to_all / name / part).chmod(0o444 if part == "studio.db" else 0o555)
    folders = [str(open_to_all / name) for name in (*parts, "writable")]
    command = [sys.executable, "-c", OPEN_AS, str(user), *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(parts), "the writable one opens"
    for line, name in zip(lines, parts, strict=True):
        assert str(open_to_all / name) in line and "cannot be written" in line
    for name, part in parts.items():
        (open_to_all / name / part).chmod(0o755)
