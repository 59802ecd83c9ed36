"""Stage 2, caption to keywords: elements of the caption that may change without changing the ground truth. One request
may cover the next two stages too. Each stage checks its part of the reply like a reply of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.errors import UnreadableReply
from core.settings import LONGEST_REPLY, MOST_EDITS, AlternativeSettings, CounterfactualSettings, KeywordSettings
from core.types import Caption, EditType, Keyword, Keywords, PromptSlot, StageValue, Task, Trace, failed
from core.words import find_phrase
from pipeline.checks.texts import caption_checks, keyword_checks, require, task_checks
from pipeline.prompting import Prompt
from pipeline.stages.asking import BETWEEN, Inquiry, ask
from pipeline.stages.base import EarlyReply, Stage, StageInputs, StageMade
from pipeline.stages.parsing import CombinedReply, Unreadable, read_keywords, read_together
from pipeline.stages.reply_schema import keywords_schema, together_schema

TOGETHER_PROMPT = PromptSlot(
    "together",
    ("task", "caption"),
    ("count", "captions", "most"),
    needed=False,
    title="all three stages in one request",
)
"""Prompt for all three stages. It gives maximum numbers: `$count` alternatives of a keyword, `$captions` captions, and
`$most` edits of a caption."""


def run(inputs: StageInputs) -> StageValue[Keywords] | StageMade:
    """Return the keywords in caption order. Words that are not in the caption or that the task protects are left out. A
    reply in which no word remains is unreadable. A keyword counts as used if the settings tick its edit type. If a
    reply has no used keyword, the model is asked again. After the last attempt, unused keywords are returned. Raises
    UserError for an empty caption, UnreadableReply if no reply is readable, and Cancelled between two replies.
    """
    require(task_checks(inputs.task))
    require(caption_checks(inputs.values["caption"].text, inputs.task)[:1])
    note, in_vain, together = "", list[tuple[str, str]](), inputs.others.get(TOGETHER_PROMPT.name)
    if inputs.settings.together and together is None:
        note = (
            "The stages are asked one by one: the settings ask for one request for all three, but this profile has no "
            f"prompt for it ({TOGETHER_PROMPT.name}.toml is missing)."
        )
    if inputs.settings.together and together is not None and inputs.next:
        try:
            return _ask_together(inputs, together)
        except UnreadableReply as error:
            if not error.attempts:  # the model gave no reply at all: a shorter request would get none either
                raise
            note = f"The stages are asked one by one. {error}"
            in_vain.append((error.prompt, error.raw_reply))
    value = _ask_alone(inputs)
    if not note:
        return value
    prompts, replies = zip(*in_vain, (value.trace.prompt, value.trace.raw_reply), strict=True)
    notes = (note, *value.trace.notes)
    trace = replace(value.trace, prompt=BETWEEN.join(prompts), raw_reply=BETWEEN.join(replies), notes=notes)
    return replace(value, trace=trace)


def _ask_alone(inputs: StageInputs) -> StageValue[Keywords]:
    caption, task, language_model = inputs.values["caption"], inputs.task, inputs.models.language
    assert inputs.prompt is not None

    def read(reply: str) -> tuple[Keyword, ...]:
        return _fitting(read_keywords(reply), caption, task, inputs.settings)

    values, schema = {"task": task.describe(), "caption": caption.text}, keywords_schema(caption.text, task)
    inquiry = Inquiry(values, read, inputs.seed, _without_any, schema)
    answer = ask("keywords", language_model, inputs.prompt, inquiry, inputs.settings, inputs.cancelled)
    return StageValue(Keywords(answer.value), _noted(answer.trace(language_model, inputs.settings), inputs.settings))


def _ask_together(inputs: StageInputs, prompt: Prompt) -> StageMade:
    """Return keywords from a request that also asks for alternatives and captions. The later stages get their parts of
    the reply: alternatives by keyword, and the edits and the text of each caption. The maximum length of the reply is
    the sum of the separate replies' maxima, but at most `LONGEST_REPLY` tokens.
    """
    caption, task, language_model = inputs.values["caption"], inputs.task, inputs.models.language
    settings: KeywordSettings = inputs.settings
    alternatives: AlternativeSettings = inputs.next["alternatives"]
    captions: CounterfactualSettings = inputs.next["counterfactuals"]
    at_once = captions.edits_at_once or MOST_EDITS
    longest = settings.max_new_tokens + alternatives.max_new_tokens + captions.captions * captions.max_new_tokens
    longer = settings.model_copy(update={"max_new_tokens": min(longest, LONGEST_REPLY)})

    def read(reply: str) -> tuple[tuple[Keyword, ...], CombinedReply]:
        parts = read_together(reply)
        return _fitting([(text, edit_type) for text, edit_type, _ in parts.keywords], caption, task, settings), parts

    values: dict[str, str | int] = {
        "task": task.describe(),
        "caption": caption.text,
        "count": alternatives.per_keyword,
        "captions": captions.captions,
        "most": at_once,
    }
    schema = together_schema(caption.text, task, alternatives.per_keyword, captions.captions, at_once)
    inquiry = Inquiry(values, read, inputs.seed, lambda value: _without_any(value[0]), schema)
    what = "keywords, alternatives and captions together"
    answer = ask(what, language_model, prompt, inquiry, longer, inputs.cancelled)
    keywords, combined = answer.value
    parts = {
        "alternatives": {text: options for text, _, options in combined.keywords},
        "counterfactuals": combined.captions,
    }
    value = StageValue(Keywords(keywords), _noted(answer.trace(language_model, settings), settings))
    return StageMade(
        value, {name: EarlyReply(answer.prompt, answer.raw_reply, answer.seed, part) for name, part in parts.items()}
    )


def _fitting(
    named: Sequence[tuple[str, EditType]], caption: Caption, task: Task, settings: KeywordSettings
) -> tuple[Keyword, ...]:
    """Return the keywords in the caption that may change, in caption order. Raises Unreadable if there are none. The
    model may reply with any edit type: if only ticked ones were allowed, it would label other keywords with them.
    """
    fit = [
        Keyword(text, edit_type, used=settings.ticks(edit_type))
        for text, edit_type in named
        if not failed(keyword_checks(text, caption.text, task))
    ]
    if not fit:
        raise Unreadable("no keyword of its reply is in the caption and free to change")
    return tuple(sorted(fit, key=lambda keyword: find_phrase(caption.text, keyword.text)[0]))


def _without_any(keywords: Sequence[Keyword]) -> int:
    return int(not any(keyword.used for keyword in keywords))


def _noted(trace: Trace, settings: KeywordSettings) -> Trace:
    if not settings.edit_types:
        return trace
    note = f"The settings tick keywords of these edit types only: {settings.edit_types}."
    return replace(trace, notes=(*trace.notes, note))


def if_forced(forced: bool) -> list[str]:
    """Return ["forced"] for a forced keyword, else []. The result is part of the data that later stages depend on."""
    return ["forced"] if forced else []


KEYWORDS = Stage(
    name="keywords",
    title="Keywords",
    value=Keywords,
    run=run,
    reads=("caption",),
    prompt=PromptSlot("keywords", ("task", "caption")),
    other_prompts=(TOGETHER_PROMPT,),
    sends=lambda settings: (TOGETHER_PROMPT.name,) if settings.together else (),
    asks_ahead=lambda settings: ("alternatives", "counterfactuals") if settings.together else (),
    settings="keywords",
    seen=lambda value: [[item.text, item.edit_type, *if_forced(item.forced)] for item in value.items if item.used],
    summary=lambda value: ", ".join(item.text for item in value.items if item.used) or "none ticked",
    doing="finding keywords",
)
