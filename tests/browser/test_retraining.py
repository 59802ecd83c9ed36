"""Retraining on the page Evaluate in Chromium: choose, begin, cancel, resume and read."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from core.evaluation_results import BEFORE, ON_GENERATED, ORIGINAL
from core.figures import Floats
from core.settings import UnderTestSettings
from evaluation.models import ModelUnderTest
from evaluation.retraining.arm_statistics import GENERATED
from evaluation.retraining.stored_training import Training, learnt
from services.evaluation.retraining import jobs as retrainings
from services.evaluation.service import model_choice_key
from tests.support.evaluation_cases import BIRDS, ROADS, scenes_that_are_read
from tests.support.made_once import MadeOnce
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

Server = tuple[str, "Studio"]
SPILT = """[...document.querySelectorAll('#part-retraining, #part-retraining *')].filter((one) => one.checkVisibility()
    && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.arms-table')).map((one) => one.outerHTML)"""
"""JavaScript: elements of the retraining part that are wider than the window. The table scrolls, so it may be."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Server]:
    """Server on classification and segmentation scenes that the models of the demo have read."""
    folder = scenes_that_are_read(made_once, tmp_path_factory.mktemp("retrain"))
    with serving_here(folder, ScriptedModels()) as served:
        yield served


@pytest.fixture(autouse=True)
def no_errors(page: Page) -> Iterator[None]:
    """Fail the test if the console of the browser reports an error."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield
    assert [one for one in said if "status of 400" not in one] == []


def opened(page: Page, server: Server, kind: str = "classification") -> None:
    asked = BIRDS if kind == "classification" else ROADS
    query = {"filter": f"kind={kind}", "key": model_choice_key(asked.model)}
    page.goto(f"{server[0]}evaluate/?{urlencode(query)}")
    page.wait_for_function("window.retraining?.ready")


def ask(page: Page, **typed: str) -> None:
    """Fill in the form with small values, for a training of seconds, and send it."""
    more = page.locator("#retraining-form details:not([open]) > summary")
    if more.count():
        more.click()
    for name, text in {"seeds": "2", "updates": "4", "batch": "4", **typed}.items():
        page.locator(f"#f-{name}").fill(text)
    for arm in ("augmentation", "reconstructions", "valid", "ranked"):
        page.locator(f"#f-arm-{arm}").uncheck()
    page.locator("#begin-retraining").click()


def test_begun_cancelled_gone_on_with_and_read(
    page: Page, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reached, go = threading.Event(), threading.Event()

    def held(training: Training, on_update: Callable[[int, float], None]) -> dict[str, Floats]:
        def told(update: int, loss: float) -> None:
            if (training.arm.name, training.seed, update) == (GENERATED, 0, 3):
                reached.set()
                go.wait(300)
            on_update(update, loss)

        return learnt(training, told)

    monkeypatch.setattr(retrainings, "learnt", held)
    opened(page, server)
    page.locator("#sides > summary").click()
    expect(page.locator("#sides")).to_contain_text("this finds all flips, crops of 5 % at each edge")
    time = page.locator("#retraining-time")
    expect(time).to_contain_text("The duration is not known yet: this model was never trained here.")
    ask(page, updates="a few")
    refused = page.locator("[data-problem=updates]")
    expect(refused).to_contain_text("“updates” is not valid")
    with page.expect_response(re.compile("retraining-time")):
        page.locator("#f-seeds").fill("1")
    expect(refused).to_contain_text("“updates” is not valid")
    ask(page)
    assert reached.wait(300)
    progress = page.locator("#retraining-progress")
    expect(progress).to_contain_text("Training “+ generated, all”, seed 1 of 2: 6 of 16 updates")
    expect(page.locator("#retraining-form")).to_have_count(0)
    page.locator("[data-retrain=cancel]").click()
    expect(progress).to_have_text("Stopping: finished training is kept.")
    go.set()
    expect(page.locator("#part-retraining")).to_contain_text("Cancelled: finished training is kept.")
    ask(page)
    answer = page.locator("#retraining-answer")
    expect(answer).to_contain_text("Trained further with “+ generated, all”, classifier.safetensors is right about")
    rows = page.locator("#part-retraining tbody th")
    assert rows.all_text_contents() == ["not trained further", ORIGINAL, GENERATED]
    (kept,) = server[1].retrainings.kept(BIRDS)
    row = kept.found.row(GENERATED, "original")
    assert row is not None and row.accuracy.value is not None
    cell = page.locator("#part-retraining tr.main td").nth(1)
    expect(cell).to_contain_text(f"{100 * row.accuracy.value:.1f} %")
    with page.expect_download() as coming:
        page.get_by_role("link", name="Markdown", exact=True).last.click()
    text = Path(coming.value.path()).read_text(encoding="utf-8")
    assert text.startswith("# What retraining classifier.safetensors gains") and "| + generated, all |" in text
    lost = kept.found.opens(ON_GENERATED, BEFORE)
    assert lost is not None and lost.images == len(lost.entries)
    shown = page.locator("#part-retraining tbody tr").first.locator("td").nth(2).locator("b a")
    expect(shown).to_have_attribute("title", re.compile(f"gets wrong: {lost.images} images"))
    with page.expect_navigation(url=re.compile("/curate/")):
        shown.click()
    page.wait_for_function("window.gallery && gallery.idle")
    assert page.locator("#count").inner_text() == f"{lost.images}"
    page.go_back()
    expect(answer).to_be_visible()
    page.locator("#retraining-weights > summary").click()
    with page.expect_download() as coming:
        page.locator(f"[data-weights='{GENERATED}']").click()
    assert coming.value.suggested_filename == "classifier-generated-all.safetensors"
    taken = tmp_path / coming.value.suggested_filename
    coming.value.save_as(taken)
    model = ModelUnderTest(UnderTestSettings(source="file", file=str(taken)))
    assert model.identity.classes == ModelUnderTest(BIRDS.model).identity.classes
    expect(page.locator("#trainings-disk")).to_have_text(re.compile(r"All trainings of this studio take \d.* MB"))
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(SPILT) == []
    page.reload()
    expect(answer).to_contain_text("Trained further with “+ generated, all”")
    assert page.locator("#retrain").get_attribute("open") is None
    # The page estimates the time before it begins, by the measured speed, and updates it with the form.
    page.locator("#retrain > summary").click()
    expect(time).to_contain_text(re.compile("^About .*: 30 trainings of 400 updates with 32 images each"))
    page.locator("#f-seeds").fill("10")
    expect(time).to_contain_text("60 trainings")
    page.locator("#f-seeds").fill("many")
    expect(time).to_be_empty()
    # The trained model can be chosen at once, without downloading a file.
    page.goto(f"{server[0]}evaluate/?{urlencode({'filter': 'kind=classification'})}")
    page.locator("#trained-here > summary").click()
    page.locator(f"[data-trained][data-arm='{GENERATED}']").click()
    expect(page.locator("#model")).to_have_text("classifier-generated-all.safetensors")
    # Explore offers the trained model for a run of its task.
    runs = server[1].workspace.runs
    run = next(one.id for one in runs.lines(99) if runs.get(one.id).task.kind == "classification")
    page.goto(f"{server[0]}?run={run}")
    page.click("#choose-model > summary")
    page.click("#choose-model #trained-here > summary")
    page.click(f"#choose-model [data-trained][data-arm='{GENERATED}']")
    expect(page.locator("#under-test-name")).to_have_text("classifier-generated-all.safetensors")


def test_what_cannot_be_trained_is_told_in_a_sentence(page: Page, server: Server) -> None:
    sets = server[1].workspace.test_sets
    shift = sets.get(sets.create("Fog")).versions[0]
    opened(page, server, "segmentation")
    expect(page.locator("#f-shift option")).to_have_text(["none", shift.words])
    page.locator("#f-shift").select_option(f"{shift.number}")
    ask(page)
    part = page.locator("#part-retraining")
    expect(part.locator(".problem")).to_contain_text("None of the 4 sources is left to tune with")
    expect(part.locator("#retraining-form")).to_be_visible()
