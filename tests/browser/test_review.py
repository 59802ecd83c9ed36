"""Reviewing in the gallery by keys alone: decisions, undo, selection, many images at once, repeats, a lost studio."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from core.image_filter import ImageFilter
from storage.workspace import Workspace
from tests.support.drawn import fill
from tests.support.routing import HeldBack, routed
from tests.support.scripted import ScriptedModels
from tests.support.server_process import ServerProcess
from tests.support.serving import serving_here, until
from tests.support.workspaces import workspace_in

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from core.catalogue import CatalogueEntry
    from services.studio import Studio

SCENES, VARIANTS = 12, 5
KILLED = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("review") / "workspace", ScriptedModels()) as (url, studio):
        fill(studio.workspace, SCENES, VARIANTS, pixels=32)
        yield url, studio


def opened(page: Page, url: str, query: str = "") -> Page:
    page.goto(f"{url}curate/{query}")
    page.wait_for_function("window.gallery?.review && gallery.idle")
    return page


def current(page: Page) -> int:
    return int(page.wait_for_function("gallery.now()?.id").json_value())  # waits until the gallery has loaded


def saved(page: Page) -> None:
    """Wait until the studio has confirmed that all decisions are saved."""
    page.wait_for_function("!gallery.review.waiting.length")


def entry(studio: Studio, number: int) -> CatalogueEntry:
    return studio.workspace.catalogue.get(number)


def test_a_key_decides_and_goes_on_and_another_takes_it_back(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url, "?review=open")
    first, before = current(page), page.locator("#count").inner_text()
    page.keyboard.press("a")
    page.wait_for_function("before => (gallery.now()?.id ?? before) !== before", arg=first)
    second = current(page)
    page.keyboard.press("r")
    expect(page.locator("#ask")).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator("#ask")).not_to_be_visible()
    saved(page)
    assert entry(studio, first).verdict == "accepted"
    assert (entry(studio, second).verdict, entry(studio, second).reason) == ("rejected", "edit does not show")
    assert page.locator(f'.cell[data-entry="{first}"]').get_attribute("data-verdict") == "accepted", "it stays in sight"
    page.keyboard.press("u")
    until(lambda: entry(studio, second).verdict == "open")
    expect(page.locator("#said")).to_contain_text("Taken back")
    page.keyboard.press("u")
    until(lambda: entry(studio, first).verdict == "open")
    expect(page.locator("#count")).to_have_text(before)


def test_no_key_is_lost_behind_a_window_that_closes_over_the_large_picture(
    page: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    opened(page, url)
    page.keyboard.press("Enter")
    first, second = (page.evaluate("place => gallery.cell(place).id", place) for place in (0, 1))
    page.keyboard.press("r")
    page.keyboard.press("1")
    page.wait_for_function("gallery.current === 1")
    assert page.evaluate("document.activeElement.id") != "ask-text", "a field that is not seen keeps no keys"
    page.keyboard.press("a")
    until(lambda: (entry(studio, first).verdict, entry(studio, second).verdict) == ("rejected", "accepted"))


def test_all_of_a_filter_can_be_reviewed_though_each_decision_takes_one_out(
    page: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    opened(page, url, "?review=open&kind=segmentation")
    number = int(page.evaluate("gallery.count"))
    wanted = ImageFilter(facets={"review": ("open",), "kind": ("segmentation",)})
    assert number == studio.workspace.catalogue.count(wanted).number > 3
    ids = [page.evaluate("place => gallery.cell(place).id", place) for place in range(number)]
    page.keyboard.press("Enter")
    for place in range(number):
        page.wait_for_function("place => gallery.current === place", arg=place)
        page.keyboard.press("a")
        saved(page)
    expect(page.locator("#count")).to_have_text("0")
    assert {entry(studio, one).verdict for one in ids} == {"accepted"}
    for _ in ids:
        page.keyboard.press("u")
    saved(page)
    until(lambda: studio.workspace.catalogue.count(wanted).number == number)


def test_what_is_selected_by_keys_is_decided_at_once(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url)
    ids = [page.evaluate("place => gallery.cell(place).id", place) for place in range(4)]
    before = [entry(studio, number).verdict for number in ids]
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#selected-count")).to_have_text("4 selected")
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    saved(page)
    assert [entry(studio, number).verdict for number in ids] == ["rejected"] * 4
    expect(page.locator("#selection")).not_to_be_visible()
    page.locator("#undo").click()
    until(lambda: [entry(studio, number).verdict for number in ids] == before)


def test_all_of_a_filter_is_decided_after_its_count_was_said(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url, "?edit+type=attribute")
    wanted = ImageFilter(facets={"edit type": ("attribute",)})
    number = studio.workspace.catalogue.count(wanted).number
    before = Counter(studio.workspace.catalogue.facets(wanted)["review"])
    page.locator("#select-all").click()
    expect(page.locator("#ask-title")).to_contain_text(f"{number} images")
    expect(page.locator("#ask .acts button:visible")).to_have_text("Cancel")  # the keys are the only other way to act
    page.keyboard.press("1")
    expect(page.locator("#ask-title")).to_have_text(f"Accept {number} images?")
    assert Counter(studio.workspace.catalogue.facets(wanted)["review"]) == before, "nothing before the yes"
    page.keyboard.press("Enter")
    saved(page)
    assert studio.workspace.catalogue.facets(wanted)["review"]["accepted"] == number
    page.keyboard.press("u")
    until(lambda: Counter(studio.workspace.catalogue.facets(wanted)["review"]) == before)


def test_tags_and_labels_are_given_by_keys(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url, "?kind=classification")
    number = current(page)
    page.keyboard.press("t")
    page.keyboard.type("hard one")
    page.keyboard.press("Enter")
    saved(page)
    until(lambda: entry(studio, number).tags == ("hard one",))
    expect(page.locator("#detail [data-untag]")).to_have_text("hard one")
    page.keyboard.press("l")
    page.keyboard.type("zeppelin")
    page.keyboard.press("Enter")
    saved(page)
    until(lambda: entry(studio, number).classes == ("zeppelin",))
    page.locator("#detail [data-untag]").click()
    until(lambda: not entry(studio, number).tags)
    page.keyboard.press("u")
    until(lambda: entry(studio, number).tags == ("hard one",))


def test_a_review_shows_some_images_once_more_and_tells_how_steady_one_was(
    page: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    opened(page, url, "?sort=information")
    page.locator("#review").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("Ada")
    page.keyboard.press("Enter")
    page.wait_for_function("gallery.review.session && gallery.large")
    session = int(page.evaluate("gallery.review.session"))
    figures = {"repeats": 0}
    for _ in range(SCENES * VARIANTS + 20):
        page.keyboard.press("a")
        saved(page)
        figures = studio.commands.send("review-figures", {"session": session})
        if figures["repeats"] and not page.evaluate("Boolean(gallery.review.repeating)"):
            break
    assert figures["repeats"] == figures["same"] >= 1
    expect(page.locator("#review-figures")).to_contain_text("as before")
    page.locator("#review").click()
    expect(page.locator("#said")).to_contain_text("decided")
    assert {one["author"] for one in studio.commands.send("list-decisions", {"by": "Ada"})["decisions"]} == {"Ada"}


def repeated(page: Page, server: tuple[str, Studio]) -> int:
    """Return the image that a new review shows a second time. One decision in five is followed by a repeat."""
    url, studio = server
    studio.commands.send("decide", {"entries": studio.workspace.catalogue.ids(), "verdict": "open"})

    def often(route: Route) -> None:
        sent = json.loads(route.request.post_data or "{}")
        route.continue_(post_data=json.dumps({**sent, "repeats": 0.2}))

    opened(page, url, "?sort=oldest")
    with routed(page, "**/curate/api/begin-review", often):
        page.locator("#review").click()
        page.keyboard.press("Enter")
        page.wait_for_function("gallery.review.session && gallery.large")
    for _ in range(SCENES * VARIANTS):
        page.keyboard.press("a")
        saved(page)
        if page.evaluate("Boolean(gallery.review.repeat)"):
            break
    page.keyboard.press("a")
    page.wait_for_function("gallery.review.repeating")
    return int(page.evaluate("gallery.review.repeating.id"))


def test_a_review_says_where_it_stands_and_an_undo_goes_back_to_its_image(
    page: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    ids = studio.workspace.catalogue.ids()
    studio.commands.send("decide", {"entries": ids, "verdict": "open"})
    opened(page, url, "?sort=oldest")
    page.locator("#review").click()
    page.locator("#ask-choices button", has_text="Begin without repeats").click()
    place = page.locator("#review-place")
    expect(place).to_have_text(f"1 of {len(ids)}")
    page.keyboard.press("a")
    expect(place).to_have_text(f"2 of {len(ids)}")
    page.keyboard.press("r")
    page.keyboard.press("1")
    expect(place).to_have_text(f"3 of {len(ids)}")
    page.keyboard.press("ArrowRight")
    saved(page)
    page.keyboard.press("u")
    expect(place).to_have_text(f"2 of {len(ids)}")
    assert current(page) == ids[1]
    until(lambda: entry(studio, ids[1]).verdict == "open")
    late = HeldBack()
    with routed(
        page, "**/curate/api/undo-decision", late
    ):  # keys pressed before the reply act on the image that is shown
        page.keyboard.press("u")
        page.keyboard.press("r")
        page.keyboard.press("2")
        late.let_through()
        saved(page)
    assert (entry(studio, ids[0]).verdict, entry(studio, ids[0]).reason) == ("rejected", "edit does not show")
    assert current(page) == ids[1]
    page.locator("#review").click()
    expect(place).to_have_text("")


def test_a_review_begins_at_the_first_open_image_wherever_it_stands(
    page: Page, server: tuple[str, Studio], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, studio = server
    ids = studio.workspace.catalogue.ids()
    studio.commands.send("decide", {"entries": ids, "verdict": "accepted"})
    last = max(ids)
    studio.commands.send("decide", {"entries": [last], "verdict": "open"})
    found = studio.gallery.page
    monkeypatch.setattr(studio.gallery, "page", lambda view, at=0, limit=10, held="": found(view, at, limit, held))
    page.set_viewport_size({"width": 800, "height": 400})
    opened(page, url).locator("#size").fill("420")
    opened(page, url, "?sort=oldest")
    assert page.evaluate("!gallery.cell(gallery.count - 2)"), "images behind the first few are not loaded yet"
    page.locator("#review").click()
    expect(page.get_by_label("Your name, or none")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#review-place")).to_have_text(f"{len(ids)} of {len(ids)}")
    assert current(page) == last
    page.locator("#review").click()
    studio.commands.send("decide", {"entries": [last], "verdict": "accepted"})
    opened(page, url, "?sort=oldest")
    page.locator("#review").click()
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("All of these images are decided already")
    expect(page.locator("#review-place")).to_have_text(f"1 of {len(ids)}")
    page.locator("#review").click()
    studio.commands.send("decide", {"entries": ids, "verdict": "open"})


def test_an_undo_of_another_day_goes_back_to_its_image(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    ids = studio.workspace.catalogue.ids()
    studio.commands.send("decide", {"entries": ids, "verdict": "open"})
    studio.commands.send("decide", {"entries": [ids[-3]], "verdict": "accepted"})
    opened(page, url, "?sort=oldest")
    page.evaluate("localStorage.removeItem('curate-name')")  # the decisions above have no name either
    page.keyboard.press("u")
    page.wait_for_function("id => gallery.now()?.id === id", arg=ids[-3])
    assert entry(studio, ids[-3]).verdict == "open"


def test_an_undo_whose_reply_was_lost_takes_one_decision_back(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    ids = studio.workspace.catalogue.ids()
    studio.commands.send("decide", {"entries": ids, "verdict": "open"})
    for entry_id in ids[:2]:
        studio.commands.send("decide", {"entries": [entry_id], "verdict": "accepted"})
    opened(page, url, "?sort=oldest")
    page.evaluate("localStorage.removeItem('curate-name')")  # the decisions above have no name either
    lost = list[int]()

    def lose(route: Route) -> None:
        """Drop the studio's reply to the first request, which the studio has carried out."""
        reply = route.fetch()
        if lost:
            route.fulfill(response=reply)
        else:
            lost.append(reply.status)
            route.abort()

    with routed(page, "**/curate/api/undo-decision", lose):
        page.keyboard.press("u")
        page.wait_for_function("id => gallery.now()?.id === id", arg=ids[1])
        saved(page)
    assert lost == [200]
    assert [entry(studio, number).verdict for number in ids[:2]] == ["accepted", "open"]


def test_what_changed_nothing_is_not_taken_back(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    ids = studio.workspace.catalogue.ids()
    studio.commands.send("decide", {"entries": ids, "verdict": "open"})
    opened(page, url, "?sort=oldest")
    page.keyboard.press("a")
    saved(page)
    page.keyboard.press("ArrowLeft")
    late = HeldBack()
    with routed(page, "**/curate/api/decide", late):
        page.keyboard.press("a")  # the image is accepted already, so nothing changes
        page.keyboard.press("u")
        late.let_through()
        expect(page.locator("#said")).to_contain_text("nothing to take back")
    saved(page)
    assert entry(studio, ids[0]).verdict == "accepted"


def test_who_leaves_an_image_that_came_once_more_does_not_answer_it_with_the_next_decision(
    page: Page, server: tuple[str, Studio]
) -> None:
    _, studio = server
    once_more = repeated(page, server)
    session = int(page.evaluate("gallery.review.session"))
    page.keyboard.press("t")
    expect(page.locator("#said")).to_have_text("Accept or reject this image first.")
    expect(page.locator("#ask")).to_be_hidden()
    beneath = current(page)
    page.keyboard.press("ArrowRight")
    assert current(page) == beneath
    saved(page)
    answered = studio.commands.send("review-figures", {"session": session})["repeats"]
    page.keyboard.press("Escape")
    expect(page.locator("#grid")).to_be_visible()
    expect(page.locator("#detail")).to_be_visible()
    place = page.evaluate("gallery.current")
    page.keyboard.press("r")
    page.keyboard.press("1")
    until(lambda: entry(studio, beneath).verdict == "rejected")
    assert page.evaluate("gallery.current") == place + 1
    assert studio.commands.send("review-figures", {"session": session})["repeats"] == answered
    assert once_more != beneath
    page.locator("#review").click()
    page.wait_for_function("!gallery.review.session")


def test_keys_that_follow_at_once_on_an_undo_or_a_tag_are_done_as_well(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    studio.commands.send("decide", {"entries": studio.workspace.catalogue.ids()[:4], "verdict": "accepted"})
    opened(page, url, "?review=accepted&sort=oldest")
    late = HeldBack()
    first, second = (page.evaluate("place => gallery.cell(place).id", place) for place in (0, 1))
    with routed(page, "**/curate/api/cells**", late):
        page.keyboard.press("t")
        page.keyboard.type("at once")
        with page.expect_request("**/curate/api/cells**"):  # the grid loads again
            page.keyboard.press("Enter")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("r")
        page.keyboard.press("1")
        late.let_through()
        until(lambda: entry(studio, second).verdict == "rejected")
    assert entry(studio, first).tags == ("at once",)
    saved(page)


def test_the_few_are_rejected_and_all_others_of_the_filter_accepted(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    wanted = ImageFilter(facets={"edit type": ("weather",), "kind": ("classification",)})
    for one in studio.workspace.catalogue.page(wanted, limit=60).entries:
        studio.commands.send("decide", {"entries": [one.id], "verdict": "open"})
    opened(page, url, "?edit+type=weather&kind=classification&review=open")
    number = int(page.evaluate("gallery.count"))
    few = []
    for _ in range(2):
        few.append(current(page))
        page.keyboard.press("r")
        page.keyboard.press("1")
    saved(page)
    expect(page.locator("#count")).to_have_text(str(number - 2))
    page.locator("#select-all").click()
    expect(page.locator("#ask-title")).to_contain_text(f"{number - 2} images")
    page.keyboard.press("1")
    expect(page.locator("#ask-title")).to_have_text(f"Accept {number - 2} images?")
    page.keyboard.press("Enter")
    expect(page.locator("#count")).to_have_text("0")
    expect(page.locator("#cells .cell")).not_to_have_count(0)
    expect(page.locator("#grid > .empty")).to_be_hidden()  # the message would overlap the images
    assert [entry(studio, one).verdict for one in few] == ["rejected", "rejected"]
    assert studio.workspace.catalogue.facets(wanted)["review"]["accepted"] == number - 2


@pytest.mark.parametrize("status", [401, 500])
def test_a_decision_that_was_not_taken_waits_and_is_saved_by_the_next_page(
    page: Page, server: tuple[str, Studio], status: int
) -> None:
    url, studio = server
    opened(page, url, "?review=accepted&sort=oldest")
    first = current(page)

    def refused(route: Route) -> None:
        route.fulfill(status=status, json={"error": "no"})

    with routed(page, "**/curate/api/decide", refused):
        page.keyboard.press("r")
        page.keyboard.press("1")
        expect(page.locator("#said")).to_contain_text("1 not saved yet")
        assert entry(studio, first).verdict == "accepted"
        page.goto("about:blank")
    opened(page, url)
    until(lambda: entry(studio, first).verdict == "rejected")
    page.wait_for_function("!Object.keys(localStorage).some((key) => key.startsWith('curate-waiting'))")


def test_two_windows_send_what_waits_once(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url, "?review=accepted&sort=oldest")
    late, first = HeldBack(), current(page)
    with routed(page, "**/curate/api/tag-images", late):
        page.keyboard.press("t")
        page.keyboard.type("one window")
        with page.expect_request("**/curate/api/tag-images"):
            page.keyboard.press("Enter")
        other = page.context.new_page()
        opened(other, url, "?review=accepted&sort=oldest")
        assert other.evaluate("gallery.review.waiting.length") == 0
        late.let_through()
        saved(page)
        other.close()
    assert entry(studio, first).tags.count("one window") == 1
    said = studio.workspace.decisions.of_entry(first)
    assert [one.what for one in said].count("one window") == 1


def test_a_label_is_given_to_what_is_selected_whatever_is_looked_at(page: Page, server: tuple[str, Studio]) -> None:
    url, _ = server
    opened(page, url, "?kind=segmentation")
    expect(page.locator("#detail")).to_have_attribute("data-kind", "segmentation")
    page.keyboard.press("l")
    expect(page.locator("#said")).to_contain_text("has no label")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("l")
    page.keyboard.type("tree")
    page.keyboard.press("Enter")
    expect(page.locator(".said.bad")).to_contain_text("2 images belong to a segmentation")


def test_a_filter_is_pressed_by_the_space_bar(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url)
    page.locator('#filters [data-key="kind:segmentation"]').focus()
    page.keyboard.press("Space")
    wanted = ImageFilter(facets={"kind": ("segmentation",)})
    expect(page.locator("#count")).to_have_text(str(studio.workspace.catalogue.count(wanted).number))


def test_images_that_come_while_somebody_decides_move_none_from_under_them(
    page: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    opened(page, url, "?review=open")  # newest first: new images come before all of these
    page.keyboard.press("Enter")
    ids = [int(page.evaluate("place => gallery.cell(place).id", place)) for place in range(4)]
    fill(studio.workspace, 1, VARIANTS, seed=2, pixels=32)
    for number in ids[:3]:
        assert current(page) == number
        page.keyboard.press("r")
        page.keyboard.press("2")
    saved(page)
    page.wait_for_function("gallery.idle")
    assert current(page) == ids[3]
    page.keyboard.press("u")
    until(lambda: entry(studio, ids[2]).verdict == "open")
    saved(page)
    page.wait_for_function("gallery.idle")
    expect(page.locator("#detail")).to_have_attribute("data-entry", str(ids[2]))
    assert current(page) == ids[2]
    assert f"/{entry(studio, ids[2]).image_sha}." in str(page.locator("#large-result").get_attribute("src"))
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => (gallery.now()?.id ?? before) !== before", arg=ids[2])
    assert current(page) == ids[3]


def test_an_image_that_is_looked_at_shows_what_was_decided_of_all_that_are_selected(
    page: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    late = HeldBack()
    opened(page, url)
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    looked_at = current(page)
    verdict = "rejected" if entry(studio, looked_at).verdict == "accepted" else "accepted"
    expect(page.locator("#detail")).to_have_attribute("data-entry", str(looked_at))
    with routed(page, "**/curate/api/decide", late):
        page.keyboard.press("a" if verdict == "accepted" else "r")
        if verdict == "rejected":
            page.keyboard.press("2")
        expect(page.locator("#selection")).not_to_be_visible()
        late.let_through()
        saved(page)
    expect(page.locator("#verdict")).to_have_attribute("data-verdict", verdict)


def test_decisions_wait_while_the_studio_does_not_answer(page: Page, server: tuple[str, Studio]) -> None:
    url, studio = server
    opened(page, url, "?review=accepted&sort=oldest")
    ids = [page.evaluate("place => gallery.cell(place).id", place) for place in range(9)]

    def reject(number: int) -> None:
        for _ in range(number):
            page.keyboard.press("r")
            page.keyboard.press("1")

    reject(3)
    with routed(page, "**/curate/api/decide", lambda route: route.abort()):
        reject(3)
        expect(page.locator("#said")).to_contain_text("not saved yet: the studio does not answer")
    reject(3)
    saved(page)
    assert [entry(studio, one).verdict for one in ids] == ["rejected"] * 9
    studio.commands.send("decide", {"entries": ids, "verdict": "accepted"})


@pytest.mark.soak
def test_no_decision_is_lost_when_the_studio_is_killed(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    with workspace_in(folder) as workspace:
        fill(workspace, KILLED // 5, 5, pixels=32)
    server = ServerProcess(folder, tmp_path / "log").start()
    try:
        opened(page, server.url)
        for _ in range(KILLED // 2):
            page.keyboard.press("a")
        server.stop(signal.SIGKILL)
        for _ in range(KILLED // 4):
            page.keyboard.press("a")
        expect(page.locator("#said")).to_contain_text("not saved yet")
        server.start()
        saved(page)
        for _ in range(KILLED - KILLED // 2 - KILLED // 4):
            page.keyboard.press("a")
        saved(page)
    finally:
        server.stop()
    with Workspace(folder) as workspace:
        assert workspace.catalogue.facets()["review"] == {"accepted": KILLED}
