"""Stable Diffusion 1.5 and a ControlNet of their published sizes, with random weights, draw through the command line.

It takes minutes: `make soak` alone runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.profiles.profile import PROFILES
from tests.support.server_process import ROOT

GB = 1_000_000_000
MAKE = "import pathlib, sys, benchmarks.random_weights as made; made.save_stable_diffusion(pathlib.Path(sys.argv[1]))"
SLOWEST = 1_500
"""Seconds, on a machine that does other things too."""


def profile_at(folder: Path) -> Path:
    """The profile demo with the Stable Diffusion and the ControlNet of a folder."""
    text = (PROFILES / "demo.toml").read_text(encoding="utf-8")
    for old, new in (
        ("demo/weights/stable-diffusion", str(folder / "stable-diffusion")),
        ("demo/weights/controlnet", str(folder / "controlnet")),
    ):
        assert text.count(f'path = "{old}"') == 1
        text = text.replace(f'path = "{old}"', f'path = "{new}"\nvariant = "fp16"')
    assert text.count("\nsafety_checker = false") == 1
    file = folder / "real-size.toml"
    file.write_text(text.replace("\nsafety_checker = false", "\nsafety_checker = true"), encoding="utf-8")
    return file


def test_stable_diffusion_of_real_size_draws_within_ten_gigabytes(tmp_path: Path) -> None:
    """The command line is a process of its own, and so is what makes the weights, which is not counted."""
    subprocess.run([sys.executable, "-c", MAKE, str(tmp_path)], cwd=ROOT, check=True, timeout=SLOWEST)
    halves = sum(file.stat().st_size for file in tmp_path.rglob("*.fp16.safetensors"))
    assert 3.3 * GB < halves < 3.6 * GB, "as many weights as the published ones have"
    source = tmp_path / "bird.png"
    with Image.open(ROOT / "demo/samples/bird-on-a-twig.png") as sample:
        sample.resize((512, 512)).save(source)
    command = [sys.executable, "-m", "pipeline", "augment", str(source), "--task", "classification", "--label", "bird"]
    command += ["--out", str(tmp_path / "out"), "--profile", str(profile_at(tmp_path)), "--captions", "1"]
    command += ["--steps", "2", "--set", "generation.short_side=512", "--set", "generation.guidance=7.5"]
    began = time.monotonic()
    with (tmp_path / "told").open("w") as told:
        process = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)
    stop = threading.Timer(SLOWEST, process.kill)
    stop.start()
    _, status, used = os.wait4(process.pid, 0)
    stop.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    said = (tmp_path / "told").read_text()
    most = used.ru_maxrss * 1024
    print(f"{time.monotonic() - began:.0f} s, {most / GB:.1f} GB")
    assert process.returncode == 0, said
    with Image.open(tmp_path / "out" / "image-001.png") as image:
        assert image.size == (512, 512) and image.mode == "RGB"
        assert np.asarray(image).std() > 1, "there is something on it"
    assert most < 10 * GB, said
