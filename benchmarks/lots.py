"""Compare the speed of the demo's models in lots and in `Driver.run`, and measure each part of the work. `Driver.run`
processes one source after another, and draws all images of a source together. In a lot (`pipeline.lots`), captions and
images of several sources share batches. All images of a batch have the same size.

Sources are drawn scenes. Each source gets few captions, as in a whole data set. `Driver.run` and lots make the same
captions and write no files. The time for PNG files is measured separately. Lots are also measured in two processes with
one thread each. Each process has its own models.

`python -m benchmarks.lots` runs only this benchmark. Models are warm. Lots and `Driver.run` are measured in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, cast
from unittest import mock

from PIL import Image

from benchmarks.figures import Comparison, reported
from benchmarks.reference import Spent, settings_of
from core.images import png_of
from core.types import Task
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, random_scene
from pipeline.driver import Driver, SourceWork
from pipeline.lots import draw, run_stages
from pipeline.methods import controlnet, drawing
from pipeline.methods.base import Preparations
from pipeline.models import load_models
from pipeline.models.embedder import Clip
from pipeline.models.generator import StableDiffusion
from pipeline.models.machine import share_cores
from pipeline.profiles.profile import load_profile
from pipeline.request import MemoryStore, Request
from pipeline.seams import Models
from pipeline.stages import generation

SOURCES = 24
CAPTIONS = 2
ROUNDS = 3
PROCESSES = 2
FIRST = 4_000_000
"""Seed of the first scene."""
LEAST, AIM = 1.3, 2.5
"""Minimum and goal for a ratio: test cases per second in lots, divided by test cases per second without lots."""


@dataclass
class Way:
    """One way to process the sources, such as one after another, with the times of its rounds."""

    name: str
    rounds: list[Spent] = field(default_factory=list)
    png: list[float] = field(default_factory=list)
    """Seconds to write each round's images as PNG files, which the times of `rounds` do not include."""

    def told(self) -> str:
        """Return in words the median milliseconds per test case: the total time, and the time of each part."""
        each = 1000 * statistics.median(one.each() for one in self.rounds)
        cpu = 1000 * statistics.median(one.each_cpu(checks=True) for one in self.rounds)
        parts = [
            f"{name} {1000 * statistics.median(one.parts[name] / one.cases for one in self.rounds):.0f}"
            for name in self.rounds[0].parts
        ]
        if self.png:
            files = statistics.median(png / one.cases for png, one in zip(self.png, self.rounds, strict=True))
            parts.append(f"and {1000 * files:.0f} more if PNG files were written")
        return f"{self.name} {each:.0f} ms each ({', '.join([f'{cpu:.0f} ms of processors', *parts])})"


def measure(
    rounds: int = ROUNDS,
    sources: int = SOURCES,
    captions: int = CAPTIONS,
    models: Models | None = None,
    warm_up: int = 1,
) -> list[Comparison]:
    """Compare the speed in lots, in one process and in two processes, with the speed of one source after another.
    `models` are loaded models of the profile `demo`, or None to load them. `warm_up` more rounds do not count.
    """
    share_cores()
    profile = load_profile("demo")
    driver = Driver(profile, models or load_models(profile))
    one_at_a_time, lots, two = (
        Way("one after another"),
        Way("in lots"),
        Way(f"in lots, {PROCESSES} processes of one thread"),
    )
    with workers(sources, captions) as drawn_there:
        for number in range(warm_up + rounds):
            counts = number >= warm_up
            for way, run in ((one_at_a_time, one_by_one), (lots, in_lots)):
                works, spent = scene_works(driver, range(sources), captions, number), Spent()
                forget(driver)
                with parts_of(driver.models, spent), spent.measured():
                    works = run(driver, works)
                images = [case.image for work in works for case in cases(work)]
                spent.cases = len(images)
                if counts:
                    way.rounds.append(spent)
                    way.png.append(timed(lambda images=images: [png_of(one) for one in images]))  # type: ignore[misc]
            spent = Spent()
            spent.seconds, spent.cases, spent.cpu = drawn_there(number)
            if counts:
                two.rounds.append(spent)
    words = f"{sources} drawn scenes, {captions} captions of each: {one_at_a_time.told()}; {lots.told()}."
    return [
        Comparison(
            "test cases per second in lots, by those of one source after another",
            tuple(one.each() / lot.each() for one, lot in zip(one_at_a_time.rounds, lots.rounds, strict=True)),
            tuple(one.each_cpu() / lot.each_cpu() for one, lot in zip(one_at_a_time.rounds, lots.rounds, strict=True)),
            least=LEAST,
            aim=AIM,
            words=words,
        ),
        Comparison(
            f"the same in {PROCESSES} processes with one thread each",
            tuple(one.each() / lot.each() for one, lot in zip(one_at_a_time.rounds, two.rounds, strict=True)),
            tuple(one.each_cpu() / lot.each_cpu() for one, lot in zip(one_at_a_time.rounds, two.rounds, strict=True)),
            least=LEAST,
            aim=AIM,
            words=f"{two.told()}.",
        ),
    ]


# Ways to process the sources


def one_by_one(driver: Driver, works: Sequence[SourceWork]) -> list[SourceWork]:
    """Process the sources one after another. Each goes from its image to its test cases."""
    for work in works:
        driver.run(replace(work.request, images=None), work.store)
    return list(works)


def in_lots(driver: Driver, works: Sequence[SourceWork]) -> list[SourceWork]:
    """Run the text stages of all sources, then draw the images of all."""
    ended = [error for error in run_stages(driver, works) if error is not None]
    if ended:
        raise ended[0]
    planned = [with_images(work) for work in works]
    draw(driver, planned)
    return planned


def with_images(work: SourceWork) -> SourceWork:
    """Return the work on a source with a list of the images to draw for its captions."""
    captions = work.store.values()["counterfactuals"].value
    images = generation.plan(captions, work.request.settings.generation, work.request.seed).images
    return replace(work, request=replace(work.request, stages=(), images=images))


def scene_works(driver: Driver, numbers: Sequence[int], captions: int, number: int) -> list[SourceWork]:
    """Return the work on drawn scenes, alternately a road and an object. Each round `number` has other scenes."""
    settings, works = settings_of(driver.profile, captions), list[SourceWork]()
    for at in numbers:
        scene = random_scene(FIRST + 1000 * number + at, "object" if at % 2 else "road")
        road = scene.family == "road"
        task = Task("segmentation", protected=PROTECTED_ROAD_CLASSES) if road else Task("classification", scene.label)
        request = Request(task, settings, seed=at, images=(), watched=False)
        works.append(SourceWork(request, MemoryStore(Image.fromarray(render(scene)[0]))))
    return works


def cases(work: SourceWork) -> Sequence[Any]:
    """Return the test cases that the work on a source made."""
    assert isinstance(work.store, MemoryStore)
    return work.store.cases


def forget(driver: Driver) -> None:
    """Empty the caches of driver and models, so that each way of drawing computes every text and image again."""
    driver.preparations = Preparations()
    # The casts let mypy report a renamed attribute.
    cast(Clip, driver.models.embedder)._known._kept.clear()
    cast(StableDiffusion, driver.models.generator)._texts._kept.clear()


# Time of each part of the work


@contextmanager
def parts_of(models: Models, spent: Spent) -> Iterator[None]:
    """Add the seconds that each part of the work takes in this context to `spent`. Drawing includes decoding."""
    generator = cast(StableDiffusion, models.generator)

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            with spent.part(name):
                return call(*arguments, **more)

        return run

    named: list[tuple[str, Any, str]] = [
        ("captions", models.captioner, "caption"),
        ("captions", models.captioner, "caption_many"),
        ("replies", models.language, "complete"),
        ("control images", controlnet, "control_image"),
        ("drawing", type(generator), "_draw"),
        ("of which decoding", generator._pipe.vae, "decode"),
        ("checks", drawing, "image_checks"),
    ]
    with ExitStack() as stack:
        for name, owner, method in named:
            stack.enter_context(mock.patch.object(owner, method, counted(name, getattr(owner, method))))
        yield


def timed(do: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


# Several processes


@contextmanager
def workers(sources: int, captions: int) -> Iterator[Callable[[int], tuple[float, int, float]]]:
    """Yield a function that makes a round's test cases in several processes, each with one thread, its own models and
    its part of the sources. It returns the seconds, the number of test cases, and the processor seconds.
    """
    context, pipes = get_context("spawn"), list[Connection]()
    processes = []
    try:
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work_off, args=(theirs, range(number, sources, PROCESSES), captions), daemon=True
            )
            process.start()
            pipes.append(ours)
            processes.append(process)

        def run_round(number: int) -> tuple[float, int, float]:
            began = time.perf_counter()
            for pipe in pipes:
                pipe.send(number)
            results = [pipe.recv() for pipe in pipes]
            return time.perf_counter() - began, sum(count for count, _ in results), sum(cpu for _, cpu in results)

        yield run_round
    finally:
        for pipe in pipes:
            with suppress(OSError):  # the process has ended already
                pipe.send(None)
        for process in processes:
            process.join()


def work_off(pipe: Connection, numbers: Sequence[int], captions: int) -> None:
    """Run a worker process. It does its part of each round whose number arrives in `pipe`, until None arrives."""
    share_cores()
    import torch

    torch.set_num_threads(1)
    profile = load_profile("demo")
    driver = Driver(profile, load_models(profile))
    while (number := pipe.recv()) is not None:
        works, spent = scene_works(driver, numbers, captions, number), Spent()
        with spent.measured():
            works = in_lots(driver, works)
        pipe.send((sum(len(cases(work)) for work in works), spent.cpu))


def main() -> int:
    """Measure, print the table, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lots", description="Many sources at once.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"each way is taken so often ({ROUNDS})")
    parser.add_argument("--sources", type=int, default=SOURCES, help=f"source images of a round ({SOURCES})")
    options = parser.parse_args()
    return reported(measure(options.rounds, options.sources))


if __name__ == "__main__":
    raise SystemExit(main())
