"""The help window: the keys that `assets/keys.js` and `assets/help.js` handle, the stages, and the checks."""

from __future__ import annotations

from collections.abc import Mapping

from core.check_words import CAPTION_WORDS, WORDS
from core.types import stage_title
from services.runs.words import DEFAULT_ARTIFACTS
from ui.explore.counterfactuals import FAILED
from ui.explore.large import modes
from ui.explore.parts import help_window
from ui.explore.words import EXPLAINED
from ui.markup import Html
from ui.templating import render

Keys = tuple[str, ...]
_MODES = modes(DEFAULT_ARTIFACTS)
GROUPS: dict[str, tuple[tuple[Keys, str], ...]] = {
    "Review of the shown result": (
        (("A",), "accept"),
        (("R",), "reject: 1 to 4 pick a reason"),
        (("U",), "take the verdict back"),
        (("S",), "draw it again with a new seed, and show it"),
        (("E",), "edit its caption and go round again"),
        (("N",), "the next result that is not reviewed"),
        (("→",), "the next result, an earlier one"),
        (("←",), "the result before it, a later one"),
    ),
    "Ways to look": (
        *(((str(number),), mode.words) for number, mode in enumerate(_MODES.values(), 1)),
        (("B",), "beside the source, or alone"),
        (("F",), "full window, and back"),
        (("Z",), "one to one, or fitted"),
    ),
    "Work": (
        (("G",), "make the images that wait for your yes; it asks first"),
        (("Ctrl", "↵"), "the same, also while typing"),
        (("Ctrl", "⇧", "↵"), "run all stages of text"),
        (("Ctrl", "Z"), "undo the last thing done"),
        (("Ctrl", "⇧", "Z"), "do it again; Ctrl Y as well"),
    ),
    "Fields and windows": (
        (("↵",), "save what was typed"),
        (("⇧", "↵"), "a new line"),
        (("Esc",), "take back what was typed, or close what is open"),
        (("?",), "this list"),
    ),
}
"""The name of each group, and its keys with what they do. Keys that belong together are pressed together."""


def keys_window(thresholds: Mapping[str, float] | None = None) -> Html:
    """The closed window. `thresholds` are those of the checks of images by name, as far as they are known."""
    parts = (("help-keys", "Keys"), ("help-stages", "The stages"), ("help-checks", "The checks"))
    shown = render(
        "explore/help.html",
        groups=GROUPS,
        stages=[(stage_title(name), text) for name, text in EXPLAINED.items()],
        checks=WORDS,
        thresholds=thresholds or {},
        findings=[(words, CAPTION_WORDS.get(name)) for name, words in FAILED.items()],
    )
    return help_window("Keys, stages and checks", parts, shown)
