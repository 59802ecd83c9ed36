"""Unfinished files are removed after their process has ended, even if the next process has the same process id."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from core.test_sets import SetVersion
from services.changes import Changes
from services.curation.import_source import new_room
from services.test_sets import exports
from services.test_sets.drafts import ReleaseTestSet, TestSetDrafts
from storage.workspace import Workspace
from tests.support.serving import until
from tests.support.set_cases import run_of


def left_in(home: Path) -> None:
    """Create the leftovers of an earlier process with this process's id, and a folder that is no leftover."""
    # Leftovers are named by the workspace's number or, in earlier versions, by the process id. Numbers below ten are
    # used by workspaces that are open here.
    for number in (1, max(os.getpid(), 10)):
        (home / f"{number}-00000000").mkdir(parents=True, exist_ok=True)
    (home / "notes").mkdir()


def opened_before(folder: Path) -> None:
    with Workspace(folder) as workspace:
        assert workspace.images.process == 1


def released(workspace: Workspace) -> SetVersion:
    drafts, set_id = TestSetDrafts(workspace), workspace.test_sets.create("Birds")
    drafts.add(set_id, run_of(workspace, 1, [10]))
    return drafts.release(ReleaseTestSet(test_set=set_id))


def test_what_an_import_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    opened_before(tmp_path)
    with Workspace(tmp_path) as workspace, Workspace(tmp_path) as beside:
        left_in(tmp_path / "importing")
        first, other = new_room(workspace), new_room(beside)
        another = new_room(workspace)
        there = {path.name for path in (tmp_path / "importing").iterdir()}
        assert there == {first.name, other.name, another.name, "notes"}, "what is being done stays"


def test_what_an_export_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    opened_before(tmp_path)
    with Workspace(tmp_path) as workspace:
        version = released(workspace)
        left_in(tmp_path / exports.FOLDER)
        ready = exports.SetExports(workspace, Changes())._export(version, "csv", lambda _done, _all: None)
        assert {path.name for path in (tmp_path / exports.FOLDER).iterdir()} == {ready.file.parent.name, "notes"}
        shutil.rmtree(ready.file.parent)


def test_an_export_that_a_kill_has_ended_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    opened_before(tmp_path)
    with Workspace(tmp_path) as workspace:
        version = released(workspace)
        ready = exports.SetExports(workspace)._export(version, "csv", lambda _done, _all: None)
        ready.file.parent.rename(tmp_path / exports.FOLDER / "1-00000000")  # as if the first process had written it
        left_in(tmp_path / exports.FOLDER)
        again = exports.SetExports(workspace)
        until(lambda: not again.of(version)[0].active)
        (told,) = again.of(version)
        assert (told.kind, told.state) == ("csv", "failed") and "export the version again" in told.error
        assert [path.name for path in (tmp_path / exports.FOLDER).iterdir()] == ["notes"]
        again.close()
