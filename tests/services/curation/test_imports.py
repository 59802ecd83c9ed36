"""Imports into a workspace: each image comes in once with its facts, also if others are faulty."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cli.curation import main
from core.catalogue import CatalogueEntry
from core.errors import Cancelled, UserError
from core.image_filter import ImageFilter
from core.test_sets import SetEntry, SetVersion
from core.types import Check, Edit
from formats.layouts import LAYOUTS
from services.curation import import_source
from services.curation.import_source import Done, bring_in
from services.curation.imports import ImportService, ImportState, into_set
from services.studio import Studio
from services.test_sets.drafts import AddToTestSet, ReleaseTestSet, SplitTestSet, TestSetDrafts
from services.test_sets.examples import VersionImages, export_version
from services.test_sets.leaks import check_folder
from services.test_sets.versions import Versions, version_of
from storage import images as storage_of_images
from storage.curation.decisions import Target
from storage.damage import catalogue_faults
from storage.images import ImageFiles
from storage.test_sets import test_sets as storage_of_test_sets
from storage.workspace import DATABASE, Workspace
from tests.formats.test_import import encoded, mask_of, put
from tests.support.cases import made_case
from tests.support.held_imports import hold_imports
from tests.support.set_cases import CAPTION, picture, run_of
from tests.support.workspaces import workspace_in

ROOT = Path(__file__).resolve().parents[3]
WRITTEN = [name for name, layout in LAYOUTS.items() if layout.write is not None]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened
        assert catalogue_faults(opened.folder / DATABASE) == ()
        assert not (opened.folder / "importing").exists()


def entries(workspace: Workspace, **wanted: Any) -> list[CatalogueEntry]:
    return list(workspace.catalogue.page(ImageFilter(**wanted), limit=1000).entries)


def named(workspace: Workspace) -> set[str]:
    return {entry.name for entry in entries(workspace)}


def told(workspace: Workspace, done: Done) -> dict[str, tuple[str, str]]:
    rows = workspace.imports.rows(done.imported.id, limit=1000)
    return {row.file: (row.kind, row.reason) for _, row in rows}


def counts(workspace: Workspace) -> dict[str, int]:
    connection = sqlite3.connect(workspace.folder / DATABASE)
    tables = ("imports", "imported_images", "import_rows", "catalogue", "images", "test_set_entries")
    found = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    connection.close()
    return found | {"files": len(list(workspace.images.folder.iterdir()))}


def birds(folder: Path, number: int = 3, first: int = 0) -> Path:
    """Write a folder of this number of pictures, with two labels in two splits."""
    files: dict[str, bytes | Image.Image | str] = {
        f"{'train' if place % 2 else 'test'}/{'bird' if place % 3 else 'boat'}/{place}.png": picture(place)
        for place in range(first, first + number)
    }
    return put(folder, files)


def test_a_folder_comes_in_as_images_that_can_be_curated(workspace: Workspace, tmp_path: Path) -> None:
    street = picture(7)
    source = put(
        birds(tmp_path / "birds"),
        {"masks/street.png": mask_of(street), "images/street.png": street, "classes.txt": "0 sky, 1 road"},
    )
    done = bring_in(workspace, source)
    assert (done.imported.images, done.imported.made, done.imported.state, done.already) == (4, 4, "done", False)
    assert (done.imported.name, done.imported.source, done.imported.layout) == ("birds", "birds", "folder")
    assert "4 images came into the workspace as “birds”" in done.words
    by_name = {entry.name: entry for entry in entries(workspace)}
    assert {name: (one.kind, one.classes) for name, one in by_name.items()} == {
        "0": ("classification", ("boat",)),
        "1": ("classification", ("bird",)),
        "2": ("classification", ("bird",)),
        "street": ("segmentation", ("sky", "road")),
    }
    one = by_name["1"]
    assert (one.test_case, one.run, one.source_sha, one.verdict, one.import_name) == (None, "", "", "open", "birds")
    assert (one.caption, one.counterfactual, one.edits, one.profile, one.recipe) == ("", "", (), "", "")
    assert one.image_size == (32, 32) and Image.open(one.image_path).tobytes() == picture(1).tobytes()
    facets = workspace.catalogue.facets()
    assert facets["import"] == {"birds": 4} and facets["split"] == {"test": 2, "train": 1}
    assert facets["class"] == {"bird": 2, "boat": 1, "road": 1, "sky": 1} and facets["review"] == {"open": 4}
    assert {one.name for one in entries(workspace, facets={"import": ("birds",), "split": ("train",)})} == {"1"}
    assert entries(workspace, test_cases=True) == []


def test_a_second_import_changes_nothing_and_says_so(workspace: Workspace, tmp_path: Path) -> None:
    source = birds(tmp_path / "birds")
    put(source, {"broken.png": b"no image"})
    first = bring_in(workspace, source)
    before = counts(workspace)
    again = bring_in(workspace, source, "Another name")
    assert again.already and again.imported == first.imported and "imported already" in again.words
    archive = shutil.make_archive(str(tmp_path / "b"), "zip", source)
    bring_in(workspace, Path(archive))
    packed = counts(workspace)
    assert packed["catalogue"] == before["catalogue"] and packed["files"] == before["files"]
    assert bring_in(workspace, Path(archive)).already and counts(workspace) == packed
    birds(source, 5)
    more = bring_in(workspace, source)
    assert (more.imported.images, more.imported.made) == (5, 2)
    assert [kind for kind, _ in told(workspace, more).values()].count("known") == 3
    assert workspace.catalogue.facets()["import"] == {"birds": 5, "b.zip": 3}


def test_a_picture_that_is_here_is_linked_and_not_made_again(workspace: Workspace, tmp_path: Path) -> None:
    (case,) = run_of(workspace, 1, [10])
    (gone,) = run_of(workspace, 2, [11])
    run = workspace.test_cases.get(gone).run_id
    workspace.runs.remove(run)
    source = put(tmp_path / "set", {"test/bird/a.png": picture(10), "test/bird/b.png": picture(11)})
    done = bring_in(workspace, source, "Back")
    assert (done.imported.images, done.imported.made) == (2, 1), "what is of a deleted run cannot be seen"
    assert told(workspace, done) == {
        "a": ("known", f"It is in the workspace already, as test case {case}: no second one was made.")
    }
    assert {(one.test_case, one.name) for one in entries(workspace, facets={"import": ("Back",)})} == {
        (case, ""),
        (None, "b"),
    }
    workspace.runs.remove(workspace.test_cases.get(case).run_id)
    assert workspace.catalogue.facets()["import"] == {"Back": 1} and workspace.catalogue.facets()["split"] == {
        "test": 1
    }
    assert catalogue_faults(workspace.folder / DATABASE) == ()
    workspace.runs.restore(workspace.test_cases.get(case).run_id)
    assert workspace.catalogue.facets()["import"] == {"Back": 2}


def released(folder: Path, sources: bool = False, splits: bool = True) -> tuple[SetVersion, tuple[SetEntry, ...]]:
    """Release a version in a new workspace: three runs with edits, checks and reviews, and masks for all."""
    with workspace_in(folder) as workspace:
        set_id = workspace.test_sets.create("Night birds")
        drafts = TestSetDrafts(workspace)
        for number in range(3):
            cases = run_of(workspace, number, [10 * number + 10, 10 * number + 11], "bird" if number else "a boat")
            run = workspace.test_cases.get(cases[0]).run_id
            mask = Image.new("L", (32, 32), number % 2)
            mask.paste(1, (0, 0, 16, 9 + number))
            workspace.runs.set_mask(run, mask, {0: "sky", 1: "road"})
            drafts.add_chosen(AddToTestSet.of({"test_set": set_id, "cases": cases, "sources": sources}))
        if splits:
            drafts.split(SplitTestSet(test_set=set_id, validation=0.4, test=0.6))
        version = drafts.release(ReleaseTestSet(test_set=set_id, note="For the paper."))
        return version, workspace.test_sets.entries(version.number)


def without_numbers(found: tuple[SetEntry, ...]) -> dict[str, SetEntry]:
    return {entry.image: replace(entry, test_case=None, origin={}) for entry in found}


@pytest.mark.slow
@pytest.mark.parametrize("sources", [True, False])
@pytest.mark.parametrize("layout", WRITTEN)
def test_every_export_comes_back_as_the_same_test_set(layout: str, sources: bool, tmp_path: Path) -> None:
    version, wanted = released(tmp_path / "a", sources)
    with workspace_in(tmp_path / "a") as there:
        export_version(there, there.test_sets.version(version.number), tmp_path / "files", layout)
        examples = list(VersionImages(there, version).all())
    with workspace_in(tmp_path / "b") as here:
        done = bring_in(here, tmp_path / "files")
        assert (done.imported.images, done.imported.sources) == (6, 3 if sources else 0)
        assert told(here, done) == {} and done.imported.layout == layout
        made = into_set(here, done.imported.id)
        assert (made.added, made.already) == (len(wanted), 0)
        found = here.test_sets.entries(made.version.number)
        assert without_numbers(found) == without_numbers(wanted)
        assert all(entry.test_case is None for entry in found)
        anew = TestSetDrafts(here).release(ReleaseTestSet(test_set="Night birds"))
        assert anew.id == version.id and anew.note == "For the paper."
        assert Versions(here).verify(anew).whole
        assert [replace(one, image=Path(), mask=None) for one in VersionImages(here, anew).all()] == [
            replace(one, image=Path(), mask=None) for one in examples
        ]
        export_version(here, anew, tmp_path / "again", layout)
        assert (tmp_path / "again/records.jsonl").read_bytes() == (tmp_path / "files/records.jsonl").read_bytes()
        assert catalogue_faults(here.folder / DATABASE) == ()
        again = into_set(here, done.imported.id)
        assert (again.added, again.already) == (0, len(wanted)) and "nothing was changed" in again.words
        assert here.test_sets.get(anew.test_set).draft is None


def test_what_an_export_says_can_be_found(tmp_path: Path, workspace: Workspace) -> None:
    with workspace_in(tmp_path / "a") as there:
        cases = run_of(there, 1, [10, 11])
        weather = replace(CAPTION, text="A bird in heavy fog.", edits=(Edit("clear", "foggy", "weather"),))
        run = there.test_cases.get(cases[0]).run_id
        checked = replace(
            made_case(picture(12), counterfactual=weather), checks=(Check("label kept", True, 0.75, threshold=0.5),)
        )
        there.test_cases.extend(run, None, [checked])
        set_id = there.test_sets.create("Birds")
        TestSetDrafts(there).add(set_id, [case.id for case in there.runs.get(run).test_cases], sources=True)
        version = TestSetDrafts(there).release(ReleaseTestSet(test_set=set_id, unreviewed=True))
        export_version(there, version, tmp_path / "files", "parquet")
        (source,) = {entry.source for entry in there.test_sets.entries(version.number)}
    done = bring_in(workspace, tmp_path / "files", "Birds from there")
    (foggy,) = entries(workspace, facets={"weather": ("foggy",)})
    assert (foggy.counterfactual, foggy.caption, foggy.source_sha) == ("A bird in heavy fog.", "A red bird.", source)
    assert (foggy.profile, foggy.recipe, foggy.method) == ("demo", "dillema", "m")
    assert [(check.name, check.value) for check in foggy.checks] == [("label kept", 0.75)]
    assert [one.id for one in entries(workspace, checks={"label kept": ("passed",)})] == [foggy.id]
    assert len(workspace.catalogue.histogram("label kept")) == 1
    assert [one.id for one in entries(workspace, text="fogs")] == [foggy.id]
    assert len(entries(workspace, edited="blue")) == 2 and len(entries(workspace, source=source)) == 3
    assert {cell.line for cell in workspace.catalogue.coverage("weather x time of day")} == {"foggy"}
    # Two images were accepted in the other workspace, which counts until somebody decides here.
    made = into_set(workspace, done.imported.id, "Mine")
    drafts = TestSetDrafts(workspace)
    with pytest.raises(UserError, match="1 that nobody reviewed") as refused:
        drafts.release(ReleaseTestSet(test_set="Mine"))
    assert foggy.image_sha[:8] in str(refused.value)
    workspace.test_sets.remove(made.version.number, [foggy.image_sha])
    assert drafts.release(ReleaseTestSet(test_set="Mine")).entries == 3


def test_a_version_whose_mask_was_replaced_is_not_exported(tmp_path: Path) -> None:
    version, held = released(tmp_path / "a")
    with workspace_in(tmp_path / "a") as there:
        assert held[0].mask is not None
        Image.new("L", (32, 32), 1).save(there.images.path(held[0].mask))
        with pytest.raises(UserError, match=r"mask of .* was changed or is damaged"):
            export_version(there, version, tmp_path / "files", "csv")
    assert not (tmp_path / "files").exists()


def test_an_original_that_comes_later_is_linked(workspace: Workspace, tmp_path: Path) -> None:
    version, held = released(tmp_path / "a")
    with workspace_in(tmp_path / "a") as there:
        export_version(there, version, tmp_path / "files", "csv")
    done = bring_in(workspace, tmp_path / "files")
    assert all(entry.source_sha == "" for entry in entries(workspace))
    made = into_set(workspace, done.imported.id, "Back")
    kept = workspace.test_sets.entries(made.version.number)
    assert {entry.source for entry in kept} == {entry.source for entry in held}, "they stay together"
    put(tmp_path / "train", {"a.png": picture(0), "b.png": picture(10)})
    assert [row.role for row in check_folder(workspace, made.version, tmp_path / "train").rows] == ["generated"]
    workspace.images.add(picture(0))
    assert sum(entry.source_sha != "" for entry in entries(workspace)) == 2
    assert workspace.test_sets.entries(made.version.number) == kept
    assert len(check_folder(workspace, made.version, tmp_path / "train").rows) == 2


def test_images_join_the_draft_of_a_set_that_is_there(workspace: Workspace, tmp_path: Path) -> None:
    cases = run_of(workspace, 1, [10])
    set_id = workspace.test_sets.create("Birds")
    TestSetDrafts(workspace).add(set_id, cases)
    TestSetDrafts(workspace).release(ReleaseTestSet(test_set=set_id))
    source = put(tmp_path / "set", {"bird/a.png": picture(10), "bird/b.png": picture(11)})
    done = bring_in(workspace, source)
    made = into_set(workspace, done.imported.id, "Birds")
    assert (made.added, made.already, made.version.words, made.version.entries) == (1, 1, "Birds@draft", 2)
    held = {entry.image: entry for entry in workspace.test_sets.entries(made.version.number)}
    assert sorted(entry.test_case or 0 for entry in held.values()) == [0, cases[0]]
    with pytest.raises(UserError, match="1 that nobody reviewed"):
        TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Birds"))
    assert TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Birds", unreviewed=True)).place == 2


@pytest.mark.parametrize("before", ["nothing", "a draft", "a version"])
def test_a_draft_gets_all_images_of_an_import_or_none(
    before: str, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = bring_in(workspace, birds(tmp_path / "birds", 4))
    if before != "nothing":
        TestSetDrafts(workspace).add(workspace.test_sets.create("Birds"), run_of(workspace, 1, [10]))
    if before == "a version":
        TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Birds"))
    were = workspace.test_sets.all()
    monkeypatch.setattr(storage_of_test_sets, "_AT_ONCE", 2)
    real, calls = storage_of_test_sets._missing, 0

    def fails_at_last(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2:  # each batch of images calls twice
            raise RuntimeError("stopped")
        return real(*given)

    monkeypatch.setattr(storage_of_test_sets, "_missing", fails_at_last)
    with pytest.raises(RuntimeError, match="stopped"):
        into_set(workspace, done.imported.id, "Birds")
    assert workspace.test_sets.all() == were
    monkeypatch.setattr(storage_of_test_sets, "_missing", real)
    made = into_set(workspace, done.imported.id, "Birds")
    assert (made.added, made.already, made.version.entries) == (4, 0, 4 if before == "nothing" else 5)


def test_what_is_decided_here_counts(workspace: Workspace, tmp_path: Path) -> None:
    version, _ = released(tmp_path / "a", splits=False)
    with workspace_in(tmp_path / "a") as there:
        export_version(there, version, tmp_path / "files", "webdataset")
    done = bring_in(workspace, tmp_path / "files")
    one, two = (entry.id for entry in entries(workspace)[:2])
    assert [workspace.catalogue.get(entry).verdict for entry in (one, two)] == ["open", "open"]
    workspace.decisions.relabel(Target([one]), "gull")
    workspace.decisions.review(Target([two]), "rejected", "dark")
    made = into_set(workspace, done.imported.id)
    labels = {entry.image: entry.label for entry in workspace.test_sets.entries(made.version.number)}
    assert labels[workspace.catalogue.get(one).image_sha] == "gull"
    assert workspace.catalogue.facets()["class"]["gull"] == 1
    with pytest.raises(UserError, match=r"1 rejected \(images"):
        TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Night birds"))
    workspace.decisions.review(Target([two]), "accepted")
    assert TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Night birds")).entries == 6


def test_an_export_calls_no_imported_photograph_drawn_by_a_machine(workspace: Workspace, tmp_path: Path) -> None:
    done = bring_in(workspace, birds(tmp_path / "photos", 4))
    accepted, rejected, *_ = entries(workspace)
    workspace.decisions.review(Target([entry.id for entry in entries(workspace)]), "accepted")
    workspace.decisions.review(Target([rejected.id]), "rejected", "dark")
    into_set(workspace, done.imported.id, "Photos")
    version = TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Photos", unreviewed=True))
    export_version(workspace, version, tmp_path / "files", "imagefolder")
    card = (tmp_path / "files/README.md").read_text(encoding="utf-8")
    assert "| imported | 4 |" in card and "| generated |" not in card and "- synthetic" not in card
    files = list((tmp_path / "files").rglob("*.png"))
    assert len(files) == 4 and not any(b"DigitalSourceType" in file.read_bytes() for file in files)
    rows = [json.loads(line) for line in (tmp_path / "files/records.jsonl").read_text(encoding="utf-8").splitlines()]
    said = {row["sha256"]: json.loads(row["facts"])["review"] for row in rows}
    assert (said[accepted.image_sha]["verdict"], said[rejected.image_sha]["reason"]) == ("accepted", "dark")
    with workspace_in(tmp_path / "other") as there:
        into_set(there, bring_in(there, tmp_path / "files").imported.id)
        with pytest.raises(UserError, match="1 rejected"):
            TestSetDrafts(there).release(ReleaseTestSet(test_set="Photos"))


def test_an_export_says_of_imported_images_that_were_drawn_that_they_were(workspace: Workspace, tmp_path: Path) -> None:
    version, _ = released(tmp_path / "a", splits=False)
    with workspace_in(tmp_path / "a") as there:
        export_version(there, version, tmp_path / "files", "parquet")
    into_set(workspace, bring_in(workspace, tmp_path / "files").imported.id)
    anew = TestSetDrafts(workspace).release(ReleaseTestSet(test_set="Night birds"))
    export_version(workspace, anew, tmp_path / "again", "imagefolder")
    assert "| generated | 6 |" in (tmp_path / "again/README.md").read_text(encoding="utf-8")
    assert all(b"DigitalSourceType" in file.read_bytes() for file in (tmp_path / "again").glob("*/images/*.png"))


def harm(folder: Path) -> Path:
    """Write a folder with many faults and three good pictures."""
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = picture(5, (48, 32))
    return put(
        folder,
        {
            "images/good.png": picture(1),
            "images/turned.png": encoded(lying, exif=exif),
            "masks/turned.png": mask_of(lying),
            "images/deep.png": Image.new("I;16", (32, 32), 3000),
            "images/print.jpg": encoded(picture(2).convert("CMYK"), "JPEG"),
            "images/broken.png": encoded(picture(3))[:90],
            "images/twin.bmp": encoded(picture(1), "BMP"),
            "images/GOOD.png": picture(4),
            "images/caf\u00e9.png": picture(6),
            "images/cafe\u0301.png": picture(8),
            "classes.txt": "0 sky, 1 road",
        },
    )


def test_what_is_wrong_is_told_and_the_good_rest_comes_once(workspace: Workspace, tmp_path: Path) -> None:
    done = bring_in(workspace, harm(tmp_path / "harm"))
    rows = told(workspace, done)
    refused = {file for file, (kind, _) in rows.items() if kind == "refused"}
    assert refused == {"images/broken.png", "images/twin.bmp"}
    changed = {file for file, (kind, _) in rows.items() if kind == "changed"}
    assert {"images/turned.png", "images/deep.png", "images/print.jpg"} <= changed and len(changed) == 5
    assert len(named(workspace)) == 7 == done.imported.images
    (turned,) = [entry for entry in entries(workspace) if entry.name == "turned"]
    assert turned.image_size == (32, 48)
    (image,) = [one for one in workspace.imports.images(done.imported.id) if one.name == "turned"]
    assert image.mask is not None and workspace.images.load(image.mask).size == (32, 48)
    assert done.imported.rows == {"refused": 2, "changed": 5} and "2 rows of its report" in done.words


def test_unknown_labels_and_bad_lines_are_told(workspace: Workspace, tmp_path: Path) -> None:
    lines = [
        '{"file_name": "a.png", "label": "bird"}',
        '{"file_name": "b.png", "label": "fish"}',
        '{"file_name": "gone.png", "label": "bird"}',
        '{"file_name": "c.png", ',
        '{"file_name": "d.png", "label": "bird", "score": NaN}',
        '{"file_name": "e.png", "label": "bird", "source_sha256": "../../etc", "caption": "half \\ud83d a letter"}',
        '{"file_name": "f.png", "label": "bird", "checks": "none", "lineage": {"recipe": 5, "model": [1]}}',
        '{"file_name": "g.png", "label": "bird", "notes": "' + "x" * 1_000_001 + '"}',
    ]
    files: dict[str, Any] = {f"{name}.png": picture(number) for number, name in enumerate("abcdefg")}
    source = put(tmp_path / "list", {**files, "metadata.jsonl": "\n".join(lines)})
    done = bring_in(workspace, source, labels=("bird", " boat "))
    assert named(workspace) == {"a", "d", "e", "f"}
    rows = told(workspace, done)
    assert "“fish” is not a known one" in rows["b.png"][1]
    assert "gone.png" in rows["metadata.jsonl, line 3"][1] and "no JSON object" in rows["metadata.jsonl, line 4"][1]
    assert "“score” holds infinity or no number (NaN)" in rows["metadata.jsonl, line 5"][1]
    assert rows["metadata.jsonl, line 5"][0] == "changed", "a fact that cannot be kept takes no image away"
    assert rows["e"][0] == "changed" and "1,000 kB" in rows["g"][1]
    made = into_set(workspace, done.imported.id, "List")
    version = TestSetDrafts(workspace).release(ReleaseTestSet(test_set="List", unreviewed=True))
    assert version.entries == 4 == made.added
    export_version(workspace, version, tmp_path / "out", "csv")
    anew = bring_in(workspace, source, labels=("bird", "fish"))
    assert named(workspace) == {"a", "b", "d", "e", "f"} and anew.imported.made == 1, "other options read otherwise"


def test_archives_that_mean_harm_are_told(workspace: Workspace, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "harm.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("test/bird/good.png", encoded(picture(1)))
        archive.writestr("/etc/evil.png", encoded(picture(2)))
        archive.writestr("../evil.png", encoded(picture(3)))
        archive.writestr("bird/bomb.png", b"\0" * 30_000_000)
    with tarfile.open(tmp_path / "harm.tar", "w") as tar:
        for name, number in (("test/bird/fine.png", 4), ("/abs.png", 5)):
            data = encoded(picture(number))
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("bird/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    zipped = bring_in(workspace, tmp_path / "harm.zip")
    assert set(told(workspace, zipped)) == {"/etc/evil.png", "../evil.png", "bird/bomb.png"}
    assert set(told(workspace, bring_in(workspace, tmp_path / "harm.tar"))) == {"/abs.png", "bird/link.png"}
    assert {(one.name, one.classes) for one in entries(workspace)} == {("good", ("bird",)), ("fine", ("bird",))}
    before = counts(workspace)
    for bad in ("nothing.zip", "harm.txt"):
        (tmp_path / "harm.txt").write_text("no archive")
        with pytest.raises(UserError):
            bring_in(workspace, tmp_path / bad)
    with pytest.raises(UserError, match="no format"):
        bring_in(workspace, tmp_path / "harm.zip", layout="cvat")
    assert counts(workspace) == before
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert "There is no image in it" in told(workspace, bring_in(workspace, nothing))["nothing"][1]


def test_a_stopped_import_keeps_what_is_in_and_goes_on(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_source, "AT_ONCE", 4)
    source = birds(tmp_path / "birds", 11)
    put(source, {"broken.png": b"no image"})

    def on_progress(at: Any) -> None:
        if at.done == 7:
            raise Cancelled

    with pytest.raises(Cancelled):
        bring_in(workspace, source, progress=on_progress)
    (left,) = workspace.imports.all()
    assert (left.state, left.images, left.rows) == ("unfinished", 4, {})
    with pytest.raises(UserError, match="not finished"):
        into_set(workspace, left.id)
    ids = {entry.image_sha: entry.id for entry in entries(workspace)}
    done = bring_in(workspace, source)
    assert (done.imported.id, done.imported.images, done.imported.made) == (left.id, 11, 11)
    assert done.imported.rows == {"refused": 1}
    assert ids.items() <= {entry.image_sha: entry.id for entry in entries(workspace)}.items()


def test_an_import_that_goes_on_tells_of_all_images_again(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_source, "AT_ONCE", 2)
    source = birds(tmp_path / "birds", 4)
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.png"))
    lines = [json.dumps({"file_name": name, "source_sha256": "no hash"}) for name in names]
    put(source, {"metadata.jsonl": "\n".join(lines)})

    def on_progress(at: Any) -> None:
        if at.done == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        bring_in(workspace, source, progress=on_progress)
    assert workspace.imports.all()[0].images == 2
    done = bring_in(workspace, source)
    assert (done.imported.images, done.imported.rows) == (4, {"changed": 4})


def test_a_second_file_of_a_picture_comes_where_the_first_cannot(workspace: Workspace, tmp_path: Path) -> None:
    lines = [{"file_name": "a.png", "label": "x" * 1000}, {"file_name": "b.png", "label": "bird"}]
    source = put(tmp_path / "x", {"a.png": picture(1), "b.png": picture(1), "c.png": picture(1)})
    put(source, {"metadata.jsonl": "\n".join(map(json.dumps, [*lines, {"file_name": "c.png", "label": "boat"}]))})
    done = bring_in(workspace, source)
    assert [(entry.name, entry.classes) for entry in entries(workspace)] == [("b", ("bird",))]
    rows = told(workspace, done)
    assert set(rows) == {"a", "c.png"} and "1,000 characters" in rows["a"][1]
    assert "the same as b.png" in rows["c.png"][1]


def test_a_full_disk_is_told_and_leaves_nothing_half(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_source, "AT_ONCE", 2)
    source, real, taken = birds(tmp_path / "birds", 6), os.replace, []

    def full(old: Any, new: Any) -> None:
        if Path(new).parent == workspace.images.folder:
            taken.append(new)
            if len(taken) == 4:
                raise OSError(28, "No space left on device")
        real(old, new)

    monkeypatch.setattr(storage_of_images.os, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        bring_in(workspace, source)
    monkeypatch.setattr(storage_of_images.os, "replace", real)
    assert len(entries(workspace)) == 2
    for entry in entries(workspace):
        workspace.images.load(entry.image_sha)
    assert bring_in(workspace, source).imported.images == 6 and workspace.images.orphans() == ()


def victim(folder: str, source: str, how: str) -> None:
    """Import, and kill the process at the worst moment of the second batch."""
    import_source.AT_ONCE = 3
    die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    settled: list[int] = []
    real = ImageFiles.settle

    def settle(self: ImageFiles) -> None:
        real(self)
        settled.append(1)
        if len(settled) == 2:
            if how == "before the rows":
                die()
            storage_of_imports.keep_image = die  # type: ignore[assignment]

    ImageFiles.settle = settle  # type: ignore[method-assign]
    raise SystemExit(main(["--workspace", folder, "import", source, "--into-set", "Birds"]))


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("before the rows", marks=pytest.mark.soak), "in the rows"])
def test_a_killed_import_is_finished_by_the_same_command(
    how: str, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = birds(tmp_path / "birds", 8)
    command = [sys.executable, __file__, str(workspace.folder), str(source), how]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = workspace.imports.all()
    assert (left.state, left.images) == ("unfinished", 3)
    assert catalogue_faults(workspace.folder / DATABASE) == ()
    ids = [entry.id for entry in entries(workspace)]
    assert main(["--workspace", str(workspace.folder), "import", str(source), "--into-set", "Birds"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == [
        "8 images came into the workspace as “birds” (import 1).",
        "8 images came into the draft of “Birds”.",
    ]
    assert len(entries(workspace)) == 8 and {entry.id for entry in entries(workspace)} > set(ids)
    assert workspace.images.orphans() == ()
    before = counts(workspace)
    assert main(["--workspace", str(workspace.folder), "import", str(source), "--into-set", "Birds"]) == 0
    assert counts(workspace) == before
    said = capsys.readouterr().out.splitlines()
    assert "imported already" in said[0] and "has all of these images already" in said[1]


def test_the_command_line_tells_what_came(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--workspace", str(workspace.folder)]
    assert main([*place, "imports"]) == 0 and "Nothing was imported yet." in capsys.readouterr().out
    source = put(birds(tmp_path / "birds"), {"a\x1b[31m.png": b"no image"})
    assert main([*place, "import", str(source), "--name", "Mine", "--labels", "bird"]) == 0
    said = capsys.readouterr().out
    assert "2 images came into the workspace as “Mine”" in said and "\x1b" not in said
    assert main([*place, "imports"]) == 0 and "2 refused)" in capsys.readouterr().out
    assert main([*place, "show-import", "1"]) == 0 and "“boat” is not a known one" in capsys.readouterr().out
    assert main([*place, "into-set", "1"]) == 0 and "came into the draft of “Mine”" in capsys.readouterr().out
    for wrong in (["show-import", "7"], ["into-set", "7"], ["import", str(tmp_path / "gone")]):
        assert main([*place, *wrong]) == 2
    assert main(["--workspace", str(tmp_path / "none"), "imports"]) == 2
    assert "contains no workspace" in capsys.readouterr().err


def ended(service: ImportService) -> ImportState:
    thread = service._thread
    assert thread is not None
    thread.join()
    state = service.state()
    assert state is not None
    return state


@pytest.mark.slow
def test_an_upload_comes_in_beside_the_server(workspace: Workspace, tmp_path: Path) -> None:
    service = ImportService(workspace)
    assert service.state() is None and not service.stop()["stopping"]
    version, _ = released(tmp_path / "a")
    with workspace_in(tmp_path / "a") as there:
        export_version(there, version, tmp_path / "files", "imagefolder")
    archive = Path(shutil.make_archive(str(tmp_path / "upload"), "zip", tmp_path / "files"))
    copy = Path(shutil.copy(archive, tmp_path / "copy"))
    begun = service.import_upload(archive, "../../birds.zip", test_set="")
    assert (begun.state, begun.name) == ("running", "birds") and not archive.exists()
    state = ended(service)
    assert (state.state, state.done, state.total, state.number, state.rows) == ("done", 6, 6, 1, 0)
    assert "6 images came into the workspace" in state.message and "the draft of “Night birds”" in state.message
    assert service.listed()["going_on"] is None
    (held,) = service.listed()["imports"]
    assert (held["name"], held["source"], held["format"]) == ("birds", "birds.zip", "imagefolder")
    service.import_upload(copy, "birds (1).zip", "Again")
    assert "imported already" in ended(service).message and len(entries(workspace)) == 6
    with pytest.raises(UserError, match="no format"):
        service.import_upload(tmp_path / "x", "x.zip", layout="cvat")
    (tmp_path / "x").write_text("no archive")
    service.import_upload(tmp_path / "x", "x.zip")
    assert ended(service).state == "failed" and "no folder, zip or tar" in ended(service).message


def test_an_upload_can_be_stopped_and_only_one_goes_on(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, held = ImportService(workspace), hold_imports(monkeypatch)
    monkeypatch.setattr(import_source, "AT_ONCE", 2)
    archive = shutil.make_archive(str(tmp_path / "upload"), "zip", birds(tmp_path / "birds", 40))
    copy = Path(shutil.copy(archive, tmp_path / "copy"))
    service.import_upload(Path(archive), "birds.zip")
    assert held.reached.wait(300)
    with pytest.raises(UserError, match="Another import is running"):
        service.import_upload(copy, "birds.zip")
    assert copy.exists() and service.listed()["going_on"]["state"] == "running"
    assert service.stop()["stopping"]
    held.go_on.set()
    stopped = ended(service)
    assert stopped.state == "stopped" and "start the same import again" in stopped.message
    left = workspace.imports.all()[0]
    assert left.state == "unfinished" and 0 < left.images < 40
    service.import_upload(copy, "birds.zip")
    assert ended(service).state == "done" and len(entries(workspace)) == 40
    service.close()


def test_an_import_that_dies_for_want_of_memory_is_told_and_finished_by_the_next(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux would kill the process without a message. A killed process simulates that."""
    service, held = ImportService(workspace), hold_imports(monkeypatch)
    monkeypatch.setattr(import_source, "AT_ONCE", 2)
    archive = shutil.make_archive(str(tmp_path / "upload"), "zip", birds(tmp_path / "birds", 10))
    copy = Path(shutil.copy(archive, tmp_path / "copy"))
    service.import_upload(Path(archive), "birds.zip")
    assert held.reached.wait(300)
    (child,) = (one for one in multiprocessing.active_children() if one.name == "import")
    if sys.platform == "linux":
        assert Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == "1000", "the studio goes first"
    child.kill()
    child.join()
    held.go_on.set()
    state = ended(service)
    assert state.state == "failed" and "memory ran out" in state.message, state
    assert workspace.imports.all()[0].state == "unfinished"
    service.import_upload(copy, "birds.zip")
    assert ended(service).state == "done" and len(entries(workspace)) == 10


def test_scripts_list_imports_and_put_them_into_sets(studio: Studio, tmp_path: Path) -> None:
    source = put(birds(tmp_path / "birds"), {f"{name}.png": b"no image" for name in "abc"})
    done = bring_in(studio.workspace, source)
    send = studio.commands.send
    (held,) = send("list-imports", {})["imports"]
    assert (held["number"], held["images"], held["new"], held["rows"]) == (done.imported.id, 3, 3, {"refused": 3})
    page = send("show-import", {"number": held["number"], "limit": 2})
    rest = send("show-import", {"number": held["number"], "limit": 2, "after": page["next"]})
    assert [row["file"] for row in page["report"] + rest["report"]] == ["a.png", "b.png", "c.png"] and not rest["next"]
    assert send("import-into-test-set", {"number": held["number"], "test_set": "Mine"})["added"] == 3
    assert version_of(studio.workspace, "Mine").entries == 3
    listed = send("list-test-cases", {"filter": {"import": "birds", "split": "train"}})["test_cases"]
    assert [(one["name"], one["import"], one["case"]) for one in listed] == [("1", "birds", None)]
    assert send("stop-import", {}) == {"stopping": False}
    with pytest.raises(UserError, match="There is no import 9"):
        send("show-import", {"number": 9})


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE imports SET state = 'unfinished', finished = NULL",
        "UPDATE imports SET name = 'another'",
        "DELETE FROM imports",
    ],
)
def test_an_import_stays_what_it_was(statement: str, workspace: Workspace, tmp_path: Path) -> None:
    bring_in(workspace, birds(tmp_path / "birds"))
    with pytest.raises(sqlite3.IntegrityError, match="stays what it was"):
        workspace._database.write(lambda db: db.execute(statement))


if __name__ == "__main__":
    from storage.curation import imports as storage_of_imports

    victim(*sys.argv[1:])
