"""Batches of whole data sets: the speed of their database tables with a million sources, and the time that is lost by
distributing the work.

`python -m benchmarks.batches` runs this alone. Workers sleep and call no model, so that everything else is measured.
`benchmarks.lots` measures models that process several sources at once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from PIL import Image

from benchmarks.catalogue import timed
from benchmarks.figures import Comparison, Figure, reported
from core.batches import Done, Item, Lot, NewWork, ReadSource
from core.types import Caption, StageValue, Task, Trace
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import plan_from_text
from services.batches.planning import SOURCES_OF_A_LOT
from services.batches.pools import ProcessPool
from services.batches.service import BatchService
from storage.images import ImageFiles
from storage.workspace import IMAGES, Workspace

MILLION, PLANNED = 1_000_000, 125_000
STATUS, CLAIM, PLAN = 100.0, 25.0, 60_000.0
"""Maximum milliseconds: for the status of a batch, for giving some work to a worker, and for planning a batch."""
SLEEP = 0.05
"""Seconds that a simulated worker takes for a source."""
SOURCES = 320
OVERHEAD = 1.05
LINEAR = 0.95
_PLAN = """
name = "A benchmark"
data = { root = "/nowhere", layout = "folder" }
task = { kind = "classification", label = "bird" }
make = { profile = "demo", recipe = "reconstruction" }
"""


def measure() -> list[Figure | Comparison]:
    """Measure and return all figures."""
    with tempfile.TemporaryDirectory() as folder:
        return [*ledger(Path(folder) / "ledger"), *handing_out(Path(folder))]


def ledger(folder: Path, size: int = MILLION) -> Iterator[Figure]:
    """Measure planning, the status, and giving work to a worker, if the batch has `size` sources in the database."""
    with Workspace(folder) as workspace:
        batches, service = workspace.batches, BatchService(workspace)
        number = _batch(workspace, size)
        began = time.perf_counter()
        _planned(workspace, number, PLANNED)
        yield Figure(f"planning {PLANNED:,} sources", ((time.perf_counter() - began) * 1000,), PLAN)
        _planned(workspace, number, size)
        name = f", {size:,} in the ledger"
        yield timed(f"the status of a batch{name}", (partial(service.status, number) for _ in range(20)), STATUS)
        batches.hold(number)
        yield timed(f"leasing a lot{name}", (partial(batches.claim, number, "captions") for _ in range(50)), CLAIM)
        yield timed(f"the failures of a batch{name}", (partial(batches.failures, number) for _ in range(20)), STATUS)


def handing_out(folder: Path) -> Iterator[Comparison]:
    """Measure the share of a run's time that a worker spends on its work. The work is simulated: the worker sleeps."""
    for workers, least, what in ((2, 1 / OVERHEAD, "two workers"), (16, LINEAR, "sixteen workers")):
        ratios = []
        sources = SOURCES * workers // 2
        for number in range(3):
            with Workspace(folder / f"{workers}-{number}") as workspace:
                batch = _batch(workspace, sources)
                _planned(workspace, batch, sources)
                timing = _Timed(workers)
                Engine(workspace, batch, BatchService(workspace).order(batch), timing.pool).run()
                assert workspace.batches.counts(batch)["captions"]["done"].number == sources
                ratios.append(SLEEP * sources / workers / timing.seconds)
        words = f"{sources} sources of {SLEEP * 1000:.0f} ms each, asleep"
        yield Comparison(f"the work of {what} in the time that it took", tuple(ratios), least=least, words=words)


class _Timed:
    """Measures the seconds from when all workers are ready until the last result is recorded."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._began = 0.0
        self._pool: ProcessPool | None = None
        self.seconds = 0.0

    def pool(self, order: Order) -> ProcessPool:
        """Start the workers and wait until they are ready. The measured time ends when the pool is closed."""
        timed = self

        class Pool(ProcessPool):
            def close(self) -> None:
                timed.seconds = timed.seconds or time.perf_counter() - timed._began  # at the end of the first pass
                super().close()

        pool = Pool(order, self._workers, Sleeper)
        while len(pool.processes) < self._workers:
            pool.wait(0.1)
        self._began = time.perf_counter()
        return pool


class Sleeper:
    """A worker that sleeps as long as it would work."""

    def __init__(self, order: Order) -> None:
        files = ImageFiles(order.workspace / IMAGES)
        files.process = order.process
        self._image = files.save(Image.new("RGB", (16, 12)))

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Sleep, and return the same caption for each source."""
        time.sleep(SLEEP * len(lot.pieces))
        value = StageValue(Caption("A bird."), Trace("model", model="none"), "k")
        source = ReadSource(self._image, Task("classification", "bird"))
        return tuple(Done(piece.id, SLEEP, source=source, values={"caption": value}) for piece in lot.pieces)


def _batch(workspace: Workspace, size: int) -> int:
    plan = plan_from_text(_PLAN, Path("benchmark.toml"))
    number = workspace.batches.create("A benchmark", plan.toml_text(), plan.digest, "demo", "reconstruction", {}, 8)
    workspace.batches.add_sources(number, (Item(f"bird/{place:07}.png", "bird") for place in range(size)))
    workspace.batches.is_planned(number, ())
    return number


def _planned(workspace: Workspace, number: int, size: int) -> None:
    """Plan the captioning of sources until `size` are planned, as the engine of batches does."""
    batches, after, place = workspace.batches, 0, 0
    while place < size and (some := batches.sources(number, "captions", after, 512)):
        first = batches.next_lot(number, "captions")
        work = [
            NewWork(one.id, f"captions/{one.item.key}", first + at // SOURCES_OF_A_LOT, at % SOURCES_OF_A_LOT, at)
            for at, one in enumerate(some)
        ]
        batches.plan(number, "captions", work, {})
        after, place = some[-1].id, place + len(some)


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description="Measures whole data sets.")
    parser.parse_args()
    return reported(measure(), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    raise SystemExit(main())
