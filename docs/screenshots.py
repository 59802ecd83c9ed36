"""Takes the pictures of the pages: `make screenshots` writes them into `docs/`.

In temporary workspaces, it makes the example for the README's tour, and takes a sample through the five stages with the
embedded models. The README and the guides show `docs/*.png`, and the guide for beginners shows `docs/steps/`.
`docs/screens/`, which is not in the repository, is for people who design pages: all states at two widths, light and
dark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

from docs import batches_screenshots, example_screenshots, study_screenshots
from docs.camera import Camera
from tests.support.browser import browsing, settled
from tests.support.chromium import ADVICE, find_chromium
from tests.support.server_process import ServerProcess

FOLDER = Path(__file__).resolve().parent
SAMPLE = "street-two-cars"
UNUSED = ("blue", "grassy")
"""Keywords that the script switches off. So the pictures show a person's edit, and stale stages."""
SLOWEST = 600_000
"""Timeout in milliseconds for a stage, long enough for a busy machine."""


def take(page: Page, url: str, folder: Path) -> Iterator[Path]:
    """Take the pictures of the Explore page, and yield their files one after another."""
    camera = Camera(page, folder)
    for scene in (_start, _to_the_gate, _edits, _drawing, _results):
        scene(page, url, camera)
        yield from camera.taken()


def _start(page: Page, url: str, camera: Camera) -> None:
    page.goto(f"{url}?run=")
    page.wait_for_selector(".start h1")
    settled(page)
    camera.states("1-start")
    camera.step("1-start", ".samples")
    page.click(f".sample[data-sample={SAMPLE}]")
    page.wait_for_selector("#run-all:enabled")
    settled(page)
    camera.states("2-source")
    camera.step("2-task", "#source")


def _to_the_gate(page: Page, _url: str, camera: Camera) -> None:
    page.click("#run-all")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    settled(page, SLOWEST / 1000)
    camera.states("3-at-the-gate")
    camera.step("3-caption", "#stage-caption")


def _edits(page: Page, _url: str, camera: Camera) -> None:
    for word in UNUSED:
        page.locator(f"#stage-keywords .chip.on:has-text('{word}') .toggle").first.click()
        settled(page)
    page.wait_for_selector("#state-counterfactuals[data-state=stale]")
    camera.states("4-stale")
    camera.step("4-keywords", "#stage-keywords")
    page.click("#from-alternatives")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    settled(page, SLOWEST / 1000)
    camera.step("5-alternatives", "#stage-alternatives")
    camera.step("6-counterfactuals", "#stage-counterfactuals")
    camera.step("7-gate", "#stage-generation")
    page.click("#toggle-conditioning")
    page.wait_for_selector("#control-preview[src]")
    settled(page)
    camera.states("5-conditioning", at="#stage-generation")
    page.click("#toggle-conditioning")


def _drawing(page: Page, _url: str, camera: Camera) -> None:
    page.click("#generate")
    page.wait_for_selector("#queue")
    page.wait_for_selector("#results .thumb[data-view-case]", timeout=SLOWEST)
    camera.states("6-drawing")
    page.wait_for_selector("#generate", timeout=SLOWEST)
    settled(page, SLOWEST / 1000)


def _results(page: Page, _url: str, camera: Camera) -> None:
    page.click("#tile-slider")
    page.wait_for_selector("#big-slider")
    settled(page)
    camera.states("7-results")
    camera.step("8-look", "#column-pictures")
    page.keyboard.press("a")
    page.wait_for_selector("#verdict")
    settled(page)
    camera.step("9-accept", "#review")
    page.keyboard.press("?")
    page.wait_for_selector("#keys-window")
    camera.states("8-keys")


def shoot(chromium: str, folder: Path) -> Iterator[Path]:
    """Start a server, take all pictures of the Explore page, and yield their files."""
    with tempfile.TemporaryDirectory() as place:
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                yield from take(page, server.url, folder)
        finally:
            server.stop()


PAGES = {
    "explore": shoot,
    "example": example_screenshots.shoot,
    "study": study_screenshots.shoot,
    "batches": batches_screenshots.shoot,
}


def main() -> int:
    """Take the pictures and print their files. Return the exit code: 2 if no browser is found."""
    parser = argparse.ArgumentParser(prog="python -m docs.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures (docs)")
    parser.add_argument("--only", choices=PAGES, help="take only the pictures of one part of the studio")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE, file=sys.stderr)
        return 2
    for name, shoot_page in PAGES.items():
        if options.only in (None, name):
            for path in shoot_page(chromium, options.out):
                print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
