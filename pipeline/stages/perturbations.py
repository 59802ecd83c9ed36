"""Writes perturbations of a caption: counterfactual captions with one edit each, of a requested type. The words in
which the two captions differ are the edit, whatever the reply says. Checks require that only one place changed, that
the edit has the requested type, and that the new words are not close in meaning to replaced or protected words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from core.progress import Pace
from core.seeds import derive_seed
from core.settings import MOST_EDITS, PerturbationSettings
from core.types import (
    EDIT_TYPES,
    Caption,
    Check,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    EditType,
    PromptSlot,
    StageValue,
    Task,
    failed,
)
from core.words import tokens
from pipeline.checks.similarity import closeness, is_of_type
from pipeline.checks.single_edit import Change, changes
from pipeline.checks.texts import caption_checks, check_of, counterfactual_checks, require, task_checks
from pipeline.seams import Sentences
from pipeline.stages.asking import Answer, Inquiry, ask_all, joined_trace, require_one, unanswered
from pipeline.stages.base import Stage, StageInputs
from pipeline.stages.counterfactuals import captions_line, captions_remarks, captions_seen, tell
from pipeline.stages.parsing import read_perturbation
from pipeline.stages.reply_schema import perturbation_schema

Typed = tuple[EditType, CounterfactualCaption]


def run(inputs: StageInputs) -> StageValue[CounterfactualCaptions]:
    """Return counterfactual captions with one edit each, from `settings.per_type` requests for each edit type. If the
    caption in a reply fails a check, its request is sent again. If every attempt fails, the caption with the fewest
    failed checks is returned with `used` False. Captions with the same words are returned once. Request k takes
    `derive_seed(seed, k)` and the seeds after it. Raises UserError if no request has an answer, and Cancelled.
    """
    caption: Caption = inputs.values["caption"]
    settings: PerturbationSettings = inputs.settings
    task, prompt, language_model = inputs.task, inputs.prompt, inputs.models.language
    assert prompt is not None
    require(task_checks(task))
    require(caption_checks(caption.text, task)[:1])
    start, pace = time.monotonic(), Pace(len(settings.asked))

    @cache
    def perturbed(text: str, edit_type: EditType) -> CounterfactualCaption:
        return _checked(caption.text, text, edit_type, task, settings, inputs.models.sentences)

    def inquiry(edit_type: EditType, seed: int) -> Inquiry[str]:
        def shortcomings(text: str) -> int:
            counterfactual = perturbed(text, edit_type) if text else None
            return len(_failed(caption.text, counterfactual, task)) if counterfactual is not None else 0

        values = {"task": task.describe(), "type": edit_type, "caption": caption.text}
        schema = perturbation_schema(caption.text, task, edit_type)
        return Inquiry(values, read_perturbation, seed, shortcomings, schema)

    answers = ask_all(
        "a caption with one edit",
        language_model,
        prompt,
        [inquiry(edit_type, derive_seed(inputs.seed, number)) for number, edit_type in enumerate(settings.asked)],
        settings,
        lambda done: tell(inputs.progress, pace, done),
        inputs.cancelled,
    )
    require_one(answers)
    answered = [
        (edit_type, answer.value)
        for edit_type, answer in zip(settings.asked, answers, strict=True)
        if isinstance(answer, Answer)
    ]
    typed = [(edit_type, perturbed(text, edit_type)) for edit_type, text in answered if text]
    unknown = {edit_type for edit_type, _ in answered} - {edit_type for edit_type, _ in typed}
    notes = (
        *_kept(caption.text, typed, task),
        *_left_out(unknown),
        *unanswered(answers),
        *(note for answer in answers for note in answer.notes),
    )
    trace = joined_trace(language_model.name, answers, settings, inputs.seed, start, notes)
    return StageValue(CounterfactualCaptions(_each_once(typed)), trace)


def _checked(
    source: str,
    text: str,
    edit_type: EditType,
    task: Task,
    settings: PerturbationSettings,
    sentences: Sentences,
) -> CounterfactualCaption:
    differences = changes(source, text)
    edits = tuple(Edit(change.keyword, change.alternative, edit_type) for change in differences[:MOST_EDITS])
    counted = f"{len(differences)} places of the caption were changed" if differences else "Nothing was changed"
    checks = [check_of("one change", len(differences) == 1, f"{counted}: one edit was asked for.")]
    if len(differences) == 1:
        (change,) = differences
        fits, likelier = is_of_type(change, edit_type, sentences)
        edit = f"“{change.keyword}” to “{change.alternative}”"
        note = f"{edit} is rather an edit of the type {likelier} than {edit_type}."
        checks += [check_of("of its type", fits, note), _meaning(change, edit_type, task, settings, sentences)]
    perturbed = CounterfactualCaption(text, edits, checks=tuple(checks))
    return replace(perturbed, used=not _failed(source, perturbed, task))


def _meaning(
    change: Change, edit_type: EditType, task: Task, settings: PerturbationSettings, sentences: Sentences
) -> Check:
    similarity, like = closeness(change, edit_type, task, sentences, raw=settings.measure == "raw")
    if similarity is None:
        return Check("meaning changed", True)
    note = f"“{change.came}” comes close to “{like}”: {similarity:.2f}, and the limit is {settings.too_close:g}."
    passed = similarity < settings.too_close
    return Check("meaning changed", passed, similarity, "" if passed else note, settings.too_close)


def _failed(source: str, made: CounterfactualCaption, task: Task) -> tuple[Check, ...]:
    return failed(counterfactual_checks(source, made, task))


def _each_once(made: Sequence[Typed]) -> tuple[CounterfactualCaption, ...]:
    best: dict[tuple[str, ...], CounterfactualCaption] = {}
    for _, item in made:
        words = tuple(tokens(item.text))
        if item.edits and (words not in best or (item.used and not best[words].used)):
            best[words] = item
    return tuple(best.values())


def _kept(source: str, made: Sequence[Typed], task: Task) -> list[str]:
    """Return a list: empty if all captions were kept, else one sentence that counts kept and rejected captions."""
    requested, used = Counter(kind for kind, _ in made), Counter(kind for kind, item in made if item.used)
    if requested == used:
        return []
    by_type = ", ".join(f"{kind} {used[kind]} of {number}" for kind, number in requested.items())
    rejected = Counter(check.name for _, item in made for check in _failed(source, item, task))
    by_check = ", ".join(f"“{name}” {number}" for name, number in rejected.most_common())
    summary = f"Kept {used.total()} of {len(made)}: {by_type}."
    return [f"{summary} Rejected by check: {by_check}." if by_check else summary]


def _left_out(unknown: Collection[EditType]) -> list[str]:
    if not unknown:
        return []
    names = ", ".join(name for name in EDIT_TYPES if name in unknown)
    return [f"The language model found no edit of these types for this caption: {names}."]


PERTURBATIONS = Stage(
    name="counterfactuals",
    title="Counterfactual captions",
    value=CounterfactualCaptions,
    run=run,
    reads=("caption",),
    prompt=PromptSlot("perturbations", ("task", "type", "caption")),
    settings="perturbations",
    seen=captions_seen,
    summary=captions_line,
    remarks=captions_remarks,
    doing="writing captions with one edit",
)
