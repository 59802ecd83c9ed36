"""The Chromium of the browser tests: started once on each core, with new pages for each file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import chromium_running, page_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="package")
def browser(chromium_path: str) -> Iterator[Browser]:
    """Not of the session: while it runs, no other test of the process can have an event loop on this thread."""
    with chromium_running(chromium_path) as started:
        yield started


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """One page for all tests of a file; each leaves it when it is done."""
    with page_in(browser, in_the_open=True) as opened:
        yield opened
