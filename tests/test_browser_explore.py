"""The explore page in Chromium: once through the five stages with the embedded models, reloads, bad uploads, a kill."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from benchmarks.serving import settled
from services.studio import Studio
from tests.explorer import encoded, started, state, to_the_gate, upload, upload_bird
from tests.scripted import SlowModels
from tests.serving import until


@pytest.fixture
def studio(tmp_path: Path, page: Page) -> Iterator[Studio]:
    """The start page of a studio with stand-ins for its models."""
    with started(page, tmp_path, SlowModels()) as behind:
        yield behind


def pixels(page: Page, selector: str) -> np.ndarray:
    """The picture that the page shows there, as it was served."""
    address = page.eval_on_selector(selector, "image => image.src")
    with urllib.request.urlopen(address, timeout=60) as reply:
        return np.asarray(Image.open(io.BytesIO(reply.read())).convert("RGB"), np.float64)


def test_edits_stale_stages_and_a_reload(studio: Studio, page: Page) -> None:
    expect(page.locator("#sign-out")).to_be_hidden()
    upload_bird(page)
    expect(page.locator("#unknown-picture")).to_contain_text("make run PROFILE=paper")
    page.click("#run-all")
    page.wait_for_selector("#generate")
    settled(page)
    assert [state(page, s) for s in ("caption", "keywords", "alternatives", "counterfactuals")] == ["ready"] * 4
    assert state(page, "generation") == "waiting for your yes"

    # A chip is unticked, an alternative added and a caption changed in place.
    page.click("#stage-keywords .chip:has-text('grassy') .toggle")
    expect(page.locator("#state-keywords")).to_have_text("edited by you")
    expect(page.locator("#state-alternatives")).to_contain_text("stale: the keywords were changed")
    expect(page.locator("#gate")).to_contain_text("stale")
    page.click("#from-alternatives")
    page.wait_for_selector("#generate")
    settled(page)
    assert page.locator("#stage-alternatives .row-line").count() == 3
    row = page.locator("#stage-alternatives .row-line").first
    row.locator(".add .toggle").click()
    row.locator(".add .pop input").fill("golden")
    row.locator(".add .pop input").press("Enter")
    expect(row).to_contain_text("golden")
    expect(page.locator("#state-counterfactuals")).to_contain_text("stale")
    page.click("#stage-counterfactuals button:has-text('Keep as it is')")
    expect(page.locator("#state-counterfactuals")).to_have_text("edited by you")
    line = page.locator("#stage-counterfactuals .line").first
    line.locator(".diff").click()
    line.locator("textarea").fill("A golden bird in foggy weather at night.")
    line.locator("textarea").press("Enter")
    expect(line.locator("ins").first).to_contain_text("golden")
    assert line.locator("del").count() >= 2

    # What a reload shows is what was there; so does another page.
    address = page.url
    assert "?run=" in address
    # The time is measured while nobody works, so it may come a moment later.
    expect(page.locator("#gate")).to_contain_text("about", timeout=30_000)
    shown = page.inner_text("#column-stages")
    page.reload()
    page.wait_for_selector("#generate")
    settled(page)
    assert page.inner_text("#column-stages") == shown
    other = page.context.new_page()
    other.goto(address.split("?")[0])
    other.wait_for_selector("#generate")
    assert other.url == address, "this browser's last run is found without its number"
    other.close()


def test_another_recipe_shows_its_own_cards_and_keeps_what_is_there(studio: Studio, page: Page) -> None:
    to_the_gate(page)
    keywords = page.inner_text("#stage-keywords")
    page.click("#recipes label:has-text('Reconstruction')")
    page.wait_for_selector("#stage-keywords", state="detached")
    expect(page.locator("#recipes .chip.on")).to_have_text("Reconstruction")
    expect(page.locator("#gate-count")).to_have_text("1 image from 1 caption")
    assert page.inner_text("#stage-generation .num") == "2"
    above, below = (page.locator(name).bounding_box() for name in ("#stage-caption", "#stage-generation"))
    assert above and below and 0 < below["y"] - above["y"] - above["height"] < 30, "nothing is left of the other cards"
    page.click("#generate")
    page.wait_for_selector("#review")
    expect(page.locator(".thumb .words")).to_have_text("reconstruction")
    page.keyboard.press("e")
    expect(page.locator("#caption-text")).to_be_focused()

    page.click("#recipes label:has-text('DILLEMA')")
    page.wait_for_selector("#stage-counterfactuals")
    assert page.inner_text("#stage-keywords") == keywords
    expect(page.locator("#gate-count")).to_have_text("4 images from 4 captions")
    page.reload()
    page.wait_for_selector("#stage-keywords")
    expect(page.locator("#outdated")).to_have_count(0)


def test_what_makes_no_sense_is_said_at_the_stage_and_nothing_is_lost(studio: Studio, page: Page) -> None:
    upload_bird(page)
    page.click("#run-all")
    page.wait_for_selector("#generate")
    settled(page)
    caption = page.input_value("#caption-text")

    page.fill("#caption-text", "")
    page.press("#caption-text", "Enter")
    expect(page.locator("#problem-caption")).to_contain_text("The caption is empty")
    assert state(page, "keywords") == "ready", "the caption before it still counts"
    page.press("#caption-text", "Escape")
    expect(page.locator("#caption-text")).to_have_value(caption)

    page.fill("#caption-text", "A red thing in sunny weather by day.")
    page.click("#source .mini")  # leaving the field saves it
    expect(page.locator("#stage-caption")).to_contain_text("does not name the label")
    expect(page.locator("#state-caption")).to_have_text("edited by you")
    page.fill("#caption-text", caption)
    page.press("#caption-text", "Enter")
    expect(page.locator("#stage-caption .problem")).to_have_count(0)

    add = page.locator("#stage-alternatives .row-line").first.locator(".add")
    add.locator(".toggle").click()
    add.locator(".pop input").fill("red")
    add.locator("[data-submit]").click()
    expect(page.locator("#problem-alternatives")).to_contain_text("same as its keyword")
    assert add.locator(".pop input").input_value() == "red", "what was typed is still there"

    for _ in range(4):
        page.locator("#stage-keywords .chip.on .toggle").first.click()
        settled(page)
    page.click("#from-alternatives")
    expect(page.locator("#problem-alternatives")).to_contain_text("No keyword is chosen")
    assert page.locator("#stage-alternatives .row-line").count() == 4


def test_a_text_that_was_not_saved_survives_a_reload(studio: Studio, page: Page) -> None:
    upload_bird(page)
    page.click("#caption-text")
    page.keyboard.type("A bird that I am still")
    page.reload()
    page.wait_for_selector("#caption-text")
    settled(page)
    expect(page.locator("#caption-text")).to_have_value("A bird that I am still")
    expect(page.locator("#stage-caption .unsaved")).to_be_visible()
    page.locator("#caption-text").press("End")
    page.keyboard.type(" writing.")
    page.keyboard.press("Enter")
    expect(page.locator("#state-caption")).to_have_text("edited by you")
    assert page.locator("#stage-caption .unsaved").is_hidden()


def test_typing_is_not_disturbed_by_what_goes_on(studio: Studio, page: Page) -> None:
    upload_bird(page)
    page.click("#run-all")
    page.wait_for_selector("#generate")
    settled(page)
    page.click("#generate")
    page.wait_for_selector("#cancel")
    page.click("#caption-text")
    page.keyboard.press("Control+A")
    text = "A bird, typed letter by letter while images are being made next to it."
    page.keyboard.type(text, delay=40)
    assert page.input_value("#caption-text") == text
    assert page.evaluate("document.activeElement.id") == "caption-text"


def test_the_chosen_theme_stays_whatever_gradio_does(studio: Studio, page: Page) -> None:
    page.click("[data-theme-switch]")
    assert page.evaluate("document.body.classList.contains('dark')")
    page.evaluate("document.body.classList.remove('dark')")  # as Gradio does when it gets ready late
    page.wait_for_function("document.body.classList.contains('dark')")
    page.click("[data-theme-switch]")
    page.evaluate("new Promise(requestAnimationFrame)")
    assert not page.evaluate("document.body.classList.contains('dark')")


def test_progress_cancel_and_a_second_page(studio: Studio, page: Page) -> None:
    upload_bird(page)
    page.click("#run-all")
    page.wait_for_selector("#generate")
    assert page.inner_text("#gate-count") == "4 images from 4 captions"
    page.click("#generate")
    page.wait_for_function("studio.cases.length >= 1")
    expect(page.locator("#progress-words")).to_contain_text("left")

    # Neither a reload nor a closed page stops it; a second page sees the same.
    page.reload()
    expect(page.locator("#progress-words")).to_contain_text("image")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#state-generation")).to_have_text("running")
    other.close()

    run_id = page.evaluate("studio.run")
    page.click("#cancel")
    until(lambda: not studio.jobs.active())
    expect(page.locator("#state-generation")).to_contain_text("cancelled: ")
    saved = len(studio.workspace.runs.get(run_id).test_cases)
    assert 1 <= saved < 4 and page.locator("#results .thumb:not(.drawing)").count() == saved
    expect(page.locator("#gate-count")).to_contain_text(f"{4 - saved} image")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("letter.txt", b"dear reader", "not an image"),
        ("empty.png", b"", "empty"),
        ("cut.png", encoded(Image.effect_noise((200, 200), 50))[:3000], "damaged or cut short"),
        ("dot.png", encoded(Image.new("RGB", (1, 1))), "too small"),
        ("vast.png", encoded(Image.new("1", (20_000, 20_000))), "too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",
)
def test_bad_uploads_are_refused_in_one_sentence(studio: Studio, page: Page, name: str, data: bytes, said: str) -> None:
    upload_bird(page)
    run_id = page.evaluate("studio.run")
    before = studio.workspace.runs.get(run_id)
    page.click(".top [data-go=new]")
    page.wait_for_selector(".start h1")
    upload(page, name, data)
    expect(page.locator("#start-problem")).to_contain_text(said)
    assert page.inner_text("#start-problem").count(".") <= 2 and len(studio.runs.latest()) == 1
    assert studio.workspace.runs.get(run_id) == before, "the run before is untouched"
    upload_bird(page)  # the server lives on


@pytest.mark.parametrize(
    ("image", "form", "options", "said"),
    [
        (Image.new("CMYK", (40, 60)), "JPEG", {}, "CMYK"),
        (Image.new("I;16", (40, 60), 30000), "PNG", {}, "16 bits"),
        (Image.new("P", (40, 60)), "PNG", {"transparency": 0}, "transparent"),
        (
            Image.new("RGB", (40, 60)),
            "GIF",
            {"save_all": True, "append_images": [Image.new("RGB", (40, 60), 9)]},
            "first",
        ),
    ],
)
def test_odd_uploads_are_put_right_and_the_page_says_so(
    studio: Studio, page: Page, image: Image.Image, form: str, options: dict[str, object], said: str
) -> None:
    upload(page, "odd.img", encoded(image, form, **options))
    expect(page.locator("#picture-notes")).to_contain_text(said)
    assert pixels(page, "#big-source").shape == (60, 40, 3)


def test_a_turned_upload_is_upright(studio: Studio, page: Page) -> None:
    turned = Image.new("RGB", (60, 40))
    exif = turned.getexif()
    exif[0x0112] = 6
    upload(page, "turned.jpg", encoded(turned, "JPEG", exif=exif))
    expect(page.locator("#picture-notes")).to_contain_text("upright")
    assert pixels(page, "#big-source").shape == (60, 40, 3)
