"""A backup is restored as the same workspace. A damaged workspace is not backed up, and a damaged backup not
restored.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cli.storage import main
from core.types import Caption, StageValue, Task, Trace
from pipeline.methods.controlnet import CONTROL_IMAGE
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.workspaces import workspace_in

ROOT = Path(__file__).resolve().parents[2]


def fill(workspace: Workspace) -> str:
    run_id = workspace.runs.create(Image.new("RGB", (8, 8)), Task("classification", "bird"), "demo", "A bird", {"x": 1})
    workspace.runs.append_value(run_id, "caption", StageValue(Caption("A bird."), Trace("person"), "k"))
    job = workspace.jobs.start(run_id, 2)
    for shade in (1, 2):
        image, control = Image.new("RGB", (8, 8), (shade, 0, 0)), Image.new("L", (8, 8), shade)
        workspace.test_cases.append(run_id, job, made_case(image, control, seed=shade))
    return run_id


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with workspace_in(tmp_path / "source") as workspace:
        fill(workspace)
    return tmp_path / "source"


@pytest.fixture
def archive(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    file = tmp_path / "backup.zip"
    assert main(["backup", str(source), str(file)]) == 0
    assert "1 run, 2 test cases, 5 images, all checked" in capsys.readouterr().out
    return file


def refused(capsys: pytest.CaptureFixture[str], word: str, *arguments: str | Path) -> None:
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr()
    assert word in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def contents(folder: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / "studio.db")
    tables = ("images", "runs", "run_states", "stage_values", "jobs", "test_cases")
    rows = [(table, *row) for table in tables for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    return rows


def test_there_and_back(source: Path, archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    assert main(["restore", str(archive), str(target)]) == 0
    assert contents(target) == contents(source)
    with Workspace(source) as before, Workspace(target) as after:
        (summary,) = after.runs.search()
        run = after.runs.get(summary.id)
        for old, new in zip(before.runs.get(summary.id).test_cases, run.test_cases, strict=True):
            assert new.image_path.is_relative_to(target)
            assert new.image_path.read_bytes() == old.image_path.read_bytes()
            there, here = after.test_cases.load(new.id), before.test_cases.load(old.id)
            assert there.artifacts[CONTROL_IMAGE].tobytes() == here.artifacts[CONTROL_IMAGE].tobytes()
        after.runs.append_value(run.id, "caption", StageValue(Caption("Later."), Trace("person"), "k"))
        assert len(before.runs.history(run.id, "caption")) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.zip", "deep", "source"]


@pytest.mark.slow
def test_of_a_workspace_in_use(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "live") as workspace:
        run_id = fill(workspace)
        command = [sys.executable, "-m", "storage", "backup", str(tmp_path / "live"), str(tmp_path / "backup.zip")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        fill(workspace)
        assert workspace.runs.get(run_id).jobs[0].state == "running"
    assert main(["restore", str(tmp_path / "backup.zip"), str(tmp_path / "copy")]) == 0
    with workspace_in(tmp_path / "copy") as copy:
        assert [summary.id for summary in copy.runs.search()] == [run_id]
        assert copy.runs.get(run_id).jobs[0].state == "interrupted"


def test_nothing_is_overwritten(
    source: Path, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = archive.read_bytes()
    refused(capsys, "exists and was left as it is", "backup", source, archive)
    assert archive.read_bytes() == before
    refused(capsys, "is not empty and was left as it is", "restore", archive, source)
    refused(capsys, "is not empty", "restore", archive, archive)
    (tmp_path / "empty").mkdir()
    assert main(["restore", str(archive), str(tmp_path / "empty")]) == 0


def test_what_is_no_workspace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "backup.zip"
    refused(capsys, "holds no workspace", "backup", tmp_path, target)
    (tmp_path / "studio.db").write_text("Dear diary, " * 100)
    refused(capsys, "cannot be read", "backup", tmp_path, target)
    (tmp_path / "studio.db").unlink()
    sqlite3.connect(tmp_path / "studio.db").execute("CREATE TABLE places (url)").connection.close()
    refused(capsys, "another program's database", "backup", tmp_path, target)
    assert not target.exists()


HARMS: dict[str, Callable[[Path, Path], object]] = {
    "missing": lambda path, other: path.unlink(),
    "cut": lambda path, other: path.write_bytes(path.read_bytes()[:-9]),
    "swapped": lambda path, other: path.write_bytes(other.read_bytes()),
}
"""Kinds of damage to an image's file. Each function gets the file and the file of another image."""


@pytest.mark.parametrize("harm", HARMS)
def test_a_lost_image_is_told_and_all_others_are_saved(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    path, other, *_ = sorted((source / "images").iterdir())
    HARMS[harm](path, other)
    assert main(["check", str(source)]) == 1
    assert f"The image {path.stem} " in capsys.readouterr().out
    assert main(["backup", str(source), str(tmp_path / "backup.zip")]) == 1
    said = capsys.readouterr()
    assert "4 images, all checked" in said.out
    assert f"lacks 1 image that its database names, whose file is missing or damaged: {path.stem}" in said.err
    assert main(["restore", str(tmp_path / "backup.zip"), str(tmp_path / "copy")]) == 1
    assert (
        f"lacks 1 image that its database names, whose file is missing or damaged: {path.stem}"
        in capsys.readouterr().err
    )
    there = {one.name for one in (tmp_path / "copy" / "images").iterdir()}
    assert there == {one.name for one in (source / "images").iterdir()} - {path.name}


def test_a_check_finds_damaged_pages_and_says_when_all_is_right(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(source)]) == 0
    assert "the database, the catalogue and all images are right" in capsys.readouterr().out
    with open(source / "studio.db", "r+b") as file:
        file.seek(file.seek(0, 2) // 2 // 4096 * 4096)
        file.write(b"\x55" * 4096)
    assert main(["check", str(source)]) == 1
    assert "The database is damaged" in capsys.readouterr().out


def test_files_without_a_row_stay_out(source: Path, tmp_path: Path) -> None:
    (source / "images" / f"{'0' * 64}.png").write_bytes(b"nobody's")
    (source / "images" / f".1-{'0' * 16}.tmp").write_bytes(b"half")
    assert main(["backup", str(source), str(tmp_path / "backup.zip")]) == 0
    names = zipfile.ZipFile(tmp_path / "backup.zip").namelist()
    assert (len(names), names[0], names[-1]) == (7, "studio.db", "manifest.json")


Entries = dict[str, bytes]


def without_manifest(entries: Entries) -> None:
    del entries["manifest.json"]


def manifest_garbled(entries: Entries) -> None:
    entries["manifest.json"] = b'{"format": "x"}'


def image_missing(entries: Entries) -> None:
    del entries[next(name for name in entries if name.startswith("images/"))]


def image_changed(entries: Entries) -> None:
    entries[next(name for name in entries if name.startswith("images/"))] += b"x"


def database_changed(entries: Entries) -> None:
    entries["studio.db"] = entries["studio.db"][:-1] + b"x"


def image_not_listed(entries: Entries) -> None:
    manifest = json.loads(entries["manifest.json"])
    manifest["images"].pop()
    entries["manifest.json"] = json.dumps(manifest).encode()


def path_in_the_list(entries: Entries) -> None:
    manifest = json.loads(entries["manifest.json"])
    manifest["images"][0] = "../../escaped"
    entries["manifest.json"] = json.dumps(manifest).encode()


def newer(entries: Entries) -> None:
    entries["manifest.json"] = entries["manifest.json"].replace(b'"format": 1', b'"format": 2')


@pytest.mark.parametrize(
    "harm, word",
    [
        (without_manifest, "not a whole backup"),
        (manifest_garbled, "not a whole backup"),
        (image_missing, "is damaged"),
        (image_changed, "does not fit its hash"),
        (database_changed, "does not fit its hash"),
        (image_not_listed, "not those of its database"),
        (path_in_the_list, "not the name of an image"),
        (newer, "newer version"),
    ],
)
def test_a_backup_that_is_not_whole_is_not_restored(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Entries], None], word: str
) -> None:
    with zipfile.ZipFile(archive) as whole:
        entries = {name: whole.read(name) for name in whole.namelist()}
    harm(entries)
    with zipfile.ZipFile(tmp_path / "harmed.zip", "w") as harmed:
        for name, data in entries.items():
            harmed.writestr(name, data)
    refused(capsys, word, "restore", tmp_path / "harmed.zip", tmp_path / "target")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.zip", "harmed.zip", "source"]


def test_files_that_are_no_zip(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.zip").write_bytes(archive.read_bytes()[:3000])
    refused(capsys, "not a whole zip file", "restore", tmp_path / "cut.zip", tmp_path / "target")
    refused(capsys, "No such file", "restore", tmp_path / "none.zip", tmp_path / "target")
    (tmp_path / "file").touch()
    refused(capsys, "Nothing was written", "restore", archive, tmp_path / "file" / "target")
    assert not (tmp_path / "target").exists()
