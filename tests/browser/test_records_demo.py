"""Runs, files, restarts and masks in Chromium with the embedded models, for one road scene."""

from __future__ import annotations

import io
import re
import shutil
import signal
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from pipeline.run_files.embedded import require_run_in
from storage.workspace import Workspace
from tests.browser.test_records import downloaded, drop, item
from tests.support.browser import page_in, settled
from tests.support.demo_server import browsing_demo, no_call_leaves
from tests.support.explorer import DEMO_SECONDS, mark_page, open_start, reloaded_by_itself, serving_stand_ins, upload
from tests.support.server_process import ServerProcess
from tests.support.serving import until
from tests.ui.scripts.test_scripting import ROOT, said

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SLOWEST = DEMO_SECONDS * 1000
SAMPLE = "street-two-cars"


@dataclass
class Street:
    """Finished run of the sample, on a page with its own server."""

    url: str
    page: Page
    run_id: str


def drawn(page: Page, url: str) -> Street:
    """Fill the text stages of the sample on the page and draw two images."""
    page.set_viewport_size({"width": 1700, "height": 1000})
    open_start(page, url)
    page.click(f".sample[data-sample={SAMPLE}]")
    page.wait_for_selector("#run-all:enabled")
    page.evaluate("studio.send({ name: 'setting', fields: { setting: 'counterfactuals.captions', value: 2 } })")
    page.click("#run-all")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    page.evaluate("studio.send({ name: 'setting', fields: { setting: 'generation.steps', value: 4 } })")
    settled(page, DEMO_SECONDS)
    page.click("#generate")
    page.wait_for_function("studio.cases.length === 2", timeout=SLOWEST)
    page.evaluate("studio.send({ name: 'default-settings', fields: { sections: 'generation' } })")
    settled(page, DEMO_SECONDS)
    return Street(url, page, page.evaluate("studio.run"))


@pytest.fixture(scope="module")
def street(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    """Finished run of the sample. Fails if the server calls anything outside this machine."""
    with no_call_leaves(), browsing_demo(browser, tmp_path_factory.mktemp("street"), mcp=True) as (page, url, _):
        yield drawn(page, url)


@pytest.mark.soak
def test_the_run_is_duplicated_deleted_and_put_back(street: Street) -> None:
    page, mine = street.page, item(street.page, street.run_id)
    expect(mine).to_contain_text("2 results")
    mine.locator(".menu > summary").press("Enter")
    mine.locator("button:has-text('Duplicate')").press("Enter")
    expect(page.locator("#run-name")).to_have_value(f"{SAMPLE}, copy")
    page.wait_for_selector("#generate:enabled")  # the copy has the captions, but not the images
    settled(page, DEMO_SECONDS)
    assert page.evaluate("studio.cases") == []
    assert page.locator("#stage-counterfactuals .line").count() == 2

    mine.locator(".menu > summary").click()
    mine.locator(".ask > summary").click()
    mine.locator("[data-remove-run]").click()
    expect(mine).to_have_count(0)
    page.click("#said button:has-text('Undo')")
    page.wait_for_function("studio.cases.length === 2")
    expect(page.locator("#run-name")).to_have_value(SAMPLE)


@pytest.mark.soak
def test_a_saved_image_brings_its_run_to_another_workspace(street: Street, tmp_path: Path) -> None:
    page = street.page
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", street.run_id)
    page.wait_for_selector("#save-image")
    # The check of the mask by the model under test is saved with the image.
    expect(page.locator("#checks")).to_contain_text(re.compile(r"masked things in place 0\.\d\d"), timeout=SLOWEST)
    settled(page, DEMO_SECONDS)
    name, data = downloaded(page, "#save-image")
    image = Image.open(io.BytesIO(data))
    assert "Sampler: " in image.info["parameters"] and "trainedAlgorithmicMedia" in image.info["XML:com.adobe.xmp"]
    caption = page.input_value("#caption-text")

    with serving_stand_ins(tmp_path / "workspace") as (url, _):  # the image file holds the whole run
        open_start(page, url)
        drop(page, ".start", name, data)
        expect(page.locator("#said")).to_contain_text(f"The run “{SAMPLE}” was restored")
        page.wait_for_selector("#results .thumb")
        assert page.input_value("#caption-text") == caption
        for stage in ("caption", "keywords", "alternatives", "counterfactuals"):
            expect(page.locator(f"#state-{stage}")).to_have_text("ready")
        expect(page.locator(".mask .legend")).to_contain_text("lane marking")
        settled(page, DEMO_SECONDS)
        expect(page.locator("#checks .pill", has_text="masked things in place")).to_have_count(1)
        assert downloaded(page, "#save-image")[1] == data, "what comes back is what was saved, byte for byte"
        page.goto(f"{street.url}?run={street.run_id}")
        page.wait_for_selector("#save-image")


def test_the_mask_of_the_sample_lies_over_source_and_result_and_is_exported(street: Street) -> None:
    page = street.page
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", street.run_id)
    expect(page.locator(".mask .legend .class.kept")).to_have_count(5)
    page.click("[data-view-mode=mask]")
    over = page.locator(".large .over").first
    over.evaluate("image => image.decode()")
    assert over.evaluate("image => image.naturalWidth") == 128
    settled(page, DEMO_SECONDS)
    name, data = downloaded(page, "#save-mask")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        image, mask, _classes = archive.namelist()
        numbers = Image.open(io.BytesIO(archive.read(mask)))
        assert numbers.size == Image.open(io.BytesIO(archive.read(image))).size and name.endswith(".zip")
        truth = Image.open(Path("demo/samples") / f"{SAMPLE}.mask.png")
        assert np.array_equal(np.asarray(numbers), np.asarray(truth))
        assert require_run_in(archive.read(image)).mask is not None


def test_a_script_and_an_agent_beside_the_page(street: Street, tmp_path: Path) -> None:
    """Run the first script of docs/scripting.md and the agent's script, unchanged, against a served studio."""
    (tmp_path / "demo" / "samples").mkdir(parents=True)
    shutil.copy(ROOT / "demo" / "samples" / "lighthouse.png", tmp_path / "demo" / "samples")
    saved = Path(said("From a picture to an accepted test case", street.url, tmp_path).strip())
    assert saved.name.startswith("lighthouse-") and require_run_in(saved.read_bytes()).mask is None
    mine = street.page.locator(".run-item", has_text="lighthouse")
    expect(mine).to_contain_text("1 result")
    mine.locator("a.run").click()
    expect(street.page.locator("#review")).to_contain_text("accepted")
    assert said("An agent by MCP", street.url, tmp_path).count("image/png") == 4
    expect(street.page.locator(".run-item", has_text="4 of 4 results accepted")).to_contain_text("lighthouse")


@pytest.mark.soak
def test_a_foreign_file_is_refused_beside_the_embedded_models(street: Street) -> None:
    page = street.page
    page.evaluate("studio.send({ name: 'new' })")
    page.wait_for_selector(".start h1")
    upload(page, "letter.png", b"dear reader")
    expect(page.locator("#upload-problem")).to_contain_text("not an image")
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (9, 9, 200)).save(file, "PNG")
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", street.run_id)
    page.wait_for_selector("#save-image")
    drop(page, "#column-stages", "<b>x</b>.png", file.getvalue())
    expect(page.locator("#said")).to_contain_text("There is no run in this file.")


@pytest.mark.soak
def test_the_server_is_killed_and_the_page_goes_on(browser: Browser, tmp_path: Path) -> None:
    """The server is killed while it draws, then started again. The open page and a new one show what was saved."""
    server = ServerProcess(tmp_path / "workspace", tmp_path / "log").start()
    try:
        with page_in(browser, in_the_open=True) as page:
            killed_and_gone_on_with(server, drawn(page, server.url))
            page.goto("about:blank")
    finally:
        server.stop()
    assert "Traceback" not in server.said()
    for image in (server.workspace / "images").iterdir():  # every file is whole, although the kill came while saving
        assert image.suffix == ".png" and Image.open(image).convert("RGB").size == (128, 128)


def killed_and_gone_on_with(server: ServerProcess, street: Street) -> None:
    page = street.page
    page.evaluate("studio.send({ name: 'setting', fields: { setting: 'generation.steps', value: 24 } })")
    settled(page, DEMO_SECONDS)
    page.click("#generate")
    with Workspace(server.workspace) as workspace:  # the page may report an image when the next one is there already
        until(lambda: len(workspace.runs.get(street.run_id).test_cases) == 3)
        server.stop(signal.SIGKILL)
    mark_page(page)
    # The page reports the loss at once, not only after twenty seconds, when a reply counts as overdue.
    page.wait_for_function("document.body.classList.contains('lost')", timeout=15_000)
    server.start()
    # The page finds the server again without the user.
    reloaded_by_itself(page)
    expect(page.locator("#run-interrupted")).to_contain_text(
        "The studio was stopped while it generated: 1 of 2 images are saved", timeout=120_000
    )
    expect(page.locator("#state-generation")).to_contain_text("interrupted: ")
    page.wait_for_function("!document.body.classList.contains('lost')")
    expect(item(page, street.run_id).locator(".state")).to_contain_text("interrupted")
    assert page.evaluate("studio.cases.length") == 3
    page.click("#go-on")
    expect(page.locator("#state-generation")).to_have_text("running")
    page.wait_for_function("studio.cases.length === 4", timeout=SLOWEST)
    settled(page, DEMO_SECONDS)
    expect(page.locator("#run-interrupted")).to_have_count(0)
    expect(page.locator("#state-generation")).to_have_text("ready")
    with Workspace(server.workspace) as workspace:
        assert [job.state for job in workspace.runs.get(street.run_id).jobs][-2:] == ["interrupted", "done"]
