"""Whole data sets beside the models' own time: what a run costs over it, on processes and on Ray, at any length.

`python -m benchmarks.beside` runs this alone; `--part` picks parts of it, `--cases` and the like say how long. Where
models sleep, in the place of a GPU, the name of the figure says so; all others are the embedded models, two workers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from PIL import Image

from benchmarks.figures import Comparison, Figure, reported
from benchmarks.lots import parts_of
from benchmarks.reference import ReferenceWay, Spent
from demo.render import render
from demo.scene import random_scene
from pipeline.image_sections import ControlNetGenerator
from pipeline.lineage import Batch, Lineage
from pipeline.methods.controlnet import ControlNetSettings
from pipeline.profile import load_profile
from pipeline.seams import Drawn, OnStep, Wanted
from pipeline.settings import CaptionSettings, ControlKind, GenerationSettings
from pipeline.types import (
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    StageValue,
    Task,
    Trace,
)
from services.batches.beside import Unread
from services.batches.cluster import RayPool, on_ray
from services.batches.engine import Engine, Told
from services.batches.plan_file import plan_from_text
from services.batches.pools import Pool, ProcessPool
from services.batches.service import BatchService
from services.batches.work import Lot, Order, Worker
from storage.batch_types import Done, NewWork, Pass, ReadSource, SourceItem
from storage.test_cases import SavedCase
from storage.workspace import Workspace

WORKERS = 2
SLEEP = 0.25
"""Seconds that a sleeping model takes for an image, as a GPU takes for one of 512 pixels in 25 steps or so."""
SIDE = 512
ASLEEP = 64
"""Sources that are captioned asleep, and images that are drawn asleep."""
OVERHEAD, ON_RAY = 1.05, 1.1
CASES = 200
"""Test cases of the run whose seconds are looked at as it grows. The goal speaks of 10,000, which takes hours."""
LENGTHS = (100, 1_000, 10_000)
ALIKE = 1.05
STEADY = 1.1
"""Times as much memory at the end as at the first length: more would be a leak."""
RESUMED, RESUMES = 125_000, 10_000.0
"""Done before, and the milliseconds until the first new image then."""
TIMES = 5.0
"""Test cases a second by those of the reference's way."""
REFERENCE_CASES = 8
FIRST = 6_000_000
"""The number of the first scene."""

Pixels = NDArray[np.uint8]


def measure() -> list[Figure | Comparison]:
    """All of them, shortly."""
    return [figure for part in PARTS.values() for figure in part(Sizes())]


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    asleep: int = ASLEEP
    cases: int = CASES
    resumed: int = RESUMED
    steps: int = 2
    """Denoising steps of the growing run."""


# A GPU that sleeps


def asleep(sizes: Sizes) -> Iterator[Comparison]:
    """Sources read, captioned and drawn by models that sleep, and all else real: with helpers and without."""
    for helpers in (0, 1, 2):
        with tempfile.TemporaryDirectory() as folder:
            data = pictures(Path(folder) / "data", sizes.asleep, SIDE)
            held = run(data, Path(folder), partial(_of_one, helpers), {"generation.short_side": SIDE})
        slept, at_models = SLEEP * (sizes.asleep + held.cases), sum(held.workers.values())
        yield Comparison(
            f"asleep: a run with {helpers} helpers, by the sleep of its models",
            (held.seconds / slept,),
            most=OVERHEAD if helpers else 9.0,
            words=f"{sizes.asleep} sources of {SIDE} pixels, captioned and drawn in {SLEEP} s each, asleep: "
            f"{held.seconds:.1f} s, of which the models had {at_models:.1f} s, and slept {slept:.1f} s.",
        )


def _of_one(helpers: int, order: Order) -> ProcessPool:
    return ProcessPool(replace(order, helpers=helpers), 1, Sleeper)


class Sleeper:
    """The worker that there is, with models that sleep; what a language model would write is given."""

    def __init__(self, order: Order) -> None:
        models: Any = SleepingModels()
        self._worker = Worker(order, models)
        if helpers := self._worker._helpers:  # they come while real models are loaded
            asked = [helpers.load("", "", {}) for _ in range(order.helpers or 0)]
            assert all(isinstance(one(), Unread) for one in asked)
        _drawing()

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """As `Worker.do`."""
        if lot.stage != "language":
            return self._worker.do(lot)
        return tuple(Done(piece.id, values={"counterfactuals": _WRITTEN}) for piece in lot.pieces)


class SleepingModels:
    """A captioner and a generator that sleep as long as a GPU would work. Nothing measures likeness."""

    embedder: Any = None
    language: Any = None
    sentences: Any = None
    editor: Any = None

    def __init__(self) -> None:
        self.captioner, self.generator = SleepingCaptioner(), SleepingGenerator()

    def generator_name(self, kind: ControlKind) -> str:
        return self.generator.name

    def editor_name(self) -> str:
        return ""

    def detector(self, kind: ControlKind) -> Any:
        raise NotImplementedError("edges need no model")


class SleepingCaptioner:
    """Says the same of all."""

    name = "asleep"

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        time.sleep(SLEEP)
        return "A red bird.", ""


class SleepingGenerator:
    """Gives drawn scenes with grain, which are as hard to encode as photographs."""

    name = "asleep"

    def on(self, kind: ControlKind) -> SleepingGenerator:
        return self

    def preview(self) -> None:
        return None

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        return 8

    def reading_length(self, prompt: str) -> int:
        return 1

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        time.sleep(SLEEP)
        return Image.fromarray(np.roll(_drawing(), seed % SIDE, axis=1))

    def draw(
        self, wanted: Sequence[Wanted], size: int, control: Image.Image, settings: GenerationSettings, on_step: OnStep
    ) -> Sequence[Drawn]:
        return self.draw_lot(wanted, size, [control] * len(wanted), settings, on_step)

    def draw_lot(
        self,
        wanted: Sequence[Wanted],
        size: int,
        controls: Sequence[Image.Image],
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[Drawn]:
        return [
            Drawn(self.generate(one.prompt, control, settings, one.seed, on_step), Batch(size=size, place=one.place))
            for one, control in zip(wanted, controls, strict=True)
        ]


_EDITED = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))
_WRITTEN = StageValue(CounterfactualCaptions((_EDITED,)), Trace("model", model="none"), "k")


@cache
def _drawing() -> Pixels:
    return grained(0, SIDE)


# The embedded models


def overhead(sizes: Sizes) -> Iterator[Comparison]:
    """A run by the time of its models alone, which workers take themselves."""
    for where, most in (("processes", OVERHEAD), ("one Ray node", ON_RAY)):
        with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
            folder = Path(place)
            data = pictures(folder / "data", sizes.cases, 128)
            make: Callable[[Order], Pool] = partial(ProcessPool, workers=WORKERS, make=Timed)
            if where != "processes":
                stack.enter_context(on_ray(WORKERS))
                make = partial(RayPool, workers=WORKERS, make=Timed)
            held = run(data, folder, make, {})
        models = sum(held.workers.values()) / WORKERS
        parts = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in held.workers.items())
        yield Comparison(
            f"a run on {where}, by the time of its models",
            (held.seconds / models,),
            most=most,
            words=f"{held.cases} test cases of {sizes.cases} sources in {held.seconds:.1f} s from when the workers are "
            f"there; the models {models:.1f} s in each of {WORKERS} workers (in all {parts} s).",
        )


class Timed:
    """The worker that there is, its models loaded; the seconds of what it does are those of the models alone."""

    def __init__(self, order: Order) -> None:
        self._worker, self._spent = Worker(order), Spent()
        self._parts = parts_of(self._worker._models, self._spent)  # which loads them
        self._parts.__enter__()

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """As `Worker.do`."""
        before = self._models()
        done = self._worker.do(lot)
        each = (self._models() - before) / len(lot.pieces)
        return tuple(replace(one, seconds=each) for one in done)

    def _models(self) -> float:
        return sum(self._spent.parts.get(name, 0.0) for name in ("captions", "replies", "drawing"))


def growing(sizes: Sizes) -> Iterator[Comparison]:
    """One run: the seconds and the memory of a test case at its first hundred, thousand and so on."""
    lengths = [one for one in LENGTHS if one <= sizes.cases]
    if sizes.cases not in lengths:
        lengths.append(sizes.cases)
    with tempfile.TemporaryDirectory() as folder:
        data = pictures(Path(folder) / "data", sizes.cases, 128)
        settings = {"generation.steps": sizes.steps, "counterfactuals.captions": 1}
        held = run(data, Path(folder), partial(ProcessPool, workers=WORKERS, make=Ready), settings)
    first, last = lengths[0], lengths[-1]
    each = {length: held.each(length) for length in lengths}
    told = ", ".join(f"{1000 * seconds:.0f} ms at {length:,}" for length, seconds in each.items())
    yield Comparison(
        f"seconds a test case at {last:,}, by those at {first:,}",
        (each[last] / each[first],),
        most=ALIKE,
        words=f"{told}; {WORKERS} workers, {sizes.steps} denoising steps.",
    )
    for who in ("driver", "worker"):
        at = {length: getattr(held.stamp("images", length), who) for length in lengths}
        yield Comparison(
            f"memory of the {'driver' if who == 'driver' else 'largest worker'} at {last:,} test cases, by that at "
            f"{first:,}",
            (at[last] / at[first],),
            most=STEADY,
            words=", ".join(f"{size / 1e6:.0f} MB at {length:,}" for length, size in at.items()) + ".",
        )


def by_the_reference(sizes: Sizes) -> Iterator[Comparison]:
    """Test cases a second of a batch in processes, by those of the reference's way (`benchmarks.reference`), whose
    models take all cores for each test case.
    """
    profile = load_profile("demo")
    assert isinstance(profile.generator, ControlNetGenerator)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        data = pictures(folder / "data", max(16, sizes.cases // 5), 128)
        held = run(data, folder, partial(ProcessPool, workers=WORKERS, make=Ready), {}, captions=5)
        reference, theirs = ReferenceWay(profile, 0), Spent()
        files = sorted(data.rglob("*.png"))
        for number in range(-1, REFERENCE_CASES):
            file = files[number % len(files)]
            spent = theirs if number >= 0 else Spent()
            with spent.measured():
                task = Task("classification", file.parent.name)
                reference.test_case(file, task, profile.settings, folder / f"{number}.png", spent)
    ours = held.seconds / held.cases
    yield Comparison(
        "test cases a second of a batch in processes, by those of the reference's way",
        (theirs.each() / ours,),
        least=TIMES,
        words=f"{held.cases} test cases in {1000 * ours:.0f} ms each from when the workers are there; the reference's "
        f"{theirs.cases} in {1000 * theirs.each():.0f} ms each.",
    )


class Ready:
    """The worker that there is, its models loaded before it says that it is there."""

    def __init__(self, order: Order) -> None:
        self._worker = Worker(order)
        models = self._worker._models
        for name in ("captioner", "language", "generator", "embedder"):
            getattr(models, name)

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """As `Worker.do`."""
        return self._worker.do(lot)


# Going on after a stop


def resuming(sizes: Sizes) -> Iterator[Figure]:
    """The time from the command to the first new image, cold, where so many are done."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with Workspace(folder / "workspace") as workspace:
            number = almost_done(workspace, sizes.resumed)
        command = [sys.executable, "-m", "pipeline", "batch", "--workspace", str(folder / "workspace")]
        with open(folder / "said", "w+") as said, Workspace(folder / "workspace") as workspace:
            began = time.perf_counter()
            process = subprocess.Popen(
                [*command, "resume", str(number), "--workers", str(WORKERS)], stdout=said, stderr=said
            )
            try:
                while workspace.batches.counts(number)["images"]["done"].number <= sizes.resumed:
                    if process.poll() is not None:
                        said.seek(0)
                        raise RuntimeError(said.read())
                    time.sleep(0.02)
                taken = time.perf_counter() - began
            finally:
                process.terminate()
                process.wait()
    yield Figure(f"the first new image after `resume`, {sizes.resumed:,} done", (1000 * taken,), RESUMES)


def almost_done(workspace: Workspace, size: int, left: int = 32) -> int:
    """A batch that has so many images, all of one picture, and some to draw yet; its number."""
    text = _PLAN.format(data="/nowhere", settings='"generation.steps" = 4', captions="captions_a_source = 1")
    plan, held = plan_from_text(text, Path("benchmark.toml")), workspace.batches
    number = held.create("A benchmark", plan.toml_text(), plan.digest, "demo", plan.make.recipe, {}, 8)
    held.add_sources(number, (SourceItem(f"bird/{place:07}.png", "bird") for place in range(size + left)))
    held.is_planned(number, ())
    picture = workspace.images.save(Image.fromarray(render(random_scene(5, "object"), 128)[0]))
    task, caption = Task("classification", "bird"), StageValue(Caption("A red bird."), Trace("model"), "k")
    source = ReadSource(picture, task)
    lineage = Lineage(_EDITED, 1, "controlnet", "none", "A blue bird.", "", ControlNetSettings(), 0.0)
    values: dict[Pass, Any] = {
        "captions": {"source": source, "values": {"caption": caption}},
        "language": {"values": {"counterfactuals": _WRITTEN}},
        "images": {"case": SavedCase(lineage, (), picture, {})},
    }
    after = 0
    while some := held.sources(number, None, after, 2_000):
        for stage in values:
            first = held.next_lot(number, stage)
            edited = _EDITED if stage == "images" else None
            held.plan(
                number,
                stage,
                [
                    NewWork(one.id, f"{stage}/{one.item.key}", first + at // 8, at % 8, one.id, edited)
                    for at, one in enumerate(some)
                ],
            )
        after = some[-1].id
    for stage, made in values.items():
        goes, done = True, 0
        while goes and (claimed := held.claim(number, stage)):
            goes = stage != "images" or done < size
            if goes:
                held.record(number, [Done(one.id, 0.1, **made) for one in claimed], 3)
                done += len(claimed)
            else:
                held.give_back([one.id for one in claimed])
        held.go_on(number, stage)
    held.approve(number)
    return number


# A run


_PLAN = """
name = "A benchmark"
data = {{ root = "{data}", layout = "imagefolder" }}
task = {{ kind = "classification" }}
edits = {{ {captions} }}
make = {{ profile = "demo", seed = 1, settings = {{ {settings} }} }}
"""


@dataclass(frozen=True)
class Stamp:
    """How a run stood at a moment."""

    done: int
    """Of its pass."""
    seconds: float
    """Since the workers of the pass were there."""
    driver: int
    """Bytes of memory of the process that drives."""
    worker: int
    """Of the largest worker, with what it has started."""


@dataclass
class Run:
    """What a run took."""

    seconds: float = 0.0
    """From when the workers of a pass are there to its end, all passes."""
    cases: int = 0
    workers: dict[Pass, float] = field(default_factory=dict)
    """Seconds of workers, by pass, as they tell them."""
    stamps: dict[Pass, list[Stamp]] = field(default_factory=dict)
    """At those lengths that are looked at, and at the end."""

    def stamp(self, stage: Pass, length: int) -> Stamp:
        """When so much was done of a pass; where it never was so much, at its end."""
        stamps = self.stamps[stage]
        return next((one for one in stamps if one.done >= length), stamps[-1])

    def each(self, length: int) -> float:
        """Seconds of a test case of the first so many, through all passes."""
        at = [self.stamp(stage, length) for stage in self.stamps]
        return sum(one.seconds / one.done for one in at)


def run(data: Path, folder: Path, make: Callable[[Order], Any], settings: Mapping[str, int], captions: int = 1) -> Run:
    """A folder of images made into test cases, so many of each."""
    held = Run()
    given = ", ".join(f'"{name}" = {value}' for name, value in settings.items())
    text = _PLAN.format(data=data, settings=given, captions=f"captions_a_source = {captions}")
    with Workspace(folder / "workspace") as workspace:
        service = BatchService(workspace)
        number = service.plan(plan_from_text(text, folder / "plan.toml"))
        workspace.batches.approve(number, ahead=True)
        watch = _Watch(make, held)
        assert Engine(workspace, number, service.order(number), watch.pool, tell=watch.tell).run() == "done"
        counts = workspace.batches.counts(number)
        held.cases = counts["images"]["done"].number
        held.workers = {stage: sum(one.seconds for one in states.values()) for stage, states in counts.items()}
    return held


class _Watch:
    """Takes the time of each pass, and looks at the memory on the way."""

    def __init__(self, make: Callable[[Order], Any], held: Run) -> None:
        self._make, self._held = make, held
        self._began = 0.0
        self._stage: Pass = "captions"
        self._done = 0
        self._pool: Any = None

    def pool(self, order: Order) -> Any:
        """The workers, once they answer. The time of the pass ends when they are let go."""
        self._pool = pool = self._make(order)
        if isinstance(pool, ProcessPool):
            pool.ready()
        else:
            while len(pool.processes) < WORKERS:
                pool.wait(0.1)
        close, self._began, self._done = pool.close, time.perf_counter(), 0

        def closed() -> None:
            self._held.seconds += time.perf_counter() - self._began
            self._look()
            close()

        pool.close = closed
        return pool

    def tell(self, told: Told) -> None:
        """Something was done."""
        self._stage, before = told.stage, self._done
        self._done += told.done
        if any(before < length <= self._done for length in LENGTHS):
            self._look()

    def _look(self) -> None:
        driver, sizes = psutil.Process().memory_info().rss, [0]
        seconds = time.perf_counter() - self._began
        for process in self._pool.processes:
            with suppress(psutil.Error):  # one may have ended meanwhile
                worker = psutil.Process(process)
                sizes.append(sum(one.memory_info().rss for one in (worker, *worker.children(recursive=True))))
        self._held.stamps.setdefault(self._stage, []).append(Stamp(self._done, seconds, driver, max(sizes)))


def pictures(root: Path, number: int, side: int) -> Path:
    """A folder of drawn things, a folder a class; large ones have the grain of photographs."""
    for place in range(number):
        scene = random_scene(FIRST + place, "object")
        folder = root / scene.label
        folder.mkdir(parents=True, exist_ok=True)
        pixels = render(scene, side)[0] if side < SIDE else grained(FIRST + place, side)
        Image.fromarray(pixels).save(folder / f"{place:06}.png", compress_level=1)
    return root


def grained(number: int, side: int) -> Pixels:
    """A drawn thing with grain, (side, side, 3)."""
    pixels = render(random_scene(number, "object"), side)[0].astype(np.float32)
    return (pixels + np.random.default_rng(number).normal(0, 4, pixels.shape)).clip(0, 255).astype(np.uint8)


PARTS: Mapping[str, Callable[[Sizes], Iterator[Figure | Comparison]]] = {
    "asleep": asleep,
    "overhead": overhead,
    "growing": growing,
    "resuming": resuming,
    "reference": by_the_reference,
}


def main() -> int:
    """The exit code: 1 when a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description="Whole data sets, beside models.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be given several times")
    own = Sizes()
    parser.add_argument("--asleep", type=int, default=own.asleep, help=f"sources of models that sleep ({own.asleep})")
    parser.add_argument("--cases", type=int, default=own.cases, help=f"test cases of a run ({own.cases})")
    parser.add_argument("--steps", type=int, default=own.steps, help=f"of an image of the growing run ({own.steps})")
    parser.add_argument("--resumed", type=int, default=own.resumed, help=f"images before `resume` ({own.resumed})")
    options = parser.parse_args()
    sizes = Sizes(options.asleep, options.cases, options.resumed, options.steps)
    figures = [figure for name in options.part or PARTS for figure in PARTS[name](sizes)]
    return reported(figures, f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    from benchmarks import beside  # what workers are given must have a name that they find too

    raise SystemExit(beside.main())
