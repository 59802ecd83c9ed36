"""Drawing speed of this machine: computed from earlier jobs of this workspace, or else measured while no job runs."""

from __future__ import annotations

import threading
import time

from PIL import Image

from core.errors import Cancelled
from core.masks import NamedMask
from core.settings import Settings
from core.stored_runs import Run
from core.types import CounterfactualCaption, Task
from pipeline.drawing_speed import effort_of
from pipeline.methods import method_of
from pipeline.recipes import DILLEMA, recipe_of
from pipeline.seams import CaseRequest, Source
from services.runs.life_cycle import RunService

PROBING = "seeing how fast this machine draws"
PROBE_STEPS = 4
RECALLED_RUNS = 20
RECALLED_JOBS = 5
"""Number of each run's latest jobs from which drawing times are learned."""


class Estimates:
    """Estimates the time to draw an image, and loads models early to make the first image fast. Thread-safe."""

    def __init__(self, runs: RunService) -> None:
        self._workspace, self._runs, self._driver, self._jobs = runs.workspace, runs, runs.driver, runs.jobs
        self._profile = runs.profile
        self._lock = threading.Lock()
        self.warming_up = False
        """True once `warm_up` began. The speed of this machine will soon be known."""

    def seconds_per_image(self, run: Run, settings: Settings) -> float | None:
        """Return the expected seconds for an image of a run; None if nothing was measured."""
        method = method_of(recipe_of(run.recipe).method)
        effort = method.effort(method.settings_of(settings), self._runs.size(run.source_sha))
        return self._driver.speeds.seconds(effort)

    def warm_up(self) -> None:
        """Queue loading of the models and a speed test, once. Does nothing if weights would have to be downloaded."""
        with self._lock:
            if self.warming_up or any(weights.local() is None for weights in self._profile.weights().values()):
                return
            self.warming_up = True
        models = self._driver.models
        self._jobs.when_idle("recalling how fast this machine draws", self.recall)
        # Reading the attribute of a model loads it.
        self._jobs.when_idle("loading the captioner", lambda: models.captioner)
        self._jobs.when_idle("loading the language model", lambda: models.language)
        self._jobs.when_idle("loading the sentence model", lambda: models.sentences)
        self._jobs.when_idle("loading the image generator", lambda: models.generator)
        self._jobs.when_idle("loading the embedder", lambda: models.embedder)
        self._jobs.when_idle(PROBING, self.probe)

    def recall(self) -> None:
        """Learn drawing times from complete jobs, whose times include checks and saving. Recent jobs weigh most."""
        for summary in reversed(self._workspace.runs.search(RECALLED_RUNS)):
            if not summary.test_cases or summary.profile != self._profile.name:
                continue
            run = self._workspace.runs.get(summary.id)
            size = self._runs.size(run.source_sha)
            lineages = {case.job_id: case.lineage for case in run.test_cases}  # imported test cases have no job here
            for job in run.jobs[-RECALLED_JOBS:]:
                if job.state != "done" or job.finished is None or job.id not in lineages:
                    continue
                lineage = lineages[job.id]
                each = (job.finished - job.started).total_seconds() / job.done
                self._driver.speeds.add(method_of(lineage.method).effort(lineage.settings, size), each)

    def probe(self) -> None:
        """Draw an image in a few steps for a first estimate, unless one exists. Try later if a person's job comes."""
        driver, settings = self._driver, self._profile.settings
        if driver.speeds:
            return
        size = (settings.generation.short_side, settings.generation.short_side)
        try:
            # The first image also includes one-time costs, so it is not counted.
            self._try(size, 1)
            took, step = self._try(size, PROBE_STEPS)
        except Cancelled:
            self._jobs.when_idle(PROBING, self.probe)
            return
        around = max(0.0, took - step * PROBE_STEPS)
        driver.speeds.add(effort_of(settings.generation, size), step * settings.generation.steps + around)

    def _try(self, size: tuple[int, int], steps: int) -> tuple[float, float]:
        """Draw one image. Return the seconds for the whole image with checks, and the seconds of a denoising step."""
        settings, description = self._profile.settings, method_of(DILLEMA.method)
        prompts = self._driver.prompts(DILLEMA)
        method = description.with_models(self._driver.models, prompts, self._profile.tasks.labels)
        task = Task("classification", label=next(iter(self._profile.tasks.labels), "thing"))
        ticks: list[float] = []

        def on_step(_done: int, _total: int) -> None:
            ticks.append(time.monotonic())
            if self._jobs.active():
                raise Cancelled

        start = time.monotonic()
        drawing = settings.generation.model_copy(update={"steps": steps, "start": "noise"})
        few = settings.model_copy(update={"generation": drawing})
        noise = Image.effect_noise(size, 60).convert("RGB")
        source = Source(noise, task, task.label, NamedMask(Image.new("L", size)))
        prepared = method.prepare(source, description.settings_of(few))
        (finish,) = method.make([prepared], [CaseRequest(CounterfactualCaption(task.label, ()), 0, 0)], 1, on_step)
        finish()
        return time.monotonic() - start, (ticks[-1] - ticks[0]) / max(1, len(ticks) - 1)
