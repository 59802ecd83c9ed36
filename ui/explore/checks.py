"""Findings about a result: what the model under test predicts, and whether the image passes its checks."""

from __future__ import annotations

from core.check_words import WORDS, words_of
from core.masks import MASK_KEPT
from core.stored_runs import StoredTestCase
from core.types import Check, Outcome
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.explore.parts import Tone, icon, pill, press
from ui.explore.under_test import verdict_pill
from ui.markup import Child, Html, el

OUTCOMES: dict[Outcome, tuple[Tone, str]] = {
    "passed": ("ok", "check"),
    "failed": ("bad", "cross"),
    "cannot tell": ("", "question"),
}
"""The tone and the icon of what a check found: a tick says that the image is right in this, and nothing else."""
OUTCOME_WORDS: dict[Outcome, str] = {
    "passed": "Passed",
    "failed": "Failed",
    "cannot tell": "Cannot tell here",
}


def verdict_line(case: StoredTestCase, comparison: ModelComparison) -> Html:
    """What the model under test makes of the image; its place is kept while it is being asked."""
    found = verdict_pill(case, comparison)
    if found is None:
        words = "is being asked" if comparison.waiting else "says nothing yet" if comparison.wanted else "none chosen"
        found = el("span", f"model under test: {words}", class_="mut small")
    more = el(
        "a", "more", href="#under-test", class_="small mut", data_scroll_to="under-test", title="All that it says"
    )
    return el("div", found, el("span", class_="grow"), more, class_="verdict-line", id="verdict-line")


def checks_list(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    """What the checks found, a row each, told apart by more than colour. A press on one explains it."""
    rows: list[Child] = []
    if case.id in state.outdated:
        rows.append(pill(state.outdated[case.id], "warn", id="outdated"))
    rows += [_row(check) for check in comparison.checks(case)]
    if unmeasured := comparison.unmeasured(case):
        words = [
            icon("question"),
            el("span", WORDS[MASK_KEPT].title, class_="name"),
            " ",
            el("span", unmeasured, class_="figure"),
        ]
        rows.append(pill(words, title=WORDS[MASK_KEPT].explanation))
    return el("div", rows, class_="checks", id="checks")


def explained(check: Check) -> str:
    """The outcome with its reason, what had to be reached, and what the check looks at."""
    wanted = "" if check.threshold is None else f"At least {_rounded(check, check.threshold)} passes."
    outcome = f"{OUTCOME_WORDS[check.outcome]}."
    return " ".join(part for part in (outcome, check.note, wanted, words_of(check).explanation) if part)


def _row(check: Check) -> Html:
    tone, sign = OUTCOMES[check.outcome]
    return press(
        icon(sign),
        el("span", words_of(check).title, class_="name"),
        " ",
        el("span", _figure(check), class_="figure"),
        class_=f"pill {tone}".strip(),
        title=explained(check),
        data_outcome=check.outcome,
        data_explain=check.name,
        data_key=f"check-{check.name}",
    )


def _figure(check: Check) -> Child:
    """Such as: 0.82, from 0.60; in words where there is none."""
    if check.value is None:
        return "cannot tell" if check.passed is None else None
    wanted = "" if check.threshold is None else f", from {_rounded(check, check.threshold)}"
    return [_rounded(check, check.value), el("small", wanted) if wanted else None]


def _rounded(check: Check, figure: float) -> str:
    """A figure of the check; one that is just below the line does not look as if it had reached it."""
    near = (
        not check.passed
        and None not in (check.value, check.threshold)
        and f"{check.value:.2f}" == f"{check.threshold:.2f}"
    )
    digits = 3 if near else 2
    return f"{round(figure, digits) + 0.0:.{digits}f}"  # no zero has a minus
