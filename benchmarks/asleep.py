"""Batches on a simulated GPU: models sleep as long as a GPU would work, and everything else is real.

Measures how much longer a run takes than its models sleep, with helper processes and without. `benchmarks.beside` runs
it as one of its parts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.figures import Comparison
from benchmarks.runs_of_batches import SIDE, Pixels, grained, pictures, run
from core.batches import Done, Lot, SourceRun
from core.lineage import DrawnBatch
from core.settings import CaptionSettings, ControlKind, GenerationSettings
from core.types import CounterfactualCaption, CounterfactualCaptions, Edit, StageValue, Task, Trace
from pipeline.seams import DrawnImage, DrawRequest, OnStep
from services.batches.io_workers import FileWork, Order, UnreadSource
from services.batches.pools import ProcessPool
from services.batches.work import Worker

SLEEP = 0.25
"""Seconds that a model sleeps per image: a GPU's time for 512 pixels and about 25 steps."""
MOST, AIM, WITHOUT = 1.1, 1.05, 9.0
"""Run time divided by the time that models sleep. With helper processes: maximum and goal. Without helpers: maximum."""
HELPERS = (0, 1, 2)
EDITED = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))
WRITTEN = StageValue(CounterfactualCaptions((EDITED,)), Trace("model", model="none"), "k")
"""Captions that the simulated language model returns for every source."""


def asleep(sources: int) -> Iterator[Comparison]:
    """Measure a run with simulated models, which sleep, for each number of helper processes in `HELPERS`."""
    for helpers in HELPERS:
        with tempfile.TemporaryDirectory() as folder:
            data = pictures(Path(folder) / "data", sources, SIDE)
            # A sleeping model cannot invert a source.
            settings = {"generation.short_side": SIDE, "generation.start": '"noise"'}
            result = run(data, Path(folder), partial(_of_one, helpers), settings)
        slept, at_models = SLEEP * (sources + result.cases), sum(result.workers.values())
        yield Comparison(
            f"asleep: a run with {helpers} helpers, by the sleep of its models",
            (result.seconds / slept,),
            most=MOST if helpers else WITHOUT,
            aim=AIM if helpers else 0.0,
            words=f"{sources} sources of {SIDE} pixels, captioned and drawn in {SLEEP} s each, asleep: "
            f"{result.seconds:.1f} s, of which the models had {at_models:.1f} s, and slept {slept:.1f} s.",
        )


def _of_one(helpers: int, order: Order) -> ProcessPool:
    return ProcessPool(replace(order, helpers=helpers), 1, Sleeper)


class Sleeper:
    """A real worker whose models only sleep, and whose language model always gives the same reply."""

    def __init__(self, order: Order) -> None:
        models: Any = SleepingModels()
        self._worker = Worker(order, models)
        # Helper processes start while real models are loaded.
        loading = [
            self._worker._io.submit(FileWork.load, SourceRun("", (0, 0), "", {}, {})) for _ in range(order.helpers or 0)
        ]
        assert all(isinstance(one(), UnreadSource) for one in loading)
        _drawing()

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Do the work of a lot (several pieces of work for one worker), and return the results, like `Worker.do`."""
        if lot.stage != "language":
            return self._worker.do(lot)
        return tuple(Done(piece.id, values={"counterfactuals": WRITTEN}) for piece in lot.pieces)


class SleepingModels:
    """A captioner and a generator that sleep as long as a GPU would work. There is no embedder."""

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
    """Writes the same caption for every image."""

    name = "asleep"

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        time.sleep(SLEEP)
        return "A red bird.", ""


class SleepingGenerator:
    """Returns drawn scenes with added grain, which makes them as hard to encode as photographs."""

    name = "asleep"

    def on(self, kind: ControlKind) -> SleepingGenerator:
        return self

    def preview(self) -> None:
        return None

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        return 8

    def reading_length(self, prompt: str) -> int:
        return 1

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        found = []
        for one in requests:
            time.sleep(SLEEP)
            image = Image.fromarray(np.roll(_drawing(), one.seed % SIDE, axis=1))
            found.append(DrawnImage(image, DrawnBatch(size=size, place=one.place)))
        return found


@cache
def _drawing() -> Pixels:
    return grained(0, SIDE)
