"""The comparison of methods in Chromium: from the evaluation to numbers that open their images, and to a study."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from services.evaluation.service import model_choice_key
from services.evaluation.types import EvaluationQuestion
from tests.browser.test_evaluate import READ, address, images_behind, opened, ranked, wide
from tests.support.made_once import MadeOnce
from tests.support.method_cases import colours, made_by_methods, question_on
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

pytestmark = pytest.mark.slow
Asked = tuple[tuple[str, "Studio"], EvaluationQuestion]


@pytest.fixture
def asked(made_once: MadeOnce, tmp_path: Path) -> Iterator[Asked]:
    with serving_here(made_by_methods(made_once, tmp_path), ScriptedModels()) as served:
        question = question_on(served[1].workspace, colours(tmp_path))
        served[1].evaluations.predicting.identify(question.model)
        yield served, question


def test_a_person_compares_methods_opens_their_images_and_drafts_a_study(page: Page, asked: Asked) -> None:
    server, question = asked
    page.goto(address(server, question.subject.filter.address, key=model_choice_key(question.model)))
    page.click("#begin")
    expect(page.locator("#answer")).to_be_visible(timeout=READ)
    ranked(page)
    page.click("#compare > summary")
    page.get_by_role("link", name="The methods that made these images").click()
    found = server[1].evaluations.methods(question)
    names = found.compared.names
    table = page.locator("#methods table").first
    expect(table.locator("thead th")).to_have_text(["", *names])
    images = table.get_by_role("row", name=re.compile("^images ")).locator("td a")
    expect(images).to_have_text([str(number) for number in found.compared.tables[0].images])
    wrong = table.get_by_role("row", name=re.compile("^wrong ")).locator("td a").first
    assert images_behind(server, wrong) == sorted(found.entries("dillema:noise", "wrong"))
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert not wide(page)
    here = page.url
    assert opened(page, images.last) == found.compared.tables[0].images[-1]

    page.goto(here)
    page.locator("#methods > p").get_by_role("link", name=names[-1]).click()
    expect(page.locator("#methods p b").first).to_have_text(names[-1])
    page.get_by_role("link", name="on the page of the evaluation").click()
    page.click("#draft")
    page.wait_for_url(re.compile("/study/"))
    expect(page.locator("main")).to_contain_text(names[0])
