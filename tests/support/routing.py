"""Requests of an open page that a test holds back, refuses or answers itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.serving import until

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

_PROBE = "/is-this-routed"


@contextmanager
def routed(page: Page, address: str, handler: Callable[[Route], object]) -> Iterator[None]:
    """Pass each request of the open page to such an address to `handler`, until the context ends.

    `page.route` alone is not enough: it returns when the browser knows the route, but the page's process learns of it a
    moment later. A request in that moment goes to the server and is lost for playwright (about once in 200 times on a
    busy machine). So the page sends requests that only playwright answers, until one is answered. A page loaded after
    `page.route` does not need this.
    """
    through: list[str] = []

    def answer(route: Route) -> None:
        through.append(route.request.url)
        route.fulfill(body="")

    page.route(address, handler)
    page.route(f"**{_PROBE}", answer)
    until(lambda: page.evaluate(f"fetch('{_PROBE}').then((reply) => reply.text()).then(() => true)") and through)
    page.unroute(f"**{_PROBE}")
    try:
        yield
    finally:
        page.unroute(address)


class HeldBack:
    """Route handler that holds requests back until the test lets them through."""

    def __init__(self) -> None:
        self.waiting: list[Route] | None = []

    def __call__(self, route: Route) -> None:
        if self.waiting is None:
            route.continue_()
        else:
            self.waiting.append(route)

    def let_through(self) -> None:
        """Let the held requests through, and all later ones."""
        waiting, self.waiting = self.waiting or [], None
        for route in waiting:
            route.continue_()
