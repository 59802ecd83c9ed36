"""Time to redraw the control image after a threshold slider moves, at 1024 pixels, in headless Chromium."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.figures import Figure
from benchmarks.page import BARE
from tests.support.browser import CHROMIUM_ARGUMENTS, settled
from tests.support.server_process import ServerProcess

TIMES = 15
SIDE, BOUND = 1024, 150
"""Side of the image in pixels, and the maximum milliseconds that the Explore page promises."""
SLOWEST = 600_000

# From the event of a slider to the frame with the picture for its value.
_MOVE = """
([name, value]) => new Promise((done) => {
  const field = document.querySelector(`#control-${name}`), image = document.querySelector("#control-preview");
  const look = new MutationObserver(() => {
    if (!image.dataset.shown.includes(`${name}=${value}`)) return;
    look.disconnect();
    requestAnimationFrame(() => done(performance.now() - start));
  });
  look.observe(image, { attributes: true });
  const start = performance.now();
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
})
"""


def measure(chromium: str) -> list[Figure]:
    """Return one figure per threshold slider. Each value is tried only once, so that nothing is in a cache."""
    file = io.BytesIO()
    # Noise on a coarse grid, enlarged: as smooth and rough as a photograph.
    Image.effect_noise((128, 128), 90).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "PNG")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start()
        browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_ARGUMENTS))
        try:
            page = browser.new_page()
            page.goto(f"{server.url}?run=")
            page.wait_for_selector(".start h1", timeout=SLOWEST)
            settled(page, SLOWEST / 1000)
            page.click("#tool-open")
            upload = {"name": "noise.png", "mimeType": "image/png", "buffer": file.getvalue()}
            page.set_input_files("#upload input[type=file]", upload)  # type: ignore[arg-type]
            page.fill("#setting-generation-short_side", str(SIDE), timeout=SLOWEST)
            page.press("#setting-generation-short_side", "Enter")
            settled(page)
            page.click("#toggle-conditioning")
            page.wait_for_function(
                "document.querySelector('#control-preview')?.dataset.shown?.includes('short_side=1024')",
                timeout=SLOWEST,
            )
            figures = []
            for name, first in (("low", 5), ("high", 105)):
                times, floor = [], []
                for n in range(TIMES):
                    floor.append(float(page.evaluate(BARE)))
                    times.append(float(page.evaluate(_MOVE, [name, first + 10 * n])))
                words = f"a threshold ({name}) moved, the control image redrawn at {SIDE} pixels"
                figures.append(Figure(words, tuple(times), BOUND, floor=tuple(floor)))
            return figures
        finally:
            browser.close()
            server.stop()
