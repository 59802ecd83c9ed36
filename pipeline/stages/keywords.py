"""Stage 2, caption to keywords: the elements of the caption that may change without changing the ground truth."""

from __future__ import annotations

import threading

from pipeline.checks import caption_checks, failed, keyword_checks, require, task_checks
from pipeline.parsing import Unreadable, read_keywords
from pipeline.prompting import Prompt, PromptSlot
from pipeline.reply_schema import keywords_schema
from pipeline.seams import LanguageModel
from pipeline.settings import KeywordSettings
from pipeline.stages.asking import ask
from pipeline.stages.base import Stage, StageInputs
from pipeline.types import Caption, Keyword, Keywords, StageValue, Task
from pipeline.words import find_phrase


def run(
    caption: Caption,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: KeywordSettings,
    seed: int,
    cancelled: threading.Event | None = None,
) -> StageValue[Keywords]:
    """The keywords in caption order, all of them used.

    Leaves out what is not in the caption and what the task protects; a reply with nothing else counts as unreadable.
    Raises UserError for an empty caption, UnreadableReply when every attempt is spent, Cancelled between two replies.
    """
    require(task_checks(task))
    require(caption_checks(caption.text, task)[:1])

    def read(reply: str) -> tuple[Keyword, ...]:
        named = [Keyword(text, edit_type) for text, edit_type in read_keywords(reply)]
        fit = [keyword for keyword in named if not failed(keyword_checks(keyword.text, caption.text, task))]
        if not fit:
            raise Unreadable("no keyword of its reply is in the caption and free to change")
        return tuple(sorted(fit, key=lambda keyword: find_phrase(caption.text, keyword.text)[0]))

    answer = ask(
        "keywords",
        language_model,
        prompt,
        {"task": task.describe(), "caption": caption.text},
        read,
        settings,
        seed,
        schema=keywords_schema(caption.text, task),
        cancelled=cancelled,
    )
    return StageValue(Keywords(answer.value), answer.trace(language_model, settings))


def if_forced(forced: bool) -> list[str]:
    """What a key says of a keyword that is forced; nothing of others, whose keys stay what they were."""
    return ["forced"] if forced else []


def _produce(given: StageInputs) -> StageValue[Keywords]:
    language, prompt = given.models.language, given.prompt
    assert prompt is not None
    return run(given.values["caption"], given.task, language, prompt, given.settings, given.seed, given.cancelled)


KEYWORDS = Stage(
    name="keywords",
    title="Keywords",
    value=Keywords,
    run=_produce,
    reads=("caption",),
    prompt=PromptSlot("keywords", ("task", "caption")),
    settings="keywords",
    seen=lambda value: [[item.text, item.edit_type, *if_forced(item.forced)] for item in value.items if item.used],
    summary=lambda value: ", ".join(item.text for item in value.items if item.used) or "none ticked",
    doing="finding keywords",
)
