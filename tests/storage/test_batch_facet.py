"""Images are found by the batch that drew them, at once, also after their runs are removed or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from core.batches import Done, NewWork
from core.image_filter import ImageFilter
from services.curation.views import View
from services.studio import Studio
from storage.damage import catalogue_faults
from storage.runs.test_cases import save_cases
from storage.workspace import DATABASE, Workspace
from tests.storage.test_batches_ledger import SHOWN, TRIES, batch_of, read
from tests.support.batch_cases import comes_to, pictures, plan_text, planned, work_here
from tests.support.cases import made_case
from tests.support.workspaces import workspace_in


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path) as opened:
        yield opened
        assert catalogue_faults(tmp_path / DATABASE) == ()


def draw(workspace: Workspace, batch: int, images: int) -> str:
    """Read one source of a batch, and draw this number of images of it. Return the id of its run."""
    held = workspace.batches
    held.record(batch, [read(workspace, held.claim(batch, "captions")[0].id, 50 * batch)], TRIES)
    source = next(one for one in held.sources(batch) if one.run)
    held.plan(batch, "images", [NewWork(source.id, f"image {n}", 0, n, n, SHOWN) for n in range(images)], {})
    cases = [made_case(Image.new("RGB", (16, 12), (60 * batch, 40 * n, 9))) for n in range(images)]
    saved = save_cases(workspace.images, workspace.thumbnails, cases)
    done = [Done(one.id, case=case) for one, case in zip(held.claim(batch, "images"), saved, strict=True)]
    for one in done:
        held.record(batch, [one], TRIES)
    assert source.run is not None
    return source.run


def found(workspace: Workspace, *values: str) -> set[int | None]:
    """Return the test cases of these batches."""
    return {one.test_case for one in workspace.catalogue.page(ImageFilter(facets={"batch": values})).entries}


def test_each_image_is_of_the_batch_that_made_it_also_of_two_with_one_name(workspace: Workspace) -> None:
    first, second = batch_of(workspace, 2), batch_of(workspace, 2, digest="other")
    run = draw(workspace, first, 3)
    draw(workspace, second, 2)
    names = [workspace.batches.get(number).facet for number in (first, second)]
    assert names == ["Birds #1", "Birds #2"]
    own = workspace.test_cases.append(run, None, made_case(Image.new("RGB", (16, 12), "white")))
    assert found(workspace, names[0]) == {1, 2, 3} and found(workspace, names[1]) == {4, 5}
    assert found(workspace, "") == {own}, "what a person draws later in its run is not of the batch"
    assert workspace.catalogue.facets()["batch"] == {"Birds #1": 3, "Birds #2": 2}
    assert len(workspace.catalogue.ids(ImageFilter(without={"batch": (names[0],)}))) == 3


def test_the_images_of_a_deleted_run_go_and_come_with_it(workspace: Workspace) -> None:
    number = batch_of(workspace, 2)
    run = draw(workspace, number, 2)
    workspace.runs.remove(run)
    assert found(workspace, "Birds #1") == set() and workspace.catalogue.facets()["batch"] == {}
    workspace.runs.restore(run)
    assert len(found(workspace, "Birds #1")) == 2 and workspace.catalogue.facets()["batch"] == {"Birds #1": 2}


def test_a_result_that_comes_twice_is_one_image(workspace: Workspace) -> None:
    number, held = batch_of(workspace, 2), workspace.batches
    draw(workspace, number, 2)
    work = workspace._database.read(lambda db: [row["id"] for row in db.query("SELECT id FROM batch_work ORDER BY id")])
    (case,) = save_cases(workspace.images, workspace.thumbnails, [made_case(Image.new("RGB", (16, 12), "red"))])
    held.record(number, [Done(work[-1], case=case)], TRIES)
    assert workspace.catalogue.facets()["batch"] == {"Birds #1": 2}


def test_a_view_says_the_batch_in_the_address_of_the_gallery_and_so_does_a_script(
    studio: Studio, tmp_path: Path
) -> None:
    work_here(studio.batches)
    for name in ("Birds", "Others"):
        number = planned(studio, plan_text(pictures(tmp_path / name), name))
        studio.batches.begin(number)
        comes_to(studio, number, "approval")
        studio.batches.approve(number)
        comes_to(studio, number, "done")
    view = View(ImageFilter(facets={"batch": (studio.workspace.batches.get(1).facet,)}))
    assert view.address == "batch=Birds+%231" and View.read(view.address) == view
    assert studio.gallery.count(view).number == 6 and studio.gallery.count(View()).number == 12
    others, birds = studio.commands.send("list-batches", {})["batches"]
    assert [one["filter"] for one in (birds, others)] == ["batch=Birds+%231", "batch=Others+%232"]
    for one in (birds, others):
        asked = {"filter": one["filter"]}
        assert studio.commands.send("count-test-cases", asked)["count"] == 6
        listed = studio.commands.send("list-test-cases", asked)["test_cases"]
        assert {case["run_name"].partition(":")[0] for case in listed} == {one["name"]}
