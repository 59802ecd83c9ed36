"""Plain HTTP: values by name or in order, and a sentence and a status for every mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from services.studio import Studio
from tests.support.called import FILE, answer, call, refused, sent, told
from tests.support.called import picture as a_picture
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here

pytestmark = pytest.mark.slow
DEEP = b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("plain") / "workspace", ScriptedModels()) as there:
        yield there


@pytest.fixture(scope="module")
def url(served: tuple[str, Studio]) -> str:
    return served[0]


def streamed(url: str, name: str, event: str) -> list[tuple[str, Any]]:
    """Return the event stream of a call: the name and the data of each event."""
    reply = httpx.get(f"{url}gradio_api/call/{name}/{event}", timeout=60).text
    pieces = [piece.partition("\n") for piece in reply.strip().split("\n\n")]
    return [(first.removeprefix("event: "), json.loads(rest.removeprefix("data: "))) for first, _, rest in pieces]


def begun(url: str, way: str, body: Any) -> str:
    reply = httpx.post(f"{url}gradio_api/{way}", json=body)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["event_id"])


def test_values_come_by_name_or_in_order_and_may_be_left_out(url: str) -> None:
    run = answer(url, "run_from_sample", sample="balloon")["run"]
    assert answer(url, "rename", title="by name", run=run)["run"] == run
    assert answer(url, "list_runs", "by name")["runs"][0]["run"] == run
    assert answer(url, "list_runs", find="by name", limit=1)["runs"][0]["name"] == "by name"
    assert httpx.post(f"{url}gradio_api/run/list_jobs").json()["data"] == [{"jobs": []}]
    for way, body in (("call/v2", {"run": run}), ("call", {"data": [run]}), ("call", {"data": {"run": run}})):
        event = begun(url, f"{way}/show_run", body)
        (said,) = streamed(url, "show_run", event)
        assert (said[0], said[1][0]["name"]) == ("complete", "by name"), way


def test_a_mistake_in_a_stream_has_its_sentence_and_its_field(url: str) -> None:
    (said,) = streamed(url, "list_runs", begun(url, "call/v2/list_runs", {"limit": 500}))
    assert said[0] == "error" and said[1]["title"] == "limit" and said[1]["error"].startswith("“limit” is not valid")
    joined = httpx.post(f"{url}gradio_api/queue/join", json={"data": [1, 2, 3], "fn_index": 10**6, "session_hash": "x"})
    assert told(joined, 404)[0].startswith("There is no endpoint “1000000”")


@pytest.mark.parametrize(
    ("name", "body", "status", "sentence", "field"),
    [
        ("show_run", {"data": []}, 400, "“run” is missing.", "run"),
        ("show_run", {}, 400, "“run” is missing.", "run"),
        ("show_run", b"", 400, "“run” is missing.", "run"),
        ("show_run", {"data": {"run": None}}, 400, "“run” is missing.", "run"),
        ("show_run", {"data": ["x", "y"]}, 400, "2 values were sent, and “show_run” takes run.", "data"),
        ("list_jobs", {"data": ["x"]}, 400, "1 values were sent, and “list_jobs” takes no values.", "data"),
        ("show_run", {"data": {"runs": "x"}}, 400, "There is no field “runs”: “show_run” takes run.", "runs"),
        ("show_run", {"run": "x"}, 400, "Send the values as “data”", "data"),
        ("show_run", {"data": "x"}, 400, "“data” must be a list of values", "data"),
        ("show_run", ["x"], 400, "The body is not a JSON object.", ""),
        ("show_run", b"{", 400, "The body is not valid JSON.", ""),
        ("show_run", b"\xff", 400, "The body is not valid JSON.", ""),
        ("show_run", DEEP, 400, "The body is not valid JSON.", ""),
        ("show_run", b"x" * 5_000_000, 400, "This is more than a page of the studio sends.", ""),
        ("show_run", {"data": [7]}, 400, "“run” is not valid", "run"),
        ("show_run", {"data": ["\ud800"]}, 400, "“run” is not valid", "run"),
        ("list_runs", {"data": {"limit": float("nan")}}, 400, "“limit” is not valid", "limit"),
        ("show_job", {"data": [10**30]}, 400, "“job” is not valid", "job"),
        ("no_such", {"data": []}, 404, "There is no endpoint “no_such”", ""),
        ("make_token", {"data": ["x", True, 1]}, 404, "There is no endpoint “make_token”", ""),
        ("predict", {"data": []}, 404, "There is no endpoint “predict”", ""),
        ("predict", {"data": [], "fn_index": True}, 404, "There is no endpoint “True”", ""),
    ],
)
def test_a_mistake_is_one_sentence(url: str, name: str, body: Any, status: int, sentence: str, field: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(f"{url}gradio_api/run/{name}", content=data, headers={"content-type": "application/json"})
    said, at = told(reply, status)
    assert said.startswith(sentence) and at == field, (said, at)


def test_what_is_no_call_is_told_in_one_sentence(url: str) -> None:
    assert "by POST" in told(httpx.get(f"{url}gradio_api/run/show_run"), 405)[0]
    assert "Only JSON is accepted" in told(httpx.post(f"{url}gradio_api/run/show_run", content=b"x"), 400)[0]
    assert told(httpx.get(f"{url}gradio_api/nothing"), 404)
    assert told(httpx.get(f"{url}gradio_api/queue/data"), 422)
    for way in ("call", "call/v2"):
        assert "no call “x”" in told(httpx.get(f"{url}gradio_api/{way}/show_run/x"), 404)[0]
    assert told(httpx.post(f"{url}gradio_api/upload", content=b"x"), 400)
    assert told(httpx.post(f"{url}gradio_api/component_server", json={"data": 1}), 400)
    lost = {"component_id": 10**6, "fn_name": "answer", "session_hash": "x", "data": {}}
    assert "studio itself" in told(httpx.post(f"{url}gradio_api/component_server", json=lost), 500)[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "studio.example.org"},
        {"host": "127.0.0.1.example.org"},
        {"host": "192.0.2.1"},
        {"x-forwarded-for": "192.0.2.1"},
        {"forwarded": "for=192.0.2.1"},
        {"via": "1.1 proxy"},
    ],
    ids=str,
)
def test_without_a_password_it_is_for_this_machine(url: str, headers: dict[str, str]) -> None:
    """Requests must use a name of this machine, and not come through a proxy."""
    for way in ("run/list_jobs", "call/list_jobs", "call/v2/list_jobs", "queue/join", "upload", "component_server"):
        reply = httpx.post(f"{url}gradio_api/{way}", json={"data": [], "session_hash": "x"}, headers=headers)
        assert reply.status_code == 403, way


def test_a_failure_of_the_studio_is_not_blamed_on_the_caller(
    served: tuple[str, Studio], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(served[1].workspace.runs, "search", fail)
    said, _ = refused(served[0], "list_runs", status=500)
    assert said == "The studio itself failed (RuntimeError): the terminal says more."


def test_a_file_goes_there_and_comes_back(url: str) -> None:
    run = answer(url, "upload_picture", file={"path": sent(url, a_picture(), "my bird.png"), **FILE})["run"]
    assert answer(url, "show_run", run=run)["name"] == "my bird"
    assert refused(url, "upload_picture", file="x") == ("“file” is not valid: it has to be an object.", "file")
    assert call(url, "upload_picture").json()["error"] == "“file” is missing."
