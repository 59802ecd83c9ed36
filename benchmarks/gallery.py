"""The gallery of a large workspace in headless Chromium: time from a key press to the pictures, frame times while
scrolling, and memory.

`python -m benchmarks.gallery` runs this alone, at 125,000 test cases; `--large` also at a million.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import catalogue
from benchmarks.figures import Figure, reported
from benchmarks.page import BARE
from tests.support.browser import CHROMIUM_ARGUMENTS
from tests.support.chromium import ADVICE, find_chromium
from tests.support.server_process import ServerProcess

SCREEN = {"width": 1440, "height": 1000}
FIRST_SCREEN, PIXELS, FRAME, EMPTY = 1000.0, 100.0, 50.5, 300.0
"""Maximum milliseconds: to show the first screen without caches, to show pictures after a key press, to show one frame
while scrolling (50 ms are three refreshes of a 60 Hz screen), and to fill an empty place."""
MEGABYTES = 600
"""Maximum megabytes by which the server's memory may grow after its first reply."""
SHARED, SIDE = 1500, 256
"""Number of different pictures of the test cases, and their side in pixels."""
TIMES = 12
SCROLLED = 10_000
"""Number of images that are passed by scrolling."""
SCROLL_SECONDS = 20.0
SLOWEST = 60_000

# All visible pictures have loaded. Decoding is part of the frame that shows them.
_IN_SIGHT = """
  const there = () => {
    const all = gallery.inSight();
    return all.length > 0 && all.every((one) => one.classList.contains("there"));
  };
"""
_ALL_THERE = """
() => gallery.idle && document.getElementById("detail").querySelector("img")?.complete &&
  [...document.querySelectorAll(".cell:not([hidden])")].every((one) => one.classList.contains("there"))
"""
_UNTIL_SEEN = f"""
async (act) => {{
  {_IN_SIGHT}
  const before = gallery.view, start = performance.now();
  (0, eval)(act);
  await new Promise((done) => {{
    const look = () => (gallery.view !== before && there() ? requestAnimationFrame(done) : requestAnimationFrame(look));
    look();
  }});
  return performance.now() - start;
}}
"""
_SCROLL = f"""
async ([pixels, seconds]) => {{
  {_IN_SIGHT}
  const grid = document.getElementById("grid"), frames = [], since = new Map();
  let longest = 0, last = performance.now();
  const start = last;
  await new Promise((done) => {{
    const step = (now) => {{
      frames.push(now - last);
      last = now;
      for (const one of gallery.inSight()) {{
        const key = one.place;
        if (one.classList.contains("there")) {{ since.delete(key); continue; }}
        if (!since.has(key)) since.set(key, now);
        longest = Math.max(longest, now - since.get(key));
      }}
      if (now - start > 1000 * seconds) {{ done(); return; }}
      grid.scrollTop = pixels * (now - start) / (1000 * seconds);
      requestAnimationFrame(step);
    }};
    requestAnimationFrame(step);
  }});
  return {{ frames, longest }};
}}
"""


def measure(chromium: str, sizes: Sequence[int] = catalogue.SIZES[:1]) -> list[Figure]:
    """Measure workspaces of these sizes. Raises AssertionError if the server needs more memory than allowed."""
    figures: list[Figure] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
            workspace = Path(folder) / "workspace"
            catalogue.made_apart(catalogue.prepared, workspace, size, SHARED, SIDE)
            browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_ARGUMENTS))
            try:
                figures += _of_workspace(browser, workspace, Path(folder) / "log", size)
            finally:
                browser.close()
    return figures


def _of_workspace(browser: Browser, workspace: Path, log: Path, size: int) -> list[Figure]:
    name = f", {size:,} test cases"
    cold, floor = [], []
    for _ in range(3):
        server = ServerProcess(workspace, log).start()
        cold.append(_first_screen(browser, f"{server.url}curate/"))
        floor.append(_first_screen(browser, f"{server.url}healthz", "body"))
        server.stop()
    server = ServerProcess(workspace, log).start()
    try:
        assert server.process is not None
        before = _resident(server.process.pid)
        # Waiting and measuring evaluate text in the page, which our policy forbids.
        page = browser.new_context(viewport=SCREEN, bypass_csp=True).new_page()  # type: ignore[arg-type]
        page.goto(f"{server.url}curate/")
        page.wait_for_selector(".cell.there", timeout=SLOWEST)
        figures = [
            Figure(f"the first screen of a cold workspace{name}", tuple(cold), FIRST_SCREEN, floor=tuple(floor)),
            *_pixels(page, name),
            *_scroll(page, name),
        ]
        grown = _resident(server.process.pid) - before
        print(f"{size:,} test cases: {grown:.0f} MB more memory of the server than at its start", flush=True)
        assert grown <= MEGABYTES, f"{grown:.0f} MB"
        return figures
    finally:
        server.stop()


def _first_screen(browser: Browser, address: str, awaited: str = "#cells .cell.there") -> float:
    context = browser.new_context(viewport=SCREEN)  # type: ignore[arg-type]
    page = context.new_page()
    start = time.monotonic()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(awaited, timeout=SLOWEST)
    taken = 1000 * (time.monotonic() - start)
    context.close()
    return taken


def _pixels(page: Page, name: str) -> list[Figure]:
    """Measure the time from a key press until all visible pictures are painted."""

    def go(view: str) -> str:
        return f"gallery.go({view!r})"

    ways = {
        "a filter": [go(f"class=class {number}") for number in range(TIMES)],
        "an order": [go(f"sort=check:{catalogue.CHECKS[n % 4]}&edits={1 + n % 2}") for n in range(TIMES)],
        "words": [go(f"text=word{3 + 7 * number}") for number in range(TIMES)],
    }
    figures = []
    for what, acts in ways.items():
        floor = [float(page.evaluate(BARE)) for _ in range(TIMES)]
        times = []
        for act in acts:
            page.wait_for_function(_ALL_THERE, timeout=SLOWEST)  # people press after the images before are shown
            times.append(float(page.evaluate(_UNTIL_SEEN, act)))
        figures.append(Figure(f"{what} to pixels on the screen{name}", tuple(times), PIXELS, floor=tuple(floor)))
    return figures


def _scroll(page: Page, name: str) -> list[Figure]:
    """Scroll over many images. Measure the time of frames, and how long a visible image is missing."""
    page.evaluate("gallery.go('')")
    page.wait_for_function("gallery.idle && gallery.count > 10000", timeout=SLOWEST)
    row = page.evaluate("document.querySelector('.cell').offsetHeight + 10")
    pixels = SCROLLED / page.evaluate("gallery.columns()") * row
    found = page.evaluate(_SCROLL, [pixels, SCROLL_SECONDS])
    frames = tuple(found["frames"][1:])
    return [
        Figure(f"a frame while {SCROLLED:,} are scrolled over{name}", frames, FRAME, share=1.0),
        Figure(f"the longest that a place in sight is empty meanwhile{name}", (float(found["longest"]),), EMPTY),
    ]


def _resident(pid: int) -> float:
    """Return the memory of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description="Measures the gallery.")
    parser.add_argument("--large", action="store_true", help="a million test cases as well (minutes)")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(ADVICE)
        return 2
    sizes = catalogue.SIZES if options.large else catalogue.SIZES[:1]
    return reported(measure(chromium, sizes), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    raise SystemExit(main())
