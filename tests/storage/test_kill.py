"""A killed process loses nothing that it reported as saved, and leaves nothing unfinished."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pipeline.recipes  # noqa: F401 - says what the value of a stage is
from core.types import Caption, StageValue, Trace
from pipeline.methods.controlnet import CONTROL_IMAGE
from storage.workspace import Workspace

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def started(folder: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.saving_process", str(folder), how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_whole(folder: Path, run_id: str, saved: list[tuple[int, int]]) -> None:
    """Check that acknowledged values exist, images are complete, no leftovers exist, and the job is marked
    interrupted.
    """
    with Workspace(folder) as workspace:
        run = workspace.runs.get(run_id)
        cases = {stored.id: stored for stored in run.test_cases}
        versions = {version.id for version in workspace.runs.history(run_id, "caption")}
        assert {case_id for case_id, _ in saved} <= set(cases)
        assert {value_id for _, value_id in saved} <= versions
        assert len(cases) <= len(saved) + 1
        for stored in cases.values():
            assert workspace.images.load(stored.image_sha).size == (64, 64)
            assert workspace.images.load(stored.artifacts[CONTROL_IMAGE].sha).size == (64, 64)
        (job,) = run.jobs
        assert (job.state, job.done) == ("interrupted", len(cases))
        for path in (folder / "images").iterdir():
            assert hashlib.sha256(path.read_bytes()).hexdigest() + ".png" == path.name
        assert len(list((folder / "open").iterdir())) == 1


@pytest.mark.parametrize(
    "lines", [4, pytest.param(1, marks=pytest.mark.soak), pytest.param(11, marks=pytest.mark.soak)]
)
def test_killed_while_saving(tmp_path: Path, lines: int) -> None:
    with started(tmp_path, "saves") as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        text = "".join(process.stdout.readline() for _ in range(lines))
        process.kill()
        text += process.stdout.read()
    whole = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    assert_whole(tmp_path, run_id, [(int(case_id), int(value_id)) for case_id, value_id in whole])


@pytest.mark.parametrize("how, left_over", [("in the file", 1), ("before the row", 0)])
def test_killed_at_the_worst_moment(tmp_path: Path, how: str, left_over: int) -> None:
    with started(tmp_path, how) as process:
        assert process.stdout is not None
        run_id, *lines = process.stdout.read().splitlines()
        assert process.wait() == -signal.SIGKILL
    assert len(list((tmp_path / "images").glob(".*.tmp"))) == left_over
    saved = [(int(line.split()[0]), int(line.split()[1])) for line in lines]
    assert len(saved) == 3
    assert_whole(tmp_path, run_id, saved)
    with Workspace(tmp_path) as workspace:
        assert len(workspace.runs.get(run_id).test_cases) == 3


def test_a_living_process_keeps_its_job_and_its_half_files(tmp_path: Path) -> None:
    with started(tmp_path, "waits") as process:
        assert process.stdout is not None
        run_id, first = process.stdout.readline().strip(), process.stdout.readline()
        with Workspace(tmp_path) as workspace:
            (job,) = workspace.runs.get(run_id).jobs
            assert job.state == "running"
            half = tmp_path / "images" / f".{1}-{'0' * 16}.tmp"  # the other process was the first to open it
            half.write_bytes(b"half")
            workspace.runs.append_value(run_id, "caption", StageValue(Caption("from here"), Trace("person"), "k"))
            with Workspace(tmp_path) as third:
                assert third.runs.get(run_id).jobs[0].state == "running"
                assert half.exists()
        process.kill()
        process.wait()
    with Workspace(tmp_path) as workspace:
        assert workspace.runs.get(run_id).jobs[0].state == "interrupted"
        assert [v.value.value.text for v in workspace.runs.history(run_id, "caption")] == ["0", "from here"]
        assert not half.exists()
    assert first


def test_processes_that_open_a_new_workspace_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from PIL import Image; from core.types import Task; from storage.workspace import Workspace\n"
        "sys.stdin.read()\n"
        "with Workspace(sys.argv[1]) as workspace:\n"
        "    for n in range(5):\n"
        "        workspace.runs.create(Image.new('RGB', (8, 8)), Task('classification', 'bird'), 'demo', f'{n}', {})\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "new")]
    processes = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 3
    with Workspace(tmp_path / "new") as workspace:
        assert len(workspace.runs.search()) == 15
