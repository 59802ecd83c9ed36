"""A street through all five stages in Chromium with the embedded models: another weather, and a night that misleads.

The tests share a page. Each test begins its own run and can run alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.test_drawing_demo import generate, pixels, tick
from tests.browser.test_results import press
from tests.support.browser import settled
from tests.support.desk import STREET, Desk, desk_of, lines
from tests.support.explorer import DEMO_SECONDS

pytestmark = [pytest.mark.demo, pytest.mark.slow]
OUT_OF_SIGHT = """parts => parts.filter(part => {
  const { top, left, right, bottom, height } = part.getBoundingClientRect();
  return !height || !part.contains(document.elementFromPoint((left + right) / 2, top + 4)) || bottom > innerHeight;
}).map(part => part.textContent)"""
BROKEN = """heads => heads.filter(head => {
  const words = document.createRange();
  words.selectNodeContents(head);
  return !head.textContent.includes(" ") && words.getClientRects().length > 1;
}).map(head => head.textContent)"""


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_of(browser, tmp_path_factory.mktemp("street")) as opened:
        yield opened


def test_a_sample_through_all_five_stages(desk: Desk) -> None:
    page = desk.empty(STREET)
    page.click("#run-caption")
    expect(page.locator("#state-caption")).to_have_text("ready", timeout=DEMO_SECONDS * 1000)
    caption = page.input_value("#caption-text")
    assert "road" in caption and "sunny" in caption and "weather" in caption
    settled(page)
    for stage in ("keywords", "alternatives", "counterfactuals"):
        page.click(f"#run-{stage}")
        expect(page.locator(f"#state-{stage}")).to_have_text("ready", timeout=DEMO_SECONDS * 1000)
        settled(page, DEMO_SECONDS)
    assert page.locator("#stage-keywords .chip:has-text('sunny')").count() == 1
    assert lines(page).count() == 4

    # Edit the run between the stages: only the weather may change.
    for chip in ("by day", "blue", "red", "leafy", "grassy"):
        page.locator(f"#stage-keywords .chip.on:has-text('{chip}') .toggle").first.click()
        settled(page)
    for stage in ("alternatives", "counterfactuals"):
        expect(page.locator(f"#state-{stage}")).to_contain_text("stale: ")
    expect(page.locator("#gate")).to_contain_text("stale")
    page.click("#from-alternatives")
    page.wait_for_selector("#generate", timeout=DEMO_SECONDS * 1000)
    settled(page, DEMO_SECONDS)
    assert page.locator("#stage-alternatives .row-line").count() == 1
    assert lines(page).count() and all("sunny" in text for text in lines(page).locator("del").all_inner_texts()[:1])

    tick(page, lambda place: place == 0)
    generate(page, 1)
    expect(page.locator("#state-generation")).to_have_text("ready")
    page.click("#tile-source")
    page.wait_for_selector("#big-source")
    source = pixels(page, "#big-source").astype(float)
    page.click("#tile-result")
    page.wait_for_selector("#big-result")
    made = pixels(page, "#big-result").astype(float)
    assert made.shape == source.shape
    sky = slice(0, source.shape[0] // 4)
    assert np.abs(made[sky] - source[sky]).mean() > 12, "another weather has another sky"
    page.click("#tile-made-control-image")
    page.wait_for_selector("#big-made-control-image")

    address = page.url
    page.reload()
    page.wait_for_selector("#results .thumb")
    assert page.url == address and page.locator("#results .thumb").count() == 1
    assert page.inner_text("#state-keywords") == "edited by you"


def test_all_that_is_decided_of_a_town_fits_one_screen_of_a_laptop(desk: Desk) -> None:
    page = desk.at_gate("town-at-night")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click("#tool-open")
    try:
        rows = page.locator("#stage-alternatives .row-line")
        assert rows.count() >= 6
        assert page.evaluate("document.documentElement.scrollHeight") == 800, "nothing to scroll to"
        changes = ".line:not(:has(.unfold)) ins, .line .unfold"
        parts = f".chip:has(> .toggle), .stage .line, {changes}, #generate"
        assert page.locator(parts).evaluate_all(OUT_OF_SIGHT) == []
        assert rows.locator(".row-head b").evaluate_all(BROKEN) == [], "no word is broken while there is room"
        tall = rows.evaluate_all("rows => rows.map(row => row.offsetHeight)")
        for row in rows.all()[-3:]:
            row.hover()
            expect(row.locator(".ask")).to_have_css("opacity", "1")
            assert rows.evaluate_all("rows => rows.map(row => row.offsetHeight)") == tall, (
                "pointing at it moves nothing"
            )
    finally:
        page.set_viewport_size({"width": 1440, "height": 1000})
        page.click("#tool-open")


def test_an_edit_of_a_painted_part_by_lance_is_accepted(desk: Desk) -> None:
    page = desk.empty(STREET)
    page.click("#recipes label:has-text('LANCE')")
    page.click("#run-caption")
    expect(page.locator("#state-caption")).to_have_text("ready", timeout=DEMO_SECONDS * 1000)
    settled(page)
    page.click("#brush-region summary")
    page.locator("#stage-region input[type=range]").fill("60")
    canvas = page.locator("#stage-region canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 0.1 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 0.1 * box["height"], steps=4)
    page.mouse.up()
    expect(page.locator("#state-region")).to_have_text("edited by you")
    settled(page)
    page.click("#run-counterfactuals")
    expect(page.locator("#state-counterfactuals")).to_have_text("ready", timeout=DEMO_SECONDS * 1000)
    settled(page, DEMO_SECONDS)
    texts = lines(page).all_inner_texts()
    weather = next(place for place, text in enumerate(texts) if "sunny" in text)
    tick(page, lambda place: place == weather)
    generate(page, 1)
    page.click("#tile-source")
    page.wait_for_selector("#big-source")
    source = pixels(page, "#big-source").astype(float)
    page.click("#tile-result")
    page.wait_for_selector("#big-result")
    changed = np.abs(pixels(page, "#big-result") - source).mean(axis=2)
    height = len(changed)
    assert changed[: height // 8].mean() > 12, "the painted sky shows another weather"
    assert changed[height // 2 :].mean() < 6, "what is not painted stays"
    press(page, "a")
    expect(page.locator("#results-count")).to_have_text("1 result, 1 accepted")


@pytest.mark.soak
def test_a_street_at_night_misleads_the_embedded_segmenter(desk: Desk) -> None:
    page = desk.at_gate(STREET)
    while lines(page).count():  # a caption may say the same already
        lines(page).last.locator("[data-do=delete-counterfactual]").click()
        settled(page)
    page.locator(".add-caption button[data-edit]").click()
    page.fill(".add-caption textarea", page.input_value("#caption-text").replace("by day", "at night"))
    page.click(".add-caption [data-submit]")
    expect(page.locator("#gate-count")).to_have_text("1 image from 1 caption")
    settled(page)
    page.click("#generate")
    page.wait_for_selector("#viewer #accept", timeout=DEMO_SECONDS * 1000)
    table = page.locator("#class-table")
    expect(table).to_be_visible(timeout=DEMO_SECONDS * 1000)
    assert "mask" in page.inner_text("#under-test")
    assert {"road", "vehicle", "pedestrian"} <= set(table.locator("td:first-child").all_inner_texts())
    assert table.locator(".dropped").count() >= 1
    expect(page.locator(".thumb .model-fails")).to_have_count(1)
    expect(page.locator("#model-verdict")).to_contain_text("model fails here: loses")
    settled(page, DEMO_SECONDS)
    press(page, "8")
    assert page.locator("#viewer .pixels").count() == 2 and page.locator("#viewer .legend .mark").count() == 10
    press(page, "7")
    page.locator("#viewer .after .over").evaluate("image => image.decode()")
    press(page, "a")
    expect(page.locator("#results-count")).to_have_text("1 result, 1 accepted")
