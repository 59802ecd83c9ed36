"""The effects of combined changes in Chromium: numbers that open their images, and what drawing changes unasked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from services.curation.views import View
from tests.browser.test_evaluate import OBJECTS, READ, answered, asked, opened
from tests.services.evaluation.test_factors import SOURCES, TOGETHER, fill_combinations
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("factors") / "workspace", ScriptedModels()) as (url, studio):
        fill_combinations(studio.workspace)
        yield url, studio


def test_a_person_sees_what_breaks_the_model_together_and_opens_the_images(
    page: Page, server: tuple[str, Studio]
) -> None:
    answered(page, server, OBJECTS)
    part = page.locator("#part-factors")
    expect(part.locator("tbody tr")).to_have_count(3, timeout=READ)
    found = server[1].factors.figures(asked(server[1], OBJECTS))
    rows = {row.parts: row for row in found.rows["alternative"]}
    night = part.get_by_role("row", name=re.compile("^“at night” "))
    expect(night.locator("[data-what=n]")).to_have_text(str(2 * SOURCES))
    to = urlsplit(night.locator("[data-what=n] a").get_attribute("href") or "")
    assert sorted(server[1].gallery.ids(View.read(to.query))) == list(rows[TOGETHER[1:]].entries)
    expect(part).to_contain_text("has not read these images yet")

    page.click("#begin-likeness")
    expect(part.locator("#mixed tbody tr")).to_have_count(2, timeout=READ)
    assert opened(page, part.get_by_role("row", name="beyond the sum").locator("th a")) == len(rows[TOGETHER].entries)
