"""In the demo profile, the command line and all models work without a network, and no call leaves the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from demo.render import render
from demo.scene import random_scene

ROOT = Path(__file__).resolve().parents[2]
GUARD = """
import os, socket
TRIED = []
def local(address):
    return not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost")
def guarded(name):
    plain = getattr(socket.socket, name)
    def call(self, *arguments):
        address = arguments[-1]
        if not local(address):
            TRIED.append(address)
            raise OSError(f"a call to {address} was about to leave the machine")
        return plain(self, *arguments)
    setattr(socket.socket, name, call)
for name in ("connect", "connect_ex", "sendto"):
    guarded(name)
plain_lookup = socket.getaddrinfo
def lookup(host, *arguments, **more):
    if host not in (None, "", "127.0.0.1", "::1", "localhost"):
        TRIED.append(host)
        raise socket.gaierror(f"{host} was about to be looked up")
    return plain_lookup(host, *arguments, **more)
socket.getaddrinfo = lookup
"""
RUN = """
import sys
import cli.pipeline as cli
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
folder = sys.argv[1]
bird = [f"{folder}/bird.png", "--task", "classification", "--label", "bird", "--captions", "1", "--steps", "2"]
assert cli.main(["augment", *bird, "--out", f"{folder}/out"]) == 0
assert cli.main(["again", f"{folder}/out/run.json", "--out", f"{folder}/two"]) == 0
assert len(load_models(load_profile("demo")).sentences.vectors(["red", "crimson"])) == 2
assert not TRIED, TRIED
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    # Unset the variables that would forbid a download: the code itself must not try to download.
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_the_guard_itself_stops_a_call() -> None:
    done = run(GUARD + "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)")
    assert done.returncode != 0 and "192.0.2.1" in done.stderr


@pytest.mark.demo
@pytest.mark.slow
def test_the_command_line_does_it_all_without_a_network_and_again_gives_the_same_pixels(tmp_path: Path) -> None:
    scene = random_scene(2_000_004, "object", "bird").with_look(weather="sunny", time="day", colours=("red",))
    source, _ = render(scene)
    Image.fromarray(source).save(tmp_path / "bird.png")
    done = run(GUARD + RUN, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    ours = ("This does not look", "caption", "keywords", "alternatives", "counterfactual", "generation", "  ")
    assert all(line.startswith(ours) for line in done.stderr.splitlines()), "no remarks of libraries"
    assert done.stderr.count("generation on ") == 1, "where it runs, and why, is said once"
    assert "bird" in done.stderr.split("caption:", 1)[1].splitlines()[0]
    images = sorted((tmp_path / "out").glob("image-???.png"))
    assert len(images) == 1 and str(images[0]) in done.stdout.splitlines()
    for path in images:
        with Image.open(path) as made:
            assert made.size == (128, 128)
            assert np.abs(np.asarray(made, float) - source).mean() > 3
    assert done.stdout.count("same pixels") == len(images)
