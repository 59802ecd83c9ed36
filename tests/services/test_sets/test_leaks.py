"""The search for a test set's images among training images, and the command line of test sets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.twins import cropped, drawn, flipped
from cli.test_sets import main
from core.errors import UserError
from core.test_sets import SetVersion
from demo.scene import random_scene
from formats.layouts import LAYOUTS
from formats.reading import read
from formats.types import Example
from services.test_sets.drafts import ReleaseTestSet, TestSetDrafts
from services.test_sets.examples import export_version
from services.test_sets.hashes import hashes_of
from services.test_sets.leaks import check_folder
from services.test_sets.versions import version_of
from storage.workspace import Workspace
from tests.support.set_cases import by_image, picture, run_of
from tests.support.workspaces import workspace_in

SIZE = (96, 64)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


@pytest.fixture
def version(workspace: Workspace) -> SetVersion:
    """Released version with two images of one source."""
    set_id = workspace.test_sets.create("Birds")
    TestSetDrafts(workspace).add(set_id, run_of(workspace, picture(1, SIZE), [10, 11]))
    return TestSetDrafts(workspace).release(ReleaseTestSet(test_set=set_id))


def test_every_kind_of_file_gets_its_row(workspace: Workspace, version: SetVersion, tmp_path: Path) -> None:
    folder = tmp_path / "training"
    (folder / "deep" / "er").mkdir(parents=True)
    picture(10).save(folder / "same.bmp")
    picture(10).save(folder / "deep" / "er" / "SAME.PNG")
    picture(1, SIZE).save(folder / "source.jpg", quality=60)
    picture(11, (200, 200)).save(folder / "scaled.webp")
    turned = picture(1, SIZE).rotate(90, expand=True)
    exif = turned.getexif()
    exif[0x0112] = 6  # as if turned clockwise by 90 degrees
    turned.save(folder / "turned.png", exif=exif)
    picture(50, SIZE).save(folder / "other.png")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (folder / "empty.jpg").touch()
    picture(10, (8, 8)).save(folder / "small.png")
    (folder / "notes.txt").write_text("no image")
    os.mkfifo(folder / "pipe.png")
    (folder / "nowhere.png").symlink_to(folder / "gone.png")
    (folder / "round").symlink_to(folder)
    (folder / "a\x1b[31m<b>.png").write_text("no image")
    counted: list[tuple[int, int]] = []
    found = check_folder(workspace, version, folder, lambda done, total: counted.append((done, total)))
    rows = {row.file: row for row in found.rows}
    entries = workspace.test_sets.entries(version.number)
    (ten, eleven), source = (entry.image for entry in entries), entries[0].source
    assert {name: (row.found, row.image, row.role) for name, row in rows.items() if row.image} == {
        "same.bmp": ("same", ten, "generated"),
        "deep/er/SAME.PNG": ("same", ten, "generated"),
        "source.jpg": ("alike", source, "source"),
        "scaled.webp": ("alike", eleven, "generated"),
        "turned.png": ("same", source, "source"),
    }
    refused = {name: row.reason for name, row in rows.items() if row.found == "not compared"}
    assert refused.keys() == {
        "broken.png",
        "empty.jpg",
        "small.png",
        "pipe.png",
        "nowhere.png",
        "a\x1b[31m<b>.png",
    }
    assert "damaged" in refused["broken.png"] and "too small" in refused["small.png"]
    assert all(reason.endswith(".") for reason in refused.values())
    assert (found.files, found.others, found.compared) == (12, 1, 3)
    assert counted == [(number, 12) for number in range(1, 13)]
    assert [row.file for row in found.rows] == sorted(row.file for row in found.rows)


def test_a_mirrored_and_a_cropped_image_of_the_set_are_found_in_the_training_images(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = drawn(random_scene(5, "road"), 128)
    set_id = workspace.test_sets.create("Roads")
    TestSetDrafts(workspace).add(set_id, run_of(workspace, source, [10]))
    version = TestSetDrafts(workspace).release(ReleaseTestSet(test_set=set_id))
    folder = tmp_path / "training"
    folder.mkdir()
    flipped(source).save(folder / "flipped.png")
    cropped(source, 0.05).save(folder / "cropped.jpg")
    drawn(random_scene(6, "road"), 128).save(folder / "other.png")
    found = check_folder(workspace, version, folder)
    sha = workspace.test_sets.entries(version.number)[0].source
    assert [(row.file, row.found, row.image, row.role) for row in found.leaks] == [
        ("cropped.jpg", "copy", sha, "source"),
        ("flipped.png", "copy", sha, "source"),
    ]
    assert main(["--workspace", str(workspace.folder), "leaks", "Roads", str(folder)]) == 1
    assert "0 look alike, 2 are mirrored, cropped or marked copies" in capsys.readouterr().out


def test_what_is_meant_to_be_trained_on_is_no_leak(workspace: Workspace, tmp_path: Path) -> None:
    cases = run_of(workspace, 1, [10]) + run_of(workspace, 2, [11])
    set_id = workspace.test_sets.create("Birds")
    TestSetDrafts(workspace).add(set_id, cases)
    draft = workspace.test_sets.get(set_id).draft
    assert draft is not None
    for entry in workspace.test_sets.entries(draft.number):
        workspace.test_sets.set_splits(draft.number, {entry.image: "train" if entry.test_case == cases[0] else "test"})
    folder = tmp_path / "training"
    folder.mkdir()
    for number in (1, 2, 10, 11):
        picture(number).save(folder / f"{number}.png")
    found = check_folder(workspace, draft, folder)
    assert [row.file for row in found.rows] == ["11.png", "2.png"]


def test_a_folder_that_is_none_and_a_version_with_a_file_missing(
    workspace: Workspace, version: SetVersion, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is no folder"):
        check_folder(workspace, version, tmp_path / "none")
    entry = workspace.test_sets.entries(version.number)[0]
    (workspace.images.folder / f"{entry.image}.png").unlink()
    with pytest.raises(UserError, match="is missing"):
        check_folder(workspace, version, tmp_path)


def test_looks_are_worked_out_once(workspace: Workspace, version: SetVersion) -> None:
    shas = [entry.image for entry in workspace.test_sets.entries(version.number)]
    first = hashes_of(workspace, shas)
    shutil.rmtree(workspace.images.folder)
    assert hashes_of(workspace, shas) == first


def by_sha(example: Example) -> str:
    return example.sha


def ran(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: object) -> tuple[int, str]:
    code = main(["--workspace", str(folder), *(str(argument) for argument in arguments)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out + said.err


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "workspace"
    with workspace_in(folder) as workspace:
        cases = [case for number in range(4) for case in run_of(workspace, number, [10 + number, 20 + number])]
        (loose,) = run_of(workspace, 7, [17], accepted=False)
    assert ran(capsys, folder, "list") == (0, "No test set yet.\n")
    assert ran(capsys, folder, "create", "Night birds")[0] == 0
    added = ran(capsys, folder, "add", "Night birds", "--filter", "review=accepted")
    assert added == (
        0,
        "8 images came into “Night birds”.\n",
    )
    code, said = ran(capsys, folder, "split", "Night birds", "--train", "0.5", "--test", "0.5")
    assert (code, said.splitlines()[0]) == (0, "4 groups of images that stay together.")
    code, said = ran(capsys, folder, "release", "Night birds", "--note", "First.", "--threshold", "label seen=0.25")
    assert code == 0
    first = said.splitlines()[-1]
    assert ran(capsys, folder, "draft", "Night birds")[0] == 0
    assert ran(capsys, folder, "add", "Night birds", loose, cases[0])[1].endswith("; 1 were in it already.\n")
    assert ran(capsys, folder, "split", "Night birds", "--test", "1")[0] == 0
    code, said = ran(capsys, folder, "release", "Night birds")
    assert code == 2 and f"1 that nobody reviewed (test cases {loose})" in said
    assert ran(capsys, folder, "release", "Night birds", "--unreviewed")[0] == 0
    code, said = ran(capsys, folder, "diff", first[:8], "Night birds")
    assert (code, said.count("\n"), said.startswith("added")) == (1, 1, True)
    assert ran(capsys, folder, "diff", first, "Night birds@1") == (0, "They hold the same.\n")
    code, said = ran(capsys, folder, "show", first[:8], "--images")
    assert code == 0 and f"id          {first}" in said and "label seen 0.25, near-duplicate distance 3" in said
    assert said.count("test case") == 8 and "note        First." in said
    assert ran(capsys, folder, "list")[1].count("Night birds@") == 2
    code, said = ran(capsys, folder, "verify")
    assert code == 0 and said.count("all whole") == 2
    training = tmp_path / "training"
    training.mkdir()
    assert ran(capsys, folder, "leaks", "Night birds", training)[0] == 0
    picture(17).save(training / "a\x1b[31m.png")
    code, said = ran(capsys, folder, "leaks", "Night birds", training)
    assert code == 1 and "same          a\\x1b[31m.png: the image" in said and "\x1b" not in said
    files = tmp_path / "files"
    code, said = ran(capsys, folder, "export", "Night birds@1", files)
    assert (code, said.splitlines()) == (
        0,
        [str(files), "no licence is known of m; name its profile with --profile"],
    )
    back = read(files, tmp_path / "unpacked")
    assert back.header is not None and back.header.version == first and not back.rows
    with Workspace(folder) as workspace:
        version = version_of(workspace, first)
        held = by_image(workspace.test_sets.entries(version.number))
        assert [(one.sha, one.label, one.split, one.source) for one in sorted(back.examples, key=by_sha)] == [
            (sha, held[sha].label, held[sha].split, held[sha].source) for sha in sorted(held)
        ]
        for layout in (name for name, each in LAYOUTS.items() if each.write is not None and name != "cityscapes"):
            export_version(workspace, version, tmp_path / layout, layout)
            assert (tmp_path / layout / "manifest.json").is_file()
    assert ran(capsys, folder, "export", "Night birds@1", files)[0] == 2
    images = folder / "images"
    for path in images.iterdir():
        path.write_bytes(b"harmed")
    code, said = ran(capsys, folder, "verify", "Night birds@1")
    assert (code, "damaged" in said) == (1, True)
    for wrong in (
        ["show", "Boats"],
        ["add", "Boats", "1"],
        ["leaks", "Night birds", tmp_path / "none"],
        ["add", first],
    ):
        code, said = ran(capsys, folder, *wrong)
        assert (code, said.count("\n")) == (2, 1)
    assert ran(capsys, tmp_path, "list")[0] == 2
