"""Takes screenshots of a page for `docs/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize

SIZES = ({"width": 1280, "height": 1180}, {"width": 1920, "height": 1180})
"""Sizes of the window for the pictures that `Camera.states` takes."""
OTHER_HEIGHTS = {1440: 900, 390: 844}


class Camera:
    """Takes pictures of a browser page and lists their files. `sizes` are the sizes of the window for `states`."""

    def __init__(self, page: Page, folder: Path, sizes: Sequence[ViewportSize] | None = None) -> None:
        self._page, self._folder = page, folder
        self._sizes = sizes or SIZES
        self._made: list[Path] = []
        for place in (folder, folder / "steps", folder / "screens"):
            place.mkdir(parents=True, exist_ok=True)

    def taken(self) -> list[Path]:
        """Return the files of the pictures taken since the last call."""
        made, self._made = self._made, []
        return made

    def page(self, name: str, width: int, dark: bool = False, at: str = "") -> None:
        """Take a picture of the page, `width` pixels wide. If `at` is a selector, scroll to that element first."""
        self._stand(width, dark)
        if at:
            self._page.locator(at).evaluate("part => part.scrollIntoView({ block: 'end' })")
        self._keep(f"{name}.png", None)

    def states(self, name: str, at: str = "") -> None:
        """Take pictures of the page in all window sizes, light and dark, and write them into `screens/`."""
        for size in self._sizes:
            for dark in (False, True):
                width = size["width"]
                self.page(f"screens/{name}-{width}-{'dark' if dark else 'light'}", width, dark, at)

    def step(self, name: str, selector: str) -> None:
        """Take a picture of one element for the guide for beginners, and write it into `steps/`."""
        self._stand(1280, dark=False)
        self._keep(f"steps/{name}.png", selector)

    def _stand(self, width: int, dark: bool) -> None:
        page = self._page
        heights = OTHER_HEIGHTS | {size["width"]: size["height"] for size in SIZES}
        page.set_viewport_size({"width": width, "height": heights[width]})
        # The explore page has the class of its theme on the body, other pages on the document.
        page.evaluate(
            "dark => [document.body, document.documentElement].map(e => e.classList.toggle('dark', dark))", dark
        )
        page.evaluate("window.scrollTo(0, 0)")
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)

    def _keep(self, name: str, selector: str | None) -> None:
        path = self._folder / name
        if selector is None:
            self._page.screenshot(path=path)
        else:
            self._page.locator(selector).first.screenshot(path=path)
        # The repository keeps the pictures, and with a palette they take a third of the bytes.
        with Image.open(path) as taken:
            small = taken.convert("RGB").quantize(256)
        small.save(path, optimize=True)
        self._made.append(path)
