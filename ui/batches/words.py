"""Texts and addresses that the list of batches and the page of a batch share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.data_files import DataTable
from core.words import count_of, duration
from services.batches.service import BatchStatus, PassStatus, State
from services.runs.words import recipe_title
from ui.explore.parts import Tone

BATCHES = "/batches/"
"""Address of the list of batches. The address of a batch adds the number of the batch, such as /batches/7."""
SHEETS, SCRIPTS = ("batches.css",), ("batches.js",)


@dataclass(frozen=True)
class StateWords:
    """Text and colour of a state of a batch."""

    words: str
    tone: Tone
    meaning: str
    """Sentence on what the state means and what a person can do."""


STATES: Mapping[State, StateWords] = DataTable(__file__, StateWords)


def batch_address(number: int) -> str:
    """Return the address of the page of a batch."""
    return f"{BATCHES}{number}"


def state_words(view: BatchStatus) -> tuple[str, Tone]:
    """Return the state of a batch as text, and the name of its colour. A running batch names its current pass."""
    state = STATES[view.state]
    words = state.words
    if view.state == "running":
        words = f"at the {view.current.title.lower()}"
    if view.state == "done" and (failed := view.failed):
        return f"done, {failed:,} failed", "warn"
    return words, state.tone


def rate(a_minute: float) -> str:
    """Return a speed as text: by the minute, or by the hour if it is slow."""
    if a_minute < 1:
        return f"{60 * a_minute:,.0f} an hour"
    return f"{a_minute:,.0f} a minute" if a_minute >= 9.5 else f"{a_minute:.1f} a minute"


def counts_words(one: PassStatus) -> str:
    """Return the progress of a pass (captions, edits or images) as text: "1,200 of 5,000 done, 3 failed"."""
    if not one.total:
        return "not begun"
    others = {"failed": one.number("failed"), "left out": one.left_out, "wait for the search": one.waiting}
    parts = [f"{number:,} {words}" for words, number in others.items() if number]
    return ", ".join([f"{one.number('done'):,} of {one.total:,} done", *parts])


def about(view: BatchStatus) -> str:
    """Return the number of source images, the profile and the recipe of a batch as text."""
    return " · ".join(
        [count_of(view.sources, "source image"), f"profile {view.batch.profile}", recipe_title(view.batch.recipe)]
    )


def pass_words(view: BatchStatus, one: PassStatus) -> str:
    """Return the progress of a pass (captions, edits or images) as text, with the time left while it is at work."""
    counts = counts_words(one)
    if one.stage != view.batch.stage or view.state != "running":
        return counts
    if one.seconds_left is not None:
        return f"{counts} · about {duration(one.seconds_left)} left"
    if not one.left:
        return counts
    begun = one.number("done") or one.number("failed")
    return f"{counts} · {'time left: measuring' if begun else 'starting: workers load their models'}"
