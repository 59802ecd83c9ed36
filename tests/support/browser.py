"""The Chromium that looks at a studio: for tests, benchmarks and screenshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)


SPARING = (
    *CHROMIUM_ARGUMENTS,
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""With one process for all pages, which are all ours: a tenth less work for a browser that nobody measures. It finds no
other machine, so that only requests that fail need be looked at."""


@contextmanager
def chromium_running(chromium: str) -> Iterator[Browser]:
    """Start a browser without a page. Only the thread that starts it may use it."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # the machine may be busy with other things
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(SPARING))
        yield browser
        browser.close()


@contextmanager
def page_in(browser: Browser, in_the_open: bool = False) -> Iterator[Page]:
    """Open a page that shares nothing with other pages of this browser. Fails at the end when it asked for anything
    outside this machine, or a script failed.

    With `in_the_open` the explore page shows all settings of its cards, as its switch in the header does.
    """
    # `wait_for_function` evaluates a text in the page, which ours forbid; test_sign_in.py goes by what they forbid.
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
    context.set_default_timeout(60_000)
    if in_the_open:
        context.add_init_script("try { localStorage.setItem('studio-all-open', '1'); } catch {}")
    outside: list[str] = []
    broken: list[str] = []

    def on_failed(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
            outside.append(request.url)

    context.on("requestfailed", on_failed)
    context.on("weberror", lambda error: broken.append(f"{error.error} {getattr(error.error, 'stack', '')}"))
    yield context.new_page()
    context.close()
    assert not outside, f"the page asked for {outside}"
    assert not broken, f"a script of the page failed: {broken}"


@contextmanager
def browsing(chromium: str, in_the_open: bool = False) -> Iterator[Page]:
    """A page in a new browser, as `page_in` opens it."""
    with chromium_running(chromium) as browser, page_in(browser, in_the_open) as page:
        yield page


def settled(page: Page, seconds: float = 60) -> None:
    """Wait until everything that was done has come back, and nothing is running any more."""
    page.wait_for_function("window.studio && studio.idle && !studio.active", timeout=seconds * 1000)
