"""Tells whether a stage's value still fits its inputs. Pure: knows keys and values, no models, no database.

The key of a value lists the inputs that its stage reads, each with the start of its SHA-256, such as `caption:1f0c...
task:88ab... settings:02de...`. So a comparison of two keys shows which inputs changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.settings import Settings
from core.types import StageName, StageValue, Task, Values
from pipeline.recipes import Recipe
from pipeline.stages.counterfactuals import captions_seen

_WORDS: dict[str, str] = {
    "source": "source image was",
    "task": "task was",
    "settings": "settings were",
    "model": "model was",
    "prompt": "prompt was",
}


@dataclass(frozen=True)
class Producer:
    """The model (its title in the profile) and the prompt templates that would produce a stage's value now."""

    model: str
    prompt: str = ""
    """Template of the stage's prompt, or "" for a stage without a prompt."""
    others: tuple[tuple[str, str], ...] = ()
    """Name and template of each further prompt that is sent. The template is "" if the prompt set has none."""


def inputs_key(recipe: Recipe, name: StageName, task: Task, source_sha: str, values: Values, settings: Settings) -> str:
    """Return the key of a stage's inputs. Unticked items (keywords, alternatives, captions) do not change the key.
    Raises KeyError if a value that the stage reads is missing.
    """
    stage = recipe.stage(name)
    parts: dict[str, Any] = {"source": source_sha} if stage.reads_source else {}
    parts |= {read: recipe.stage(read).seen(values[read]) for read in stage.reads}
    if stage.reads_task:
        parts["task"] = [task.kind, *task.kept()]
    if stage.settings:
        parts["settings"] = getattr(settings, stage.settings).model_dump(mode="json", exclude=set(stage.marks))
    return _joined(parts)


def drawing_key(recipe: Recipe, task: Task, source_sha: str, values: Values, settings: Settings) -> str:
    """Return the key of all inputs of the images, "" if there are no captions to draw."""
    captions = recipe.captions(values)
    if captions is None:
        return ""
    drawn_with = recipe.drawn_with(settings, values)
    return _joined(
        {
            "source": source_sha,
            "counterfactuals": captions_seen(captions),
            "task": [task.kind, *task.kept()],
            "settings": [getattr(settings, name).model_dump(mode="json") for name in recipe.drawing_method.sections],
            **({} if drawn_with.source_caption is None else {"caption": drawn_with.source_caption}),
            **({} if drawn_with.region is None else {"region": drawn_with.region.text}),
        }
    )


def with_producer(key: str, producer: Producer) -> str:
    """Return a value's key, extended by the model and the prompts that produced the value."""
    parts: dict[str, Any] = {"model": producer.model}
    if producer.others:
        parts["prompt"] = [producer.prompt, *producer.others]
    elif producer.prompt:
        parts["prompt"] = producer.prompt
    return f"{key} {_joined(parts)}"


def changed_inputs(
    recipe: Recipe,
    name: StageName,
    value: StageValue[Any],
    task: Task,
    source_sha: str,
    values: Values,
    settings: Settings,
    producer: Producer | None = None,
) -> tuple[str, ...]:
    """Return the names of inputs ("caption", "task", "settings", ...) that changed since a value was made. Settings,
    model and prompt do not outdate a person's value, and the task does not outdate a caption made without a prompt.
    Without a `producer`, or for a value saved without one, model and prompt are ignored.
    """
    passed_over = set()
    if value.trace.author == "person":
        passed_over.add("settings")
    if recipe.stage(name).producer == "captioner" and not value.trace.prompt:
        passed_over.add("task")
    now = _parts(inputs_key(recipe, name, task, source_sha, values, settings))
    then = _parts(value.inputs_key)
    if producer is not None and value.trace.author == "model":
        made_by = _parts(with_producer("", producer))
        now |= {part: sha for part, sha in made_by.items() if part in then}
    return tuple(part for part, sha in now.items() if part not in passed_over and then.get(part) != sha)


def stale_stages(
    recipe: Recipe,
    task: Task,
    source_sha: str,
    stage_values: Mapping[StageName, StageValue[Any]],
    settings: Settings,
    producers: Mapping[StageName, Producer] | None = None,
) -> dict[StageName, str]:
    """Return, for each stage whose value is outdated, the reason in a sentence. A value is outdated if its inputs
    changed, if `producers` has another model or prompt for it, or if a stage that it was made from is outdated or has
    no value. A stage without a value is not stale.
    """
    values = {name: stage_value.value for name, stage_value in stage_values.items()}
    stale: dict[StageName, str] = {}
    for stage in recipe.stages:
        if stage.name not in stage_values:
            continue
        missing = [read for read in stage.reads if read not in values]
        if missing:
            stale[stage.name] = f"the {missing[0]} that this was made from is gone"
            continue
        producer = (producers or {}).get(stage.name)
        stage_value = stage_values[stage.name]
        changed = changed_inputs(recipe, stage.name, stage_value, task, source_sha, values, settings, producer)
        outdated = [read for read in stage.reads if read in stale]
        if changed:
            words = _WORDS[changed[0]] if changed[0] in _WORDS else recipe.stage(changed[0]).was
            stale[stage.name] = f"the {words} changed after this was made"
        elif outdated:
            stale[stage.name] = f"the stage before it ({outdated[-1]}) is stale"
    return stale


def _joined(parts: Mapping[str, Any]) -> str:
    plain = {name: json.dumps(part, ensure_ascii=False).encode() for name, part in parts.items()}
    return " ".join(f"{name}:{hashlib.sha256(data).hexdigest()[:20]}" for name, data in plain.items())


def _parts(key: str) -> dict[str, str]:
    return dict(part.split(":", 1) for part in key.split() if ":" in part)
