"""Notices in the header at any width: running work, finished work, and a lost connection. No text is cut off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import settled
from tests.support.explorer import Served, held_drawing, one_server, text_run
from tests.support.routing import routed

served = one_server()

WIDTHS = (390, 640, 761, 960, 1231, 1280, 1366, 1440, 1541, 1700, 1920)
"""Widths in CSS pixels. 640 and 960 are what 1280 and 1920 become at a zoom of 200 %."""

CUT = """(id) => {
  const one = document.querySelector(id), at = one.getBoundingClientRect();
  const over = [...document.querySelectorAll('.top button, .top a, .top .pill')].filter((other) => {
    if (one.contains(other) || other.contains(one) || !other.checkVisibility()) return false;
    const it = other.getBoundingClientRect();
    return it.left < at.right - 1 && at.left + 1 < it.right && it.top < at.bottom - 1 && at.top + 1 < it.bottom;
  });
  const words = one.querySelector('span') ?? one;
  return [words.scrollWidth > words.clientWidth + 1 && 'too narrow',
    words.scrollHeight > words.clientHeight + 2 && 'too low',
    (at.left < 0 || at.right > innerWidth + 1) && 'out of the window', at.width < 20 && 'no room',
    document.documentElement.scrollWidth > innerWidth && 'the page is too wide',
    ...over.map((other) => `over ${other.outerHTML.slice(0, 80)}`)].filter(Boolean);
}"""


@pytest.fixture
def at_work(served: Served) -> Iterator[Page]:
    """Page of a run whose image is being drawn until the test ends."""
    run = text_run(served.studio)
    served.page.goto(f"{served.url}?run={run}")
    served.page.wait_for_selector("#generate")
    settled(served.page)
    with held_drawing(served.studio):
        served.page.click("#generate")
        expect(served.page.locator("#doing")).to_be_visible()
        yield served.page
    served.page.set_viewport_size({"width": 1440, "height": 1000})


def test_work_and_what_was_done_are_read_whole_at_any_width(at_work: Page) -> None:
    found = {}
    for width in WIDTHS:
        at_work.set_viewport_size({"width": width, "height": 900})
        at_work.evaluate("studio.say('')")
        found[f"{width}: work"] = at_work.evaluate(CUT, "#doing")
        at_work.evaluate("studio.say('Taken back: “a rainy street” was rejected.', '', { word: 'Redo', do() {} })")
        found[f"{width}: what was done"] = at_work.evaluate(CUT, "#said")
        expect(at_work.locator("#said-act")).to_be_in_viewport(ratio=1)
        at_work.evaluate("studio.say('A long sentence of what was refused. '.repeat(4), 'bad')")
        found[f"{width}: what was refused"] = at_work.evaluate(CUT, "#said")
    assert {name: cut for name, cut in found.items() if cut} == {}


def test_what_was_done_goes_by_itself_but_the_offer_to_undo_it_waits(served: Served) -> None:
    page = served.page
    page.clock.install()
    page.goto(f"{served.url}?run={text_run(served.studio)}")
    page.wait_for_selector("#generate")
    settled(page)
    page.evaluate("studio.say('Saved.')")
    page.clock.fast_forward(12_500)
    expect(page.locator("#said")).to_be_empty()
    page.evaluate("studio.say('Deleted.', '', { word: 'Undo', do() { document.title = 'undone'; } })")
    page.clock.fast_forward(60_000)
    page.click("#said-act")
    expect(page.locator("#said")).to_be_empty()
    assert page.title() == "undone"
    page.goto("about:blank")


def test_a_studio_that_is_away_is_told_below_the_header_at_any_width(at_work: Page) -> None:
    told = at_work.locator("#lost-told")
    expect(told).to_be_hidden()
    found = {}
    with routed(at_work, "**/component_server/", lambda route: route.abort()):
        for width in WIDTHS:
            at_work.set_viewport_size({"width": width, "height": 900})
            expect(told).to_be_in_viewport(ratio=1)
            found[width] = at_work.evaluate(CUT, "#lost-told")
    assert {width: cut for width, cut in found.items() if cut} == {}
    expect(told).to_be_hidden()


COVERED_WORDS = """(chip) => {
  const pencil = chip.querySelector('.more').getBoundingClientRect(), words = document.createRange();
  words.selectNodeContents(chip.querySelector('.toggle'));
  return [...words.getClientRects()].filter((one) => one.left < pencil.right - 1 && pencil.left + 1 < one.right
    && one.top < pencil.bottom - 1 && pencil.top + 1 < one.bottom).length;
}"""


def test_a_chip_that_is_pointed_at_shows_its_words_and_a_check_box_its_focus(at_work: Page) -> None:
    at_work.evaluate("document.body.classList.remove('all-open')")
    for chip in at_work.locator("#stage-keywords .chip:has(.more), #stage-alternatives .chip:has(.more)").all():
        chip.hover()
        expect(chip.locator("> .more")).to_have_css("opacity", "1")
        assert chip.evaluate(COVERED_WORDS) == 0
    box = at_work.locator("#stage-counterfactuals .line input[type=checkbox]").first
    box.focus()
    at_work.keyboard.press("Tab")
    at_work.keyboard.press("Shift+Tab")
    expect(box).to_be_focused()
    expect(box).to_have_css("outline-style", "solid")


BROKEN_CHIPS = """() => [...document.querySelectorAll('#recipes .chip')].filter((chip) => {
  const words = document.createRange();
  words.selectNode(chip.lastChild);
  return words.getClientRects().length !== 1;
}).map((chip) => chip.textContent.trim())"""


def test_what_a_run_says_of_its_picture_and_its_recipes_are_read_whole_at_any_width(at_work: Page) -> None:
    at_work.evaluate("document.body.classList.remove('all-open')")
    notice = at_work.locator("#unknown-picture")
    found = {}
    for width in WIDTHS:
        at_work.set_viewport_size({"width": width, "height": 900})
        cut = notice.evaluate("one => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1")
        found[f"{width}: notice"] = cut
    notice.get_by_role("button", name="What helps").click()
    expect(notice).to_contain_text("make run PROFILE=laptop", use_inner_text=True)
    at_work.click("#source header [data-more-of]")
    for width in WIDTHS:
        at_work.set_viewport_size({"width": width, "height": 900})
        found[f"{width}: recipes"] = at_work.evaluate(BROKEN_CHIPS)
    assert {name: cut for name, cut in found.items() if cut} == {}
