"""A studio below the path of a proxy: accepted paths, refused paths, and the changes to requests and replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from fastapi.testclient import TestClient

import app
from core.errors import UserError
from services.passwords import SECRET
from storage.workspace import Workspace
from tests.support.guarded import HTML, PASSWORD, application, sign_in
from ui.addresses import in_browser, read_root_path, served_below
from ui.markup import el
from ui.security.root_path import BelowRootPath, refuse_own_address


@pytest.mark.parametrize("typed", ["/studio", "studio", "/studio/", " /studio "])
def test_a_root_path_is_read_in_every_usual_form(typed: str) -> None:
    assert read_root_path(typed) == "/studio"
    assert app.read_settings(["--root-path", typed], {}).root_path == "/studio"
    assert app.read_settings([], {"ROOT_PATH": typed}).root_path == "/studio"
    assert app.read_settings([], {}).root_path == read_root_path("/") == ""
    assert read_root_path("/lab/studio") == "/lab/studio"


@pytest.mark.parametrize("typed", ["https://example.org/studio", "/a//b", "/a/../b", "/a?b", "/a b", "/ä", '/"'])
def test_what_is_no_path_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(UserError, match="such as /studio for https:"):
        read_root_path(typed)


def test_a_path_below_which_the_studio_has_pages_is_refused() -> None:
    served = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    served.add_api_route("/study/{study}", lambda: None)
    inner = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    inner.add_api_route("/gradio_api/info", lambda: None)
    served.mount("/", inner)
    for taken in ("/study", "/study/lab", "/gradio_api"):
        with pytest.raises(UserError, match="pages of its own"):
            refuse_own_address(taken, served.routes)
    refuse_own_address("/studio", served.routes)
    refuse_own_address("", served.routes)


def test_addresses_of_pages_get_the_path_and_nothing_else_does() -> None:
    with served_below("/studio"):
        assert el("a", "x", href="/curate/?a=1&b=2") == '<a href="/studio/curate/?a=1&amp;b=2">x</a>'
        assert el("form", action="/sign-out") == '<form action="/studio/sign-out"></form>'
        assert el("img", src="/thumbs/1.webp", data_from="/x") == '<img src="/studio/thumbs/1.webp" data-from="/x">'
        for other in ("?run=1", "#here", "download/1.png", "https://example.org/", "//example.org/", ""):
            assert in_browser(other) == other
    assert el("a", "x", href="/curate/") == '<a href="/curate/">x</a>'


@pytest.fixture
def below(workspace: Workspace, kept: str) -> Iterator[TestClient]:
    """Client of a guarded application below /studio, signed in if there is a password."""
    workspace.studies.sessions.set_secret(SECRET, kept)
    served = application(workspace, "0.0.0.0")
    served.add_middleware(BelowRootPath, root_path="/studio")
    with TestClient(served, base_url="http://studio.test", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("passed_on", ["/studio", ""])
def test_the_proxy_may_pass_the_path_on_or_take_it_away(below: TestClient, passed_on: str) -> None:
    asked = below.get(f"{passed_on}/curate/sets?find=x", headers=HTML)
    assert (asked.status_code, asked.headers["location"]) == (303, "/studio/sign-in?next=%2Fcurate%2Fsets%3Ffind%3Dx")
    done = below.post(f"{passed_on}/sign-in", data={"password": PASSWORD, "next": "/curate/sets?find=x"})
    assert done.status_code == 303 and done.headers["location"].startswith("/studio/sign-in?")
    assert [(cookie.name, cookie.path) for cookie in below.cookies.jar] == [("lead", "/studio/")]
    held = {"cookie": done.headers["set-cookie"].partition(";")[0]}
    signed = done.headers["location"].removeprefix("/studio")
    assert below.get(f"{passed_on}{signed}", headers=held).headers["location"] == "/studio/curate/sets?find=x"
    assert below.get(f"{passed_on}/curate/sets", headers=held).json()["secret"] == "curate/sets"
    gone = below.post(f"{passed_on}/sign-out", headers=held)
    assert gone.headers["location"] == "/studio/sign-in" and "Path=/studio/" in gone.headers["set-cookie"]


def test_the_path_without_its_last_sign_leads_to_the_start(below: TestClient) -> None:
    assert below.get("/studio").headers["location"] == "/studio/"
    assert below.get("/annotate").headers["location"] == "/studio/annotate/"
    assert below.get("/studio/annotate").headers["location"] == "/studio/annotate/"


def test_the_path_opens_nothing(below: TestClient) -> None:
    for address in ("/studio/secret", "/studio/studio/secret", "/studiosecret", "/%73tudio/secret", "/studio//secret"):
        assert below.get(address).status_code == 401, address


def test_a_whole_address_of_this_server_gets_the_path_and_another_ones_does_not() -> None:
    served = FastAPI()
    served.add_api_route("/here", lambda: RedirectResponse("http://studio.test/there?a=1"))
    served.add_api_route("/away", lambda: RedirectResponse("https://example.org/there"))
    served.add_middleware(BelowRootPath, root_path="/studio")
    with TestClient(served, base_url="http://studio.test", follow_redirects=False) as client:
        assert client.get("/studio/here").headers["location"] == "/studio/there?a=1"
        assert client.get("/studio/away").headers["location"] == "https://example.org/there"


@pytest.mark.parametrize(
    ("started", "named", "words"),
    [
        ("", "/studio", "without a path: start it with --root-path /studio."),
        ("/studio", "/lab/studio", "with --root-path /studio: start it with --root-path /lab/studio."),
        ("", "/lab, /studio/", "without a path: start it with --root-path /lab/studio."),
    ],
)
def test_a_proxy_that_names_another_path_is_told_how_to_start(started: str, named: str, words: str) -> None:
    served = FastAPI()
    served.add_middleware(BelowRootPath, root_path=started)
    with TestClient(served) as client:
        reply = client.get("/", headers={"x-forwarded-prefix": named})
        assert reply.status_code == 400 and reply.text.endswith(words)


@pytest.mark.parametrize(("started", "named"), [("", "/"), ("", ""), ("/studio", "/studio/"), ("/studio", "")])
def test_a_proxy_that_names_this_path_or_none_is_served(started: str, named: str) -> None:
    served = FastAPI()
    served.add_api_route("/x", lambda: "well")
    served.add_middleware(BelowRootPath, root_path=started)
    with TestClient(served) as client:
        assert client.get("/x", headers={"x-forwarded-prefix": named}).json() == "well"


def test_the_start_refuses_a_path_of_its_own_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STUDIO_PASSWORD", raising=False)
    assert app.main(["--root-path", "a b", "--workspace", str(tmp_path / "w")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "w").exists()


def test_a_page_that_signs_in_stays_below_the_path(below: TestClient) -> None:
    page = below.get("/studio/sign-in", headers=HTML).text
    assert 'action="/studio/sign-in"' in page and 'href="/studio/annotate/"' in page
    assert 'src="/studio/sign-in/theme.js' in page
    signed = sign_in(below, PASSWORD, "//example.org/")
    assert below.get(signed.headers["location"]).headers["location"] == "/studio/"
