"""Fetching weights with the hub's own library from a server with the hub's endpoints, and faults of networks."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import Cancelled, CannotLoad
from core.model_sections import Weights
from pipeline.models import hub as hub_module
from pipeline.models.hub import damaged, download, held, listing, part_of, require_room
from pipeline.models.weights import locate
from tests.support.hub_server import Fault, Hub, Repository, serving_hub

pytestmark = pytest.mark.slow  # downloads and hashes take some seconds together

MEGABYTES = random.Random(0).randbytes(3_000_000)
FILES = {"config.json": b'{"width": 4}', "model.safetensors": MEGABYTES, "model.bin": b"\1" * 900, "a/b.txt": b"two"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Hub with one model. This process uses the hub, with an empty cache."""
    with serving_hub(Hub({"who/model": Repository(dict(FILES))})) as served:
        from huggingface_hub import constants

        # The library reads HF_ENDPOINT, HF_HUB_OFFLINE and HF_HOME once, at import. Replace the values that it keeps.
        at = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in (("ENDPOINT", served.url), ("HUGGINGFACE_CO_URL_TEMPLATE", at), ("HF_HUB_OFFLINE", False)):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100_000)
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)  # of tenacity too
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield served


def wanted(**more: Any) -> Weights:
    return Weights(**{"hub": "who/model", "files": ("*.json", "*.safetensors", "a/*"), "licence": "MIT"} | more)


def fetch(weights: Weights, told: list[int] | None = None) -> Path:
    came = [] if told is None else told
    return download("captioner", listing("captioner", weights), came.append)


def test_only_the_named_files_come_and_are_then_here_without_a_network(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = wanted()
    assert held(weights) == hub_module.LocalWeights(None)
    found = listing("captioner", weights)
    assert found.bytes == found.bytes_missing == 3_000_000 + 12 + 3 and hub.sent("model.safetensors") == []
    told: list[int] = []
    folder = download("captioner", found, told.append)
    assert sum(told) == found.bytes and len(told) > 3, "told while it came, not at its end"
    assert (folder / "model.safetensors").read_bytes() == MEGABYTES and (folder / "a/b.txt").read_bytes() == b"two"
    assert not (folder / "model.bin").exists()
    there = held(weights)
    assert (there.folder, there.bytes, there.complete) == (folder, found.bytes, True)
    assert listing("captioner", weights).missing == ()

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    number = len(hub.asked)
    assert locate("captioner", weights) == folder and len(hub.asked) == number, "what is complete is taken as it is"
    assert held(wanted(files=())).complete is False, "more is named now than was fetched"
    pinned = wanted(revision=folder.name)
    assert pinned.pinned and held(pinned).complete


def test_a_broken_connection_goes_on_where_it_broke(hub: Hub) -> None:
    hub.breaks["model.safetensors"] = [1_200_000, 700_000]
    folder = fetch(wanted())
    assert (folder / "model.safetensors").read_bytes() == MEGABYTES
    assert hub.sent("model.safetensors") == ["", "bytes=1200000-", "bytes=1900000-"]


def test_what_a_person_stopped_goes_on_another_day(hub: Hub) -> None:
    stop, came = threading.Event(), list[int]()

    def told(count: int) -> None:
        came.append(count)
        if sum(came) > 1_000_000:
            stop.set()

    with pytest.raises(Cancelled):
        download("captioner", listing("captioner", wanted()), told, stop)
    there, found = held(wanted()), listing("captioner", wanted())
    assert not there.complete and 1_000_000 <= there.bytes < 1_500_000
    assert found.bytes_missing == found.bytes - there.bytes
    fetch(wanted())
    assert hub.sent("model.safetensors")[0] == "" and len(hub.sent("model.safetensors")) == 2
    assert int(hub.sent("model.safetensors")[1][6:-1]) >= 1_000_000
    assert held(wanted()).complete and not list((hub_module.cache_of(wanted()) / "blobs").glob("*.part"))


def test_wrong_bytes_never_count(hub: Hub) -> None:
    hub.wrong.add("model.safetensors")
    with pytest.raises(CannotLoad, match=r"model.safetensors of the captioner who/model was discarded.*again"):
        fetch(wanted())
    assert not held(wanted()).complete and listing("captioner", wanted()).bytes_missing >= 3_000_000
    hub.wrong.clear()
    fetch(wanted())

    # An earlier partial download is not the beginning of the file. The hash shows this, and the whole file comes again.
    hub.repositories["who/model"].files["more.safetensors"] = MEGABYTES[:1000]
    found = listing("captioner", wanted())
    (one,) = found.missing
    part_of(found.places(one)[0]).write_bytes(b"?" * 400)
    folder = fetch(wanted())
    assert (folder / "more.safetensors").read_bytes() == MEGABYTES[:1000]
    assert hub.sent("more.safetensors") == ["bytes=400-", ""]


def test_what_was_damaged_on_the_disk_is_found_by_reading_it(hub: Hub) -> None:
    folder = fetch(wanted())
    found = listing("captioner", wanted())
    assert damaged("captioner", found).missing == ()
    (folder / "model.safetensors").resolve().write_bytes(b"0" * 3_000_000)
    again = damaged("captioner", found)
    assert [file.path for file in again.missing] == ["model.safetensors"]
    download("captioner", again, lambda count: None)
    assert (folder / "model.safetensors").read_bytes() == MEGABYTES


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "accept it at http.*/who/model, then log in here with `hf auth login`, or set HF_TOKEN"),
        ("hf_other", "account of your token has no access to.*accept its licence at http.*/who/model"),
    ],
)
def test_a_licence_that_nobody_accepted_is_told_with_its_page_before_anything_comes(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str, said: str
) -> None:
    hub.repositories["who/model"].token = "hf_right"
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(CannotLoad, match=said):
        listing("captioner", wanted())
    assert not any(hub.sent(name) for name in FILES)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert held(wanted(path="", revision=fetch(wanted()).name)).complete


ABOUT = "The weights of the captioner, who/model (size unknown; licence: MIT), could not be fetched"
NO_NETWORK = (
    f"{ABOUT} from {{host}} (…). Connect to the network and try again, or start a profile that needs none: laptop for "
    "photographs, demo for drawn scenes."
)
BUSY = (
    f"{ABOUT}: {{host}} takes no requests now (it answered %s). Wait a while and try again, or start a profile that "
    "needs no download: laptop for photographs, demo for drawn scenes."
)
DENIED = (
    "{host} denies access to the captioner who/model (it answered %s): log in again with `hf auth login`, or correct "
    "HF_TOKEN."
)
REFUSED = f"{ABOUT}: {{host}} refuses the request (it answered %s). See {{page}} and correct the profile."
STRANGE = (
    f"{ABOUT}: the answer of {{host}} is not that of a hub. Log in to your network if it asks for that, correct "
    "HF_ENDPOINT if it is set, and try again."
)
NO_MODEL = (
    "The captioner who/model is not on {host}, or not open to you: see {page}, then correct it in the profile, or log "
    "in with `hf auth login`."
)
LICENCE = (
    "The captioner who/model is only for users who accepted its licence: accept it at {page}, then log in here with "
    "`hf auth login`, or set HF_TOKEN."
)
NOT_GRANTED = (
    "The account of your token has no access to the captioner who/model yet: accept its licence at {page}, and try "
    "again once access is granted."
)
OLD_TOKEN = {"X-Error-Message": "Invalid credentials in Authorization header"}
CODE = "X-Error-Code"
ANSWERS: dict[str, tuple[list[Fault], str]] = {
    "429": ([(429, {}, "")] * 9, BUSY % 429),
    "500": ([(500, {}, "")] * 9, BUSY % 500),
    "502": ([(502, {}, "<html>Bad gateway")] * 9, BUSY % 502),
    "503": ([(503, {}, '{"error": "busy"}')] * 9, BUSY % 503),
    "504": ([(504, {}, "")] * 9, BUSY % 504),
    "503 once": ([(503, {}, "")], ""),
    "429 twice": ([(429, {"Retry-After": "1"}, "")] * 2, ""),
    "401 for an old token": (
        [(401, OLD_TOKEN, "")],
        DENIED % 401,
    ),
    "403 for a token without this right": ([(403, {}, '{"error": "Forbidden"}')], DENIED % 403),
    "401 for no such model": ([(401, {CODE: "RepoNotFound"}, "")], NO_MODEL),
    "401 for a licence": ([(401, {CODE: "GatedRepo"}, "")], LICENCE),
    "403 for a licence": ([(403, {CODE: "GatedRepo"}, "")], NOT_GRANTED),
    "404 for a revision": (
        [(404, {CODE: "RevisionNotFound"}, "")],
        "The captioner who/model has no revision main: see {page} and correct the profile.",
    ),
    "404 without a code": ([(404, {}, "<html>")], REFUSED % 404),
    "400": ([(400, {}, "{}")], REFUSED % 400),
    "a redirect without an end": ([(302, {"Location": "/api/models/who/model"}, "")] * 40, NO_NETWORK),
    "a web page": ([(200, {"Content-Type": "text/html"}, "<html>Log in")], STRANGE),
    "JSON cut off": ([(200, {}, '{"id": "who/mo')], STRANGE),
    "other JSON": ([(200, {}, '["hello"]')], STRANGE),
    "an empty object": ([(200, {}, "{}")], STRANGE),
    "closed without an answer": ([None] * 9, NO_NETWORK),
    "closed in the middle": ([(200, {"Content-Length": "900"}, '{"id"')] * 9, NO_NETWORK),
    "broken gzip": ([(200, {"Content-Encoding": "gzip"}, "{}")] * 9, NO_NETWORK),
}


def told(sentence: str, hub: Hub) -> re.Pattern[str]:
    words = sentence.replace("{host}", hub.url.removeprefix("http://")).replace("{page}", f"{hub.url}/who/model")
    return re.compile(re.escape(words).replace("…", ".+"))


@pytest.mark.parametrize("name", ANSWERS)
def test_a_fault_of_the_hub_is_one_true_sentence_and_passes_if_it_can(hub: Hub, name: str) -> None:
    faults, sentence = ANSWERS[name]
    hub.faults["/api/"] = list(faults)
    if sentence:
        with pytest.raises(CannotLoad) as caught:
            listing("captioner", wanted())
        assert told(sentence, hub).fullmatch(str(caught.value)), str(caught.value)
        if name != "a redirect without an end":
            assert len(hub.asked) == (4 if "takes no requests now" in sentence else 1)
        hub.faults.clear()
    assert listing("captioner", wanted()).bytes == 3_000_015 and not hub.sent("model.safetensors")


FILE_FAULTS: dict[str, tuple[list[Fault], str]] = {
    "429 once": ([(429, {"Retry-After": "1"}, "")], ""),
    "503 once": ([(503, {}, "")], ""),
    "503": ([(503, {}, "")] * 9, BUSY % 503),
    "403 of the store": ([(403, {}, "<Error>Expired</Error>")] * 9, DENIED % 403),
    "404 of a file": ([(404, {CODE: "EntryNotFound"}, "")], REFUSED % 404),
    "416": ([(416, {}, "")], REFUSED % 416),
    "closed once": ([None], ""),
    "another file": ([(200, {}, "<html>Log in")], NO_NETWORK),
}


@pytest.mark.parametrize("name", FILE_FAULTS)
def test_a_fault_with_a_file_is_told_and_loses_no_other_file(hub: Hub, name: str) -> None:
    faults, sentence = FILE_FAULTS[name]
    hub.faults["/model.safetensors"] = list(faults)
    if sentence:
        with pytest.raises(CannotLoad) as caught:
            fetch(wanted())
        assert told(sentence, hub).fullmatch(str(caught.value)), str(caught.value)
        assert held(wanted()).bytes >= 12, "the file before it is here"
        hub.faults.clear()
    assert (fetch(wanted()) / "model.safetensors").read_bytes() == MEGABYTES
    assert len(hub.sent("config.json")) == 1


def test_what_the_profile_names_and_the_hub_does_not_have_is_told(hub: Hub) -> None:
    for weights, said in (
        (wanted(hub="who/else"), "captioner who/else is not on 127.0.0.1.*, or not open to you: see http"),
        (wanted(revision="v9"), "has no revision v9: see http"),
        (wanted(files=("*.gguf",)), r"has none of the files that the profile names \(\*\.gguf\)"),
    ):
        with pytest.raises(CannotLoad, match=said) as caught:
            listing("captioner", weights)
        assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_not_taken_for_the_network(hub: Hub, tmp_path: Path) -> None:
    found = listing("captioner", wanted())
    cache = hub_module.cache_of(found.weights)
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where a folder should be")
    with pytest.raises(CannotLoad, match=r"could not be saved in .*cache\. Not a directory: have a look at that disk"):
        download("captioner", found, lambda count: None)


def test_without_a_network_that_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CannotLoad, match=r"could not be fetched.*ConnectError.*Connect to the network"):
        locate("captioner", wanted())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CannotLoad, match="HF_HUB_OFFLINE is set, which forbids the network"):
        locate("captioner", wanted())


def test_a_connection_that_stays_broken_is_told_and_what_came_is_kept(hub: Hub) -> None:
    hub.breaks["model.safetensors"] = [500_000] + [0] * 20
    with pytest.raises(CannotLoad, match=r"could not be fetched from 127.0.0.1.*try again"):
        fetch(wanted())
    assert held(wanted()).bytes >= 500_000
    hub.breaks.clear()
    assert fetch(wanted()) and hub.sent("model.safetensors")[-1] == "bytes=500000-"


def test_a_disk_with_too_little_room_is_told_before_the_download(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    require_room(3_000_000, 600_000_000)
    require_room(0, 0)  # nothing to fetch needs no room
    with pytest.raises(CannotLoad, match=r"too little room: 31 GB must be fetched, and 24 GB are free.*HF_HOME"):
        require_room(31_000_000_000, 24_000_000_000)
    monkeypatch.setattr(hub_module, "free_on_disk", lambda folder: 400_000_000)
    with pytest.raises(CannotLoad, match="too little room: 3 MB must be fetched"):
        locate("captioner", wanted())
    assert not hub.sent("model.safetensors")
