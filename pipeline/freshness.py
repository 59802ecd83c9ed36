"""Tells whether a stage's value still fits what it was made from. Pure: knows keys and values, no models, no database.

The key of a value names each input that its stage reads with the start of a sha256 over it, such as
`caption:1f0c... task:88ab... settings:02de...`, so that a key that differs also says what was changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image
from pydantic import BaseModel

from pipeline.settings import Settings
from pipeline.types import (
    STAGES,
    Alternatives,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    Keywords,
    StageName,
    StageValue,
    T,
    Task,
    TextValue,
    Trace,
)

READS: dict[StageName, tuple[StageName, ...]] = {
    "caption": (),
    "keywords": ("caption",),
    "alternatives": ("caption", "keywords"),
    "counterfactuals": ("caption", "alternatives"),
    "generation": ("counterfactuals",),
}
"""The earlier stages whose values a stage reads."""
MARKS_ONLY: dict[StageName, frozenset[str]] = {"alternatives": frozenset(("too_close",))}
"""Settings that say how a value is shown and not what it is: a change of them outdates nothing."""
_WORDS: dict[str, str] = {
    "source": "source image was",
    "task": "task was",
    "settings": "settings were",
    "model": "model was",
    "prompt": "prompt was",
    "caption": "caption was",
    "keywords": "keywords were",
    "alternatives": "alternatives were",
    "counterfactuals": "counterfactual captions were",
}


@dataclass(frozen=True)
class Maker:
    """Who makes a stage's value now: the model by its title in the profile, and the template of its prompt."""

    model: str
    prompt: str = ""
    """"" for a model that takes none."""


def image_sha(image: Image.Image) -> str:
    """sha256 over the size and the RGB pixels of an image: the same for every file that shows the same pixels."""
    rgb = image.convert("RGB")
    return hashlib.sha256(f"{rgb.width}x{rgb.height}".encode() + rgb.tobytes()).hexdigest()


def inputs_key(
    stage: StageName, task: Task, source_sha: str, values: Mapping[StageName, TextValue], settings: BaseModel
) -> str:
    """The key of what a stage reads: of keywords, alternatives and captions only those that are used.

    `source_sha` is `image_sha` of the source; only stages 1 and 5 read it. `settings` are those of the stage, or a
    `Settings` with all of them. Raises KeyError when a value that the stage reads is not there.
    """
    parts: dict[str, Any] = {"source": source_sha} if stage in ("caption", "generation") else {}
    parts |= {name: _read(values[name]) for name in READS[stage]}
    parts["task"] = [task.kind, *task.kept()]
    marks = set(MARKS_ONLY.get(stage, ()))
    if not isinstance(settings, Settings):
        parts["settings"] = settings.model_dump(mode="json", exclude=marks)
    elif stage == "generation":
        parts["settings"] = [settings.conditioning.model_dump(mode="json"), settings.generation.model_dump(mode="json")]
    else:
        parts["settings"] = getattr(settings, stage).model_dump(mode="json", exclude=marks)
    return _joined(parts)


def with_maker(key: str, maker: Maker) -> str:
    """The key of a value that a model made, with who made it."""
    parts: dict[str, Any] = {"model": maker.model} | ({"prompt": maker.prompt} if maker.prompt else {})
    return f"{key} {_joined(parts)}"


def changed_inputs(
    stage: StageName,
    value: StageValue[Any],
    task: Task,
    source_sha: str,
    values: Mapping[StageName, TextValue],
    settings: BaseModel,
    maker: Maker | None = None,
) -> tuple[str, ...]:
    """The inputs ("caption", "task", "settings", ...) that differ from those the value was made from.

    Settings, model and prompt do not outdate what a person wrote, and the task does not outdate a caption that was
    made without it. Without a `maker`, or for a value that was saved without one, model and prompt are not looked at.
    """
    passed_over = set()
    if value.trace.author == "person":
        passed_over.add("settings")
    if stage == "caption" and not value.trace.prompt:
        passed_over.add("task")
    now = _parts(inputs_key(stage, task, source_sha, values, settings))
    then = _parts(value.inputs_key)
    if maker is not None and value.trace.author == "model":
        made_by = _parts(with_maker("", maker))
        now |= {name: sha for name, sha in made_by.items() if name in then}
    return tuple(name for name, sha in now.items() if name not in passed_over and then.get(name) != sha)


def stale_stages(
    task: Task,
    source_sha: str,
    stage_values: Mapping[StageName, StageValue[Any]],
    settings: Settings,
    makers: Mapping[StageName, Maker] | None = None,
) -> dict[StageName, str]:
    """Every text stage whose value is outdated, with a sentence that says why. A stage without a value is not stale.

    A stage is outdated too when one that it reads is, though its own inputs have not changed yet. `makers` says who
    would make the values now.
    """
    values: dict[StageName, TextValue] = {stage: held.value for stage, held in stage_values.items()}
    stale: dict[StageName, str] = {}
    for stage in STAGES:
        if stage not in stage_values or stage == "generation":
            continue
        missing = [name for name in READS[stage] if name not in values]
        if missing:
            stale[stage] = f"the {missing[0]} that this was made from is gone"
            continue
        maker = (makers or {}).get(stage)
        changed = changed_inputs(stage, stage_values[stage], task, source_sha, values, settings, maker)
        outdated = [name for name in READS[stage] if name in stale]
        if changed:
            stale[stage] = f"the {_WORDS[changed[0]]} changed after this was made"
        elif outdated:
            stale[stage] = f"the stage before it ({outdated[-1]}) is stale"
    return stale


def by_person(
    stage: StageName,
    value: T,
    task: Task,
    source_sha: str,
    values: Mapping[StageName, TextValue],
    settings: Settings,
) -> StageValue[T]:
    """A value that a person typed, as made from what stands before it now."""
    return StageValue(value, Trace(author="person"), inputs_key(stage, task, source_sha, values, settings))


def is_current(counterfactual: CounterfactualCaption, counterfactuals: CounterfactualCaptions) -> bool:
    """Whether an image's caption is still one of those that are ticked, word for word and with the same edits."""
    return any(
        item.used and item.text == counterfactual.text and item.edits == counterfactual.edits
        for item in counterfactuals.items
    )


def _read(value: TextValue) -> Any:
    """What the later stages see of a value."""
    match value:
        case Caption(text=text):
            return text
        case Keywords(items=items):
            return [[item.text, item.edit_type, *_forced(item.forced)] for item in items if item.used]
        case Alternatives(items=items):
            return [
                [
                    item.keyword,
                    item.edit_type,
                    [option.text for option in item.options if option.used],
                    *_forced(item.forced),
                ]
                for item in items
            ]
        case CounterfactualCaptions(items=items):
            return [[item.text, [[e.keyword, e.alternative] for e in item.edits]] for item in items if item.used]
    raise TypeError(f"no stage gives {type(value).__name__}")


def _forced(forced: bool) -> list[str]:
    # Only where it is so: the keys of values without it stay what they were.
    return ["forced"] if forced else []


def _joined(parts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}:{_short_sha(part)}" for name, part in parts.items())


def _short_sha(part: Any) -> str:
    return hashlib.sha256(json.dumps(part, ensure_ascii=False).encode()).hexdigest()[:20]


def _parts(key: str) -> dict[str, str]:
    return dict(part.split(":", 1) for part in key.split() if ":" in part)
