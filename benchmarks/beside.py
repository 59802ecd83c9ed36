"""Overhead of batches: the time of a run, divided by the time that its models work.

`python -m benchmarks.beside` runs this alone. Options select parts and set their sizes. Figures named "asleep" use
simulated models, which sleep as long as a GPU would work. All other figures use the embedded models and two workers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.asleep import EDITED, WRITTEN, asleep
from benchmarks.figures import Comparison, Figure, reported
from benchmarks.reference import ReferenceWay, Spent
from benchmarks.runs_of_batches import LENGTHS, PLAN, pictures, run
from core.batches import Done, Item, Lot, NewWork, Pass, ReadSource
from core.lineage import Lineage
from core.stored_runs import SavedCase
from core.types import Caption, StageValue, Task, Trace
from demo.render import render
from demo.scene import random_scene
from pipeline.methods.controlnet import ControlNetSettings
from pipeline.profiles.image_sections import ControlNetGenerator
from pipeline.profiles.profile import load_profile
from services.batches.cluster import RayPool, on_ray
from services.batches.io_workers import Order
from services.batches.plan_file import plan_from_text
from services.batches.pools import Pool, ProcessPool
from services.batches.work import Worker
from storage.workspace import Workspace

WORKERS = 2
ASLEEP = 64
"""Number of sources in the part "asleep". Simulated models write one caption and draw one image for each source."""
MOST, AIM = 1.1, {"processes": 1.05, "one Ray node": 1.1}
"""Longest acceptable time of a run relative to its models' time, and the goal by kind of workers."""
CASES = 208
"""Default number of test cases of a run. The goals are for 10,000 test cases, which take a quarter of an hour."""
ALIKE = 1.05
STEADY = 1.1
"""Maximum memory at the end of a run, relative to the memory after a hundred test cases. More would be a leak."""
RESUMED, RESUMES = 125_000, 10_000.0
"""Number of finished images when `resume` starts, and maximum milliseconds from this start to a new image."""
TIMES, TIMES_AIM = 2.0, 5.0
"""Minimum rate of test cases, as a multiple of the reference's, and the goal (also a multiple).

Two CPU cores cannot reach the goal, since drawing alone takes two thirds of the time. The ratio also depends on the
processor: with the same code it was 3.0 on one kind, and 2.1 to 2.4 on another."""
OF_A_SOURCE = 5
"""Number of test cases per source, as in the paper."""
REFERENCE_CASES = 8
"""Number of measured test cases of the reference. An additional first one only warms up."""
TOGETHER = 2_000
"""Number of sources whose database rows are written together."""
ASKED = ("caption", "caption_many", "complete", "complete_many", "image", "images", "text", "texts", "vectors")
"""Names of the models' methods whose time is measured."""


def measure(large: bool = False) -> list[Figure | Comparison]:
    """Measure all parts. `large` takes minutes longer: `resume` is then measured in a run with `RESUMED` images."""
    sizes = Sizes(resumed=RESUMED if large else RESUMED // 25)
    return [figure for part in PARTS.values() for figure in part(sizes)]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements."""

    asleep: int = ASLEEP
    cases: int = CASES
    resumed: int = RESUMED
    steps: int = 2
    """Number of denoising steps in the measurement `growing`."""


# The embedded models


def overhead(sizes: Sizes) -> Iterator[Comparison]:
    """Measure the time of a run relative to the time that its models work, as the workers record it."""
    for where, aim in AIM.items():
        with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
            folder = Path(place)
            data = pictures(folder / "data", sizes.cases, 128)
            make: Callable[[Order], Pool] = partial(ProcessPool, workers=WORKERS, make=Timed)
            if where != "processes":
                stack.enter_context(on_ray(WORKERS))
                make = partial(RayPool, workers=WORKERS, make=Timed)
            done = run(data, folder, make, {})
        models = sum(done.workers.values()) / WORKERS
        parts = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in done.workers.items())
        yield Comparison(
            f"a run on {where}, by the time of its models",
            (done.seconds / models,),
            most=MOST,
            aim=aim,
            words=f"{done.cases} test cases of {sizes.cases} sources in {done.seconds:.1f} s from when the workers are "
            f"there; the models {models:.1f} s in each of {WORKERS} workers (in all {parts} s).",
        )


class Timed:
    """A real worker with loaded models. It reports only the seconds in which its models work."""

    def __init__(self, order: Order) -> None:
        self._worker = Worker(order)
        self._within, self._seconds = False, 0.0
        models: Any = self._worker._models
        for model in (models.captioner, models.language, models.embedder, models.sentences):
            for name in ASKED:
                if (call := getattr(model, name, None)) is not None:
                    setattr(model, name, self._timed(call))
        drawing = type(models.generator)  # copies of it draw on each kind of control image
        drawing._draw = self._timed(drawing._draw)

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Do the work of a lot (several pieces of work for one worker), and return the results, like `Worker.do`."""
        before = self._seconds
        done = self._worker.do(lot)
        each = (self._seconds - before) / len(lot.pieces)
        return tuple(replace(one, seconds=each) for one in done)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **more: Any) -> Any:
            if self._within:  # a model's method that calls another one
                return call(*arguments, **more)
            self._within, began = True, time.perf_counter()
            try:
                return call(*arguments, **more)
            finally:
                self._within = False
                self._seconds += time.perf_counter() - began

        return timed


def growing(sizes: Sizes) -> Iterator[Comparison]:
    """Run a batch with five test cases per source. Compare the seconds per test case, the seconds per source and the
    memory at the end with the same figures early in the batch, such as after 100 test cases.
    """
    lengths = [*_up_to(sizes.cases), sizes.cases]
    sources = sizes.cases // OF_A_SOURCE
    with tempfile.TemporaryDirectory() as folder:
        data = pictures(Path(folder) / "data", sources, 128)
        settings = {"generation.steps": sizes.steps, "counterfactuals.captions": 1}
        ready = partial(ProcessPool, workers=WORKERS, make=Ready)
        result = run(data, Path(folder), ready, settings, seeds=OF_A_SOURCE)
    first, last = lengths[0], lengths[-1]
    text: tuple[Pass, ...] = ("captions", "language")
    for what, stages, until in (("test case", ("images",), lengths), ("source", text, [*_up_to(sources), sources])):
        each = {length: result.each(length, stages) for length in until}
        times = ", ".join(f"{1000 * seconds:.0f} ms at {length:,}" for length, seconds in each.items())
        yield Comparison(
            f"seconds of a {what} at {until[-1]:,}, by those at {until[0]:,}",
            (each[until[-1]] / each[until[0]],),
            most=ALIKE,
            words=f"{times}; {WORKERS} workers, {sizes.steps} denoising steps.",
        )
    for who in ("driver", "worker"):
        at = {length: getattr(result.stamp("images", length), who) for length in lengths}
        yield Comparison(
            f"memory of the {'driver' if who == 'driver' else 'largest worker'} at {last:,} test cases, by that at "
            f"{first:,}",
            (at[last] / at[first],),
            most=STEADY,
            words=", ".join(f"{size / 1e6:.0f} MB at {length:,}" for length, size in at.items()) + ".",
        )


def _up_to(number: int) -> list[int]:
    return [one for one in LENGTHS if one < number]


def by_the_reference(sizes: Sizes) -> Iterator[Comparison]:
    """Measure how many test cases per second the worker processes of a batch make, relative to `benchmarks.reference`.
    The reference makes one test case after another, and uses all cores for each.
    """
    profile = load_profile("demo")
    assert isinstance(profile.generator, ControlNetGenerator)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        settings = {"counterfactuals.captions": OF_A_SOURCE}
        data = pictures(folder / "data", max(4, sizes.cases // OF_A_SOURCE), 128)
        done = run(data, folder, partial(ProcessPool, workers=WORKERS, make=Ready), settings, OF_A_SOURCE)
        reference, theirs = ReferenceWay(profile, 0), Spent()
        files = sorted(data.rglob("*.png"))
        for number in range(-1, REFERENCE_CASES):
            file = files[number % len(files)]
            spent = theirs if number >= 0 else Spent()
            with spent.measured():
                task = Task("classification", file.parent.name)
                reference.test_case(file, task, profile.settings, folder / f"{number}.png", spent)
    ours = done.seconds / done.cases
    yield Comparison(
        "test cases per second of a batch in processes, by those of the reference's way",
        (theirs.each() / ours,),
        least=TIMES,
        aim=TIMES_AIM,
        words=f"{done.cases} test cases in {1000 * ours:.0f} ms each from when the workers are there; the reference's "
        f"{theirs.cases} in {1000 * theirs.each():.0f} ms each.",
    )


class Ready:
    """A real worker that loads its models before it counts as ready."""

    def __init__(self, order: Order) -> None:
        self._worker = Worker(order)
        models = self._worker._models
        for name in ("captioner", "language", "generator", "embedder"):
            getattr(models, name)

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Do the work of a lot (several pieces of work for one worker), and return the results, like `Worker.do`."""
        return self._worker.do(lot)


# Resuming after a stop


def resuming(sizes: Sizes) -> Iterator[Figure]:
    """Measure the time from the command `resume` to the first new image, for a batch with many finished images."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with Workspace(folder / "workspace") as workspace:
            number = almost_done(workspace, sizes.resumed)
        command = [sys.executable, "-m", "pipeline", "batch", "--workspace", str(folder / "workspace")]
        with open(folder / "said", "w+") as log, Workspace(folder / "workspace") as workspace:
            began = time.perf_counter()
            process = subprocess.Popen(
                [*command, "resume", str(number), "--workers", str(WORKERS)], stdout=log, stderr=log
            )
            try:
                while workspace.batches.counts(number)["images"]["done"].number <= sizes.resumed:
                    if process.poll() is not None:
                        log.seek(0)
                        raise RuntimeError(log.read())
                    time.sleep(0.1)  # each count takes some milliseconds of a core
                taken = time.perf_counter() - began
            finally:
                process.terminate()
                process.wait()
    yield Figure(f"the first new image after `resume`, {sizes.resumed:,} done", (1000 * taken,), RESUMES)


def almost_done(workspace: Workspace, size: int, left: int = 32) -> int:
    """Create a batch with `size` finished images, all of one picture, and `left` images to draw. Return its number."""
    text = PLAN.format(data="/nowhere", settings='"generation.steps" = 4', captions="captions_a_source = 1")
    plan, batches = plan_from_text(text, Path("benchmark.toml")), workspace.batches
    number = batches.create("A benchmark", plan.toml_text(), plan.digest, "demo", plan.make.recipe, {}, 8)
    batches.add_sources(number, (Item(f"bird/{place:07}.png", "bird") for place in range(size + left)))
    batches.is_planned(number, ())
    picture = workspace.images.save(Image.fromarray(render(random_scene(5, "object"), 128)[0]))
    task, caption = Task("classification", "bird"), StageValue(Caption("A red bird."), Trace("model"), "k")
    source = ReadSource(picture, task)
    lineage = Lineage(EDITED, 1, "controlnet", "none", "A blue bird.", "", ControlNetSettings(), 0.0)
    values: dict[Pass, Any] = {
        "captions": {"source": source, "values": {"caption": caption}},
        "language": {"values": {"counterfactuals": WRITTEN}},
        "images": {"case": SavedCase(lineage, (), picture, {})},
    }
    after = work = 0
    while some := batches.sources(number, None, after, TOGETHER):
        for stage, made in values.items():
            first, edited = batches.next_lot(number, stage), EDITED if stage == "images" else None
            new_work = [
                NewWork(one.id, f"{stage}/{one.item.key}", first + at // 8, at % 8, one.id, edited)
                for at, one in enumerate(some)
            ]
            batches.plan(number, stage, new_work, {})
            # The ledger was empty: its numbers run from 1.
            done = [Done(work + at, 0.1, **made) for at, one in enumerate(some, 1) if one.id <= size or not edited]
            batches.record(number, done, tries=3)
            work += len(new_work)
        after = some[-1].id
    batches.go_on(number, "images")
    batches.approve(number)
    return number


PARTS: Mapping[str, Callable[[Sizes], Iterator[Figure | Comparison]]] = {
    "asleep": lambda sizes: asleep(sizes.asleep),
    "overhead": overhead,
    "growing": growing,
    "resuming": resuming,
    "reference": by_the_reference,
}


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description="Whole data sets, beside models.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be given several times")
    base = Sizes()
    parser.add_argument("--asleep", type=int, default=base.asleep, help=f"sources of models that sleep ({base.asleep})")
    parser.add_argument("--cases", type=int, default=base.cases, help=f"test cases of a run ({base.cases})")
    parser.add_argument("--steps", type=int, default=base.steps, help=f"of an image of the growing run ({base.steps})")
    parser.add_argument("--resumed", type=int, default=base.resumed, help=f"images before `resume` ({base.resumed})")
    options = parser.parse_args()
    sizes = Sizes(options.asleep, options.cases, options.resumed, options.steps)
    figures = [figure for name in options.part or PARTS for figure in PARTS[name](sizes)]
    return reported(figures, f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    from benchmarks import beside  # workers must be able to import the classes that they receive by name

    raise SystemExit(beside.main())
