"""The pages with full or blocked browser storage, without cookies, without a script, and with a repeated press."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from core.image_filter import ImageFilter
from tests.support.annotating import running
from tests.support.browser import page_in, settled
from tests.support.drawn import fill
from tests.support.explorer import text_run
from tests.support.routing import HeldBack, routed
from tests.support.scripted import SUNNY_BIRD, ScriptedModels
from tests.support.serving import serving_here, until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Dialog, Page

    from services.studio import Studio

BLOCKED = """for (const name of ['localStorage', 'sessionStorage', 'indexedDB']) Object.defineProperty(window, name, {
  get() { throw new DOMException('Access is denied for this document.', 'SecurityError'); }
});"""
FULL = """for (const store of [localStorage, sessionStorage]) for (let size = 1 << 20, number = 0; size;) {
  try { store.setItem(number, 'x'.repeat(size - 1)); number += 1; } catch { size >>= 1; }
}"""
"""JavaScript: fill the browser's storage so that not even a short key fits."""
KEEPS_NOTHING = "This browser keeps nothing for this page"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("kept") / "workspace", ScriptedModels()) as (url, studio):
        fill(studio.workspace, 4, 6, pixels=16)
        yield url, studio


@pytest.fixture(scope="module")
def run(server: tuple[str, Studio]) -> str:
    return text_run(server[1])


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Page]:
    """Page with its own browser storage."""
    with page_in(browser) as opened:
        yield opened


@pytest.fixture(params=["full", "blocked"])
def forgetful(visitor: Page, server: tuple[str, Studio], request: pytest.FixtureRequest) -> Page:
    """Page whose browser storage is full or blocked."""
    if request.param == "blocked":
        visitor.add_init_script(BLOCKED)
    else:
        visitor.goto(f"{server[0]}healthz")
        visitor.evaluate(FULL)
    return visitor


def accepted(studio: Studio) -> int:
    return len(studio.workspace.catalogue.ids(ImageFilter.read("review=accepted")))


def test_pages_and_decisions_work_without_storage(forgetful: Page, server: tuple[str, Studio], run: str) -> None:
    page, (url, studio) = forgetful, server
    page.goto(url)
    page.wait_for_selector(".start h1")
    page.goto(f"{url}?run={run}")
    expect(page.locator("#caption-text")).to_have_value(SUNNY_BIRD)
    settled(page)
    expect(page.locator("#keeps-nothing")).to_be_hidden()
    before = accepted(studio)
    page.goto(f"{url}curate/?review=open")
    page.wait_for_function("window.gallery?.review && gallery.idle")
    page.keyboard.press("a")
    page.keyboard.press("a")
    page.wait_for_function("!gallery.review.waiting.length")
    assert accepted(studio) == before + 2
    expect(page.locator("#said")).to_be_empty()


def test_what_cannot_be_kept_is_told_once_and_holds_on_this_page(
    forgetful: Page, server: tuple[str, Studio], run: str
) -> None:
    page, url = forgetful, server[0]
    page.goto(f"{url}scripts")
    dark = page.evaluate("document.documentElement.classList.contains('dark')")
    page.click("[data-theme-switch]")
    assert page.evaluate("document.documentElement.classList.contains('dark')") is not dark
    expect(page.locator("#keeps-nothing")).to_contain_text(KEEPS_NOTHING)
    expect(page.locator("#keeps-nothing")).to_be_in_viewport(ratio=1)
    page.click("#keeps-nothing button")
    expect(page.locator("#keeps-nothing")).to_be_hidden()
    page.click("[data-theme-switch]")
    expect(page.locator("#keeps-nothing")).to_be_hidden()
    # The warning also appears while unsaved text is in a field.
    page.goto(f"{url}?run={run}")
    caption = page.locator("#caption-text")
    caption.fill("A bird that nobody has saved.")
    expect(page.locator("#keeps-nothing")).to_contain_text(KEEPS_NOTHING)
    expect(caption).to_have_value("A bird that nobody has saved.")
    caption.fill(SUNNY_BIRD)


@pytest.mark.parametrize("forgetful", ["full"], indirect=True)
def test_decisions_that_wait_for_a_studio_that_is_away_ask_to_keep_the_page_open(
    forgetful: Page, server: tuple[str, Studio]
) -> None:
    page, (url, _) = forgetful, server
    page.goto(f"{url}curate/?review=open")
    page.wait_for_function("window.gallery?.review && gallery.idle")
    with routed(page, "**/curate/api/hold", lambda route: route.abort()):
        page.keyboard.press("a")
        expect(page.locator("#said")).to_contain_text("1 not saved yet")
        expect(page.locator("#said")).to_contain_text("Keep this page open")
        asked: list[str] = []

        def stay(dialog: Dialog) -> None:
            asked.append(dialog.type)
            dialog.dismiss()

        page.once("dialog", stay)
        page.click("#count")  # the browser asks before leaving only if the user has acted on the page
        page.close(run_before_unload=True)
        until(lambda: page.evaluate("true") and asked)
        assert asked == ["beforeunload"]
    page.wait_for_function("!gallery.review.waiting.length")


def test_an_older_value_does_not_come_back_in_place_of_one_that_had_no_room(
    visitor: Page, server: tuple[str, Studio]
) -> None:
    visitor.goto(f"{server[0]}scripts")
    visitor.evaluate("kept.browser.set('mine', 'old')")
    visitor.evaluate(FULL)
    assert visitor.evaluate("kept.browser.set('mine', 'x'.repeat(1000))") is False
    assert visitor.evaluate("kept.browser.get('mine')") == "x" * 1000
    assert visitor.evaluate("kept.browser.names().includes('mine')") is True
    visitor.reload()
    assert visitor.evaluate("kept.browser.get('mine')") is None


@pytest.mark.parametrize("forgetful", ["blocked"], indirect=True)
def test_an_annotator_answers_without_storage_and_is_told_where_the_answer_is(
    forgetful: Page, server: tuple[str, Studio]
) -> None:
    page, (url, studio) = forgetful, server
    _, link = running(studio.workspace, name=f"Birds without storage {id(page)}")
    page.goto(f"{url}annotate/#join={link}")
    for button in ("#join", "#code-kept", "#agree"):
        page.click(button)
    page.wait_for_selector(".judge[aria-busy=false]")
    with routed(page, "**/annotate/api/submit", lambda route: route.abort()):
        page.click("[data-answer=yes]")
        expect(page.locator(".lost")).to_contain_text("kept in this page alone: keep it open")
    page.click(".lost button")
    expect(page.locator("#saved")).to_have_text("saved")


@pytest.mark.parametrize("path", ["", "scripts", "curate/", "study/"])
def test_a_script_that_does_not_load_leaves_a_sentence(visitor: Page, server: tuple[str, Studio], path: str) -> None:
    visitor.route("**/ui/*.js*", lambda route: route.abort())
    visitor.goto(f"{server[0]}{path}")
    expect(visitor.locator(".missing")).to_have_text(
        "A part of this page did not load, so it does not work. Check the connection, then reload the page."
    )
    expect(visitor.locator(".missing")).to_be_visible()


def test_explore_says_so_where_the_scripts_of_gradio_do_not_load(visitor: Page, server: tuple[str, Studio]) -> None:
    visitor.route("**/assets/index-*.js", lambda route: route.abort())
    visitor.goto(server[0])
    expect(visitor.locator(".missing")).to_have_text(
        "A part of this page did not load, so it does not work. Check the connection, then reload the page."
    )
    expect(visitor.locator(".missing")).to_be_visible()


def test_explore_says_that_it_is_still_loading_until_it_is_there(visitor: Page, server: tuple[str, Studio]) -> None:
    held = HeldBack()
    visitor.clock.install()
    visitor.route("**/assets/index-*.js", held)
    visitor.goto(server[0], wait_until="commit")
    visitor.wait_for_selector("gradio-app", state="attached")
    expect(visitor).to_have_title("DILLEMA Studio")
    expect(visitor.locator(".missing")).to_have_count(0)
    visitor.clock.fast_forward(9_000)
    expect(visitor.locator(".missing")).to_contain_text("This page is still loading.")
    held.let_through()
    settled(visitor)
    expect(visitor.locator(".missing")).to_have_count(0)
    assert visitor.evaluate("document.querySelectorAll('title').length") == 1


def test_the_annotators_page_without_its_scripts_says_so(visitor: Page, server: tuple[str, Studio]) -> None:
    visitor.route("**/annotate/assets/*.js*", lambda route: route.abort())
    visitor.goto(f"{server[0]}annotate/")
    visitor.wait_for_function("getComputedStyle(document.querySelector('.late')).visibility === 'visible'")


def test_an_annotator_whose_browser_blocks_cookies_is_told_before_a_name_is_made(
    visitor: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    study, link = running(studio.workspace, name="Birds without cookies")
    visitor.context.new_cdp_session(visitor).send("Emulation.setDocumentCookieDisabled", {"disabled": True})
    visitor.goto(f"{url}annotate/#join={link}")
    expect(visitor.locator("h1")).to_have_text("This browser blocks cookies")
    assert not studio.workspace.studies.workers.of_study(study)


def test_an_address_of_no_run_is_told_and_an_old_one_of_this_browser_is_not(
    visitor: Page, server: tuple[str, Studio]
) -> None:
    url, _ = server
    visitor.goto(f"{url}?run=0123456789abcdef")
    expect(visitor.locator("#start-problem")).to_contain_text("This workspace has no run '0123456789abcdef'")
    settled(visitor)
    visitor.evaluate("kept.browser.set('studio-run', 'fedcba9876543210')")
    visitor.goto(f"{url}scripts")
    visitor.goto(url)
    visitor.wait_for_selector(".start h1")
    settled(visitor)
    expect(visitor.locator("#start-problem")).to_be_empty()


def test_a_request_that_is_under_way_is_not_sent_twice_and_its_button_says_so(
    visitor: Page, server: tuple[str, Studio]
) -> None:
    url, studio = server
    visitor.goto(f"{url}scripts")
    made = len(studio.tokens.all())
    visitor.evaluate("""() => {
      const button = document.body.appendChild(Object.assign(document.createElement('button'), { id: 'twice' }));
      window.answers = [];
      button.onclick = () => wire.post('/scripts/make-token', { title: 'once', reads_only: true, days: 1 })
        .then((said) => answers.push(said));
    }""")
    held = HeldBack()
    with routed(visitor, "**/scripts/make-token", held):
        visitor.dblclick("#twice")
        assert visitor.get_attribute("#twice", "aria-busy") == "true"
        held.let_through()
        visitor.wait_for_function("answers.length === 2")
    assert visitor.get_attribute("#twice", "aria-busy") is None
    assert len(studio.tokens.all()) == made + 1


def test_a_page_whose_studio_got_a_password_meanwhile_leads_to_the_sign_in(visitor: Page, tmp_path: Path) -> None:
    import app
    from tests.support.server_process import free_port
    from tests.support.serving import serving_application

    port = free_port()

    def started(password: str) -> AbstractContextManager[str]:
        settings = app.ServerSettings("demo", tmp_path / "workspace", port=port, password=password)
        return serving_application(*app.build(settings, ScriptedModels()), port)

    with started("") as url:
        visitor.goto(url)
        visitor.wait_for_selector(".start h1")
        settled(visitor)
    with started("a password of the lead"):
        visitor.evaluate("studio.send({ name: 'poll' })")
        expect(visitor.locator("#signed-out")).to_contain_text("This studio asks for a password now")
        expect(visitor.locator("#lost-told")).to_be_hidden()
        visitor.click("#signed-out a")
        visitor.wait_for_selector("#password")
        visitor.goto("about:blank")
