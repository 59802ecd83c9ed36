"""The card of stage 4: counterfactual captions, each with its tick, its differences and its checks.

Its grid shows the alternatives of each keyword that become captions, and the ways to choose them.
"""

from __future__ import annotations

import json

from core.data_files import DataTable
from core.types import Check, CounterfactualCaption, CounterfactualCaptions, Task, failed
from core.words import classes_in
from services.runs.combinations import STAGE, grid_of, pairs_of
from services.runs.state import RunState
from ui.diff import shortened, word_diff
from ui.explore.forms import setting_input
from ui.explore.stage import stage_card
from ui.markup import Html
from ui.templating import render

FAILED = DataTable(__file__, str, "failed")
"""Names of checks that failed."""
REMARKS = DataTable(__file__, tuple[str, str], "remarks")
"""Names and tones of checks that passed with a remark."""
NEAR = 4
"""Number of words beside a change that a small window also shows."""
EDITS_AT_ONCE = ((1, "1"), (2, "2"), (3, "3"), (0, "all"))
Finding = tuple[str, str, str, str]
"""An icon, words, their tone and a hint; "" for none."""
NOTHING_NAMED: Finding = ("", "nothing protected named", "warn", "The caption does not name what the task protects.")
KEPT_CHECKS = {"label kept", "protected kept", "protected named as often", "nothing protected added"}


def counterfactuals_card(state: RunState) -> Html:
    """Return the card of stage 4."""
    stored = state.run.values.get("counterfactuals")
    value = stored.value.value if stored else CounterfactualCaptions(())
    stage, source = state.recipe.stage("counterfactuals"), state.caption
    settings = getattr(state.settings, stage.settings)
    # Stale captions come from another caption: their remarks say little and would fill the page.
    stale = "counterfactuals" in state.stale
    lines = []
    for item in value.items:
        checks = state.counterfactual_checks(item)
        remarks = tuple(check for check in checks if check.note and not stale)
        pieces, findings = shortened(word_diff(source, item.text)), _findings(item, checks, source, state.run.task)
        lines.append((item, pieces, findings, remarks, failed(remarks)))
    body = render(
        "explore/counterfactuals.html",
        state=state,
        section=stage.settings,
        settings=settings,
        fields=type(settings).model_fields,
        setting_input=setting_input,
        edits_at_once=EDITS_AT_ONCE,
        combinations=combinations_part(state),
        lines=lines,
        ticked=sum(item.used for item in value.items),
        source=source,
        # A value records the values that it was made from.
        can_add=all(read in state.run.values for read in stage.reads),
        near=NEAR,
        failed=FAILED,
        remarks=REMARKS,
    )
    return stage_card("counterfactuals", state, body)


def _findings(item: CounterfactualCaption, checks: tuple[Check, ...], source: str, task: Task) -> list[Finding]:
    """Return a finding for each check with a note, and one for all that passed."""
    wrong, findings = failed(checks), []
    if source and not any(check.name in KEPT_CHECKS for check in wrong):
        words = "label kept" if task.kind == "classification" else "protected kept"
        # If the caption names nothing protected, passing all checks means nothing.
        findings.append(("check", words, "ok", "") if classes_in(source, task) else NOTHING_NAMED)
    findings += [("cross", FAILED.get(check.name, check.name), "bad", check.note) for check in wrong]
    for check in checks:
        if check.passed and check.note:
            findings.append(("", *REMARKS.get(check.name, (check.name, "warn")), check.note))
    if item.edits and not wrong and not any(check.note for check in checks):
        findings.append(("check", "nothing else changed", "ok", ""))
    return findings


def combinations_part(state: RunState) -> Html | None:
    """Return the number of combinations that become captions, and the grid; None before there are alternatives."""
    fresh = STAGE in state.run.values and STAGE not in state.stale
    grid = grid_of(state.run, state.settings, state.histories.get(STAGE, ()), fresh, state.prompts)
    if grid is None:
        return None
    settings = state.settings.counterfactuals
    return render(
        "explore/combinations.html",
        grid=grid,
        fresh=fresh,
        settings=settings,
        setting_input=setting_input,
        unasked=settings.combinations == "model" and not fresh and not grid.at_most,
        planned=set(grid.planned),
        others=[edits for edits in grid.planned if len(edits) != grid.at_once],
        pairs=lambda edits, plain: json.dumps(pairs_of(edits), ensure_ascii=plain),
    )
