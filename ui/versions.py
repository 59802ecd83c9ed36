"""The versions of a stage's value: what an undo brings back, and whether somebody else wrote one meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from pipeline.types import StageName
from storage.types import StoredValue

KEPT = 2000
"""Versions whose page is remembered."""


class Writers:
    """Which page wrote which version, as long as the server lives. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._tabs: dict[int, str] = {}
        self._lock = threading.Lock()

    def note(self, version: int, tab: str) -> None:
        """A page saved a version."""
        with self._lock:
            self._tabs[version] = tab
            for old in list(self._tabs)[:-KEPT]:
                del self._tabs[old]

    def of(self, tab: str) -> frozenset[int]:
        """The versions that a page wrote."""
        with self._lock:
            return frozenset(version for version, page in self._tabs.items() if page and page == tab)

    def elsewhere(self, versions: Sequence[StoredValue], based: int, tab: str) -> StoredValue | None:
        """The latest version after `based` that this page did not write; None when there is none such.

        `based` is the version that a page showed when its person began to edit; 0 says that it is not known.
        """
        mine = self.of(tab)
        others = [version for version in versions if version.id > based and version.id not in mine]
        return others[-1] if based and others else None


def undo_target(versions: Sequence[StoredValue]) -> StoredValue | None:
    """What an undo brings back: the version before the latest, when a person wrote the latest; else None.

    A version that was brought back stands for the one that it repeats, so that each undo goes one step further.
    """
    if not versions:
        return None
    latest = _origin(versions[-1], versions)
    before = [version for version in versions if version.id < latest.id]
    return _origin(before[-1], versions) if latest.author == "person" and before else None


def last_edited(histories: Mapping[StageName, Sequence[StoredValue]]) -> StageName | None:
    """The stage whose latest version is the newest of those that can be undone."""
    open_to_undo = [(versions[-1].id, stage) for stage, versions in histories.items() if undo_target(versions)]
    return max(open_to_undo)[1] if open_to_undo else None


def _origin(version: StoredValue, versions: Sequence[StoredValue]) -> StoredValue:
    by_id = {held.id: held for held in versions}
    while version.brought_back is not None and version.brought_back in by_id:
        version = by_id[version.brought_back]
    return version
