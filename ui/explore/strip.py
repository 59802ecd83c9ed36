"""The strip of a run's results: which of them are shown, which is next to be judged, and what is marked on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.stored_runs import StoredTestCase
from core.types import Task, failed
from core.words import count_of
from services.runs.accepted import accepted_of
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from services.runs.words import edit_words
from ui.explore.drawing import drawing_thumb
from ui.explore.large import image_url
from ui.explore.review import verdict_words
from ui.markup import Html
from ui.templating import render


@dataclass(frozen=True)
class Filter:
    """Some of the results."""

    words: str
    explanation: str
    holds: Callable[[StoredTestCase, ModelComparison], bool]


FILTERS: Mapping[str, Filter] = {
    "unreviewed": Filter(
        "unreviewed",
        "Those that nobody has accepted or rejected",
        lambda case, comparison: case.review is None,
    ),
    "check-failed": Filter(
        "check failed",
        "Those in which a check failed: the image may be no good",
        lambda case, comparison: bool(failed(comparison.checks(case))),
    ),
    "model-fails": Filter(
        "model fails",
        "Those on which the model under test fails: what you are looking for",
        lambda case, comparison: case.id in comparison.newly_misclassified,
    ),
}
"""By the name that a page asks for."""


@dataclass(frozen=True)
class Strip:
    """The results of a run, the newest first, and those of them that a page looks through."""

    all: tuple[StoredTestCase, ...]
    cases: tuple[StoredTestCase, ...]
    only: str
    """The name of the filter; "" for none."""

    @property
    def first(self) -> StoredTestCase | None:
        """What is shown while nothing is picked."""
        return next(iter(self.cases or self.all), None)

    def next_unreviewed(self, case: StoredTestCase) -> StoredTestCase | None:
        """The next one to be judged after `case`, from the start again after the last; None when all others are."""
        shown = self.cases if any(held.review is None and held.id != case.id for held in self.cases) else self.all
        # `case` itself may be filtered out: the order of all tells what comes after it.
        order = [held.id for held in self.all]
        here = order.index(case.id)
        waiting = [held for held in shown if held.review is None and held.id != case.id]
        return min(waiting, key=lambda held: (order.index(held.id) - here) % len(order), default=None)


def strip_of(state: RunState, comparison: ModelComparison, only: str) -> Strip:
    """The results of a run as a page looks through them."""
    every = tuple(reversed(state.run.test_cases))
    chosen = FILTERS.get(only)
    if chosen is None:
        return Strip(every, every, "")
    return Strip(every, tuple(case for case in every if chosen.holds(case, comparison)), only)


def strip(state: RunState, held: Strip, shown: StoredTestCase, comparison: ModelComparison, following: bool) -> Html:
    """How many results there are, the filters, and a picture of each."""
    found = {name: [case.id for case in held.all if one.holds(case, comparison)] for name, one in FILTERS.items()}
    return render(
        "explore/strip.html",
        state=state,
        held=held,
        shown=shown,
        following=following,
        drawing=drawing_thumb(state, following),
        count=_count(held, state.run.task),
        filters=[(name, known, found[name]) for name, known in FILTERS.items()],
        next_case=held.next_unreviewed(shown),
        accepted=len(accepted_of(state.run)),
        fails=comparison.newly_misclassified,
        edit_words=edit_words,
        verdict_words=verdict_words,
        image_url=image_url,
    )


def _count(held: Strip, task: Task) -> str:
    """Such as: 6 results, 3 accepted, 1 rejected."""
    words = [count_of(len(held.all), "result")]
    ours = [case for case in held.all if case.task == task]
    for verdict in ("accepted", "rejected"):
        number = sum(case.review is not None and case.review.verdict == verdict for case in ours)
        words += [f"{number} {verdict}"] if number else []
    if len(ours) < len(held.all):
        words.append(f"{len(held.all) - len(ours)} made for another task")
    return ", ".join(words)
