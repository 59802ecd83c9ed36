"""Takes the pictures for the README's tour, which show the workspace that `make example` fills."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, expect

from core.errors import UserError
from core.stored_studies import Candidate
from docs.camera import Camera
from experiments.example import main as make_example
from storage.workspace import Workspace
from tests.support.browser import browsing, settled
from tests.support.server_process import ServerProcess

WIDTH = 1440
SLOWEST = 600_000
"""Timeout in milliseconds of a page, long enough for a busy machine."""
_MAP_WHOLE = """window.map?.ready && map.counts.length
    && document.getElementById("point-words").textContent === "images on the map" """


def shoot(chromium: str, folder: Path) -> Iterator[Path]:
    """Make the example workspace, start a server on it, take all pictures, and yield their files."""
    with tempfile.TemporaryDirectory() as place:
        filled = Path(place) / "workspace"
        if make_example(["--workspace", str(filled)]):
            raise UserError("The example was not made. The messages above say why.")
        with Workspace(filled) as opened:
            shown = _newly_wrong(opened)
        server = ServerProcess(filled, Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                yield from _take(page, server.url, folder, shown)
        finally:
            server.stop()


def _newly_wrong(workspace: Workspace) -> Candidate:
    """Return an accepted test case, if possible one whose edit turned a right prediction into a wrong one."""
    accepted = [one for one in workspace.test_cases.candidates() if one.verdict == "accepted" and one.label]
    wrong = [
        one
        for one in accepted
        for of_source, of_case in one.predictions.values()
        if of_source and of_case and of_source.top[0].label == one.label != of_case.top[0].label
    ]
    return (wrong or accepted)[0]


def _take(page: Page, url: str, folder: Path, shown: Candidate) -> Iterator[Path]:
    camera = Camera(page, folder)
    page.goto(f"{url}?run={shown.run_id}")
    page.click(f"#results [data-view-case='{shown.test_case}']")
    settled(page)
    page.wait_for_function("!studio.predicting")
    camera.page("explore", WIDTH)
    camera.states("example-explore")
    page.goto(f"{url}?run=")
    page.wait_for_selector(".start h1")
    camera.states("example-start")
    yield from camera.taken()

    page.goto(f"{url}curate/?kind=classification&-recipe=reconstruction")
    _idle(page)
    page.locator(".cell").nth(5).click()
    page.wait_for_selector("#detail[data-entry]")
    _pictures(page)
    camera.page("curate", WIDTH)
    camera.states("example-gallery")
    page.locator("#grid").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('large-result')?.naturalWidth > 0")
    camera.states("example-large")
    page.goto(f"{url}curate/coverage")
    page.wait_for_selector("table")
    camera.states("example-coverage")
    page.goto(f"{url}curate/map")
    page.wait_for_function(_MAP_WHOLE, timeout=SLOWEST)
    camera.states("example-map")
    page.goto(f"{url}curate/sets")
    camera.states("example-sets")
    page.get_by_role("link", name="Example: drawn things").first.click()
    page.wait_for_selector("#set")
    if page.locator("#next").count():  # without this button there is a draft already
        page.click("#next")
    expect(page.locator("#before-release")).to_be_visible()
    _pictures(page)
    camera.page("test-set", WIDTH)
    camera.states("example-set")
    yield from camera.taken()

    page.goto(f"{url}evaluate/")
    camera.states("example-evaluate")
    page.goto(f"{url}?run=")
    page.get_by_role("link", name="Evaluation: drawn things").click()
    page.wait_for_selector("#orders", timeout=SLOWEST)
    _pictures(page)
    camera.page("evaluate", WIDTH)
    camera.states("example-answer")
    page.goto(f"{url}study/")
    camera.states("example-studies")
    page.get_by_role("link", name="Example: drawn things").first.click()
    page.wait_for_selector("#part-timeline")
    _pictures(page)
    camera.page("study-results", WIDTH)
    camera.states("example-results")
    page.get_by_role("link", name="Workers").click()
    page.wait_for_selector(".workers")
    _pictures(page)
    camera.page("study-workers", WIDTH)
    camera.states("example-workers")
    page.goto(f"{url}batches/")
    camera.states("example-batches")
    yield from camera.taken()


def _idle(page: Page) -> None:
    page.wait_for_function("window.gallery?.review && gallery.idle", timeout=SLOWEST)


def _pictures(page: Page) -> None:
    page.evaluate("for (const one of document.images) one.loading = 'eager'")
    page.wait_for_function("[...document.images].every((one) => one.complete)")
