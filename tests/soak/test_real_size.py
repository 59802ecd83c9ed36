"""Stable Diffusion 1.5 and a ControlNet of their published sizes, with random weights, draw, invert and edit. It
takes minutes, so only `make soak` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.checks.images import INVERTED
from pipeline.profiles.profile import PROFILES
from tests.support.server_process import ROOT

GB = 1_000_000_000
MAKE = "import pathlib, sys, benchmarks.random_weights as made; made.save_stable_diffusion(pathlib.Path(sys.argv[1]))"
SLOWEST = 3_000
"""Maximum number of seconds for a program, on a machine with other work."""
INVERT_AND_EDIT = """
import sys
from PIL import Image
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Task
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import LANCE
from pipeline.request import MemoryStore, Request

profile, rows = load_profile(sys.argv[1]), []
drawing = {"steps": 2, "short_side": 512, "guidance": 1.0, "inversion_evaluations": 1, "batch": 1}
generation = profile.settings.generation.model_dump() | drawing
models = load_models(profile)
models.generator._pipe.unet.register_forward_pre_hook(
    lambda _unet, given, named: rows.append(len(given[0] if given else named["sample"])), with_kwargs=True
)
captions = CounterfactualCaptions((CounterfactualCaption("A blue bird sits on a twig.", ()),))
values = {"caption": Caption("A red bird sits on a twig."), "counterfactuals": captions}
store = MemoryStore(Image.open(sys.argv[2]), values)
settings = LANCE.settings_in(profile, {"generation": generation, "edit": {"cross_replace": 0.4, "self_replace": 0.5}})
request = Request(Task("classification", label="bird"), settings, "lance", stages=())
Driver(profile, models).run(request, store, print)
print("rows of the network:", rows, flush=True)
store.cases[0].image.save(sys.argv[3])
"""
"""Program that inverts in two steps, repeats both for the PSNR, and draws source and edit together in two steps."""


def profile_at(folder: Path, checked: bool = True) -> Path:
    """Write the demo profile with a folder's Stable Diffusion and ControlNet, and return its path. `checked` adds
    the folder's safety checker.
    """
    text = (PROFILES / "demo.toml").read_text(encoding="utf-8")
    for old, new in (
        ("demo/weights/stable-diffusion", str(folder / "stable-diffusion")),
        ("demo/weights/controlnet", str(folder / "controlnet")),
    ):
        assert text.count(f'path = "{old}"') == 1
        text = text.replace(f'path = "{old}"', f'path = "{new}"\nvariant = "fp16"')
    assert text.count("\nsafety_checker = false") == text.count('\n"edges kept" = ') == 1
    if checked:
        text = text.replace("\nsafety_checker = false", "\nsafety_checker = true")
    # With random weights the quality of an inversion is arbitrary.
    band = f"\n{INVERTED!r} = {{ failed_below = 0.0, passed_from = 1.0 }}"
    file = folder / ("real-size.toml" if checked else "unchecked.toml")
    file.write_text(text.replace('\n"edges kept" = ', f'{band}\n"edges kept" = '), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the weights, their profile, and a source of 512 pixels, written by a process of its own."""
    folder = tmp_path_factory.mktemp("real-size")
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], cwd=ROOT, check=True, timeout=SLOWEST)
    halves = sum(file.stat().st_size for file in folder.rglob("*.fp16.safetensors"))
    assert 3.3 * GB < halves < 3.6 * GB, "as many weights as the published ones have"
    with Image.open(ROOT / "demo/samples/bird-on-a-twig.png") as sample:
        sample.resize((512, 512)).save(folder / "bird.png")
    return folder


def told_by(folder: Path, name: str, *command: str) -> str:
    """Run Python in a process of its own, and return its output. Fails if it uses more than ten gigabytes."""
    began = time.monotonic()
    with (folder / name).open("w") as told:
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)
    stop = threading.Timer(SLOWEST, process.kill)
    stop.start()
    _, status, used = os.wait4(process.pid, 0)
    stop.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    said = (folder / name).read_text()
    most, cores = used.ru_maxrss * 1024, used.ru_utime + used.ru_stime
    print(f"{name}: {time.monotonic() - began:.0f} s, {cores:.0f} s of a core, {most / GB:.1f} GB")
    assert process.returncode == 0, said
    assert most < 10 * GB, said
    return said


def test_stable_diffusion_of_real_size_draws_within_ten_gigabytes(folder: Path) -> None:
    out, source, profile = str(folder / "out"), str(folder / "bird.png"), str(profile_at(folder))
    command = ["-m", "pipeline", "augment", source, "--task", "classification", "--label", "bird", "--out", out]
    command += ["--profile", profile, "--captions", "1", "--steps", "2"]
    told_by(folder, "drawn", *command, "--set", "generation.short_side=512", "--set", "generation.guidance=7.5")
    looks_drawn(folder / "out" / "image-001.png")


def test_stable_diffusion_of_real_size_inverts_and_edits_within_ten_gigabytes(folder: Path) -> None:
    """Invert once, and draw one image beside its source with attention control."""
    files = [profile_at(folder, checked=False), folder / "bird.png", folder / "edited.png"]
    said = told_by(folder, "edited", "-c", INVERT_AND_EDIT, *map(str, files))
    assert "rows of the network: [1, 1, 1, 1, 2, 2]\n" in said, said
    looks_drawn(folder / "edited.png")


def looks_drawn(file: Path) -> None:
    with Image.open(file) as image:
        assert image.size == (512, 512) and image.mode == "RGB"
        assert np.asarray(image).std() > 1, "there is something on it"
