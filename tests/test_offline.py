"""No call leaves the machine in the demo profile: every model loads and runs with no network but the loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
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
from PIL import Image
from pipeline.models import load_models
from pipeline.profile import load_profile
from pipeline.settings import GenerationSettings
from pipeline.types import Task
profile = load_profile("demo")
models = load_models(profile)
models.check()
image, task = Image.new("RGB", (128, 128), (90, 140, 220)), Task("classification", label="bird")
assert models.captioner.caption(image, task, profile.settings.caption, 0)[0]
models.language.complete("Task: none", profile.settings.keywords, 0)
few = GenerationSettings(steps=2, short_side=128)
assert models.generator.generate("a bird", image, few, 0, lambda done, total: None).size == (128, 128)
assert len(models.embedder.image(image)) == len(models.embedder.text("a bird"))
assert not TRIED, TRIED
print("nothing left the machine")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    # Without the variables that would forbid a download: the code itself must not try one.
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_the_guard_itself_stops_a_call() -> None:
    done = run(GUARD + "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)")
    assert done.returncode != 0 and "192.0.2.1" in done.stderr


@pytest.mark.demo
def test_all_demo_models_load_and_run_without_a_network() -> None:
    done = run(GUARD + RUN)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "nothing left the machine" in done.stdout
