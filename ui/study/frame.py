"""The head of the pages of one study: its name, its state, and its tabs."""

from __future__ import annotations

from core.studies import Study, StudyState
from ui.explore.parts import Tone
from ui.markup import Child, Html
from ui.templating import render

TABS = (
    ("results", "Results", ""),
    ("workers", "Workers", "workers"),
    ("adjudication", "Adjudication", "adjudication"),
    ("run", "Invite and run", "run"),
    ("log", "Log", "log"),
)
"""The tabs of a study that has started: name, words, the end of the address."""
STATE_WORDS: dict[StudyState, tuple[str, Tone]] = {
    "draft": ("draft", ""),
    "running": ("running", "ok"),
    "paused": ("paused", "warn"),
    "closed": ("closed", "acc"),
}


def study_head(study: Study, tab: str = "", *actions: Child) -> Html:
    """Return the head line of a study with name, state, rules and `actions`; below it the tabs, once it has started."""
    return render("study/head.html", study=study, state=STATE_WORDS[study.state], tab=tab, tabs=TABS, actions=actions)
