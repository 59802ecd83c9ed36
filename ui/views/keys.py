"""Every key of the page, in groups, as a window that "?" opens. `assets/keys.js` does what is listed here."""

from __future__ import annotations

from pipeline.methods import method_of
from pipeline.recipes import DEFAULT, recipe_of
from ui.views.large import modes
from ui.views.markup import Html, el
from ui.views.parts import icon, key

Keys = tuple[str, ...]
_MODES = modes(method_of(recipe_of(DEFAULT).method).artifacts)
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
        (("G",), "generate what waits at the gate"),
        (("Ctrl", "↵"), "the same, also while typing"),
        (("Ctrl", "⇧", "↵"), "run all up to the gate"),
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


def keys_window() -> Html:
    """The window; it is closed until the script opens it."""
    groups = [
        el("section", el("h3", name), el("dl", [_row(keys, words) for keys, words in rows]))
        for name, rows in GROUPS.items()
    ]
    close = el(
        "button", icon("cross"), type="button", class_="btn s q icon-only", data_keys_close=True, aria_label="Close"
    )
    note = "They do nothing while you are typing in a field, but for those with Ctrl."
    return el(
        "dialog",
        el("header", el("h2", "Keys"), el("span", class_="grow"), close),
        el("div", groups, class_="groups"),
        el("p", note, class_="mut small"),
        id="keys-window",
        aria_label="Keys of this page",
    )


def keys_button() -> Html:
    """What opens the window."""
    return el(
        "button",
        "?",
        type="button",
        class_="btn s q icon-only",
        id="keys-button",
        data_keys_open=True,
        aria_label="Keys",
        title="Keys of this page (?)",
    )


def _row(keys: Keys, words: str) -> Html:
    return el("div", el("dt", [key(name) for name in keys]), el("dd", words))
