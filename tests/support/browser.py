"""Chromium for tests, benchmarks and screenshots of the studio."""

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
"""Use one process for all pages, which saves a tenth of the work. Names of other machines do not resolve, so only
failed requests need to be checked.
"""


@contextmanager
def chromium_running(chromium: str) -> Iterator[Browser]:
    """Start a browser without a page. Only the starting thread may use it."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # the machine may be busy with other things
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(SPARING))
        yield browser
        browser.close()


@contextmanager
def page_in(browser: Browser, in_the_open: bool = False) -> Iterator[Page]:
    """Open a page that shares nothing with other pages of this browser. Fails at the end if a request left this machine
    or a script failed.

    With `in_the_open` the explore page shows all settings of its cards, like its switch in the header.
    """
    # `wait_for_function` evaluates text in the page, which our security policy forbids. test_sign_in.py keeps the
    # policy.
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
    """Open a page in a new browser, like `page_in`."""
    with chromium_running(chromium) as browser, page_in(browser, in_the_open) as page:
        yield page


def settled(page: Page, seconds: float = 60) -> None:
    """Wait until all requests of the page are answered and no work is running."""
    page.wait_for_function("window.studio && studio.idle && !studio.active", timeout=seconds * 1000)
