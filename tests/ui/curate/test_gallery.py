"""Requests of the gallery: bad input gets a sentence, other sites are refused, and a view can be held on the server."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.catalogue import Count
from core.errors import UserError
from core.image_filter import ImageFilter
from core.types import Task
from services.curation.gallery import MOST_HELD, Totals
from services.curation.views import View
from services.studio import Studio
from tests.support.cases import made_case
from tests.support.drawn import fill
from tests.support.scripted import studio_in
from tests.support.serving import until
from ui.curate.filters import filter_column
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


def test_a_page_without_images_says_why_and_what_to_do(
    studio: Studio, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(markup: str) -> str:
        found = re.search(r"<div[^>]*part-empty.*?</div>", markup)
        assert found
        return found[0]

    with studio_in(tmp_path) as empty:
        words = told(gallery_page(View.read("class=none+such"), empty.gallery))
        assert "There are no images yet" in words and "Clear it" not in words
        assert all(f'href="{to}"' in words for to in ("/curate/import", "/", "/batches/"))
    assert "Clear it" in told(gallery_page(View.read("class=none+such"), studio.gallery))
    totals = studio.gallery.totals
    monkeypatch.setattr(studio.gallery, "totals", lambda *given: replace(totals(*given), waiting=8))
    said = client.get("/curate/api/totals", params={"view": "class=none+such"}).json()
    words = told(said["parts"]["part-empty"])
    assert "8 images are not compared yet" in words and "No image fits" not in words
    assert said["waiting"] == 8 and not said["note"], "it is said once"


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


@pytest.mark.slow  # torch is loaded
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
    with pytest.raises(UserError, match="used as filters"):
        studio.commands.send("decide", {"filter": around.address, "verdict": "accepted"})
    alike = gallery.ids(View(alike=True))
    assert len(set(alike)) == len(alike) <= every


@pytest.mark.slow  # torch is loaded
def test_near_duplicates_stand_in_any_order(studio: Studio) -> None:
    workspace, gallery, meaning = studio.workspace, studio.gallery, studio.meaning
    same = Image.effect_noise((16, 16), 90).convert("RGB")
    run = workspace.runs.create(same.rotate(90), Task("classification", "copy"), "demo", "Copies", {})
    made = workspace.test_cases.extend(run, None, [made_case(one) for one in (same, same.rotate(180), same.copy())])
    try:
        meaning.begin()
        until(lambda: not meaning.filling().working and meaning.filling().done == meaning.filling().total)
        first, other, second = (
            workspace.catalogue.get(one.id).id for one in reversed(gallery.page(View(), 0, 3).entries)
        )
        assert len(made) == 3 and other
        held = {order: gallery.ids(View.read(f"class=copy&alike=1{order}")) for order in ("", "&sort=oldest")}
        shown = [one.id for one in gallery.page(View.read("class=copy&alike=1&sort=newest")).entries]
        assert held == {"": (first, second), "&sort=oldest": (first, second)} and shown == [second, first]
        assert gallery.count(View.read("class=copy&alike=1&sort=newest")).number == 2
        assert set(gallery.ids(View.read(f"class=copy&alike=1&near={other}"))) == {first, second}
        column = filter_column(View.read("class=copy&alike=1"), gallery.totals(View.read("class=copy&alike=1")))
        assert 'data-key="alike"' in column and column.count("near-duplicates") == 1
    finally:
        workspace.runs.remove(run)


@pytest.mark.slow  # torch is loaded
def test_a_picture_of_ones_own_stands_in_the_filter_and_its_address_finds_it_again(
    client: TestClient, studio: Studio
) -> None:
    meaning = studio.meaning
    meaning.begin()
    until(lambda: not meaning.filling().working and meaning.filling().done == meaning.filling().total)
    entry = studio.gallery.page(View()).entries[3]
    headers = {"x-studio": "1", "content-type": "application/octet-stream"}
    sent = client.post("/curate/like-picture", content=entry.image_path.read_bytes(), headers=headers)
    view = View.read(f"picture={sent.json()['picture']}")
    ranked = [one for one in studio.gallery.ids(view) if one != entry.id]
    assert ranked == list(studio.gallery.ids(View(near=entry.id))[1:]), "it looks as the image itself does"
    shown = gallery_page(view, studio.gallery)
    assert f'<img src="/thumbs/{view.picture}.webp"' in shown and "like this picture" in shown
    assert client.post("/curate/like-picture", content=b"no picture", headers=headers).status_code == 400
    with pytest.raises(UserError, match="not in this workspace: choose it again"):
        studio.gallery.page(View(picture="0" * 64))


def test_groups_without_a_value_are_not_shown_and_models_have_no_hashes() -> None:
    keys = ("resnet18.pt@18f3a2b4c5d6e7f8", "resnet18.pt@18f3a2b4c5d6e7f9", "org/vit (10 classes) [0123456789abcdef]")
    read = {key: {"right": 3} for key in keys}
    totals = Totals(Count(9), {}, {"empty check": {}, "edges kept": {"passed": 2}}, {**read, "unread.onnx": {}}, {})
    text = re.sub(r"<[^>]+>", " ", filter_column(View(), totals))
    assert "resnet18.pt (1)" in text and "resnet18.pt (2)" in text and "vit (10 classes)" in text
    assert "18f3a2b4" not in text and "0123456789" not in text
    assert "unread.onnx" not in text and "empty check" not in text and "shapes kept" in text
    said = ImageFilter(models={keys[0]: ("wrong",), "": ("right",)}).words
    assert said == "resnet18.pt: wrong; most-read model: right"


def test_an_image_is_found_at_its_place_among_those_that_were_held(client: TestClient, studio: Studio) -> None:
    view = View.read("review=open")
    entry = studio.gallery.page(view).entries[1].id
    held = client.post("/curate/api/hold", json={"view": view.address}, headers=OWN).json()["held"]
    decision = studio.commands.send("decide", {"entries": [entry], "verdict": "accepted"}).decision
    asked: dict[str, str | int] = {"view": view.address, "entry": entry}
    assert client.get("/curate/api/place", params=asked).json()["place"] is None
    assert client.get("/curate/api/place", params={**asked, "held": held}).json()["place"] == 1
    undone = studio.commands.send("undo-decision", {"decision": decision})
    assert undone.entry == entry, "to go back to it"


def test_values_that_are_all_chosen_leave_none_behind_a_press() -> None:
    chosen = [f"bird {number}" for number in range(12)]
    totals = Totals(Count(12), {"class": dict.fromkeys(chosen, 1)}, {}, {}, {})
    column = filter_column(View(ImageFilter(facets={"class": tuple(chosen)})), totals)
    assert all(f"class:{name}" in column for name in chosen) and "<details" not in column
