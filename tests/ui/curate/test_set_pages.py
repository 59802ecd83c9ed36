"""The pages of test sets: their text, their refusals, and the zip of an export."""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.errors import UserError
from core.progress import OnCount
from core.test_sets import SetEntry, SetVersion, Split
from core.types import Task
from formats.layouts import LAYOUTS
from formats.reading import read
from services.curation.views import View
from services.studio import Studio
from services.test_sets import exports
from services.test_sets.versions import Difference
from services.work_queue import WorkQueue
from tests.support.cases import made_case
from tests.support.serving import until
from tests.support.set_cases import picture, run_of
from ui.curate.sets import add_test_sets
from ui.curate.sets_page import difference_page
from ui.curate.sets_words import FORMATS, pages

HOSTILE = '<script>alert(1)</script> & "co"'


@pytest.fixture
def client(studio: Studio) -> Iterator[TestClient]:
    app = FastAPI()
    add_test_sets(app, studio.commands, studio.test_sets)
    with TestClient(app) as made:
        yield made


def page(client: TestClient, path: str, status: int = 200) -> str:
    """Return the text of a page without its markup."""
    reply = client.get(path)
    assert reply.status_code == status, reply.text
    body = reply.text[reply.text.index("<main") :]
    assert "<script" not in body, "no markup of a name"
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def send(client: TestClient, name: str, **data: Any) -> Any:
    return client.post(f"/curate/api/{name}", json=data, headers={"x-studio": "1"})


def done(client: TestClient, name: str, **data: Any) -> Any:
    reply = send(client, name, **data)
    assert reply.status_code == 200, reply.text
    return reply.json()


def filled(studio: Studio, name: str = "Birds") -> str:
    """Create a set whose draft has three birds from two sources and a boat, all accepted. Return its id."""
    set_id = studio.workspace.test_sets.create(name)
    cases = run_of(studio.workspace, 1, [10, 11]) + run_of(studio.workspace, 2, [12])
    cases += run_of(studio.workspace, 3, [13], "boat")
    studio.test_sets.drafts.add(set_id, cases)
    return set_id


def released(studio: Studio, name: str = "Birds", **fields: Any) -> SetVersion:
    set_id = filled(studio, name)
    studio.commands.send("split-test-set", {"test_set": set_id, "train": 0.5, "test": 0.5})
    studio.commands.send("release-test-set", {"test_set": set_id, **fields})
    version = studio.workspace.test_sets.get(set_id).latest
    assert version is not None
    return version


def images(studio: Studio, set_id: str) -> list[str]:
    draft = studio.workspace.test_sets.get(set_id).draft
    assert draft is not None
    return [entry.image for entry in studio.workspace.test_sets.entries(draft.number)]


def exported(client: TestClient, version: SetVersion, layout: str) -> tuple[str, bytes]:
    """Export a version and download the result. Return its address and its bytes."""
    reply = done(client, "set-export", version=version.id, layout=layout)
    while reply["active"]:
        reply = client.get("/curate/api/set-exports", params={"version": version.id}).json()
    addresses = re.findall(r'href="(/curate/exports/[^"]+)"', reply["parts"]["part-exports"])
    assert addresses, reply
    got = client.get(unescape(addresses[0]))
    assert got.status_code == 200 and got.headers["content-type"] == "application/zip"
    return addresses[0], got.content


# ---- The list, and one set


def test_who_has_no_test_set_is_told_what_one_is(client: TestClient) -> None:
    said = page(client, "/curate/sets")
    assert "A filter finds new images, a test set keeps its list" in said and "Create the first test set" in said


def test_the_list_says_versions_images_labels_and_splits(studio: Studio, client: TestClient) -> None:
    released(studio)
    filled(studio, "More")
    said = page(client, "/curate/sets")
    assert "Birds 4 images · 2 labels · train 2, test 2 released Version 1" in said
    assert "More 4 images · 2 labels draft nothing released yet" in said


def test_names_notes_and_labels_are_text(studio: Studio, client: TestClient) -> None:
    version = released(studio, HOSTILE, note=HOSTILE, thresholds={HOSTILE: 1})
    studio.commands.send("draft-test-set", {"version": version.id})
    draft_images = images(studio, version.test_set)
    studio.commands.send(
        "relabel-in-test-set", {"test_set": version.test_set, "images": draft_images[:1], "label": HOSTILE}
    )
    for path in (
        "/curate/sets",
        f"/curate/sets/{version.test_set}",
        f"/curate/sets/{version.test_set}?version=1",
        f"/curate/sets/{version.test_set}?class={quote(HOSTILE)}",
        f"/curate/sets/{version.test_set}/compare?kind=relabelled",
    ):
        assert HOSTILE in page(client, path)
    shown = client.get(
        "/curate/api/set-image", params={"version": f"{version.test_set}@draft", "image": draft_images[0]}
    )
    assert "<script" not in shown.json()["html"]


def test_a_draft_says_what_stands_against_its_release(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    open_case = run_of(studio.workspace, 4, [14], accepted=False)
    studio.test_sets.drafts.add(set_id, open_case)
    address = f"/curate/sets/{set_id}"
    said = page(client, address)
    assert f"1 that nobody reviewed (test cases {open_case[0]})" in said and "5 images" in said
    shown = page(client, f"{address}?against=not+accepted")
    assert "1 of 5 images" in shown and "not reviewed" in shown
    gone = client.get(f"{address}/review", follow_redirects=False)
    assert gone.status_code == 303 and f'href="{address}/review"' in client.get(address).text
    found = studio.gallery.page(View.read(gone.headers["location"].partition("?")[2])).entries
    assert tuple(entry.test_case for entry in found) == open_case
    assert client.get("/curate/sets/none/review").status_code == 404
    assert "3 of 5 images" in page(client, f"{address}?class=bird&review=accepted&none=split")
    done(client, "set-split-in-test-set", test_set=set_id, images=images(studio, set_id)[:1], split="train")
    assert "4 images are in no split, and others are" in page(client, address)


def test_the_title_leads_to_all_images_of_the_version(studio: Studio, client: TestClient) -> None:
    version = released(studio)
    shown = client.get(f"/curate/sets/{version.test_set}?version=1&split=test").text
    assert (
        f'<a href="/curate/sets/{version.test_set}?version=1" title="All images of this version, of all splits"'
        in shown
    )


def test_a_window_proposes_shares_that_suit_the_draft(studio: Studio, client: TestClient) -> None:
    def proposed(set_id: str) -> list[str]:
        shown = client.get(f"/curate/sets/{set_id}").text
        window = shown[shown.index('id="split"') :]
        found = [re.search(f'name="{name}"[^>]*', window) for name in ("train", "validation", "test")]
        return [value for one in found if one for value in re.findall(r'value="(\d+)"', one[0])]

    set_id = filled(studio)
    assert proposed(set_id) == ["0", "0", "100"], "a fifth of few images says little"
    held = images(studio, set_id)
    studio.workspace.test_sets.set_splits(
        studio.test_sets.version_of(f"{set_id}@draft").number, {held[0]: "train", **dict.fromkeys(held[1:], "test")}
    )
    assert proposed(set_id) == ["25", "0", "75"], "what it has by now"


def test_a_table_of_counts_says_which_of_its_lines_have_no_label_and_no_split(
    studio: Studio, client: TestClient
) -> None:
    set_id = filled(studio)
    held = images(studio, set_id)
    done(client, "relabel-in-test-set", test_set=set_id, images=held[:1], label="")
    done(client, "set-split-in-test-set", test_set=set_id, images=held[:1], split="test")
    said = page(client, f"/curate/sets/{set_id}")
    assert "label no split test all no label" in said or "label test no split all no label" in said


def test_a_split_is_told_while_its_shares_are_typed(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    asked = {"test_set": set_id, "train": "50", "test": "50 %", "seed": "0", "keep": "true"}

    def told(**changes: str) -> str:
        return str(client.get("/curate/api/set-split", params={**asked, **changes}).json()["words"])

    begin = "This gives about train 2, test 2 of 4 images. There are 3 groups of images that stay together."
    assert told() == f"{begin} The button first compares the sources."
    done(client, "set-work", kind="split-test-set", **{**asked, "keep": True})
    assert told() == begin.replace("about ", "")
    assert "add up to" not in told()
    assert "The shares add up to 120 %, so they are scaled to 100 %." in told(train="20", test="100")
    few = told(train="40", validation="30", test="30", keep="true")
    assert "That is too few groups: validation would get no image." in few, "those with a split keep it"
    refused = client.get("/curate/api/set-split", params={**asked, "train": "many"})
    assert refused.status_code == 400 and "no number" in refused.json()["error"]


def test_what_is_taken_out_comes_with_its_undo(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    held = images(studio, set_id)
    reply = done(client, "remove-from-test-set", test_set=set_id, images=held[:2])
    undo = reply["undo"]
    assert reply["said"] == "2 images taken out." and images(studio, set_id) == held[2:]
    assert done(client, undo["name"], test_set=set_id, **undo["fields"])["said"] == "2 images put back."
    assert images(studio, set_id) == held
    assert done(client, "remove-from-test-set", test_set=set_id, images=["f" * 64])["undo"] is None


def test_two_tasks_are_warned_about_and_parted_with_one_press(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    assert "Two tasks" not in page(client, f"/curate/sets/{set_id}")
    task = Task("segmentation", protected=("road",))
    run = studio.workspace.runs.create(picture(5), task, "demo", "A street", {})
    studio.test_sets.drafts.add(set_id, studio.workspace.test_cases.extend(run, None, [made_case(picture(15))]))
    said = page(client, f"/curate/sets/{set_id}")
    assert "Two tasks It has 4 images of classification and 1 of segmentation." in said and "Separate them" in said
    assert "The version will hold 4 images of classification and 1 of segmentation." in said, (
        "the window of the release"
    )
    reply = done(client, "part-test-set", test_set=set_id)
    assert reply["said"] == "1 image is now in a test set of its own."
    assert reply["open"]["words"] == "Open “Birds (segmentation)”"
    assert "Two tasks" not in page(client, f"/curate/sets/{set_id}")
    assert "1 image" in page(client, reply["open"]["address"])


def test_a_released_version_shows_its_id_parent_and_thresholds(studio: Studio, client: TestClient) -> None:
    version = released(studio, note="Two\nlines", thresholds={"label seen": 0.25})
    studio.commands.send("draft-test-set", {"version": version.id})
    said = page(client, f"/curate/sets/{version.test_set}?version=1")
    assert version.id[:12] in said and "label seen 0.25" in said and "Two lines" in said
    assert "leaks Birds@1 FOLDER" in said, "the line is there to copy"
    assert "from Version 1" in page(client, f"/curate/sets/{version.test_set}"), "the draft says what it is made of"


def test_what_is_not_there_has_a_page_that_says_so(studio: Studio, client: TestClient) -> None:
    version = released(studio)
    for path in ("nothing", f"{version.test_set}?version=draft", f"{version.test_set}?version=9", "nothing/compare"):
        assert "Not there" in page(client, f"/curate/sets/{path}", 404)
    assert "Not there" in page(client, f"/curate/sets/{version.test_set}/compare?old=none@1", 404)
    assert "4 images" in page(client, f"/curate/sets/{version.test_set}?page=-1&against=y")


def test_a_name_cannot_leave_the_command_line_to_copy(studio: Studio, client: TestClient) -> None:
    version = released(studio, "x'; rm -rf ~ #")
    assert "'x'\"'\"'; rm -rf ~ #@1' FOLDER" in page(client, f"/curate/sets/{version.test_set}")


def test_a_page_behind_the_last_one_is_the_last(
    studio: Studio, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.curate.sets.PAGE", 3)
    set_id = filled(studio)
    shown = client.get(f"/curate/sets/{set_id}?page=9").text
    assert re.findall(r'data-image="(\w+)"', shown) == images(studio, set_id)[3:]


def test_many_images_are_cut_into_pages() -> None:
    links = pages("/x", {"label": "a b"}, 5, 1100, 100)
    assert links is not None and pages("/x", {}, 1, 100, 100) is None
    numbers = re.findall(r">([\d,]+)<", links)
    assert numbers == ["1", "3", "4", "5", "6", "7", "11"] and 'href="/x?label=a+b&amp;page=6"' in links


# ---- Requests of the pages


def test_from_a_new_set_to_a_release_by_what_the_pages_send(studio: Studio, client: TestClient) -> None:
    run_of(studio.workspace, 1, [10, 11])
    run_of(studio.workspace, 2, [12])
    go = done(client, "create-test-set", title="Birds")["go"]
    set_id = go.rsplit("/", 1)[1]
    added = done(client, "add-to-test-set", test_set=set_id, filter="class=bird", expected=3)
    assert added["said"] == "3 images added."
    held = images(studio, set_id)
    assert done(client, "remove-from-test-set", test_set=set_id, images=held[:1])["said"] == "1 image taken out."
    assert done(client, "relabel-in-test-set", test_set=set_id, images=held[1:], label="owl")["said"].startswith("2")
    told = done(
        client, "set-work", kind="split-test-set", test_set=set_id, train="50", test="50 %", seed="0", keep=True
    )
    assert told["state"] == "done" and told["said"] == (
        "train 1, test 1 of 2 images. There are 2 groups of images that stay together."
    )
    told = done(client, "set-work", kind="release-test-set", test_set=set_id, note="n", thresholds="a b = 0.5\n\nc=1")
    assert told["go"] == f"/curate/sets/{set_id}?version=1"
    version = studio.workspace.test_sets.get(set_id).latest
    assert version is not None and version.thresholds == {"a b": 0.5, "c": 1.0, "near-duplicate distance": 3.0}
    assert done(client, "draft-test-set", version=version.id)["go"] == f"/curate/sets/{set_id}?version=draft"
    assert done(client, "delete-test-set-draft", test_set=set_id)["go"] == f"/curate/sets/{set_id}"
    other = done(client, "create-test-set", title="Another")["go"].rsplit("/", 1)[1]
    assert done(client, "delete-test-set-draft", test_set=other)["go"] == "/curate/sets"


@pytest.mark.parametrize(
    ("name", "data", "field", "said"),
    [
        ("create-test-set", {"title": " "}, "title", "no name"),
        ("set-work", {"kind": "split-test-set", "train": "many"}, "train", "no number"),
        ("set-work", {"kind": "split-test-set", "train": "101"}, "train", "from 0 to 100"),
        ("set-work", {"kind": "release-test-set", "thresholds": "a"}, "thresholds", "NAME=NUMBER"),
        ("set-work", {"kind": "release-test-set", "thresholds": "a=1\na=2"}, "thresholds", "twice"),
        ("relabel-in-test-set", {"images": ["f" * 64], "label": ""}, "images", "has no image"),
        ("remove-from-test-set", {"images": ["../x"]}, "images", ""),
        ("add-to-test-set", {"filter": "odd=1"}, "filter", "Unknown filter part “odd”"),
    ],
)
def test_a_refusal_names_its_field(
    studio: Studio, client: TestClient, name: str, data: dict[str, Any], field: str, said: str
) -> None:
    set_id = filled(studio)
    reply = send(client, name, **({} if name == "create-test-set" else {"test_set": set_id}), **data)
    assert reply.status_code in (400, 404) and said in reply.json()["error"]
    assert reply.json()["field"].startswith(field)


def test_what_work_refuses_is_told_with_its_field(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    told = done(client, "set-work", kind="split-test-set", test_set=set_id, train="0", test="0")
    assert (told["state"], told["field"]) == ("failed", "train") and "share of each split" in told["error"]
    told = done(client, "set-work", kind="release-test-set", test_set=set_id, thresholds="near-duplicate distance=1")
    assert (told["state"], told["field"]) == ("failed", "thresholds")


def test_nothing_is_taken_from_another_site(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    for name in ("create-test-set", "set-work", "set-export", "set-cancel", "delete-test-set-draft"):
        assert client.post(f"/curate/api/{name}", json={"test_set": set_id}).status_code == 403


def test_sets_that_images_can_be_added_to(studio: Studio, client: TestClient) -> None:
    version, set_id = released(studio), filled(studio, "More")
    assert client.get("/curate/api/drafts").json()["sets"] == [
        {"id": set_id, "name": "More", "draft": True, "images": 4},
        {"id": version.test_set, "name": "Birds", "draft": False, "images": 4},
    ]


def test_all_images_of_a_filter_are_found_at_once(studio: Studio, client: TestClient) -> None:
    set_id = filled(studio)
    query = {"version": f"{set_id}@draft", "class": "bird"}
    assert client.get("/curate/api/set-images", params=query).json()["images"] == images(studio, set_id)[:3]


# ---- The difference of versions, and checking a version


def test_the_difference_shows_each_kind_and_any_two_versions(studio: Studio, client: TestClient) -> None:
    version = released(studio)
    set_id = version.test_set
    studio.commands.send("draft-test-set", {"version": version.id})
    held = images(studio, set_id)
    done(client, "remove-from-test-set", test_set=set_id, images=held[:1])
    done(client, "relabel-in-test-set", test_set=set_id, images=held[3:], label="ship")
    address = f"/curate/sets/{set_id}/compare"
    said = page(client, address)
    assert "0 added 1 removed 1 relabelled 0 other mask 0 re-split" in said and "1 image removed" in said
    assert "boat ship" in page(client, f"{address}?kind=relabelled")
    other = released(studio, "Other")
    across = page(client, f"{address}?old={other.id}&new={set_id}@1")
    assert "Both versions have the same images" in across and "Other, Version 1: 4 images" in across


def test_verify_names_what_is_missing_damaged_and_orphaned(studio: Studio, client: TestClient) -> None:
    version = released(studio)
    told = done(client, "set-work", kind="verify-test-set", version=version.id)
    assert 'data-whole="yes"' in told["html"]
    entries = studio.workspace.test_sets.entries(version.number)
    paths = [studio.workspace.images.path(entry.image) for entry in entries]
    paths[0].unlink()
    paths[1].write_bytes(b"no picture")
    (studio.workspace.images.folder / ("f" * 64 + ".png")).write_bytes(b"x")
    html = done(client, "set-work", kind="verify-test-set", version=version.id)["html"]
    assert 'data-whole="no"' in html
    for found, name in (("missing", entries[0].image), ("damaged", entries[1].image), ("orphans", "f" * 64)):
        assert re.search(rf'data-found="{found}".*?{name}', html), found


# ---- Exports


def test_every_format_that_is_written_is_offered() -> None:
    assert set(FORMATS) == {name for name, layout in LAYOUTS.items() if layout.write is not None}
    documented = Path("docs/formats.md").read_text(encoding="utf-8")
    for name, words in FORMATS.items():
        assert f"`{words.line}`" in documented, f"The page and docs/formats.md load {name} by different lines."


@pytest.mark.parametrize("split", ["", "validation", "train"])
def test_the_line_beside_an_export_loads_it_whatever_splits_it_has(
    studio: Studio, client: TestClient, tmp_path: Path, split: Split
) -> None:
    set_id = filled(studio)
    studio.workspace.test_sets.set_splits(
        studio.test_sets.version_of(f"{set_id}@draft").number, dict.fromkeys(images(studio, set_id), split)
    )
    studio.commands.send("release-test-set", {"test_set": set_id})
    version = studio.workspace.test_sets.get(set_id).latest
    assert version is not None
    _, data = exported(client, version, "coco")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(tmp_path)
    shown = client.get("/curate/api/set-exports", params={"version": version.id}).json()["parts"]["part-exports"]
    line = unescape(re.search(r"<code[^>]*>(.*?)</code>", shown)[1])  # type: ignore[index]
    named = re.search(r'"(.*)"', line)
    assert line.startswith("COCO(") and named and len(json.loads((tmp_path / named[1]).read_bytes())["images"]) == 4


@pytest.mark.parametrize("layout", ["imagefolder", "csv"])
def test_an_export_is_one_zip_that_is_read_back(
    studio: Studio, client: TestClient, tmp_path: Path, layout: str
) -> None:
    version = released(studio)
    address, data = exported(client, version, layout)
    assert address.endswith(f"/birds-v1-{layout}.zip")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
        assert names[-1] == f"birds-v1-{layout}/manifest.json" and all(one.startswith("birds-v1-") for one in names)
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    file = tmp_path / "set.zip"
    file.write_bytes(data)
    found = read(file, tmp_path / "unpacked")
    held = studio.workspace.test_sets.entries(version.number)
    assert not found.rows and found.header is not None and found.header.version == version.id
    assert sorted((one.sha, one.label, one.split) for one in found.examples) == sorted(
        (entry.image, entry.label, entry.split) for entry in held
    )


def test_an_export_is_the_same_bytes_when_repeated(studio: Studio, client: TestClient) -> None:
    version = released(studio)
    address, first = exported(client, version, "coco")
    assert exported(client, version, "coco")[0] == address, "what is there is not made again"
    home = studio.workspace.folder / exports.FOLDER
    assert {path.name for path in home.glob("*/*")} == {"birds-v1-coco.zip", "export.json"}
    number = int(address.split("/")[3])
    done(client, "set-cancel", number=number, export=True)
    assert not list(home.glob("*/*")) and client.get(address).status_code == 404
    again, second = exported(client, version, "coco")
    assert again != address and second == first


def test_a_draft_and_an_unknown_format_are_not_exported(studio: Studio, client: TestClient) -> None:
    version, set_id = released(studio), filled(studio, "More")
    assert "is a draft" in send(client, "set-export", version=f"{set_id}@draft", layout="csv").json()["error"]
    reply = send(client, "set-export", version=version.id, layout="../x").json()
    assert reply["field"] == "layout"
    assert (
        "folder" not in FORMATS and send(client, "set-export", version=version.id, layout="folder").status_code == 400
    )


def test_a_failed_export_leaves_nothing_and_says_why(studio: Studio, client: TestClient) -> None:
    version = released(studio)
    studio.workspace.images.path(studio.workspace.test_sets.entries(version.number)[0].image).unlink()
    reply = done(client, "set-export", version=version.id, layout="csv")
    while reply["active"]:
        reply = client.get("/curate/api/set-exports", params={"version": version.id}).json()
    assert 'role="alert"' in reply["parts"]["part-exports"]
    assert not list((studio.workspace.folder / exports.FOLDER).glob("*"))


def test_what_a_killed_studio_left_is_taken_away(studio: Studio, client: TestClient) -> None:
    home = studio.workspace.folder / exports.FOLDER
    left, other = home / "999999999-0123abcd", home / "mine"
    for folder in (left, other):
        folder.mkdir(parents=True)
    exported(client, released(studio), "csv")
    assert not left.exists() and other.exists(), "nothing that is not ours goes"


def test_a_cancelled_export_stops_and_leaves_nothing(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    version, services = released(studio), studio.test_sets.exports
    plain = exports.packed

    def cancelled_meanwhile(folder: Path, file: Path, name: str, on_count: OnCount) -> None:
        services.cancel(number)
        plain(folder, file, name, on_count)

    monkeypatch.setattr(exports, "packed", cancelled_meanwhile)
    number = 1
    assert services.start(version.id, "csv").id == number
    until(lambda: not services.view(number).active)
    assert services.view(number).state == "cancelled"
    assert not list((studio.workspace.folder / exports.FOLDER).glob("*"))


def test_work_is_done_one_after_the_other_and_forgotten_after_its_time() -> None:
    dropped: list[Any] = []
    queue = WorkQueue(drop=dropped.append)

    def told(on_count: OnCount) -> str:
        on_count(1, 2)
        return "one"

    first = queue.start("a", "x", told)
    second = queue.start("b", "x", lambda on_count: 1 / 0)

    def refused(on_count: OnCount) -> None:
        raise UserError("No.", field="here")

    third = queue.start("c", "y", refused)
    views = [queue.wait(number, 30) for number in (first, second, third)]
    assert [view.state for view in views] == ["done", "failed", "failed"]
    assert views[0].result == "one" and (views[0].done, views[0].total) == (1, 2)
    assert "ZeroDivisionError" in views[1].error and (views[2].error, views[2].field) == ("No.", "here")
    assert [view.id for view in queue.of("x")] == [second, first]
    queue.forget(0.0)
    assert dropped == ["one"]
    with pytest.raises(UserError, match="no longer known"):
        queue.view(first)
    queue.close()


def test_waiting_work_can_be_cancelled() -> None:
    go_on = threading.Event()
    queue = WorkQueue()

    def held(on_count: OnCount) -> None:
        go_on.wait(30)
        on_count(1, 1)

    first, second = queue.start("a", "x", held), queue.start("b", "x", held)
    queue.cancel(second)
    assert queue.view(second).state == "cancelled"
    queue.cancel(first)
    go_on.set()
    assert queue.wait(first, 30).state == "cancelled"
    queue.close()


def test_only_an_image_without_a_mask_is_said_to_have_no_label(studio: Studio) -> None:
    version, sha, other = released(studio), "0" * 64, "1" * 64
    added = (SetEntry(sha, sha), SetEntry(other, other, mask=sha))
    shown = difference_page(version, version, Difference(added, (), (), (), ()), "added", 1, ())
    assert shown.count('class="shot"') == 2 and shown.count(">no label<") == 1
