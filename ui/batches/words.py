"""Words and pieces that the list and the page of a batch share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.data_files import DataTable
from core.words import count_of, duration
from services.batches.service import BatchStatus, PassStatus, State
from services.runs.words import recipe_title
from ui.explore.parts import Tone

BATCHES = "/batches/"
"""The list; the page of a batch is its number below."""
SHEETS, SCRIPTS = ("batches.css",), ("batches.js",)


@dataclass(frozen=True)
class StateWords:
    """A state in words."""

    words: str
    tone: Tone
    """How loud it is."""
    meaning: str
    """What it means, and what can be done in it."""


STATES: Mapping[State, StateWords] = DataTable(__file__, StateWords)


def batch_address(number: int) -> str:
    """The address of the page of a batch."""
    return f"{BATCHES}{number}"


def state_words(view: BatchStatus) -> tuple[str, Tone]:
    """What a batch is at, with what it does there."""
    held = STATES[view.state]
    words = held.words
    if view.state == "running":
        words = f"at the {view.current.title.lower()}"
    if view.state == "done" and (failed := view.failed):
        return f"done, {failed:,} failed", "warn"
    return words, held.tone


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


def pass_words(view: BatchStatus, one: PassStatus) -> str:
    """How far a pass of a batch is, and what is left of the one that it is at."""
    told = counts_words(one)
    if one.stage != view.batch.stage or view.state != "running":
        return told
    if one.seconds_left is not None:
        return f"{told} · about {duration(one.seconds_left)} left"
    if not one.left:
        return told
    begun = one.number("done") or one.number("failed")
    return f"{told} · {'time left: measuring' if begun else 'starting: workers load their models'}"
