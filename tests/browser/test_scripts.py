"""The page of scripts in Chromium: a lead creates a token, sees it once, and revokes it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from services.studio import Studio
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from ui.security.guard import COOKIE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    workspace = tmp_path_factory.mktemp("scripts") / "workspace"
    with serving_here(workspace, ScriptedModels(), "a long password") as there:
        yield there


@pytest.fixture
def signed_in(served: tuple[str, Studio], page: Page) -> Iterator[Page]:
    url, studio = served
    session = studio.workspace.studies.sessions.open("lead")
    page.context.add_cookies([{"name": COOKIE, "value": session, "url": url}])
    page.goto(f"{url}scripts")
    yield page
    page.goto("about:blank")


def test_a_token_is_made_shown_once_used_and_withdrawn(served: tuple[str, Studio], signed_in: Page) -> None:
    url, page = served[0], signed_in
    page.fill("#f-title", "notebook <b>")
    page.select_option("#f-reads_only", "no")
    page.click("#make-token")
    expect(page.locator("#token-made")).to_contain_text("“notebook <b>” is shown only once")
    token = page.inner_text("#token-text")
    expect(page.locator("#copy-token")).to_be_focused()
    asked = {"headers": {"authorization": f"Bearer {token}"}, "json": {"data": []}}
    assert httpx.post(f"{url}gradio_api/run/list_jobs", **asked).json()["data"] == [{"jobs": []}]  # type: ignore[arg-type]

    page.fill("#f-title", "notebook <b>")
    page.click("#make-token")
    expect(page.locator("[data-problem=title]")).to_contain_text("There is a token")
    page.fill("#f-title", "agent")
    page.fill("#f-days", "400")
    page.click("#make-token")
    expect(page.locator("[data-problem=days]")).to_contain_text("366")
    expect(page.locator("[data-problem=title]")).to_have_text("")

    page.reload()
    expect(page.locator("#token-made")).to_have_count(0)
    assert token not in page.content()
    page.click("#withdraw-1")
    page.click("#part-tokens [name=token]")
    expect(page.locator(".tokens")).to_contain_text("withdrawn")
    assert httpx.post(f"{url}gradio_api/run/list_jobs", **asked).status_code == 401  # type: ignore[arg-type]


def test_every_endpoint_is_listed_with_its_fields(signed_in: Page) -> None:
    page = signed_in
    entry = page.locator("#endpoint-keyword_add")
    entry.locator("summary").click()
    expect(entry).to_contain_text("one of subject, object, attribute")
    expect(entry.locator(".code-block")).to_contain_text('api_name="/keyword_add"')
    assert page.locator(".endpoint").count() > 80


def test_nothing_moves_for_who_wants_no_motion(signed_in: Page) -> None:
    page = signed_in
    for motion, moving in (("reduce", 0), ("no-preference", 2)):
        page.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]
        page.evaluate("document.body.classList.add('awaits'); document.querySelector('#make-token').ariaBusy = 'true'")
        assert page.evaluate("document.getAnimations().length") == moving, motion


def test_the_explore_page_has_one_header(served: tuple[str, Studio], signed_in: Page) -> None:
    page = signed_in
    page.goto(served[0])
    expect(page.get_by_role("link", name="Scripts")).to_be_visible()
    expect(page.locator("#column-start .sample").first).to_be_visible()
    expect(page.get_by_text("Home", exact=True)).to_have_count(0)


def test_an_address_that_does_not_exist_shows_a_page_and_gives_a_script_json(
    signed_in: Page, served: tuple[str, Studio]
) -> None:
    for path in ("nothing", "study/one/two/three/four", "images/nothing/at/all"):
        reply = signed_in.goto(f"{served[0]}{path}")
        assert reply is not None and reply.status == 404
        expect(signed_in.locator("main")).to_contain_text("There is no page at this address.")
        expect(signed_in.locator("#sign-out")).to_be_visible()
        told = signed_in.request.get(f"{served[0]}{path}", headers={"Accept": "application/json"})
        assert told.status == 404 and "detail" in told.json()
    signed_in.click("main a")
    expect(signed_in.locator(".start h1")).to_be_visible()
