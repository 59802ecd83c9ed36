"""How fast this machine draws: recalled from what was made in this workspace, else tried out while nobody waits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from PIL import Image
from pydantic import ValidationError

from pipeline.settings import GenerationSettings
from pipeline.speed import effort_of
from ui.studio import Studio

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
    """Draw a few steps on nothing, for the first estimate at the gate, unless there is something to go by."""
    runner = studio.runner
    if runner.speeds:
        return
    settings = studio.profile.settings.generation
    ticks: list[float] = []
    control = Image.new("RGB", (settings.short_side, settings.short_side))
    generator = runner.models.generator.on(studio.profile.settings.conditioning.kind)
    start = time.monotonic()
    few = settings.model_copy(update={"steps": PROBE_STEPS})
    generator.generate("", control, few, 0, lambda _done, _total: ticks.append(time.monotonic()))
    took = time.monotonic() - start
    step = (ticks[-1] - ticks[0]) / max(1, len(ticks) - 1)
    around = max(0.0, took - step * PROBE_STEPS)
    runner.speeds.add(effort_of(settings, control.size), step * settings.steps + around)


def _drawing(recorded: Mapping[str, Any]) -> GenerationSettings | None:
    held = {name: value for name, value in recorded.items() if name != "conditioning"}
    try:
        return GenerationSettings.model_validate(held)
    except ValidationError:
        return None
