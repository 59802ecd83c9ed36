"""Stage 3, keywords to alternatives: what each keyword that is used may become."""

from __future__ import annotations

from pipeline.checks import alternative_checks, caption_checks, failed, keyword_checks, require, task_checks
from pipeline.errors import UserError
from pipeline.freshness import inputs_key
from pipeline.parsing import Unreadable, read_alternatives
from pipeline.prompting import PromptSet
from pipeline.seams import LanguageModel
from pipeline.settings import AlternativeSettings
from pipeline.stages.asking import ask
from pipeline.types import (
    Alternative,
    Alternatives,
    Caption,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageValue,
    Task,
    Trace,
)
from pipeline.words import tokens


def run(
    caption: Caption,
    keywords: Keywords,
    task: Task,
    language_model: LanguageModel,
    prompts: PromptSet,
    settings: AlternativeSettings,
    seed: int,
) -> StageValue[Alternatives]:
    """One entry for every keyword that is used, each with at most `settings.per_keyword` alternatives.

    An alternative that drops or adds a protected word is kept but not used, so that a person sees it. A reply that
    leaves a keyword without one is asked for again; what is missing in the end stays empty.
    Raises UserError when no keyword is used, or one of them cannot be; UnreadableReply when every attempt is spent.
    """
    require(task_checks(task))
    require(caption_checks(caption.text, task)[:1])
    used = [keyword for keyword in keywords.items if keyword.used]
    if not used:
        raise UserError("No keyword is chosen: tick at least one, or add one from the caption.")
    for place, keyword in enumerate(used):
        require(keyword_checks(keyword.text, caption.text, task))
        if any(tokens(keyword.text) == tokens(other.text) for other in used[:place]):
            raise UserError(f"The keyword “{keyword.text}” is there twice: remove one of the two.")

    def read(reply: str) -> tuple[KeywordAlternatives, ...]:
        named = {tuple(tokens(keyword)): options for keyword, options in read_alternatives(reply)}
        items = tuple(_options(keyword, named.get(tuple(tokens(keyword.text)), ()), task, settings) for keyword in used)
        if not any(option.used for item in items for option in item.options):
            raise Unreadable("its reply has no alternative for any of the keywords")
        return items

    answer = ask(
        "alternatives",
        language_model,
        prompts.alternatives,
        {
            "task": task.describe(),
            "caption": caption.text,
            "keywords": ", ".join(keyword.text for keyword in used),
            "count": settings.per_keyword,
        },
        read,
        settings,
        seed,
        shortcomings=lambda items: sum(not any(option.used for option in item.options) for item in items),
    )
    trace = Trace(
        author="model",
        model=language_model.name,
        prompt=answer.prompt,
        raw_reply=answer.raw_reply,
        settings=settings.model_dump(mode="json"),
        seed=answer.seed,
        attempts=answer.attempts,
        seconds=answer.seconds,
    )
    key = inputs_key("alternatives", task, "", {"caption": caption, "keywords": keywords}, settings)
    return StageValue(Alternatives(answer.value), trace, key)


def _options(
    keyword: Keyword, texts: tuple[str, ...], task: Task, settings: AlternativeSettings
) -> KeywordAlternatives:
    different: dict[tuple[str, ...], str] = {}
    for text in texts:
        words = tuple(tokens(text))
        if words and words != tuple(tokens(keyword.text)):
            different.setdefault(words, text)
    options = tuple(
        Alternative(text, used=not failed(alternative_checks(keyword.text, text, task)))
        for text in list(different.values())[: settings.per_keyword]
    )
    return KeywordAlternatives(keyword.text, keyword.edit_type, options)
