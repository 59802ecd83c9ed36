"""The head of the pages of one study: its name, its state, and its tabs."""

from __future__ import annotations

from core.studies import Study, StudyState
from ui.explore.parts import Tone, here_link, page_head, pill
from ui.markup import Child, Html, el, join

TABS = (
    ("results", "Results", ""),
    ("workers", "Workers", "workers"),
    ("adjudication", "Adjudication", "adjudication"),
    ("run", "Invite and run", "run"),
    ("log", "Log", "log"),
)
"""The pages of a study that has started: name, words, the end of the address."""
STATE_WORDS: dict[StudyState, tuple[str, Tone]] = {
    "draft": ("draft", ""),
    "running": ("running", "ok"),
    "paused": ("paused", "warn"),
    "closed": ("closed", "acc"),
}


def study_address(study_id: str, end: str = "") -> str:
    """The address of a page of a study."""
    return f"/study/{study_id}/{end}"


def study_head(study: Study, tab: str = "", *actions: Child) -> Html:
    """Name, state and rules of a study in a line, `actions` at its end; below it the tabs, once it has started."""
    words, tone = STATE_WORDS[study.state]
    rules = study.rules
    facts: list[Child] = [pill(words, tone, id="state")]
    if study.archived:
        facts.append(pill("archived"))
    if study.state != "draft":
        facts.append(
            pill(f"rules v{rules.version}", title="The rules are frozen; every change has a number of its own")
        )
        facts.append(pill(f"{rules.votes} votes an item · consensus {rules.consensus}"))
        facts.append(pill(f"{100 * rules.controls.share:.4g} % controls"))
    tabs = [here_link(title, study_address(study.id, end), name == tab, current="page") for name, title, end in TABS]
    return page_head(
        "All studies",
        "/study/",
        [el("h1", study.name), facts, el("span", class_="grow"), join(*actions)],
        el("nav", tabs, class_="tabs", aria_label="Pages of this study") if study.state != "draft" else None,
        class_="study-head",
    )
