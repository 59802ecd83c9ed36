"""What the worker does behind the gate: generates the images of a run, and measures how fast this machine draws."""

from __future__ import annotations

import time

from PIL import Image

from pipeline.errors import Cancelled, UserError
from pipeline.methods import plain_settings
from storage.types import JobState
from ui.jobs import JobHandle
from ui.studio import Studio, task_problem

PROBE_STEPS = 4


def start_generation(studio: Studio, run_id: str) -> None:
    """The yes at the gate. Raises UserError when the gate is closed."""
    require_task(studio, run_id)
    gate = studio.state(run_id).gate
    if gate.plan is None:
        raise UserError(gate.closed)
    seed = gate.seed
    studio.jobs.submit(run_id, ("generation",), lambda handle: _generate(studio, run_id, seed, handle))


def require_task(studio: Studio, run_id: str) -> None:
    """Raises UserError, saying what is missing, when the task of the run is not whole."""
    missing = task_problem(studio.workspace.run(run_id).task)
    if missing:
        raise UserError(missing)


def probe(studio: Studio) -> None:
    """Draw a few steps on nothing, for the first estimate at the gate."""
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


def _generate(studio: Studio, run_id: str, seed: int, handle: JobHandle) -> None:
    handle.at("generation")
    studio.solved(run_id, "generation")
    run = studio.workspace.run(run_id)
    settings = studio.settings(run)
    if "counterfactuals" not in run.values:
        raise UserError("There are no counterfactual captions yet.")
    captions = run.values["counterfactuals"].value.value
    same = plain_settings(settings.conditioning, settings.generation)
    made = {(case.counterfactual, case.seed) for case in run.test_cases if case.settings == same}
    plan = studio.runner.plan(captions, settings, seed, made)
    job_id = studio.workspace.start_job(run_id, len(plan.images), studio.key("generation", run, settings))
    outcome: tuple[JobState, str] = ("failed", "The studio itself failed; the terminal says more.")
    try:
        caption = run.values.get("caption")
        cases = studio.runner.generate(
            studio.source(run),
            run.task,
            captions,
            settings,
            seed,
            handle.progress,
            handle.cancelled,
            made,
            source_caption=caption.value.value.text if caption else "",
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
