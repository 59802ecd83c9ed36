"""Outcomes of all items, and the share of valid images of any part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from core.consensus import ItemOutcome, Outcomes
from core.studies import Item
from core.study_report import NONE, Slice, Slices
from study.intervals import bounds, wilson


def of_question(outcomes: Outcomes, question: str) -> dict[int, ItemOutcome]:
    """The outcomes of one question, by item."""
    return {item: of_item[question] for item, of_item in outcomes.items() if question in of_item}


def slice_of(name: str, outcomes: Iterable[ItemOutcome], telling: bool = True) -> Slice:
    """Return the share of valid outcomes among those with a consensus; undefined, in words, unless `telling`."""
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


def slices_of(items: Sequence[Item], outcomes: Mapping[int, ItemOutcome]) -> Slices:
    """The shares by class, edit type, sample and model under test, each in the order of the alphabet.

    Images without one come last, as `NONE`: the parts hold every image that was asked.
    """

    def by(names: Callable[[Item], Iterable[str]]) -> tuple[Slice, ...]:
        parts: dict[str, list[ItemOutcome]] = {}
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
    if item.model_right is None:
        return ()
    return (f"{item.model or 'model under test'}: {'right' if item.model_right else 'wrong'}",)
