"""How fast this machine draws: recalled from what was made in this workspace, else tried out while nobody waits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from PIL import Image
from pydantic import ValidationError

from pipeline.conditioning import NamedMask
from pipeline.errors import Cancelled
from pipeline.settings import GenerationSettings
from pipeline.speed import effort_of
from pipeline.types import CounterfactualCaption, Task
from ui.studio import Studio

PROBING = "seeing how fast this machine draws"
PROBE_STEPS = 4
RECALLED_RUNS = 20
RECALLED_IMAGES = 10
"""Of each run, the latest ones."""


def recall(studio: Studio) -> None:
    """Take over what the images in the workspace took, each with its size and steps; the latest count most."""
    for summary in reversed(studio.workspace.runs(RECALLED_RUNS)):
        if not summary.test_cases or summary.profile != studio.profile.name:
            continue
        run = studio.workspace.run(summary.id)
        size = studio.size(run.source_sha)
        for case in run.test_cases[-RECALLED_IMAGES:]:
            if case.job_id is None:  # restored from a file: another machine may have made it
                continue
            drawing = _drawing(case.settings)
            if drawing is not None and case.seconds > 0:
                studio.runner.speeds.add(effort_of(drawing, size), case.seconds)


def probe(studio: Studio) -> None:
    """Make an image of nothing in a few steps, for the first estimate at the gate, unless there is something to go by.

    It makes way for a person's work as soon as there is some, and is tried again after that.
    """
    runner, own = studio.runner, studio.profile.settings
    if runner.speeds:
        return
    size = (own.generation.short_side, own.generation.short_side)
    try:
        # The first image also pays for what is done only once, so it is not counted.
        _try(studio, size, 1)
        took, step = _try(studio, size, PROBE_STEPS)
    except Cancelled:
        studio.jobs.when_idle(PROBING, lambda: probe(studio))
        return
    around = max(0.0, took - step * PROBE_STEPS)
    runner.speeds.add(effort_of(own.generation, size), step * own.generation.steps + around)


def _try(studio: Studio, size: tuple[int, int], steps: int) -> tuple[float, float]:
    """Seconds of an image with all that belongs to it, its checks too, and of each of its denoising steps."""
    own = studio.profile.settings
    task = Task("classification", label=next(iter(studio.profile.tasks.labels), "thing"))
    ticks: list[float] = []

    def on_step(_done: int, _total: int) -> None:
        ticks.append(time.monotonic())
        if studio.jobs.active():
            raise Cancelled

    start = time.monotonic()
    studio.runner.method(task.label, NamedMask(Image.new("L", size))).make(
        Image.effect_noise(size, 60).convert("RGB"),
        task,
        CounterfactualCaption(task.label, ()),
        own.conditioning,
        own.generation.model_copy(update={"steps": steps}),
        0,
        on_step,
    )
    return time.monotonic() - start, (ticks[-1] - ticks[0]) / max(1, len(ticks) - 1)


def _drawing(recorded: Mapping[str, Any]) -> GenerationSettings | None:
    held = {name: value for name, value in recorded.items() if name != "conditioning"}
    try:
        return GenerationSettings.model_validate(held)
    except ValidationError:
        return None
