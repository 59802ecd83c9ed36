"""Takes pictures of the pages of batches for `docs/`: a new plan, captions to approve, a running batch, the list."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from demo.render import render
from demo.scene import random_scene
from docs.camera import Camera
from tests.support.browser import browsing
from tests.support.server_process import ServerProcess

SOURCES, PIXELS = 40, 160
SOME = 24
"""Minimum number of images that the batch has made when its picture is taken."""
JUDGED = 12
"""Number of images that are reviewed before the batch's screenshot is taken."""
SLOWEST = 600_000
"""Timeout in milliseconds for each step of the batch, long enough for a busy machine."""
PLAN = """name = "Drawn things in other weather"

[data]
root = "{root}"
layout = "imagefolder"
split = "test"

[task]
kind = "classification"

[make]
profile = "demo"

[edits]
captions_a_source = 3

[cost]
price_an_hour = 1.0
currency = "USD"
"""


def shoot(chromium: str, folder: Path) -> Iterator[Path]:
    """Start a server, take all pictures of the pages of batches, and yield their files."""
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "drawn"
        _draw(data)
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                yield from _take(page, server.url, folder, PLAN.format(root=data))
        finally:
            server.stop()


def _draw(root: Path) -> None:
    """Write a data set of drawn pictures, one folder per class. Add a file that is no picture to one class folder."""
    for number in range(SOURCES):
        scene = random_scene(555_000 + number, "object")
        of_class = root / "test" / scene.label
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, PIXELS)[0]).save(of_class / f"{number:05d}.png")
    (of_class / "broken.png").write_bytes(b"no picture")


def _take(page: Page, url: str, folder: Path, plan: str) -> Iterator[Path]:
    camera = Camera(page, folder)
    page.goto(f"{url}batches/")
    camera.states("batches-1-none")
    page.click("#new")
    _ready(page)
    camera.states("batches-2-new")
    page.get_by_role("button", name="ImageNet-1K, as in the paper").click()
    page.fill("#f-plan", plan)
    page.get_by_role("button", name="SHIFT, as in the paper").click()
    camera.states("batches-3-replace")
    page.click("#keep")
    page.click("#plan-it")
    page.wait_for_selector("#begin-batch", timeout=SLOWEST)
    _ready(page)
    camera.states("batches-4-planned")
    page.click("#begin-batch")
    page.wait_for_selector("#approve-batch", timeout=SLOWEST)
    camera.states("batches-5-yes")
    page.click("#approve-batch")
    page.wait_for_function(
        f"parseInt(document.querySelector('[data-pass=images] .told').textContent) >= {SOME}", timeout=SLOWEST
    )
    _judge(page, url)
    page.wait_for_selector(f"#part-figures :text('of {JUDGED} judged')")
    page.wait_for_function(
        "[...document.querySelectorAll('.latest img')].every((one) => one.naturalWidth > 0)", timeout=SLOWEST
    )
    camera.page("batches", 1440)
    camera.states("batches-6-at-work")
    page.click("#pause-batch")
    page.wait_for_selector("#state[data-state=paused]", timeout=SLOWEST)
    camera.states("batches-7-paused")
    page.goto(f"{url}batches/")
    _ready(page)
    camera.states("batches-8-list")
    page.go_back()
    page.click("#to-curate")
    page.wait_for_function("window.gallery?.idle", timeout=SLOWEST)
    camera.states("batches-9-curate")
    yield from camera.taken()


def _judge(page: Page, url: str) -> None:
    """Accept all but one of the first `JUDGED` images and reject one, so that the page shows a cost per valid image."""
    for entries, verdict in ((list(range(1, JUDGED)), "accepted"), ([JUDGED], "rejected")):
        sent = {"data": {"entries": entries, "verdict": verdict}}
        assert page.request.post(f"{url}gradio_api/run/decide", data=sent).ok


def _ready(page: Page) -> None:
    page.wait_for_function("window.batches?.ready")
