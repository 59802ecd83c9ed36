"""The pages of test sets in Chromium: from a new set to two released versions, their difference, and a zip."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from core.image_filter import ImageFilter
from core.types import Task
from formats.reading import read
from services.test_sets import hashes
from services.test_sets.drafts import SplitTestSet
from tests.support.cases import made_case
from tests.support.held_imports import hold_imports
from tests.support.routing import HeldBack, routed
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from tests.support.set_cases import picture, run_of

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from core.test_sets import SetEntry
    from services.studio import Studio

SOURCES = 8


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Server for all tests of this file. Each test makes its own test sets."""
    with serving_here(tmp_path_factory.mktemp("sets") / "workspace", ScriptedModels()) as (url, studio):
        for number in range(SOURCES):
            label = "boat" if number % 2 else "bird"
            run_of(studio.workspace, 100 + number, [10 * number, 10 * number + 1, 10 * number + 2], label)
        yield url, studio


@pytest.fixture
def desk(page: Page, served: tuple[str, Studio]) -> Iterator[Desk]:
    page.set_viewport_size({"width": 1280, "height": 900})
    yield Desk(page, *served)
    page.goto("about:blank")


def accepted(studio: Studio) -> tuple[int, ...]:
    """Return the ids of the accepted test cases, oldest first."""
    catalogue = studio.workspace.catalogue
    return catalogue.test_cases(catalogue.ids(ImageFilter.read("review=accepted")))


class Desk:
    """The curator's page in the browser."""

    def __init__(self, page: Page, url: str, studio: Studio) -> None:
        self.page, self.url, self.studio = page, url, studio

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}curate/sets{path}")
        self.page.wait_for_function("() => window.sets?.ready")

    def draft(self, name: str, most: int = 100) -> str:
        """Create a set whose draft has up to `most` accepted images, and open its page. Return its id."""
        studio = self.studio
        set_id = studio.workspace.test_sets.create(name)
        studio.test_sets.drafts.add(set_id, accepted(studio)[:most])
        self.open(f"/{set_id}")
        return set_id

    def entries(self, set_id: str) -> dict[str, SetEntry]:
        """Return the entries of a set's draft, or of its latest version if it has no draft, by hash."""
        held = self.studio.workspace.test_sets.get(set_id)
        version = held.draft or held.latest
        assert version is not None
        return {entry.image: entry for entry in self.studio.workspace.test_sets.entries(version.number)}

    def shot(self, place: int) -> Locator:
        return self.page.locator("#shots .shot").nth(place)

    def idle(self) -> None:
        self.page.wait_for_function("() => window.sets?.ready && !sets.busy")


def test_from_a_new_set_to_two_versions_their_difference_and_a_zip(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    desk.open("")
    page.click("text=Create the first test set")
    expect(page.locator("[data-problem=title]")).to_contain_text("no name")
    page.fill("[name=title]", "Night birds")
    page.press("[name=title]", "Enter")
    expect(page.locator(".empty")).to_contain_text("This draft is empty")
    set_id = str(page.get_attribute("#set", "data-set"))
    page.click("#add-accepted")
    expect(page.locator("#found")).to_have_text(f"{3 * SOURCES} images")
    page.click("#open-split")
    page.fill("[name=train]", "lots")
    page.click("#split [type=submit]")
    expect(page.locator("#split [data-problem=train]")).to_contain_text("no number")
    page.fill("[name=train]", "50")
    page.fill("[name=test]", "50")
    page.click("#split [type=submit]")
    expect(page.locator("#set-said")).to_contain_text(f"{SOURCES} groups of images that stay together")
    expect(page.locator("#before-release")).to_contain_text("No known problem prevents a release")
    assert sorted(entry.split for entry in desk.entries(set_id).values()) == ["test"] * 12 + ["train"] * 12
    page.click("#open-release")
    assert "will hold 24 images: train 12, test 12" in page.inner_text("#release")
    page.fill("#release [name=note]", "The first.")
    page.fill("#release [name=thresholds]", "label seen")
    page.click("#release [type=submit]")
    expect(page.locator("#release [data-problem=thresholds]")).to_contain_text("NAME=NUMBER")
    page.fill("#release [name=thresholds]", "label seen=0.25")
    page.click("#release [type=submit]")
    page.wait_for_selector("#version-id")
    first = desk.studio.workspace.test_sets.get(set_id).latest
    assert first is not None and (first.note, first.thresholds["label seen"]) == ("The first.", 0.25)
    expect(page.locator("#version-id")).to_have_text(first.id[:12])

    page.click("#next")
    expect(page.locator("#before-release")).to_contain_text("Nothing was changed since")
    gone, relabelled = (str(desk.shot(place).get_attribute("data-image")) for place in (0, 1))
    desk.shot(0).click()
    page.keyboard.press("Delete")
    expect(page.locator("#found")).to_have_text("23 images")
    page.click(f"[data-image='{relabelled}']")
    page.keyboard.press("l")
    page.fill("#relabel [name=label]", "owl")
    page.press("#relabel [name=label]", "Enter")
    expect(page.locator(f"[data-image='{relabelled}']")).to_contain_text("owl")
    held = desk.entries(set_id)
    assert gone not in held and held[relabelled].label == "owl"
    page.click("#open-release")
    page.click("#release [type=submit]")
    page.wait_for_selector("#version-id")
    page.click("#compare")
    page.wait_for_selector("#figures")
    figures = {str(tile.get_attribute("data-kind")): tile.inner_text() for tile in page.locator("#figures a").all()}
    assert [figures[kind].split()[0] for kind in ("added", "removed", "relabelled", "resplit")] == ["0", "1", "1", "0"]
    assert str(desk.shot(0).get_attribute("data-image")) == gone
    page.click("[data-kind=relabelled]")
    page.wait_for_selector("[data-kind=relabelled].on")
    assert page.inner_text("#shots .changed del") == "bird" and page.inner_text("#shots .changed ins") == "owl"

    desk.open(f"/{set_id}?version=2")
    page.click("#open-export")
    page.check("#export [value=csv]")
    page.click("#export [type=submit]")
    with page.expect_download() as download:
        page.click("[data-download]")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "night-birds-v2-csv.zip"
    found = read(file, tmp_path / "unpacked")
    assert not found.rows and {one.sha: (one.label, one.split) for one in found.examples} == {
        image: (entry.label, entry.split) for image, entry in desk.entries(set_id).items()
    }
    page.click("#part-exports [data-cancel]")
    expect(page.locator("[data-download]")).to_have_count(0)


def test_what_is_selected_in_the_gallery_comes_into_a_new_set_and_into_a_next_version(desk: Desk) -> None:
    page, sets = desk.page, desk.studio.workspace.test_sets

    def add(place: int, name: str) -> None:
        page.goto(f"{desk.url}curate/?class=bird")
        page.wait_for_function("window.gallery && gallery.idle")
        page.locator(".cell:not([hidden])").nth(place).click(modifiers=["Control"])
        page.click("#selection [data-bulk=add-to-set]")
        if page.locator("#ask-choices button", has_text=name).count():
            page.locator("#ask-choices button", has_text=name).click()
        else:
            page.get_by_label("Name of a new test set").fill(name)
            page.click("#ask-do")
        page.click(f"#said a:has-text('{name}')")
        page.wait_for_function("() => window.sets?.ready")

    add(0, "From the gallery")
    expect(page.locator("#found")).to_have_text("1 image")
    set_id = str(page.get_attribute("#set", "data-set"))
    desk.studio.commands.send("release-test-set", {"test_set": set_id})
    add(1, "From the gallery")
    expect(page.locator("#found")).to_have_text("2 images")
    assert [(one.is_draft, one.entries) for one in sets.get(set_id).versions] == [(False, 1), (True, 2)]


def test_images_are_picked_by_click_shift_and_keys(desk: Desk) -> None:
    page, set_id = desk.page, desk.draft("By keys")
    desk.shot(1).click()
    desk.shot(4).click(modifiers=["Shift"])
    expect(page.locator("#picked")).to_have_text("4 images picked")
    page.keyboard.press("3")
    expect(page.locator("#set-said")).to_contain_text("4 images put into another split")
    assert sum(entry.split == "test" for entry in desk.entries(set_id).values()) == 4
    expect(page.locator("#picked")).to_have_text("4 images picked")  # the selection stays for the next action
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    desk.shot(0).focus()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#picked")).to_have_text("3 images picked")
    page.select_option("[name=set-split]", "none")
    expect(page.locator("#set-said")).to_contain_text("2 images put into another split")
    page.click("[data-pick-all]")
    expect(page.locator("#picked")).to_have_text(f"{3 * SOURCES} images picked")
    page.click("[data-pick-none]")
    expect(page.locator("#selection")).to_be_hidden()
    desk.shot(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#large[open] figure")
    assert page.locator("#large figure").count() == 2, "the image and its source"
    before = page.get_attribute("#large", "data-image")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(before) => document.getElementById('large').dataset.image !== before", arg=before)
    page.keyboard.press("Escape")
    expect(page.locator("#large")).to_be_hidden()


def test_what_was_taken_out_is_put_back_by_a_press_or_a_key(desk: Desk) -> None:
    page, set_id = desk.page, desk.draft("Taken out", 6)
    before = [desk.shot(place).get_attribute("data-image") for place in range(6)]
    for undo in (lambda: page.click("#undo-removal"), lambda: page.keyboard.press("u")):
        desk.shot(1).click()
        desk.shot(2).click(modifiers=["Shift"])
        page.keyboard.press("Delete")
        expect(page.locator("#set-said")).to_contain_text("2 images taken out.")
        expect(page.locator("#found")).to_have_text("4 images")
        undo()
        expect(page.locator("#set-said")).to_have_text("2 images put back.")
        expect(page.locator("#found")).to_have_text("6 images")
        assert [desk.shot(place).get_attribute("data-image") for place in range(6)] == before
    assert [*desk.entries(set_id)] == before


def test_a_split_says_beforehand_how_many_images_each_part_gets(desk: Desk) -> None:
    page, set_id = desk.page, desk.draft("Foretold")
    page.click("#open-split")
    told, number = page.locator("#split [data-preview]"), 3 * SOURCES
    expect(told).to_contain_text(f"test {number} of {number} images")
    page.fill("#split [name=train]", "75")
    page.fill("#split [name=test]", "25")
    expect(told).to_contain_text(f"train {number - 6}, test 6 of {number} images. There are {SOURCES} groups")
    page.fill("#split [name=test]", "a few")
    expect(told).to_contain_text("no number")
    page.fill("#split [name=test]", "25")
    expect(told).to_contain_text("test 6")
    page.click("#split [type=submit]")
    expect(page.locator("#set-said")).to_contain_text(f"train {number - 6}, test 6 of {number} images.")
    assert sum(entry.split == "test" for entry in desk.entries(set_id).values()) == 6
    page.click(".counts a:text-is('6')")
    expect(page.locator("#found")).to_contain_text("6 of 24 images")
    page.click("#whole")
    expect(page.locator("#found")).to_have_text(f"{number} images")


def test_images_of_two_tasks_are_parted_with_one_press(desk: Desk) -> None:
    page, workspace = desk.page, desk.studio.workspace
    set_id = desk.draft("Mixed", 3)
    run = workspace.runs.create(picture(990), Task("segmentation", protected=("road",)), "demo", "A street", {})
    street = workspace.test_cases.extend(run, None, [made_case(picture(991))])
    try:
        desk.studio.test_sets.drafts.add(set_id, street)
        desk.open(f"/{set_id}")
        expect(page.locator("[data-obstacle='two tasks']")).to_contain_text(
            "3 images of classification and 1 of segmentation"
        )
        page.click("#part-tasks")
        expect(page.locator("#set-said")).to_contain_text("1 image is now in a test set of its own.")
        expect(page.locator("[data-obstacle='two tasks']")).to_have_count(0)
        expect(page.locator("#found")).to_have_text("3 images")
        page.click("#set-said a")
        expect(page.locator("h1")).to_have_text("Mixed (segmentation)")
        expect(page.locator("#found")).to_have_text("1 image")
    finally:
        workspace.runs.remove(run)


def test_who_is_quicker_than_the_scripts_of_a_page_loses_nothing(desk: Desk) -> None:
    page, late = desk.page, HeldBack()
    set_id = desk.draft("Quick", 5)
    gone = [desk.shot(place).get_attribute("data-image") for place in (0, 1, 2)]
    with routed(page, "**/curate-sets.js*", late):
        page.reload(wait_until="commit")
        desk.shot(0).click()
        desk.shot(2).click(modifiers=["Shift"])
        page.keyboard.press("Delete")
        late.let_through()
        expect(page.locator("#found")).to_have_text("2 images")
    assert not set(gone) & set(desk.entries(set_id))


def test_a_refusal_stands_where_it_belongs_and_leads_to_its_images(desk: Desk) -> None:
    page, studio = desk.page, desk.studio
    open_case = run_of(studio.workspace, 900, [901], accepted=False)
    set_id = studio.workspace.test_sets.create("Refused")
    studio.test_sets.drafts.add(set_id, [*open_case, *accepted(studio)[:6]])
    desk.open(f"/{set_id}")
    page.click("#open-release")
    page.click("#release [type=submit]")
    expect(page.locator("#release [data-problem='']")).to_contain_text("1 that nobody reviewed")
    page.click("#release [data-close-window]")
    page.click("[data-obstacle='not accepted'] a")
    expect(page.locator("#found")).to_have_text("1 of 7 images")
    expect(desk.shot(0)).to_contain_text("not reviewed")
    desk.shot(0).click()
    page.keyboard.press("Delete")
    expect(page.locator("#before-release")).to_contain_text("No known problem prevents a release")
    page.click("text=Show all")
    expect(page.locator("#found")).to_have_text("6 images")
    page.click("#open-delete")
    page.click("#delete [type=submit]")
    page.wait_for_url(f"{desk.url}curate/sets")
    assert "Refused" not in page.inner_text("main")


def test_what_is_refused_outside_of_a_window_is_said(desk: Desk) -> None:
    page, studio = desk.page, desk.studio
    set_id = desk.draft("Said", 3)
    done = studio.commands.send("decide", {"filter": "review=accepted", "verdict": "open", "author": "Ada"})
    page.click("#add-accepted")
    expect(page.locator("#before-release [data-problem='']")).to_contain_text(
        "No image fits the filter “review: accepted"
    )
    studio.commands.send("undo-decision", {"decision": done.decision, "author": "Ada"})
    studio.commands.send("release-test-set", {"test_set": set_id})
    desk.open(f"/{set_id}")
    studio.commands.send("draft-test-set", {"version": set_id})
    page.click("#next")
    expect(page.locator("#set-said")).to_contain_text("has a draft already")


def test_a_long_split_tells_how_far_it_is_and_stops(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    page, go_on = desk.page, threading.Event()
    plain = hashes.perceptual_hash

    def slow(picture: object) -> int:
        go_on.wait(60)
        return plain(picture)  # type: ignore[arg-type]

    new = [case for number in range(3) for case in run_of(desk.studio.workspace, 800 + number, [810 + number])]
    set_id = desk.studio.workspace.test_sets.create("Slow")
    desk.studio.test_sets.drafts.add(set_id, new)
    monkeypatch.setattr(hashes, "perceptual_hash", slow)
    desk.open(f"/{set_id}")
    page.click("#open-split")
    page.click("#split [type=submit]")
    page.wait_for_selector("#split .working button")
    with page.expect_response("**/curate/api/set-cancel"):
        page.click("#split .working button")
    go_on.set()
    expect(page.locator("#split .working button")).to_have_count(0)
    desk.idle()
    assert not any(entry.split for entry in desk.entries(set_id).values())
    page.click("#split [type=submit]")
    expect(page.locator("#set-said")).to_contain_text("3 groups")


def test_what_is_done_while_a_split_is_saved_is_saved_after_it(desk: Desk) -> None:
    page, save, set_id = desk.page, HeldBack(), desk.draft("One after the other", 5)
    first, second, third = (str(desk.shot(place).get_attribute("data-image")) for place in range(3))
    with routed(page, "**/curate/api/set-split-in-test-set", save):
        for image, key in ((first, "1"), (second, "2"), (third, "Delete"), (second, "3")):
            page.click(f"[data-image='{image}']")
            page.keyboard.press(key)
            page.keyboard.press("Escape")
        expect(page.locator("#selection")).to_be_hidden()
        save.let_through()
        desk.idle()
    held = desk.entries(set_id)
    assert (held[first].split, held[second].split) == ("train", "test") and third not in held
    expect(page.locator("#found")).to_have_text("4 images")


def test_what_was_saved_is_said_though_the_page_cannot_be_read_again(desk: Desk) -> None:
    page, set_id = desk.page, desk.draft("Half lost", 2)
    broken: list[object] = []
    page.on("pageerror", lambda error: broken.append(error))
    desk.shot(0).click()
    with routed(page, f"**/curate/sets/{set_id}", lambda route: route.abort()):
        page.keyboard.press("1")
        expect(page.locator("#set-said")).to_contain_text("1 image put into another split. The studio does not answer")
        desk.idle()
    page.keyboard.press("3")
    expect(page.locator("#set-said")).not_to_contain_text("does not answer")
    expect(desk.shot(0)).to_contain_text("test")
    assert not broken


class Losing:
    """Route handler that drops requests, or answers them with `status`, until `on` is False."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.on = status, True

    def __call__(self, route: Route) -> None:
        if not self.on:
            route.continue_()
        elif self.status:
            route.fulfill(status=self.status, json={"error": "The studio itself failed."})
        else:
            route.abort()


POLLS = "**/curate/api/set-work?work=*"


def test_a_release_is_followed_through_polls_that_are_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    page, drafts, go_on, losing = desk.page, desk.studio.test_sets.drafts, threading.Event(), Losing()
    desk.draft("Followed", 3)
    release = drafts.release
    monkeypatch.setattr(drafts, "release", lambda *given: go_on.wait(60) and release(*given))
    page.click("#open-release")
    with routed(page, POLLS, losing):
        page.click("#release [type=submit]")
        expect(page.locator("#release .working")).to_contain_text("The studio does not answer")
        losing.on = False
        expect(page.locator("#release .working")).not_to_contain_text("does not answer")
        go_on.set()
        page.wait_for_selector("#version-id")


def test_work_that_goes_on_is_watched_through_polls_that_are_lost_and_again_after_a_fault(desk: Desk) -> None:
    page, sets, go_on, losing = desk.page, desk.studio.test_sets, threading.Event(), Losing()
    set_id = desk.draft("Watched", 4)
    asked = SplitTestSet(test_set=set_id, train=0.5, validation=0, test=0.5)
    sets.work.start("split-test-set", set_id, lambda on_count: go_on.wait(60) and sets.drafts.split(asked, on_count))
    desk.open(f"/{set_id}")
    said = page.locator("#set-said")
    expect(page.locator("#part-work [data-work]")).to_have_count(1)
    with routed(page, POLLS, losing):
        expect(said).to_contain_text("The studio does not answer")
        losing.on = False
        expect(said).to_be_empty()
        losing.status, losing.on = 500, True
        expect(said).to_have_text("The studio itself failed.")
        losing.on = False
        page.evaluate("sets.refresh()")
        go_on.set()
        expect(said).to_contain_text("groups of images that stay together")
    assert all(entry.split for entry in desk.entries(set_id).values())


def test_an_import_is_watched_through_polls_that_are_lost(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, held, losing = desk.page, hold_imports(monkeypatch), Losing()
    (tmp_path / "owl").mkdir()
    picture(7500).save(tmp_path / "owl" / "1.png")
    page.goto(f"{desk.url}curate/import")
    page.wait_for_function("() => window.imports?.ready")
    page.set_input_files("#choose-folder", tmp_path / "owl")
    page.click("#begin")
    expect(page.locator("#part-import")).to_have_attribute("data-state", "running")
    with routed(page, "**/curate/api/import", losing):
        expect(page.locator("#part-import")).to_contain_text("The studio does not answer")
        losing.on = False
        held.go_on.set()
        expect(page.locator("#part-import")).to_contain_text("1 image came into the workspace")


def arrives(page: Page, late: Route) -> None:
    """Let a request that was held back through, and wait until the page has handled the reply."""
    with page.expect_response(late.request.url) as got:
        late.continue_()
    got.value.finished()
    page.evaluate("new Promise((go) => setTimeout(go))")


def test_images_are_looked_at_large_as_fast_as_the_keys_go(desk: Desk) -> None:
    page, late, saving = desk.page, HeldBack(), HeldBack()
    desk.draft("Large", 5)
    images = [str(desk.shot(place).get_attribute("data-image")) for place in range(4)]
    large = page.locator("#large")

    def shows(place: int) -> None:
        expect(large.locator(f"[src*='{images[place]}']")).not_to_have_count(0)

    desk.shot(0).focus()
    page.keyboard.press("Enter")
    shows(0)
    with routed(page, "**/curate/api/set-image?*", late):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        until(lambda: page.evaluate("true") and len(late.waiting or ()) == 2)
        second, third = late.waiting or []
        third.continue_()
        shows(2)
        arrives(page, second)
        shows(2)
        late.waiting = []
        page.keyboard.press("ArrowRight")
        until(lambda: page.evaluate("true") and late.waiting)
        page.keyboard.press("Escape")
        expect(large).to_be_hidden()
        arrives(page, late.waiting[0])
        expect(large).to_be_hidden()
    desk.shot(1).click()
    with routed(page, "**/curate/api/set-split-in-test-set", saving):
        page.keyboard.press("1")
        desk.shot(1).focus()
        page.keyboard.press("Enter")
        shows(1)
        saving.let_through()
        desk.idle()
    shows(1)  # image 1 stays open when the page is updated


def test_a_version_is_checked_and_its_lines_are_copied(desk: Desk) -> None:
    page, studio = desk.page, desk.studio
    set_id = desk.draft("Checked", 4)
    studio.commands.send("release-test-set", {"test_set": set_id})
    desk.open(f"/{set_id}")
    page.click("#verify")
    expect(page.locator("#verified")).to_have_attribute("data-whole", "yes")
    page.click("#open-leaks")
    expect(page.locator("#leak-line")).to_contain_text("leaks Checked@1 FOLDER")
    page.click("#leaks [data-copy-from]")
    expect(page.locator("#leaks [data-copy-from]")).not_to_have_text("Copy")


def test_what_was_typed_stays_while_the_page_is_fitted_anew(desk: Desk) -> None:
    """Another user changes the draft while a window is open."""
    page, save = desk.page, HeldBack()
    set_id = desk.draft("Two at once", 6)
    desk.shot(0).click()
    with routed(page, "**/curate/api/set-split-in-test-set", save):
        page.keyboard.press("1")
        page.wait_for_function("() => sets.busy")
        page.click("#open-release")
        page.fill("#release [name=note]", "Typed meanwhile")
        save.let_through()
        expect(page.locator("#set-said")).to_contain_text("1 image put into another split")
    assert page.input_value("#release [name=note]") == "Typed meanwhile"
    assert page.is_visible("#release[open]")
    page.click("#release [type=submit]")
    expect(page.locator("#release [data-problem='']")).to_contain_text("5 images are in no split")
    assert desk.studio.workspace.test_sets.get(set_id).draft is not None


def test_no_page_is_wider_than_its_window(desk: Desk) -> None:
    page = desk.page
    set_id = desk.draft('<img src=x onerror=alert(1)> & "a very long name' + "e" * 100, 12)
    addresses = ["", f"/{set_id}"]
    desk.studio.commands.send("release-test-set", {"test_set": set_id})
    desk.studio.commands.send("draft-test-set", {"version": set_id})
    for address in (*addresses, f"/{set_id}?version=1", f"/{set_id}/compare"):
        desk.open(address)
        for width in (390, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{page.url} at {width}"


def test_pictures_are_imported_and_make_a_test_set(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    folder = tmp_path / "Öwls & co"
    for number, place in ((1, "test/owl/1.png"), (2, "train/owl/2.png"), (3, f"train/bird/ü {'long ' * 20}3.png")):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        picture(7000 + number).save(folder / place)
    (folder / "test" / "owl" / "bad.png").write_bytes(b"no picture")
    (folder / "train" / "owl" / "empty.png").touch()
    page.goto(f"{desk.url}curate/import")
    page.wait_for_function("() => window.imports?.ready")
    assert page.is_disabled("#begin") and page.is_hidden("[name=test_set]")
    page.set_input_files("#choose-folder", folder)
    expect(page.locator("#chosen")).to_contain_text("5 files")
    page.click("summary")
    page.fill("[name=classes]", "road")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.check("[name=as_set]")
    page.fill("[name=test_set]", "Brought in")
    page.click("#begin")
    expect(page.locator("[data-problem=classes]")).to_contain_text("no class")
    assert sent and not any("/curate/files/" in url for url in sent), "refused before the archive was sent"
    page.fill("[name=classes]", "")
    page.click("#begin")
    expect(page.locator("#part-import")).to_contain_text("3 images came into the workspace")
    held = next(one for one in desk.studio.workspace.test_sets.all() if one.name == "Brought in")
    found = sorted((entry.label, entry.split) for entry in desk.entries(held.id).values())
    assert found == [("bird", "train"), ("owl", "test"), ("owl", "train")]
    page.click("#to-report")
    expect(page.locator(".report")).to_contain_text("ü long long")  # the file whose name was changed
    page.click(".chip:has-text('refused')")
    expect(page.locator(".report tbody tr")).to_have_count(2)
    expect(page.locator(".report")).to_contain_text("test/owl/bad.png")
    expect(page.locator(".report")).to_contain_text("train/owl/empty.png")
    with page.expect_download() as download:
        page.click("#save-report")
    assert "bad.png" in Path(download.value.path()).read_text()
    assert page.input_value("#into-set [name=test_set]").startswith("Öwls")
    page.fill("#into-set [name=test_set]", "Once more")
    page.press("#into-set [name=test_set]", "Enter")
    expect(page.locator("#found")).to_have_text("3 images")
    page.go_back()
    page.click("#to-images")
    page.wait_for_function("window.gallery && gallery.idle")
    expect(page.locator("#count")).to_have_text("3")
    desk.open(f"/{held.id}")
    expect(page.locator("#before-release")).to_contain_text("3 that nobody reviewed")
