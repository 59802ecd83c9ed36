"""The help window: the keys that `assets/keys.js` and `assets/help.js` handle, the stages, and the checks."""

from __future__ import annotations

from collections.abc import Mapping

from core.check_words import CAPTION_WORDS, WORDS
from core.data_files import DataTable
from services.runs.words import DEFAULT_ARTIFACTS
from ui.explore.counterfactuals import FAILED
from ui.explore.large import modes
from ui.explore.parts import help_window
from ui.explore.words import EXPLAINED
from ui.markup import Html
from ui.templating import render

Keys = tuple[str, ...]
_LOOKS = "Ways to look"
_DIGITS = tuple(((str(number),), mode.words) for number, mode in enumerate(modes(DEFAULT_ARTIFACTS).values(), 1))
GROUPS = {
    name: (*_DIGITS, *rows) if name == _LOOKS else rows
    for name, rows in DataTable(__file__, tuple[tuple[Keys, str], ...]).items()
}
"""Name of each group, and its keys with their meaning. Keys that belong together are pressed together."""


def keys_window(thresholds: Mapping[str, float] | None = None) -> Html:
    """Return the closed window. `thresholds` are those of the image checks by name, where known."""
    parts = (("help-keys", "Keys"), ("help-stages", "The stages"), ("help-checks", "The checks"))
    shown = render(
        "explore/help.html",
        groups=GROUPS,
        stages=EXPLAINED.items(),
        checks=WORDS,
        thresholds=thresholds or {},
        findings=[(words, CAPTION_WORDS.get(name)) for name, words in FAILED.items()],
    )
    return help_window("Keys, stages and checks", parts, shown)
