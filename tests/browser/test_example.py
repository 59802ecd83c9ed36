"""The example on the start page in Chromium: started, stopped, resumed, opened and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.batch_cases import work_here
from tests.support.example_cases import SEED, SMALL
from tests.support.explorer import open_start, serving_stand_ins

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

SECONDS = 300_000
"""Maximum number of milliseconds, far above the time that the example takes."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_stand_ins(tmp_path_factory.mktemp("example")) as (url, studio):
        studio.example.size, studio.example.new_seed = SMALL, lambda: SEED
        work_here(studio.batches)
        yield url, studio


def test_one_press_fills_the_pages_and_one_removes_it(served: tuple[str, Studio], page: Page) -> None:
    url, studio = served
    gate = work_here(studio.batches)
    gate.shut()
    open_start(page, url)
    card = page.locator("#example")
    page.click("#make-example")
    expect(card).to_contain_text(re.compile(r"Step \d+ of 9: writing captions"), timeout=SECONDS)
    expect(card.get_by_role("progressbar", name="Making the example")).to_be_visible()
    gate.let(2)
    page.click("#stop-example")
    expect(card).to_contain_text("half made", timeout=SECONDS)
    gate.open()
    page.reload()  # the studio knows the progress, not the page
    page.click("#make-example")
    expect(card).to_contain_text("The example is ready", timeout=SECONDS)
    expect(card).to_contain_text("simulated")

    page.click("#example >> text=Evaluation: drawn things")
    expect(page.locator(".card.figure .value").first).to_contain_text("%", timeout=SECONDS)
    for words, shown in (("Batches", "Example: drawn streets"), ("Test sets", "Example: drawn things")):
        open_start(page, url)
        page.click(f"#example >> text={words}")
        expect(page.get_by_text(shown).first).to_be_visible()
    open_start(page, url)
    page.click("#example nav >> text=Study")
    expect(page.get_by_text("simulated votes").first).to_be_visible()

    open_start(page, url)
    page.click("#remove-example")
    expect(page.locator("#make-example")).to_be_visible(timeout=SECONDS)
    assert not studio.workspace.test_sets.all() and not studio.workspace.studies.all()
