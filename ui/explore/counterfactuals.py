"""The card of stage 4: counterfactual captions, each with its tick, its differences and its checks."""

from __future__ import annotations

from core.types import Check, CounterfactualCaption, CounterfactualCaptions, Task, failed
from core.words import classes_in
from services.runs.state import RunState
from ui.diff import shortened, word_diff
from ui.explore.combinations import combinations_part
from ui.explore.forms import setting_input
from ui.explore.stage import stage_card
from ui.markup import Html
from ui.templating import render

FAILED = {
    "caption not empty": "empty",
    "edits made": "edit missing",
    "label kept": "label lost",
    "protected kept": "protected word lost",
    "protected named as often": "protected word missing",
    "nothing protected added": "protected word added",
    "nothing unasked changed": "more than asked changed",
    "nothing lost": "something lost",
    "no repetition": "repeats itself",
    "no contradiction": "contradiction",
    "one change": "not one change",
    "of its type": "another edit type",
    "meaning changed": "nearly the same",
}
"""What a check is called that did not pass."""
REMARKS = {
    "nothing unasked changed": ("more changed", "warn"),
    "protected changed on purpose": ("protected word forced", "warn"),
}
"""What a check is called that passed with a remark, and its tone."""
NEAR = 4
"""Words beside a change that a small window shows too."""
EDITS_AT_ONCE = ((1, "1"), (2, "2"), (3, "3"), (0, "all"))
Finding = tuple[str, str, str, str]
"""An icon, words, their tone and a hint; "" for none."""
NOTHING_NAMED: Finding = ("", "nothing protected named", "warn", "The caption does not name what the task protects.")
KEPT_CHECKS = {"label kept", "protected kept", "protected named as often", "nothing protected added"}


def counterfactuals_card(state: RunState) -> Html:
    """Stage 4."""
    stored = state.run.values.get("counterfactuals")
    value = stored.value.value if stored else CounterfactualCaptions(())
    stage, source = state.recipe.stage("counterfactuals"), state.caption
    settings = getattr(state.settings, stage.settings)
    # Made from another caption: what differs now says little, and the words for it would fill the page.
    stale = "counterfactuals" in state.stale
    lines = []
    for item in value.items:
        checks = state.counterfactual_checks(item)
        said = tuple(check for check in checks if check.note and not stale)
        pieces, findings = shortened(word_diff(source, item.text)), _findings(item, checks, source, state.run.task)
        lines.append((item, pieces, findings, said, failed(said), _in_short(said)))
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
        # A value says what it was made from.
        source=source if all(read in state.run.values for read in stage.reads) else "",
        near=NEAR,
    )
    return stage_card("counterfactuals", state, body)


def _findings(item: CounterfactualCaption, checks: tuple[Check, ...], source: str, task: Task) -> list[Finding]:
    """A word for each check that says something; one for all that passed."""
    wrong, found = failed(checks), []
    if not any(check.name in KEPT_CHECKS for check in wrong):
        kept = "label kept" if task.kind == "classification" else "protected kept"
        # Where the caption named nothing that is protected, that all checks passed says nothing.
        found.append(("check", kept, "ok", "") if classes_in(source, task) else NOTHING_NAMED)
    found += [("cross", FAILED.get(check.name, check.name), "bad", check.note) for check in wrong]
    for check in checks:
        if check.passed and check.note:
            found.append(("", *REMARKS.get(check.name, (check.name, "warn")), check.note))
    if item.edits and not wrong and not any(check.note for check in checks):
        found.append(("check", "nothing else changed", "ok", ""))
    return found


def _in_short(said: tuple[Check, ...]) -> str:
    """What checks say, in few words for a small screen: one of them by its name, several by their number."""
    wrong = failed(said)
    if len(wrong) > 1:
        return f"{len(wrong)} checks fail"
    if wrong:
        return FAILED.get(wrong[0].name, wrong[0].name)
    if len(said) > 1:
        return f"{len(said)} remarks"
    return REMARKS.get(said[0].name, (said[0].name, ""))[0] if said else ""
