"""Votes that were given elsewhere: a file is looked at first, and taken when the lead says so."""

from __future__ import annotations

from ui.study.fields import card
from ui.views.markup import Html, el
from ui.views.parts import button

SCRIPT = "study-votes.js"


def votes_card(heading: str = "Bring votes from Mechanical Turk") -> Html:
    """The part of a running study's page that takes a result file."""
    return card(
        None,
        heading,
        el(
            "p",
            "A result file (CSV) as Mechanical Turk gives it, or one that a study here exported. Its images have to be "
            "images of this study, under their item names or the names of the files that they came from. Workers keep "
            "their names, with “imported-” before them.",
            class_="mut small",
        ),
        el("input", type="file", id="votes-file", accept=".csv", aria_label="Result file of Mechanical Turk"),
        el("p", "", id="votes-note", role="status"),
        el("p", "", class_="wrong", id="votes-problem", role="alert"),
        el("div", button("Bring them in", look="p s", id="votes-go"), class_="field", id="votes-ready", hidden=True),
        id="part-votes",
    )
