"""Starting the studio: settings, refusals in one sentence, a fast start, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
import uvicorn
from fastapi.testclient import TestClient

import app
from core.errors import UserError
from core.version import version
from pipeline.models.machine import Machine, share_cores
from pipeline.profiles.profile import load_profile
from tests.support.annotating import Annotator, running
from tests.support.server_process import ROOT, ServerProcess, free_port
from tests.support.serving import until
from tests.support.workspaces import workspace_in

PASSWORD = "a password of the lead"


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PROFILE", "WORKSPACE", "PORT")}
    return subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Start:
    """Function like `start` that runs in this process, which may have imported the modules already."""

    def starting(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # otherwise the start would set the variable for later tests
        code = app.main(arguments)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return starting


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def a_profile(folder: Path, **places: str) -> Path:
    """Write the demo profile with other paths. Return its file."""
    text = (ROOT / "pipeline/profiles/demo.toml").read_text()
    for old, new in places.items():
        text = text.replace(f"demo/weights/{old}", new)
    file = folder / "own.toml"
    file.write_text(text)
    return file


def test_arguments_win_over_the_environment() -> None:
    environment = {"PROFILE": "paper", "WORKSPACE": "there", "PORT": "8000", "MCP": "0"}
    assert app.read_settings([], {}) == app.ServerSettings("demo", Path("workspace"), "127.0.0.1", 7860)
    assert app.read_settings([], environment) == app.ServerSettings("paper", Path("there"), "127.0.0.1", 8000)
    given = ["--profile", "demo", "--workspace", "here", "--port", "9", "--host", "0.0.0.0"]
    assert app.read_settings(given, environment) == app.ServerSettings("demo", Path("here"), "0.0.0.0", 9)
    assert app.read_settings(["--mcp"], environment).mcp and app.read_settings([], {"MCP": "1"}).mcp
    sets, given = (Path("/sets"), Path("my data")), ["--data-roots", os.pathsep.join(("/sets", "my data"))]
    assert app.read_settings(given, {"DATA_ROOTS": "/other"}).data_roots == sets
    assert app.read_settings([], {"DATA_ROOTS": f"/sets{os.pathsep}"}).data_roots == sets[:1]


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "78 60"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(UserError, match="from 1 to 65535"):
        app.read_settings(["--port", port], {})
    with pytest.raises(UserError, match="from 1 to 65535"):
        app.read_settings([], {"PORT": port})


def test_a_bad_port_ends_with_one_sentence(tmp_path: Path) -> None:
    refused(start("--port", "http", "--workspace", str(tmp_path)), "http", "from 1 to 65535")


def test_an_unknown_profile_lists_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_here: Start
) -> None:
    monkeypatch.setenv("PROFILE", "papre")
    refused(start_here("--workspace", str(tmp_path), "--port", str(free_port())), "papre", "demo", "paper")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        refused(start("--workspace", str(tmp_path), "--port", port), f"Port {port}", "--port")


def test_small_answers_go_at_once() -> None:
    """`asyncio` sets TCP_NODELAY only on connections of sockets with this protocol number."""
    with app._listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_missing_weights_are_named(tmp_path: Path, start_here: Start) -> None:
    profile = a_profile(tmp_path, captioner=str(tmp_path / "nowhere"))
    given = ("--profile", str(profile), "--workspace", str(tmp_path / "w"), "--port", str(free_port()))
    refused(start_here(*given), "nowhere")


@pytest.mark.demo
def test_a_workspace_that_cannot_be_written(tmp_path: Path, start_here: Start) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    settings = ("--workspace", str(in_the_way / "w"), "--port", str(free_port()))
    refused(start_here(*settings), "cannot be written")


def wakes_in_a_second(process: psutil.Process) -> int:
    """Return how often the answering thread woke up in a second. Without work it should not wake."""
    before = process.num_ctx_switches().voluntary
    time.sleep(1)
    return int(process.num_ctx_switches().voluntary - before)


@pytest.mark.demo
@pytest.mark.slow
def test_a_second_start_is_refused_and_sigterm_ends_the_first_cleanly(tmp_path: Path, start_here: Start) -> None:
    """The first studio has a password, so that it may listen for other machines. The next test ends one with Ctrl-C."""
    given = {"arguments": ("--host", "0.0.0.0"), "environment": {"STUDIO_PASSWORD": PASSWORD}}
    server = ServerProcess(tmp_path / "w", tmp_path / "log", **given).start()  # type: ignore[arg-type]
    try:
        assert server.process is not None
        with urllib.request.urlopen(f"{server.url}healthz", timeout=30) as reply:
            assert json.load(reply) == {"status": "ok", "profile": "demo", "version": version()}
        assert [status(f"{server.url}{path}") for path in ("config", "annotate/")] == [401, 200]
        refused(start_here("--workspace", str(tmp_path / "other"), "--port", str(server.port)), f"Port {server.port}")
        second = start_here("--workspace", str(tmp_path / "w"), "--port", str(free_port()))
        refused(second, f"The studio at {server.url.rstrip('/')} (process {server.process.pid} on", "has the workspace")
        idle = psutil.Process(server.process.pid)
        until(lambda: wakes_in_a_second(idle) < 100)
    finally:
        assert server.stop(signal.SIGTERM) == 0
    assert server.said().count("\n") == 1 and PASSWORD not in server.said(), "more than the address was said"
    assert not list((tmp_path / "w" / "open").glob("*.lock")), "the workspace was not closed"


HELD = """
import sys, time, pathlib, app
plain = app._whole
def held(*given):
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.01)
    return plain(*given)
app._whole = held
sys.exit(app.main())
"""
"""Code of a studio that finishes its start once a file exists."""


@pytest.mark.slow
def test_annotators_are_served_while_the_rest_of_a_start_takes_its_time(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "w") as workspace:
        study_id, link = running(workspace, 2)
    server = ServerProcess(tmp_path / "w", tmp_path / "log", HELD.format(go=str(tmp_path / "go"))).start(whole=False)
    asked = ThreadPoolExecutor(1)
    try:
        page = asked.submit(status, server.url)
        with httpx.Client(base_url=server.url, timeout=60) as client:
            assert client.get("healthz").json() == {"status": "starting", "profile": "demo", "version": version()}
            worker = Annotator(client).join(link)
            first = worker.next()
            worker.answer(first)
            assert not page.done() and "DILLEMA" not in server.said(), "the rest is there already"
            (tmp_path / "go").touch()
            assert page.result(240) == 200, "what was asked for meanwhile was dropped"
            assert client.get("healthz").json()["status"] == "ok"
            worker.answer(worker.next())
    finally:
        (tmp_path / "go").touch()
        assert server.stop(signal.SIGTERM) == 0
        asked.shutdown()
    with workspace_in(tmp_path / "w") as workspace:
        assert len(workspace.studies.data(study_id).votes) == 2


@pytest.mark.slow
def test_what_is_wrong_with_the_rest_of_a_start_ends_it(tmp_path: Path, start_here: Start) -> None:
    given = ("--workspace", str(tmp_path / "w"), "--port", str(free_port()), "--root-path", "/study")
    refused(start_here(*given), "The studio has pages of its own below /study: give another --root-path.")


def status(url: str) -> int:
    """Return the status of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.demo
def test_a_profile_for_a_gpu_is_served_without_one_and_that_is_told_and_ctrl_c_ends_it_cleanly(
    tmp_path: Path, start_here: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, told = dict(os.environ), "No GPU was found: on the CPU the profile sdxl takes up to 22 GB of memory"
    monkeypatch.setattr("pipeline.models.machine.this_machine", lambda: Machine(16 * 10**9, 9 * 10**9, 0, ""))
    kept_open = list[int]()

    def run(server: uvicorn.Server, sockets: object) -> None:
        kept_open.append(server.config.timeout_keep_alive)
        with TestClient(cast(Any, server.config.app), "http://127.0.0.1") as client:
            assert client.get("/config").status_code == 200  # the whole studio has started
        signal.raise_signal(signal.SIGINT)  # uvicorn raises the signal again after it has ended

    monkeypatch.setattr("uvicorn.Server.run", run)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    try:
        done = start_here("--profile", "sdxl", "--workspace", str(tmp_path / "w"), "--port", str(free_port()))
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert done.returncode == 0 and "profile sdxl: http://" in done.stdout
    assert len(done.stderr.strip().splitlines()) == 1 and done.stderr.startswith(told), done.stderr
    assert not list((tmp_path / "w" / "open").glob("*.lock")), "the workspace was not closed"
    assert kept_open[0] > 120, "Caddy sends a request into a connection that it has kept for two minutes"


def test_a_profile_that_needs_the_hub_may_ask_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, file = (ROOT / "pipeline/profiles/demo.toml").read_text(), "demo/under_test/classifier.safetensors"
    own = tmp_path / "own.toml"
    own.write_text(text.replace(f'"file"\nfile = "{file}"', '"timm"\nname = "resnet50"'))
    for name, offline in (("demo", "1"), (str(own), None)):
        environment = dict[str, str]()
        monkeypatch.setattr(os, "environ", environment)
        app._stay_here(load_profile(name))
        monkeypatch.undo()
        assert environment.get("HF_HUB_OFFLINE") == offline, name


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (8, "7")])
def test_a_core_is_left_to_the_page(cores: int, threads: str) -> None:
    environment: dict[str, str] = {}
    app._leave_a_core(environment, cores)
    assert environment == {"OMP_NUM_THREADS": threads}
    mine = {"OMP_NUM_THREADS": "4"}
    app._leave_a_core(mine, cores)
    assert mine == {"OMP_NUM_THREADS": "4"}, "what a person sets is left alone"


def test_threads_that_wait_leave_the_cores_to_others() -> None:
    environment: dict[str, str] = {}
    share_cores(environment)
    assert environment == {"OMP_WAIT_POLICY": "passive"}
    mine = {"OMP_WAIT_POLICY": "active"}
    share_cores(mine)
    assert mine == {"OMP_WAIT_POLICY": "active"}, "what a person sets is left alone"


def test_a_folder_of_uploads_that_is_given_gets_one_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in the given folder may be somebody else's, while old uploads are removed."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "given"))
    app._keep_uploads_apart()
    app._keep_uploads_apart()
    made = Path(os.environ["GRADIO_TEMP_DIR"])
    assert made.parent == tmp_path / "given" and made.name.startswith(app.UPLOADS)


def test_two_servers_keep_their_uploads_apart() -> None:
    say = "import app, os; app._keep_uploads_apart(); print(os.environ['GRADIO_TEMP_DIR'])"
    clean = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
    folders = [
        subprocess.run([sys.executable, "-c", say], cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    first, second = (Path(done.stdout.strip()) for done in folders)
    assert first != second
    assert not first.exists() and not second.exists(), "the uploads of a server that has ended stay behind"


@pytest.mark.slow
def test_uploads_go_where_they_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradio.utils import get_upload_folder

    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    assert get_upload_folder() == str(tmp_path)
