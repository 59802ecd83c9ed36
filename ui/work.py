"""What the worker does for the text stages: runs them one after another and saves each value; and warms the models up.

`ui.generating` does the images.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.errors import UserError
from pipeline.progress import stop_if
from pipeline.runner import TEXT_STAGES
from pipeline.settings import Settings
from pipeline.types import Alternatives, Keyword, KeywordAlternatives, StageName, StageValue
from storage.types import Run
from ui import measuring
from ui.generating import require_task
from ui.jobs import JobHandle
from ui.studio import Studio

_SAME_CAPTION = (
    "The captioner was asked {times} times, each time with another seed, and has no other caption that fits: it is as "
    "good as certain of this one. Write into the field what you want said differently."
)


def start_stage(studio: Studio, run_id: str, stage: StageName) -> None:
    """Run one text stage, whatever is there. Raises UserError when the run is being worked on."""
    require_task(studio, run_id)
    studio.jobs.submit(run_id, (stage,), lambda handle: _stages(studio, run_id, (stage,), handle, anew=stage))


def start_from(studio: Studio, run_id: str, stage: StageName) -> None:
    """Run a text stage, whatever is there, and those after it that this leaves empty or stale, up to the gate."""
    require_task(studio, run_id)
    stages = TEXT_STAGES[TEXT_STAGES.index(stage) :]
    studio.jobs.submit(run_id, stages, lambda handle: _stages(studio, run_id, stages, handle, anew=stage))


def start_up_to_gate(studio: Studio, run_id: str) -> None:
    """Run every text stage that is empty or stale; what is fresh is used as it is."""
    require_task(studio, run_id)
    studio.jobs.submit(run_id, TEXT_STAGES, lambda handle: _stages(studio, run_id, TEXT_STAGES, handle, anew=None))


def start_more(studio: Studio, run_id: str, keyword: Keyword) -> None:
    """Ask for further alternatives of one keyword; those that are there stay. Raises UserError as `start_stage`."""
    require_task(studio, run_id)
    studio.jobs.submit(run_id, ("alternatives",), lambda handle: _more(studio, run_id, keyword, handle))


def warm_up(studio: Studio) -> None:
    """Load the models while nobody waits, in the order of their use, and see how fast this machine draws."""
    models = studio.runner.models
    studio.warm_up(
        {
            "recalling how fast this machine draws": lambda: measuring.recall(studio),
            "loading the captioner": lambda: _touch(models.captioner),
            "loading the language model": lambda: _touch(models.language),
            "loading the sentence model": lambda: _touch(models.sentences),
            "loading the image generator": lambda: _touch(models.generator),
            "loading the embedder": lambda: _touch(models.embedder),
            measuring.PROBING: lambda: measuring.probe(studio),
        }
    )


def _stages(
    studio: Studio, run_id: str, stages: tuple[StageName, ...], handle: JobHandle, anew: StageName | None
) -> None:
    """Runs those of the stages that are empty or stale, and `anew` in any case."""
    for stage in stages:
        stop_if(handle.cancelled)
        run = studio.workspace.run(run_id)
        settings = studio.settings(run)
        if stage != anew and stage in run.values and stage not in studio.stale(run, settings):
            continue
        handle.at(stage)
        before = _said_before(studio, run, settings) if stage == "caption" else ""
        try:
            value = _make(studio, stage, run, settings, handle)
        except UserError as error:
            studio.failed(run_id, stage, error)
            raise
        stop_if(handle.cancelled)  # asked to stop while the model spoke: what it said is not wanted any more
        studio.workspace.append_value(run_id, stage, value)
        studio.solved(run_id, stage)
        if stage == "caption" and value.value.text == before:
            studio.tell(run_id, stage, _SAME_CAPTION.format(times=value.trace.attempts))


def _make(studio: Studio, stage: StageName, run: Run, settings: Settings, handle: JobHandle) -> StageValue[Any]:
    runner, seed, prompts = studio.runner, studio.seed_of(run, stage), studio.prompts(run)
    if stage == "caption":
        return runner.caption(studio.source(run), run.task, settings, seed, _said_before(studio, run, settings))
    caption = _value(run, "caption", "There is no caption yet: run the first stage, or write one.")
    if stage == "keywords":
        return runner.keywords(caption, run.task, settings, seed, prompts)
    if stage == "alternatives":
        keywords = _value(run, "keywords", "There are no keywords yet: run the second stage, or add one.")
        return runner.alternatives(caption, keywords, run.task, settings, seed, prompts)
    alternatives = _value(run, "alternatives", "There are no alternatives yet: run the third stage, or add one.")
    return runner.counterfactuals(
        caption, alternatives, run.task, settings, seed, handle.progress, handle.cancelled, prompts
    )


def _said_before(studio: Studio, run: Run, settings: Settings) -> str:
    """What the captioner said last, when it would only say it again; "" when something was changed since."""
    if "caption" not in run.values or "caption" in studio.stale(run, settings):
        return ""
    said = [version for version in studio.workspace.history(run.id, "caption") if version.author == "model"]
    return str(said[-1].value.value.text) if said else ""


def _more(studio: Studio, run_id: str, keyword: Keyword, handle: JobHandle) -> None:
    handle.at("alternatives")
    run = studio.workspace.run(run_id)
    settings = studio.settings(run)
    caption = _value(run, "caption", "There is no caption yet: run the first stage, or write one.")
    held = run.values.get("alternatives")
    before: Alternatives = held.value.value if held else Alternatives(())
    try:
        grown, trace = studio.runner.more_alternatives(
            caption,
            before,
            keyword,
            run.task,
            settings,
            studio.seed_of(run, "alternatives"),
            studio.prompts(run),
        )
    except UserError as error:
        studio.failed(run_id, "alternatives", error)
        raise
    stop_if(handle.cancelled)
    with studio.editing:
        now = studio.workspace.run(run_id)
        studio.append_by_model(now, "alternatives", joined(now, before, grown), trace)
    studio.solved(run_id, "alternatives")


def joined(run: Run, before: Alternatives, grown: Alternatives) -> Alternatives:
    """What the run holds now with what `grown` has and `before` had not: a person may have edited meanwhile."""
    held = run.values.get("alternatives")
    items: dict[str, KeywordAlternatives] = {item.keyword: item for item in (held.value.value.items if held else ())}
    had = {(item.keyword, option.text) for item in before.items for option in item.options}
    for item in grown.items:
        known = items.get(item.keyword, replace(item, options=()))
        skipped = had | {(item.keyword, option.text) for option in known.options}
        new = tuple(option for option in item.options if (item.keyword, option.text) not in skipped)
        if new:
            items[item.keyword] = replace(known, options=(*known.options, *new))
    return Alternatives(tuple(items.values()))


def _value(run: Run, stage: StageName, missing: str) -> Any:
    if stage not in run.values:
        raise UserError(missing)
    return run.values[stage].value.value


def _touch(model: object) -> None:
    """Reading a model loads it."""
