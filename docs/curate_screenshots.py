"""Makes the pictures of Curate for `docs/`: the gallery, one image large, coverage, the map, a test set."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

from cli.test_sets import main as test_sets
from docs.camera import Camera
from storage.workspace import Workspace
from tests.support.browser import browsing
from tests.support.drawn import fill
from tests.support.server_process import ServerProcess

SCENES, VARIANTS, PIXELS = 160, 6, 256
NAME = "drawn-hard"
SLOWEST = 300_000
_MAP_WHOLE = """window.map?.ready && map.counts.length
    && document.getElementById("point-words").textContent === "images on the map" """


def shoot(chromium: str, folder: Path) -> Iterator[Path]:
    """All of them, on a server of their own."""
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "workspace"
        with Workspace(workspace) as opened:
            fill(opened, SCENES, VARIANTS, pixels=PIXELS)
        for arguments in (
            ("create", NAME),
            ("add", NAME, "--filter", "review=accepted", "--sources"),
            ("split", NAME, "--validation", "0.2", "--test", "0.8"),
            ("release", NAME, "--note", "The first."),
            ("draft", NAME),
        ):
            test_sets(["--workspace", str(workspace), *arguments])
        server = ServerProcess(workspace, Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                yield from _take(page, server.url, folder)
        finally:
            server.stop()


def _take(page: Page, url: str, folder: Path) -> Iterator[Path]:
    camera = Camera(page, folder)
    page.goto(f"{url}curate/?-kind=segmentation")
    _idle(page)
    page.locator(".cell").nth(8).click()
    page.locator('details.check[data-check="label seen"] summary').click()
    page.wait_for_selector("svg.bars")
    _idle(page)
    camera.page("curate", 1920, dark=True)
    camera.states("curate-1-gallery")
    page.locator("#grid").focus()  # a heading that was pressed keeps Enter for itself
    page.keyboard.press("Enter")
    page.wait_for_selector("#large-result")
    page.wait_for_function("document.getElementById('large-result').naturalWidth > 0")
    camera.states("curate-2-large")
    page.goto(f"{url}curate/coverage")
    page.wait_for_selector("table")
    camera.states("curate-3-coverage")
    page.goto(f"{url}curate/map")
    page.wait_for_function(_MAP_WHOLE, timeout=SLOWEST)
    camera.states("curate-4-map")
    page.goto(f"{url}curate/sets")
    camera.states("curate-5-sets")
    page.get_by_text(NAME).first.click()
    page.wait_for_selector("main img")
    page.wait_for_load_state("networkidle")
    camera.page("test-set", 1440)
    camera.states("curate-6-set")
    page.goto(f"{url}curate/import")
    camera.states("curate-7-import")
    yield from camera.taken()


def _idle(page: Page) -> None:
    page.wait_for_function("window.gallery?.review && gallery.idle", timeout=SLOWEST)
