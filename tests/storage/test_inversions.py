"""Stored inversions are read back complete or not at all, and only a limited number is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import UserError
from storage.inversions import Inversions
from storage.workspace import Workspace
from tests.support.workspaces import workspace_in

ONE, OTHER, THIRD = ("1" * 64, "2" * 64, "3" * 64)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def files_of(inversions: Inversions) -> set[str]:
    return {path.name for path in inversions.folder.iterdir()}


def test_what_was_saved_comes_back_in_the_next_process_too(workspace: Workspace) -> None:
    assert workspace.inversions.read(ONE) is None
    workspace.inversions.save(ONE, b"noise")
    workspace.inversions.save(ONE, b"other noise")
    assert workspace.inversions.read(ONE) == b"other noise" and workspace.inversions.read(OTHER) is None
    with Workspace(workspace.folder) as again:
        assert again.inversions.read(ONE) == b"other noise"


@pytest.mark.parametrize("damaged", [b"", b"short", b"\0" * 32 + b"noise"])
def test_a_damaged_file_is_none_and_is_written_anew(workspace: Workspace, damaged: bytes) -> None:
    workspace.inversions.save(ONE, b"noise")
    (path,) = workspace.inversions.folder.iterdir()
    path.write_bytes(damaged)
    assert workspace.inversions.read(ONE) is None
    workspace.inversions.save(ONE, b"noise")
    assert workspace.inversions.read(ONE) == b"noise"


def test_the_least_recently_used_go(workspace: Workspace) -> None:
    inversions = Inversions(workspace.folder / "few", workspace.images, most_bytes=250)
    for age, key in enumerate((ONE, OTHER)):
        inversions.save(key, b"n" * 68)
        os.utime(inversions.folder / f"{key}.inversion", (age, age))
    assert inversions.read(ONE) is not None, "now it is used later than the other"
    inversions.save(THIRD, b"n" * 68)
    assert files_of(inversions) == {f"{ONE}.inversion", f"{THIRD}.inversion"}
    inversions.save(OTHER, b"n" * 1000)
    assert files_of(inversions) == {f"{OTHER}.inversion"}, "the newest stays, however large"


def test_a_key_is_no_path(workspace: Workspace) -> None:
    with pytest.raises(UserError):
        workspace.inversions.save("../" + ONE[3:], b"noise")


def test_a_disk_that_refuses_costs_the_inversion_only(workspace: Workspace) -> None:
    workspace.inversions.folder.write_bytes(b"a file where the folder should be")
    workspace.inversions.save(ONE, b"noise")
    assert workspace.inversions.read(ONE) is None


def test_what_a_dead_process_left_is_removed(workspace: Workspace) -> None:
    workspace.inversions.save(ONE, b"noise")
    (workspace.inversions.folder / f".{2**40}-0123456789abcdef.tmp").write_bytes(b"half")
    with Workspace(workspace.folder) as again:
        assert files_of(again.inversions) == {f"{ONE}.inversion"}
