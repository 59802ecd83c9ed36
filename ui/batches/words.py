"""Words and pieces that the list and the page of a batch share. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.words import count_of
from services.batches.service import BatchStatus, PassStatus, State
from services.runs.words import recipe_title
from ui.explore.parts import Tone
from ui.markup import Html, el

BATCHES = "/batches/"
"""The list; the page of a batch is its number below."""
SHEETS, SCRIPTS = ("batches.css",), ("batches.js",)
NEW = f"{BATCHES}new"
STATES: Mapping[State, tuple[str, Tone]] = {
    "unplanned": ("planning was interrupted", "warn"),
    "new": ("ready to begin", ""),
    "waiting": ("waits for its turn", ""),
    "running": ("at work", "acc"),
    "stopping": ("is about to stop", "warn"),
    "approval": ("waits for your yes", "warn"),
    "paused": ("paused", "warn"),
    "stopped": ("stopped", "warn"),
    "cancelled": ("cancelled", "bad"),
    "done": ("done", "ok"),
}
"""In words, and how loud."""


def batch_address(number: int) -> str:
    """The address of the page of a batch."""
    return f"{BATCHES}{number}"


def state_words(view: BatchStatus) -> tuple[str, Tone]:
    """What a batch is at, with what it does there."""
    words, tone = STATES[view.state]
    if view.state == "running":
        words = f"at the {view.current.title.lower()}"
    if view.state == "done" and (failed := view.failed):
        return f"done, {failed:,} failed", "warn"
    return words, tone


def rate(a_minute: float) -> str:
    """How fast it is: by the minute, or by the hour where that is slow."""
    if a_minute < 1:
        return f"{60 * a_minute:,.0f} an hour"
    return f"{a_minute:,.0f} a minute" if a_minute >= 9.5 else f"{a_minute:.1f} a minute"


def counts_words(one: PassStatus) -> str:
    """How far a pass is, such as "1,200 of 5,000 done, 3 failed"."""
    if not one.total:
        return "not begun"
    parts = [f"{one.number('done'):,} of {one.total:,} done"]
    parts += [f"{one.number('failed'):,} failed"] if one.number("failed") else []
    parts += [f"{one.number('skipped'):,} left out"] if one.number("skipped") else []
    return ", ".join(parts)


def about(view: BatchStatus) -> str:
    """What it is made of and with."""
    return " · ".join(
        [count_of(view.sources, "source image"), f"profile {view.batch.profile}", recipe_title(view.batch.recipe)]
    )


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
