"""Text stages, run with arguments in the place of `StageInputs`."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from PIL import Image

from core.progress import OnProgress
from core.settings import AlternativeSettings, CaptionSettings, CounterfactualSettings
from core.types import Alternatives, Caption, CounterfactualCaptions, Keywords, StageValue, Task
from pipeline.prompting import Prompt
from pipeline.seams import Captioner, LanguageModel, Models, Sentences
from pipeline.stages import alternatives, caption, counterfactuals
from pipeline.stages.base import EarlyReply, StageInputs
from pipeline.stages.edit_choice import EDITS_PROMPT

NO_SOURCE = Image.new("RGB", (8, 8))


def _models(**models: Any) -> Models:
    return cast(Models, SimpleNamespace(**models))


def run_caption(
    image: Image.Image,
    task: Task,
    captioner: Captioner,
    settings: CaptionSettings,
    seed: int,
    unlike: str = "",
    cancelled: threading.Event | None = None,
) -> StageValue[Caption]:
    before = Caption(unlike) if unlike else None
    models = _models(captioner=captioner)
    return caption.run(StageInputs(image, task, {}, settings, models, None, seed, before, cancelled=cancelled))


def run_alternatives(
    text: Caption,
    keywords: Keywords,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: AlternativeSettings,
    seed: int,
    sentences: Sentences | None = None,
    cancelled: threading.Event | None = None,
    said: EarlyReply | None = None,
) -> StageValue[Alternatives]:
    models = _models(language=language_model, sentences=sentences)
    values = {"caption": text, "keywords": keywords}
    return alternatives.run(
        StageInputs(NO_SOURCE, task, values, settings, models, prompt, seed, cancelled=cancelled, early_reply=said)
    )


def run_counterfactuals(
    text: Caption,
    options: Alternatives,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: CounterfactualSettings,
    seed: int,
    on_progress: OnProgress | None = None,
    cancelled: threading.Event | None = None,
    choosing: Prompt | None = None,
    said: EarlyReply | None = None,
) -> StageValue[CounterfactualCaptions]:
    others = {} if choosing is None else {EDITS_PROMPT.name: choosing}
    values, models = {"caption": text, "alternatives": options}, _models(language=language_model)
    given = StageInputs(
        NO_SOURCE, task, values, settings, models, prompt, seed, None, on_progress, cancelled, others, early_reply=said
    )
    return counterfactuals.run(given)
