"""Results in Chromium with the embedded models: views, checks, the model under test, review, and every key.

The tests share a run and a page: a bird with three images. Each test can run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_drawing_demo import pixels
from tests.support.browser import settled
from tests.support.demo_server import browsing_demo, images_held
from tests.support.explorer import DEMO_SECONDS, choose_a_model_that_is_none, open_start, shows_every_check
from ui.explore.page_frame import GROUPS

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SLOWEST = 180_000
"""Maximum number of milliseconds for a step of the models, on a machine with other work."""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Page of a bird with three images, drawn in few steps."""
    with browsing_demo(browser, tmp_path_factory.mktemp("results")) as (opened, url, _):
        open_start(opened, url)
        opened.click(".sample[data-sample=bird-on-a-twig]")
        opened.wait_for_selector("#run-all:enabled")
        opened.evaluate("studio.send({ name: 'setting', fields: { setting: 'counterfactuals.captions', value: 3 } })")
        opened.click("#run-all")
        opened.wait_for_selector("#generate:enabled", timeout=SLOWEST)
        opened.fill("#setting-generation-steps", "4")
        opened.press("#setting-generation-steps", "Enter")
        settled(opened, DEMO_SECONDS)
        opened.click("#generate")
        opened.wait_for_function("studio.cases.length === 3", timeout=SLOWEST)
        settled(opened, DEMO_SECONDS)
        yield opened


def press(page: Page, *keys: str) -> None:
    """Press keys while no field has the focus."""
    page.evaluate("document.activeElement?.blur()")
    for name in keys:
        page.keyboard.press(name)
        settled(page, DEMO_SECONDS)


def shown(page: Page) -> int:
    """Return the id of the test case on the page."""
    return int(page.get_attribute(".pictures", "data-case") or 0)


def more(page: Page, number: int) -> None:
    """Wait until the run has more than `number` images."""
    page.wait_for_function("number => studio.cases.length > number", arg=number, timeout=SLOWEST)
    settled(page, DEMO_SECONDS)


@pytest.mark.soak
def test_every_way_to_look_shows_what_its_tab_says(page: Page) -> None:
    press(page, "1")
    result = pixels(page, "#big-result")
    press(page, "3")
    original = pixels(page, "#big-source")
    assert np.array_equal(original, np.asarray(Image.open("demo/samples/bird-on-a-twig.png").convert("RGB")))
    assert original.shape == result.shape == (128, 128, 3) and not np.array_equal(original, result)
    press(page, "4")
    assert set(np.unique(pixels(page, "#big-made-control-image"))) == {0, 255}
    left, right = (page.locator(f"#viewer {place} img").first.bounding_box() for place in (".before", ".after"))
    assert left is not None and right is not None and left["x"] + left["width"] <= right["x"] + 1
    press(page, "2")
    page.locator("#viewer .wipe").focus()
    cut = "canvas => getComputedStyle(canvas).getPropertyValue('--cut')"
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert page.locator("#viewer .after .layers").evaluate(cut) == "55%", "its arrows are the slider's own"
    for number, selector in ((5, "#viewer .trace"), (6, ".look-difference .over")):
        press(page, str(number))
        expect(page.locator(selector)).to_be_visible()
    press(page, "1")


@pytest.mark.soak
def test_the_checks_and_the_model_under_test_before_and_after(page: Page) -> None:
    shows_every_check(page)
    expect(page.locator("#guesses")).to_be_visible(timeout=SLOWEST)
    for side in ("source", "generated"):
        rows = page.locator(f"[data-side={side}] li")
        assert rows.count() == 5
        shares = [float(text) for text in rows.locator(".figure").all_inner_texts()]
        assert shares == sorted(shares, reverse=True) and 0.5 < sum(shares) <= 1.03
    expect(page.locator("[data-side=source] li").first).to_contain_text("bird")
    assert "right" in (page.locator("[data-side=source] li").first.get_attribute("class") or "")
    expect(page.locator("#model-verdict")).to_contain_text("model ")

    # An unknown model name is refused with a similar name. Then the profile's model is chosen again.
    choose_a_model_that_is_none(page, SLOWEST)
    page.click("#choose-model summary")
    page.select_option("#choose-model [name=source]", "file")
    page.fill("#choose-model [name=model]", "")
    page.fill("#choose-model [name=file]", "demo/under_test/classifier.safetensors")
    page.click("#choose-model [data-submit]")
    expect(page.locator("#under-test-name")).to_contain_text("classifier.safetensors")
    expect(page.locator("#guesses")).to_be_visible(timeout=SLOWEST)
    expect(page.locator("[data-side=source] li").first).to_contain_text("bird")


@pytest.mark.soak
def test_a_caption_is_edited_and_goes_round_again(page: Page) -> None:
    press(page, "e")
    line = page.locator("#stage-counterfactuals .line[data-editing]")
    before, there = line.locator("textarea").input_value(), page.evaluate("studio.cases.length")
    page.keyboard.press("Control+A")
    page.keyboard.type(before.rstrip(".") + " at night, and so <b>dark</b>.")
    page.keyboard.press("Enter")
    settled(page, DEMO_SECONDS)
    expect(page.locator("#checks")).to_contain_text("of an earlier caption")
    expect(page.locator("#gate-count")).to_contain_text("1 image from 1 caption")
    press(page, "g", "Enter")
    more(page, there)
    expect(page.locator(".facts .diff").first).to_contain_text("<b>dark</b>")
    assert "of an earlier caption" not in page.inner_text("#checks")


def test_every_listed_key_does_what_the_list_says(page: Page) -> None:
    verdict, tab = page.locator("#verdict"), page.locator(".tab.on")

    def look(number: int) -> Callable[[], None]:
        def act() -> None:
            press(page, str(number))
            wanted = page.locator(f".tab[data-digit='{number}']")
            if wanted.count():
                expect(wanted).to_have_attribute("aria-pressed", "true")
            else:  # for example the class map, which a classifier does not have
                expect(tab).to_have_count(1)

        return act

    def accept() -> None:
        press(page, "a")
        expect(verdict).to_have_text("accepted")

    def reject() -> None:
        press(page, "r")
        expect(page.locator(".why")).to_be_visible()
        press(page, "1")
        expect(verdict).to_have_text("rejected: label no longer right")

    def take_back() -> None:
        press(page, "u")
        expect(verdict).to_have_count(0)

    def again() -> None:
        there = page.evaluate("studio.cases.length")
        press(page, "s")
        more(page, there)

    def edit() -> None:
        press(page, "e")
        editor = page.locator("#stage-counterfactuals [data-editing] textarea")
        expect(editor).to_be_focused()
        page.keyboard.press("Escape")
        expect(editor).to_have_count(0)

    def older() -> None:
        first = shown(page)
        press(page, "ArrowRight")
        assert shown(page) < first

    def newer() -> None:
        first = shown(page)
        press(page, "ArrowLeft")
        assert shown(page) > first

    def unreviewed() -> None:
        first = shown(page)
        press(page, "n")
        assert shown(page) != first
        expect(verdict).to_have_count(0)

    def alone() -> None:
        press(page, "b")
        expect(page.locator("#beside-source")).to_be_hidden()
        press(page, "b")
        expect(page.locator("#beside-source")).to_be_visible()

    def full() -> None:
        press(page, "f")
        box = page.locator("#viewer").bounding_box()
        assert box is not None and box["width"] == 1440
        press(page, "f")
        box = page.locator("#viewer").bounding_box()
        assert box is not None and box["width"] < 900

    def one_to_one() -> None:
        press(page, "1", "z")
        width = "image => image.clientWidth"
        assert page.locator("#viewer .after img").first.evaluate(width) == 128
        press(page, "z")
        assert page.locator("#viewer .after img").first.evaluate(width) > 300

    def generate(*keys: str) -> Callable[[], None]:
        def act() -> None:
            there = page.evaluate("studio.cases.length")
            page.wait_for_selector("#generate:enabled")
            page.evaluate("document.activeElement?.blur()")
            if keys[0].startswith("Control"):
                page.focus("#caption-text")
            with images_held(step=1):
                for key in keys:
                    page.keyboard.press(key)
                page.click("#cancel-all")
                settled(page, DEMO_SECONDS)
            assert page.evaluate("studio.cases.length") == there

        return act

    def run_all() -> None:
        page.locator("#stage-keywords .chip.on .toggle").first.click()
        settled(page, DEMO_SECONDS)
        expect(page.locator("#state-counterfactuals")).to_contain_text("stale")
        page.keyboard.press("Control+Shift+Enter")
        expect(page.locator("#state-counterfactuals")).to_have_text("ready", timeout=SLOWEST)
        settled(page, DEMO_SECONDS)

    def undo() -> None:
        chips = page.locator("#stage-keywords .chip.on")
        number = chips.count()
        chips.locator(".toggle").first.click()
        expect(chips).to_have_count(number - 1)
        settled(page, DEMO_SECONDS)
        press(page, "Control+z")
        expect(chips).to_have_count(number)

    def redo() -> None:
        chips = page.locator("#stage-keywords .chip.on")
        number = chips.count()
        for key, count in (("Control+Shift+Z", number - 1), ("Control+z", number), ("Control+y", number - 1)):
            press(page, key)
            expect(chips).to_have_count(count)

    def save() -> None:
        page.fill("#setting-generation-negative_prompt", "fog")
        page.keyboard.press("Enter")
        settled(page, DEMO_SECONDS)
        expect(page.locator("#setting-generation-negative_prompt")).to_have_value("fog")

    def new_line() -> None:
        text = page.input_value("#caption-text")
        page.focus("#caption-text")
        page.keyboard.press("Shift+Enter")
        assert page.input_value("#caption-text").count("\n") == text.count("\n") + 1
        page.keyboard.press("Escape")
        expect(page.locator("#caption-text")).to_have_value(text)

    def escape() -> None:
        press(page, "r", "Escape")
        expect(page.locator(".why")).to_be_hidden()

    def listed() -> None:
        press(page, "?")
        expect(page.locator("#keys-window")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#keys-window")).to_be_hidden()

    does: dict[tuple[str, ...], Callable[[], None]] = {
        ("A",): accept,
        ("U",): take_back,
        ("R",): reject,
        ("→",): older,
        ("←",): newer,
        ("N",): unreviewed,
        ("B",): alone,
        **{(str(number),): look(number) for number in range(1, 9)},
        ("F",): full,
        ("Z",): one_to_one,
        ("S",): again,
        ("E",): edit,
        ("Esc",): escape,
        ("G",): generate("g", "g"),
        ("Ctrl", "↵"): generate("Control+Enter"),
        ("Ctrl", "Z"): undo,
        ("Ctrl", "⇧", "Z"): redo,
        ("↵",): save,
        ("⇧", "↵"): new_line,
        ("?",): listed,
        ("Ctrl", "⇧", "↵"): run_all,
    }
    press(page, "?")
    rows = page.locator("#keys-window dt").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('kbd')].map(key => key.textContent))"
    )
    page.keyboard.press("Escape")
    assert {tuple(row) for row in rows} == set(does) == {keys for group in GROUPS.values() for keys, _ in group}
    for act in does.values():
        act()
    page.reload()
    page.wait_for_selector("#results-count")
    expect(page.locator("#results-count")).to_contain_text("1 rejected")
