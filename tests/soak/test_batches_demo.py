"""A batch with the embedded models in processes of its own, from the page."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from playwright.sync_api import expect

from demo.render import render
from demo.scene import random_scene
from tests.support.batch_cases import plan_text, planned
from tests.support.browser import chromium_running
from tests.support.demo_server import browsing_demo

PATIENCE = 300_000
"""Maximum number of milliseconds. Two processes load models one after the other on a machine that may be busy."""


def test_processes_of_this_machine_make_the_images_of_a_batch(chromium_path: str, tmp_path: Path) -> None:
    for number in range(2):
        scene = random_scene(777_000 + number, "object")
        folder = tmp_path / "data" / scene.label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, 64)[0]).save(folder / f"{number}.png")
    with chromium_running(chromium_path) as browser, browsing_demo(browser, tmp_path) as (page, url, studio):
        number = planned(studio, plan_text(tmp_path / "data", "Drawn things", "[run]\nworkers = 1\n", captions=1))
        page.goto(f"{url}batches/{number}")
        page.click("#begin-batch")
        page.get_by_role("button", name="Approve and draw 2 images").click(timeout=PATIENCE)
        expect(page.locator("#state")).to_have_text("done", timeout=PATIENCE)
        expect(page.locator("#part-latest a[data-case]")).to_have_count(2)
        assert studio.workspace.images.load(studio.batches.details(number).latest[0][1]).size == (64, 64)
