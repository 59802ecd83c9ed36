"""Lost replies in Chromium: the page reports the loss at once, finds the studio again, and loses nothing."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from tests.support.browser import settled
from tests.support.cutting_proxy import cutting_proxy
from tests.support.explorer import Served, look, one_server, text_run
from tests.support.routing import HeldBack, routed
from tests.support.scripted import SUNNY_BIRD
from tests.support.serving import until

served = one_server()

WATCHED = """new MutationObserver(() => { window.wasLost ||= document.body.classList.contains('lost'); })
  .observe(document.body, { attributes: true, attributeFilter: ['class'] })"""


def test_a_reply_that_ends_in_the_middle_is_a_lost_server(served: Served, page: Page) -> None:
    """The studio is killed while it answers: the page gets the status of the reply but never the rest."""
    run = text_run(served.studio)
    with cutting_proxy(urlsplit(served.url).port or 0) as proxy:
        page.goto(f"{proxy.url}?run={run}")
        page.wait_for_selector("#generate")
        settled(page)
        page.evaluate(WATCHED)  # the page may find the studio again before the test looks
        proxy.cut = b"/component_server"
        look(page)
        assert proxy.has_cut.wait(60)
        page.wait_for_function("window.wasLost", timeout=15_000)  # not only after 20 s, when a reply counts as overdue
        page.wait_for_function("!document.body.classList.contains('lost')")
        assert page.evaluate("studio.run") == run
        expect(page.locator("#caption-text")).to_have_value(SUNNY_BIRD)
        page.goto("about:blank")


def test_a_first_reply_that_comes_after_it_was_given_up_still_opens_the_run(served: Served, page: Page) -> None:
    """The studio answers only after twenty seconds, like a machine that is loading its models."""
    run = text_run(served.studio)
    held = HeldBack()
    page.route("**/component_server/", held)
    page.clock.install()
    page.goto(f"{served.url}?run={run}")
    wait_for_requests(page, held, 1)
    page.clock.fast_forward(20_500)
    page.wait_for_function("document.body.classList.contains('lost')")
    page.clock.fast_forward(4_500)
    wait_for_requests(page, held, 2)
    held.let_through()
    expect(page.locator("#caption-text")).to_have_value(SUNNY_BIRD)
    settled(page)
    assert page.evaluate("studio.run") == run and not page.evaluate("studio.lost")
    page.goto("about:blank")
    page.unroute("**/component_server/")


def test_a_text_that_was_given_up_is_saved_when_its_person_says_so_again(served: Served, page: Page) -> None:
    """The studio never got the text. The page still has it, and says that Enter saves it."""
    run, said = text_run(served.studio), "A red bird that the studio has not heard of."
    caption = page.locator("#caption-text")
    page.clock.install()
    page.goto(f"{served.url}?run={run}")
    page.wait_for_selector("#generate")
    settled(page)
    held = HeldBack()
    with routed(page, "**/component_server/", held):
        caption.fill(said)
        caption.press("Enter")
        wait_for_requests(page, held, 1)
        page.clock.fast_forward(20_500)
        page.wait_for_function("studio.lost")
        for route in held.waiting or []:
            route.continue_(post_data=(route.request.post_data or "").replace('"name":"caption"', '"name":"poll"'))
        held.waiting = None
        page.clock.fast_forward(4_500)
        page.wait_for_function("!studio.lost && studio.idle")
        expect(page.locator("#stage-caption .unsaved")).to_be_visible()
        assert len(served.studio.workspace.runs.history(run, "caption")) == 1
        caption.click()
        caption.press("Enter")
        expect(page.locator("#state-caption")).to_have_text("edited by you")
        expect(caption).to_have_value(said)
        page.goto("about:blank")


def wait_for_requests(page: Page, held: HeldBack, count: int) -> None:
    """Wait until `count` requests are held back. Evaluating on the page lets the browser's events arrive."""
    until(lambda: page.evaluate("1") and len(held.waiting or []) >= count)
