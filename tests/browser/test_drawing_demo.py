"""Conditioning, gate, generation and queue in Chromium with the embedded models: a bird, before and while it is drawn.

The tests share a run and a page. Each test sets the drawing settings anew through `begin`, and can run alone.
"""

from __future__ import annotations

import io
import re
import urllib.request
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from core.settings import ConditioningSettings
from pipeline.conditioning import condition
from tests.browser.test_drawing import control, shown, slide
from tests.browser.test_records import downloaded
from tests.support.browser import settled
from tests.support.demo_server import browsing_demo, images_held
from tests.support.explorer import DEMO_SECONDS, open_start

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SLOWEST = 180_000
"""Maximum number of milliseconds for a step of the models, on a machine with other work."""
SAMPLE = "bird-on-a-twig"


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The sample of a bird at the gate, on a page of a laptop's size."""
    with browsing_demo(browser, tmp_path_factory.mktemp("drawing")) as (opened, url, _):
        opened.set_viewport_size({"width": 1280, "height": 900})
        open_start(opened, url)
        opened.click(f".sample[data-sample={SAMPLE}]")
        opened.wait_for_selector("#run-all:enabled")
        opened.click("#run-all")
        opened.wait_for_selector("#generate:enabled", timeout=SLOWEST)
        settled(opened, DEMO_SECONDS)
        yield opened


def begin(page: Page, **settings: object) -> None:
    """Restore the profile's drawing settings, then change the given ones."""
    page.evaluate("studio.send({ name: 'default-settings', fields: { sections: 'generation,conditioning' } })")
    for name, value in settings.items():
        page.evaluate(
            "([name, value]) => studio.send({ name: 'setting', fields: { setting: `generation.${name}`, value } })",
            [name, value],
        )
    settled(page, DEMO_SECONDS)


def fill(page: Page, name: str, value: object) -> None:
    """Type a setting of the gate and press Enter."""
    page.fill(f"#setting-generation-{name}", str(value))
    page.press(f"#setting-generation-{name}", "Enter")
    settled(page, DEMO_SECONDS)


def tick(page: Page, wanted: Callable[[int], bool]) -> None:
    """Tick the counterfactual captions whose index `wanted` accepts, and untick all others."""
    boxes = page.locator("#stage-counterfactuals .line input[type=checkbox]")
    for place in range(boxes.count()):
        boxes.nth(place).set_checked(wanted(place))
        settled(page, DEMO_SECONDS)


def generate(page: Page, number: int) -> None:
    """Press Generate, and wait for `number` more images."""
    there = len(page.evaluate("studio.cases"))
    page.click("#generate:enabled")
    page.wait_for_function("number => studio.cases.length === number", arg=there + number, timeout=SLOWEST)
    settled(page, DEMO_SECONDS)


def pixels(page: Page, selector: str) -> np.ndarray:
    """Return the RGB pixels of the image at `selector`, as served."""
    address = page.eval_on_selector(selector, "image => image.src")
    with urllib.request.urlopen(address, timeout=60) as reply:
        return np.asarray(Image.open(io.BytesIO(reply.read())).convert("RGB"))


def seconds_of(page: Page) -> int:
    """Return the seconds that the gate estimates for the drawing."""
    expect(page.locator("#gate-seconds")).to_contain_text("on this machine")
    found = re.fullmatch(r"about (?:(\d+) (s|min)|a second) on this machine", page.inner_text("#gate-seconds"))
    assert found is not None, page.inner_text("#gate-seconds")
    expect(page.locator("#gate-seconds")).to_have_attribute("title", re.compile("^Drawn on the [CG]PU.*: "))
    return int(found[1] or 1) * (60 if found[2] == "min" else 1)


@pytest.mark.soak
def test_the_control_image_beside_the_original_while_a_threshold_moves(page: Page) -> None:
    begin(page)
    page.click("#toggle-conditioning")
    expect(page.locator("#control-kind")).to_contain_text("Canny edges: the only kind that the models of this profile")
    shown(page, "low=40")
    original, beside = (page.locator(".conditioning figure").nth(place).bounding_box() for place in (0, 1))
    assert original is not None and beside is not None
    assert original["y"] == beside["y"] and original["x"] + original["width"] <= beside["x"]
    assert abs(original["width"] - beside["width"]) < 1 and original["width"] > 200
    captions = page.locator(".conditioning figcaption").all_inner_texts()
    assert captions == ["original", "control"]

    # The control image on the page equals the one that the generator gets, pixel by pixel.
    sample = Image.open(f"demo/samples/{SAMPLE}.png").convert("RGB")
    settings = ConditioningSettings(median=5, low=40, high=100)
    first = control(page)
    assert np.array_equal(first, np.asarray(condition(sample, settings).convert("L")))

    # While the thresholds move, the edges thin out. Only letting go saves.
    kept = [(first > 0).sum()]
    for high in (250, 400, 500):
        slide(page, "high", high, let_go=False)
        shown(page, f"high={high}")
        expect(page.locator("label[for=control-high] output")).to_have_text(str(high))
        kept.append((control(page) > 0).sum())
    assert kept == sorted(kept, reverse=True) and 0 < kept[-1] < kept[0]
    expect(page.locator("#stage-generation .meta")).to_contain_text("Canny 40 / 100")
    slide(page, "high", 500, let_go=True)
    settled(page, DEMO_SECONDS)
    expect(page.locator("#stage-generation .meta")).to_contain_text("Canny 40 / 500")
    slide(page, "low", 300, let_go=True)
    settled(page, DEMO_SECONDS)
    expect(page.locator("#stage-generation .meta")).to_contain_text("Canny 300 / 500")
    page.click(".conditioning button:has-text('Back to the profile')")
    shown(page, "low=40")
    expect(page.locator("#stage-generation .meta")).to_contain_text("Canny 40 / 100")
    assert np.array_equal(control(page), first)
    page.click("#toggle-conditioning")
    expect(page.locator("#control-preview")).to_be_hidden()


@pytest.mark.soak
def test_the_gate_counts_tells_the_time_lists_and_makes_nothing_without_the_yes(page: Page) -> None:
    begin(page, images_per_caption=8)
    captions = page.locator("#stage-counterfactuals .line").count()
    assert captions >= 3
    expect(page.locator("#gate-count")).to_have_text(f"{8 * captions} images from {captions} captions")
    whole = seconds_of(page)
    fill(page, "steps", 1)
    assert 0 < seconds_of(page) < 0.6 * whole, "a fifth of the steps takes less time"
    fill(page, "images_per_caption", 2)
    expect(page.locator("#gate-count")).to_have_text(f"{2 * captions} images from {captions} captions")

    page.click("#planned summary")
    rows = page.locator("#planned li")
    assert rows.count() == 2 * captions
    for place in range(rows.count()):
        assert rows.nth(place).locator("ins").count() >= 1
        assert re.search(r"seed \d+$", rows.nth(place).inner_text())
    assert len({row.split("seed ")[1] for row in rows.all_inner_texts()}) == 2 * captions

    # No image is planned for an unticked caption. With no caption ticked, the gate is closed and says why.
    tick(page, lambda place: place > 0)
    expect(page.locator("#gate-count")).to_have_text(f"{2 * captions - 2} images from {captions - 1} captions")
    tick(page, lambda _place: False)
    expect(page.locator("#gate")).to_contain_text("No counterfactual caption is ticked: tick at least one.")
    assert page.locator("#generate").count() == 0
    page.keyboard.press("Control+Enter")
    page.evaluate("studio.send({ name: 'generate' })")  # a request from another client is refused as well
    expect(page.locator("#problem-generation")).to_contain_text("tick at least one")
    tick(page, lambda _place: True)
    expect(page.locator("#state-generation")).to_have_text("waiting for your yes")
    assert page.evaluate("studio.cases") == [] and page.locator("#queue").count() == 0
    page.click("#planned summary")


@pytest.mark.soak
def test_presets_seeds_strengths_and_what_must_not_show_reach_the_image(page: Page) -> None:
    begin(page)
    pressed = page.locator("[data-key^=preset-][aria-pressed=true]")
    for name, steps, guidance in (("draft", "3", "1"), ("paper", "20", "7.5"), ("balanced", "5", "1")):
        page.click(f"[data-key=preset-{name}]")
        expect(pressed).to_have_text(name)
        expect(page.locator("#setting-generation-steps")).to_have_value(steps)
        assert float(page.input_value("#setting-generation-guidance")) == float(guidance)
    tick(page, lambda place: place == 0)
    fill(page, "steps", 4)
    expect(page.locator("[data-key=preset-own]")).to_be_visible()
    fill(page, "guidance", 2.5)
    fill(page, "control_strength", 0.5)
    fill(page, "negative_prompt", "<i>night</i>, snow")
    page.click("[data-key=seed-fixed]")
    fill(page, "seed", 4711)
    expect(page.locator("#gate-count")).to_have_text("1 image from 1 caption")
    generate(page, 1)
    expect(page.locator(".card.facts").last).to_contain_text("4 steps · seed 4711")
    _, data = downloaded(page, "#save-image")
    told = Image.open(io.BytesIO(data)).info["parameters"]
    for words in ("Negative prompt: <i>night</i>, snow", "Steps: 4,", "CFG scale: 2.5", "Seed: 4711"):
        assert words in told, told
    weak = pixels(page, "#big-result")

    # The same seed with a stronger control gives another picture. Then all images of the fixed seed are made.
    expect(page.locator("#gate")).to_contain_text("All images of the seed 4711 are made")
    fill(page, "control_strength", 1.5)
    generate(page, 1)
    strong = pixels(page, "#big-result")
    assert strong.shape == weak.shape and not np.array_equal(strong, weak)

    # The same seed and settings give the same pixels again.
    page.click("[data-key=seed-random]")
    settled(page, DEMO_SECONDS)
    page.click("#planned summary")
    random = page.inner_text("#planned li .seed")
    generate(page, 1)
    assert page.inner_text("#planned li .seed") != random, "a new one at every yes"
    page.click("#planned summary")
    expect(page.locator(".card.facts").last).to_contain_text(random)
    drawn = pixels(page, "#big-result")
    assert not np.array_equal(drawn, strong)
    page.click("#reuse-seed")
    expect(page.locator("#setting-generation-seed")).to_have_value(random.removeprefix("seed "))
    expect(page.locator("[data-key=seed-fixed]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#gate")).to_contain_text("are made: take another seed, or change something else")
    fill(page, "images_per_caption", 2)  # the seed counts up within a caption, so one new image is planned
    expect(page.locator("#gate-count")).to_have_text("1 image from 1 caption")


@pytest.mark.soak
def test_the_queue_is_in_sight_while_it_is_drawn_and_does_what_it_is_told(page: Page) -> None:
    first = page.evaluate("studio.run")
    page.evaluate("run => studio.send({ name: 'run-duplicate', fields: { run } })", first)
    page.wait_for_function("run => studio.run !== run", arg=first)
    page.wait_for_selector("#stage-counterfactuals .line")
    begin(page, steps=6)
    tick(page, lambda _place: True)
    assert page.evaluate("studio.cases") == []
    planned = page.locator("#planned li").count()
    assert planned >= 4
    waiting, running = page.locator("#queue li.part.waiting"), page.locator("#queue li.running .what")
    drawing = page.locator("#big-drawing figcaption")
    with images_held(step=3) as held:
        page.locator("body").press("Control+Enter")
        expect(waiting).to_have_count(planned - 1)
        expect(page.locator("#queue-words")).to_contain_text(f"{planned} running or waiting")
        expect(page.locator("#queue")).to_be_in_viewport(ratio=1)

        # The page shows the first image by itself: its progress, the progress of all images, and a preview.
        expect(page.locator("#progress-words")).to_have_text(
            re.compile(rf"image 1 of {planned} · step 3 of {6 * planned} · \d+ (s|min) left")
        )
        expect(page.locator("#queue-words")).to_contain_text("left")
        page.wait_for_selector("#big-drawing.seen")
        expect(drawing).to_contain_text("step 3 of 6")
        preview = pixels(page, "#big-drawing img")
        assert preview.shape == (128, 128, 3) and preview.std() > 20
        assert page.locator("#accept, #verdict, .review").count() == 0, "what is not there yet cannot be judged"

        # The first finished image is shown and can be judged above the queue. The next image is a click away.
        held.let_through()
        expect(page.locator(".thumb[data-view-case]")).to_have_count(1)
        for button in ("#accept", "#reject"):
            expect(page.locator(button)).to_be_in_viewport(ratio=1)
            above, queue = page.locator(button).bounding_box(), page.locator("#queue").bounding_box()
            assert above is not None and queue is not None and above["y"] + above["height"] <= queue["y"]
        page.wait_for_selector(".thumb.drawing.seen img")
        page.click(".thumb.drawing")
        page.wait_for_selector("#big-drawing.seen")
        expect(drawing).to_contain_text("step 3 of 6")
        assert page.locator("#accept, #verdict, .review").count() == 0

        # Move up and remove. After the image that is being drawn is cancelled, the next one begins.
        expect(waiting).to_have_count(planned - 2)
        now, last = running.inner_text(), waiting.last.locator(".what").inner_text()
        waiting.last.locator("[data-do=queue-up]").click()
        expect(waiting.last.locator(".what")).not_to_have_text(last)
        waiting.last.locator("[data-do=delete-job-part]").click()
        expect(waiting).to_have_count(planned - 3)
        page.click("#queue li.running [data-do=delete-job-part]")
        expect(running).not_to_have_text(now)
        expect(waiting).to_have_count(planned - 4)

        # Cancelling all keeps the finished images.
        page.click("#cancel-all")
        settled(page, DEMO_SECONDS)
    expect(page.locator("#queue")).to_have_count(0)
    assert len(page.evaluate("studio.cases")) == 1
    expect(page.locator("#state-generation")).to_have_text(f"cancelled: 1 of {planned} images are saved")
    page.click("[data-view-mode=result]")
    page.wait_for_selector("#big-result")
    expect(page.locator("#gate-seconds")).to_contain_text("on this machine")
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", first)
    page.wait_for_function("run => studio.run === run", arg=first)
