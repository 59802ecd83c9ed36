"""Outcomes of all items, and the share of valid images of any part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from core.studies import Adjudication, Item, Question, Rules, Vote
from study.consensus import Outcome, counted, image_outcome, is_asked, outcome
from study.intervals import bounds, wilson
from study.questions import asked
from study.report_types import Slice, Slices

Outcomes = Mapping[int, Mapping[str, Outcome]]
"""By item, then by question."""
NONE = "(none)"
"""The part of the images that have no class, edit type, sample or verdict, where others have one."""


def outcomes_of(items: Sequence[Item], votes: Mapping[int, Sequence[Vote]], rules: Rules, closed: bool) -> Outcomes:
    """What the counted votes say of every item to every question with fixed answers that it was asked."""
    with_answers = [question for question in rules.questions if question.kind != "text"]
    found: dict[int, dict[str, Outcome]] = {}
    for item in items:
        of_item = votes.get(item.id, ())
        found[item.id] = {
            question.id: outcome(question, item.id, of_item, rules.votes, rules.consensus, closed)
            for question in _asked_of(with_answers, item, of_item)
        }
    return found


def _asked_of(questions: Sequence[Question], item: Item, votes: Sequence[Vote]) -> list[Question]:
    """The questions that concern an item: a follow-up only if one of its workers was asked it."""
    plain = {question.id for question in asked([replace(q, follows="") for q in questions], item, {})}
    return [question for question in questions if question.id in plain and is_asked(question, votes)]


def adjudicated(outcomes: Outcomes, adjudications: Iterable[Adjudication], questions: Sequence[Question]) -> Outcomes:
    """The same with a person's answers where the workers found none; a consensus is never overruled."""
    known = {question.id: question for question in questions}
    found = {item: dict(of_item) for item, of_item in outcomes.items()}
    for decision in adjudications:
        before = found.get(decision.item, {}).get(decision.question)
        if before is None or before.status == "consensus":
            continue
        valid = known[decision.question].valid
        found[decision.item][decision.question] = replace(
            before,
            status="consensus",
            answer=decision.answer,
            valid=decision.answer in valid if valid else None,
        )
    return found


def of_question(outcomes: Outcomes, question: str) -> dict[int, Outcome]:
    """The outcomes of one question, by item."""
    return {item: of_item[question] for item, of_item in outcomes.items() if question in of_item}


def of_images(outcomes: Outcomes, questions: Sequence[Question]) -> dict[int, Outcome]:
    """The outcome of every image that was asked a question on validity, all of these taken together.

    A follow-up question does not take part: it is asked of some workers only.
    """
    telling = {question.id for question in questions if question.valid and not question.follows}
    found = {}
    for item, of_item in outcomes.items():
        parts = [part for question, part in of_item.items() if question in telling]
        if parts:
            found[item] = image_outcome(item, parts)
    return found


def outcome_of_image(
    item: Item, votes: Iterable[Vote], adjudications: Sequence[Adjudication], rules: Rules, closed: bool
) -> Outcome | None:
    """Whether the votes on one item, and a person where they found no consensus, say that it is valid.

    `votes` are those of workers who are not excluded, in the order in which they were first given. None when nothing
    is asked of validity.
    """
    outcomes = outcomes_of([item], counted(votes, rules.votes), rules, closed)
    if adjudications:
        outcomes = adjudicated(outcomes, adjudications, rules.questions)
    return of_images(outcomes, rules.questions).get(item.id)


def slice_of(name: str, outcomes: Iterable[Outcome], telling: bool = True) -> Slice:
    """The share of valid ones among those with a consensus, and what is missing.

    `telling` is False for a question that says nothing of validity: then the rate is undefined, in these words.
    """
    outcomes = list(outcomes)
    decided = [found for found in outcomes if found.status == "consensus"]
    discarded, short, waiting = (
        sum(found.status == status for found in outcomes) for status in ("no consensus", "too few votes", "waiting")
    )
    if not telling:
        nothing = "it is not asked whether the image is valid"
    elif not outcomes:
        nothing = "no image was asked this"
    elif waiting:
        nothing = "no image has all its votes and a consensus yet"
    else:
        nothing = "no image found a consensus"
    valid = sum(found.valid is True for found in decided)
    return Slice(
        name,
        len(outcomes),
        wilson(valid, len(decided) if telling else 0, nothing=nothing),
        discarded,
        short,
        waiting,
        bounds(valid, len(decided), discarded + short) if telling else bounds(0, 0, 0),
    )


def slices_of(items: Sequence[Item], outcomes: Mapping[int, Outcome]) -> Slices:
    """The shares by class, edit type, sample and model under test, each in the order of the alphabet.

    Images without one come last, as `NONE`: the parts hold every image that was asked.
    """

    def by(names: Callable[[Item], Iterable[str]]) -> tuple[Slice, ...]:
        parts: dict[str, list[Outcome]] = {}
        for item in items:
            if item.id in outcomes:
                for name in dict.fromkeys(name for name in names(item) if name) or (NONE,):
                    parts.setdefault(name, []).append(outcomes[item.id])
        if set(parts) <= {NONE}:
            return ()
        return tuple(slice_of(name, parts[name]) for name in sorted(parts, key=lambda name: (name == NONE, name)))

    return Slices(
        by_class=by(lambda item: (item.label,) if item.label else item.classes),
        by_edit_type=by(lambda item: item.edit_types),
        by_group=by(lambda item: (item.group,)),
        by_model=by(_model),
    )


def _model(item: Item) -> tuple[str, ...]:
    """The model under test with its verdict; nothing where it has none."""
    if item.model_right is None:
        return ()
    return (f"{item.model or 'model under test'}: {'right' if item.model_right else 'wrong'}",)
