"""Findings about a result: what the model under test predicts, and whether the image passes its checks."""

from __future__ import annotations

from core.check_words import WORDS, words_of
from core.masks import MASK_KEPT
from core.stored_runs import StoredTestCase
from core.types import Check, Outcome
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.explore.parts import Tone
from ui.explore.under_test import verdict_pill
from ui.markup import Html
from ui.templating import render

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


def findings(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    """What the model under test makes of an image, and what its checks found. A press on a check explains it."""
    return render(
        "explore/findings.html",
        verdict=verdict_pill(case, comparison),
        model="is being asked" if comparison.waiting else "says nothing yet" if comparison.wanted else "none chosen",
        outdated=state.outdated.get(case.id),
        checks=[(check, words_of(check).title, *_figure(check), explained(check)) for check in comparison.checks(case)],
        outcomes=OUTCOMES,
        unmeasured=comparison.unmeasured(case),
        mask_kept=WORDS[MASK_KEPT],
    )


def explained(check: Check) -> str:
    """The outcome with its reason, what had to be reached, and what the check looks at."""
    wanted = "" if check.threshold is None else f"At least {_rounded(check, check.threshold)} passes."
    outcome = f"{OUTCOME_WORDS[check.outcome]}."
    return " ".join(part for part in (outcome, check.note, wanted, words_of(check).explanation) if part)


def _figure(check: Check) -> tuple[str, str]:
    """Such as 0.82 and ", from 0.60"; in words where there is no figure."""
    if check.value is None:
        return "cannot tell" if check.passed is None else "", ""
    wanted = "" if check.threshold is None else f", from {_rounded(check, check.threshold)}"
    return _rounded(check, check.value), wanted


def _rounded(check: Check, figure: float) -> str:
    """A figure of the check; one that is just below the line does not look as if it had reached it."""
    near = (
        not check.passed
        and None not in (check.value, check.threshold)
        and f"{check.value:.2f}" == f"{check.threshold:.2f}"
    )
    digits = 3 if near else 2
    return f"{round(figure, digits) + 0.0:.{digits}f}"  # no zero has a minus
