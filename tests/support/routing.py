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
    """Within it `handler` gets every request of the page that is open to such an address.

    `page.route` alone does not do that: it returns when the browser has heard of it, and the process of the page
    hears of it a moment later. What the page asks for in that moment goes to the server, and playwright, which waits
    to get it as a paused one, never tells of it (seen about once in 200 times on a busy machine). So the page asks for
    something that only playwright answers, until it does. A page that is loaded after `page.route` needs none of this.
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
    """A handler of requests that keeps them from the server until they are let through."""

    def __init__(self) -> None:
        self.waiting: list[Route] | None = []

    def __call__(self, route: Route) -> None:
        if self.waiting is None:
            route.continue_()
        else:
            self.waiting.append(route)

    def let_through(self) -> None:
        """Let the waiting requests through, and all later ones."""
        waiting, self.waiting = self.waiting or [], None
        for route in waiting:
            route.continue_()
