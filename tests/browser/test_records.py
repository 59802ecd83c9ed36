"""Runs, saved files, masks and restarts in Chromium, with stand-ins for the models."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from core.png import with_texts
from core.types import Task
from pipeline.run_files.embedded import require_run_in
from services.studio import Studio
from tests.support.browser import settled
from tests.support.explorer import (
    Served,
    draw,
    encoded,
    fill,
    held_drawing,
    look,
    one_server,
    open_run,
    open_start,
    serving_stand_ins,
    state,
    upload,
)

NASTY = "<img src=x onerror=\"document.title='broken'\"> & <b>bold</b>"
DROP = """
([selector, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const dropped = new DataTransfer();
  dropped.items.add(new File([bytes], name, { type: "image/png" }));
  for (const kind of ["dragenter", "dragover", "drop"])
    document.querySelector(selector).dispatchEvent(
      new DragEvent(kind, { dataTransfer: dropped, bubbles: true, cancelable: true, composed: true }));
}
"""


served = one_server()


@pytest.fixture
def studio(served: Served, request: pytest.FixtureRequest) -> Studio:
    """Start page on a screen that is too narrow to show the list of runs by default."""
    served.page.set_viewport_size({"width": 1440, "height": 1000})
    return served.begin(request)


def drop(page: Page, selector: str, name: str, data: bytes) -> None:
    """Drag a file from outside onto an element and let go."""
    page.evaluate(DROP, [selector, name, base64.b64encode(data).decode()])


def new_run(studio: Studio, name: str, shade: int = 90) -> str:
    settings = studio.profile.settings.model_dump(mode="json")
    image = Image.new("RGB", (96, 64), (shade, 120, 200 - shade))
    return studio.workspace.runs.create(image, Task("classification", "bird"), "demo", name, settings)


def finished(page: Page, studio: Studio, name: str = "A red bird") -> str:
    """Open a run with four images."""
    run_id = new_run(studio, name)
    fill(studio, run_id)
    draw(studio, run_id)
    open_run(page, run_id)
    assert page.evaluate("studio.cases.length") == 4
    return run_id


def downloaded(page: Page, selector: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.click(selector)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def item(page: Page, run_id: str) -> Any:
    return page.locator(f".run-item[data-key=run-{run_id}]")


def test_runs_are_listed_found_named_and_duplicated(studio: Studio, page: Page) -> None:
    names = ["Möwe am Meer", "boat", "house", "kite", "mushroom", "lighthouse", NASTY]
    number = len(studio.runs.latest()) + len(names)
    runs = {name: new_run(studio, name, shade) for shade, name in enumerate(names)}
    page.set_viewport_size({"width": 1700, "height": 1000})
    look(page)
    page.wait_for_selector("#find-run")
    expect(page.locator(".run-item")).to_have_count(number)
    first = page.locator(".run-item").first
    expect(first).to_contain_text(NASTY)  # the newest run, whose name is shown as text
    expect(first).to_contain_text("not begun")
    expect(first).to_contain_text("bird · ")
    expect(first.locator(".when")).to_have_text(re.compile(r"^\d\d:\d\d$"))
    assert first.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 96
    assert page.locator(".run-item b b").count() == 0 and page.title() != "broken"

    page.fill("#find-run", "möwe")
    expect(page.locator(".run-item")).to_have_count(1)
    page.fill("#find-run", "no such")
    expect(page.locator("#found-none")).to_contain_text("No run has “no such”")
    page.press("#find-run", "Escape")
    expect(page.locator(".run-item")).to_have_count(number)

    gull = item(page, runs["Möwe am Meer"])
    gull.locator(".run").click()
    expect(page.locator("#run-name")).to_have_value("Möwe am Meer")
    expect(gull).to_have_class(re.compile(r"\bon\b"))
    gull.locator(".menu > summary").click()
    gull.locator("[data-rename-run]").click()
    page.wait_for_function("document.activeElement.id === 'run-name'")
    page.keyboard.type("Gull")
    page.keyboard.press("Enter")
    expect(item(page, runs["Möwe am Meer"]).locator("b")).to_have_text("Gull")
    # On a smaller window the list covers the page, but not its own text field.
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click("[data-toggle-runs]")
    gull.locator(".menu > summary").click()
    gull.locator("[data-rename-run]").click()
    page.wait_for_function("document.activeElement.id === 'run-name'")
    expect(page.locator("#column-runs")).to_be_hidden()
    page.set_viewport_size({"width": 1700, "height": 1000})

    gull.locator(".menu > summary").click()
    gull.locator("button:has-text('Duplicate')").click()
    expect(page.locator("#run-name")).to_have_value("Gull, copy")
    settled(page)
    assert page.evaluate("studio.run") not in runs.values()
    expect(page.locator(".run-item")).to_have_count(number + 1)

    shown = page.evaluate("studio.run")
    page.click("#select-runs")
    for name in ("boat", "kite"):
        item(page, runs[name]).locator(".run").click()
    settled(page)
    expect(page.locator("#picked-count")).to_have_text("2 selected")
    expect(item(page, runs["boat"]).locator("[data-pick-run]")).to_be_checked()
    assert page.evaluate("studio.run") == shown, "a run that is selected is not opened"
    assert page.locator("#save-picked").get_attribute("href") is None, "nothing is accepted in them"
    page.click("#delete-picked summary")
    page.click("[data-remove-picked]")
    expect(page.locator("#said")).to_contain_text("2 runs were deleted.")
    expect(page.locator("#picked")).to_be_hidden()
    expect(page.locator(".run-item")).to_have_count(number - 1)
    page.click("#said button:has-text('Undo')")
    expect(page.locator(".run-item")).to_have_count(number + 1)

    page.click("#edited-values summary")
    fill(studio, runs["boat"])
    look(page)
    expect(page.locator("#edited-values tr").first).to_have_text(re.compile(r"Caption\s*0 of \d+\s*0 %"))
    page.click("#edited-values summary")


def test_deleting_asks_again_and_can_be_undone(studio: Studio, page: Page) -> None:
    page.set_viewport_size({"width": 1700, "height": 1000})
    run_id, other = finished(page, studio), new_run(studio, "Another")
    mine = item(page, run_id)
    look(page)
    expect(item(page, other)).to_be_visible()
    mine.locator(".menu > summary").click()
    mine.locator(".ask > summary").click()
    expect(mine.locator(".asked")).to_contain_text("Delete “A red bird” with 4 results?")
    mine.locator("[data-keep-run]").click()
    expect(mine.locator(".asked")).to_be_hidden()
    assert not studio.workspace.runs.get(run_id).removed

    # With the keys alone: open the menu, and confirm.
    if not mine.locator(".menu").evaluate("menu => menu.open"):
        mine.locator(".menu > summary").press("Enter")
    mine.locator(".ask > summary").press("Enter")
    mine.locator("[data-remove-run]").press("Enter")
    page.wait_for_selector(".start h1")
    expect(mine).to_have_count(0)
    expect(page.locator("#said")).to_contain_text("“A red bird” was deleted.")
    assert studio.workspace.runs.get(run_id).removed

    # A page with the address of the deleted run says so. Undo brings the run back with all its images.
    second = page.context.new_page()
    second.goto(f"{page.url.split('?')[0]}?run={run_id}")
    expect(second.locator("#run-removed")).to_contain_text("This run was deleted.")
    page.click("#said button:has-text('Undo')")
    page.wait_for_selector("#results .thumb")
    assert page.locator("#results .thumb").count() == 4 and page.evaluate("studio.run") == run_id
    look(second)
    expect(second.locator("#run-removed")).to_have_count(0)
    second.close()

    # Deleted runs are listed below the others, also after a reload.
    studio.workspace.runs.remove(other)
    page.reload()
    page.wait_for_selector("#removed-runs")
    page.click("#removed-runs > summary")
    page.click("#removed-runs li:has-text('Another') button")
    expect(page.locator("#run-name")).to_have_value("Another")
    expect(page.locator("#removed-runs")).to_have_count(0)


def test_a_run_that_is_worked_on_is_not_deleted(studio: Studio, page: Page) -> None:
    page.set_viewport_size({"width": 1700, "height": 1000})
    run_id = new_run(studio, "Busy")
    fill(studio, run_id)
    open_run(page, run_id)
    with held_drawing(studio):
        page.click("#generate")
        expect(item(page, run_id)).to_contain_text("generating")
        item(page, run_id).locator(".menu > summary").click()
        item(page, run_id).locator(".ask > summary").click()
        expect(item(page, run_id).locator(".asked")).to_contain_text("cancel the work first")
        assert item(page, run_id).locator("[data-remove-run]").is_disabled()
        page.evaluate(
            "run => studio.send({ name: 'delete-run', fields: { run }, refused: (why) => studio.say(why) })", run_id
        )
        expect(page.locator("#said")).to_contain_text("This run is being worked on")
    assert not studio.workspace.runs.get(run_id).removed


def test_a_saved_image_restores_its_run_here_and_in_another_workspace(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    run_id = finished(page, studio, NASTY)
    page.locator("#results .thumb").nth(2).click()
    settled(page)
    name, data = downloaded(page, "#save-image")
    assert name.endswith(".png") and "<" not in name
    held = require_run_in(data)
    assert held.run.name == NASTY and held.case is not None
    shown = page.inner_text("#column-stages")
    case = page.evaluate("studio.view.case")
    page.keyboard.press("a")
    expect(page.locator("#save-accepted")).to_contain_text("Save 1 accepted")
    zipped, archive = downloaded(page, "#save-accepted")
    assert zipped.endswith(".zip") and archive[:2] == b"PK" and b"metadata.parquet" in archive

    # An image that is dropped on another run's page opens its own run, at that image.
    open_run(page, new_run(studio, "Another"))
    expect(page.locator("#run-name")).to_have_value("Another")
    number = len(studio.runs.latest())
    drop(page, "#column-pictures", name, data)
    expect(page.locator("#run-name")).to_have_value(NASTY)
    page.wait_for_function("wanted => studio.view.case === wanted", arg=case)
    assert page.evaluate("studio.run") == run_id and len(studio.runs.latest()) == number

    with serving_stand_ins(tmp_path / "elsewhere") as (url, elsewhere):
        open_start(page, url)
        upload(page, name, data)  # the file field of the start page
        expect(page.locator("#run-name")).to_have_value(NASTY)
        expect(page.locator("#said")).to_contain_text("was restored from the file")
        page.wait_for_selector("#results .thumb")
        settled(page)
        assert page.locator("#results .thumb").count() == 1
        assert [state(page, s) for s in ("caption", "keywords", "alternatives", "counterfactuals")] == ["ready"] * 4
        assert shown.split("Generate")[0] == page.inner_text("#column-stages").split("Generate")[0]
        restored = elsewhere.workspace.runs.get(run_id)
        assert Image.open(restored.test_cases[0].image_path).tobytes() == Image.open(io.BytesIO(data)).tobytes()
        assert page.title() != "broken"
        page.goto("about:blank")


def test_a_foreign_file_on_a_runs_page_is_refused_and_can_begin_a_run(studio: Studio, page: Page) -> None:
    run_id = new_run(studio, "A bird")
    open_run(page, run_id)
    number = len(studio.runs.latest())
    foreign = with_texts(encoded(Image.new("RGB", (64, 64), (9, 200, 9))), {"parameters": NASTY})
    drop(page, "#column-stages", f"{NASTY}.png", foreign)
    expect(page.locator("#said")).to_contain_text("There is no run in this file.")
    assert page.evaluate("studio.run") == run_id and len(studio.runs.latest()) == number
    page.click("#said button:has-text('Begin a run')")
    expect(page.locator("#run-name")).to_have_value(re.compile("<img src=x"))
    assert len(studio.runs.latest()) == number + 1 and page.title() != "broken"

    # A file with a damaged run and a file that is no picture get different messages.
    page.set_viewport_size({"width": 1700, "height": 1000})
    broken = with_texts(foreign, {"dillema-studio": '{"format": 2, "run": "<script>alert(1)</script>"}'})
    page.set_input_files("#run-file", {"name": "x.png", "mimeType": "image/png", "buffer": broken})
    expect(page.locator("#said")).to_contain_text("The run in this file is damaged or was changed by hand")
    page.click("#said button:has-text('Close')")
    page.evaluate("studio.send({ name: 'new' })")
    page.wait_for_selector(".start h1")
    drop(page, "#upload", "letter.png", b"dear reader")
    expect(page.locator("#upload-problem")).to_contain_text("The file is not an image")


def numbers(size: tuple[int, int], values: tuple[int, ...]) -> bytes:
    grid = np.repeat(np.array(values, np.uint8), size[0] // len(values) + 1)[: size[0]]
    return encoded(Image.fromarray(np.tile(grid, (size[1], 1))))


def give_mask(page: Page, data: bytes) -> None:
    page.set_input_files("#mask-file", {"name": "mask.png", "mimeType": "image/png", "buffer": data})


def test_a_mask_is_taken_named_shown_and_exported(studio: Studio, page: Page) -> None:
    run_id = finished(page, studio)
    page.click(".chip:has-text('segmentation')")
    page.wait_for_selector("#mask-file", state="attached")
    assert page.locator("#save-mask").count() == 0

    give_mask(page, numbers((64, 96), (0, 1)))
    expect(page.locator("#mask-problem")).to_contain_text("The mask has 64x96 pixels and the source image 96x64")
    give_mask(page, numbers((96, 64), (0, 40, 41)))
    expect(page.locator("#mask-problem")).to_contain_text("class numbers without a name: 40, 41")
    assert studio.workspace.runs.get(run_id).mask_sha is None

    # With names for all classes, the same mask is accepted.
    page.fill("#mask-classes", f"0 sky, 40 {NASTY}")
    page.press("#mask-classes", "Enter")
    expect(page.locator("#mask-problem")).to_contain_text("a class number without a name: 41")
    page.fill("#mask-classes", f"0 sky, 40 road, 41 {NASTY[:40]}")
    page.press("#mask-classes", "Enter")
    expect(page.locator(".mask .legend")).to_contain_text("<img src=x")
    expect(page.locator("#mask-problem")).to_be_empty()
    run = studio.workspace.runs.get(run_id)
    assert run.mask_classes[40] == "road"
    over = page.locator(".mask .overlay .over")
    over.evaluate("image => image.decode()")
    assert over.evaluate("image => image.naturalWidth") == 96

    name, data = downloaded(page, "#save-mask")
    assert name.endswith(".zip") and data[:2] == b"PK"
    drop(page, ".mask", "mask.png", numbers((192, 128), (0, 40)))
    expect(page.locator("#said")).to_contain_text("The mask was brought from 192x128 to the 96x64 pixels")
    page.reload()
    page.wait_for_selector(".mask .legend")
    page.click("#delete-mask")
    expect(page.locator(".mask .legend")).to_have_count(0)
    assert studio.workspace.runs.get(run_id).mask_sha is None and page.title() != "broken"


def test_a_sample_of_a_road_brings_its_mask(studio: Studio, page: Page) -> None:
    page.click(".sample[data-sample=street-two-cars]")
    page.wait_for_selector(".mask .legend")
    expect(page.locator(".mask .legend .class.kept")).to_have_count(5)
    expect(page.locator(".mask .legend")).to_contain_text("lane marking")
    small = page.locator(".mask .overlay").bounding_box()
    page.click(".mask .overlay")
    large = page.locator(".mask .overlay").bounding_box()
    assert small is not None and large is not None and large["width"] > 4 * small["width"]
    run = studio.workspace.runs.get(page.evaluate("studio.run"))
    assert run.mask_sha is not None and run.mask_classes[7] == "vehicle"


def test_two_pages_of_one_run_show_the_same(studio: Studio, page: Page) -> None:
    run_id = finished(page, studio)
    second = page.context.new_page()
    second.goto(page.url)
    second.wait_for_selector("#results .thumb")
    page.fill("#run-name", NASTY)
    page.press("#run-name", "Enter")
    expect(second.locator("#run-name")).to_have_value(NASTY)  # the second page polls by itself
    second.fill("#caption-text", "A red bird in snowy weather by day. The ground is grassy.")
    second.press("#caption-text", "Enter")
    settled(second)
    look(page)
    expect(page.locator("#caption-text")).to_have_value(re.compile("snowy"))
    expect(page.locator("#state-keywords")).to_contain_text("stale")
    second.close()
    assert studio.workspace.runs.get(run_id).name == " ".join(NASTY.split())
