"""Access without a password, requests from other sites, and the log of refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from core.errors import UserError
from services.passwords import SECRET
from services.security_log import Refusals
from storage.workspace import Workspace
from tests.support.guarded import HERE, HTML, application, events
from tests.support.workspaces import workspace_in


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Client of a studio without a password. Tests change nothing in it."""
    with (
        workspace_in(tmp_path_factory.mktemp("unlocked")) as workspace,
        TestClient(application(workspace), base_url=HERE, follow_redirects=False) as client,
    ):
        yield client


# Without a password


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:7860", "localhost:7860", "LOCALHOST", "[::1]:7860", "127.0.0.9", "studio.localhost:1", "localhost."],
)
def test_on_this_machine_it_opens_at_once(unlocked: TestClient, host: str) -> None:
    reply = unlocked.get("/study/", headers={"host": host})
    assert reply.json() == {"secret": "study/", "signed_in": False}
    assert unlocked.get("/sign-in", headers={"host": host}).headers["location"] == "/", "there is nothing to sign in to"


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example.org:7860",
        "127.0.0.1.example.org",
        "192.0.2.1",
        "0.0.0.0:7860",
        "localhost@example.org",
        "",
        "[",
    ],
)
@pytest.mark.parametrize("path", ["/study/", "/annotate/", "/gradio_api/info"])
def test_another_name_for_this_machine_opens_nothing(unlocked: TestClient, host: str, path: str) -> None:
    reply = unlocked.get(path, headers={"host": host})
    assert reply.status_code == 403
    assert "secret" not in reply.text
    assert unlocked.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host", "via"])
def test_a_proxy_opens_nothing_without_a_password(unlocked: TestClient, name: str) -> None:
    reply = unlocked.get("/study/", headers={name: "192.0.2.1"})
    assert reply.status_code == 403
    assert "--set-password" in reply.text


# Requests from other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://example.org"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:7860.example.org"},
        {"origin": "http://[broken"},
        {"origin": "http://127.0.0.1:port"},
        {"origin": "file://"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "something new"},
    ],
)
@pytest.mark.parametrize(
    "path",
    ["/study/api/new", "/gradio_api/component_server", "/gradio_api/upload", "/annotate/", "/sign-in", "/sign-out"],
)
def test_another_site_can_send_nothing(unlocked: TestClient, headers: dict[str, str], path: str) -> None:
    reply = unlocked.post(path, headers=headers)
    assert reply.status_code == 403
    assert reply.json() == {"error": "This request came from another site."}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": HERE},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        # Behind a proxy that changes the host, the browser's own header is right.
        {"origin": "https://studio.example.org", "sec-fetch-site": "same-origin"},
    ],
)
def test_our_own_pages_can(unlocked: TestClient, headers: dict[str, str]) -> None:
    assert unlocked.post("/gradio_api/component_server", headers=headers).status_code == 200


def test_a_link_from_another_site_can_be_followed_but_nothing_be_read(unlocked: TestClient) -> None:
    cross = {"sec-fetch-site": "cross-site"}
    assert unlocked.get("/study/", headers=cross | {"sec-fetch-mode": "navigate"}).status_code == 200
    assert unlocked.get("/study/", headers=cross | {"sec-fetch-mode": "cors"}).status_code == 403
    assert unlocked.get("/study/", headers=cross | {"sec-fetch-mode": "no-cors"}).status_code == 403
    assert unlocked.get("/study/", headers={"origin": "http://example.org"}).status_code == 403


def test_an_origin_of_the_usual_port(workspace: Workspace, kept: str) -> None:
    workspace.studies.sessions.set_secret(SECRET, kept)
    with TestClient(application(workspace, "0.0.0.0"), base_url="http://studio.test") as client:
        for host, origin, status in (
            ("studio.test", "https://studio.test", 401),
            ("studio.test:443", "https://studio.test", 401),
            ("STUDIO.test", "http://studio.TEST:80", 401),
            ("studio.test:8443", "https://studio.test", 403),
            ("studio.test", "https://studio.test:8443", 403),
        ):
            assert (
                client.post("/gradio_api/component_server", headers={"host": host, "origin": origin}).status_code
                == status
            ), (host, origin)


# The log of refusals


def test_coming_to_sign_in_is_no_attempt_at_anything(workspace: Workspace, locked: TestClient) -> None:
    locked.get("/?run=1", headers=HTML)
    locked.get("/favicon.ico")
    locked.get("/annotate")
    locked.get("/sign-in")
    assert events(workspace) == []
    locked.get("/study/", headers=HTML)
    locked.get("/")
    assert [event for event, _ in events(workspace)] == ["refused", "refused"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_log_is_bounded_and_says_what_it_left_out(workspace: Workspace) -> None:
    clock = Clock()
    refusals = Refusals(workspace.studies.note, each=3, in_all=5, seconds=60, clock=clock)
    for number in range(10):
        refusals.note("refused", f"GET /{number}", "192.0.2.1")
    for number in range(10):
        refusals.note("refused", "GET /", f"192.0.2.{number + 2}")
    assert len(events(workspace)) == 5
    clock.now = 60
    refusals.note("refused", "GET /later\nsigned in", "192.0.2.1")
    latest, told = events(workspace)[:2]
    assert latest == ("refused", "GET /later�signed in · from 192.0.2.1")
    assert told == ("refusals left out", "15 more within a minute were not written down one by one")


def test_a_log_that_fails_lets_nobody_in(workspace: Workspace, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UserError("the disk is full")

    workspace.studies.sessions.set_secret(SECRET, kept)
    monkeypatch.setattr(workspace.studies, "note", fail)
    with TestClient(application(workspace, "0.0.0.0"), base_url="http://studio.test") as client:
        assert client.get("/study/").status_code == 401
