"""The map in Chromium: points with WebGL and without, colours, the legend, the lasso, keys, and an image's details."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from services.curation.views import View
from storage.curation import entry_sets
from tests.services.curation.test_meaning import BLUE, GREEN, RED, ColourEmbedder, add
from tests.support.routing import routed
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

HOSTILE = '<img src=x onerror="window.broken=1">'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Thirty embedded images in shades of three colours. The blue ones have another label."""
    models = ScriptedModels()
    models.embedder = ColourEmbedder()  # type: ignore[assignment]
    with serving_here(tmp_path_factory.mktemp("map") / "workspace", models) as (url, studio):
        shades = range(0, 50, 5)
        add(studio, *((RED[0], RED[1] + shade, RED[2]) for shade in shades))
        add(studio, *((GREEN[0], GREEN[1] - shade, GREEN[2]) for shade in shades))
        add(studio, *((BLUE[0], BLUE[1] + shade, BLUE[2]) for shade in shades), label=HOSTILE)
        studio.meaning.begin()
        until(lambda: not studio.meaning.filling().working)
        yield url, studio


def opened(page: Page, server: tuple[str, Studio], query: str = "") -> Page:
    page.goto(f"{server[0]}curate/map{query}")
    drawn(page)
    return page


def drawn(page: Page) -> None:
    page.wait_for_function("window.map && map.ready && map.frames > 0")


def region_of(page: Page) -> View:
    """Return the view in the link that opens the picked images."""
    address = page.locator("#open-picked").get_attribute("href") or ""
    return View.of((name, value) for name, values in parse_qs(urlsplit(address).query).items() for value in values)


def lasso_all(page: Page) -> None:
    box = page.locator("#stage").bounding_box()
    assert box is not None
    # Near the edge, but not at its round corners. Images lie there that do not fit into the plane of the first ones.
    wide, high = box["width"], box["height"]
    corners = [(14, 2), (wide - 14, 2), (wide - 2, 14), (wide - 2, high - 14)]
    corners += [(wide - x, high - y) for x, y in corners]
    page.mouse.move(box["x"] + 14, box["y"] + 2)
    page.mouse.down()
    for x, y in corners[1:]:
        page.mouse.move(box["x"] + x, box["y"] + y, steps=4)
    page.mouse.up()


def test_only_the_button_that_does_something_is_shown(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    page.evaluate("document.getElementById('making').hidden = false")
    expect(page.locator("#make-map")).to_be_visible()
    expect(page.locator("#stop-map")).to_be_hidden()


def test_a_region_is_picked_and_its_address_means_the_same_images(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    opened(page, server)
    page.keyboard.press("l")
    lasso_all(page)
    expect(page.locator("#picked-count")).to_have_text("30 images")
    inside = studio.image_map.inside(region_of(page).region, studio.workspace.catalogue.bits())
    assert entry_sets.size(inside) == 30
    page.locator("#legend button").filter(has_text=HOSTILE).click()
    expect(page.locator("#picked-count")).to_have_text("20 images")
    assert studio.gallery.count(region_of(page)).number == 20
    page.keyboard.press("Escape")
    expect(page.locator("#picked")).to_be_hidden()


def test_what_is_opened_is_what_was_drawn(page: Page, server: tuple[str, Studio]) -> None:
    """The images have several tags, the map shows a part of all images, and colours are hidden."""
    studio = server[1]
    entries = sorted(studio.gallery.ids(View.read("class=bird")))
    for tag, those in {"common": entries[:8], "less": entries[6:11]}.items():
        studio.commands.send("tag-images", {"entries": those, "tag": tag})
    opened(page, server, "?class=bird")
    page.locator("#colour").select_option("tag")
    legend = page.locator("#legend button")
    expect(legend).to_have_text(["common8", "less3", "none9"])
    page.locator("#stage").focus()
    page.keyboard.press("v")
    for name, left in (("common", "12 images"), ("none", "3 images")):
        legend.filter(has_text=name).click()
        expect(page.locator("#picked-count")).to_have_text(left)
    page.click("#open-picked")
    page.wait_for_function("window.gallery && gallery.idle")
    expect(page.locator("#count")).to_have_text("3")
    cells = page.locator(".cell:not([hidden])").evaluate_all("all => all.map((one) => Number(one.dataset.entry))")
    assert {*cells} == {*entries[8:11]}


def test_keys_move_and_pick_what_is_in_sight(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    opened(page, server)
    page.locator("#stage").focus()
    page.keyboard.press("v")
    expect(page.locator("#picked-count")).to_have_text("30 images")
    for _ in range(6):
        page.keyboard.press("+")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("v")
    picked = page.evaluate("map.picked")
    inside = studio.image_map.inside(region_of(page).region, studio.workspace.catalogue.bits())
    assert 0 <= picked < 30 and entry_sets.size(inside) == picked
    page.keyboard.press("0")
    page.keyboard.press("v")
    expect(page.locator("#picked-count")).to_have_text("30 images")
    page.keyboard.press("Enter")
    page.wait_for_url("**/curate/?region=*")


def test_the_point_under_the_pointer_shows_its_picture(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server, "?class=bird")
    expect(page.locator("#point-count")).to_have_text("20")
    box = page.locator("#stage").bounding_box()
    layout = server[1].image_map.layout("pca")
    assert box is not None and layout is not None
    zoom = 0.98 * min(box["width"], box["height"])
    x, y = layout.places[list(layout.entries).index(1)]
    left = box["x"] + box["width"] / 2 + (float(x) - 0.5) * zoom
    top = box["y"] + box["height"] / 2 + (float(y) - 0.5) * zoom
    page.mouse.move(left, top)
    shown = page.locator("#shown")
    expect(shown).to_be_visible()
    expect(shown.locator("figcaption")).to_contain_text("bird")
    page.wait_for_function("document.querySelector('#shown img').naturalWidth > 0")
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    expect(shown).to_be_hidden()


def test_points_that_do_not_come_are_said_so_and_asked_for_again(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    with routed(page, "**/curate/api/map-points*", lambda route: route.abort()):
        page.locator("#colour").select_option("review")
        expect(page.locator("#empty")).to_contain_text("No answer from the studio: is it running?")
    expect(page.locator("#empty")).to_be_hidden()
    expect(page.locator("#legend")).to_contain_text("open")


def test_what_people_wrote_is_text_and_another_colour_is_fetched(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    expect(page.locator("#legend")).to_contain_text(HOSTILE)
    page.locator("#colour").select_option("review")
    expect(page.locator("#legend button")).to_have_count(1)
    expect(page.locator("#legend")).to_contain_text("open")
    assert page.evaluate("window.broken") is None
    page.locator("[data-map=umap]").click()
    expect(page.locator("#empty")).to_have_text("There is no UMAP map yet.")
    page.goto(f"{server[0]}curate/map?colour=red")
    expect(page.locator("body")).to_contain_text("Unknown filter part “colour”")


@pytest.mark.parametrize(("offered", "renderer"), [("webgl", "webgl"), ("", "canvas")])
def test_all_points_are_drawn_in_their_colours(
    page: Page, server: tuple[str, Studio], offered: str, renderer: str
) -> None:
    if not offered:
        page.add_init_script(
            "const get = HTMLCanvasElement.prototype.getContext;"
            "HTMLCanvasElement.prototype.getContext = function (kind, ...more)"
            " { return kind === 'webgl' ? null : get.call(this, kind, ...more); };"
        )
    opened(page, server)
    assert page.evaluate("map.renderer") == renderer
    expect(page.locator("#point-count")).to_have_text("30")
    expect(page.locator("#legend button")).to_have_count(2)
    seen = page.evaluate("""() => {
        const copy = document.createElement("canvas"), points = document.getElementById("points");
        copy.width = points.width; copy.height = points.height;
        const context = copy.getContext("2d"); context.drawImage(points, 0, 0);
        const { data } = context.getImageData(0, 0, copy.width, copy.height), found = new Set();
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 200) found.add(data[at] > data[at + 2] ? "warm" : "cold");
        return [...found].sort();
    }""")
    assert seen == ["cold", "warm"], "the colours of the first two classes: blue and orange"
