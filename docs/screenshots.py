"""Makes the pictures of the pages that the documentation shows: `python -m docs.screenshots` writes them into `docs/`.

Walks a sample through the five stages with the embedded models, in a workspace that is thrown away.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from tests.chromium import ADVICE, find_chromium
from tests.serving import ServerProcess, browsing, settled

FOLDER = Path(__file__).resolve().parent
SAMPLE = "street-two-cars"
UNUSED = ("blue", "grassy")
"""Keywords that are left out, so that the pictures show an edit by a person and stale stages."""
SLOWEST = 600_000
"""Milliseconds that a stage may take on a busy machine."""


def take(page: Page, url: str, folder: Path) -> list[Path]:
    """The pictures, in the order in which they are made."""
    made: list[Path] = []

    def shoot(name: str, width: int, height: int, dark: bool) -> None:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
        page.evaluate("window.scrollTo(0, 0)")
        page.mouse.move(0, 0)
        page.wait_for_timeout(800)
        page.screenshot(path=folder / name)
        made.append(folder / name)

    page.goto(f"{url}?run=")
    page.wait_for_selector(".start h1")
    settled(page)
    shoot("start.png", 1440, 900, dark=False)
    page.click(f".sample[data-sample={SAMPLE}]")
    page.wait_for_selector("#run-all:enabled")
    page.click("#run-all")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    for word in UNUSED:
        page.locator(f"#stage-keywords .chip.on:has-text('{word}') .toggle").first.click()
        settled(page)
    page.wait_for_selector("#state-counterfactuals[data-state=stale]")
    shoot("explore-stale.png", 1280, 1180, dark=True)
    page.click("#run-alternatives")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    page.click("#generate")
    page.wait_for_selector("#cancel")
    page.wait_for_selector("#generate", timeout=SLOWEST)
    settled(page, SLOWEST / 1000)
    page.click("#tile-slider")
    page.wait_for_selector("#big-slider")
    shoot("explore.png", 1920, 1180, dark=False)
    shoot("explore-dark.png", 1280, 1180, dark=True)
    return made


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the pictures (docs)")
    folder: Path = parser.parse_args().out
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE, file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start()
        try:
            with browsing(chromium) as page:
                for path in take(page, server.url, folder):
                    print(path)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
