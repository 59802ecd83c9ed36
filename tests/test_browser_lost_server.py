"""A reply that is lost on its way, in Chromium: the page says so at once, finds the studio again, and loses nothing."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from benchmarks.serving import settled
from tests.cutting_proxy import cutting_proxy
from tests.explorer import HeldBack, mark_page, open_start, reloaded_by_itself, to_the_gate
from tests.scripted import SUNNY_BIRD, ScriptedModels
from tests.serving import serving_here, until


def test_a_reply_that_ends_in_the_middle_is_a_lost_server(tmp_path: Path, page: Page) -> None:
    """As when the studio is killed while it answers: the page had its status and waited for what never came."""
    served = serving_here(tmp_path / "workspace", ScriptedModels())
    with served as (url, _), cutting_proxy(urlsplit(url).port or 0) as proxy:
        open_start(page, proxy.url)
        run = to_the_gate(page)
        mark_page(page)
        proxy.cut = b"/run/predict"
        assert proxy.has_cut.wait(60)
        page.wait_for_function("document.body.classList.contains('lost') || !window.ofBefore", timeout=15_000)
        reloaded_by_itself(page)
        assert page.evaluate("studio.run") == run
        expect(page.locator("#caption-text")).to_have_value(SUNNY_BIRD)
        page.goto("about:blank")


def test_a_first_reply_that_comes_after_it_was_given_up_still_opens_the_run(tmp_path: Path, page: Page) -> None:
    """As on a machine that is busy with loading its models: twenty seconds are over before the studio answers."""
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, _):
        open_start(page, url)
        run = to_the_gate(page)
        held = HeldBack()
        page.route("**/run/predict*", held)
        page.clock.install()
        page.goto(f"{url}?run={run}")
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
        page.unroute("**/run/predict*")


def wait_for_requests(page: Page, held: HeldBack, count: int) -> None:
    """Until that many are held back; the browser's events come in while the page is asked something."""
    until(lambda: page.evaluate("1") and len(held.waiting or []) >= count)
