"""What the list and the page of a batch both show. Pure."""

from __future__ import annotations

from core.words import count_of
from services.batches.service import BatchStatus, PassStatus
from ui.batches.words import BATCHES, counts_words
from ui.markup import Html, el

SHEETS, SCRIPTS = ("batches.css",), ("batches.js",)
NEW = f"{BATCHES}new"


def about(view: BatchStatus) -> str:
    """What it is made of and with."""
    return " · ".join([count_of(view.sources, "source image"), view.batch.profile, view.batch.recipe])


def pass_bar(one: PassStatus) -> Html:
    """Done, then failed, then what is left."""
    total = one.total or 1
    parts = [("done", one.number("done")), ("failed", one.number("failed")), ("out", one.number("skipped"))]
    return el(
        "span",
        [el("i", style=f"width:{100 * number / total:.2f}%", class_=name) for name, number in parts if number],
        class_="bar parts",
        role="progressbar",
        aria_label=f"{one.title}: {counts_words(one)}",
        aria_valuenow=round(100 * one.number("done") / total),
        aria_valuemin=0,
        aria_valuemax=100,
    )
