"""Tracks which page saved what of a draft: no save overwrites another page's, repeats, or comes too late.

Each page counts its requests: one sent while the page closes may come twice, or before an earlier one. This is
remembered until the server stops; after that a page may continue from the saved state, and from no earlier one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from core.errors import UserError
from core.studies import Study

TABS_KEPT = 2000
"""Number of pages whose number of saves is remembered."""
STATES_KEPT = 20
"""Number of states that a page may continue from, as long as only it has changed the draft since."""


def form_state(study: Study) -> str:
    """Return the state of a draft's form, as a short text. Items are no part of it: no save replaces them."""
    return hashlib.sha256(repr((study.name, replace(study.rules, left_out=()))).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _TabSaves:
    """Saves of one page on a draft, without another page's in between."""

    tab: str
    now: str
    """State of the form after its last save."""
    earlier: tuple[str, ...]
    """Earlier states that the page may still continue from: it has sent everything in them again."""


class DraftSaves:
    """Pages' latest saves of all drafts. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._last: dict[str, _TabSaves] = {}
        self._taken: dict[tuple[str, str], int] = {}

    def is_late(self, study_id: str, tab: str, number: int) -> bool:
        """Return True if this request, or a later one of its page, was handled already."""
        return bool(tab) and number <= self._taken.get((study_id, tab), -1)

    def refuse_overwriting(self, study: Study, based: str, tab: str) -> None:
        """Raise UserError if another page has changed the form since the state that this one shows."""
        now, last = form_state(study), self._last.get(study.id)
        if based in ("", now):
            return
        if last and last.tab == tab != "" and last.now == now and based in last.earlier:
            return
        raise UserError(
            "This draft was changed in another window. Please reload the page and go on from there; "
            "what you typed last was not saved."
        )

    def note(self, before: Study, after: Study, tab: str, number: int, as_typed: bool) -> None:
        """Record a page's save. `as_typed`: the state equals the form, without further changes."""
        if not tab:
            return
        self._taken[before.id, tab] = number
        for old in list(self._taken)[:-TABS_KEPT]:
            del self._taken[old]
        last = self._last.get(before.id)
        own_states = last.earlier if last and last.tab == tab and last.now == form_state(before) else ()
        # A form typed before a question was added lacks it, and must not remove it again.
        earlier = (*own_states, form_state(before))[-STATES_KEPT:] if as_typed else ()
        self._last[before.id] = _TabSaves(tab, form_state(after), earlier)
