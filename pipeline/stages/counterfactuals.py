"""Stage 4, alternatives to counterfactual captions: combines edits and asks for a caption with each combination."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, islice, product
from typing import Any

from core.errors import UserError
from core.progress import OnProgress, Pace, Progress
from core.seeds import derive_seed
from core.settings import MOST_COMBINATIONS, CounterfactualSettings
from core.types import (
    Alternatives,
    Caption,
    Check,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    PromptSlot,
    StageValue,
    Task,
    Values,
    failed,
)
from core.words import and_list, find_phrase, tokens
from pipeline.checks.texts import (
    alternative_checks,
    caption_checks,
    counterfactual_checks,
    keyword_checks,
    require,
    task_checks,
    undone,
)
from pipeline.stages.asking import Answer, Inquiry, NoAnswer, ask_all, joined_trace, require_one
from pipeline.stages.base import EarlyReply, Stage, StageInputs
from pipeline.stages.caption import caption_text
from pipeline.stages.edit_choice import EDITS_PROMPT, Choice, choose_by_model, read_combinations
from pipeline.stages.factorial import factorial
from pipeline.stages.parsing import Unreadable, read_caption
from pipeline.stages.reply_schema import caption_schema, edit_text

_LOOKED_AT = 20_000
"""Maximum number of combinations to draw from at random. Combinations that are listed later are never drawn."""


def run(inputs: StageInputs) -> StageValue[CounterfactualCaptions]:
    """Write counterfactual captions, one request each. Edits are chosen by `choose_edits`, or by the model, which is
    asked with `EDITS_PROMPT` and `seed`. The trace notes if the model makes no choice. Caption k takes
    `derive_seed(seed, k)` and the seeds after it. Captions with the same words are merged. A caption that misses an
    edit or loses a protected word is asked for again. If all attempts do so, the best is kept but not used. If no reply
    can be used, the caption is empty, with the reason in a check. The next run asks only for the empty captions.

    `inputs.early_reply` has edits and captions that the model already wrote. If edits are "spread", "at random" or
    chosen by the model, the early edits come first. Early captions that pass the checks are used. The model is asked
    for the others, and the trace notes that. Raises UserError if no alternative is used. Raises UserError for a used
    alternative that changes nothing, and for one whose keyword does not fit the caption. Raises a request's error if
    no caption could be written. Raises Cancelled.
    """
    caption: Caption = inputs.values["caption"]
    alternatives: Alternatives = inputs.values["alternatives"]
    settings: CounterfactualSettings = inputs.settings
    task, prompt, seed, early = inputs.task, inputs.prompt, inputs.seed, inputs.early_reply
    language_model, choosing = inputs.models.language, inputs.others.get(EDITS_PROMPT.name)
    assert prompt is not None
    require(task_checks(task))
    require(caption_checks(caption.text, task)[:1])
    for item in alternatives.items:
        for option in item.options:
            if option.used:
                require(keyword_checks(item.keyword, caption.text, task, item.forced))
                # Only the first check counts (something changes): a lost protected word will show in the caption.
                require(alternative_checks(item.keyword, option.text, task)[:1])
    pools, at_once = edit_pools(caption, alternatives, settings)
    if not pools:
        raise UserError("No alternative is chosen: tick at least one, or add one.")
    start, choice = time.monotonic(), Choice()
    offered = _offered(early, pools, at_once, settings.captions) if early is not None else {}
    asks = int(settings.combinations == "model" and choosing is not None and not offered)
    pace = Pace(asks + settings.captions)
    if settings.combinations == "model" and not offered:
        tell(inputs.progress, pace, 0, asks)
        choice = choose_by_model(inputs, pools, at_once)
    chosen = choice.edits or choose_edits(caption, alternatives, settings, seed)
    earlier = _written_before(inputs.before)
    if earlier:
        chosen = tuple(item.edits for item in inputs.before.items)
    elif settings.combinations in ("spread", "at random", "model"):
        rest = [edits for edits in chosen if edits not in offered]
        chosen = (*offered, *rest[: max(0, len(chosen) - len(offered))])
    inquiries = [_inquiry(caption, edits, task, derive_seed(seed, number)) for number, edits in enumerate(chosen)]
    ready = {
        number: answer
        for number, (edits, inquiry) in enumerate(zip(chosen, inquiries, strict=True))
        if early is not None and edits in offered and (answer := _taken(inquiry, early, offered[edits])) is not None
    }
    pace.total = asks + len(chosen)
    new_answers = ask_all(
        "a counterfactual caption",
        language_model,
        prompt,
        [inquiry for number, inquiry in enumerate(inquiries) if number not in ready and number not in earlier],
        settings,
        lambda done: tell(inputs.progress, pace, asks + len(ready) + len(earlier) + done, asks),
        inputs.cancelled,
    )
    require_one(new_answers)
    still = iter(new_answers)
    drafts = [
        earlier[number] if number in earlier else _draft(edits, ready[number] if number in ready else next(still))
        for number, edits in enumerate(chosen)
    ]
    items = [replace(draft, used=not failed(counterfactual_checks(caption.text, draft, task))) for draft in drafts]
    notes = [choice.note] if choice.note else []
    if earlier:
        notes.append(f"{len(earlier)} of {len(chosen)} captions were written before: only the missing were asked for.")
    if early is not None and new_answers:
        notes.append(
            f"The request for all three stages gave {len(ready)} of {len(chosen)} captions: the others were asked for "
            "by themselves."
        )
    notes += [note for answer in new_answers for note in answer.notes]
    sent = (*([early] if early is not None else []), *choice.sent, *new_answers)
    trace = joined_trace(language_model.name, sent, settings, seed, start, notes)
    return StageValue(merged(CounterfactualCaptions(tuple(items)), caption.text), trace)


def _written_before(before: CounterfactualCaptions | None) -> dict[int, CounterfactualCaption]:
    """Return the last try's captions that have text, by index. Return {} if no caption's text is missing."""
    items = before.items if before is not None else ()
    written = {number: item for number, item in enumerate(items) if tokens(item.text)}
    return written if len(written) < len(items) else {}


def _draft(edits: tuple[Edit, ...], answer: Answer[str] | NoAnswer) -> CounterfactualCaption:
    """Return the caption of an answer. Without an answer, it is empty, and a check gives the reason."""
    if isinstance(answer, Answer):
        return CounterfactualCaption(answer.value, edits)
    words = and_list(f"“{edit.keyword}” → “{edit.alternative}”" for edit in edits)
    check = Check("caption written", False, note=f"The caption with {words} is missing. {answer.error}")
    return CounterfactualCaption("", edits, checks=(check,))


def _offered(
    early: EarlyReply, pools: Sequence[Sequence[Edit]], at_once: int, captions: int
) -> dict[tuple[Edit, ...], str]:
    offered: dict[tuple[Edit, ...], str] = {}
    for texts, text in early.part:
        with suppress(ValueError):  # such as an edit that was not offered
            (edits,) = read_combinations("; ".join(texts), pools, at_once)
            if len(offered) < captions:
                offered.setdefault(edits, text)
    return offered


def _taken(inquiry: Inquiry[str], early: EarlyReply, text: str) -> Answer[str] | None:
    try:
        value = inquiry.read(text)
    except Unreadable:
        return None
    return None if inquiry.shortcomings(value) else Answer(value, early.prompt, early.raw_reply, early.seed, 1, 0.0)


def merged(value: CounterfactualCaptions, source: str) -> CounterfactualCaptions:
    """Merge non-empty captions with the same words into the first of them. The result is ticked if any caption was
    ticked. It has all their edits that show in its text. If no edit shows, it has the first caption's edits.
    """
    groups: dict[Hashable, list[CounterfactualCaption]] = {}
    for item in value.items:
        groups.setdefault(tuple(tokens(item.text)) or item.edits, []).append(item)
    items = []
    for first, *others in groups.values():
        every = dict.fromkeys(edit for item in (first, *others) for edit in item.edits)
        shown = tuple(edit for edit in every if not undone(source, first.text, edit))
        used = any(item.used for item in (first, *others))
        items.append(replace(first, edits=shown or first.edits, used=used) if others else first)
    return CounterfactualCaptions(tuple(items))


def choose_edits(
    caption: Caption, alternatives: Alternatives, settings: CounterfactualSettings, seed: int
) -> tuple[tuple[Edit, ...], ...]:
    """Choose the edits of each counterfactual caption as `settings.combinations` says. No two captions have the same
    edits. A person's combination is used if all its edits still exist. Edits are spread evenly if no such combination
    is left, or if the model makes no choice. Raises UserError if "all" gives more than `MOST_COMBINATIONS`.
    """
    pools, at_once = edit_pools(caption, alternatives, settings)
    if settings.combinations == "chosen":
        known = {(edit.keyword, edit.alternative): edit for pool in pools for edit in pool}
        remaining = [tuple(known[pair] for pair in pairs if pair in known) for pairs in settings.chosen]
        complete = [
            edits for edits, pairs in zip(remaining, settings.chosen, strict=True) if edits and len(edits) == len(pairs)
        ]
        if complete:
            return tuple(dict.fromkeys(complete))
    rng = random.Random(seed)
    if settings.combinations == "all":
        total = count_combinations(pools, at_once)
        if total > MOST_COMBINATIONS:
            raise UserError(
                f"There are {total} combinations, and at most {MOST_COMBINATIONS} captions are written: untick some "
                "alternatives, or choose another way to combine them."
            )
        return tuple(all_combinations(caption, alternatives, settings))
    if settings.combinations == "one of each":
        groups = math.comb(len(pools), at_once) if pools else 0
        return _spread(pools, at_once, min(groups, MOST_COMBINATIONS), rng, once=True)
    if settings.combinations == "factorial":
        return factorial(pools, settings.captions, seed)
    if settings.combinations == "at random":
        first_ones = list(islice(all_combinations(caption, alternatives, settings), _LOOKED_AT))
        drawn = sorted(rng.sample(range(len(first_ones)), min(settings.captions, len(first_ones))))
        return tuple(first_ones[place] for place in drawn)
    return _spread(pools, at_once, settings.captions, rng)


def all_combinations(
    caption: Caption, alternatives: Alternatives, settings: CounterfactualSettings
) -> Iterator[tuple[Edit, ...]]:
    """Yield every combination of ticked alternatives. A combination changes `settings.edits_at_once` keywords. It
    changes all keywords if this setting is 0 or larger than the number of keywords.
    """
    pools, at_once = edit_pools(caption, alternatives, settings)
    if pools:
        for group in combinations(pools, at_once):
            yield from product(*group)


def count_combinations(pools: Sequence[Sequence[Edit]], at_once: int) -> int:
    """Count the combinations of edits of `at_once` keywords, without listing them. `pools`: edits by keyword."""
    ways = [1] + [0] * at_once  # ways[k]: combinations of k of the keywords so far
    for pool in pools:
        for k in range(at_once, 0, -1):
            ways[k] += ways[k - 1] * len(pool)
    return ways[at_once] if pools else 0


def edit_pools(
    caption: Caption, alternatives: Alternatives, settings: CounterfactualSettings
) -> tuple[tuple[tuple[Edit, ...], ...], int]:
    """Return the possible edits of each keyword, in caption order, and how many keywords a caption changes."""
    places = {item.keyword: find_phrase(caption.text, item.keyword) for item in alternatives.items}
    by_keyword = [
        tuple(Edit(item.keyword, option.text, item.edit_type, item.forced) for option in item.options if option.used)
        for item in sorted(alternatives.items, key=lambda item: places[item.keyword][:1])
    ]
    pools = tuple(pool for pool in by_keyword if pool)
    return pools, min(settings.edits_at_once or len(pools), len(pools))


def _spread(
    pools: Sequence[Sequence[Edit]], at_once: int, number: int, rng: random.Random, once: bool = False
) -> tuple[tuple[Edit, ...], ...]:
    """Return at most `number` combinations of edits. Keywords, and the alternatives of each keyword, occur equally
    often. With `once`, no group of keywords is used twice.
    """
    keyword_turns = [0] * len(pools)
    edit_turns = {edit: 0 for pool in pools for edit in pool}
    chosen: list[tuple[Edit, ...]] = []
    seen: set[frozenset[Edit]] = set()
    groups: set[frozenset[int]] = set()
    while pools and len(chosen) < number:
        # The least used come first, so the first new combination is the most even one. The generator is lazy: it skips
        # no more combinations than were chosen before.
        order = sorted(range(len(pools)), key=lambda i: (keyword_turns[i], rng.random()))
        ranked = [sorted(pool, key=lambda edit: (edit_turns[edit], rng.random())) for pool in pools]
        ways = (
            (keywords, edits)
            for keywords in combinations(order, at_once)
            if not once or frozenset(keywords) not in groups
            for edits in product(*(ranked[i] for i in sorted(keywords)))
            if frozenset(edits) not in seen
        )
        way = next(ways, None)
        if way is None:
            break
        keywords, edits = way
        chosen.append(edits)
        seen.add(frozenset(edits))
        groups.add(frozenset(keywords))
        for i in keywords:
            keyword_turns[i] += 1
        for edit in edits:
            edit_turns[edit] += 1
    return tuple(chosen)


def _inquiry(caption: Caption, edits: tuple[Edit, ...], task: Task, seed: int) -> Inquiry[str]:
    return Inquiry(
        {
            "task": task.describe(),
            "caption": caption.text,
            "edits": "; ".join(edit_text(edit.keyword, edit.alternative) for edit in edits),
        },
        read_caption,
        seed,
        shortcomings=lambda text: len(
            failed(counterfactual_checks(caption.text, CounterfactualCaption(text, edits), task))
        ),
        schema=caption_schema(caption.text),
    )


def tell(on_progress: OnProgress | None, pace: Pace, done: int, before: int = 0) -> None:
    """Report how many captions are done. `before` is the number of requests before the first caption."""
    if on_progress is not None:
        captions = pace.total - before
        note = f"caption {min(done - before + 1, captions)} of {captions}" if done >= before else "choosing the edits"
        on_progress(Progress("counterfactuals", done, pace.total, pace.seconds_left(done), note))


def captions_line(value: CounterfactualCaptions) -> str:
    """Return one line: the number of ticked captions, and the edits of every caption, ticked or not."""
    ticked = sum(item.used for item in value.items)
    edits = "; ".join(", ".join(edit.alternative for edit in item.edits) or "by hand" for item in value.items)
    return f"{ticked} of {len(value.items)} ticked: {edits}"


def captions_remarks(value: CounterfactualCaptions, values: Values, task: Task) -> list[str]:
    """Return a line for each check that a caption fails."""
    return [
        f"{'used all the same' if item.used else 'not used'}: {item.text} {check.note}"
        for item in value.items
        for check in failed(counterfactual_checks(caption_text(values), item, task))
    ]


def captions_seen(value: CounterfactualCaptions) -> list[Any]:
    """Return the parts of captions that the drawing reads: text and edits of the ticked ones."""
    return [[item.text, [[e.keyword, e.alternative] for e in item.edits]] for item in value.items if item.used]


COUNTERFACTUALS = Stage(
    name="counterfactuals",
    title="Counterfactual captions",
    value=CounterfactualCaptions,
    run=run,
    reads=("caption", "alternatives"),
    prompt=PromptSlot("counterfactuals", ("task", "caption", "edits")),
    other_prompts=(EDITS_PROMPT,),
    sends=lambda settings: (EDITS_PROMPT.name,) if settings.combinations == "model" else (),
    settings="counterfactuals",
    seen=captions_seen,
    summary=captions_line,
    remarks=captions_remarks,
    doing="writing counterfactual captions",
)
