"""Measures the seconds from one image to four generated images with loaded models, and the memory of the process.

It runs in a separate process (`python -m experiments.demo_report.speed`), whose memory other parts of the report do not
affect. It loads what the served studio loads, takes two scenes through all five stages, and prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from core.settings import Settings
from demo.scene import random_scene
from experiments.demo_report.rows import Row
from experiments.demo_report.walk import FIRST_SEED, start_walk
from pipeline.driver import Driver
from pipeline.request import MemoryStore, Request

IMAGES, THREADS = 4, 2
FLOOR_SECONDS, FLOOR_GB = 20.0, 3.0


def processor_seconds() -> float:
    """Return the processor seconds used by this process and its child processes, such as the language model's."""
    me = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in (me, *me.children(recursive=True)))


def measure() -> dict[str, float]:
    """Return the mean seconds from an image to its test cases, for two scenes, and the peak memory in GB (10^9)."""
    import torch

    import app
    from pipeline.models import load_models
    from pipeline.profiles.profile import load_profile

    torch.set_num_threads(THREADS)
    profile = load_profile("demo")
    own = profile.settings
    settings = own.model_copy(
        update={
            "counterfactuals": own.counterfactuals.model_copy(update={"captions": IMAGES}),
            "generation": own.generation.model_copy(update={"images_per_caption": 1}),
        }
    )
    models = load_models(profile)
    with tempfile.TemporaryDirectory() as folder:
        _, studio = app.build(app.ServerSettings(workspace=Path(folder)), models)  # the page and the store count too
        try:
            seconds = walk_through(Driver(profile, models), settings)
        finally:
            studio.close()
            studio.workspace.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": sum(seconds) / len(seconds), "gigabytes": peak / 1e9}


def walk_through(driver: Driver, settings: Settings) -> list[float]:
    """Run the pipeline on an object scene and on a road scene. Return the seconds that each run takes from the image to
    the last test case. An additional run before these runs warms up, and does not count.
    """
    families = {random_scene(FIRST_SEED + number).family: number for number in range(20)}
    walks = [start_walk(number, driver.profile) for _, number in sorted(families.items())]
    seconds = []
    for walk in (walks[0], *walks):  # the first one warms up
        start = time.monotonic()
        store = MemoryStore(walk.image)
        driver.run(Request(walk.task, settings, seed=walk.number), store)
        seconds.append(time.monotonic() - start)
        images = len(store.cases)
        if images != IMAGES:
            raise RuntimeError(f"{images} images came out where {IMAGES} were asked for")
    return seconds[1:]


def rows() -> list[Row]:
    """Measure speed and memory in a separate process. The rows also state the load of the machine, since other
    programs may slow it down.
    """
    load = os.getloadavg()[0]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    done = subprocess.run(
        [sys.executable, "-m", "experiments.demo_report.speed"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    cores = os.cpu_count() or 1
    machine = f"{THREADS} threads on {cores} cores; load of the machine before: {load:.1f}"
    return [
        Row(f"one image to {IMAGES} generated images", figures["seconds"], FLOOR_SECONDS, "s", beside=machine),
        Row("memory of the whole process", figures["gigabytes"], FLOOR_GB, "GB", beside="peak, page and store loaded"),
    ]


if __name__ == "__main__":
    print(json.dumps(measure()))
