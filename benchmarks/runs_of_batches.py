"""Runs batches over a folder of drawn images, and measures their time and memory, for the benchmarks of batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from PIL import Image

from core.batches import Pass
from demo.render import render
from demo.scene import random_scene
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import plan_from_text
from services.batches.service import BatchService
from storage.workspace import Workspace

SIDE = 512
"""Minimum side in pixels of drawn pictures that get grain, to be like photographs."""
LENGTHS = (100, 1_000, 10_000)
"""Numbers of finished pieces of work at which time and memory are measured."""
FIRST = 6_000_000
"""Seed of the first scene."""

Pixels = NDArray[np.uint8]
PLAN = """
name = "A benchmark"
data = {{ root = "{data}", layout = "imagefolder" }}
task = {{ kind = "classification" }}
edits = {{ {captions} }}
make = {{ profile = "demo", seed = 1, settings = {{ {settings} }} }}
"""


@dataclass(frozen=True)
class Stamp:
    """Progress and memory of a batch at one moment. A pass is a step of a batch, such as captioning all sources."""

    done: int
    """Number of pieces of work that the pass has finished."""
    seconds: float
    """Seconds since the workers of the pass were ready."""
    driver: int
    """Bytes of memory of the process that hands out the work."""
    worker: int
    """Bytes of memory of the largest worker process, with its children."""


@dataclass
class Run:
    """Time and memory of a whole batch."""

    seconds: float = 0.0
    """Seconds of all passes. Each pass counts from when its workers are ready."""
    cases: int = 0
    workers: dict[Pass, float] = field(default_factory=dict)
    """Seconds that all workers together worked in each pass, as they report it."""
    stamps: dict[Pass, list[Stamp]] = field(default_factory=dict)
    """Time and memory of each pass, measured several times during the pass (see `LENGTHS`) and at its end."""

    def stamp(self, stage: Pass, length: int) -> Stamp:
        """Return the stamp taken after `length` pieces of a pass, or the last stamp if the pass has fewer pieces."""
        stamps = self.stamps[stage]
        return next((one for one in stamps if one.done >= length), stamps[-1])

    def each(self, length: int, stages: Sequence[Pass]) -> float:
        """Average the seconds per piece of work over each pass's first `length` pieces. Return the sum of averages."""
        at = [self.stamp(stage, length) for stage in stages]
        return sum(one.seconds / one.done for one in at)


def run(
    data: Path,
    folder: Path,
    make: Callable[[Order], Any],
    settings: Mapping[str, object],
    captions: int = 1,
    seeds: int = 1,
) -> Run:
    """Make test cases from a folder of images: `captions` per image, and `seeds` images per caption. `settings` has the
    names of settings with values in TOML.
    """
    result = Run()
    settings_text = ", ".join(f'"{name}" = {value}' for name, value in settings.items())
    text = PLAN.format(data=data, settings=settings_text, captions=f"captions_a_source = {captions}")
    text += f"images = {{ seeds_a_caption = {seeds} }}\n"
    with Workspace(folder / "workspace") as workspace:
        service = BatchService(workspace)
        number = service.plan(plan_from_text(text, folder / "plan.toml"))
        workspace.batches.approve(number, ahead=True)
        watch = _Watch(make, result)
        assert Engine(workspace, number, service.order(number), watch.pool, tell=watch.tell).run() == "done"
        counts = workspace.batches.counts(number)
        result.cases = counts["images"]["done"].number
        result.workers = {stage: sum(one.seconds for one in states.values()) for stage, states in counts.items()}
    return result


class _Watch:
    """Measures the time of each pass, and the memory during the pass."""

    def __init__(self, make: Callable[[Order], Any], run: Run) -> None:
        self._make, self._held = make, run
        self._began = 0.0
        self._stage: Pass = "captions"
        self._done = 0
        self._pool: Any = None

    def pool(self, order: Order) -> Any:
        """Start the workers and wait until they are ready. The time of the pass ends when the pool is closed."""
        self._pool = pool = self._make(order)
        while len(pool.processes) < pool.workers:
            pool.wait(0.1)
        close, self._began, self._done = pool.close, time.perf_counter(), 0

        def closed() -> None:
            self._held.seconds += time.perf_counter() - self._began
            self._look()
            close()

        pool.close = closed
        return pool

    def tell(self, stage: Pass, done: int) -> None:
        """Record the number of finished pieces of work of a pass."""
        self._stage, before = stage, self._done
        self._done += done
        if any(before < length <= self._done for length in LENGTHS):
            self._look()

    def _look(self) -> None:
        driver, sizes = psutil.Process().memory_info().rss, [0]
        seconds = time.perf_counter() - self._began
        for process in self._pool.processes:
            with suppress(psutil.Error):  # one may have ended in the meantime
                worker = psutil.Process(process)
                sizes.append(sum(one.memory_info().rss for one in (worker, *worker.children(recursive=True))))
        self._held.stamps.setdefault(self._stage, []).append(Stamp(self._done, seconds, driver, max(sizes)))


def pictures(root: Path, number: int, side: int) -> Path:
    """Write drawn objects into a folder for each class. Pictures of `SIDE` pixels or more get grain, like
    photographs.
    """
    for place in range(number):
        scene = random_scene(FIRST + place, "object")
        folder = root / scene.label
        folder.mkdir(parents=True, exist_ok=True)
        pixels = render(scene, side)[0] if side < SIDE else grained(FIRST + place, side)
        Image.fromarray(pixels).save(folder / f"{place:06}.png", compress_level=1)
    return root


def grained(number: int, side: int) -> Pixels:
    """Return a drawn object with grain, (side, side, 3)."""
    pixels = render(random_scene(number, "object"), side)[0].astype(np.float32)
    return (pixels + np.random.default_rng(number).normal(0, 4, pixels.shape)).clip(0, 255).astype(np.uint8)
