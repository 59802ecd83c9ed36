"""The pages of imports: an archive is imported in the background, and the report lists each file."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.images import png_of
from services.studio import Studio
from tests.support.held_imports import hold_imports
from tests.support.serving import until
from tests.support.set_cases import picture
from ui.curate.gallery import add_gallery
from ui.curate.imports import add_imports
from ui.security.request_limits import BodyLimit, Limit

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def client(studio: Studio) -> Iterator[TestClient]:
    app = FastAPI()
    add_imports(app, studio.commands, studio.imports)
    add_gallery(app, studio.commands, studio.gallery)
    with TestClient(app) as made:
        yield made
    studio.imports.close()


def archive(**more: bytes) -> bytes:
    """Return a zip of two birds and a boat in folders of their labels, and of `more` files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for number, label in ((1, "bird"), (2, "bird"), (3, "boat")):
            packed.writestr(f"test/{label}/{number}.png", png_of(picture(number)))
        for name, data in more.items():
            packed.writestr(name, data)
    return file.getvalue()


def send(client: TestClient, data: bytes, **asked: str) -> Any:
    query = {"file": "birds.zip", **asked}
    return client.post("/curate/files/import", params=query, content=data, headers={"x-studio": "1"})


def imported(studio: Studio, client: TestClient, data: bytes, **asked: str) -> str:
    """Return the page's report after an import."""
    reply = send(client, data, **asked)
    assert reply.status_code == 200, reply.text
    until(lambda: not client.get("/curate/api/import").json()["active"])
    found: str = client.get("/curate/api/import").json()["parts"]["part-import"]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", found)).split())


def page(client: TestClient, path: str, status: int = 200) -> str:
    reply = client.get(path)
    assert reply.status_code == status, reply.text
    body = reply.text[reply.text.index("<main") :]
    assert "<script" not in body
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_gallery_calls_the_import_as_its_page_does(client: TestClient) -> None:
    link = re.search(r'<a href="(/curate/import)"[^>]*>([^<]+)</a>', client.get("/curate/").text)
    assert link is not None
    assert f"<h1>{link[2]}</h1>" in client.get(link[1]).text


def test_an_archive_comes_in_and_into_a_test_set(studio: Studio, client: TestClient) -> None:
    assert "Imported before" not in page(client, "/curate/import")
    said = imported(studio, client, archive(), name="Mine", test_set="Set of them")
    assert "done 3 images came into the workspace as “Mine”" in said and "into the draft of “Set of them”" in said
    assert "/curate/?import=Mine" in client.get("/curate/api/import").json()["parts"]["part-import"]
    (held,) = studio.workspace.imports.all()
    assert (held.name, held.source, held.images) == ("Mine", "birds.zip", 3)
    assert "Mine Plain folder" in page(client, "/curate/import")
    draft = studio.workspace.test_sets.all()[0].draft
    assert draft is not None and draft.splits == {"test": 3}
    assert "No file was refused" in page(client, f"/curate/import/{held.id}")


def test_the_report_is_filtered_and_saved(studio: Studio, client: TestClient) -> None:
    bad = {f"test/{HOSTILE}.png": b"no picture", "=cmd.png": b"no picture either"}
    imported(studio, client, archive(**bad), labels="bird\nowl", name=HOSTILE)
    number = studio.workspace.imports.all()[0].id
    said = page(client, f"/curate/import/{number}")
    assert HOSTILE in said and "refused 3" in said and "boat" in said
    assert "No file was refused" in page(client, f"/curate/import/{number}?kind=known")
    assert "Not there" in page(client, "/curate/import/99", 404)
    got = client.get(f"/curate/import/{number}/report.csv")
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''script-alert-1-script-report.csv"
    rows = list(csv.DictReader(io.StringIO(got.text)))
    assert [row["kind"] for row in rows] == ["refused"] * 3
    assert {row["file"] for row in rows} == {f"test/{HOSTILE}.png", "'=cmd.png", "test/boat/3.png"}
    assert client.get(f"/curate/import/{number}/report.csv", params={"kind": "known"}).text == "file,kind,reason\r\n"
    assert client.get("/curate/import/99/report.csv").status_code == 404


def test_a_long_report_is_cut_into_pages(studio: Studio, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.curate.imports.ROWS", 2)
    imported(studio, client, archive(**{f"{name}.png": b"no" for name in "abcde"}))
    number = studio.workspace.imports.all()[0].id
    seen: list[str] = []
    path = f"/curate/import/{number}?kind=refused"
    while path:
        text = client.get(path).text
        seen += re.findall(r"<td>([a-e])\.png</td>", text)
        links = re.findall(r'href="([^"]+)"[^>]*id="next"', text)
        path = unescape(links[0]) if links else ""
    assert seen == list("abcde")


@pytest.mark.parametrize(
    ("data", "asked", "field", "said"),
    [
        (b"", {}, "file", "empty"),
        (b"x", {"layout": "cvat"}, "layout", "no format"),
        (b"x", {"classes": "road"}, "classes", "no class"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_field(
    studio: Studio, client: TestClient, data: bytes, asked: dict[str, str], field: str, said: str
) -> None:
    reply = send(client, data, **asked)
    assert reply.status_code == 400 and said in reply.json()["error"] and reply.json()["field"] == field
    assert studio.workspace.imports.all() == ()


@pytest.mark.parametrize(
    ("asked", "said"),
    [({}, "Another import is running"), ({"layout": "cvat"}, "no format"), ({"classes": "road"}, "no class")],
)
def test_what_cannot_be_taken_is_refused_before_it_is_sent(
    studio: Studio, client: TestClient, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], said: str
) -> None:
    held = hold_imports(monkeypatch)
    try:
        if not asked:
            assert send(client, archive()).status_code == 200
        status, reply = sent_without_body(client.app, "/curate/files/import", {"file": "birds.zip", **asked})
        assert status == 400 and said in reply["error"]
        ready = client.get("/curate/api/import-ready", params=asked)
        assert (ready.status_code, ready.json()) == (400, reply)
    finally:
        held.go_on.set()
    until(lambda: not client.get("/curate/api/import").json()["active"])
    assert client.get("/curate/api/import-ready").json() == {"ready": True}


def sent_without_body(app: Any, path: str, query: dict[str, str]) -> tuple[int, Any]:
    """Return the status and the JSON of the reply to an upload whose body is never sent."""
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    async def reply(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "query_string": urlencode(query).encode(),
        "headers": [(b"host", b"testserver"), (b"x-studio", b"1")],
        "server": ("testserver", 80),
    }
    asyncio.run(app(scope, receive, reply))
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


def test_what_is_no_archive_fails_in_words(studio: Studio, client: TestClient) -> None:
    said = imported(studio, client, b"no archive")
    assert said.startswith("birds failed") and "zip or tar" in said


def test_nothing_is_taken_from_another_site_and_not_too_much(studio: Studio) -> None:
    app = FastAPI()
    add_imports(app, studio.commands, studio.imports)
    app.add_middleware(BodyLimit, limits=(Limit("/curate/files/", 100, "Too large."), Limit("", 10**6, "")))  # type: ignore[arg-type]
    with TestClient(app) as client:
        assert client.post("/curate/files/import", content=b"x").status_code == 403
        reply = send(client, b"x" * 101)
        assert (reply.status_code, reply.json()["error"]) == (400, "Too large.")
