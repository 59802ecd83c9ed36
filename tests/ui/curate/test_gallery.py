"""What the gallery asks of the server: bad input gets a sentence, another site gets nothing, and a view can be held."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.errors import UserError
from services.curation.gallery import MOST_HELD
from services.curation.views import View
from services.studio import Studio
from tests.support.drawn import fill
from tests.support.scripted import studio_in
from tests.support.serving import until
from ui.curate.gallery import add_gallery, cell, gallery_page

OWN = {"x-studio": "1", "content-type": "application/json"}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with studio_in(tmp_path_factory.mktemp("gallery")) as held:
        fill(held.workspace, 8, 4, pixels=16)
        yield held


@pytest.fixture(scope="module")
def client(studio: Studio) -> TestClient:
    app = FastAPI()
    add_gallery(app, studio.commands, studio.gallery)
    return TestClient(app)


def test_as_many_thumbnails_as_are_asked_for_come_with_the_cells(client: TestClient, studio: Studio) -> None:
    plain = client.get("/curate/api/cells", params={"n": 6}).json()
    assert len(plain["cells"]) == 6 and plain["thumbs"] == []
    said = client.get("/curate/api/cells", params={"n": 6, "thumbs": 4}).json()
    assert said["cells"] == plain["cells"]
    shas = [sha for _, sha, *_ in said["cells"][:4]]
    assert [b64decode(data) for data in said["thumbs"]] == [studio.workspace.thumbnails.webp(sha) for sha in shas]


def test_a_thumbnail_that_is_not_made_yet_is_left_to_its_own_request(client: TestClient, studio: Studio) -> None:
    sha = client.get("/curate/api/cells", params={"n": 1}).json()["cells"][0][1]
    (studio.workspace.thumbnails.folder / sha[:2] / sha[2:4] / f"{sha}.webp").unlink()
    assert client.get("/curate/api/cells", params={"n": 1, "thumbs": 1}).json()["thumbs"] == [""]
    studio.workspace.thumbnails.webp(sha)


MISTAKES = (
    "cells?view=colour%3Dred",
    "cells?view=range%3Dx",
    "totals?view=sort%3Dloudest",
    "place?entry=1&view=near%3D-1",
    "detail?entry=999999",
    "cell?entry=999999",
    "origin?entry=999999",
)
NOT_ASKED = (
    "cells?at=-1",
    "cells?thumbs=1000",
    "cells?n=0",
    "cells?n=100000",
    f"cells?view={'x' * 20_000}",
    "cell?entry=x",
)


@pytest.mark.parametrize("path", MISTAKES)
def test_a_mistake_is_told_in_a_sentence(client: TestClient, path: str) -> None:
    reply = client.get(f"/curate/api/{path}")
    assert reply.status_code == 400
    assert reply.json()["error"].endswith(".")


@pytest.mark.parametrize("path", NOT_ASKED)
def test_what_no_page_asks_for_is_refused(client: TestClient, path: str) -> None:
    assert client.get(f"/curate/api/{path}").status_code == 422


def test_another_site_decides_nothing(client: TestClient, studio: Studio) -> None:
    before = studio.workspace.catalogue.facets()["review"]
    sent = {"filter": "", "verdict": "rejected"}
    assert client.post("/curate/api/decide", json=sent).status_code == 403
    foreign = {**OWN, "origin": "https://example.org", "sec-fetch-site": "cross-site"}
    assert client.post("/curate/api/decide", json=sent, headers=foreign).status_code == 403
    assert studio.workspace.catalogue.facets()["review"] == before


def test_a_view_is_decided_only_while_it_has_the_number_that_was_said(client: TestClient, studio: Studio) -> None:
    sent = {"filter": "kind=segmentation", "verdict": "accepted", "expected": 1}
    reply = client.post("/curate/api/decide", json=sent, headers=OWN)
    assert reply.status_code == 400
    number = studio.gallery.count(View.read("kind=segmentation")).number
    assert f"{number}" in reply.json()["error"]
    done = client.post("/curate/api/decide", json={**sent, "expected": number}, headers=OWN).json()["result"]
    assert done["changed"] + done["same"] == number
    back = client.post("/curate/api/undo-decision", json={"decision": done["decision"]}, headers=OWN).json()["result"]
    assert back["changed"] == done["changed"]


def test_a_held_view_keeps_its_images_while_they_are_decided_about(client: TestClient, studio: Studio) -> None:
    view = "review=open"
    before = client.get("/curate/api/cells", params={"view": view, "n": 100}).json()["cells"]
    held = client.post("/curate/api/hold", json={"view": view}, headers=OWN).json()["held"]
    sent = {"entries": [before[0][0], before[2][0]], "verdict": "accepted"}
    decision = client.post("/curate/api/decide", json=sent, headers=OWN).json()["result"]["decision"]
    after = client.get("/curate/api/cells", params={"view": view, "n": 100, "held": held}).json()["cells"]
    assert [one[0] for one in after] == [one[0] for one in before]
    assert [one[2] for one in after[:3]] == ["accepted", "open", "accepted"]
    live = client.get("/curate/api/cells", params={"view": view, "n": 100}).json()["cells"]
    assert len(live) == len(before) - 2
    forgotten = client.get("/curate/api/cells", params={"view": view, "n": 100, "held": "0" * 16}).json()["cells"]
    assert forgotten == live
    client.post("/curate/api/undo-decision", json={"decision": decision}, headers=OWN)


def test_only_so_many_views_are_held(studio: Studio) -> None:
    names = [studio.gallery.hold(View()) for _ in range(MOST_HELD + 3)]
    assert len(set(names)) == MOST_HELD + 3
    assert [studio.gallery.holds(name) for name in names] == [False] * 3 + [True] * MOST_HELD


def test_the_page_comes_with_its_first_images_and_escapes_what_they_say(studio: Studio) -> None:
    made = gallery_page(View(), studio.gallery)
    first = studio.gallery.page(View()).entries[0]
    assert first.image_sha in made
    assert cell(first)[:3] == [first.id, first.image_sha, first.verdict]
    hostile = gallery_page(View.read('class=<script>alert(1)</script>&text="><img src=x>'), studio.gallery)
    assert "<script>alert" not in hostile and "<img src=x" not in hostile


def test_an_image_that_is_gone_is_said_to_be(studio: Studio) -> None:
    with pytest.raises(UserError, match="no image"):
        studio.gallery.detail(10**6)


def test_a_picture_file_that_is_missing_does_not_break_what_is_told(studio: Studio, tmp_path: Path) -> None:
    entry = studio.gallery.page(View()).entries[0]
    kept = tmp_path / "kept.png"
    entry.image_path.rename(kept)
    try:
        assert studio.gallery.detail(entry.id).entry.id == entry.id
    finally:
        kept.rename(entry.image_path)


def test_images_alike_and_parts_of_the_map_are_views_too(studio: Studio) -> None:
    gallery, meaning = studio.gallery, studio.meaning
    meaning.begin()
    until(lambda: not meaning.filling().working and meaning.filling().done == meaning.filling().total)
    every = gallery.count(View()).number
    first = gallery.page(View()).entries[0].id
    near = View(near=first)
    assert gallery.page(near, limit=5).entries[0].id == first
    assert gallery.count(near).number == len(gallery.ids(near)) == every
    assert gallery.place(near, first) == 0
    pages = [one.id for at in range(0, every, 7) for one in gallery.page(near, at, 7).entries]
    assert tuple(pages) == gallery.ids(near)
    held = gallery.hold(near)
    assert [one.id for one in gallery.page(near, 3, 4, held).entries] == list(gallery.ids(near)[3:7])
    assert gallery.count(View.read("like=a red bird&review=accepted")) == gallery.count(View.read("review=accepted"))
    around = View.read("region=-0.1,-0.1 1.1,-0.1 1.1,1.1 -0.1,1.1")
    assert gallery.count(around).number == every
    assert [one.id for one in gallery.page(around).entries] == [one.id for one in gallery.page(View()).entries]
    assert gallery.totals(around).facets["review"] == studio.workspace.catalogue.facets()["review"]
    assert gallery.count(View.read("region=7,7 8,7 8,8")).number == 0
    with pytest.raises(UserError, match="is no filter"):
        studio.commands.send("decide", {"filter": around.address, "verdict": "accepted"})
    alike = gallery.ids(View(alike=True))
    assert len(set(alike)) == len(alike) <= every
