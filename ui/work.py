"""What the worker does: runs the stages of a run one after another and saves each value, or generates its images."""

from __future__ import annotations

import time
from typing import Any

from PIL import Image

from pipeline.errors import Cancelled, UserError
from pipeline.methods import plain_settings
from pipeline.progress import stop_if
from pipeline.runner import TEXT_STAGES
from pipeline.settings import Settings
from pipeline.types import StageName, StageValue
from storage.types import JobState, Run
from ui.jobs import JobHandle
from ui.studio import Studio, task_problem

PROBE_STEPS = 4


def start_stage(studio: Studio, run_id: str, stage: StageName) -> None:
    """Run one text stage, whatever is there. Raises UserError when the run is being worked on."""
    _require_task(studio, run_id)
    studio.jobs.submit(run_id, (stage,), lambda handle: _stages(studio, run_id, (stage,), handle, all_of_them=True))


def start_up_to_gate(studio: Studio, run_id: str) -> None:
    """Run every text stage that is empty or stale; what is fresh is used as it is."""
    _require_task(studio, run_id)
    studio.jobs.submit(
        run_id, TEXT_STAGES, lambda handle: _stages(studio, run_id, TEXT_STAGES, handle, all_of_them=False)
    )


def start_generation(studio: Studio, run_id: str) -> None:
    """The yes at the gate. Raises UserError when the gate is closed."""
    _require_task(studio, run_id)
    gate = studio.state(run_id).gate
    if gate.plan is None:
        raise UserError(gate.closed)
    seed = gate.seed
    studio.jobs.submit(run_id, ("generation",), lambda handle: _generate(studio, run_id, seed, handle))


def warm_up(studio: Studio) -> None:
    """Load the models while nobody waits, in the order of their use, and see how fast this machine draws."""
    models = studio.runner.models
    studio.warm_up(
        {
            "loading the captioner": lambda: _touch(models.captioner),
            "loading the language model": lambda: _touch(models.language),
            "loading the image generator": lambda: _touch(models.generator),
            "loading the embedder": lambda: _touch(models.embedder),
            "seeing how fast this machine draws": lambda: _probe(studio),
        }
    )


def _stages(studio: Studio, run_id: str, stages: tuple[StageName, ...], handle: JobHandle, all_of_them: bool) -> None:
    for stage in stages:
        stop_if(handle.cancelled)
        run = studio.workspace.run(run_id)
        settings = studio.settings(run)
        if not all_of_them and stage in run.values and stage not in studio.stale(run, settings):
            continue
        handle.at(stage)
        try:
            value = _make(studio, stage, run, settings, handle)
        except UserError as error:
            studio.failed(run_id, stage, error)
            raise
        stop_if(handle.cancelled)  # asked to stop while the model spoke: what it said is not wanted any more
        studio.workspace.append_value(run_id, stage, value)
        studio.solved(run_id, stage)


def _make(studio: Studio, stage: StageName, run: Run, settings: Settings, handle: JobHandle) -> StageValue[Any]:
    runner, seed = studio.runner, studio.seed_of(run, stage)
    if stage == "caption":
        return runner.caption(studio.source(run), run.task, settings, seed)
    caption = _value(run, "caption", "There is no caption yet: run the first stage, or write one.")
    if stage == "keywords":
        return runner.keywords(caption, run.task, settings, seed)
    if stage == "alternatives":
        keywords = _value(run, "keywords", "There are no keywords yet: run the second stage, or add one.")
        return runner.alternatives(caption, keywords, run.task, settings, seed)
    alternatives = _value(run, "alternatives", "There are no alternatives yet: run the third stage, or add one.")
    return runner.counterfactuals(caption, alternatives, run.task, settings, seed, handle.progress, handle.cancelled)


def _value(run: Run, stage: StageName, missing: str) -> Any:
    if stage not in run.values:
        raise UserError(missing)
    return run.values[stage].value.value


def _generate(studio: Studio, run_id: str, seed: int, handle: JobHandle) -> None:
    handle.at("generation")
    studio.solved(run_id, "generation")
    run = studio.workspace.run(run_id)
    settings = studio.settings(run)
    captions = _value(run, "counterfactuals", "There are no counterfactual captions yet.")
    same = plain_settings(settings.conditioning, settings.generation)
    made = {(case.counterfactual, case.seed) for case in run.test_cases if case.settings == same}
    plan = studio.runner.plan(captions, settings, seed, made)
    job_id = studio.workspace.start_job(run_id, len(plan.images), studio.key("generation", run, settings))
    outcome: tuple[JobState, str] = ("failed", "The studio itself failed; the terminal says more.")
    try:
        cases = studio.runner.generate(
            studio.source(run), run.task, captions, settings, seed, handle.progress, handle.cancelled, made
        )
        for case in cases:
            studio.workspace.append_test_case(run_id, job_id, case)
        outcome = ("done", "")
    except Cancelled:
        outcome = ("interrupted", "The studio was stopped.") if handle.closing else ("cancelled", "")
        raise
    except UserError as error:
        outcome = ("failed", str(error))
        studio.failed(run_id, "generation", error)
        raise
    finally:
        studio.workspace.finish_job(job_id, *outcome)


def _require_task(studio: Studio, run_id: str) -> None:
    missing = task_problem(studio.workspace.run(run_id).task)
    if missing:
        raise UserError(missing)


def _touch(model: object) -> None:
    """Reading a model loads it."""


def _probe(studio: Studio) -> None:
    """Draws a few steps on nothing, for the first estimate at the gate."""
    runner = studio.runner
    if runner.seconds_per_step is not None:
        return
    runner.seconds_per_step = studio.remembered_speed()
    if runner.seconds_per_step is not None:
        return
    settings = studio.profile.settings.generation
    ticks: list[float] = []
    control = Image.new("RGB", (settings.short_side, settings.short_side))
    start = time.monotonic()
    few = settings.model_copy(update={"steps": PROBE_STEPS})
    runner.models.generator.generate("", control, few, 0, lambda _done, _total: ticks.append(time.monotonic()))
    took = time.monotonic() - start
    step = (ticks[-1] - ticks[0]) / max(1, len(ticks) - 1)
    around = max(0.0, took - step * PROBE_STEPS)
    runner.seconds_per_step = step + around / settings.steps
