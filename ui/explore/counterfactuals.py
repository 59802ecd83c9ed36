"""The card of stage 4: counterfactual captions, each with its tick, its differences and its checks.

Its grid says which alternatives of which keywords become captions, and is a way to choose them.
"""

from __future__ import annotations

import json

from core.settings import Combinations, CounterfactualSettings
from core.types import Check, CounterfactualCaption, CounterfactualCaptions, Task, failed
from core.words import classes_in, count_of
from services.runs.combinations import STAGE, Grid, grid_of, pairs_of
from services.runs.state import RunState
from ui.diff import shortened, word_diff
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


def combinations_part(state: RunState) -> Html | None:
    """How many there are and become captions, and behind it the grid; None before there are alternatives."""
    fresh = STAGE in state.run.values and STAGE not in state.stale
    grid = grid_of(state.run, state.settings, state.histories.get(STAGE, ()), fresh, state.prompts)
    if grid is None:
        return None
    settings = state.settings.counterfactuals
    whole = all(len(edits) == grid.at_once for edits in grid.planned)  # those of fewer edits are not counted in all
    number = f"{len(grid.planned)} of {grid.total}" if whole else f"{len(grid.planned)}"
    said = f"{number} combinations {'are' if fresh else 'become'} captions"
    if grid.problem:
        said = "Which become captions"
    elif grid.at_most:
        said = f"up to {count_of(grid.at_most, 'caption')}: the language model chooses"
    return render(
        "explore/combinations.html",
        grid=grid,
        said=said,
        ways=_ways(grid, settings),
        settings=settings,
        setting_input=setting_input,
        unasked=settings.combinations == "model" and not fresh and not grid.at_most,
        planned=set(grid.planned),
        others=[edits for edits in grid.planned if len(edits) != grid.at_once],
        pairs=lambda edits, plain: json.dumps(pairs_of(edits), ensure_ascii=plain),
    )


def _ways(grid: Grid, settings: CounterfactualSettings) -> list[tuple[Combinations, str, str]]:
    """The ways to choose, each with words and a hint."""
    number = min(settings.captions, grid.total)
    each = "One caption for each keyword" if grid.at_once == 1 else "One caption for each group of keywords"
    asked = "The language model says which edits go together, in one call more; each caption has as many as fit"
    ways: list[tuple[Combinations, str, str]] = [
        ("spread", f"{number} spread evenly", "As many as are asked for; keywords and alternatives get their turns"),
        ("all", f"all {grid.total}", "Every combination there is"),
        ("one of each", f"one of each: {grid.groups}", each),
        ("at random", f"{number} at random", "As many as are asked for; another try draws others"),
        ("model", f"up to {settings.captions}: the language model chooses", asked),
    ]
    if settings.chosen:
        ways.append(("chosen", f"chosen: {len(settings.chosen)}", "Those that were ticked one by one"))
    return ways
