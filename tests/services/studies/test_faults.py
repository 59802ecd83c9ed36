"""The server is killed again and again while annotators work: each acknowledged vote is stored once, and work goes on.

Only `make soak` runs this. test_study_kill.py and tests/browser/test_annotate.py have shorter tests with kills.
"""

from __future__ import annotations

import random
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from PIL import Image

from core.studies import ControlPolicy, Eligibility, NewItem
from services.studies.templates import TEMPLATES
from storage.workspace import DATABASE, Workspace
from study.behaviour import Behaviour
from study.simulate import HEADERS, Acknowledged, Simulation, WorkerRun, run
from study.truth import AnswerKey
from tests.support.server_process import ServerProcess
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

VOTES = 3
PATIENCE = 300
"""Maximum number of seconds for any step, far above the usual time, since the machine may be busy."""
RULES = replace(
    TEMPLATES["classification"].rules(),
    votes=VOTES,
    consensus=2,
    eligibility=Eligibility(0.0, 0),
    controls=ControlPolicy(0.1, 100, 0.0),
    lease_minutes=0.1,
)


def prepared(folder: Path, items: int) -> tuple[str, str]:
    """Create a running study with an open invitation. Return its id and the invitation's token."""
    with workspace_in(folder) as workspace:
        studies = workspace.studies
        study_id = studies.create("Under fire", RULES)
        shas = [workspace.images.add(Image.effect_noise((64, 64), 20 + n).convert("RGB")) for n in range(40)]
        new = [NewItem(shas[n % 40], label=f"thing {n}") for n in range(items)]
        controls = [NewItem(sha, kind="control", label="bird", expected={"valid": "yes"}) for sha in shas]
        studies.add_items(study_id, [*new, *controls])
        studies.start(study_id)
        return study_id, studies.set_link(study_id, True)


def leaves_with_an_item(url: str, link: str, study_id: str) -> str:
    """Take an item as a new worker, and never come back. Return the worker's name."""
    with httpx.Client(base_url=f"{url}annotate/api/", headers=HEADERS, timeout=30) as client:
        worker = str(client.post("join", json={"link": link}).json()["worker"])
        client.post("consent", json={"study": study_id})
        given = client.post("next", json={"study": study_id}).json()
        assert given["assignment"]["id"]
    return worker


def somebody_asks(port: int) -> None:
    """Listen on the port of a stopped server until a request arrives, and drop the request."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(PATIENCE)
        connection, _ = listening.accept()
        connection.close()


def under_fire(folder: Path, kills: int, items: int, crew: int, seconds: float) -> None:
    """Kill the server `kills` times while `crew` annotators work. Then check everything."""
    study_id, link = prepared(folder, items)
    server = ServerProcess(folder, folder.parent / "log").start()
    absent = leaves_with_an_item(server.url, link, study_id)
    acknowledged: list[Acknowledged] = []
    plan = Simulation(
        url=server.url,
        crew=[Behaviour(seconds=seconds)] * crew,
        link=link,
        truth=AnswerKey(valid=0.8),
        patience=PATIENCE,
        on_vote=acknowledged.append,
    )
    ended: list[WorkerRun] = []
    work = threading.Thread(target=lambda: ended.extend(run(plan)), daemon=True)
    work.start()
    drawn = random.Random(kills)
    share = items * VOTES // (2 * kills)  # at most half of all votes come before the last kill
    try:
        for _ in range(kills):
            wanted = len(acknowledged) + drawn.randint(1, share)  # they resumed after the last kill
            end = time.monotonic() + PATIENCE
            while len(acknowledged) < wanted:
                assert work.is_alive() and time.monotonic() < end, f"nobody votes: {server.said()[-2000:]}"
                time.sleep(drawn.uniform(0.0, 0.02))
            server.stop(signal.SIGKILL)
            somebody_asks(server.port)
            server.start()
        work.join(2 * PATIENCE)
        assert not work.is_alive()
    finally:
        server.stop()
    assert {each.end for each in ended} == {"done"}, [(each.worker, each.end, each.text) for each in ended]
    assert sum(each.retries for each in ended) >= kills, "what was dropped is sent again"
    assert "Traceback" not in server.said(), server.said()[-3000:]
    looked_at(folder, study_id, acknowledged, absent, items)


def looked_at(folder: Path, study_id: str, acknowledged: list[Acknowledged], absent: str, items: int) -> None:
    """Check that each acknowledged vote is stored once and unchanged, and that each item has exactly its votes."""
    with Workspace(folder) as workspace:
        studies = workspace.studies
        data = studies.data(study_id)
        for vote in acknowledged:
            kept = studies.assignments.get(vote.assignment)
            assert kept is not None
            assert (kept.state, kept.worker, dict(kept.answers)) == ("submitted", vote.worker, dict(vote.answers))
    assert len(acknowledged) == len({vote.assignment for vote in acknowledged}) == len(data.votes)
    assert len({(vote.item, vote.worker) for vote in data.votes}) == len(data.votes)
    per_item = Counter(vote.item for vote in data.votes if vote.kind == "item")
    assert set(per_item.values()) == {VOTES} and len(per_item) == items
    assert absent not in {vote.worker for vote in data.votes}
    with sqlite3.connect(folder / DATABASE) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        (given,) = db.execute("SELECT count(*) FROM study_votes").fetchone()
    assert given == len(acknowledged), "a vote that was sent twice was written twice"


@pytest.mark.soak
def test_fifty_kills(tmp_path: Path) -> None:
    under_fire(tmp_path / "workspace", kills=50, items=700, crew=12, seconds=0.5)
