"""The model under test before and after: its five likeliest classes, or how well it still finds what is protected."""

from __future__ import annotations

import hashlib

from core.predictions import Standing
from core.settings import UnderTestSettings
from core.stored_runs import StoredTestCase
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from ui.explore.model_form import model_fields
from ui.explore.parts import Tone, icon, pill
from ui.markup import Html, el
from ui.templating import render

STANDINGS: dict[Standing, tuple[Tone, str]] = {
    "right": ("", "check"),
    "fails here": ("acc", "target"),
    "wrong before too": ("", ""),
    "right only here": ("", ""),
    "cannot tell": ("", "question"),
}
"""The tone and the icon of how the model stands. A tick says that it is right, not that it is no worse than before."""


def under_test_card(state: RunState, case: StoredTestCase | None, comparison: ModelComparison) -> Html:
    """The table, and the form that takes another model. It can be chosen before there is an image."""
    chosen, kind = state.settings.under_test, state.run.task.kind
    after = comparison.results.get(case.id) if case is not None else None
    label = case.task.label if case is not None and case.task.kind == "classification" else ""
    said = hashlib.sha256(chosen.model_dump_json().encode()).hexdigest()[:12]
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
        form_key=f"choose-{state.run.id}-{said}",
    )


def verdict_pill(case: StoredTestCase, comparison: ModelComparison) -> Html | None:
    """The standing of the model under test in a few words. Its signs differ from those of the checks of images."""
    outcome = comparison.outcomes.get(case.id)
    if outcome is None:
        return None
    tone, sign = STANDINGS[outcome.standing]
    words = [icon(sign) if sign else None, el("span", outcome.words)]
    return pill(words, tone, id="model-verdict", title=outcome.explanation, data_standing=outcome.standing)


def _short(wanted: UnderTestSettings | None) -> str:
    if wanted is None:
        return ""
    if wanted.source == "http":
        return wanted.address
    if wanted.file:
        file = wanted.file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{wanted.name} · {file}" if wanted.name else file
    return f"{wanted.name} of {wanted.source}"
