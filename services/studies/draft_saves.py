"""Which page saved what of a draft: no save overwrites what another page saved, comes twice, or comes too late.

Each page counts what it sends, for what it sends as it is left may come twice, or before what it sent earlier. This is
remembered as long as the server lives; afterwards a page may work on the state that is saved, and on no earlier one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from core.errors import UserError
from core.studies import Study

TABS_KEPT = 2000
"""Pages whose count is remembered."""
STATES_KEPT = 20
"""States that a page may still work on, as long as only it has changed the draft since."""


def form_state(study: Study) -> str:
    """The state of what the form of a draft holds, as a short text; items are no part of it: no save replaces them."""
    return hashlib.sha256(repr((study.name, replace(study.rules, left_out=()))).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _TabSaves:
    """What one page has saved of a draft, without another one in between."""

    tab: str
    now: str
    """The state of the form after the last of them."""
    earlier: tuple[str, ...]
    """States before, on which the page may still work: all that was in them, it has sent again since."""


class DraftSaves:
    """What pages saved last, of all drafts. Not for several threads at once: its owner holds a lock."""

    def __init__(self) -> None:
        self._last: dict[str, _TabSaves] = {}
        self._taken: dict[tuple[str, str], int] = {}

    def is_late(self, study_id: str, tab: str, number: int) -> bool:
        """Whether this, or what its page sent later, was taken already."""
        return bool(tab) and number <= self._taken.get((study_id, tab), -1)

    def refuse_overwriting(self, study: Study, based: str, tab: str) -> None:
        """Raises UserError when another page has changed the form since the state that this one shows."""
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
        """Remember what a page saved. `as_typed`: the state is all that its form said, and no more."""
        if not tab:
            return
        self._taken[before.id, tab] = number
        for old in list(self._taken)[:-TABS_KEPT]:
            del self._taken[old]
        last = self._last.get(before.id)
        own = last.earlier if last and last.tab == tab and last.now == form_state(before) else ()
        # A form that was typed before a question was added does not know it: it must not take it away again.
        earlier = (*own, form_state(before))[-STATES_KEPT:] if as_typed else ()
        self._last[before.id] = _TabSaves(tab, form_state(after), earlier)
