"""Run text stages with plain arguments instead of `StageInputs`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from PIL import Image

from core.progress import OnProgress
from core.settings import AlternativeSettings, CaptionSettings, CounterfactualSettings, KeywordSettings
from core.types import Alternatives, Caption, CounterfactualCaptions, Edit, Keywords, StageValue, Task
from pipeline.prompting import Prompt
from pipeline.seams import Captioner, LanguageModel, Models, Sentences
from pipeline.stages import alternatives, caption, counterfactuals, keywords
from pipeline.stages.base import EarlyReply, StageInputs, StageMade
from pipeline.stages.edit_choice import EDITS_PROMPT, Choice, choose_by_model

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


def run_keywords(
    text: Caption, task: Task, language_model: LanguageModel, prompt: Prompt, settings: KeywordSettings, seed: int
) -> StageValue[Keywords]:
    models, values = _models(language=language_model), {"caption": text}
    made = keywords.run(StageInputs(NO_SOURCE, task, values, settings, models, prompt, seed))
    assert isinstance(made, StageValue)
    return made


def run_together(
    text: Caption,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: KeywordSettings,
    later: tuple[AlternativeSettings, CounterfactualSettings],
) -> StageMade:
    """Run the keyword stage with one request for three stages, and the settings of the next two stages."""
    together, models = settings.model_copy(update={"together": True}), _models(language=language_model)
    others = {keywords.TOGETHER_PROMPT.name: prompt}
    following = dict(zip(("alternatives", "counterfactuals"), later, strict=True))
    values = {"caption": text}
    made = keywords.run(
        StageInputs(NO_SOURCE, task, values, together, models, prompt, 0, others=others, next=following)
    )
    assert isinstance(made, StageMade)
    return made


def chosen_by_model(
    text: Caption,
    pools: Sequence[Sequence[Edit]],
    at_once: int,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: CounterfactualSettings,
    seed: int,
) -> Choice:
    models, others = _models(language=language_model), {EDITS_PROMPT.name: prompt}
    inputs = StageInputs(NO_SOURCE, task, {"caption": text}, settings, models, prompt, seed, others=others)
    return choose_by_model(inputs, pools, at_once)


def run_alternatives(
    text: Caption,
    words: Keywords,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: AlternativeSettings,
    seed: int,
    sentences: Sentences | None = None,
    cancelled: threading.Event | None = None,
    early_reply: EarlyReply | None = None,
) -> StageValue[Alternatives]:
    models = _models(language=language_model, sentences=sentences)
    values = {"caption": text, "keywords": words}
    return alternatives.run(
        StageInputs(
            NO_SOURCE, task, values, settings, models, prompt, seed, cancelled=cancelled, early_reply=early_reply
        )
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
    early_reply: EarlyReply | None = None,
    before: CounterfactualCaptions | None = None,
) -> StageValue[CounterfactualCaptions]:
    others = {} if choosing is None else {EDITS_PROMPT.name: choosing}
    values, models = {"caption": text, "alternatives": options}, _models(language=language_model)
    inputs = StageInputs(
        NO_SOURCE,
        task,
        values,
        settings,
        models,
        prompt,
        seed,
        before,
        on_progress,
        cancelled,
        others,
        early_reply=early_reply,
    )
    return counterfactuals.run(inputs)
