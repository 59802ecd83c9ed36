"""The validity score in Chromium: learned with one press, explained in plain words, and used as a gallery filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from core.types import Task
from tests.browser.test_gallery import chip, count, idle, opened
from tests.services.evaluation.test_results import judged
from tests.services.evaluation.test_scoring import drawn
from tests.support.cases import made_case
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.set_cases import picture

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

pytestmark = pytest.mark.slow
BARE = 2
"""Number of images without a check, which get no score."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        run = studio.workspace.runs.create(picture(99_999), Task("classification", "owl"), "demo", "No checks", {})
        bare = [replace(made_case(picture(99_000 + number)), checks=()) for number in range(BARE)]
        studio.workspace.test_cases.extend(run, None, bare)
        yield url, studio


def test_images_are_scored_by_a_press_and_found_by_their_scores(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    cases, _, valid = drawn(studio.workspace)
    opened(page, server)
    page.click("#no-score > summary")
    page.click("#score-images")
    expect(page.locator("#said")).to_contain_text("no study has judged an image")
    judged(studio.workspace, {case: "yes" if ok else "no" for case, ok in list(zip(cases, valid, strict=True))[::2]})
    page.click("#score-images")
    expect(page.locator("#said")).to_have_text("150 images are scored.")
    expect(page.locator("#score-words")).to_contain_text("learnt from the votes of “Birds”")
    expect(page.locator("#score-words")).to_contain_text("it gives the valid one the higher score in 0.")
    expect(page.locator("#score-words")).to_contain_text("(precision)")
    page.click("[data-task=classification] summary")
    rows = page.locator("[data-task=classification] tbody tr")
    expect(rows.first).to_be_visible()
    assert sum(int(one.split()[-1]) for one in page.locator(".score-bins td:last-child").all_inner_texts()) == 75, (
        "judged images"
    )

    counts = studio.commands.send("count-test-cases", {})["scores"]
    for key, words, number in (
        ("score:0.5:", "at least 0.50", counts["at_least"]),
        ("score::0.5", "below 0.50", counts["below"]),
        ("score:none", "not scored", BARE),
    ):
        expect(chip(page, key)).to_have_text(f"{words} {number}")
        chip(page, key).click()
        idle(page)
        expect(count(page)).to_have_text(str(number))
        expect(page.locator(".chip.used")).to_contain_text(words)
        chip(page, key).click()
        idle(page)
        expect(count(page)).to_have_text(str(150 + BARE))

    # Set the filter with the slider over the histogram, and reset it by the address.
    page.locator("[data-score] input[data-end=low]").fill("0.8")
    idle(page)
    asked = parse_qs(urlsplit(page.url).query)["score"]
    assert asked == ["0.8:"]
    wanted = studio.commands.send("count-test-cases", {"filter": "score=0.8:"})["count"]
    assert 0 < wanted < counts["at_least"]
    expect(count(page)).to_have_text(str(wanted))
    page.reload()
    idle(page)
    expect(count(page)).to_have_text(str(wanted))
    expect(page.locator(".chip.used")).to_contain_text("validity score at least 0.80")
    page.select_option("#order", label="validity score: high first")
    idle(page)
    page.locator("#cells .cell").first.click()
    expect(page.locator("#score")).to_be_visible()
    best = studio.commands.send("list-test-cases", {"order": "score", "falling": True, "limit": 1})["test_cases"][0]
    expect(page.locator("#score")).to_have_text(f"{best['score']:.2f}")
