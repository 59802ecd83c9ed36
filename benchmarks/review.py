"""A review of 1,200 images by keys in headless Chromium. The server is killed in the middle; no decision may be lost.

`python -m benchmarks.review` runs this alone; `--images` sets their number.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.figures import Figure, reported
from benchmarks.gallery import SCREEN, SLOWEST
from core.catalogue import Order
from storage.workspace import Workspace
from tests.support.browser import CHROMIUM_ARGUMENTS
from tests.support.chromium import ADVICE, find_chromium
from tests.support.drawn import fill
from tests.support.server_process import ServerProcess

IMAGES = 1200
VARIANTS = 5
PERCEIVED = 100.0
"""Maximum milliseconds from a key press until the large view shows the next image."""
WITHOUT_SERVER = 25
"""Number of decisions made while the server is down."""
_REASONS = ("label no longer right", "edit does not show", "not realistic", "other")

# From the key to the frame that shows the next image, decoded.
_WATCH = """
() => {
  const image = document.getElementById("large-result"), before = gallery.current;
  window.decided = new Promise((done) => {
    let start = 0;
    addEventListener("keydown", () => { start = performance.now(); }, { capture: true, once: true });
    const look = () => {
      const now = gallery.now();
      const shown = now && image.dataset.sha === now.sha && image.complete;
      if (!start || gallery.current === before || !shown) { requestAnimationFrame(look); return; }
      image.decode().finally(() => requestAnimationFrame(() => done(performance.now() - start)));
    };
    look();
  });
}
"""


def measure(chromium: str, images: int = IMAGES) -> list[Figure]:
    """Review `images` images and return the figures. Raises AssertionError if a decision is lost or wrong."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "workspace"
        with Workspace(folder) as workspace:
            fill(workspace, images // VARIANTS, VARIANTS)
            number = workspace.catalogue.count().number
        server = ServerProcess(folder, Path(place) / "log").start()
        began = time.monotonic()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_ARGUMENTS))
                page = browser.new_context(viewport=SCREEN, bypass_csp=True).new_page()  # type: ignore[arg-type]
                decisions, times = _decide_all(page, server, number)
                browser.close()
        finally:
            server.stop()
        taken = time.monotonic() - began
        with Workspace(folder) as workspace:
            found = {
                one.id: (one.verdict, one.reason)
                for at in range(0, number, 100)
                for one in workspace.catalogue.page(order=Order(), limit=100, at=at).entries
            }
    lost = {entry: decision for entry, decision in decisions.items() if found[entry] != decision}
    assert len(decisions) == number and not lost, f"{len(lost)} of {len(decisions)} decisions were lost"
    print(f"{number:,} decisions in {taken:.0f} s, none lost; {3600 * number / taken:,.0f} an hour", flush=True)
    return [Figure("from a key to the next image, in a review by keys", tuple(times), PERCEIVED, share=0.95)]


def _decide_all(page: Page, server: ServerProcess, number: int) -> tuple[dict[int, tuple[str, str]], list[float]]:
    """Decide `number` images by keys. Return the decisions by image, and the milliseconds to show another image."""
    fate, decisions, times = random.Random(7), dict[int, tuple[str, str]](), list[float]()
    page.goto(f"{server.url}curate/")
    page.wait_for_function("window.gallery?.review && gallery.idle", timeout=SLOWEST)
    page.keyboard.press("Enter")
    for place in range(number):
        if place == number // 2:
            server.stop(signal.SIGKILL)
        if place == number // 2 + WITHOUT_SERVER:
            server.start()
        up = not number // 2 <= place < number // 2 + WITHOUT_SERVER
        page.wait_for_function("place => gallery.current === place && gallery.now()", arg=place, timeout=SLOWEST)
        entry = int(page.evaluate("gallery.now().id"))
        watched = up and place + 1 < number
        if watched:
            page.evaluate(_WATCH)
        if fate.random() < 0.6:
            page.keyboard.press("a")
            decisions[entry] = ("accepted", "")
            if watched:
                times.append(float(page.evaluate("window.decided")))
        else:
            digit = fate.randrange(3)
            page.keyboard.press("r")
            kind = page.evaluate("document.getElementById('ask-choices').textContent")
            page.keyboard.press(str(digit + 1))
            first = "protected class lost" if "protected class" in kind else _REASONS[0]
            decisions[entry] = ("rejected", (first, *_REASONS[1:])[digit])
    page.wait_for_function("!gallery.review.waiting.length", timeout=SLOWEST)
    return decisions, times


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.review", description="Measures a review by keys.")
    parser.add_argument("--images", type=int, default=IMAGES, help=f"how many are decided ({IMAGES})")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE)
        return 2
    return reported(
        measure(chromium, options.images), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"
    )


if __name__ == "__main__":
    raise SystemExit(main())
