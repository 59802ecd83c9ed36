"""Findings about a result: the model under test's prediction, and the outcomes of the image's checks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from core.check_words import WORDS, words_of
from core.data_files import DataTable
from core.masks import MASK_KEPT
from core.predictions import Standing
from core.settings import UnderTestSettings
from core.stored_runs import StoredTestCase
from core.types import Check, Outcome
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.explore.forms import model_fields
from ui.explore.parts import Tone, icon, pill
from ui.markup import Html, el
from ui.templating import render

OUTCOMES: Mapping[Outcome, tuple[Tone, str]] = DataTable(__file__, tuple[Tone, str], "outcomes")
"""Colour and icon for each outcome of a check. A tick means only that the image passes this check."""
OUTCOME_WORDS: Mapping[Outcome, str] = DataTable(__file__, str, "outcome_words")
STANDINGS: Mapping[Standing, tuple[Tone, str]] = DataTable(__file__, tuple[Tone, str], "standings")
"""Colour and icon for each result of the model on an image. A tick means only that its prediction is right."""


def findings(state: RunState, case: StoredTestCase, comparison: ModelComparison) -> Html:
    """Return the model under test's result and the outcomes of the checks. Pressing a check explains it."""
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
    """Return the explanation of a check: the reason for its outcome, the threshold, and what it measures."""
    requirement = "" if check.threshold is None else f"At least {_rounded(check, check.threshold)} passes."
    outcome = f"{OUTCOME_WORDS[check.outcome]}."
    return " ".join(part for part in (outcome, check.note, requirement, words_of(check).explanation) if part)


def _figure(check: Check) -> tuple[str, str]:
    """Return the texts for a check's figure and threshold, such as "0.82" and ", from 0.60". The texts may be empty."""
    if check.value is None or words_of(check).yes_or_no:
        return "cannot tell" if check.passed is None else "", ""
    requirement = "" if check.threshold is None else f", from {_rounded(check, check.threshold)}"
    return _rounded(check, check.value), requirement


def _rounded(check: Check, figure: float) -> str:
    """Return a figure with two decimals. Use three if a failed value would otherwise look equal to its threshold."""
    known = None not in (check.value, check.threshold)
    digits = 3 if known and not check.passed and f"{check.value:.2f}" == f"{check.threshold:.2f}" else 2
    return f"{round(figure, digits) + 0.0:.{digits}f}"  # avoid "-0.00"


def under_test_card(state: RunState, case: StoredTestCase | None, comparison: ModelComparison) -> Html:
    """Return the card with a form to choose a model and, with a `case`, the answers of the model."""
    chosen, kind = state.settings.under_test, state.run.task.kind
    after = comparison.results.get(case.id) if case is not None else None
    label = case.task.label if case is not None and case.task.kind == "classification" else ""
    model_key = hashlib.sha256(chosen.model_dump_json().encode()).hexdigest()[:12]
    return render(
        "explore/under_test.html",
        name=_short(comparison.wanted),
        case=case,
        comparison=comparison,
        before=comparison.source,
        after=after,
        figures=comparison.figures.get(case.id, ()) if case is not None else (),
        label=label,
        untold=comparison.no_class_for(label),
        kind=kind,
        form=model_fields(chosen, with_profile=True),
        form_key=f"choose-{state.run.id}-{model_key}",
    )


def verdict_pill(case: StoredTestCase, comparison: ModelComparison) -> Html | None:
    """Return the model's result on an image as a short label; None if unknown. Its icons differ from checks' icons."""
    outcome = comparison.outcomes.get(case.id)
    if outcome is None:
        return None
    tone, sign = STANDINGS[outcome.standing]
    words = [icon(sign) if sign else None, el("span", outcome.words)]
    return pill(words, tone, id="model-verdict", title=outcome.explanation, data_standing=outcome.standing)


def _short(settings: UnderTestSettings | None) -> str:
    if settings is None:
        return ""
    if settings.source == "http":
        return settings.address
    if settings.file:
        file = settings.file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{settings.name} · {file}" if settings.name else file
    return f"{settings.name} of {settings.source}"
