"""The picture column: the large picture with its review, the strip of all results below, which of them are shown and
which is next to be judged, then what is known of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.stored_runs import Review, Run, StoredTestCase
from core.types import Task, failed
from core.words import count_of
from services.runs.exchange import accepted_of
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from services.runs.words import edit_words
from ui.diff import shortened, word_diff
from ui.explore.checks import findings, under_test_card
from ui.explore.drawing import MODE as DRAWING
from ui.explore.drawing import drawing_figure, drawing_thumb
from ui.explore.large import View, image_url, large_picture, mode_bar, source_picture, usable_mode
from ui.explore.parts import seconds, short_model
from ui.markup import Html
from ui.templating import render

REASONS: dict[str, tuple[str, ...]] = {
    "classification": ("label no longer right", "edit does not show", "not realistic", "other"),
    "segmentation": ("protected class lost", "edit does not show", "not realistic", "other"),
}
"""The usual reasons for a rejection, by the kind of task; the keys 1 to 4 stand for them while they are shown."""


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


def picture_column(state: RunState, view: View, comparison: ModelComparison) -> Html:
    """Show a result, or what is being drawn, with all that is known of it; the source while there is no result."""
    held = strip_of(state, comparison, view.only)
    case = next((made for made in held.all if made.id == view.case), held.first)
    if case is None:
        return render(
            "explore/source_only.html",
            figure=drawing_figure(state) or source_picture(state),
            drawing=drawing_thumb(state),
            under_test=under_test_card(state, None, comparison),
        )
    mode = usable_mode(view.mode, state, case, comparison)
    drawn = drawing_figure(state) if view.follow or view.mode == DRAWING else None
    # What is not there yet can be neither checked nor judged.
    viewer = [mode_bar(state, case, comparison, DRAWING), drawn]
    if drawn is None:
        viewer = [
            mode_bar(state, case, comparison, mode),
            large_picture(state, case, comparison, mode),
            findings(state, case, comparison),
            review_bar(state.run, case, held.next_unreviewed(case)),
        ]
    return render(
        "explore/pictures.html",
        run=state.run,
        case=case,
        viewer=viewer,
        strip=strip(state, held, case, comparison, drawn is not None),
        under_test=under_test_card(state, case, comparison),
        pieces=shortened(word_diff(state.caption, case.lineage.counterfactual.text)),
        notes=[check.note for check in failed(comparison.checks(case)) if check.note],
        made=_made_by(state, case),
    )


def _made_by(state: RunState, case: StoredTestCase) -> str:
    """Model, steps, seed and seconds of an image."""
    lineage, steps = case.lineage, case.lineage.settings.steps
    pace = "" if steps is None else f"{steps} steps · "
    model = short_model(lineage.model, state.model_names)
    return f"{model} · {pace}seed {lineage.seed} · {seconds(lineage.seconds)}"


def review_bar(run: Run, case: StoredTestCase, following: StoredTestCase | None = None) -> Html:
    """What was decided, and the buttons. `following` is the next result to be judged, where there is one."""
    return render(
        "explore/review.html",
        case=case,
        verdict=case.review.verdict if case.review is not None else "",
        decided=verdict_words(case.review, case.task, run.task) if case.review is not None else "",
        following=following,
        reasons=REASONS[case.task.kind],
    )


def verdict_words(review: Review, task: Task, now: Task) -> str:
    """The verdict, with what it was given for where the run has another task by `now`, and the reason."""
    words: str = review.verdict
    if task != now:
        words = f"{words} for {task.label if task.kind == 'classification' else 'other classes'}"
    return words
