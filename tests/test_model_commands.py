"""The command line's care for models: what is here and what fits, fetching from a hub, in the process and as it is."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline.__main__ as cli
from pipeline import model_commands
from pipeline.machine import Machine
from pipeline.model_sections import ROOT
from pipeline.profile import PROFILES
from pipeline.progress import Pace
from tests.hub_server import Hub
from tests.test_hub import hub as hub
from tests.test_hub import wanted

pytestmark = pytest.mark.slow  # together a few seconds of downloads and hashes

GB = 1_000_000_000


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that the command line finds in this test."""
    machine = Machine(16 * GB, 9 * GB, 40 * GB, "/cache")
    monkeypatch.setattr(model_commands, "this_machine", lambda: machine)
    return machine


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """The demo's, but for a captioner and an embedder that are on the hub."""
    text = (PROFILES / "demo.toml").read_text()
    for path, files in (("captioner", '"*.json", "*.safetensors"'), ("clip", '"a/*"')):
        section = f'hub = "who/model"\nfiles = [{files}]\nlicence = "MIT"\nbytes = 3_000_000'
        text = text.replace(f'path = "demo/weights/{path}"', section)
    (tmp_path / "mine.toml").write_text(text.replace('name = "demo"', 'name = "mine"'))
    return tmp_path / "mine.toml"


def test_models_lists_what_is_here_and_what_fits(laptop: Machine, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "paper"]) == 0
    told = capsys.readouterr().out
    assert "This machine: 16 GB of memory (9 GB free), no GPU, 40 GB free on the disk of /cache." in told
    assert "49 GB to fetch (python -m pipeline fetch paper), for which the disk has too little room: 40 GB" in told
    assert "It does not fit: one stage needs 31 GB of memory, there are 16." in told
    lines = {line.split("  ")[1]: line for line in told.splitlines() if line.startswith("  ")}
    assert "31 GB to fetch" in lines["captioner"] and "does not fit: needs 31 GB, there are 16" in lines["captioner"]
    assert lines["language model"].endswith("fits on the CPU, slowly once other programs leave room: 9 GB are free now")
    assert "not pinned: the newest is taken · licence: MIT; the OPT" in told and "revision 451f4fe16113 · lic" in told
    assert not hub.asked, "a list asks no network"

    assert cli.main(["models", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    by_name = {one["name"]: one for one in data["profiles"]}
    assert data["machine"]["memory"] == 16 * GB and by_name["demo"]["to_fetch"] == 0
    assert all(model["complete"] and model["bytes_here"] for model in by_name["demo"]["models"])
    assert by_name["paper"]["to_fetch"] == sum(model["to_fetch"] for model in by_name["paper"]["models"]) > 45 * GB


def test_a_model_that_a_server_has_takes_nothing_of_this_machine(
    laptop: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PROFILES / "demo.toml").read_text()
    served = '[language]\nkind = "openai"\naddress = "http://127.0.0.1:8000/v1"\nmodel = "some-model"\n\n['
    text, count = re.subn(r"(?s)\[language\].*?\n\[", served, text, count=1)
    assert count == 1
    (tmp_path / "served.toml").write_text(text)
    assert cli.main(["models", str(tmp_path / "served.toml")]) == 0
    told = capsys.readouterr().out
    assert re.search(r"language model +some-model +on a server", told)
    assert "http://127.0.0.1:8000/v1" in told and "All models are here." in told


def test_fetch_says_the_bytes_first_asks_and_brings_them(
    hub: Hub, laptop: Machine, profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = ["fetch", str(profile)]
    assert cli.main(fetch) == 2
    told = capsys.readouterr()
    assert "3 MB would be fetched: say --yes" in told.err
    assert "captioner" in told.out and "who/model  3 MB, 3 MB to fetch  (licence: MIT)" in told.out

    class Person(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Person("n\n"))
    assert cli.main(fetch) == 2
    assert "Fetch 3 MB? [y/N] Nothing was fetched." in capsys.readouterr().err
    assert not hub.sent("model.safetensors")
    monkeypatch.setattr(sys, "stdin", Person("y\n"))
    assert cli.main(fetch) == 0
    told = capsys.readouterr()
    assert told.out.endswith("All weights of mine are here.\n") and "captioner · 50 % of 3 MB" in told.err
    assert len(hub.sent("model.safetensors")) == 1 and not hub.sent("model.bin"), "no file that is not named"
    assert cli.main(fetch) == 0, "nothing is asked where nothing is to come"
    assert cli.main(["models", str(profile)]) == 0
    assert "All models are here. It fits on the CPU." in capsys.readouterr().out

    held = next(path for path in Path(wanted_cache()).glob("blobs/*") if path.stat().st_size == 3_000_000)
    held.write_bytes(b"0" * 3_000_000)
    assert cli.main([*fetch, "--yes"]) == 0 and len(hub.sent("model.safetensors")) == 1
    assert cli.main([*fetch, "--yes", "--verify"]) == 0 and len(hub.sent("model.safetensors")) == 2


def wanted_cache() -> Path:
    from pipeline.models.hub import cache_of

    return cache_of(wanted())


def test_a_download_that_a_person_stops_goes_on_with_the_same_command(
    hub: Hub, profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Pace):
        def seconds_left(self, done: int) -> float | None:
            if done == 1_000_012:  # ten pieces of the large file, and the small one before it
                os.kill(os.getpid(), signal.SIGINT)
            return super().seconds_left(done)

    monkeypatch.setattr(model_commands, "Pace", Stopped)
    assert cli.main(["fetch", str(profile), "--yes"]) == 130
    assert "Stopped. What came is kept: the same command goes on from there." in capsys.readouterr().err
    monkeypatch.setattr(model_commands, "Pace", Pace)
    assert cli.main(["fetch", str(profile), "--yes"]) == 0
    assert "2 MB to fetch" in capsys.readouterr().out
    assert hub.sent("model.safetensors") == ["", "bytes=1000000-"]


def test_what_cannot_be_had_stops_nothing_else(
    hub: Hub, profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.write_text(profile.read_text().replace('hub = "who/model"\nfiles = ["a/*"]', 'hub = "who/else"'))
    assert cli.main(["fetch", str(profile), "--yes"]) == 3
    told = capsys.readouterr()
    assert "embedder who/else is not on huggingface.co, or not open to you: see http" in told.err
    assert len(hub.sent("model.safetensors")) == 1 and "are here" not in told.out
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert cli.main(["fetch", str(profile), "--yes"]) == 2
    assert capsys.readouterr().err.count("HF_HUB_OFFLINE is set") == 1, "said once, and not for each model"


def test_a_full_disk_is_told_before_anybody_is_asked(
    hub: Hub, profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.models.hub.free_on_disk", lambda folder: 502_000_000)
    assert cli.main(["fetch", str(profile), "--yes"]) == 2
    assert "too little room: 3 MB are to be fetched, and 502 MB are free" in capsys.readouterr().err
    assert not hub.sent("model.safetensors")


def test_as_a_person_calls_it(hub: Hub, profile: Path, tmp_path: Path) -> None:
    """A process of its own, set to the hub by the variables that the hub's library reads."""
    environment = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "pipeline", "fetch", str(profile), "--yes"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["All weights of mine are here."]), done.stderr
    assert len(hub.sent("model.safetensors")) == 1 and "captioner · 95 % of 3 MB" in done.stderr
    assert list((tmp_path / "home").glob("hub/models--who--model/snapshots/*/model.safetensors"))
