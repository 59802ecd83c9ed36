"""A page of the demo for tests of the text stages, on a run whose text stages the embedded models have filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import settled
from tests.support.demo_server import browsing_demo
from tests.support.explorer import DEMO_SECONDS, open_start

SLOWEST = DEMO_SECONDS * 1000
TEXT_STAGES = ("caption", "keywords", "alternatives", "counterfactuals")
BIRD, STREET = "bird-on-a-twig", "street-two-cars"


@dataclass
class Desk:
    """Page with its own server. Samples are brought to the gate once, and duplicated for each test."""

    page: Page
    url: str
    ready: dict[str, str] = field(default_factory=dict)

    def at_gate(self, sample: str) -> Page:
        """Open a new run of a sample whose text stages the models have filled. Return the page."""
        page = self.page
        if sample not in self.ready:
            self.empty(sample)
            page.keyboard.press("Control+Shift+Enter")
            page.wait_for_selector("#generate", timeout=SLOWEST)
            settled(page, DEMO_SECONDS)
            self.ready[sample] = page.evaluate("studio.run")
        page.evaluate("of => studio.send({ name: 'run-duplicate', fields: { run: of } })", self.ready[sample])
        page.wait_for_function("of => studio.run && studio.run !== of", arg=self.ready[sample])
        page.wait_for_selector("#generate:enabled")
        settled(page, DEMO_SECONDS)
        return page

    def empty(self, sample: str) -> Page:
        """Open a new run of a sample in which no stage has run. Return the page."""
        open_start(self.page, self.url)
        self.page.click(f".sample[data-sample={sample}]")
        self.page.wait_for_selector("#run-all:enabled")
        settled(self.page, DEMO_SECONDS)
        return self.page


@contextmanager
def desk_of(browser: Browser, folder: Path) -> Iterator[Desk]:
    """Open a desk with a server of its own. Fails at the end if the server logged an error."""
    with browsing_demo(browser, folder) as (page, url, _):
        yield Desk(page, url)


def stage(page: Page, name: str) -> Locator:
    return page.locator(f"#stage-{name}")


def lines(page: Page) -> Locator:
    return page.locator("#stage-counterfactuals .line")


def row(page: Page, keyword: str) -> Locator:
    return page.locator(f"#stage-alternatives .row-line[data-key='row-{keyword}']")


def version(page: Page, name: str) -> str:
    return stage(page, name).get_attribute("data-version") or ""


def texts(found: Locator) -> list[str]:
    """Return the texts of the chips in a row or a card."""
    chip_texts: list[str] = found.locator(".toggle[data-text]").evaluate_all("all => all.map(one => one.dataset.text)")
    return chip_texts


def write_caption(page: Page, text: str) -> None:
    page.fill("#caption-text", text)
    page.press("#caption-text", "Enter")
    settled(page, DEMO_SECONDS)


def add_alternative(page: Page, keyword: str, text: str) -> Locator:
    adding = row(page, keyword).locator(".add")
    adding.locator(".toggle").click()
    adding.locator(".pop input").fill(text)
    adding.locator(".pop input").press("Enter")
    added = row(page, keyword).locator(".chip", has_text=text)
    expect(added).to_have_count(1)
    settled(page, DEMO_SECONDS)
    return added


def write_line(line: Locator, change: Callable[[str], str]) -> None:
    line.locator(".diff").click()
    field = line.locator("textarea")
    field.fill(change(field.input_value()))
    field.press("Enter")
