"""What the browser tests of the explore page share: a started page, and what a person does on it first."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from benchmarks.serving import settled
from tests.serving import serving_here

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from services.studio import Studio

DEMO_SECONDS = 600
"""For the embedded models on a machine that is busy with other things."""
RED = Image.new("RGB", (64, 64), (200, 40, 40))


@contextmanager
def started(page: Page, folder: Path, models: Any) -> Iterator[Studio]:
    """The start page of a studio of its own with these models, which is left again at the end."""
    with serving_here(folder / "workspace", models) as (url, behind):
        open_start(page, url)
        yield behind
        page.goto("about:blank")


def open_start(page: Page, url: str) -> None:
    """The start page, whatever this browser looked at before."""
    page.goto(f"{url}?run=")
    page.wait_for_selector(".start h1")
    settled(page)


class HeldBack:
    """A handler of requests that keeps them from the server until they are let through."""

    def __init__(self) -> None:
        self.waiting: list[Route] | None = []

    def __call__(self, route: Route) -> None:
        if self.waiting is None:
            route.continue_()
        else:
            self.waiting.append(route)

    def let_through(self) -> None:
        """Those that wait, and all that come."""
        waiting, self.waiting = self.waiting or [], None
        for route in waiting:
            route.continue_()


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


def to_the_gate(page: Page, image: Image.Image = RED, name: str = "bird.png") -> str:
    """A run of an upload, all its text stages run; gives its id."""
    upload_bird(page, image, name)
    page.click("#run-all")
    page.wait_for_selector("#generate")
    settled(page)
    return str(page.evaluate("studio.run"))


def state(page: Page, stage: str) -> str:
    """The state of a stage as the page says it."""
    return page.inner_text(f"#state-{stage}")


def mark_page(page: Page) -> None:
    """Mark the page, so that `reloaded_by_itself` can tell the one after it."""
    page.evaluate("window.ofBefore = true")


def reloaded_by_itself(page: Page) -> None:
    """Wait until Gradio, which finds a server again after a loss, has reloaded the page and nothing is on its way."""
    page.wait_for_function("!window.ofBefore && window.studio && studio.idle", timeout=120_000)
