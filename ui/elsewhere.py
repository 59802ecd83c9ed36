"""What other pages changed of a run's settings and prompts since a page looked at them. Pure: states in, words out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from pipeline.types import StageName
from storage.types import StoredState

Settings = Mapping[str, Any]
"""As plain data: a section each, in it a value for each setting."""


@dataclass(frozen=True)
class Change:
    """One setting that another page changed."""

    section: str
    name: str
    value: Any
    when: datetime


def settings_elsewhere(states: Sequence[StoredState], mine: Collection[int]) -> tuple[Change, ...]:
    """The settings that others changed, each with what they made of it last.

    `states` begin with the one that the page showed; `mine` are the ids of those that it wrote itself.
    """
    found: dict[tuple[str, str], Change] = {}
    for before, after in _pairs(states, mine):
        for section, name in changed(before.settings, after.settings):
            found[section, name] = Change(section, name, after.settings[section][name], after.created)
    return tuple(found.values())


def prompt_elsewhere(states: Sequence[StoredState], mine: Collection[int], stage: StageName) -> datetime | None:
    """When others changed the prompt of a stage last; None when they did not."""
    moments = [
        after.created for before, after in _pairs(states, mine) if before.prompts.get(stage) != after.prompts.get(stage)
    ]
    return moments[-1] if moments else None


def changed(before: Settings, after: Settings) -> tuple[tuple[str, str], ...]:
    """The settings (section and name) that differ."""
    return tuple(
        (section, name)
        for section, values in after.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
        if section in before and before[section].get(name) != value
    )


def both_kept(others: Sequence[Change], mine: Collection[tuple[str, str]], clock: str) -> str:
    """What the page that came second is told: what was changed elsewhere, and what became of its own change."""
    listed = ", ".join(f"{change.name.replace('_', ' ')} to {_shown(change.value)}" for change in others)
    replaced = any((change.section, change.name) in mine for change in others)
    end = "Yours was saved on top; set that again to have theirs." if replaced else "Both changes are kept."
    return f"These settings were changed elsewhere meanwhile ({clock}): {listed}. {end}"


def _pairs(states: Sequence[StoredState], mine: Collection[int]) -> Iterable[tuple[StoredState, StoredState]]:
    return ((before, after) for before, after in pairwise(states) if after.id not in mine)


def _shown(value: Any) -> str:
    return (
        f"{value:g}" if isinstance(value, float) else f"“{str(value)[:60]}”" if isinstance(value, str) else str(value)
    )
