"""Two pages on one run in Chromium: settings and prompts that both change, and what the later one is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks.serving import settled
from services.studio import Studio
from tests.explorer import started, to_the_gate
from tests.scripted import ScriptedModels

FIRST, SECOND = "Name what may change ($task): $caption", "What else could this be ($task)? $caption"
POLLS = 30_000
"""Milliseconds until an idle page has surely asked what is new, on a busy machine too."""


@pytest.fixture
def studio(tmp_path: Path, page: Page) -> Iterator[Studio]:
    """A run of a bird, at the gate."""
    with started(page, tmp_path, ScriptedModels()) as behind:
        to_the_gate(page)
        yield behind


@pytest.fixture
def other(studio: Studio, page: Page) -> Iterator[Page]:
    """A second page on the same run."""
    opened = page.context.new_page()
    opened.goto(page.url)
    opened.wait_for_selector("#generate")
    settled(opened)
    yield opened
    opened.close()


def write_prompt(page: Page, text: str) -> None:
    page.fill("#template-keywords", text)
    page.click("#stage-keywords .prompt-form [data-submit]")


def test_of_two_settings_both_are_kept_and_the_later_page_is_told(studio: Studio, page: Page, other: Page) -> None:
    steps, guidance = "#setting-generation-steps", "#setting-generation-guidance"
    page.click(steps)
    page.keyboard.press("Control+a")
    page.keyboard.type("11")
    other.fill(steps, "7")
    other.press(steps, "Enter")
    settled(other)
    # The first page has heard of it, but what its person is typing stays, and stands for what was shown before.
    page.wait_for_function(f"document.querySelector('{steps}').server === '7'", timeout=POLLS)
    expect(page.locator(steps)).to_have_value("11")
    page.keyboard.press("Enter")
    expect(page.locator("#notice-generation")).to_contain_text("steps to 7")
    expect(page.locator("#notice-generation")).to_contain_text("Yours was saved on top")
    expect(page.locator(steps)).to_have_value("11")
    expect(other.locator(steps)).to_have_value("11", timeout=POLLS)

    # Seen by now: the next change is nothing that anybody has to be told of.
    other.fill(guidance, "4.5")
    other.press(guidance, "Enter")
    settled(other)
    expect(other.locator("#notice-generation")).to_have_count(0)
    run_id = page.evaluate("studio.run")
    drawing = studio.runs.settings(studio.workspace.runs.get(run_id)).generation
    assert (drawing.steps, drawing.guidance) == (11, 4.5)


def test_of_two_prompts_the_later_page_is_told_and_the_other_can_be_brought_back(
    studio: Studio, page: Page, other: Page
) -> None:
    for opened in (page, other):
        opened.click("#stage-keywords [data-panel-of=prompt]")
    page.fill("#template-keywords", SECOND)
    write_prompt(other, FIRST)
    settled(other)
    page.wait_for_function("text => document.querySelector('#template-keywords').server === text", arg=FIRST)
    expect(page.locator("#template-keywords")).to_have_value(SECOND)
    page.click("#stage-keywords .prompt-form [data-submit]")
    expect(page.locator("#notice-keywords")).to_contain_text("The prompt was changed elsewhere meanwhile")
    expect(page.locator("#template-keywords")).to_have_value(SECOND)

    earlier = page.locator("#earlier-prompts-keywords")
    earlier.locator("summary").click()
    expect(earlier.locator("pre")).to_have_text(FIRST)
    earlier.locator("button").click()
    expect(page.locator("#template-keywords")).to_have_value(FIRST)
    expect(earlier.locator("pre")).to_have_text(SECOND)
    assert studio.workspace.runs.get(page.evaluate("studio.run")).prompts == {"keywords": FIRST}
