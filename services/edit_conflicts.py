"""Detects when two pages edit one run at the same time, and writes the message for the person who saved second.

An edit always applies to the latest version, and earlier versions are kept, so that no edit is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from core.stored_runs import StoredState, StoredValue
from core.types import StageName, stage_title
from services.commands import RunCommand, parts_of

KEPT = 2000
"""Maximum number of saved versions that are remembered, each with the page that saved it."""
LARGEST_ID = 10**18
"""Largest number that commands accept as an id. Much larger ones do not fit into a database column."""
Id = Annotated[int, Field(ge=0, le=LARGEST_ID)]
Ids = Annotated[tuple[Id, ...], BeforeValidator(parts_of)]
"""Several ids: a list of numbers, or one text with commas between them."""
CaseId = Annotated[Id, Field(description="The test case")]
After = Annotated[Id, Field(description="The “next” of the page before")]
"""Value of `next` in the previous page of a list: the requested page continues from there. 0 for the first page."""
Tab = Annotated[str, Field(max_length=40, description="A name that the sending page chose for itself")]

PlainSettings = Mapping[str, Any]
"""Settings as plain data: for each section, a mapping from a setting's name to its value."""


class ValueEdit(RunCommand):
    """An edit of the value of a text stage. It applies to the latest version, even if the person saw an earlier one."""

    tab: Tab = ""
    version: int = Field(0, ge=0, le=LARGEST_ID, description="The version that the person saw; 0 if unknown")


class StateEdit(RunCommand):
    """An edit of a run's settings or prompts. It applies to the latest state, even if the person saw an earlier one."""

    tab: Tab = ""
    state: int = Field(0, ge=0, le=LARGEST_ID, description="The state of the run that the person saw; 0 if unknown")


class PageWrites:
    """Remembers which page wrote which version, until the server stops. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._tabs: dict[int, str] = {}
        self._lock = threading.Lock()

    def note(self, version: int, tab: str) -> None:
        """Record that the page `tab` saved a version."""
        with self._lock:
            self._tabs[version] = tab
            for old in list(self._tabs)[:-KEPT]:
                del self._tabs[old]

    def by(self, tab: str) -> frozenset[int]:
        """Return the ids of the versions that the page `tab` saved."""
        with self._lock:
            return frozenset(version for version, page in self._tabs.items() if page and page == tab)

    def by_others(self, versions: Sequence[StoredValue], seen: int, tab: str) -> StoredValue | None:
        """Return the latest version after `seen` that another page saved; None without one, or if `seen` is 0."""
        mine = self.by(tab)
        others = [version for version in versions if version.id > seen and version.id not in mine]
        return others[-1] if seen and others else None


@dataclass(frozen=True)
class SettingChange:
    """A setting that another page changed."""

    section: str
    name: str
    value: Any
    when: datetime


def settings_by_others(states: Sequence[StoredState], mine: Collection[int]) -> tuple[SettingChange, ...]:
    """Return the settings that other pages changed after the first of `states`. `mine` are this page's state ids."""
    changes: dict[tuple[str, str], SettingChange] = {}
    for before, after in _pairs(states, mine):
        for section, name in changed_settings(before.settings, after.settings):
            changes[section, name] = SettingChange(section, name, after.settings[section][name], after.created)
    return tuple(changes.values())


def prompt_by_others(states: Sequence[StoredState], mine: Collection[int], name: str) -> datetime | None:
    """Return when another page last changed the prompt `name`, or None. `mine` are this page's state ids."""
    moments = [new.created for old, new in _pairs(states, mine) if old.prompts.get(name) != new.prompts.get(name)]
    return moments[-1] if moments else None


def changed_settings(before: PlainSettings, after: PlainSettings) -> tuple[tuple[str, str], ...]:
    """Return the section and name of each setting whose values differ."""
    return tuple(
        (section, name)
        for section, values in after.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
        if section in before and before[section].get(name) != value
    )


def value_conflict(stage: StageName, other: StoredValue) -> str:
    """Return the message for a person who saved a value after another page had changed the same value."""
    when = f"changed elsewhere in the meantime ({clock(other.created)})"
    if stage not in ("keywords", "alternatives", "counterfactuals"):
        what = "The caption" if stage == "caption" else f"“{stage_title(stage)}”"
        return f"{what} was {when}. Yours was saved last; the other one is in the history."
    return f"This list was {when}. Your change was made to the newer list; earlier ones are in the history."


def settings_conflict(others: Sequence[SettingChange], mine: Collection[tuple[str, str]]) -> str:
    """Return the message for a person who saved the settings `mine` after another page had saved `others`."""
    listed = ", ".join(f"{change.name.replace('_', ' ')} to {_shown(change.value)}" for change in others)
    replaced = any((change.section, change.name) in mine for change in others)
    end = "Yours was saved last; to use the other value, set it again." if replaced else "Both changes are kept."
    return f"These settings were changed elsewhere in the meantime ({clock(others[-1].when)}): {listed}. {end}"


def prompt_conflict(when: datetime) -> str:
    """Return the message for a person who saved a prompt after another page had saved the same prompt."""
    return (
        f"The prompt was changed elsewhere in the meantime ({clock(when)}). Yours was saved last; the other one is "
        "under “Prompt and reply”, among the earlier prompts."
    )


def clock(moment: datetime) -> str:
    """Return the time of day on this machine, such as 10:42:07."""
    return moment.astimezone().strftime("%H:%M:%S")


def _pairs(states: Sequence[StoredState], mine: Collection[int]) -> Iterable[tuple[StoredState, StoredState]]:
    return ((before, after) for before, after in pairwise(states) if after.id not in mine)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} that were ticked"
    return (
        f"{value:g}" if isinstance(value, float) else f"“{str(value)[:60]}”" if isinstance(value, str) else str(value)
    )
