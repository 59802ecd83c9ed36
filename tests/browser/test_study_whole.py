"""A whole study in Chromium: a lead sets it up, two people finish it with keys, and the lead reads the results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from services.studio import Studio
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.study_cases import object_runs

pytestmark = pytest.mark.slow
ITEMS = 6


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        object_runs(studio.workspace, 4)
        yield url, studio


def set_up(page: Page, url: str) -> str:
    """Start a study of six images with two votes each and no control items. Return its invitation link."""
    page.goto(f"{url}study/")
    page.click("#new-study")
    page.fill("[name=title]", "Objects")
    page.click("#create")
    page.wait_for_selector("#draw-now")
    wanted = {"votes": "2", "consensus": "2", "share": "0", "min_finished": "0", "quiz": "0", "draw.count": str(ITEMS)}
    for name, value in wanted.items():
        page.fill(f"[name='{name}']", value)
        page.keyboard.press("Tab")
    page.click("#draw-now")
    page.wait_for_selector("#start:enabled")
    page.click("#start")
    page.click("#confirm-go")
    page.wait_for_selector("#link-on")
    page.click("#link-on")
    page.click("#confirm-go")
    page.wait_for_selector("#link")
    return page.inner_text("#link")


def arrive(context: BrowserContext, link: str) -> Page:
    """Follow the link as a new worker and agree, by keys."""
    page = context.new_page()
    page.goto(link)
    for here in ("#join", "#code-kept"):
        page.wait_for_selector(f"{here}:focus")
        page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Objects")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    return page


def at(page: Page, number: int) -> None:
    """Wait until item `number` is shown and can be answered, with no answer chosen."""
    page.wait_for_selector(f"#place:has-text('Image {number} of {ITEMS}')")
    page.wait_for_selector(".judge[aria-busy=false]")
    assert page.locator(".chosen, [aria-checked=true], :checked").count() == 0


def test_from_the_set_up_to_the_result(page: Page, served: tuple[str, Studio]) -> None:
    url, studio = served
    link = set_up(page, url)
    study_id = page.url.split("/study/")[1].split("/")[0]
    browser = page.context.browser
    assert browser is not None
    contexts = [browser.new_context(viewport={"width": 1280, "height": 860}) for _ in range(2)]
    first, second = (arrive(context, link) for context in contexts)

    at(first, 1)
    first.keyboard.press("n")  # a wrong key by accident
    at(first, 2)
    first.keyboard.press("u")
    at(first, 1)
    for number in range(1, ITEMS + 1):
        for annotator in (first, second):
            at(annotator, number)
            if number == 3:
                annotator.reload()
                at(annotator, number)
            annotator.keyboard.press("y")
    for annotator in (first, second):
        expect(annotator.locator("h1")).to_have_text("All done: thank you")
        expect(annotator.locator("#saved")).to_have_text("Your last answer is saved")
    for context in contexts:
        context.close()

    page.goto(f"{url}study/{study_id}/")
    expect(page.locator("#tile-valid")).to_contain_text("100 %")
    expect(page.locator("#tile-valid")).to_contain_text(f"n = {ITEMS}")
    expect(page.locator("#part-progress")).to_contain_text("12 of 12 votes")
    expect(page.locator("#methods-text")).to_contain_text("6 images were to be judged by 2 workers")
    kept = studio.workspace.studies.data(study_id).votes
    assert len(kept) == 12 and all(vote.answers == {"valid": "yes"} for vote in kept)
    assert len({(vote.item, vote.worker) for vote in kept}) == 12
    assert sorted(vote.changes for vote in kept)[-1] == 1, "the slip is in the log of votes, and counts no more"
