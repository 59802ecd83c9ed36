"""Time of a poll (a request for news) when nothing has changed, for the Explore page and the lead's page of a study.

A separate server has one run and a running study with many votes. All requests use one HTTP connection, like those of a
browser. `python -m benchmarks.unchanged` runs this alone.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.figures import Figure, reported
from benchmarks.study import picture
from core.stored_studies import ImportedVote
from core.studies import NewItem
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace
from tests.support.server_process import ServerProcess

TIMES = 100
BOUND = 5.0
"""Maximum milliseconds of a poll."""
ITEMS, PICTURES = 400, 20
SAMPLE = "street-two-cars"
WHEN = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
SETTLED = 300
"""Maximum seconds until `TIMES` polls have found no change."""


def measure() -> list[Figure]:
    """Measure polls of both pages. Raises AssertionError if pages change too often to find `TIMES` unchanged polls."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        study_id = prepared(folder / "workspace")
        server = ServerProcess(folder / "workspace", folder / "log").start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            return [_explore(connection), _live(connection, study_id)]
        finally:
            connection.close()
            server.stop()


def prepared(folder: Path) -> str:
    """Make a running study that has all its votes, and return its id."""
    with Workspace(folder) as workspace:
        studies = workspace.studies
        study_id = studies.create("Unchanged", TEMPLATES["classification"].rules())
        shas = [workspace.images.add(picture(number)) for number in range(PICTURES)]
        studies.add_items(study_id, [NewItem(shas[number % PICTURES], label="bird") for number in range(ITEMS)])
        studies.start(study_id)
        votes = [
            ImportedVote(item.id, f"worker-{number}", {"valid": "yes"}, "", WHEN, WHEN, 4.0)
            for item in studies.items(study_id)
            for number in range(5)
        ]
        studies.import_votes(study_id, votes)
        return study_id


def _explore(connection: http.client.HTTPConnection) -> Figure:
    """Measure polls like those of the Explore page's script."""
    config = _asked(connection, "GET", "/config")
    component = next(part["id"] for part in config["components"] if part["props"].get("server_fns"))
    begun = {"name": "run-from-sample", "fields": {"sample": SAMPLE}}

    def ask(batch: dict[str, Any]) -> Any:
        sent = {"component_id": component, "fn_name": "answer", "session_hash": "benchmark", "data": batch}
        return _asked(connection, "POST", "/gradio_api/component_server/", sent)

    look = {"do": [{"name": "poll"}], "run": ask({"do": [begun]})["run"]}
    return _timed("the explore page asks what is new", lambda revision: ask({**look, "revision": revision}), connection)


def _live(connection: http.client.HTTPConnection, study_id: str) -> Figure:
    """Measure the requests by which a study's results page asks whether its figures have changed."""

    def ask(revision: str) -> Any:
        return _asked(connection, "GET", f"/study/api/{study_id}/live?{urlencode({'revision': revision})}")

    return _timed(f"the results of a study of {5 * ITEMS:,} votes", ask, connection)


def _timed(what: str, ask: Callable[[str], Any], connection: http.client.HTTPConnection) -> Figure:
    """Measure polls that find no news. After each poll, measure a request to `/healthz`: these times are the floor."""
    times: list[float] = []
    floor: list[float] = []
    revision, end = "", time.monotonic() + SETTLED
    while len(times) < TIMES:
        assert time.monotonic() < end, f"{what}: there is always something new"
        began = time.perf_counter()
        reply = ask(revision)
        taken = 1000 * (time.perf_counter() - began)
        if reply != {"same": True}:
            revision = reply["revision"]
            continue
        times.append(taken)
        began = time.perf_counter()
        _asked(connection, "GET", "/healthz")
        floor.append(1000 * (time.perf_counter() - began))
    return Figure(f"{what}, and nothing is", tuple(times), BOUND, floor=tuple(floor))


def _asked(connection: http.client.HTTPConnection, method: str, path: str, data: Any = None) -> Any:
    headers = {"content-type": "application/json", "x-studio": "1"} if data is not None else {}
    connection.request(method, path, json.dumps(data) if data is not None else None, headers)
    reply = connection.getresponse()
    body = reply.read()
    assert reply.status == 200, (path, reply.status, body[:400])
    return json.loads(body)


if __name__ == "__main__":
    raise SystemExit(reported(measure()))
