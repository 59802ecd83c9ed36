"""Test sets by a script: from a filter to a released set as files, imported into another workspace, and exported
again.
"""

from __future__ import annotations

import http.client
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import handle_file
from gradio_client.exceptions import AppError

import services.test_sets.exports as exports
from core.images import png_of
from services.studio import Studio
from services.test_sets.exports import FOLDER
from services.test_sets.versions import version_of
from tests.support.called import FILE, answer, call, client_of, made_token, refused, sent, shown
from tests.support.held_imports import hold_imports
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here, until
from tests.support.set_cases import picture, run_of
from tests.ui.scripts.test_mcp import refused as refused_tool
from tests.ui.scripts.test_mcp import told as told_by_tool

pytestmark = pytest.mark.slow
Served = tuple[str, Studio]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_here(tmp_path_factory.mktemp("first") / "workspace", ScriptedModels(), mcp=True) as there:
        yield there


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_here(tmp_path_factory.mktemp("second") / "workspace", ScriptedModels(), mcp=True) as there:
        yield there


def released(studio: Studio, title: str, number: int) -> str:
    """Create a set of two images and release it. Return the id of the version."""
    cases = run_of(studio.workspace, number, [number + 1, number + 2], label="gull")
    made = studio.commands.send("create-test-set", {"title": title})["test_set"]
    studio.commands.send("add-to-test-set", {"test_set": made, "cases": list(cases)})
    return str(studio.commands.send("release-test-set", {"test_set": made})["version"])


def archive(numbers: list[int], label: str = "owl") -> bytes:
    """Return a zip of pictures in the folder of their label."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for number in numbers:
            packed.writestr(f"test/{label}/{number}.png", png_of(picture(number)))
    return file.getvalue()


def brought(url: str, data: bytes, name: str = "owls.zip", **fields: Any) -> Any:
    """Upload an archive. Return the endpoint's answer."""
    file = {"path": sent(url, data, name), "orig_name": name, **FILE}
    return answer(url, "import_images", file=file, **fields)


def ended(studio: Studio) -> str:
    """Wait for the latest import, and return its final state."""
    until(lambda: (state := studio.imports.state()) is not None and state.state != "running")
    state = studio.imports.state()
    assert state is not None
    return state.state


def test_a_script_goes_from_a_filter_to_a_set_in_another_workspace(first: Served, second: Served) -> None:
    studio = first[1]
    run_of(studio.workspace, 1, [10, 11, 12], label="bird", accepted=False)
    run_of(studio.workspace, 2, [13], label="boat", accepted=False)
    client, other = client_of(first[0]), client_of(second[0])

    def ask(name: str, **fields: Any) -> Any:
        return client.predict(**fields, api_name=f"/{name}")

    found = ask("list_test_cases", filter="class=bird&text=blue")["test_cases"]
    assert len(found) == ask("count_test_cases", filter="class=bird")["count"] == 3
    for name, said in (
        ("decide", {"verdict": "accepted"}),
        ("tag_images", {"tag": "night"}),
        ("relabel_images", {"label": "gull"}),
    ):
        with pytest.raises(AppError) as stopped:  # the number of images has changed since the script looked
            ask(name, filter="class=bird", expected=2, **said)
        assert stopped.value.title == "expected", name
    assert ask("decide", filter="class=bird", expected=3, verdict="accepted", author="Ada")["result"]["changed"] == 3
    ask("decide", entries=[found[0]["entry"]], verdict="rejected", reason="blurred", author="Ada")
    ask("tag_images", filter="class=bird&review=accepted", expected=2, tag="night", author="Ada")
    ask("relabel_images", filter="tag=night", expected=2, label="gull", author="Ada")

    made = ask("create_test_set", title="Night gulls")["test_set"]
    added = ask("add_to_test_set", test_set=made, filter="tag=night", expected=2)["result"]
    assert added["added"] == 2
    ask("split_test_set", test_set=made, test=1)
    version = ask("release_test_set", test_set=made, note="The first.")["version"]
    zips = {name: Path(ask("download_test_set", version=version, format=name)) for name in ("imagefolder", "csv")}
    assert zips["imagefolder"].name == "night-gulls-v1-imagefolder.zip"
    with zipfile.ZipFile(zips["imagefolder"]) as packed:
        assert packed.testzip() is None and sum(name.endswith(".png") for name in packed.namelist()) >= 2

    file = handle_file(str(zips["imagefolder"]))
    begun = other.predict(file=file, title="From the first", test_set="", api_name="/import_images")
    assert begun["number"] and ended(second[1]) == "done"
    held = other.predict(number=begun["number"], api_name="/show_import")
    assert (held["name"], held["state"], held["images"], held["report"]) == ("From the first", "done", 2, [])
    assert held["upload"]["state"] == "done" and "2 images came" in held["upload"]["message"]
    there = other.predict(test_set="Night gulls", api_name="/release_test_set")
    assert (there["version"], there["splits"]) == (version, {"test": 2})
    (second[1].workspace.images.folder / "left behind.png").write_bytes(b"x")
    verified = other.predict(version=version, api_name="/verify_test_set")
    assert verified["whole"] and verified["missing"] == [] and verified["orphans"] == ["left behind.png"]
    assert {image["label"] for image in other.predict(version=version, api_name="/show_test_set")["images"]} == {"gull"}

    again = other.predict(file=file, title="From the first", api_name="/import_images")
    assert again["number"] == begun["number"] and ended(second[1]) == "done"
    listed = other.predict(api_name="/list_imports")
    assert len(listed["imports"]) == 1 and "nothing was changed" in listed["latest_upload"]["message"]


def test_what_cannot_be_downloaded_is_told_in_one_sentence(first: Served) -> None:
    url, studio = first
    version = released(studio, "Told", 100)
    assert refused(url, "download_test_set", version="No such", status=404)[1] == "test_set"
    assert refused(url, "download_test_set", version=version, format="folder")[1] == "format"
    assert refused(url, "download_test_set", version=version, format="../x")[1] == "format"
    answer(url, "draft_test_set", version="Told")
    said, field = refused(url, "download_test_set", version="Told@draft")
    assert "is a draft: release it" in said and field == "version"


def test_by_plain_http_the_file_lies_where_the_answer_says(first: Served) -> None:
    url, studio = first
    version = released(studio, "Plain", 110)
    given = answer(url, "download_test_set", version=version, format="csv")
    data = httpx.get(given["url"]).content
    assert given["orig_name"] == "plain-v1-csv.zip" and len(zipfile.ZipFile(io.BytesIO(data)).namelist()) > 2
    (view,) = studio.test_sets.exports.of(version_of(studio.workspace, version))
    studio.test_sets.exports.cancel(view.id)
    assert httpx.get(given["url"]).content == data, "it stays for its hour when the page takes the export away"


class Held:
    """Export that waits until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        plain = exports.packed

        def packed(*given: Any) -> None:
            self.reached.set()
            assert self.go_on.wait(60)
            plain(*given)

        monkeypatch.setattr(exports, "packed", packed)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.go_on.set()


def state_of(studio: Studio, version: str) -> str:
    (view,) = studio.test_sets.exports.of(version_of(studio.workspace, version))
    return "stopping" if view.stopping and view.active else view.state


def test_a_call_that_is_cancelled_stops_the_export_that_nobody_else_wants(first: Served, held: Held) -> None:
    url, studio = first
    version = released(studio, "Cancelled", 120)
    one, other = (client_of(url) for _ in range(2))
    jobs = [one.submit(version=version, format="csv", api_name="/download_test_set")]
    assert held.reached.wait(60)
    jobs.append(other.submit(version=version, format="csv", api_name="/download_test_set"))
    until(lambda: list(studio.test_sets.exports._waited.values()) == [2])
    assert answer(url, "list_jobs") == {"jobs": []}, "others are answered meanwhile"
    jobs[0].cancel()
    until(lambda: list(studio.test_sets.exports._waited.values()) == [1])
    assert state_of(studio, version) == "running"
    jobs[1].cancel()
    until(lambda: state_of(studio, version) == "stopping")
    held.go_on.set()
    until(lambda: state_of(studio, version) == "cancelled")
    assert Path(one.predict(version=version, format="csv", api_name="/download_test_set")).is_file()
    assert not list((studio.workspace.folder / FOLDER).glob("*/*-v1-csv")), "no half of one is left"


def test_a_request_that_goes_away_stops_its_export_but_none_of_a_page(first: Served, held: Held) -> None:
    url, studio = first
    version = released(studio, "Gone", 130)
    body = json.dumps({"data": {"version": version, "format": "csv"}})
    connection = http.client.HTTPConnection(httpx.URL(url).netloc.decode())
    connection.request("POST", "/gradio_api/run/download_test_set", body, {"content-type": "application/json"})
    assert held.reached.wait(60)
    connection.close()
    until(lambda: state_of(studio, version) in ("stopping", "cancelled"))
    held.go_on.set()
    until(lambda: state_of(studio, version) == "cancelled")

    held.go_on.clear()
    kept = released(studio, "Kept", 140)
    number = studio.test_sets.exports.start(kept, "csv").id
    job = client_of(url).submit(version=kept, format="csv", api_name="/download_test_set")
    job.cancel()
    held.go_on.set()
    until(lambda: not studio.test_sets.exports.view(number).active)
    assert state_of(studio, kept) == "done"


def test_an_archive_comes_in_with_its_report(second: Served) -> None:
    url, studio = second
    before = len(studio.workspace.imports.all())
    done = brought(url, archive([300, 301]), labels="hawk, owl", classes="0 sky")
    assert done["title"] == "owls" and ended(studio) == "done"
    data = archive([302])
    refused_label = brought(url, data, labels=["hawk"])
    assert ended(studio) == "done"
    (row,) = answer(url, "show_import", number=refused_label["number"])["report"]
    assert "owl" in row["reason"] and row["kind"] == "refused"
    assert answer(url, "import_into_test_set", number=done["number"], test_set="Owls")["result"]["added"] == 2
    assert len(studio.workspace.imports.all()) == before + 2
    # The uploaded file is still there for a second call.
    assert brought(url, data, labels=["owl"])["number"] and ended(studio) == "done"


def test_what_is_no_archive_is_told_in_one_sentence(second: Served, tmp_path: Path) -> None:
    url, studio = second
    file = {"path": sent(url, b"no archive", "x.zip"), **FILE}
    said, field = refused(url, "import_images", file=file)
    assert "no folder, zip or tar" in said and field == "file"
    assert refused(url, "import_images", file=file, format="cvat")[1] == "format"
    assert refused(url, "import_images", file=file, classes="sky")[1] == "classes"
    (tmp_path / "lying about.zip").write_bytes(archive([310]))
    other = {"path": str(tmp_path / "lying about.zip"), **FILE}
    assert refused(url, "import_images", file=other) == ("There is no such upload: send the file first.", "file")
    assert ended(studio) == "failed"


def test_one_import_at_a_time(second: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    (url, studio), held = second, hold_imports(monkeypatch)
    begun = brought(url, archive([320, 321]), title="Slow")
    assert begun["state"] == "running" and held.reached.wait(300)
    going_on = answer(url, "show_import", number=begun["number"])
    assert (going_on["state"], going_on["upload"]["state"]) == ("unfinished", "running")
    file = {"path": sent(url, archive([322]), "other.zip"), **FILE}
    assert "Another import is running" in refused(url, "import_images", file=file)[0]
    held.go_on.set()
    assert ended(studio) == "done"


def test_a_token_that_only_looks_downloads_and_imports_nothing(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels(), "a long password") as (url, studio):
        version = released(studio, "Looked at", 150)
        reading, full = (shown(made_token(studio, name, name == "reading").text) for name in ("reading", "full"))
        given = answer(url, "download_test_set", version=version, headers=reading)
        assert httpx.get(given["url"], headers=reading).status_code == 200
        assert httpx.get(given["url"]).status_code == 401
        file = {"path": sent(url, archive([330]), "owls.zip", headers=full), **FILE}
        reply = call(url, "import_images", file=file, headers=reading)
        assert reply.status_code == 403 and "only reads" in reply.json()["error"] and studio.imports.state() is None
        assert answer(url, "import_images", file=file, test_set="Owls", headers=full)["number"] == 1
        assert ended(studio) == "done"
        lines = [entry.detail for entry in studio.workspace.studies.log() if entry.event == "script"]
        assert lines == ["full: import-images test_set Owls"]


# Agents


def test_an_agent_downloads_and_imports(first: Served, second: Served) -> None:
    version = released(first[1], "By an agent", 160)
    facts = told_by_tool(first[0], "download_test_set", version=version, format="webdataset")
    assert facts["name"] == "by-an-agent-v1-webdataset.zip" and facts["kind"] == "application/zip"
    data = httpx.get(facts["address"]).content
    assert len(data) == facts["bytes"]
    path = sent(second[0], data, facts["name"])
    begun = told_by_tool(second[0], "import_images", file=path, test_set="")
    assert begun["number"] and ended(second[1]) == "done"
    assert told_by_tool(second[0], "show_import", number=begun["number"])["images"] == 2
    assert refused_tool(second[0], "import_images", file="data:application/zip;base64,bm8=")[1] == "file"


def test_an_agent_asks_again_for_an_export_that_takes_long(
    first: Served, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, studio = first
    version = released(studio, "For an agent", 170)
    monkeypatch.setattr("ui.scripts.mcp.WATCH_SECONDS", 0.3)
    assert told_by_tool(url, "download_test_set", version=version, format="csv")["state"] == "running"
    assert state_of(studio, version) == "running", "it goes on for the next call"
    monkeypatch.setattr("ui.scripts.mcp.WATCH_SECONDS", 60)
    held.go_on.set()
    assert told_by_tool(url, "download_test_set", version=version, format="csv")["address"]
