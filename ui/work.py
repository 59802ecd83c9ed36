"""What the worker does for the text stages: runs them one after another and saves each value; and warms the models up.

`ui.generating` does the images.
"""

from __future__ import annotations

from typing import Any

from pipeline.errors import UserError
from pipeline.progress import stop_if
from pipeline.runner import TEXT_STAGES
from pipeline.settings import Settings
from pipeline.types import StageName, StageValue
from storage.types import Run
from ui import measuring
from ui.generating import require_task
from ui.jobs import JobHandle
from ui.studio import Studio


def start_stage(studio: Studio, run_id: str, stage: StageName) -> None:
    """Run one text stage, whatever is there. Raises UserError when the run is being worked on."""
    require_task(studio, run_id)
    studio.jobs.submit(run_id, (stage,), lambda handle: _stages(studio, run_id, (stage,), handle, all_of_them=True))


def start_up_to_gate(studio: Studio, run_id: str) -> None:
    """Run every text stage that is empty or stale; what is fresh is used as it is."""
    require_task(studio, run_id)
    studio.jobs.submit(
        run_id, TEXT_STAGES, lambda handle: _stages(studio, run_id, TEXT_STAGES, handle, all_of_them=False)
    )


def warm_up(studio: Studio) -> None:
    """Load the models while nobody waits, in the order of their use, and see how fast this machine draws."""
    models = studio.runner.models
    studio.warm_up(
        {
            "recalling how fast this machine draws": lambda: measuring.recall(studio),
            "loading the captioner": lambda: _touch(models.captioner),
            "loading the language model": lambda: _touch(models.language),
            "loading the image generator": lambda: _touch(models.generator),
            "loading the embedder": lambda: _touch(models.embedder),
            "seeing how fast this machine draws": lambda: measuring.probe(studio),
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


def _touch(model: object) -> None:
    """Reading a model loads it."""
