"""The gallery in Chromium: filters, search, a grid of thousands of images, the address, and the details of an image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from playwright.sync_api import expect

from core.image_filter import ImageFilter
from core.types import Task
from services.curation.gallery import MOST_HELD
from services.curation.views import View
from tests.support.cases import made_case
from tests.support.drawn import fill
from tests.support.routing import HeldBack, routed
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from services.studio import Studio

SCENES, VARIANTS = 24, 5
HOSTILE = '<img src=x onerror="window.broken=1">'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("gallery") / "workspace", ScriptedModels()) as (url, studio):
        fill(studio.workspace, SCENES, VARIANTS, pixels=48)
        yield url, studio


def opened(page: Page, server: tuple[str, Studio], query: str = "") -> Page:
    page.goto(f"{server[0]}curate/{query}")
    idle(page)
    return page


def idle(page: Page) -> None:
    """Wait until everything in sight has loaded."""
    page.wait_for_function("window.gallery && gallery.idle")


def count(page: Page) -> Locator:
    return page.locator("#count")


def chip(page: Page, key: str) -> Locator:
    return page.locator(f'#filters [data-key="{key}"]')


def verdicts(page: Page) -> list[str]:
    found: list[str] = page.locator(".cell:not([hidden])").evaluate_all("all => all.map(one => one.dataset.verdict)")
    return found


def hold_others(studio: Studio) -> None:
    """Make the server hold enough new views to drop all earlier ones."""
    for _ in range(MOST_HELD):
        studio.gallery.hold(View())


def test_a_filter_shows_what_fits_and_says_how_many(page: Page, server: tuple[str, Studio]) -> None:
    catalogue = server[1].workspace.catalogue
    accepted = catalogue.facets()["review"]["accepted"]
    opened(page, server)
    expect(count(page)).to_have_text(str(SCENES * VARIANTS))
    chip(page, "review:accepted").click()
    expect(count(page)).to_have_text(str(accepted))
    idle(page)
    assert set(verdicts(page)) == {"accepted"}
    assert "review=accepted" in page.url
    expect(chip(page, "review:accepted")).to_have_attribute("aria-pressed", "true")
    expect(chip(page, "review:open").locator("small")).to_have_text(str(catalogue.facets()["review"]["open"]))
    chip(page, "review:rejected").click()
    expect(count(page)).to_have_text(str(accepted + catalogue.facets()["review"]["rejected"]))
    page.go_back()
    expect(count(page)).to_have_text(str(accepted))
    page.locator("#clear-filter").click()
    expect(count(page)).to_have_text(str(SCENES * VARIANTS))
    chip(page, "review:rejected").click(modifiers=["Shift"])  # excludes them
    expect(count(page)).to_have_text(str(SCENES * VARIANTS - catalogue.facets()["review"]["rejected"]))
    expect(chip(page, "review:rejected").locator("s")).to_have_text("rejected")


def test_the_question_mark_lists_the_keys_but_not_in_a_field(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    keys = page.locator("#keys-window")
    page.keyboard.press("?")
    expect(keys).to_contain_text("accept, and go on")
    page.keyboard.press("?")
    expect(keys).to_be_hidden()
    page.locator("#keys").click()
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#search").press_sequentially("?")
    expect(page.locator("#search")).to_have_value("?")
    expect(keys).to_be_hidden()
    page.fill("#search", "")
    idle(page)


def test_a_value_that_is_not_found_is_hidden(page: Page, server: tuple[str, Studio]) -> None:
    chip = opened(page, server).locator("#filters .chip").first
    chip.evaluate("chip => { chip.hidden = true; }")
    expect(chip).to_be_hidden()


def test_words_are_looked_for_as_they_are_typed(page: Page, server: tuple[str, Studio]) -> None:
    found = server[1].workspace.catalogue
    opened(page, server)
    page.fill("#search", "snowy")
    expect(count(page)).to_have_text(str(found.count(ImageFilter(text="snowy")).number))
    page.fill("#search", '"')
    expect(count(page)).to_have_text("0")
    expect(page.locator("#grid > .empty")).to_be_visible()
    page.fill("#search", "")
    expect(count(page)).to_have_text(str(SCENES * VARIANTS))
    to_map = page.locator('[data-page="map"]')
    page.fill("#search", "snowy")
    expect(to_map).to_have_attribute("href", "/curate/map?text=snowy")
    page.locator("#clear-filter").click()
    expect(page.locator("#search")).to_have_value("")
    expect(to_map).to_have_attribute("href", "/curate/map")
    page.go_back()
    expect(page.locator("#search")).to_have_value("snowy")


def test_images_are_found_by_what_they_show_and_by_a_picture(
    page: Page, server: tuple[str, Studio], tmp_path: Path
) -> None:
    studio = server[1]
    studio.meaning.begin()
    until(lambda: not studio.meaning.filling().working)
    opened(page, server, "?kind=classification")
    page.locator("#search-in").select_option("like")
    page.fill("#search", "a red bird")
    expect(page.locator(".chip.used", has_text="shows: a red bird")).to_be_visible()
    expect(page.locator("#order")).to_be_disabled()
    assert "like=a+red+bird" in page.url
    Image.new("RGB", (40, 30), (200, 30, 30)).save(tmp_path / "mine.jpg")
    page.locator("#like-picture").set_input_files(tmp_path / "mine.jpg")
    expect(page.locator("#said")).to_contain_text("mine.jpg")
    idle(page)
    chosen = page.locator("#filters .chip.used", has_text="like this picture")
    shown = "[...document.querySelectorAll('.cell:not([hidden])')].map(one => one.dataset.entry)"
    before = page.evaluate(shown)
    page.reload()  # the address holds the filter, the search and the order
    idle(page)
    page.wait_for_function("document.querySelector('#filters .with-picture img').naturalWidth > 0")
    assert page.evaluate(shown) == before and "kind=classification" in page.url
    expect(page.locator("#order option:checked")).to_have_text("most alike first")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    page.locator("#like-picture").set_input_files(tmp_path / "broken.png")
    expect(page.locator("#said")).to_contain_text("The file is not an image")
    expect(page.locator(".said")).to_have_class("said bad")  # an error message, which stays until the next action
    page.locator("#search-in").select_option("edited")
    page.fill("#search", "snowy")
    expect(count(page)).to_have_text(
        str(studio.workspace.catalogue.count(View.read("kind=classification&edited=snowy").filter).number)
    )
    expect(page.locator("#said")).to_be_empty()
    chosen.click()
    expect(chosen).to_have_count(0)
    idle(page)
    assert "picture" not in page.url and "edited=snowy" in page.url


def test_near_duplicates_are_a_filter_that_keeps_its_order(page: Page, server: tuple[str, Studio]) -> None:
    workspace, meaning = server[1].workspace, server[1].meaning
    same = Image.effect_noise((32, 32), 90).convert("RGB")
    run = workspace.runs.create(same.rotate(90), Task("classification", "copy"), "demo", "Copies", {})
    workspace.test_cases.extend(run, None, [made_case(one) for one in (same, same.rotate(180), same.copy())])
    try:
        meaning.begin()
        until(lambda: not meaning.filling().working and meaning.filling().done == meaning.filling().total)
        opened(page, server, "?class=copy&sort=oldest")
        chip(page, "alike").click()
        expect(count(page)).to_have_text("2")
        expect(page.locator("#order")).to_have_value("sort=oldest")
        idle(page)
        oldest = page.locator(".cell:not([hidden])").first.get_attribute("data-entry")
        page.locator("#order").select_option("sort=newest")
        page.wait_for_function("gallery.idle && gallery.view.includes('newest')")
        assert page.locator(".cell:not([hidden])").first.get_attribute("data-entry") != oldest
        page.locator("#order").select_option(label="group by group")
        page.wait_for_function("gallery.idle && !gallery.view.includes('sort')")
        chip(page, "alike").click()
        expect(count(page)).to_have_text("3")
    finally:
        workspace.runs.remove(run)


def test_who_goes_on_is_not_thrown_back_by_a_picture_that_was_slow(
    page: Page, server: tuple[str, Studio], tmp_path: Path
) -> None:
    opened(page, server)
    late = HeldBack()
    Image.new("RGB", (40, 30), (200, 30, 30)).save(tmp_path / "slow.jpg")
    with routed(page, "**/curate/like-picture**", late):
        with page.expect_request("**/curate/like-picture**"):
            page.locator("#like-picture").set_input_files(tmp_path / "slow.jpg")
        chip(page, "kind:segmentation").click()
        expect(chip(page, "kind:segmentation")).to_have_attribute("aria-pressed", "true")
        with page.expect_response("**/curate/like-picture**"):
            late.let_through()
    idle(page)
    assert page.evaluate("gallery.view") == "kind=segmentation"


def test_a_view_that_takes_long_says_so(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    late = HeldBack()
    with routed(page, "**/curate/api/cells**", late):
        chip(page, "kind:classification").click()
        expect(page.locator("#said")).to_have_text("Looking …")
        late.let_through()
        expect(page.locator(".said")).to_be_hidden()


def test_the_thumbnails_of_a_new_view_come_with_it(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    page.locator("#order").select_option("sort=oldest")  # an order whose first images were not in sight before
    page.wait_for_function("gallery.idle && gallery.view === 'sort=oldest'")
    shown = "gallery.inSight().map(one => [one.firstChild.src.split(',')[0], one.firstChild.naturalWidth])"
    found = page.evaluate(shown)
    assert len(found) > 4
    assert {tuple(one) for one in found} == {("data:image/webp;base64", 48)}


def test_two_filters_pressed_at_once_both_count(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    late = HeldBack()
    with routed(page, "**/curate/api/cells**", late):
        with page.expect_request("**/curate/api/cells**"):
            chip(page, "kind:classification").click()
        chip(page, "review:open").click()
        page.locator("#order").select_option("sort=oldest")
        late.let_through()
        page.wait_for_function("gallery.idle && gallery.view.includes('review')")
    idle(page)
    both = View.read("kind=classification&review=open&sort=oldest")
    assert View.read(page.evaluate("gallery.view")) == both
    expect(count(page)).to_have_text(str(server[1].gallery.count(both).number))


def test_all_of_a_part_of_the_map_comes_into_a_test_set(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    studio.meaning.begin()
    until(lambda: not studio.meaning.filling().working)
    view = "review=accepted&region=0,0 1,0 1,1 0,1"
    opened(page, server, f"?{view}")
    number = int(page.locator("#count").inner_text())
    assert number == studio.gallery.count(View.read(view)).number > 1
    page.locator("#select-all").click()
    page.locator("#ask-choices button", has_text="Add all to a test set").click()
    expect(page.locator("#ask-title")).to_have_text(f"Add {number} images to a test set")
    page.fill("#ask-text", "Of the map")
    page.click("#ask-do")
    expect(page.locator("#said a")).to_have_text("Open “Of the map”")
    held = next(one for one in studio.workspace.test_sets.all() if one.name == "Of the map")
    images = {studio.workspace.catalogue.get(one).image_sha for one in studio.gallery.ids(View.read(view))}
    assert held.draft is not None and held.draft.entries == len(images)


def test_a_view_that_the_studio_holds_no_more_is_read_again(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    opened(page, server, "?review=open&sort=oldest")
    number = int(page.evaluate("gallery.count"))
    first = int(page.wait_for_function("gallery.now()?.id").json_value())
    page.keyboard.press("a")
    page.wait_for_function("gallery.held && !gallery.review.waiting.length")
    expect(count(page)).to_have_text(str(number - 1))
    hold_others(studio)
    page.keyboard.press("t")
    page.keyboard.type("later")
    page.keyboard.press("Enter")
    page.wait_for_function("!gallery.held && gallery.count > 0 && gallery.idle")
    assert page.evaluate("gallery.count") == number - 1 and page.evaluate("gallery.placeOf(" + str(first) + ")") is None
    studio.commands.send("decide", {"entries": [first], "verdict": "open"})


def test_who_decides_on_stays_where_they_are_when_the_studio_holds_their_view_no_more(
    page: Page, server: tuple[str, Studio]
) -> None:
    studio = server[1]
    opened(page, server, "?sort=oldest")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    decided = int(page.wait_for_function("gallery.now()?.id").json_value())
    page.keyboard.press("a")
    page.wait_for_function("gallery.held && !gallery.review.waiting.length")
    hold_others(studio)
    looked = int(page.wait_for_function("gallery.now()?.id").json_value())
    page.keyboard.press("t")
    page.keyboard.type("later")
    page.keyboard.press("Enter")
    page.wait_for_function("!gallery.held && gallery.idle")
    page.wait_for_function("id => gallery.current === 4 && gallery.now()?.id === id", arg=looked)
    studio.commands.send("decide", {"entries": [decided], "verdict": "open"})


def test_back_shows_the_image_that_was_looked_at(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server, "?-kind=segmentation")
    page.locator(".cell").nth(4).click()
    looked = int(page.wait_for_function("gallery.now()?.id").json_value())
    chip(page, "review:accepted").click()
    expect(chip(page, "review:accepted")).to_have_attribute("aria-pressed", "true")
    idle(page)
    page.go_back()
    page.wait_for_function("id => gallery.now()?.id === id", arg=looked)
    page.locator("#open-in-explore").click()
    page.wait_for_url("**/?run=**")
    page.go_back()
    page.wait_for_function("id => window.gallery?.now()?.id === id", arg=looked)


def test_history_and_how_it_was_made_are_told_side_by_side(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server, "?review=accepted&-kind=segmentation")
    page.locator("#detail summary", has_text="How it was made").click()
    expect(page.locator("#origin")).to_contain_text("caption")
    page.locator("#detail summary", has_text="History").click()
    expect(page.locator("#detail ol")).to_contain_text("accepted")
    page.keyboard.press("Escape")
    with page.expect_response("**/curate/api/origin**"):  # the panel loads the image's details again after a decision
        page.locator("#detail [data-act=tag]").click()
        page.keyboard.type("told")
        page.keyboard.press("Enter")
    expect(page.locator("#detail [data-untag]", has_text="told")).to_be_visible()
    expect(page.locator("#origin")).to_contain_text("caption")


def test_a_tag_is_taken_off_the_image_that_the_panel_shows(page: Page, server: tuple[str, Studio]) -> None:
    studio, late = server[1], HeldBack()
    page.goto("about:blank")
    first, second = studio.workspace.catalogue.page(limit=2).entries
    studio.commands.send("tag-images", {"entries": [first.id, second.id], "tag": "both"})
    opened(page, server)
    expect(page.locator("#detail")).to_have_attribute("data-entry", str(first.id))
    with routed(page, "**/curate/api/detail**", late):
        with page.expect_request("**/curate/api/detail**"):
            page.keyboard.press("ArrowRight")
        page.locator("#detail [data-untag=both]").click()
        until(lambda: "both" not in studio.workspace.catalogue.get(first.id).tags)
        late.let_through()
    assert "both" in studio.workspace.catalogue.get(second.id).tags


def test_a_slider_over_its_histogram_filters(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    check = page.locator('details.check[data-check="edges kept"]')
    check.locator("summary").click()
    expect(check.locator("svg.bars rect").first).to_be_visible()
    low = check.locator('input[data-end="low"]')
    low.evaluate("(one) => { one.value = 0.8; one.dispatchEvent(new Event('input', { bubbles: true }));"
                 " one.dispatchEvent(new Event('change', { bubbles: true })); }")  # fmt: skip
    expect(page.locator(".chip.used")).to_contain_text("from 0.80")
    wanted = View.read("range=edges kept:0.8:1000").filter
    expect(count(page)).to_have_text(str(server[1].workspace.catalogue.count(wanted).number))
    page.locator(".chip.used").click()
    expect(count(page)).to_have_text(str(SCENES * VARIANTS))


def test_an_address_is_a_view(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server, "?edit+type=weather&review=open&sort=oldest")
    expect(page.locator("#order")).to_have_value("sort=oldest")
    assert set(verdicts(page)) <= {"open"}
    first = page.locator(".cell:not([hidden])").first.get_attribute("data-entry")
    page.locator("#order").select_option("")
    idle(page)
    assert page.locator(".cell:not([hidden])").first.get_attribute("data-entry") != first
    assert "sort" not in page.url
    page.goto(f"{server[0]}curate/?colour=red")
    expect(page.locator("main")).to_contain_text("Unknown filter part")


def test_an_image_is_told_all_of(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    opened(page, server, "?-kind=segmentation")
    page.locator(".cell").nth(2).click()
    entry = studio.workspace.catalogue.get(int(page.locator(".cell").nth(2).get_attribute("data-entry") or 0))
    panel = page.locator("#detail")
    expect(panel).to_have_attribute("data-entry", str(entry.id))
    expect(panel.locator("h2")).to_contain_text(entry.classes[0])
    expect(panel.locator("ins").first).to_be_visible()
    panel.locator('[data-way="source"]').click()
    shown = panel.locator("img:not([hidden])")
    expect(shown).to_have_attribute("src", f"/images/{entry.source_sha}.png")
    panel.locator("details.origin summary").click()
    expect(panel.locator("#origin")).to_contain_text("caption")
    page.keyboard.press("ArrowRight")
    expect(panel).not_to_have_attribute("data-entry", str(entry.id))
    expect(panel.locator('[data-way="source"]')).to_have_class("tab on")  # the panel keeps its tab for the next image
    entry = studio.workspace.catalogue.get(int(panel.get_attribute("data-entry") or 0))
    expect(panel.locator("#open-in-explore")).to_have_attribute("href", f"/?run={entry.run}&image={entry.test_case}")


def test_large_shows_the_source_beside_it_and_goes_on_by_keys(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    result = page.locator("#large-result")
    expect(result).to_be_visible()
    before = result.get_attribute("src")
    page.keyboard.press("ArrowRight")
    expect(result).not_to_have_attribute("src", before or "")
    expect(page.locator("#large-source")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#grid")).to_be_visible()


@pytest.mark.parametrize(("size", "share"), [((1280, 720), 0.75), ((1920, 1080), 0.65)])
def test_the_large_image_takes_most_of_the_window(
    page: Page, server: tuple[str, Studio], size: tuple[int, int], share: float
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    opened(page, server)
    page.keyboard.press("Enter")
    box = page.locator("#large-result").bounding_box()
    source, panel = page.locator("#large-source").bounding_box(), page.locator("#detail").bounding_box()
    assert box and source and panel
    assert min(box["width"], box["height"]) >= share * size[1], "the picture is as wide as it is high"
    assert source["width"] >= 200 and panel["x"] >= box["x"] + box["width"]
    page.keyboard.press("Escape")
    expect(page.locator("#filter")).to_be_visible()


def test_on_a_phone_images_come_first_and_nothing_is_cut(page: Page, server: tuple[str, Studio]) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, server)
    tops = [page.locator(f"#{name}").bounding_box() for name in ("grid", "detail", "filter")]
    heights = [one["y"] for one in tops if one]
    assert len(heights) == 3 and heights == sorted(heights) and heights[0] < 844 / 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".to-filter").click()
    expect(page.locator("#filter h2")).to_be_in_viewport()
    chip(page, "review:accepted").click()
    expect(count(page)).to_have_text(str(server[1].workspace.catalogue.facets()["review"]["accepted"]))


def test_hostile_words_are_words(page: Page, server: tuple[str, Studio]) -> None:
    workspace = server[1].workspace
    picture = Image.new("RGB", (16, 16), (1, 2, 3))
    run = workspace.runs.create(picture, Task("classification", HOSTILE), "demo", HOSTILE, {})
    workspace.test_cases.append(run, None, made_case(Image.new("RGB", (16, 16), (9, 9, 9))))
    try:
        opened(page, server)
        expect(page.locator("#detail h2")).to_contain_text(HOSTILE)
        assert page.evaluate("window.broken") is None
    finally:
        workspace.runs.remove(run)
