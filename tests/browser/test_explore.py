"""The explore page in Chromium: edits, reloads, another recipe, progress, and bad or unusual uploads."""

from __future__ import annotations

import base64
import io
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Page, Route, expect

from services.studio import Studio
from tests.support.browser import settled
from tests.support.explorer import (
    Served,
    draw,
    encoded,
    held_drawing,
    look,
    one_server,
    open_run,
    state,
    text_run,
    upload,
    upload_bird,
)
from tests.support.routing import HeldBack, routed
from tests.support.serving import until

served = one_server()


@pytest.fixture
def studio(served: Served, request: pytest.FixtureRequest) -> Studio:
    """The start page of a studio with stand-ins for its models."""
    return served.begin(request)


def pixels(page: Page, selector: str) -> np.ndarray:
    """Return the pixels of the image at `selector`, as served."""
    address = page.eval_on_selector(selector, "image => image.src")
    with urllib.request.urlopen(address, timeout=60) as reply:
        return np.asarray(Image.open(io.BytesIO(reply.read())).convert("RGB"), np.float64)


def test_a_page_whose_scripts_come_after_it_is_whole(studio: Studio, page: Page) -> None:
    """Gradio inserts the scripts and does not wait for them, so they may arrive late."""
    held: list[Route] = []
    page.route("**/ui/explore.js*", lambda route: held.append(route))
    with page.expect_request("**/ui/explore.js*"):
        page.goto(page.url, wait_until="commit")
    page.wait_for_selector("#column-pictures", state="attached")
    held[0].continue_()
    page.unroute("**/ui/explore.js*")
    expect(page.locator(".start h1")).to_be_visible()
    page.click(".sample >> nth=0")
    page.wait_for_selector("#run-all:enabled")


def test_edits_stale_stages_and_a_reload(studio: Studio, page: Page) -> None:
    expect(page.locator("#sign-out")).to_be_hidden()
    upload_bird(page)
    expect(page.locator("#unknown-picture")).to_contain_text("make run PROFILE=paper")
    expect(page.locator("#unknown-picture")).to_contain_text("Without a network, make run PROFILE=laptop")
    page.click("#run-all")
    page.wait_for_selector("#generate")
    settled(page)
    assert [state(page, s) for s in ("caption", "keywords", "alternatives", "counterfactuals")] == ["ready"] * 4
    assert state(page, "generation") == "waiting for your yes"

    # Untick a keyword, add an alternative, and change a caption in place.
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

    # A reload and another page show the same values.
    address = page.url
    assert "?run=" in address
    until(lambda: studio.driver.speeds)  # the speed is measured in the background, so it may arrive a moment later
    look(page)
    expect(page.locator("#gate")).to_contain_text("about")
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
    open_run(page, text_run(studio))
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
    open_run(page, text_run(studio))
    caption = page.input_value("#caption-text")

    page.fill("#caption-text", "")
    page.press("#caption-text", "Enter")
    expect(page.locator("#stage-caption .refusal")).to_contain_text("The caption is empty")
    assert state(page, "keywords") == "ready", "the caption before it still counts"
    page.press("#caption-text", "Escape")
    expect(page.locator("#caption-text")).to_have_value(caption)
    expect(page.locator(".refusal, #stage-caption .problem")).to_have_count(0)

    page.fill("#caption-text", "A red thing in sunny weather by day.")
    page.click("#source .mini")  # leaving the field saves the text
    expect(page.locator("#stage-caption")).to_contain_text("does not name the label")
    expect(page.locator("#state-caption")).to_have_text("edited by you")
    page.fill("#caption-text", caption)
    page.press("#caption-text", "Enter")
    expect(page.locator("#stage-caption .problem")).to_have_count(0)

    add = page.locator("#stage-alternatives .row-line").first.locator(".add")
    add.locator(".toggle").click()
    add.locator(".pop input").fill("red")
    add.locator("[data-submit]").click()
    expect(add.locator(".pop .refusal")).to_contain_text("same as its keyword")
    assert add.locator(".pop input").input_value() == "red", "what was typed is still there"

    for _ in range(4):
        page.locator("#stage-keywords .chip.on .toggle").first.click()
        settled(page)
    page.click("#from-alternatives")
    expect(page.locator("#problem-alternatives")).to_contain_text("No keyword is chosen")
    assert page.locator("#stage-alternatives .row-line").count() == 4


def write_and_reload(page: Page, text: str) -> None:
    """Type a caption, reload the page before it is saved, and find the typed text."""
    page.click("#caption-text")
    page.keyboard.press("Control+A")
    page.keyboard.type(text)
    page.reload()
    page.wait_for_selector("#caption-text")
    settled(page)
    expect(page.locator("#caption-text")).to_have_value(text)
    expect(page.locator("#stage-caption .unsaved")).to_be_visible()


def test_a_text_that_was_not_saved_survives_a_reload(studio: Studio, page: Page) -> None:
    upload_bird(page)
    write_and_reload(page, "A bird that I am still")
    page.locator("#caption-text").press("End")
    page.keyboard.type(" writing.")
    page.keyboard.press("Enter")
    expect(page.locator("#state-caption")).to_have_text("edited by you")
    expect(page.locator("#stage-caption .unsaved")).to_be_hidden()

    # Enter or a click elsewhere saves the text without another keystroke.
    texts = ["A bird that I am still writing.", "A bird that I have described.", "A bird that I have left."]
    for text, leave in (
        (texts[1], lambda: page.keyboard.press("Enter")),
        (texts[2], lambda: page.click("#source .mini")),
    ):
        write_and_reload(page, text)
        page.click("#caption-text")
        leave()
        expect(page.locator("#stage-caption .unsaved")).to_be_hidden()
        settled(page)
    values = studio.workspace.runs.history(page.evaluate("studio.run"), "caption")
    assert [value.value.value.text for value in values] == texts


COMPOSED = """field => {
    field.focus();
    const key = { key: "Enter", isComposing: true, bubbles: true, cancelable: true };
    field.dispatchEvent(new KeyboardEvent("keydown", key));
    return document.activeElement === field;
}"""
"""JavaScript: press Enter as in an input method (IME), and return True if the field keeps the focus."""


def test_an_enter_that_ends_a_composition_neither_saves_nor_sends(studio: Studio, page: Page) -> None:
    open_run(page, text_run(studio))
    page.click("#stage-keywords .chip.add .toggle")
    assert page.eval_on_selector("#stage-keywords .chip.add input", COMPOSED)
    assert page.evaluate("studio.idle"), "nothing was sent"
    assert page.eval_on_selector("#caption-text", COMPOSED)
    page.click(".chip:has-text('segmentation')")
    page.click(".mask .classes summary")
    assert page.eval_on_selector("#mask-classes", COMPOSED)


def test_typing_is_not_disturbed_by_what_goes_on(studio: Studio, page: Page) -> None:
    open_run(page, text_run(studio))
    texts = ["A bird, typed letter by letter", " while images are being made", " next to it."]
    with held_drawing(studio) as generator:
        page.click("#generate")
        page.wait_for_selector("#cancel")
        page.click("#caption-text")
        page.keyboard.press("Control+A")
        for made, text in enumerate(texts, 1):
            generator.let_go()
            page.keyboard.type(text, delay=10)
            page.wait_for_function("made => studio.cases.length === made", arg=made)
        assert page.input_value("#caption-text") == "".join(texts)
        assert page.evaluate("document.activeElement.id") == "caption-text"
        page.keyboard.press("Escape")


def go(page: Page, by: int, run: str) -> None:
    """Go `by` entries in the browser history, and wait for the run `run` ("" for the start page)."""
    page.evaluate("by => history.go(by)", by)
    page.wait_for_function("run => new URLSearchParams(location.search).get('run') === (run || null)", arg=run)


def test_back_and_forward_go_through_what_was_looked_at(studio: Studio, page: Page) -> None:
    first, second = text_run(studio), text_run(studio)
    open_run(page, first)
    page.click(".top [data-go=new]")
    page.wait_for_selector(".start h1")
    open_run(page, second)
    entries = page.evaluate("history.length")
    for by, wanted in ((-1, ""), (1, second), (-1, ""), (-1, first), (1, ""), (1, second)):
        go(page, by, wanted)
        page.wait_for_function("run => studio.run === run && studio.idle", arg=wanted)
    page.reload()
    page.wait_for_selector("#run-all")
    settled(page)
    assert page.evaluate("history.length") == entries

    # Back and Forward also work while the studio has not answered yet.
    held = HeldBack()
    with routed(page, "**/component_server/", held):
        for by, wanted in ((-1, ""), (-1, first), (1, "")):
            go(page, by, wanted)
        held.let_through()
        page.wait_for_function("!studio.run && studio.idle")
    go(page, 1, second)
    page.wait_for_function("run => studio.run === run && studio.idle", arg=second)


def test_what_is_typed_stays_with_its_run(studio: Studio, page: Page) -> None:
    upload_bird(page)
    first = page.evaluate("studio.run")
    page.click(".top [data-go=new]")
    page.wait_for_selector(".start h1")
    upload_bird(page)
    second = page.evaluate("studio.run")
    page.click("#caption-text")
    page.keyboard.type("A draft")
    page.reload()
    page.wait_for_selector("#caption-text")
    settled(page)
    open_run(page, first)
    expect(page.locator("#caption-text")).to_have_value("")
    page.click("#caption-text")
    page.keyboard.type("A bird of the first run.")
    page.evaluate("history.back()")
    page.wait_for_function("run => studio.run === run && studio.idle", arg=second)
    expect(page.locator("#caption-text")).to_have_value("A draft")
    said = {run: studio.workspace.runs.history(run, "caption") for run in (first, second)}
    assert [value.value.value.text for value in said[first]] == ["A bird of the first run."]
    assert not said[second]


def test_the_chosen_theme_stays_whatever_gradio_does(studio: Studio, page: Page) -> None:
    page.click("[data-theme-switch]")
    assert page.evaluate("document.body.classList.contains('dark')")
    page.evaluate("document.body.classList.remove('dark')")  # Gradio does this when it finishes loading late
    page.wait_for_function("document.body.classList.contains('dark')")
    page.click("[data-theme-switch]")
    page.evaluate("new Promise(requestAnimationFrame)")
    assert not page.evaluate("document.body.classList.contains('dark')")


def test_a_button_that_is_pressed_twice_does_it_once(studio: Studio, page: Page) -> None:
    open_run(page, text_run(studio))
    with held_drawing(studio):
        page.eval_on_selector("#generate", "button => { button.click(); button.click(); }")
        page.wait_for_selector("#cancel")
        page.wait_for_function("studio.idle")
        assert page.locator("#problem-generation").count() == 0
        page.click("#cancel")
        until(lambda: not studio.jobs.active())
    settled(page)

    # While a key is held down, its repeats start nothing after the first press is answered.
    held = """repeat => document.body.dispatchEvent(
        new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, repeat, bubbles: true, cancelable: true }))"""
    page.evaluate(held, True)
    assert page.evaluate("studio.idle") and not studio.jobs.active()
    page.evaluate(held, False)
    page.wait_for_function("studio.cases.length === 4")
    settled(page)

    # Different buttons count separately, and an answered button can be pressed again.
    chips = "[...document.querySelectorAll('#stage-keywords .chip.on > .toggle')].slice(0, 2)"
    page.evaluate(f"for (const chip of {chips}) chip.click()")
    expect(page.locator("#stage-keywords .chip.on")).to_have_count(2)
    for used in (3, 4):
        page.click("#undo-keywords")
        expect(page.locator("#stage-keywords .chip.on")).to_have_count(used)
        settled(page)


HARD_TO_READ = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = parts(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const opacity = (one) => one ? getComputedStyle(one).opacity * opacity(one.parentElement) : 1;
  return [...document.querySelectorAll(".studio button, .studio p, .studio kbd, .studio small, .studio .pill")]
    .filter((one) => one.checkVisibility({ opacityProperty: true }) && one.innerText?.trim())
    .filter((one) => !one.matches(":disabled, :disabled *"))
    .map((one) => {
      const behind = ground(one), strength = opacity(one), colour = parts(getComputedStyle(one).color).slice(0, 3);
      const ink = colour.map((part, place) => part * strength + behind[place] * (1 - strength));
      const [more, less] = [light(ink), light(behind)].sort((a, b) => b - a);
      return [(more + 0.05) / (less + 0.05), one.innerText.slice(0, 40)];
    })
    .filter(([contrast]) => contrast < 4.5);
}"""
"""JavaScript: words with less contrast than WCAG AA requires."""


def test_progress_cancel_and_a_second_page(studio: Studio, page: Page) -> None:
    run_id = text_run(studio)
    open_run(page, run_id)
    assert page.inner_text("#gate-count") == "4 images from 4 captions"
    with held_drawing(studio) as generator:
        page.click("#generate")
        generator.let_go()
        page.wait_for_function("studio.cases.length === 1")
        expect(page.locator("#progress-words")).to_contain_text("left")

        # Neither a reload nor a closed page stops the drawing. A second page shows the same progress.
        page.reload()
        expect(page.locator("#progress-words")).to_contain_text("image")
        other = page.context.new_page()
        other.goto(page.url)
        expect(other.locator("#state-generation")).to_have_text("running")
        other.close()

        # While it runs, the text stages can be edited, and edits can be undone.
        before = page.input_value("#caption-text")
        page.fill("#caption-text", "A red bird in rainy weather by day.")
        page.press("#caption-text", "Enter")
        expect(page.locator("#state-caption")).to_have_text("edited by you")
        page.locator("#stage-keywords .chip.on .toggle").first.click()
        expect(page.locator("#stage-keywords .chip.on")).to_have_count(3)
        page.click("#undo")
        expect(page.locator("#stage-keywords .chip.on")).to_have_count(4)
        page.click("#undo")
        expect(page.locator("#caption-text")).to_have_value(before)
        expect(page.locator("#state-generation")).to_have_text("running")

        page.click("#cancel")
        until(lambda: not studio.jobs.active())
    expect(page.locator("#state-generation")).to_contain_text("cancelled: ")
    assert len(studio.workspace.runs.get(run_id).test_cases) == 1
    assert page.locator("#results .thumb:not(.drawing)").count() == 1
    expect(page.locator("#gate-count")).to_contain_text("3 images")

    # The page has one heading, and every word has enough contrast in light and dark.
    assert page.locator("h1").all_inner_texts() == ["bird"]
    for dark in (False, True):
        page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", dark)
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
        assert page.evaluate(HARD_TO_READ) == []


def bad_uploads() -> dict[str, tuple[bytes, str]]:
    """Return files that are refused, each with words of the refusal. Making some files takes a second."""
    return {
        "letter.txt": (b"dear reader", "not an image"),
        "empty.png": (b"", "empty"),
        "cut.png": (encoded(Image.effect_noise((200, 200), 50))[:3000], "damaged or cut short"),
        "dot.png": (encoded(Image.new("RGB", (1, 1))), "too small"),
        "vast.png": (encoded(Image.new("1", (20_000, 20_000))), "too large"),
    }


def test_bad_uploads_are_refused_in_one_sentence(studio: Studio, page: Page) -> None:
    upload_bird(page)
    run_id = page.evaluate("studio.run")
    before, number = studio.workspace.runs.get(run_id), len(studio.runs.latest())
    page.click(".top [data-go=new]")
    page.wait_for_selector(".start h1")
    for name, (data, said) in bad_uploads().items():
        upload(page, name, data)
        expect(page.locator("#upload-problem")).to_contain_text(said)
        assert page.inner_text("#upload-problem").count(".") <= 2 and len(studio.runs.latest()) == number
        assert studio.workspace.runs.get(run_id) == before, "the run before is untouched"
    upload_bird(page)  # the server still runs


def turned() -> bytes:
    """Return a JPEG whose EXIF orientation says that it is turned by 90 degrees."""
    lying = Image.new("RGB", (60, 40))
    exif = lying.getexif()
    exif[0x0112] = 6
    return encoded(lying, "JPEG", exif=exif)


ODD_UPLOADS = {
    "CMYK": encoded(Image.new("CMYK", (40, 60)), "JPEG"),
    "16 bits": encoded(Image.new("I;16", (40, 60), 30000)),
    "transparent": encoded(Image.new("P", (40, 60)), transparency=0),
    "first": encoded(Image.new("RGB", (40, 60)), "GIF", save_all=True, append_images=[Image.new("RGB", (40, 60), 9)]),
    "upright": turned(),
}


def test_odd_uploads_are_put_right_and_the_page_says_so(studio: Studio, page: Page) -> None:
    for said, data in ODD_UPLOADS.items():
        upload(page, "odd.img", data)
        expect(page.locator("#picture-notes")).to_contain_text(said)
        assert pixels(page, "#big-source").shape == (60, 40, 3)
        page.click(".top [data-go=new]")
        page.wait_for_selector(".start h1")


PASTE = """
(data) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const pasted = new DataTransfer();
  pasted.items.add(new File([bytes], "image.png", { type: "image/png" }));
  document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: pasted, bubbles: true, cancelable: true }));
}
"""


# A script cannot make a drop event with a folder. Here the event returns real entries of the browser's file system.
DROP = """
async (files) => {
  const asked = (ask) => new Promise(ask);
  const system = await asked((take, refuse) => webkitRequestFileSystem(0, 1e6, take, refuse));
  for (const [path, data] of Object.entries(files)) {
    let place = system.root;
    const names = path.split("/"), name = names.pop();
    const anew = { create: true };
    for (const one of names) place = await asked((take, refuse) => place.getDirectory(one, anew, take, refuse));
    const file = await asked((take, refuse) => place.getFile(name, anew, take, refuse));
    const writer = await asked((take, refuse) => file.createWriter(take, refuse));
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    await asked((done, failed) => {
      Object.assign(writer, { onwriteend: done, onerror: failed }).write(new Blob([bytes]));
    });
  }
  const top = Object.keys(files)[0].split("/")[0];
  const folder = await asked((take, refuse) => system.root.getDirectory(top, {}, take, refuse));
  const event = new Event("drop", { bubbles: true, cancelable: true });
  event.dataTransfer = { types: ["Files"], files: [], items: [{ webkitGetAsEntry: () => folder }] };
  document.body.dispatchEvent(event);
}
"""


def test_several_pictures_are_given_at_once_labelled_and_run_in_one_table(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    pictures = {name: encoded(Image.new("RGB", (60, 40), name)) for name in ("red", "green")}
    files = {**pictures, "broken": b"no picture"}
    sent: list[FilePayload] = [
        {"name": f"{name}.png", "mimeType": "image/png", "buffer": data} for name, data in files.items()
    ]
    page.set_input_files("#upload input[type=file]", sent)
    rows = page.locator("#together tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator("#together-refused")).to_contain_text("broken.png: The file is not an image")
    expect(page.locator("#together-run")).to_be_disabled()
    page.fill("#together-label", "bird")
    page.press("#together-label", "Enter")
    expect(rows.nth(1).locator("input")).to_have_value("bird")
    page.click("#together-run")
    page.wait_for_selector("#together-generate:enabled")
    expect(page.locator("#together-generate")).to_have_text("Generate 8 images")
    page.reload()
    expect(rows).to_have_count(2)
    rows.nth(0).locator("[data-unpick]").click()
    expect(page.locator("#together-generate")).to_have_text("Generate 4 images")
    rows.nth(0).locator("td.name a").click()
    page.click("#combinations-said")
    expect(page.locator("#combinations-said")).to_have_text("4 of 9 combinations are captions")
    page.locator("#combinations .cell:not(.on) input").first.check()
    expect(page.locator("#combinations-said")).to_have_text("5 of 9 combinations become captions")
    expect(page.locator("#state-counterfactuals")).to_contain_text("stale")
    page.click("[data-how=all]")
    expect(page.locator("#combinations .cell:not(.on)")).to_have_count(0)
    page.click(".top [data-go=new]")
    page.click("[data-close-together]")
    expect(page.locator("#together")).to_have_count(0)

    # A folder is dropped: its pictures and those of its subfolders are taken. The page names the other files.
    inside = {"red.png": pictures["red"], "more/green.png": pictures["green"], "red.mask.png": b"mask"}
    inside |= {"notes.txt": b"no picture", ".DS_Store": b"no picture", "more/list.csv": b"no picture"}
    page.evaluate(DROP, {f"holiday/{name}": base64.b64encode(data).decode() for name, data in inside.items()})
    expect(rows.locator("td.name a")).to_have_text(["green", "red"])
    said = page.locator("#together-refused")
    expect(said).to_contain_text("Left out (no picture): holiday/more/list.csv, holiday/notes.txt.")
    expect(said).to_contain_text("Left out (a mask is given to the run of its picture): holiday/red.mask.png.")
    expect(said).not_to_contain_text("DS_Store")
    expect(rows.locator("input")).to_have_count(2)
    assert [field.input_value() for field in rows.locator("input").all()] == [
        "",
        "",
    ]  # one picture is in no class folder, so no label is set
    page.click("[data-close-together]")

    # The names of class folders become labels.
    classes = {"train/boat/green.png": pictures["green"], "train/red bird/red.png": pictures["red"]}
    page.evaluate(DROP, {f"set/{name}": base64.b64encode(data).decode() for name, data in classes.items()})
    expect(rows.locator("input").first).to_have_value("boat")
    expect(rows.locator("input").last).to_have_value("red bird")
    expect(page.locator("#together .unknown-pictures")).to_contain_text("2 of these 2 pictures look like photographs")
    expect(rows.locator(".pill", has_text="not a drawn scene")).to_have_count(2)
    page.click("[data-do=together-preset][data-preset=draft]")
    expect(page.locator("#together-steps")).to_have_value("3")
    page.click("[data-close-together]")
    # The file field accepts a folder too. Without a picture in the folder, nothing begins.
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "notes.txt").write_text("no picture")
    page.set_input_files("#folder-file", tmp_path / "letters")
    expect(page.locator("#upload-problem")).to_contain_text("no picture in this folder")
    expect(page.locator("#upload-problem")).to_contain_text("Left out (no picture): letters/notes.txt.")

    page.evaluate(PASTE, base64.b64encode(pictures["green"]).decode())
    expect(page.locator("#run-name")).to_have_value("image")


def test_back_and_forward_lead_to_start_page_run_and_image(studio: Studio, page: Page) -> None:
    run_id, other = text_run(studio), text_run(studio, name="other.png")
    draw(studio, run_id)
    oldest = studio.workspace.runs.get(run_id).test_cases[0].id

    def at(run: str, image: int | None = None) -> None:
        where = f"?run={run}" + (f"&image={image}" if image else "")
        page.wait_for_function(
            "where => location.href.endsWith(where) && window.studio?.idle", arg=where if run else "/"
        )
        if image:
            expect(page.locator(f".pictures[data-case='{image}']")).to_be_visible()
        expect(page.locator("#run-name" if run else ".start h1")).to_be_visible()

    page.goto(page.url.split("?")[0])  # the start page, as this browser saw it last
    at("")
    look(page)
    open_run(page, run_id)
    at(run_id)
    page.click(f"[data-key=case-{oldest}]")
    at(run_id, oldest)
    page.keyboard.press("ArrowLeft")  # paging through results adds no entry to the browser history
    at(run_id, oldest + 1)
    page.keyboard.press("ArrowRight")
    at(run_id, oldest)
    open_run(page, other)
    at(other)
    for way, where in (
        (page.go_back, (run_id, oldest)),
        (page.go_back, (run_id, None)),
        (page.go_back, ("", None)),
        (page.go_forward, (run_id, None)),
        (page.go_forward, (run_id, oldest)),
        (page.reload, (run_id, oldest)),
        (page.go_forward, (other, None)),
    ):
        way()
        at(*where)
    # Back also works across another page of the studio.
    page.evaluate("history.go(-3)")
    at("")
    page.evaluate("localStorage.setItem('studio-run', 'of another page')")
    page.click("nav a:has-text('Scripts')")
    page.wait_for_url("**/scripts")
    page.go_back()
    at("")
