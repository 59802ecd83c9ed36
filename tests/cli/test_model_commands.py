"""The commands for a profile's models: list them with their sizes, fetch them from a hub, and check them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

import cli.pipeline as cli
from cli import models as model_commands
from core.model_sections import ROOT
from core.progress import Pace
from pipeline.models.machine import Machine
from pipeline.profiles.profile import PROFILES
from tests.pipeline.models.test_hub import hub as hub
from tests.pipeline.models.test_hub import wanted
from tests.support.hub_server import Hub, Repository

pytestmark = pytest.mark.slow  # downloads and hashes take some seconds together

GB = 1_000_000_000


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Machine with 16 GB of memory that the command line finds in this test."""
    machine = Machine(16 * GB, 9 * GB, 40 * GB, "/cache")
    monkeypatch.setattr(model_commands, "this_machine", lambda: machine)
    return machine


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Path of the demo profile, changed to a captioner and an embedder on the hub."""
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
    assert "confirm with --yes" in told.err
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
    commit = next(Path(wanted_cache()).glob("snapshots/*")).name
    assert f'is not pinned: revision = "{commit}" in your profile keeps the one that is here.' in told.out
    assert len(hub.sent("model.safetensors")) == 1 and not hub.sent("model.bin"), "no file that is not named"
    assert cli.main(fetch) == 0, "nothing is asked where nothing is to come"
    assert cli.main(["models", str(profile)]) == 0
    told_here = capsys.readouterr().out
    assert "All models are here. It fits on the CPU." in told_here and f"not pinned: {commit[:12]} is here" in told_here

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
        def seconds_left(self, done: float) -> float | None:
            if done == 1_000_012:  # after the small file and ten blocks of the large one
                os.kill(os.getpid(), signal.SIGINT)
            return super().seconds_left(done)

    monkeypatch.setattr(model_commands, "Pace", Stopped)
    assert cli.main(["fetch", str(profile), "--yes"]) == 130
    assert "Stopped. Fetched parts are kept: run the same command to resume." in capsys.readouterr().err
    monkeypatch.setattr(model_commands, "Pace", Pace)
    assert cli.main(["fetch", str(profile), "--yes"]) == 0
    assert "2 MB to fetch" in capsys.readouterr().out
    assert hub.sent("model.safetensors") == ["", "bytes=1000000-"]


def test_models_under_test_are_listed_fetched_and_tried(
    hub: Hub, laptop: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of torchvision and one of timm are fetched to their libraries' folders. The demo's own are checkpoint
    files.
    """
    import timm
    import torch
    from torchvision import models

    text = (PROFILES / "demo.toml").read_text()
    for file, source, name in (
        ("demo/under_test/classifier.safetensors", "torchvision", "squeezenet1_1"),
        ("demo/weights/checker.safetensors", "timm", "test_resnet"),
    ):
        assert f'source = "file"\nfile = "{file}"' in text
        text = text.replace(f'source = "file"\nfile = "{file}"', f'source = "{source}"\nname = "{name}"')
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace('name = "demo"', 'name = "mine"'))

    torch.manual_seed(0)
    torch.save(models.get_model("squeezenet1_1").state_dict(), tmp_path / "net.pth")
    data = (tmp_path / "net.pth").read_bytes()
    file = f"squeezenet1_1-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "net.safetensors")
    hub.repositories["who/torch"] = Repository({file: data})
    hub.repositories["timm/test_resnet.r160_in1k"] = Repository(
        {"model.safetensors": (tmp_path / "net.safetensors").read_bytes(), "pytorch_model.bin": b"0" * 900}
    )
    weights = models.get_model_weights("squeezenet1_1").DEFAULT
    monkeypatch.setattr(weights.value, "url", f"{hub.url}/who/torch/resolve/main/{file}")
    monkeypatch.setattr("torch.hub._hub_dir", str(tmp_path / "torch"))
    monkeypatch.setattr(model_commands, "sections", lambda profile: {})  # other tests run `check` on the other models

    assert cli.main(["models", str(mine)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"classifier under test +torchvision squeezenet1_1 +5 MB to fetch +5 MB +fits on the CPU", told)
    assert f"revision IMAGENET1K_V1 · {hub.url}" in told
    assert re.search(r"segmenter under test +demo/under_test/segmenter.safetensors +here, 398 kB", told)
    assert re.search(r"segmenter of the checks +timm/test_resnet.r160_in1k +2 MB to fetch", told)
    assert "not pinned: the newest is taken · licence: apache-2.0" in told and not hub.asked, "a list asks no network"
    assert cli.main(["check", str(mine)]) == 3
    tried = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "it is not here (about 5 MB): `python -m pipeline fetch" in tried["classifier under test"]
    assert "works" in tried["segmenter under test"] and not hub.asked

    hub.breaks[file] = [1_000_000]
    assert cli.main(["fetch", str(mine), "--yes"]) == 0
    came = capsys.readouterr()
    assert re.search(r"classifier under test +torchvision squeezenet1_1  5 MB, 5 MB to fetch  \(licence: see", came.out)
    assert "classifier under test · 25 % of 7 MB" in came.err and "All weights of mine are here." in came.out
    assert hub.sent(file) == ["", "bytes=1000000-"] and not hub.sent("pytorch_model.bin")
    number = len(hub.asked)
    assert cli.main(["check", str(mine)]) == 0
    tried = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {"works" in tried[role] for role in ("classifier under test", "segmenter of the checks")} == {True}
    assert not hub.sent(file)[2:], "its own library found it where it was brought"
    assert all(method == "HEAD" for method, _, _ in hub.asked[number:]), "nothing is fetched again"

    held = tmp_path / "torch/checkpoints" / file
    held.write_bytes(b"0" + data[1:])
    assert cli.main(["fetch", str(mine), "--yes", "--verify"]) == 0 and held.read_bytes() == data

    held.unlink()
    capsys.readouterr()
    hub.wrong.add(file)
    assert cli.main(["fetch", str(mine), "--yes"]) == 3
    assert (
        f"The download of {file} of the classifier under test torchvision squeezenet1_1 was discarded"
        in capsys.readouterr().err
    )
    monkeypatch.setattr("pipeline.models.hub.free_on_disk", lambda folder: 502_000_000)
    assert cli.main(["fetch", str(mine), "--yes"]) == 2
    assert "too little room: 5 MB must be fetched" in capsys.readouterr().err
    monkeypatch.setattr("pipeline.models.hub.disk_of", lambda folder: "torch" in str(folder))
    assert cli.main(["fetch", str(mine), "--yes"]) == 2
    assert f"{tmp_path / 'torch/checkpoints'} has too little room" in (told := capsys.readouterr().err)
    assert "or set TORCH_HOME to" in told
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert cli.main(["fetch", str(mine), "--yes"]) == 2
    assert capsys.readouterr().err.count("HF_HUB_OFFLINE is set") == 1
    mine.write_text(mine.read_text().replace("squeezenet1_1", "squeezenet1_7"))
    assert cli.main(["models", str(mine)]) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"torchvision squeezenet1_7 +missing +There is no classifier or segmenter 'squeezenet1_7' in", told
    )
    assert "perhaps you mean squeezenet1_1" in told


def test_what_cannot_be_had_stops_nothing_else(
    hub: Hub, profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.write_text(profile.read_text().replace('hub = "who/model"\nfiles = ["a/*"]', 'hub = "who/else"'))
    assert cli.main(["fetch", str(profile), "--yes"]) == 3
    told = capsys.readouterr()
    assert f"embedder who/else is not on {hub.url.removeprefix('http://')}, or not open to you: see http" in told.err
    assert len(hub.sent("model.safetensors")) == 1 and "are here" not in told.out
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert cli.main(["fetch", str(profile), "--yes"]) == 2
    assert capsys.readouterr().err.count("HF_HUB_OFFLINE is set") == 1, "said once, and not for each model"


def test_a_full_disk_is_told_before_anybody_is_asked(
    hub: Hub, profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.models.hub.free_on_disk", lambda folder: 502_000_000)
    assert cli.main(["fetch", str(profile), "--yes"]) == 2
    assert "too little room: 3 MB must be fetched, and 502 MB are free" in capsys.readouterr().err
    assert not hub.sent("model.safetensors")


def test_as_a_person_calls_it(hub: Hub, profile: Path, tmp_path: Path) -> None:
    """Run the command in a process of its own. The environment variables of the hub's library name the hub."""
    environment = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "pipeline", "fetch", str(profile), "--yes"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["All weights of mine are here."]), done.stderr
    assert len(hub.sent("model.safetensors")) == 1 and "captioner · 95 % of 3 MB" in done.stderr
    assert list((tmp_path / "home").glob("hub/models--who--model/snapshots/*/model.safetensors"))


def test_what_came_with_another_model_takes_no_memory_of_its_own() -> None:
    assert "no more memory" in model_commands.Tried("ControlNet for canny", "tiny", 0.1, 0.2, -4096).in_words()
    assert "memory 15 MB" in model_commands.Tried("image generator", "tiny", 0.1, 0.2, 15_000_000).in_words()
