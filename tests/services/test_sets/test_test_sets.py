"""Test sets: the identity of a version, its fixed content, refusals at a release, and the difference of versions."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cli.storage import main as storage_command
from cli.test_sets import main as sets_command
from core.errors import UserError
from core.image_filter import ImageFilter
from core.png import XMP_KEYWORD, read_texts
from core.test_sets import SetEntry, SetVersion, Split, version_id
from core.types import Task
from pipeline.profiles.profile import PROFILES, load_profile
from services.commands import Commands, Malformed, Missing
from services.curation.import_source import bring_in
from services.curation.views import View
from services.test_sets.drafts import (
    NEAR_DUPLICATES,
    AddToTestSet,
    ReleaseTestSet,
    SplitTestSet,
    TestSetDrafts,
)
from services.test_sets.examples import VersionImages, export_version
from services.test_sets.versions import Versions, difference, version_of
from storage.curation.decisions import Target
from storage.test_sets import test_sets as storage_of_sets
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.set_cases import by_image, picture, run_of
from tests.support.workspaces import workspace_in

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def set_with(workspace: Workspace, cases: Any, name: str = "Birds", sources: bool = False) -> str:
    """Create a set with these test cases in its draft. Return its id."""
    set_id = workspace.test_sets.create(name)
    TestSetDrafts(workspace).add(set_id, cases, sources)
    return set_id


def release(workspace: Workspace, set_id: str, **fields: Any) -> SetVersion:
    return TestSetDrafts(workspace).release(ReleaseTestSet.of({"test_set": set_id, **fields}))


def draft(workspace: Workspace, set_id: str) -> SetVersion:
    found = workspace.test_sets.get(set_id).draft
    assert found is not None
    return found


def entries(workspace: Workspace, version: SetVersion) -> tuple[SetEntry, ...]:
    return workspace.test_sets.entries(version.number)


def test_from_accepted_images_to_a_released_version(workspace: Workspace) -> None:
    cases = run_of(workspace, 1, [10, 11]) + run_of(workspace, 2, [12], "boat")
    run_of(workspace, 3, [13], accepted=False)
    set_id = workspace.test_sets.create("  Birds \n and boats ")
    done = TestSetDrafts(workspace).add_chosen(
        AddToTestSet.of({"test_set": set_id, "filter": "review=accepted", "sources": True})
    )
    assert (done.added, done.already) == (5, 0)
    version = release(workspace, set_id, note=" Two runs. ", thresholds={"label seen": 0.25})
    assert (version.words, version.note, version.entries, version.parent) == ("Birds and boats@1", "Two runs.", 5, "")
    assert version.thresholds == {"label seen": 0.25}, "nothing was parted, so no distance was used"
    held = entries(workspace, version)
    assert [(entry.test_case, entry.label, entry.role) for entry in held] == [
        (cases[0], "bird", "generated"),
        (cases[1], "bird", "generated"),
        (cases[2], "boat", "generated"),
        (None, "bird", "source"),
        (None, "boat", "source"),
    ]
    assert {entry.source for entry in held} == {entry.image for entry in held if entry.role == "source"}
    assert workspace.test_sets.get(set_id).draft is None


def test_equal_versions_have_one_id_in_two_workspaces(tmp_path: Path) -> None:
    def made(folder: str, order: list[int], label: str = "bird", **fields: Any) -> SetVersion:
        with workspace_in(tmp_path / folder) as workspace:
            for number in range(100, 100 + len(folder)):  # makes all numbers differ between the workspaces
                run_of(workspace, number, [number + 100])
            cases = [case for number in order for case in run_of(workspace, number, [number + 10], label)]
            set_id = set_with(workspace, cases)
            sent = SplitTestSet(test_set=set_id, validation=0.5, test=0.5, seed=4)
            TestSetDrafts(workspace).split(sent)
            return release(workspace, set_id, note="One.", thresholds={"score": 1}, **fields)

    first, second = made("a", [1, 2, 3, 4]), made("another", [3, 1, 4, 2])
    assert first.id == second.id and len(first.id) == 64
    assert first.splits == second.splits and first.thresholds == {"score": 1.0, NEAR_DUPLICATES: 3.0}
    assert made("a third", [1, 2, 3]).id != first.id
    assert made("a boat", [1, 2, 3, 4], "boat").id != first.id


def test_everything_that_a_version_is_makes_its_id() -> None:
    entry = SetEntry("a" * 64, "b" * 64, "bird", "test", "c" * 64, {0: "sky"})
    plain = ("Birds", "", "A note.", {"score": 0.5})
    known = version_id(*plain, [entry])
    others = [
        replace(entry, image="d" * 64),
        replace(entry, source="d" * 64),
        replace(entry, label="boat"),
        replace(entry, split="train"),
        replace(entry, mask=None),
        replace(entry, mask_classes={0: "road"}),
        replace(entry, role="source"),
    ]
    found = {version_id(*plain, [other]) for other in others} | {
        version_id("Boats", "", "A note.", {"score": 0.5}, [entry]),
        version_id("Birds", "e" * 64, "A note.", {"score": 0.5}, [entry]),
        version_id("Birds", "", "Another.", {"score": 0.5}, [entry]),
        version_id("Birds", "", "A note.", {"score": 0.6}, [entry]),
    }
    assert len(found) == 11 and known not in found
    assert version_id(*plain, [replace(entry, test_case=7, origin={"file": "x"})]) == known


def test_an_image_is_in_a_version_once(workspace: Workspace) -> None:
    first, second = run_of(workspace, 1, [10, 11]), run_of(workspace, 2, [10], "boat")
    set_id = set_with(workspace, first)
    done = TestSetDrafts(workspace).add(set_id, [*second, *first])
    assert (done.added, done.already) == (0, 3)
    assert [entry.label for entry in entries(workspace, draft(workspace, set_id))] == ["bird", "bird"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE test_set_entries SET label = 'boat'",
        "UPDATE test_set_entries SET id = id",
        "DELETE FROM test_set_entries",
        "INSERT OR REPLACE INTO test_set_entries SELECT * FROM test_set_entries",
        "UPDATE OR REPLACE test_set_entries SET version = 1 WHERE version = 2",
        "UPDATE test_set_entries SET version = 2 WHERE version = 1",
        "INSERT INTO test_set_entries (version, image, source, label, split, mask_classes, role, origin)"
        " SELECT 1, sha, sha, '', '', '{}', 'source', '{}' FROM images LIMIT 1",
        "UPDATE test_set_versions SET note = 'Another.' WHERE number = 1",
        "UPDATE test_set_versions SET state = 'draft', sha = NULL, released = NULL WHERE number = 1",
        "DELETE FROM test_set_versions WHERE number = 1",
        "INSERT OR REPLACE INTO test_set_versions (number, test_set, place, state, created)"
        " SELECT 1, test_set, 9, 'draft', created FROM test_set_versions WHERE number = 1",
        "UPDATE test_sets SET name = 'Boats'",
        "DELETE FROM test_sets",
    ],
)
def test_no_statement_changes_what_was_released(workspace: Workspace, statement: str) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, [10, 11]))
    version = release(workspace, set_id)
    TestSetDrafts(workspace).begin("Birds")
    before = entries(workspace, version)
    with pytest.raises(sqlite3.IntegrityError):
        workspace._database.write(lambda db: db.execute(statement) and None)
    assert entries(workspace, version) == before
    assert Versions(workspace).verify(workspace.test_sets.version(version.number)).whole


def test_no_version_is_released_without_a_draft_or_without_images(workspace: Workspace) -> None:
    set_id = workspace.test_sets.create("Birds")
    filled = "state = 'released', sha = lower(hex(randomblob(32))), released = 'now'"
    for statement, words in (
        (f"UPDATE test_set_versions SET {filled}", "without images"),
        (
            "INSERT INTO test_set_versions (test_set, place, state, sha, created, released)"
            " SELECT test_set, 2, 'released', lower(hex(randomblob(32))), 'then', 'now' FROM test_set_versions",
            "begins as a draft",
        ),
    ):
        with pytest.raises(sqlite3.IntegrityError, match=words):
            workspace._database.write(lambda db, statement=statement: db.execute(statement) and None)  # type: ignore[misc]
    assert draft(workspace, set_id).entries == 0


def test_what_is_not_ready_is_not_released_and_said(workspace: Workspace) -> None:
    good = run_of(workspace, 1, [10, 11])
    loose, bad = run_of(workspace, 2, [12, 13], accepted=False)
    workspace.test_cases.review(bad, "rejected", "blurred")
    set_id = workspace.test_sets.create("Birds")
    with pytest.raises(UserError, match="has no images yet"):
        release(workspace, set_id)
    TestSetDrafts(workspace).add(set_id, [*good, loose, bad])
    with pytest.raises(UserError, match=rf"1 rejected and 1 that nobody reviewed \(test cases {loose}, {bad}\)"):
        release(workspace, set_id)
    one, other, *others = (entry.image for entry in entries(workspace, draft(workspace, set_id)))

    def put(images: list[str], split: Split) -> None:
        TestSetDrafts(workspace).set_split(set_id, tuple(images), split)

    put([one], "train")
    with pytest.raises(UserError, match="3 images are in no split, and others are"):
        release(workspace, set_id, unreviewed=True)
    put([other, *others], "test")
    with pytest.raises(
        UserError, match=f"1 group of images of one source.* {good[1]}, {good[0]} are in test and train"
    ):
        release(workspace, set_id, unreviewed=True)
    for wrong in ({NEAR_DUPLICATES: 9.0}, {"": 1.0}, {"score": float("inf")}):
        with pytest.raises(UserError):
            release(workspace, set_id, unreviewed=True, thresholds=wrong)
    assert draft(workspace, set_id).entries == 4
    put([other], "train")
    assert release(workspace, set_id, unreviewed=True).splits == {"test": 2, "train": 2}


def test_a_source_that_looks_like_another_one_leaks(workspace: Workspace) -> None:
    shown = picture(1, (64, 64))
    cases = run_of(workspace, shown, [10]) + run_of(workspace, shown.resize((48, 48)), [11])
    set_id = set_with(workspace, cases)
    one, other = (entry.image for entry in entries(workspace, draft(workspace, set_id)))
    workspace.test_sets.set_splits(draft(workspace, set_id).number, {one: "train", other: "test"})
    with pytest.raises(UserError, match="sources that look alike"):
        release(workspace, set_id)


def test_images_that_look_alike_leak_though_their_sources_are_elsewhere(workspace: Workspace) -> None:
    shown = picture(1, (64, 64))
    other = shown.copy()
    other.putpixel((5, 5), (0, 0, 0))
    shas = [workspace.images.add(image) for image in (shown, other, picture(2, (64, 64)))]
    set_id, drafts = workspace.test_sets.create("Birds"), TestSetDrafts(workspace)
    number = draft(workspace, set_id).number
    brought = [SetEntry(sha, f"{place:064x}", "bird") for place, sha in enumerate(shas)]
    workspace.test_sets.add(number, brought)
    assert drafts.split(SplitTestSet(test_set=set_id, train=0.5, test=0.5)).groups == 2
    splits: dict[str, Split] = {shas[0]: "train", shas[1]: "test", shas[2]: "test"}
    workspace.test_sets.set_splits(number, splits)
    told = {one.kind: one.images for one in drafts.readiness(draft(workspace, set_id)).obstacles}
    assert set(told["leak"]) == {*shas[:2]}
    with pytest.raises(UserError, match="look alike"):
        release(workspace, set_id, unreviewed=True)


def test_a_draft_that_changed_after_it_was_checked_is_not_released(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, [10]))
    later = run_of(workspace, 2, [11], accepted=False)
    checked = storage_of_sets.TestSets.not_accepted

    def and_meanwhile(self: Any, version: int) -> dict[int, str]:
        found = checked(self, version)
        TestSetDrafts(workspace).add(set_id, later)
        return found

    monkeypatch.setattr(storage_of_sets.TestSets, "not_accepted", and_meanwhile)
    # The check covers the draft as it was read. An image added since then is not released.
    with pytest.raises(UserError, match="was changed after its check"):
        release(workspace, set_id)
    assert draft(workspace, set_id).entries == 2


def test_the_next_version_begins_with_the_last_one_and_differs(workspace: Workspace) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, [10, 11]))
    first = release(workspace, set_id)
    with pytest.raises(UserError, match="has no draft"):
        TestSetDrafts(workspace).add(set_id, run_of(workspace, 2, [12]))
    second = TestSetDrafts(workspace).begin("Birds")
    assert (second.words, second.place, second.parent, second.entries) == ("Birds@draft", 2, first.id, 2)
    with pytest.raises(UserError, match="has a draft already"):
        TestSetDrafts(workspace).begin("Birds@1")
    with pytest.raises(UserError, match="Nothing was changed since “Birds@1”"):
        release(workspace, set_id, note="Another note.")
    gone = entries(workspace, first)[0].image
    TestSetDrafts(workspace).remove("Birds", (gone,))
    assert release(workspace, set_id).parent == first.id
    assert [entry.image for entry in Versions(workspace).compare("Birds@1", "Birds@2").removed] == [gone]
    TestSetDrafts(workspace).begin("Birds@1")
    TestSetDrafts(workspace).remove("Birds", (gone,))
    with pytest.raises(UserError, match="Version 2 of “Birds” has this content already"):
        release(workspace, set_id)
    workspace.test_sets.delete_draft(draft(workspace, set_id).number)
    assert [version.place for version in workspace.test_sets.get(set_id).versions] == [1, 2]


def test_a_draft_that_is_let_go_takes_its_set_along(workspace: Workspace) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, [10]))
    workspace.test_sets.delete_draft(draft(workspace, set_id).number)
    assert workspace.test_sets.all() == ()


def test_the_difference_is_what_was_done(workspace: Workspace) -> None:
    """Random edits of a draft, recorded by the test."""
    fate = random.Random(13)
    cases = [case for number in range(12) for case in run_of(workspace, number, [100 + number, 200 + number])]
    masks = [workspace.images.add(Image.new("L", (8, 8), shade)) for shade in range(3)]
    set_id = set_with(workspace, cases[:16])
    number = draft(workspace, set_id).number
    old = by_image(workspace.test_sets.entries(number))
    images = list(by_image(workspace.test_sets.entries(number)))
    for _ in range(40):
        chosen = fate.sample(images, 3)
        inside = [image for image in chosen if image in by_image(workspace.test_sets.entries(number))]
        match fate.randrange(4):
            case 0:
                workspace.test_sets.remove(number, chosen)
            case 1:
                TestSetDrafts(workspace).add(set_id, fate.sample(cases, 3))
            case 2:
                workspace.test_sets.relabel(number, inside, fate.choice(("bird", "boat")))
            case 3:
                workspace.test_sets.set_splits(number, {image: fate.choice(("test", "")) for image in inside})
    new = by_image(workspace.test_sets.entries(number))
    new = {image: replace(entry, mask=fate.choice([*masks, None])) for image, entry in new.items()}
    found = difference(old.values(), new.values())
    assert {entry.image for entry in found.added} == new.keys() - old.keys() != set()
    assert {entry.image for entry in found.removed} == old.keys() - new.keys() != set()
    both = old.keys() & new.keys()
    for pairs, field in ((found.relabelled, "label"), (found.resplit, "split"), (found.remasked, "mask")):
        expected = {image for image in both if getattr(old[image], field) != getattr(new[image], field)}
        assert {was.image for was, _ in pairs} == expected != set()
        assert all((was, now) == (old[was.image], new[was.image]) for was, now in pairs)
    assert not difference(new.values(), reversed(new.values()))


def test_names_of_all_kinds_are_text(workspace: Workspace, tmp_path: Path) -> None:
    names = ["../../etc/passwd", "<script>alert(1)</script>", "'; DROP TABLE test_sets; --", "a@2", "deadbeef" * 8]
    cases = run_of(workspace, 1, [10], "../<b>bird</b>\\..")
    before = {path for path in tmp_path.rglob("*") if "images" not in path.parts}
    for name in names:
        set_id = set_with(workspace, cases, name)
        version = release(workspace, set_id, note="<b>../..</b>")
        assert version.set_name == name and version_of(workspace, name).id == version_of(workspace, version.id).id
        assert version_of(workspace, f"{name}@1").id == version.id
        (example,) = VersionImages(workspace, version).all()
        assert example.label == "../<b>bird</b>\\.." and example.name.startswith("b-bird-b-")
        assert example.image.parent == workspace.images.folder
    assert {path for path in tmp_path.rglob("*") if "images" not in path.parts} == before
    assert [held.name for held in workspace.test_sets.all()] == names[::-1]
    for name, words in (("", "no name"), ("A@2", "is a test set"), ("x" * 201, "at most 200")):
        with pytest.raises(UserError, match=words):
            workspace.test_sets.create(name)


def test_a_version_is_found_by_what_people_call_it(workspace: Workspace) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, [10]))
    assert version_of(workspace, "Birds").is_draft
    first = release(workspace, set_id)
    TestSetDrafts(workspace).begin(first.id[:8])
    for reference in ("Birds", "Birds@1", set_id, f"{set_id}@1", first.id, first.id[:8], f" {first.id} "):
        assert version_of(workspace, reference).number == first.number
    assert version_of(workspace, "Birds@draft").is_draft
    for reference in ("Boats", "Birds@2", "Birds@7", "f" * 64, "", "@", "Birds@draft@1"):
        with pytest.raises(Missing):
            version_of(workspace, reference)


def test_what_no_command_takes_is_refused_and_changes_nothing(workspace: Workspace) -> None:
    cases = run_of(workspace, 1, [10])
    set_id = set_with(workspace, cases)
    drafts, commands = TestSetDrafts(workspace), Commands()
    commands.take_on(drafts)
    for name, fields in (
        ("add-to-test-set", {"cases": ["one"]}),
        ("remove-from-test-set", {"images": ["../x"]}),
        ("set-split-in-test-set", {"images": ["0" * 64], "split": "dev"}),
        ("split-test-set", {"test": 2}),
        ("release-test-set", {"thresholds": {"score": "much"}}),
    ):
        with pytest.raises(Malformed):
            commands.send(name, {"test_set": set_id, **fields})
    for what, words in (
        (lambda: drafts.add(set_id, [*cases, 99]), "no test case 99"),
        (lambda: drafts.add_chosen(AddToTestSet(test_set=set_id)), "Name test cases"),
        (lambda: drafts.relabel(set_id, ("0" * 64,), "x"), "has no image"),
        (lambda: drafts.split(SplitTestSet(test_set=set_id)), "the share of each split"),
        (lambda: drafts.add("Boats", cases), "no test set “Boats”"),
    ):
        with pytest.raises(UserError, match=words):
            what()
    assert [entry.label for entry in entries(workspace, draft(workspace, set_id))] == ["bird"]


def test_a_mask_has_the_size_of_its_image(workspace: Workspace) -> None:
    mask = Image.frombytes("L", (32, 32), bytes([1, 2] * 512))
    task = Task("segmentation", protected=("road",))
    run = workspace.runs.create(picture(1), task, "demo", "A street", {})
    workspace.runs.set_mask(run, mask, {1: "road", 2: "sky"})
    cases = workspace.test_cases.extend(run, None, [made_case(picture(2, (64, 64))), made_case(picture(3))])
    set_id = set_with(workspace, cases, sources=True)
    held = entries(workspace, draft(workspace, set_id))
    loaded = [workspace.images.load(entry.mask or "") for entry in held]
    assert [found.size for found in loaded] == [(64, 64), (32, 32), (32, 32)]
    assert loaded[0].tobytes() == mask.resize((64, 64), Image.Resampling.NEAREST).tobytes()
    assert loaded[1].tobytes() == loaded[2].tobytes() == mask.tobytes()
    assert all(entry.mask_classes == {1: "road", 2: "sky"} and entry.label == "" for entry in held)
    workspace.runs.set_mask(run, None)
    assert entries(workspace, draft(workspace, set_id)) == held, "what is in a draft stays"


def test_a_deleted_run_leaves_a_version_whole_also_in_a_backup(workspace: Workspace, tmp_path: Path) -> None:
    cases = run_of(workspace, 1, [10, 11])
    set_id = set_with(workspace, cases, sources=True)
    version = release(workspace, set_id)
    (run,) = workspace.runs.search()
    workspace.runs.remove(run.id)
    workspace.close()
    workspace.open()  # opening removes leftovers of dead processes
    assert Versions(workspace).verify(version).whole
    before = list(VersionImages(workspace, version).all())
    assert [example.facts["review"]["verdict"] for example in before if example.role == "generated"] == ["accepted"] * 2
    later = workspace.test_sets.create("All that is accepted")
    with pytest.raises(UserError, match="No image fits the filter “review: accepted"):
        TestSetDrafts(workspace).add_chosen(AddToTestSet.of({"test_set": later, "filter": "review=accepted"}))
    assert storage_command(["backup", str(workspace.folder), str(tmp_path / "backup.zip")]) == 0
    assert storage_command(["restore", str(tmp_path / "backup.zip"), str(tmp_path / "copy")]) == 0
    with workspace_in(tmp_path / "copy") as copy:
        found = version_of(copy, version.id)
        assert found == version and Versions(copy).verify(found).whole
        after = [replace(example, image=example.image.name) for example in VersionImages(copy, found).all()]  # type: ignore[arg-type]
        assert after == [replace(example, image=example.image.name) for example in before]  # type: ignore[arg-type]
        with pytest.raises(sqlite3.IntegrityError):
            copy._database.write(lambda db: db.execute("DELETE FROM test_set_entries") and None)


def test_a_check_finds_what_was_harmed(workspace: Workspace) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, [10, 11, 12]))
    version = release(workspace, set_id)
    one, other, _ = (entry.image for entry in entries(workspace, version))
    folder = workspace.images.folder
    (folder / f"{one}.png").unlink()
    (folder / f"{other}.png").write_bytes(b"other bytes")
    (folder / "holiday.png").write_bytes(b"somebody's")
    found = Versions(workspace).verify(version)
    assert (found.missing, found.damaged, found.id_holds, found.files) == ((one,), (other,), True, 4)
    assert workspace.images.orphans() == ("holiday.png",)
    connection = sqlite3.connect(workspace.folder / "studio.db")
    connection.execute("DROP TRIGGER test_set_entries_refuse_update")
    connection.execute("UPDATE test_set_entries SET label = 'boat' WHERE image = ?", [one])
    connection.commit()
    connection.close()
    assert not Versions(workspace).verify(version).id_holds


def test_images_are_listed_by_pages(workspace: Workspace) -> None:
    set_with(workspace, run_of(workspace, 1, range(10, 17)))
    pages, after = [], 0
    while True:
        page = Versions(workspace).show(version="Birds", after=after, limit=3)
        pages.append([image["image"] for image in page["images"]])
        after = page["next"]
        if not after:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [image for page in pages for image in page] == [
        entry.image for entry in entries(workspace, version_of(workspace, "Birds"))
    ]


def test_an_example_says_what_is_known_of_an_image(workspace: Workspace) -> None:
    cases = run_of(workspace, 1, [10])
    version = release(workspace, set_with(workspace, cases, sources=True))
    made, source = sorted(VersionImages(workspace, version).all(), key=lambda example: example.role)
    assert (made.caption, made.new_caption, made.edit_types) == ("A red bird.", "A blue bird.", ("attribute",))
    assert made.image.read_bytes() == workspace.images.path(made.sha).read_bytes()
    assert (made.facts["lineage"]["seed"], made.facts["test_case"]) == ("10", cases[0])
    assert (source.caption, source.new_caption, source.sha, source.edits) == ("A red bird.", "", made.source, ())


def ran(capsys: pytest.CaptureFixture[str], workspace: Workspace, *arguments: object) -> tuple[int, list[str]]:
    """Run a command. Return its exit code and its lines."""
    code = sets_command(["--workspace", str(workspace.folder), *map(str, arguments)])
    said = capsys.readouterr()
    return code, (said.err if code == 2 else said.out).splitlines()


def test_a_draft_is_put_right_from_the_command_line(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, range(10, 16)))

    def held() -> dict[str, SetEntry]:
        return by_image(entries(workspace, draft(workspace, set_id)))

    one, two, three, four, *_ = held()
    assert ran(capsys, workspace, "relabel", "Birds", "a  gull", one[:12], two.upper()) == (
        0,
        ["2 images were given another label in “Birds”."],
    )
    assert {image: entry.label for image, entry in held().items() if entry.label != "bird"} == dict.fromkeys(
        (one, two), "a gull"
    )
    assert ran(capsys, workspace, "relabel", "Birds", "a gull", one[:12])[1][0].startswith("0 images were")
    assert ran(capsys, workspace, "set-split", "Birds", "validation", one, three[:6])[1][0].startswith("2 images were")
    assert {image: entry.split for image, entry in held().items() if entry.split} == dict.fromkeys(
        (one, three), "validation"
    )
    assert ran(capsys, workspace, "set-split", "Birds", "none", three) == (
        0,
        ["1 image was put into another split in “Birds”."],
    )
    assert held()[three].split == ""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{two}\n{three[:20]}  {three}\n"))
    assert ran(capsys, workspace, "remove", "Birds", "-", four) == (0, ["3 images were taken out of “Birds”."])
    assert not held().keys() & {two, three, four} and len(held()) == 3

    before = held()
    for wrong, words in (
        (["remove", "Birds", two], "has no image"),
        (["remove", "Birds", one[:5]], "at least 6 digits"),
        (["remove", "Birds", one, "%" * 12], "has no image"),
        (["relabel", "Birds", "x" * 300, one], "label"),
        (["remove", "Boats", one], "Boats"),
    ):
        code, said = ran(capsys, workspace, *wrong)
        assert code == 2 and len(said) == 1 and words in said[0]
    assert held() == before
    assert ran(capsys, workspace, "set-split", "Birds", "validation", *before)[1][0].startswith("2 images were")
    release(workspace, set_id)
    assert ran(capsys, workspace, "remove", "Birds", one) == (
        2,
        ["“Birds” has no draft: begin a draft of the next version."],
    )
    with pytest.raises(SystemExit):
        sets_command(["--workspace", str(workspace.folder), "set-split", "Birds", "exam", one])


def test_an_image_of_which_two_have_the_digits_is_asked_for_again(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_id = set_with(workspace, run_of(workspace, 1, range(10, 60)))
    monkeypatch.setattr("cli.test_sets.FEWEST_DIGITS", 1)
    images = [entry.image for entry in entries(workspace, draft(workspace, set_id))]
    first = next(image[0] for image in images if sum(other[0] == image[0] for other in images) > 1)
    code, said = ran(capsys, workspace, "remove", "Birds", first)
    assert code == 2 and "give more digits" in said[0]
    assert len(entries(workspace, draft(workspace, set_id))) == 50


def test_exported_images_say_in_iptc_words_how_they_were_drawn_and_sources_do_not(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A run", {})
    made = [made_case(picture(10), method="controlnet"), made_case(picture(11), method="nobody's")]
    cases = workspace.test_cases.extend(run, None, made)
    version = release(workspace, set_with(workspace, cases, sources=True), unreviewed=True)
    export_version(workspace, version, tmp_path / "out", "imagefolder")
    files = [path.read_bytes() for path in (tmp_path / "out").rglob("*.png")]
    packets = sorted(read_texts(data, [XMP_KEYWORD]).get(XMP_KEYWORD, "") for data in files)
    assert packets[0] == "" and len(packets) == 3
    words = [packet.partition("digitalsourcetype/")[2].partition('"')[0] for packet in packets[1:]]
    assert sorted(words) == ["compositeWithTrainedAlgorithmicMedia", "trainedAlgorithmicMedia"]


def test_an_export_tells_the_licences_of_the_models_that_drew(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo, paper, edit = (load_profile(name) for name in ("demo", "paper", "edit"))
    assert edit.editor is not None
    own = tmp_path / "own.toml"
    text = (PROFILES / "paper.toml").read_text(encoding="utf-8")
    text = text.replace(f'hub = "{paper.generator.title}"', 'hub = "me/my-own-model"')
    own.write_text(text.replace('licence = "CreativeML OpenRAIL-M"', 'licence = "Mine alone"', 1), encoding="utf-8")
    my = load_profile(str(own))
    models = [demo.generator.name_on("canny"), paper.generator.name_on("canny"), edit.editor.title]
    models += [my.generator.name_on("canny"), "nobody/knows"]
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A run", {})
    made = [made_case(picture(10 + number), model=model, seed=number) for number, model in enumerate(models)]
    cases = workspace.test_cases.extend(run, None, made)
    release(workspace, set_with(workspace, cases), unreviewed=True)

    def licences(into: Path) -> dict[str, str]:
        held: dict[str, str] = json.loads((into / "manifest.json").read_text(encoding="utf-8"))["test_set"]["licences"]
        return held

    code, said = ran(capsys, workspace, "export", "Birds", tmp_path / "out")
    assert code == 0 and said[0] == str(tmp_path / "out")
    assert [line.split()[5].rstrip(";") for line in said[1:]] == sorted([models[3].split()[0], "nobody/knows"])
    assert licences(tmp_path / "out") == {
        models[0]: demo.licence,
        models[1]: "CreativeML OpenRAIL-M",
        models[2]: "Apache 2.0",
        models[3]: "",
        models[4]: "",
    }
    code, said = ran(capsys, workspace, "export", "Birds", tmp_path / "out", "--replace", "--profile", own)
    assert (code, len(said)) == (0, 2)
    assert licences(tmp_path / "out")[models[3]] == (
        f"me/my-own-model: Mine alone; {my.generator.by_kind()['canny'].title}: CreativeML OpenRAIL-M"
    )
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Mine alone" in card and "| nobody/knows | not known |" in card
    assert ran(capsys, workspace, "export", "Birds", tmp_path / "other", "--profile", tmp_path / "none.toml")[0] == 2
    assert not (tmp_path / "other").exists()


def victim(folder: str, set_id: str) -> None:
    """Release a set in a process that dies before the commit."""
    workspace = Workspace(folder).open()
    storage_of_sets._version = _once_draft_then_die  # type: ignore[assignment]
    release(workspace, set_id)


def _once_draft_then_die(db: Any, number: int, real: Any = storage_of_sets._version) -> SetVersion:
    found: SetVersion = real(db, number)
    if not found.is_draft:
        print("released, not saved", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return found


@pytest.mark.slow
def test_a_kill_in_the_midst_of_a_release_leaves_the_draft(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        set_id = set_with(workspace, run_of(workspace, 1, [10, 11]))
    command = [sys.executable, __file__, str(tmp_path), set_id]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "released, not saved\n"), done.stderr
    with workspace_in(tmp_path) as workspace:
        held = draft(workspace, set_id)
        assert (held.entries, held.note, held.released) == (2, "", None)
        assert release(workspace, set_id).id == version_id("Birds", "", "", {}, entries(workspace, held))


if __name__ == "__main__":
    victim(*sys.argv[1:])


def test_images_of_the_catalogue_and_of_a_filter_are_added(workspace: Workspace) -> None:
    birds, boats = run_of(workspace, 1, [10, 11]), run_of(workspace, 2, [12], "boat")
    numbers = dict(zip(workspace.catalogue.test_cases(ids := workspace.catalogue.ids()), ids, strict=True))
    set_id, drafts = workspace.test_sets.create("Birds"), TestSetDrafts(workspace)

    def add(**sent: Any) -> tuple[int, int, int]:
        done = drafts.add_chosen(AddToTestSet.of({"test_set": set_id, **sent}))
        return done.added, done.already, done.left_out

    assert add(entries=[numbers[boats[0]]]) == (1, 0, 0)
    assert add(entries=f"{numbers[boats[0]]}, 99999") == (0, 1, 1), "what is not there is counted"
    with pytest.raises(UserError, match="now finds 2 images instead of 3"):
        add(filter="class=bird", expected=3)
    with pytest.raises(UserError, match="No image fits the filter “class: house”"):
        add(filter="class=house")
    with pytest.raises(UserError, match="Unknown filter part “sha”"):
        add(filter="sha=1")
    with pytest.raises(UserError, match="used as filters"):
        add(filter="region=0,0 1,0 1,1")
    assert add(filter="class=bird", expected=2) == (2, 0, 0)
    assert [entry.test_case for entry in entries(workspace, draft(workspace, set_id))] == [*boats, *birds]
    assert add(filter="", expected=3) == (0, 3, 0), "no filter is a filter that everything fits"


def test_imported_images_of_the_catalogue_are_added_too(workspace: Workspace, tmp_path: Path) -> None:
    cases = run_of(workspace, 1, [10])
    for number in (20, 21):
        folder = tmp_path / "owls" / "train" / "owl"
        folder.mkdir(parents=True, exist_ok=True)
        picture(number).save(folder / f"{number}.png")
    bring_in(workspace, tmp_path / "owls", "Owls")
    owls = sorted({*workspace.catalogue.ids()} - {*workspace.catalogue.ids(View.read("class=bird").filter)})
    set_id, drafts = workspace.test_sets.create("Birds"), TestSetDrafts(workspace)
    done = drafts.add_chosen(AddToTestSet.of({"test_set": set_id, "filter": "", "expected": 3}))
    assert (done.added, done.already, done.left_out) == (3, 0, 0)
    held = entries(workspace, draft(workspace, set_id))
    assert [(entry.test_case, entry.label, entry.split) for entry in held] == [
        (cases[0], "bird", ""),
        (None, "owl", "train"),
        (None, "owl", "train"),
    ]
    origins = workspace.test_sets.origins(draft(workspace, set_id).number, [entry.image for entry in held])
    assert {image: origin["import"] for image, origin in origins.items()} == {one.image: "Owls" for one in held[1:]}
    found = [shown.review for shown in workspace.test_sets.shown(draft(workspace, set_id).number, ImageFilter(), 0, 9)]
    assert found == ["accepted", "open", "open"]
    workspace.decisions.review(Target(owls[:1]), "accepted")
    assert len(workspace.test_sets.chosen(draft(workspace, set_id).number, ImageFilter.read("review=accepted"))) == 2
    assert {one.kind: len(one.images) for one in drafts.readiness(draft(workspace, set_id)).obstacles} == {
        "not accepted": 1,
        "no split": 1,
    }


def test_what_stands_against_a_release_is_told_before_it(workspace: Workspace) -> None:
    cases, open_ones = run_of(workspace, 1, [10, 11]), run_of(workspace, 2, [12], accepted=False)
    set_id, drafts = workspace.test_sets.create("Birds"), TestSetDrafts(workspace)

    def told() -> dict[str, int]:
        return {one.kind: len(one.images) for one in drafts.readiness(draft(workspace, set_id)).obstacles}

    assert told() == {"empty": 0}
    drafts.add(set_id, [*cases, *open_ones])
    assert told() == {"not accepted": 1}
    shas = [entry.image for entry in entries(workspace, draft(workspace, set_id))]
    workspace.test_sets.set_splits(draft(workspace, set_id).number, {shas[0]: "train", shas[1]: "test"})
    assert told() == {"not accepted": 1, "no split": 1, "leak": 2}
    assert drafts.readiness(draft(workspace, set_id)).not_compared == 2, "no file is opened for it"
    workspace.test_cases.review(open_ones[0], "accepted")
    drafts.split(SplitTestSet(test_set=set_id, test=1, keep=False))
    assert told() == {} and drafts.readiness(draft(workspace, set_id)).not_compared == 0
    version = release(workspace, set_id)
    drafts.begin(version.id)
    assert told() == {"unchanged": 0}


def test_images_that_were_taken_out_are_put_back_as_they_were(workspace: Workspace) -> None:
    drafts, set_id = TestSetDrafts(workspace), set_with(workspace, run_of(workspace, 1, [10, 11, 12]), sources=True)
    shas = [entry.image for entry in entries(workspace, draft(workspace, set_id))]
    workspace.test_sets.relabel(draft(workspace, set_id).number, shas[:1], "owl")
    workspace.test_sets.set_splits(draft(workspace, set_id).number, dict.fromkeys(shas, "test"))
    before = entries(workspace, draft(workspace, set_id))

    def remove(*images: str) -> dict[str, Any]:
        return drafts.remove(set_id, images)

    def back(removal: str, test_set: str = set_id) -> int:
        return drafts.put_back(test_set=test_set, removal=removal)["put_back"]

    one, two = remove(shas[0]), remove(shas[1], shas[3], "f" * 64)
    assert (one["removed"], two["removed"]) == (1, 2)
    assert remove("f" * 64) == {"removed": 0, "removal": ""}
    other = set_with(workspace, run_of(workspace, 2, [20]), "Others")
    for removal, test_set in (("unknown", set_id), (one["removal"], other)):
        with pytest.raises(UserError, match="cannot be put back any more"):
            back(removal, test_set)
    assert (back(two["removal"]), back(one["removal"])) == (2, 1)
    assert entries(workspace, draft(workspace, set_id)) == before, "label, split and place too"
    assert back(one["removal"]) == 0, "an image is in a draft once"
    removed = remove(shas[0])
    release(workspace, set_id)
    with pytest.raises(UserError, match="has no draft"):
        back(removed["removal"])


def test_a_draft_of_two_tasks_is_said_to_be_and_parted(workspace: Workspace) -> None:
    birds = run_of(workspace, 1, [10, 11])
    run = workspace.runs.create(picture(2), Task("segmentation", protected=("road",)), "demo", "A street", {})
    street = workspace.test_cases.extend(run, None, [made_case(picture(20))])
    same_source = workspace.runs.create(picture(1), Task("segmentation", protected=("road",)), "demo", "Of a bird", {})
    street += workspace.test_cases.extend(same_source, None, [made_case(picture(21))])
    drafts, set_id = TestSetDrafts(workspace), set_with(workspace, birds, sources=True)
    assert drafts.readiness(draft(workspace, set_id)).tasks == {}
    with pytest.raises(UserError, match="images of one task"):
        drafts.part(test_set=set_id)
    drafts.add(set_id, [*street, *run_of(workspace, 3, [30])], sources=True)
    before = by_image(entries(workspace, draft(workspace, set_id)))
    readiness = drafts.readiness(draft(workspace, set_id))
    assert {task: len(images) for task, images in readiness.tasks.items()} == {"classification": 3, "segmentation": 2}
    released = drafts.release(ReleaseTestSet(test_set=set_id, unreviewed=True))
    assert "has 3 images of classification and 2 of segmentation, and a model is tested on one task" in (
        drafts.warning(released)
    )
    drafts.begin(released.id)
    workspace.test_sets.create("birds (SEGMENTATION)")
    done = drafts.part(test_set=set_id)
    assert (done.name, done.task, done.moved) == ("Birds (segmentation 2)", "segmentation", 4)
    here, there = (by_image(entries(workspace, draft(workspace, one))) for one in (set_id, done.test_set))
    assert [entry.test_case for entry in there.values() if entry.role == "generated"] == [*street]
    shared = here.keys() & there.keys()
    assert [before[image].role for image in shared] == ["source"], "the source of images of both tasks"
    assert {**here, **there} == before
    assert (
        drafts.readiness(draft(workspace, set_id)).tasks
        == drafts.readiness(draft(workspace, done.test_set)).tasks
        == {}
    )
    assert drafts.warning(drafts.release(ReleaseTestSet(test_set=set_id, unreviewed=True))) == ""


def test_a_split_is_told_before_it_is_made(workspace: Workspace) -> None:
    cases = [case for number in range(6) for case in run_of(workspace, number, [10 * number + 7, 10 * number + 8])]
    drafts, set_id = TestSetDrafts(workspace), set_with(workspace, cases)
    asked = SplitTestSet(test_set=set_id, train=0.5, test=0.5)
    told = drafts.preview(asked)
    assert (told.groups, dict(told.splits), told.compared) == (6, {"train": 6, "test": 6}, False)
    assert not any(entry.split for entry in entries(workspace, draft(workspace, set_id))), "nothing is saved"
    assert not workspace.test_sets.hashes(entry.source for entry in entries(workspace, draft(workspace, set_id)))
    made = drafts.split(asked)
    assert drafts.preview(asked) == made and made.compared


def test_a_page_of_a_version_is_filtered_and_counted(workspace: Workspace) -> None:
    run_of(workspace, 1, [10, 11])
    run_of(workspace, 2, [12], "boat", accepted=False)
    set_id = set_with(workspace, workspace.catalogue.test_cases(workspace.catalogue.ids()), sources=True)
    sets, number = workspace.test_sets, draft(workspace, set_id).number

    def found(address: str) -> list[str]:
        return [shown.entry.label for shown in sets.shown(number, ImageFilter.read(address), 0, 10)]

    assert found("") == ["bird", "bird", "boat", "bird", "boat"]
    assert (
        found("class=boat") == ["boat", "boat"]
        and found("none=class") == []
        and found("-class=bird&role=generated") == ["boat"]
    )
    assert found("role=source") == ["bird", "boat"] and found("review=open") == ["boat"]
    assert found("review=accepted&none=split") == ["bird", "bird"] and found("split=test") == []
    assert found("edit type=attribute&review=accepted") == ["bird", "bird"] and found("edit type=domain") == []
    assert [shown.entry.label for shown in sets.shown(number, ImageFilter(), 3, 1)] == ["bird"]
    first = sets.chosen(number, ImageFilter.read("review=accepted"))
    assert len(first) == 2 and found(f"image={first[0]}") == ["bird"]
    counted = {(one.label, one.role, one.review): one.images for one in sets.counts(number)}
    assert counted == {
        ("bird", "generated", "accepted"): 2,
        ("bird", "source", "none"): 1,
        ("boat", "generated", "open"): 1,
        ("boat", "source", "none"): 1,
    }
