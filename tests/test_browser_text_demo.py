"""The cards of the text stages with the embedded models: what they propose, flag, are told and say again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.serving import ServerProcess, browsing, settled
from tests.test_browser_explore import DEMO_SECONDS, open_start, state

pytestmark = [pytest.mark.browser, pytest.mark.demo, pytest.mark.slow]


@pytest.fixture
def page(chromium_path: str, tmp_path: Path) -> Iterator[Page]:
    """The sample of a bird, at the gate."""
    server = ServerProcess(tmp_path / "workspace", tmp_path / "log").start()
    try:
        with browsing(chromium_path) as opened:
            expect.set_options(timeout=DEMO_SECONDS * 1000)
            open_start(opened, server.url)
            opened.click(".sample[data-sample=bird-on-a-twig]")
            opened.click("#run-all")
            opened.wait_for_selector("#generate", timeout=DEMO_SECONDS * 1000)
            settled(opened, DEMO_SECONDS)
            yield opened
    finally:
        expect.set_options(timeout=5_000)
        server.stop()


def test_the_text_stages_with_the_embedded_models(page: Page) -> None:
    stages = ("caption", "keywords", "alternatives", "counterfactuals")
    assert [state(page, stage) for stage in stages] == ["ready"] * 4
    assert "BLIP" in page.inner_text("#stage-caption .meta") and "LLaMA" in page.inner_text("#stage-keywords .meta")
    assert set(page.locator("#stage-caption mark").all_inner_texts()) == {"bird"}
    kinds = page.locator("#stage-keywords .chip .toggle small").all_inner_texts()
    assert {"attribute", "weather", "time of day", "background"} <= set(kinds)
    assert page.locator("#stage-counterfactuals .pill.bad").count() == 0, "its own captions pass its own checks"
    assert page.locator("#stage-counterfactuals .line .edit").count() >= 4

    # What the model was told is what it answered.
    page.click("#stage-alternatives [data-panel-of=told]")
    caption = page.input_value("#caption-text")
    expect(page.locator("#stage-alternatives pre.prompt")).to_contain_text(caption)
    reply = page.inner_text("#stage-alternatives pre.reply")
    row = page.locator("#stage-alternatives .row-line").first
    proposed = row.locator(".toggle[data-text]").evaluate_all("chips => chips.map(chip => chip.dataset.text)")
    assert proposed and all(text in reply for text in proposed)

    # It knows more, and what means the same is flagged by a real measure; something else is not.
    row.locator("button.ask").click()
    expect(row.locator(".toggle[data-text]")).not_to_have_count(len(proposed))
    settled(page, DEMO_SECONDS)
    colour = row.locator("b").inner_text()
    for text in (f"dark {colour}", "striped"):
        row.locator(".add .toggle").click()
        row.locator(".add .pop input").fill(text)
        row.locator(".add .pop input").press("Enter")
        expect(row.locator(f".chip:has(.toggle[data-text='{text}'])")).to_have_count(1)
        settled(page, DEMO_SECONDS)
    expect(row.locator(f".chip:has(.toggle[data-text='dark {colour}'])")).to_contain_text(f"like “{colour}”")
    assert "like" not in row.locator(".chip:has(.toggle[data-text='striped'])").inner_text()

    # Both edits are undone, and the captions are made again of what is there now.
    for _ in range(2):
        page.keyboard.press("Control+z")
        settled(page, DEMO_SECONDS)
    assert "striped" not in row.inner_text() and f"dark {colour}" not in row.inner_text()
    expect(page.locator("#state-counterfactuals")).to_contain_text("stale: the alternatives were changed")
    page.click("#run-counterfactuals")
    settled(page, DEMO_SECONDS)
    assert state(page, "counterfactuals") == "ready"

    # A protected word that a person insists on goes all the way.
    page.locator("#stage-keywords .chip.add .toggle").click()
    page.locator("#stage-keywords .chip.add .pop input").fill("bird")
    page.locator("#stage-keywords .chip.add .pop input").press("Enter")
    expect(page.locator("#problem-keywords")).to_contain_text("protected")
    page.click("#force-keywords")
    expect(page.locator("#stage-keywords .chip", has_text="forced")).to_have_count(1)
    assert page.locator("#stage-keywords .chip.add .pop input").input_value() == ""
