"""Access with a password, with the real sessions and log of a workspace."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from core.errors import UserError
from services.passwords import SECRET, hashed, matches
from services.sign_in import ATTEMPTS, LeadSignIn
from storage.workspace import Workspace
from tests.support.guarded import CHEAP, HTML, PASSWORD, application, events, sign_in
from tests.support.workspaces import workspace_in
from ui.frame import NAVIGATION
from ui.security.guard import COOKIE
from ui.security.sign_in import SIGN_IN_ASSETS, local, stand_guard


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, kept: str) -> Iterator[TestClient]:
    """Client of a studio with a password, to which nobody signs in."""
    with workspace_in(tmp_path_factory.mktemp("closed")) as workspace:
        workspace.studies.sessions.set_secret(SECRET, kept)
        app = application(workspace, "0.0.0.0")
        with TestClient(app, base_url="http://studio.test", follow_redirects=False) as client:
            yield client


def test_beyond_this_machine_it_takes_a_password(workspace: Workspace, kept: str) -> None:
    with pytest.raises(UserError, match=r"STUDIO_PASSWORD.*--set-password"):
        application(workspace, "0.0.0.0")
    with pytest.raises(UserError, match="at least 8"):
        application(workspace, "0.0.0.0", "short")
    application(workspace, "0.0.0.0", PASSWORD)
    workspace.studies.sessions.set_secret(SECRET, kept)
    application(workspace, "0.0.0.0")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/study/"),
        ("POST", "/study/api/new"),
        ("GET", "/config"),
        ("GET", "/gradio_api/info"),
        ("POST", "/gradio_api/queue/join"),
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("POST", "/gradio_api/upload"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/ui/studio.js"),
        ("GET", "/images/abc.png"),
        ("GET", "/thumbs/abc.webp"),
        ("POST", "/healthz"),
        ("DELETE", "/healthz"),
        ("GET", "/healthz/"),
        ("GET", "//healthz"),
        ("PUT", "/sign-in"),
        ("GET", "/sign-in/"),
        ("GET", "/sign-in/theme.js.map"),
        ("GET", "/sign-out"),
        ("GET", "/annotatex"),
        ("GET", "/ANNOTATE/"),
        ("GET", "//annotate/"),
        ("OPTIONS", "/"),
        ("HEAD", "/"),
    ],
)
def test_without_a_session_nothing_is_there(closed: TestClient, method: str, path: str) -> None:
    reply = closed.request(method, f"http://studio.test{path}")
    assert reply.status_code == 401
    assert method == "HEAD" or reply.json() == {"error": "Sign in first."}


@pytest.mark.parametrize("path", ["/annotate", "/annotate?x=1"])
def test_annotators_who_forget_the_slash_are_sent_on(closed: TestClient, path: str) -> None:
    reply = closed.get(path)
    assert (reply.status_code, reply.headers["location"]) == (307, "/annotate/")
    assert closed.post(path).status_code == 404


@pytest.mark.parametrize("path", ["/annotate/%2e%2e/study/", "/annotate/..%2fstudy/", "/annotate//"])
def test_no_way_leads_out_of_the_annotators_part(closed: TestClient, path: str) -> None:
    reply = closed.get(f"http://studio.test{path}")
    assert reply.status_code in (401, 404)
    assert "secret" not in reply.text


@pytest.mark.parametrize("path", ["/annotate/%0a", "/annotate/x%0a", "/%0d%0aSet-Cookie:x", "/a%00"])
def test_a_path_that_nobody_types_is_not_there(closed: TestClient, path: str) -> None:
    assert closed.get(path).status_code == 404


def test_what_is_open_to_all(closed: TestClient) -> None:
    assert closed.get("/healthz").text == '"well"'
    assert closed.get("/annotate/").text == '"annotators"'
    assert closed.get("/sign-in").status_code == 200
    for name in SIGN_IN_ASSETS:
        assert closed.get(f"/sign-in/{name}").status_code == 200


def test_a_browser_is_sent_to_the_sign_in_and_back(locked: TestClient) -> None:
    sent = locked.get("/study/a b/?tab=1&x=%26", headers=HTML)
    assert sent.status_code == 303
    assert sent.headers["location"] == "/sign-in?next=%2Fstudy%2Fa%2520b%2F%3Ftab%3D1%26x%3D%2526"
    page = locked.get(sent.headers["location"])
    assert 'value="/study/a%20b/?tab=1&amp;x=%26"' in page.text
    assert page.headers["cache-control"] == "no-store"
    signed = sign_in(locked, page="/study/a%20b/?tab=1&x=%26")
    back = locked.get(signed.headers["location"])
    assert (signed.status_code, back.status_code, back.headers["location"]) == (303, 303, "/study/a%20b/?tab=1&x=%26")
    assert locked.get("/study/").json() == {"secret": "study/", "signed_in": True}
    assert locked.get("/sign-in?next=/study/").headers["location"] == "/study/", "nothing is asked twice"


def test_a_browser_that_keeps_no_cookie_is_told_so_after_the_right_password(locked: TestClient) -> None:
    signed = sign_in(locked, page="/study/")
    locked.cookies.clear()
    page = locked.get(signed.headers["location"])
    assert page.status_code == 200 and 'value="/study/"' in page.text
    assert "Allow cookies for this address" in page.text
    assert "Allow cookies" not in locked.get("/sign-in?next=/study/").text


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://example.org/",
        "//example.org/",
        "/\\example.org/",
        "\\\\example.org",
        "javascript:alert(1)",
        "/\t/example.org",
        "example.org",
        "",
        "/sign-in?next=/sign-in",
        "/sign-out",
        "/" + "x" * 2000,
    ],
)
def test_the_sign_in_leads_to_no_other_site(elsewhere: str) -> None:
    assert local(elsewhere) == "/"


def test_the_cookie_is_for_the_server_only(locked: TestClient) -> None:
    reply = sign_in(locked)
    cookie = reply.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=lax", "Path=/", "Max-Age="):
        assert part in cookie
    assert "Secure" not in cookie
    secure = locked.post("https://studio.test/sign-in", data={"password": PASSWORD})
    assert "Secure" in secure.headers["set-cookie"]


def test_a_wrong_password_is_told_and_written_down(workspace: Workspace, locked: TestClient) -> None:
    reply = sign_in(locked, "wrong <b>", page="/study/")
    assert reply.status_code == 401
    assert "This is not the password." in reply.text
    assert "<b>wrong" not in reply.text and "wrong &lt;b" not in reply.text, "what was typed is not sent back"
    assert 'value="/study/"' in reply.text
    assert "set-cookie" not in reply.headers
    found = events(workspace)
    assert found[0][0] == "wrong password"
    assert all("wrong <b>" not in detail for _, detail in found)


def test_guessing_has_an_end(workspace: Workspace, locked: TestClient) -> None:
    for _ in range(ATTEMPTS):
        assert sign_in(locked, "wrong again").status_code == 401
    for password in ("wrong again", PASSWORD):
        reply = sign_in(locked, password)
        assert reply.status_code == 429, "the right one is not told from a wrong one either"
        assert 0 < int(reply.headers["retry-after"]) <= 900
        assert "wait 15 minutes" in reply.text
    assert events(workspace)[0][0] == "too many tries"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{}", "application/json"),
        (b"password=x", "text/plain"),
        (b"password=" + b"x" * 20_000, "application/x-www-form-urlencoded"),
        (b"password=\xff", "application/x-www-form-urlencoded"),
        (b"&".join(b"a=b" for _ in range(99)), "application/x-www-form-urlencoded"),
    ],
)
def test_a_form_that_is_none(closed: TestClient, body: bytes, kind: str) -> None:
    assert closed.post("/sign-in", content=body, headers={"content-type": kind}).status_code == 400


def test_signing_out_ends_the_session(locked: TestClient) -> None:
    sign_in(locked)
    token = locked.cookies[COOKIE]
    assert locked.get("/study/").status_code == 200
    out = locked.post("/sign-out")
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
    assert locked.get("/study/").status_code == 401
    assert locked.get("/study/", headers={"cookie": f"{COOKIE}={token}"}).status_code == 401, (
        "a kept token is worth nothing"
    )


def test_a_new_password_ends_the_old_ones_sessions(workspace: Workspace, locked: TestClient) -> None:
    sign_in(locked)
    workspace.studies.sessions.set_secret(SECRET, hashed("another long one", CHEAP))
    workspace.studies.sessions.close_all("lead")
    assert locked.get("/study/").status_code == 401
    assert sign_in(locked).status_code == 401
    assert sign_in(locked, "another long one").status_code == 303


def test_the_environment_wins_over_what_is_kept(workspace: Workspace, kept: str) -> None:
    workspace.studies.sessions.set_secret(SECRET, kept)
    app = application(workspace, "0.0.0.0", "from the environment")
    with TestClient(app, base_url="http://studio.test", follow_redirects=False) as client:
        assert sign_in(client).status_code == 401
        assert sign_in(client, "from the environment").status_code == 303


def test_after_a_restart_with_another_password_a_kept_session_opens_nothing(workspace: Workspace, kept: str) -> None:
    """Sessions end for each way to set the password. With the same password a session stays valid."""

    def restarted(password: str = "") -> TestClient:
        app = application(workspace, "0.0.0.0", password)
        return TestClient(app, base_url="http://studio.test", follow_redirects=False)

    def opens(client: TestClient, cookie: str) -> bool:
        return client.get("/study/", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 200

    def cookie_of(client: TestClient, password: str) -> str:
        assert sign_in(client, password).status_code == 303
        return client.cookies[COOKIE]

    first = cookie_of(restarted("the first of all"), "the first of all")
    assert opens(restarted("the first of all"), first)
    assert not opens(restarted("a second one"), first)
    assert not opens(restarted("the first of all"), first), "ended is ended"
    second = cookie_of(restarted("a second one"), "a second one")
    workspace.studies.sessions.set_secret(SECRET, kept)
    assert opens(restarted("a second one"), second), "the environment still wins"
    assert not opens(restarted(), second)
    third = cookie_of(restarted(), PASSWORD)
    assert opens(restarted(), third) and not opens(restarted("a second one"), third)


def test_an_annotators_session_opens_nothing_of_the_studio(workspace: Workspace, locked: TestClient) -> None:
    worker, _ = workspace.studies.workers.add()
    token = workspace.studies.sessions.open("worker", worker.id)
    for name in (COOKIE, "annotator"):
        reply = locked.get("/study/", headers={"cookie": f"{name}={token}"})
        assert reply.status_code == 401
    entry = workspace.studies.log()[0]
    assert (entry.event, entry.worker) == ("refused", worker.id)
    assert "GET /study/" in entry.detail
    assert token not in entry.detail


def test_an_old_or_invented_token(workspace: Workspace, locked: TestClient) -> None:
    ended = workspace.studies.sessions.open("lead", hours=-1)
    for token in (ended, "x", "", "a" * 10_000, "' OR 1=1 --"):
        assert locked.get("/study/", headers={"cookie": f"{COOKIE}={token}"}).status_code == 401


def test_a_socket_takes_a_session_too(workspace: Workspace, locked: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect) as closed, locked.websocket_connect("ws://studio.test/socket"):
        pass
    assert closed.value.code == 1008
    sign_in(locked)
    with locked.websocket_connect("ws://studio.test/socket") as socket:
        assert socket.receive_text() == "secret"


def test_no_shared_cache_keeps_what_takes_a_sign_in(workspace: Workspace, kept: str) -> None:
    from fastapi.responses import PlainTextResponse

    workspace.studies.sessions.set_secret(SECRET, kept)
    app = FastAPI()
    stand_guard(app, LeadSignIn(workspace), "0.0.0.0")

    @app.get("/picture")
    def picture() -> PlainTextResponse:
        return PlainTextResponse("x", headers={"Cache-Control": "public, max-age=31536000, immutable"})

    with TestClient(app, base_url="http://studio.test") as client:
        sign_in(client)
        assert client.get("/picture").headers["cache-control"] == "private, max-age=31536000, immutable"


def test_every_reply_says_what_a_page_may_do(closed: TestClient) -> None:
    for path in ("/", "/healthz", "/sign-in", "/annotate/"):
        headers = closed.get(path).headers
        assert "object-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"


def test_pages_that_show_what_strangers_wrote_run_no_script_in_them(locked: TestClient) -> None:
    sign_in(locked)
    addresses = [address for name, _, address in NAVIGATION if name != "explore"]  # this path is Gradio's
    for path in (*addresses, "/evaluate/sets", "/sign-in", "/a-page-of-next-year"):
        policy = locked.get(path).headers["content-security-policy"]
        scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
        assert re.fullmatch(r"script-src 'self' 'sha256-[\w+/=]+'", scripts), "the one that picks the theme is known"


def test_many_who_guess_at_once_all_count_and_keep_nobody_waiting(
    locked: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checking the limit and counting are one step, so no more guesses than the limit are checked. While the first
    guess is checked, an annotator gets an answer: 60 guesses must not use all of the 40 threads.
    """
    looked_at, answered, arrived = threading.Event(), threading.Event(), list[str]()

    def held(password: str, kept: str) -> bool:
        looked_at.set()
        answered.wait(60)
        return matches(password, kept)

    monkeypatch.setattr("services.sign_in.matches", held)

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.append(scope["path"])
        await locked.app(scope, receive, send)

    async def guess() -> list[int]:
        transport = httpx.ASGITransport(counted)
        async with httpx.AsyncClient(transport=transport, base_url="http://studio.test") as client:
            tries = [client.post("/sign-in", data={"password": f"guess number {n}"}) for n in range(60)]
            guessing = asyncio.gather(*tries)
            while arrived.count("/sign-in") < 60 or not looked_at.is_set():
                await asyncio.sleep(0.01)
            for _ in range(200):
                await asyncio.sleep(0)  # lets each guess run as far as it can
            try:
                reply = await asyncio.wait_for(client.get("/annotate/"), 30)
                assert reply.status_code == 200 and not guessing.done()
            finally:
                answered.set()
            return [reply.status_code for reply in await guessing]

    found = asyncio.run(guess())
    assert found.count(401) == ATTEMPTS
    assert found.count(429) == 60 - ATTEMPTS
