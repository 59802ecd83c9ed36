"""Tracks the pages' saves of drafts. A save that would overwrite another page's changes is refused. A save that comes
twice, or after a later save of the same page, is ignored: a page that closes may send such saves.

Saves are remembered until the server stops. After a restart, only a page that shows the saved form may save.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from core.errors import UserError
from core.latest import Latest
from core.studies import Study

TABS_KEPT = 2000
"""Maximum number of pages whose latest request is remembered."""
STATES_KEPT = 20
"""Maximum number of earlier form states that are remembered. A page that shows such a state may save, as long as no
other page has saved since."""


def form_state(study: Study) -> str:
    """Return a hash of a draft's name and rules, as a short text. Items do not count, since no save replaces them."""
    return hashlib.sha256(repr((study.name, replace(study.rules, left_out=()))).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _TabSaves:
    """The page that saved a draft last, and states of the form before and after the page's saves."""

    tab: str
    now: str
    """State of the form after the page's last save."""
    earlier: tuple[str, ...]
    """The form's states before these saves. A request of this page may still be based on such a state."""


class DraftSaves:
    """The pages' latest saves of all drafts. Not thread-safe: the caller must hold a lock."""

    def __init__(self) -> None:
        self._last: dict[str, _TabSaves] = {}
        self._taken = Latest[int](TABS_KEPT)

    def is_late(self, study_id: str, tab: str, number: int) -> bool:
        """Return True if this request, or a later one of its page, was handled already."""
        last = self._taken.get((study_id, tab))
        return bool(tab) and last is not None and number <= last

    def refuse_overwriting(self, study: Study, based: str, tab: str) -> None:
        """Raise UserError if another page has changed the form since the state `based`, which the page `tab` shows."""
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
        """Record a page's save. `as_typed` is True if the save changed only fields that the user filled in."""
        if not tab:
            return
        self._taken.put((before.id, tab), number)
        last = self._last.get(before.id)
        own_states = last.earlier if last and last.tab == tab and last.now == form_state(before) else ()
        # After a command that added a question, a form typed before lacks the question and must not remove it.
        earlier = (*own_states, form_state(before))[-STATES_KEPT:] if as_typed else ()
        self._last[before.id] = _TabSaves(tab, form_state(after), earlier)
