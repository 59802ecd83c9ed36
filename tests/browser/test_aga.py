"""From a picture to an accepted test case with a new background, in Chromium, with a corrected subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from core.regions import Region
from tests.browser.test_brush import SIZE
from tests.support.browser import settled
from tests.support.explorer import Served, one_server, state, upload_bird
from tests.support.scripted import noise

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
served = one_server()
PICTURE = noise("source", 0, SIZE)
CANVAS = "#stage-subject canvas"


def subject(served: Served, run_id: str) -> np.ndarray:
    """Return the saved mask of the subject, as booleans."""
    value = served.studio.workspace.runs.get(run_id).values["subject"].value.value
    assert isinstance(value, Region)
    mask = value.mask(SIZE)
    assert mask is not None
    return np.asarray(mask) > 0


def place(page: Page, x: float, y: float) -> tuple[float, float]:
    """Return the position on the page of the picture's pixel (x, y)."""
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    return box["x"] + x / SIZE[0] * box["width"], box["y"] + y / SIZE[1] * box["height"]


def drag(page: Page, start: tuple[float, float], stop: tuple[float, float]) -> None:
    page.locator(CANVAS).scroll_into_view_if_needed()
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    page.mouse.move(*place(page, *stop), steps=4)
    page.mouse.up()
    settled(page)


def test_from_a_picture_to_an_accepted_test_case_with_a_corrected_subject(
    served: Served, request: pytest.FixtureRequest, page: Page
) -> None:
    served.begin(request)
    upload_bird(page, PICTURE)
    page.click("#recipes label:has-text('AGA')")
    settled(page)
    expect(page.locator("#painted-subject")).to_have_text("Nothing is marked as the subject yet.")
    page.click("#run-all:enabled")
    expect(page.locator("#state-counterfactuals")).to_have_text("ready")
    settled(page)
    run_id = page.evaluate("studio.run")
    before = subject(served, run_id)
    expect(page.locator("#painted-subject")).to_have_text("25.0 % of the picture is the subject.")

    drag(page, (20, 48), (60, 48))  # one brush stroke
    corrected = subject(served, run_id)
    assert corrected[48, 20:61].all() and (corrected >= before).all() and corrected.sum() > before.sum()
    assert state(page, "subject") == "edited by you" and state(page, "counterfactuals") == "ready"

    page.click("#generate:enabled")
    page.wait_for_function("studio.cases.length === 4")
    settled(page)
    drag(page, (20, 20), (40, 20))
    assert state(page, "counterfactuals") == "ready", "the descriptions do not depend on the subject"
    expect(page.locator("#state-generation")).to_contain_text("stale")
    page.locator(CANVAS).focus()
    page.keyboard.press("Control+z")
    settled(page)
    assert (subject(served, run_id) == corrected).all()
    expect(page.locator("#state-generation")).to_have_text("ready")

    page.click("[data-do=review][data-verdict=accepted]")
    settled(page)
    accepted = [case for case in served.studio.workspace.runs.get(run_id).test_cases if case.review is not None]
    assert [case.review.verdict for case in accepted if case.review is not None] == ["accepted"]
    with Image.open(accepted[0].image_path) as image:
        assert (np.asarray(image)[corrected] == np.asarray(PICTURE)[corrected]).all()

    page.click("#stage-subject [data-brush=point]")
    page.mouse.click(*place(page, 80.5, 40.5))
    expect(page.locator("#state-subject")).to_have_text("ready")
    settled(page)
    settings = served.studio.workspace.runs.get(run_id).settings["subject"]
    assert settings["points"] == "80 40" and (subject(served, run_id) == before).all()
    page.click("#stage-subject [data-brush=box]")
    drag(page, (30, 10), (90, 80))
    page.wait_for_function("studio.idle")
    assert served.studio.workspace.runs.get(run_id).settings["subject"]["box"] == "30 10 90 80"
