"""Stage 3, keywords to alternatives: the words that may replace each used keyword."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from core.errors import UnreadableReply, UserError
from core.settings import AlternativeSettings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    Keyword,
    KeywordAlternatives,
    Keywords,
    PromptSlot,
    StageValue,
    Task,
    Trace,
    failed,
)
from core.words import tokens
from pipeline.checks.similarity import measured
from pipeline.checks.texts import alternative_checks, caption_checks, keyword_checks, require, task_checks
from pipeline.prompting import Prompt
from pipeline.seams import LanguageModel, Sentences
from pipeline.stages.asking import BETWEEN, Answer, Inquiry, ask
from pipeline.stages.base import Stage, StageInputs
from pipeline.stages.keywords import if_forced
from pipeline.stages.parsing import Unreadable, read_alternatives
from pipeline.stages.reply_schema import alternatives_schema

MORE_TEMPERATURE = 0.9
"""Minimum temperature for a request for further alternatives. Below it the model repeats itself."""

Reader = Callable[[str], tuple[KeywordAlternatives, ...]]


def run(inputs: StageInputs) -> StageValue[Alternatives]:
    """Return an entry for every used keyword, each with at most `settings.per_keyword` alternatives. If
    `inputs.early_reply` has alternatives for some keywords, the model is asked only about the others, and the trace
    notes that. An alternative is kept but not used if it drops or adds a protected word, or if it is too close
    (`settings.too_close`) to its keyword or to what the task protects. A reply that leaves a keyword without a usable
    alternative is asked for again. Raises UserError if no keyword is used, or if a used one is not in the caption, is
    protected or occurs twice. Raises UnreadableReply if every attempt fails, and Cancelled between two replies.
    """
    caption: Caption = inputs.values["caption"]
    keywords: Keywords = inputs.values["keywords"]
    settings: AlternativeSettings = inputs.settings
    task, prompt, seed, early = inputs.task, inputs.prompt, inputs.seed, inputs.early_reply
    language_model, sentences = inputs.models.language, inputs.models.sentences
    assert prompt is not None
    require(task_checks(task))
    require(caption_checks(caption.text, task)[:1])
    used = [keyword for keyword in keywords.items if keyword.used]
    if not used:
        raise UserError("No keyword is chosen: tick at least one, or add one from the caption.")
    for place, keyword in enumerate(used):
        require(keyword_checks(keyword.text, caption.text, task, keyword.forced))
        if any(tokens(keyword.text) == tokens(other.text) for other in used[:place]):
            raise UserError(f"The keyword “{keyword.text}” is listed twice: remove one of the two.")

    def from_texts(
        texts: Iterable[tuple[str, tuple[str, ...]]], keywords: Sequence[Keyword]
    ) -> tuple[KeywordAlternatives, ...]:
        named = {tuple(tokens(keyword)): options for keyword, options in texts}
        return tuple(
            _options(keyword, named.get(tuple(tokens(keyword.text)), ()), task, settings) for keyword in keywords
        )

    ready = {item.keyword: item for item in from_texts(early.part.items(), used) if _has_one(item)} if early else {}
    open_ones = [keyword for keyword in used if keyword.text not in ready]

    def complete(items: Sequence[KeywordAlternatives]) -> Alternatives:
        by_keyword = ready | {item.keyword: item for item in items}
        value = Alternatives(tuple(by_keyword[keyword.text] for keyword in used))
        return unticked_where_close(value, task, sentences, settings.too_close)

    if early is not None and not open_ones:
        plain = settings.model_dump(mode="json")
        trace = Trace("model", language_model.name, early.prompt, early.raw_reply, plain, early.seed)
        return StageValue(complete(()), trace)

    def read(reply: str) -> tuple[KeywordAlternatives, ...]:
        items = from_texts(read_alternatives(reply), open_ones)
        if not any(_has_one(item) for item in items):
            raise Unreadable("its reply has no alternative for any of the keywords")
        return items

    inquiry = replace(
        _inquiry(task, caption, open_ones, settings.per_keyword, read, seed),
        shortcomings=lambda items: sum(not _has_one(item) for item in items),
    )
    try:
        answer = ask("alternatives", language_model, prompt, inquiry, settings, inputs.cancelled)
    except UnreadableReply as error:
        if not (ready and error.attempts):
            raise
        none = tuple(_options(keyword, (), task, settings) for keyword in open_ones)
        answer = Answer(none, error.prompt, error.raw_reply, seed, error.attempts, 0.0)
    trace = answer.trace(language_model, settings)
    if early is not None:
        note = (
            f"The request for all three stages gave alternatives for {len(ready)} of {len(used)} keywords: "
            "the others were asked for by themselves."
        )
        trace = replace(
            trace,
            prompt=BETWEEN.join((early.prompt, answer.prompt)),
            raw_reply=BETWEEN.join((early.raw_reply, answer.raw_reply)),
            notes=(note, *trace.notes),
        )
    return StageValue(complete(answer.value), trace)


def more(
    caption: Caption,
    value: Alternatives,
    keyword: Keyword,
    task: Task,
    language_model: LanguageModel,
    prompt: Prompt,
    settings: AlternativeSettings,
    seed: int,
    sentences: Sentences | None = None,
    cancelled: threading.Event | None = None,
) -> tuple[Alternatives, Trace]:
    """Ask for at most `settings.per_keyword` more alternatives of one keyword, at `MORE_TEMPERATURE` or above. Return
    `value` with them, and the trace. Raises UnreadableReply if none is new, and Cancelled between two replies.
    """
    require(task_checks(task))
    require(keyword_checks(keyword.text, caption.text, task, keyword.forced))
    existing = next((item for item in value.items if item.keyword == keyword.text), None)
    item = existing or KeywordAlternatives(keyword.text, keyword.edit_type, (), keyword.forced)
    known = {tuple(tokens(option.text)) for option in item.options}
    freely = settings.model_copy(update={"temperature": max(settings.temperature, MORE_TEMPERATURE)})

    def read(reply: str) -> tuple[KeywordAlternatives, ...]:
        named = {tuple(tokens(name)): options for name, options in read_alternatives(reply)}
        options = named.get(tuple(tokens(keyword.text)), ())
        new = tuple(text for text in options if tuple(tokens(text)) not in known)
        added = _options(keyword, new, task, settings)
        if not added.options:
            raise Unreadable("its reply has no alternative that is new")
        return (added,)

    count = min(10, len(item.options) + settings.per_keyword)
    inquiry = _inquiry(task, caption, [keyword], count, read, seed)
    answer = ask(f"more alternatives of “{keyword.text}”", language_model, prompt, inquiry, freely, cancelled)
    added = unticked_where_close(Alternatives(answer.value), task, sentences, settings.too_close).items[0]
    grown = replace(item, options=(*item.options, *added.options))
    items = value.items if existing is not None else (*value.items, item)
    together = tuple(grown if each.keyword == keyword.text else each for each in items)
    return Alternatives(together), answer.trace(language_model, freely)


def unticked_where_close(
    value: Alternatives, task: Task, sentences: Sentences | None, too_close: float
) -> Alternatives:
    """Measure the similarity of each alternative, and untick too similar ones. Without `sentences`, do neither."""
    if sentences is None:
        return value
    items = []
    for item in measured(value, task, sentences).items:
        options = tuple(replace(option, used=option.used and not option.is_close(too_close)) for option in item.options)
        items.append(replace(item, options=options))
    return Alternatives(tuple(items))


def _inquiry(
    task: Task, caption: Caption, keywords: Sequence[Keyword], count: int, read: Reader, seed: int
) -> Inquiry[tuple[KeywordAlternatives, ...]]:
    names = [keyword.text for keyword in keywords]
    texts = {"task": task.describe(), "caption": caption.text, "keywords": ", ".join(names)}
    return Inquiry({**texts, "count": count}, read, seed, schema=alternatives_schema(names, count))


def _has_one(item: KeywordAlternatives) -> bool:
    return any(option.used for option in item.options)


def _options(
    keyword: Keyword, texts: tuple[str, ...], task: Task, settings: AlternativeSettings
) -> KeywordAlternatives:
    different: dict[tuple[str, ...], str] = {}
    for text in texts:
        words = tuple(tokens(text))
        if words and words != tuple(tokens(keyword.text)):
            different.setdefault(words, text)
    options = tuple(
        Alternative(text, used=not failed(alternative_checks(keyword.text, text, task, keyword.forced)))
        for text in list(different.values())[: settings.per_keyword]
    )
    return KeywordAlternatives(keyword.text, keyword.edit_type, options, keyword.forced)


def _line(value: Alternatives) -> str:
    return "; ".join(
        f"{item.keyword}: {', '.join(option.text for option in item.options if option.used) or 'none'}"
        for item in value.items
    )


ALTERNATIVES = Stage(
    name="alternatives",
    title="Alternatives",
    value=Alternatives,
    run=run,
    reads=("caption", "keywords"),
    prompt=PromptSlot("alternatives", ("task", "caption", "keywords"), ("count",)),
    settings="alternatives",
    marks=frozenset(("too_close",)),
    seen=lambda value: [
        [item.keyword, item.edit_type, [option.text for option in item.options if option.used], *if_forced(item.forced)]
        for item in value.items
    ],
    summary=_line,
    doing="looking for alternatives",
)
