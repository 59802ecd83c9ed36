"""The help window: the keys that `assets/keys.js` and `assets/help.js` handle, the stages, and the checks."""

from __future__ import annotations

from collections.abc import Mapping

from core.check_words import CAPTION_WORDS, WORDS
from core.types import stage_title
from services.runs.words import DEFAULT_ARTIFACTS
from ui.explore.counterfactuals import FAILED
from ui.explore.large import modes
from ui.explore.parts import help_button, help_window, key, small
from ui.explore.words import EXPLAINED
from ui.markup import Html, el

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
    groups = [
        el("section", el("h3", name), el("dl", [_row(keys, words) for keys, words in rows]))
        for name, rows in GROUPS.items()
    ]
    note = "They do nothing while you are typing in a field, but for those with Ctrl."
    parts = (("help-keys", "Keys"), ("help-stages", "The stages"), ("help-checks", "The checks"))
    return help_window(
        "Keys, stages and checks",
        parts,
        el("div", groups, class_="groups", id="help-keys"),
        small(note),
        _stages(),
        _checks(thresholds or {}),
    )


def _stages() -> Html:
    rows = [
        el("p", el("b", f"{place} {stage_title(name)}"), " ", el("span", text, class_="mut"))
        for place, (name, text) in enumerate(EXPLAINED.items(), 1)
    ]
    return el("section", el("h3", "The stages"), rows, class_="words", id="help-stages")


def _checks(thresholds: Mapping[str, float]) -> Html:
    """Each with what it looks at, the figure from which it passes, and the name under which it is recorded."""
    images = []
    for name, words in WORDS.items():
        least = f" It passes from {thresholds[name]:.2f}." if name in thresholds else ""
        recorded = f" Plans, scripts and exported files call it “{name}”." if name != words.title else ""
        text = el("span", words.explanation, least, recorded, class_="mut")
        images.append(el("p", el("b", words.title), " ", text, id=f"explains-{name.replace(' ', '-')}"))
    captions = [
        el("p", el("b", words), " ", el("span", CAPTION_WORDS.get(name, ""), class_="mut"))
        for name, words in FAILED.items()
    ]
    three = (
        "A check has passed, has failed, or cannot tell. It says whether the image is good, and nothing about the "
        "model under test: that has a line of its own above the checks."
    )
    return el(
        "section",
        el("h3", "The checks of an image"),
        el("p", three),
        images,
        el("h3", "What a check of a caption can find"),
        captions,
        class_="words",
        id="help-checks",
    )


def keys_button() -> Html:
    """What opens the window."""
    return help_button("Keys of this page, what the stages are, what the checks say")


def _row(keys: Keys, words: str) -> Html:
    return el("div", el("dt", [key(name) for name in keys]), el("dd", words))
