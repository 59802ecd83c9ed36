"""A judge in Chromium: asked by a press in Curate, followed, stopped, and its answers shown and used as filters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from core.images import image_sha
from pipeline.models import load_models
from tests.browser.test_gallery import chip, count, idle, opened
from tests.support.judging import GOOD, answers_with, profile_with_judge, says
from tests.support.misbehaving import Misbehaving
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.set_cases import picture, run_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

pytestmark = pytest.mark.slow


@pytest.fixture
def peer() -> Iterator[Misbehaving]:
    made = Misbehaving()
    yield made
    made.close()


@pytest.fixture
def server(tmp_path: Path, peer: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Studio]]:
    profile = profile_with_judge(peer)
    monkeypatch.setattr("pipeline.profiles.profile.load_profile", lambda _name: profile)
    with serving_here(tmp_path / "workspace", load_models(profile)) as (url, studio):
        run_of(studio.workspace, 1, range(10, 16), accepted=False)
        yield url, studio


def test_a_person_has_images_judged_and_finds_the_broken_ones(
    page: Page, server: tuple[str, Studio], peer: Misbehaving
) -> None:
    broken, held = image_sha(picture(10)), image_sha(picture(12))

    def answers(name: str, pictures: list[str]) -> dict[str, str]:
        if pictures[-1] == held:
            peer.let.wait()
        return says("yes", "The wing is doubled.") if (name, pictures[-1]) == ("whole", broken) else says(GOOD[name])

    answers_with(peer, answers)
    opened(page, server)
    expect(page.locator("#judging")).to_contain_text("The cost of an image is shown after the first one.")
    expect(page.locator("#judge-images")).to_have_text("Judge 6 images")
    page.click("#judge-images")
    expect(page.locator("#judging")).to_contain_text("Judged: 3; waiting: 3")
    peer.let.set()
    expect(page.locator("#judging")).to_contain_text("All generated images here are judged.")
    expect(page.locator("#judging")).to_contain_text("3,280 tokens, by 6 images so far")
    expect(page.locator("#stop-judging")).to_have_count(0)

    page.click("#check-judge--picture-whole > summary")
    chip(page, "check:judge: picture whole:failed").click()
    idle(page)
    expect(count(page)).to_have_text("1")
    page.locator("#cells .cell").first.click()
    pill = page.locator("#detail .pill", has_text="picture whole, says the judge")
    expect(pill).to_have_attribute("title", re.compile(r"^Failed\. The wing is doubled\. Whether a model that sees "))
    expect(pill).to_have_text("picture whole, says the judge")


def test_the_demo_says_that_it_has_no_judge(page: Page, tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as served:
        run_of(served[1].workspace, 1, [10])
        opened(page, served)
        page.click("#no-judge > summary")
        expect(page.locator("#no-judge")).to_contain_text("The profile demo has no model that judges images")
