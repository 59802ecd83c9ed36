"""Waiting times on the Explore page, in headless Chromium with a separate server.

The server has started and loaded its models before the measurements. The workspace is new and deleted at the end.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.figures import Figure
from tests.support.browser import CHROMIUM_ARGUMENTS, settled
from tests.support.server_process import ServerProcess

TIMES = 15
FIRST_PAINT, EDIT = 2000, 200
"""Maximum milliseconds for the first paint and for an edit, as the Explore page promises."""
SLOWEST = 600_000
SAMPLE = "street-two-cars"

# From the key press, by the page's own clock, to the frame that shows the effect.
_WATCH = """
([text, state]) => {
  window.edited = new Promise((done) => {
    let start = 0;
    document.addEventListener("keydown", () => { start = performance.now(); }, { capture: true, once: true });
    const look = () => {
      const saved = document.querySelector("#caption-text").server === text;
      if (!start || !saved || !document.querySelector("#state-caption").textContent.includes(state)) return;
      watch.disconnect();
      requestAnimationFrame(() => done(performance.now() - start));
    };
    const watch = new MutationObserver(look);
    const options = { subtree: true, childList: true, attributes: true, characterData: true };
    watch.observe(document.querySelector("#column-stages"), options);
  });
}
"""

# The minimum time from a page's request to the frame with the answer: a line of text, fetched and set.
BARE = """
() => new Promise(async (done) => {
  const start = performance.now();
  document.body.dataset.bare = await (await fetch("/healthz")).text();
  requestAnimationFrame(() => done(performance.now() - start));
})
"""


def measure(chromium: str) -> list[Figure]:
    """Return all figures of the page."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        server = ServerProcess(Path(place) / "workspace", Path(place) / "log").start()
        browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_ARGUMENTS))
        try:
            run = _prepare(browser, server.url)
            return [_first_paint(browser, server.url), _edit(browser, f"{server.url}?run={run}")]
        finally:
            browser.close()
            server.stop()


def _prepare(browser: Browser, url: str) -> str:
    """Run the text stages on a sample, so that the models are loaded. Return the run's id."""
    page = browser.new_page()
    page.goto(f"{url}?run=")
    page.wait_for_selector(f".sample[data-sample={SAMPLE}]", timeout=SLOWEST)
    page.click(f".sample[data-sample={SAMPLE}]")
    page.wait_for_selector("#run-all:enabled", timeout=SLOWEST)
    page.click("#run-all")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    settled(page, SLOWEST / 1000)
    run = str(page.evaluate("studio.run"))
    page.close()
    return run


def _first_paint(browser: Browser, url: str) -> Figure:
    """Measure the time from the request until the start page shows its samples. The browser's cache is empty."""
    times, floor = [], []
    for _ in range(TIMES):
        floor.append(_opened(browser, f"{url}healthz", "body"))
        times.append(_opened(browser, f"{url}?run=", ".sample img"))
    return Figure("first paint of the start page, samples in sight", tuple(times), FIRST_PAINT, floor=tuple(floor))


def _opened(browser: Browser, address: str, awaited: str) -> float:
    """Open an address, and return the milliseconds until the element `awaited` is visible."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    start = time.monotonic()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(awaited, timeout=SLOWEST)
    taken = 1000 * (time.monotonic() - start)
    context.close()
    return taken


def _edit(browser: Browser, url: str) -> Figure:
    """Measure the time from pressing Enter in the caption until the page shows that the caption is saved."""
    page: Page = browser.new_page()
    page.goto(url)
    page.wait_for_selector("#caption-text", timeout=SLOWEST)
    settled(page)
    text, times, floor = page.input_value("#caption-text"), [], []
    for number in range(TIMES):
        floor.append(float(page.evaluate(BARE)))
        new = f"{text} Take {number}."
        page.fill("#caption-text", new)
        page.evaluate(_WATCH, [new, "edited"])
        page.press("#caption-text", "Enter")
        times.append(float(page.evaluate("window.edited")))
        settled(page)
    page.close()
    return Figure("an edit of the caption saved and its effect shown", tuple(times), EDIT, floor=tuple(floor))
