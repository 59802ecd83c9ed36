"""A process killed during votes loses no acknowledged vote, doubles none, and keeps no item leased."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from storage.workspace import Workspace
from tests.support.study_desk import YES, assert_counted, crew, started, vote_all
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOON = 0.05 / 60
"""A lease of 50 ms, in minutes."""
Acknowledged = dict[str, str]
"""Latest acknowledged answer by the assignment's public token. "" after an undo."""


def start(folder: Path, study_id: str, workers: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.voting_process", str(folder), study_id, *workers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def read_acknowledged(text: str, acknowledged: Acknowledged) -> int:
    """Add the acknowledgements of complete lines to `acknowledged`. Return the number of votes among them."""
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    for what, public, answer in lines:
        acknowledged[public] = answer if what == "saved" else ""
    return sum(what == "saved" for what, _, _ in lines)


def assert_kept(folder: Path, study_id: str, acknowledged: Acknowledged) -> None:
    """Check that each acknowledged vote is stored unchanged, and that no item has a vote too many."""
    query = "SELECT event, answers FROM study_votes WHERE assignment = ? ORDER BY id"
    with Workspace(folder) as workspace:
        studies = workspace.studies
        for public, answer in acknowledged.items():
            kept = studies.assignments.get(public)
            assert kept is not None
            if answer:
                # A vote that was changed after the last complete line is still in the log of votes.
                events = workspace._database.read(
                    lambda db, kept=kept: db.execute(query, [kept.id]).fetchall()  # type: ignore[misc]
                )
                assert ("submitted", f'{{"valid": "{answer}"}}') in events
                assert kept.state == "submitted" or events[-1][0] == "withdrawn"
        data = studies.data(study_id)  # in one snapshot: another process may be voting
        counts = Counter(given.item for given in data.votes)
        assert max(counts.values()) <= data.study.rules.votes
        assert sum(counts.values()) == data.study.votes
    assert_counted(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_killed_again_and_again(tmp_path: Path, kills: int) -> None:
    """Kills come at random moments, while a second process votes and sees no error."""
    with workspace_in(tmp_path) as workspace:
        study_id = started(workspace, items=1000 * kills, votes=3, lease_minutes=SOON)
        workers = crew(workspace.studies, study_id, 6)
    survivor = start(tmp_path, study_id, workers[4:])
    acknowledged: Acknowledged = {}
    votes, fate = 0, random.Random(1)
    try:
        for _ in range(kills):
            process = start(tmp_path, study_id, workers[:4])
            assert process.stdout is not None
            text = "".join(process.stdout.readline() for _ in range(fate.randrange(1, 40)))
            time.sleep(fate.random() * 0.05)
            process.kill()
            text += process.stdout.read()
            assert process.wait() == -signal.SIGKILL
            votes += read_acknowledged(text, acknowledged)
            assert_kept(tmp_path, study_id, acknowledged)
        assert survivor.poll() is None
    finally:
        survivor.kill()
        assert survivor.stdout is not None
        rest = survivor.stdout.read()
        survivor.wait()
    votes += read_acknowledged(rest, acknowledged)
    assert votes > 50
    assert_kept(tmp_path, study_id, acknowledged)


def test_what_a_killed_process_had_given_out_comes_back(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        study_id = started(workspace, items=30, votes=2, lease_minutes=SOON)
        workers = crew(workspace.studies, study_id, 3)
    process = start(tmp_path, study_id, workers[:1])
    assert process.stdout is not None
    assert process.stdout.readline()
    process.kill()
    process.communicate()
    time.sleep(0.1)
    with workspace_in(tmp_path) as workspace:
        studies = workspace.studies
        for worker in workers[1:]:
            vote_all(studies, study_id, worker)
        assert studies.get(study_id).votes == studies.get(study_id).needed
        # A page that was open when the server died may still send its answer once or twice.
        open_one = [given for given in studies.data(study_id).votes if given.worker == workers[0]]
        assert len(open_one) < 30
    assert_counted(tmp_path)


def test_a_retry_after_the_kill_is_one_vote(tmp_path: Path) -> None:
    """The server stored the vote and died before its reply, so the page sends the vote again with the same key."""
    with workspace_in(tmp_path) as workspace:
        study_id = started(workspace, items=1, votes=2)
        (worker,) = crew(workspace.studies, study_id, 1)
        given = workspace.studies.assignments.claim(study_id, worker, "item")
    assert given is not None
    code = (
        "import os, sys; from storage.workspace import Workspace\n"
        "studies = Workspace(sys.argv[1]).open().studies\n"
        "studies.assignments.submit(sys.argv[2], sys.argv[3], {'valid': 'yes'}, '', 1.0, 'key')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), given.public, worker]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    with workspace_in(tmp_path) as workspace:
        assert workspace.studies.assignments.submit(given.public, worker, YES, "", 1.0, "key") == "again"
        assert len(workspace.studies.data(study_id).votes) == 1
    assert_counted(tmp_path)
