"""Helpers of the browser tests of the explore page: a started page, and a person's first steps on it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.services.runs.test_predictions import Bright
from tests.support.browser import settled
from tests.support.scripted import HeldGenerator, ScriptedModels
from tests.support.serving import serving_here, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

DEMO_SECONDS = 600
"""For the embedded models on a machine that is busy with other things."""
RED = Image.new("RGB", (64, 64), (200, 40, 40))
CHECKS = (
    "shapes kept",
    "edit visible",
    "close to the source",
    "fits its caption",
    "changed as asked",
    "label recognisable",
)
"""Checks of an image of a classification, as the page names them."""

EVERY_PLACE = """[...document.querySelectorAll('.studio *')].filter((one) => one.checkVisibility()).map((one) => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return [one.tagName, one.id, ...[x, y + scrollY, width, height].map(Math.round)].join(' '); })"""
"""Positions of all elements on a page of the lead."""


@dataclass
class Served:
    """The server of a test file, and the page that looks at it."""

    url: str
    studio: Studio
    page: Page
    failed: int = 0

    def begin(self, request: pytest.FixtureRequest) -> Studio:
        """Open the start page, independent of this browser's earlier pages."""
        here = self.page.url.startswith(self.url) and self.failed == request.session.testsfailed
        self.failed = request.session.testsfailed
        if here and self.page.evaluate("!studio.lost"):
            self.page.evaluate("studio.say(''); studio.send({ name: 'new' })")
            self.page.wait_for_selector(".start h1")
            settled(self.page)
        else:
            open_start(self.page, self.url)
        return self.studio


@contextmanager
def serving_stand_ins(folder: Path, models: Any = None) -> Iterator[tuple[str, Studio]]:
    """A server in this process with these models, or scripted ones, and a stand-in for the model under test too."""
    with serving_here(folder / "workspace", models or ScriptedModels()) as (url, behind):
        behind.predictions.load = lambda wanted: Bright("classification", wanted.title)
        yield url, behind


def one_server(models: Callable[[], Any] = ScriptedModels) -> Any:
    """A fixture: a `Served` for all tests of a file."""

    @pytest.fixture(scope="module")
    def served(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
        with serving_stand_ins(tmp_path_factory.mktemp("served"), models()) as (url, behind):
            yield Served(url, behind, page)
            page.goto("about:blank")

    return served


@contextmanager
def held_drawing(studio: Studio) -> Iterator[HeldGenerator]:
    """Its images are drawn only as far as they are let."""
    models: Any = studio.driver.models
    before, models.generator = models.generator, HeldGenerator()
    try:
        yield models.generator
    finally:
        studio.jobs.cancel_all()
        models.generator.let_all()
        models.generator = before
        until(lambda: not studio.jobs.active())


def text_run(studio: Studio, image: Image.Image = RED, name: str = "bird.png") -> str:
    """A run of an upload that is labelled bird, all its text stages run, without a page; its id."""
    run_id = studio.runs.from_upload(encoded(image), name)
    studio.commands.send("task", {"run": run_id, "kind": "classification", "label": "bird"})
    fill(studio, run_id)
    return run_id


def fill(studio: Studio, run_id: str) -> None:
    """Run all text stages of a run, without a page."""
    studio.commands.send("run-all", {"run": run_id})
    until(lambda: not studio.jobs.active())


def draw(studio: Studio, run_id: str) -> None:
    """Say yes at the gate of a run, without a page, and wait for the images."""
    studio.commands.send("generate", {"run": run_id})
    until(lambda: not studio.jobs.active())


def open_run(page: Page, run_id: str) -> None:
    """Go to a run, from any other or from the start page."""
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", run_id)
    page.wait_for_function("run => studio.run === run", arg=run_id)
    page.wait_for_selector("#run-all")
    settled(page)


def look(page: Page) -> None:
    """Come back to a page: it asks at once what is new, and not only at its next poll."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def shows_every_check(page: Page) -> None:
    """The result of a classification that is shown has all its checks, by their names."""
    names = " ".join(page.locator("#checks .pill").all_inner_texts())
    for name in CHECKS:
        assert name in names


def choose_a_model_that_is_none(page: Page, timeout: float) -> None:
    """A name that torchvision does not know is refused, with one that it may have been meant for."""
    from playwright.sync_api import expect

    page.click("#choose-model summary")
    page.select_option("#choose-model [name=source]", "torchvision")
    page.fill("#choose-model [name=model]", "resnet5")
    page.click("#choose-model [data-submit]")
    expect(page.locator("#under-test-problem")).to_contain_text("perhaps you mean resnet50", timeout=timeout)


def open_start(page: Page, url: str) -> None:
    """The start page, whatever this browser looked at before."""
    page.goto(f"{url}?run=")
    page.wait_for_selector(".start h1")
    settled(page)


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def upload(page: Page, name: str, data: bytes) -> None:
    """Give the page a file of one's own."""
    page.set_input_files("#upload input[type=file]", {"name": name, "mimeType": "image/png", "buffer": data})


def upload_bird(page: Page, image: Image.Image = RED, name: str = "bird.png") -> None:
    """A run of an upload with its label given."""
    upload(page, name, encoded(image))
    page.wait_for_selector("#task-label:visible")
    page.fill("#task-label", "bird")
    page.press("#task-label", "Enter")
    page.wait_for_selector("#run-all:enabled")


def state(page: Page, stage: str) -> str:
    """The state of a stage as the page says it."""
    return page.inner_text(f"#state-{stage}")


def mark_page(page: Page) -> None:
    """Mark the page, so that `reloaded_by_itself` can tell the one after it."""
    page.evaluate("window.ofBefore = true")


def reloaded_by_itself(page: Page) -> None:
    """Wait until the page, which finds another start of the server, has loaded anew and nothing is on its way."""
    page.wait_for_function("!window.ofBefore && window.studio && studio.idle", timeout=120_000)
