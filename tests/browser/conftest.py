"""Chromium for the browser tests: started once in each worker process, with a new page for each file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import chromium_running, page_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="package")
def browser(chromium_path: str) -> Iterator[Browser]:
    """Start Chromium. The scope is not the session: while Chromium runs, no other test can use an event loop here."""
    with chromium_running(chromium_path) as started:
        yield started


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """Page for all tests of a file. Each test leaves the page when it ends."""
    with page_in(browser, in_the_open=True) as opened:
        yield opened
