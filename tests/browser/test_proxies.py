"""The studio behind nginx and Caddy as docs/serving.md sets them up: below a path, and with only a part served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.annotating import running
from tests.support.browser import settled
from tests.support.called import answer, client_of, made_token
from tests.support.drawn import fill
from tests.support.explorer import upload_bird
from tests.support.proxies import KINDS, configuration, program, proxy_before
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from ui.security.guard import MCP

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from services.studio import Studio

pytestmark = pytest.mark.slow
PASSWORD = "a password of the lead"
ROOT_PATH = "/studio"
BELOW = "All pages, below a path of a server that you have"
ANNOTATORS = "The annotators' page alone"
CALLS = 30
"""Number of calls of an agent, one after another."""
ADDRESSES = re.compile(r'\s(?:href|src|action)="([^"]*)"')
OF_GRADIO = {"/manifest.json"}
"""Links that Gradio always writes from "/" on. A browser requests them when a user installs the page as an application.
"""


@dataclass
class Place:
    """A studio below a path, and the proxy in front of it."""

    studio: Studio
    url: str
    browser: Browser

    @contextmanager
    def visitor(self) -> Iterator[Page]:
        """Open a page in a new browser context. Fails at the end if a request left the path or a script failed."""
        context = self.browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
        context.set_default_timeout(60_000)
        replies, broken = list[tuple[str, int]](), list[str]()
        context.on("request", lambda request: replies.append((request.url, 0)))
        context.on("response", lambda reply: replies.append((reply.url, reply.status)))
        context.on("weberror", lambda error: broken.append(f"{error.error}"))
        yield context.new_page()
        context.close()
        outside = [address for address, _ in replies if self._is_outside(address)]
        assert not outside, f"the page asked outside the path for {outside}"
        failed = [address for address, status in replies if status in (404, 500, 502)]
        assert not failed, f"not there: {failed}"
        assert not broken, f"a script of the page failed: {broken}"

    def _is_outside(self, address: str) -> bool:
        return address != self.url.rstrip("/") and not address.startswith((self.url, "data:", "blob:"))

    @contextmanager
    def lead(self) -> Iterator[Page]:
        """Sign in as the lead, at the start page."""
        with self.visitor() as page:
            page.goto(self.url.rstrip("/"))
            page.fill("#password", PASSWORD)
            page.press("#password", "Enter")
            page.wait_for_url(self.url)
            yield page


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Studio for all proxies."""
    folder = tmp_path_factory.mktemp("below") / "workspace"
    with serving_here(folder, ScriptedModels(), PASSWORD, mcp=True, root_path=ROOT_PATH) as (url, behind):
        fill(behind.workspace, 3, 3, pixels=48)
        yield url, behind


@contextmanager
def proxied(kind: str, studio: tuple[str, Studio], browser: Browser, folder: Path) -> Iterator[Place]:
    url, behind = studio
    with proxy_before(url, kind, configuration(kind, BELOW), folder) as address:
        yield Place(behind, f"{address}{ROOT_PATH}/", browser)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name of the proxy, nginx or Caddy. Skips the test if it is not installed."""
    name = str(request.param)
    if program(name) is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {name})")
    return name


@pytest.fixture(scope="module")
def place(
    kind: str, studio: tuple[str, Studio], browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Studio behind each proxy, for tests without a browser page."""
    with proxied(kind, studio, browser, tmp_path_factory.mktemp(kind)) as behind:
        yield behind


@pytest.fixture(scope="module")
def opened(studio: tuple[str, Studio], browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Studio behind the first installed proxy, for tests with pages. Their requests do not depend on the proxy."""
    name = next((name for name in KINDS if program(name) is not None), None)
    if name is None:
        pytest.skip("neither nginx nor Caddy is installed (Debian: apt-get install nginx-light)")
    with proxied(name, studio, browser, tmp_path_factory.mktemp("pages")) as behind:
        yield behind


def shows_its_pictures(page: Page) -> None:
    """Wait until a picture has loaded. `Place.visitor` checks at the end that none is missing."""
    page.wait_for_function("[...document.images].some((one) => one.naturalWidth > 1)")


def test_the_lead_signs_in_uploads_draws_and_saves(opened: Place) -> None:
    with opened.lead() as page:
        assert [(one["name"], one["path"]) for one in page.context.cookies()] == [("lead", f"{ROOT_PATH}/")]
        page.wait_for_selector(".start h1")
        upload_bird(page)
        page.click("#run-all")
        page.wait_for_selector("#generate:enabled")  # the results of the stages arrived one after another
        page.click("#generate")
        page.wait_for_selector("#save-image")
        settled(page)
        shows_its_pictures(page)
        with page.expect_download() as saved:
            page.click("#save-image")
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
        page.reload()
        page.wait_for_selector("#save-image")
        page.click("#sign-out button")
        page.wait_for_url(f"{opened.url}sign-in")
        page.goto(f"{opened.url}curate/sets?find=x")
        page.fill("#password", PASSWORD)
        page.press("#password", "Enter")
        page.wait_for_url(f"{opened.url}curate/sets?find=x")


def test_the_gallery_decides_and_the_pages_lead_to_each_other(opened: Place) -> None:
    def undecided() -> int:
        return opened.studio.workspace.catalogue.facets()["review"]["open"]

    with opened.lead() as page:
        page.click('nav a:has-text("Curate")')
        page.wait_for_function("window.gallery?.review && gallery.idle")
        shows_its_pictures(page)
        before = undecided()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("a")
        page.wait_for_function("!gallery.review.waiting.length")
        until(lambda: undecided() < before)
        for name in ("Batches", "Study", "Evaluate", "Scripts", "Explore"):
            page.click(f'nav a:has-text("{name}")')
            page.wait_for_load_state()
            assert page.url.startswith(opened.url)
            expect(page.locator("nav a[aria-current=page]")).to_have_text(name)


def test_every_link_of_every_page_stays_below_the_path(place: Place) -> None:
    """Follow all links from the start page on."""
    study_id, _ = running(place.studio.workspace, 2, name="Linked")
    with httpx.Client(follow_redirects=True, timeout=60, headers={"accept": "text/html"}) as client:
        signed_in = client.post(f"{place.url}sign-in", data={"password": PASSWORD, "next": "/"})
        assert str(signed_in.url) == place.url
        waiting, seen = (
            [place.url, f"{place.url}study/{study_id}/run", f"{place.url}study/{study_id}/preview"],
            set[str](),
        )
        outside, failed = list[tuple[str, str]](), list[str]()
        while waiting:
            address = waiting.pop()
            kind_of_page = re.sub(r"\d+|[0-9a-f]{16}|\?.*", "", address)  # one page of each kind is enough
            if kind_of_page in seen:
                continue
            seen.add(kind_of_page)
            reply = client.get(address)
            if reply.status_code >= 400:
                failed.append(address)
            if not reply.headers["content-type"].startswith("text/html"):
                continue
            for found in ADDRESSES.findall(reply.text):
                if found.startswith("/") and not found.startswith(f"{ROOT_PATH}/") and found not in OF_GRADIO:
                    outside.append((address, found))
                elif not found.startswith(("#", "data:", "http", f"{ROOT_PATH}/sign-out")) and found not in OF_GRADIO:
                    waiting.append(str(reply.url.join(found.replace("&amp;", "&"))))
    assert not outside and not failed
    assert len(seen) > 25, "the pages of all rooms, their files, and what can be saved"


def test_an_annotator_follows_the_invitation_and_votes(opened: Place) -> None:
    study_id, _ = running(opened.studio.workspace, 2, name="Invited")
    with opened.lead() as page:
        page.goto(f"{opened.url}study/{study_id}/run")
        expect(page.locator("#link")).to_contain_text("#join=")
        invitation = page.inner_text("#link")
        page.goto(f"{opened.url}study/{study_id}/preview")
        page.click("#agree")
        shows_its_pictures(page)
    assert invitation.startswith(f"{opened.url}annotate/#join=")
    with opened.visitor() as page:
        page.goto(invitation)
        page.click("#join")
        page.click("#code-kept")
        page.click("#agree")
        for number in (1, 2):
            page.wait_for_selector(f"#place:has-text('Image {number} of')")
            page.wait_for_selector(".judge[aria-busy=false]")
            shows_its_pictures(page)
            page.keyboard.press("y")
        expect(page.locator("h1")).to_have_text("All done: thank you")
        assert len(opened.studio.workspace.studies.data(study_id).votes) == 2
        paths = {cookie["name"]: cookie["path"] for cookie in page.context.cookies()}
        assert paths == {"annotator": "/studio/annotate", "annotator-browser": "/studio/annotate"}


def test_a_script_and_an_agent_call_it(place: Place) -> None:
    token = {"authorization": f"Bearer {made_token(place.studio, place.url).text}"}
    script = client_of(place.url, token)
    run = script.predict(sample="lighthouse", api_name="/run_from_sample")["run"]
    *_, end = script.submit(
        job=script.predict(run=run, api_name="/run_all")["job"]["job"], api_name="/watch_job"
    )  # an event stream
    assert end["state"] == "done"
    answer(place.url, "task", headers=token, run=run, kind="classification", label="lighthouse")
    gate = answer(place.url, "show_run", headers=token, run=run)["gate"]
    begun = answer(place.url, "generate", headers=token, run=run, shown=gate["shown"])
    *_, end = script.submit(job=begun["job"]["job"], api_name="/watch_job")
    case = answer(place.url, "list_images", headers=token, run=run)["images"][0]["case"]
    assert Path(script.predict(case=case, api_name="/download_image")).read_bytes().startswith(b"\x89PNG")
    sent: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    sent["params"] = {"name": "download_image", "arguments": {"case": case}}
    accepted = {**token, "accept": "application/json, text/event-stream"}
    # Repeat the call: Caddy sometimes broke a reply off, in one call of ten, when it was a stream.
    replies = [
        httpx.post(f"{place.url.rstrip('/')}{MCP}/", json=sent, headers=accepted, timeout=60) for _ in range(CALLS)
    ]
    assert [reply.headers["content-type"] for reply in replies] == ["application/json"] * CALLS
    address, *_ = (reply.json()["result"]["structuredContent"]["address"] for reply in replies)
    assert address.startswith(place.url) and httpx.get(address, headers=token, timeout=60).status_code == 200


def test_the_annotators_page_alone_is_passed_on(
    kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    served = serving_here(tmp_path_factory.mktemp("part") / "workspace", ScriptedModels(), PASSWORD)
    with served as (url, behind), proxy_before(url, kind, configuration(kind, ANNOTATORS), tmp_path) as address:
        _, link = running(behind.workspace)
        with httpx.Client(base_url=address, timeout=60, headers={"x-studio": "1"}) as client:
            page = client.get("/annotate/")
            assert page.status_code == 200
            assert all(client.get(found).status_code == 200 for found in ADDRESSES.findall(page.text))
            joined = client.post("/annotate/api/join", json={"link": link, "parameters": {}})
            assert joined.status_code == 200, joined.text
            for other in ("/", "/sign-in", "/healthz", "/gradio_api/info"):
                assert client.get(other).status_code == 404
