"""Helpers for browser tests of the explore page: a server with a page, and a user's first steps."""

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
"""Maximum number of seconds for the embedded models, on a machine with other work."""
RED = Image.new("RGB", (64, 64), (200, 40, 40))
CHECKS = (
    "shapes kept",
    "edit visible",
    "close to the source",
    "fits its caption",
    "changed as asked",
    "label recognisable",
)
"""Names of the checks that the page shows for an image of a classification."""

EVERY_PLACE = """[...document.querySelectorAll('.studio *')].filter((one) => one.checkVisibility()).map((one) => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return [one.tagName, one.id, ...[x, y + scrollY, width, height].map(Math.round)].join(' '); })"""
"""JavaScript: position and size of every element on a page of the lead."""


@dataclass
class Served:
    """Server of a test file, with the page that shows it."""

    url: str
    studio: Studio
    page: Page
    failed: int = 0

    def begin(self, request: pytest.FixtureRequest) -> Studio:
        """Open the start page without a trace of this browser's earlier pages. Return the studio."""
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
    """Serve these models, or scripted ones, in this process. The model under test is a stand-in too."""
    with serving_here(folder / "workspace", models or ScriptedModels()) as (url, behind):
        behind.predictions.load = lambda wanted: Bright("classification", wanted.title)
        yield url, behind


def one_server(models: Callable[[], Any] = ScriptedModels) -> Any:
    """Fixture that yields a `Served` for all tests of a file."""

    @pytest.fixture(scope="module")
    def served(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
        with serving_stand_ins(tmp_path_factory.mktemp("served"), models()) as (url, behind):
            yield Served(url, behind, page)
            page.goto("about:blank")

    return served


@contextmanager
def held_drawing(studio: Studio) -> Iterator[HeldGenerator]:
    """Replace the generator by one that draws only as far as the test lets it."""
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
    """Create a run from an upload labelled bird, and run all its text stages, without a page. Return its id."""
    run_id = studio.runs.from_upload(encoded(image), name)
    studio.commands.send("task", {"run": run_id, "kind": "classification", "label": "bird"})
    fill(studio, run_id)
    return run_id


def fill(studio: Studio, run_id: str) -> None:
    """Run all text stages of a run without a page."""
    studio.commands.send("run-all", {"run": run_id})
    until(lambda: not studio.jobs.active())


def draw(studio: Studio, run_id: str) -> None:
    """Approve the images of a run without a page, and wait for them."""
    studio.commands.send("generate", {"run": run_id})
    until(lambda: not studio.jobs.active())


def open_run(page: Page, run_id: str) -> None:
    """Open a run from another run's page or from the start page."""
    page.evaluate("run => studio.send({ name: 'open', fields: { run } })", run_id)
    page.wait_for_function("run => studio.run === run", arg=run_id)
    page.wait_for_selector("#run-all")
    settled(page)


def look(page: Page) -> None:
    """Make the page poll at once, as when a user returns to it."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def shows_every_check(page: Page) -> None:
    """Check that the result on the page has all checks of a classification, by name."""
    names = " ".join(page.locator("#checks .pill").all_inner_texts())
    for name in CHECKS:
        assert name in names


def choose_a_model_that_is_none(page: Page, timeout: float) -> None:
    """Choose a model that torchvision does not know. The refusal suggests a similar name."""
    from playwright.sync_api import expect

    page.click("#choose-model summary")
    page.select_option("#choose-model [name=source]", "torchvision")
    page.fill("#choose-model [name=model]", "resnet5")
    page.click("#choose-model [data-submit]")
    expect(page.locator("#under-test-problem")).to_contain_text("perhaps you mean resnet50", timeout=timeout)


def open_start(page: Page, url: str) -> None:
    """Open the start page, whatever this browser showed before."""
    page.goto(f"{url}?run=")
    page.wait_for_selector(".start h1")
    settled(page)


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    """Return the image as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def upload(page: Page, name: str, data: bytes) -> None:
    """Upload a file on the page."""
    page.set_input_files("#upload input[type=file]", {"name": name, "mimeType": "image/png", "buffer": data})


def upload_bird(page: Page, image: Image.Image = RED, name: str = "bird.png") -> None:
    """Create a run from an upload on the page, and set its label."""
    upload(page, name, encoded(image))
    page.wait_for_selector("#task-label:visible")
    page.fill("#task-label", "bird")
    page.press("#task-label", "Enter")
    page.wait_for_selector("#run-all:enabled")


def state(page: Page, stage: str) -> str:
    """Return the state of a stage as shown on the page."""
    return page.inner_text(f"#state-{stage}")


def mark_page(page: Page) -> None:
    """Mark the page, so that `reloaded_by_itself` can recognise the next one."""
    page.evaluate("window.ofBefore = true")


def reloaded_by_itself(page: Page) -> None:
    """Wait until the page has reloaded after a restart of the server, and no request is open."""
    page.wait_for_function("!window.ofBefore && window.studio && studio.idle", timeout=120_000)
