"""Cost of requests, counted and never timed: for many images it grows in proportion, and for a few it depends only
on them.
"""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.catalogue import Order
from core.images import StoredImage, png_of
from core.imports import ImportRow
from core.test_sets import SetEntry
from services.test_sets.examples import VersionImages
from storage.curation import imports as storage_of_imports
from storage.curation.decisions import Target
from storage.curation.imports import NewImage
from storage.damage import catalogue_faults
from storage.workspace import DATABASE, Workspace
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def stored(number: int) -> StoredImage:
    """Return a stored image that has a row but no file."""
    return StoredImage(f"{number:064x}", 8, 8, "RGB", 9)


def brought(workspace: Workspace, number: int, source: str = "", first: int = 1) -> int:
    """Import this number of pictures. Return the id of the import."""
    held = workspace.imports.begin(f"From {first}", "birds.zip", f"{first:064x}", {})
    numbers = range(first, first + number)
    new = [NewImage(f"bird {place}", stored(place), label="bird", source=source) for place in numbers]
    workspace.imports.add(held, new)
    return held


def steps_of(workspace: Workspace, work: Callable[[], Any]) -> int:
    """Return the thousands of steps of SQLite's virtual machine for writes. They are equal on every machine."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    def watch(counted: Callable[[], int] | None) -> None:
        workspace._database.write(lambda db: db.conn.set_progress_handler(counted, 1000))

    watch(count)
    work()
    watch(None)
    return taken


def trigger(workspace: Workspace, name: str) -> str:
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?"
    return str(workspace._database.read(lambda db: db.execute(query, [name]).fetchone()[0]))


def plan(workspace: Workspace, query: str, values: Any = ()) -> list[str]:
    """Return SQLite's plan for a query, with a line for each step."""
    rows = workspace._database.read(lambda db: db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall())
    return [row[-1] for row in rows]


def test_a_new_picture_is_looked_for_by_its_index(workspace: Workspace) -> None:
    text = trigger(workspace, "catalogue_sources_follow_images")
    query = re.search(r"SELECT entry FROM imported_images[^)]*", text)
    assert query is not None
    (step,) = plan(workspace, query[0].replace("NEW.sha", ":sha"), {"sha": "0" * 64})
    assert step.startswith("SEARCH imported_images USING INDEX imported_images_by_source")


def test_a_picture_that_is_nobody_s_source_comes_as_easily_beside_many(workspace: Workspace) -> None:
    def add(shade: int) -> int:
        return steps_of(workspace, lambda: workspace.images.add(Image.new("RGB", (8, 8), (shade, 0, 0))))

    few = add(1)
    brought(workspace, 800, "f" * 64)
    assert add(2) <= few + 3


def test_a_source_that_comes_after_its_images_takes_work_in_step_with_them(workspace: Workspace) -> None:
    def late(number: int, first: int) -> int:
        source = Image.new("RGB", (8, 8), (first % 256, 0, 0))
        sha = hashlib.sha256(png_of(source)).hexdigest()
        brought(workspace, number, sha, first)
        taken = steps_of(workspace, lambda: workspace.images.add(source))
        held = [entry.source_sha for entry in workspace.catalogue.page(limit=1000).entries]
        assert held.count(sha) == number
        return taken

    few, many = late(40, 1001), late(400, 2002)
    assert many < 20 * few
    assert catalogue_faults(workspace.folder / DATABASE) == ()
    order = workspace.catalogue.page(order=Order("source"), limit=1000).entries
    assert len({entry.source_sha for entry in order[:400]}) == 1, "they stand together"


def test_imports_are_counted_by_an_index_alone(workspace: Workspace) -> None:
    held = brought(workspace, 3)
    workspace.imports.finish(held, "folder", {}, [ImportRow("b.png", "It is damaged.", "refused")])
    (one,) = workspace.imports.all()
    assert (one.images, one.made, one.sources, one.rows) == (3, 3, 0, {"refused": 1})
    steps = plan(workspace, f"{storage_of_imports._QUERIES['imports']} WHERE id = ?", [held])
    counted = [step for step in steps if "imported_images" in step or "import_rows" in step]
    assert len(counted) == 4 and all("COVERING INDEX" in step for step in counted), counted


def test_images_join_an_import_as_easily_beside_many(workspace: Workspace) -> None:
    def add(number: int) -> int:
        new = [NewImage("bird", stored(number), label="bird")]
        return steps_of(workspace, lambda: workspace.imports.add(held, new))

    held = brought(workspace, 1)
    few = add(5001)
    assert brought(workspace, 800) == held
    assert add(5002) <= few + 3


def test_all_images_of_a_version_are_read_without_what_files_said_of_them(workspace: Workspace) -> None:
    facts = {"checks": [{"name": f"check {place}", "value": place} for place in range(200)]}
    held, number = workspace.imports.begin("Birds", "birds.zip", "c" * 64, {}), 400
    workspace.imports.add(held, [NewImage("bird", stored(place), label="bird") for place in range(number)])
    version = workspace.test_sets.get(workspace.test_sets.create("Birds")).versions[0].number
    new = [SetEntry(f"{place:064x}", f"{place:064x}", "bird", origin={"facts": facts}) for place in range(number)]
    workspace.test_sets.add(version, new)
    entries = workspace.test_sets.entries(version)
    assert len(pickle.dumps(entries)) < 1500 * number
    assert all(entry == replace(one, origin={}) for entry, one in zip(entries, new, strict=True))
    some = [entry.image for entry in entries[:2]]
    assert workspace.test_sets.origins(version, some) == {image: {"facts": facts} for image in some}
    assert [entry for _, entry in workspace.test_sets.page(version, 0, 2)] == new[:2]


def test_an_example_says_what_the_files_of_an_image_said(workspace: Workspace) -> None:
    sha, facts = workspace.images.add(Image.new("RGB", (8, 8))), {"camera": "left"}
    version = workspace.test_sets.get(workspace.test_sets.create("Birds")).versions[0]
    workspace.test_sets.add(version.number, [SetEntry(sha, sha, "bird", origin={"facts": facts, "caption": "A bird."})])
    (example,) = VersionImages(workspace, workspace.test_sets.version(version.number)).all()
    assert (example.facts, example.caption) == (facts, "A bird.")


def test_many_images_are_taken_back_in_one_pass(workspace: Workspace) -> None:
    brought(workspace, 1200)
    entries, decisions = list(workspace.catalogue.ids()), workspace.decisions
    for entry in entries[:100]:  # each image also has a decision of its own
        decisions.review(Target([entry]), "rejected", "dark", "Bo")

    def back(number: int) -> int:
        decisions.review(Target(entries[:number]), "accepted", author="Ada")
        return steps_of(workspace, lambda: decisions.take_back(author="Ada"))

    few, many = back(100), back(1200)
    assert many < 20 * few
    assert workspace.catalogue.facets()["review"] == {"rejected": 100, "open": 1100}


def test_one_image_of_a_large_draft_is_put_right_as_easily(workspace: Workspace) -> None:
    def put_right(number: int) -> tuple[int, int]:
        brought(workspace, number, first=5000 * number)
        version = workspace.test_sets.get(workspace.test_sets.create(f"Birds {number}")).versions[0].number
        shas = [f"{place:064x}" for place in range(5000 * number, 5001 * number)]
        workspace.test_sets.add(version, [SetEntry(sha, sha, "bird") for sha in shas])
        relabelled = steps_of(workspace, lambda: workspace.test_sets.relabel(version, shas[:1], "gull"))
        return relabelled, steps_of(workspace, lambda: workspace.test_sets.set_splits(version, {shas[1]: "test"}))

    few, many = put_right(10), put_right(2000)
    assert all(work <= few[place] + 3 for place, work in enumerate(many))
