"""The column of pictures: the large picture with its review, the strip of results, and facts about the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.data_files import DataTable
from core.stored_runs import Review, Run, StoredTestCase
from core.types import Task, failed
from services.runs.exchange import accepted_of
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from services.runs.words import edit_words
from ui.diff import shortened, word_diff
from ui.explore.checks import findings, under_test_card
from ui.explore.large import View, beside_source, large_picture, mode_bar, source_picture, usable_mode
from ui.explore.parts import image_url
from ui.explore.stage import running_stage
from ui.markup import Html, el
from ui.templating import render

MODE = "drawing"
"""Value of `View.mode` in which the page shows the image that is being drawn."""
REASONS = DataTable(__file__, tuple[str, ...], "reasons")
"""Usual reasons for a rejection, by kind of task. While they are shown, the keys 1 to 4 choose one."""
WORDS = DataTable(__file__, tuple[str, str], "filters")
FILTERS: Mapping[str, Callable[[StoredTestCase, ModelComparison], bool]] = {
    "unreviewed": lambda case, comparison: case.review is None,
    "check-failed": lambda case, comparison: bool(failed(comparison.checks(case))),
    "model-fails": lambda case, comparison: case.id in comparison.newly_misclassified,
}
"""Filters of a run's results, by the name that the page sends."""


def drawing_of(state: RunState, followed: bool) -> tuple[Html | None, Html | None]:
    """Return a thumbnail and a large picture of the image being drawn; (None, None) while nothing is drawn. Both
    show the latest preview. Before the first preview, both show the source. `followed` highlights the thumbnail.
    """
    job = state.job
    if job is None or running_stage(job) != "generation" or job.progress is None:
        return None, None
    step, steps = job.progress.step, state.recipe.drawing_method.settings_of(state.settings).steps
    steps = steps or state.settings.generation.steps
    name = job.at_parts[0].name if job.at_parts else "drawing"
    if len(job.at_parts) > 1:
        name = f"{len(job.at_parts)} images"
    picture = el("img", src=image_url(state.run.source_sha), alt="No preview yet")
    if job.preview:
        picture = el("img", src=f"/previews/{job.preview}.png", alt="What it looks like so far")
    seen = "seen" if job.preview else ""
    large = beside_source(state, MODE, (picture,), (name, f"step {step} of {steps}"), looks=seen)
    shown = {"picture": picture, "name": name, "step": step, "steps": steps, "seen": seen}
    return render("explore/drawing.html", followed=followed, **shown), large


@dataclass(frozen=True)
class Strip:
    """The results of a run, newest first: `all` results, and the `cases` that pass the page's filter."""

    all: tuple[StoredTestCase, ...]
    cases: tuple[StoredTestCase, ...]
    only: str

    @property
    def first(self) -> StoredTestCase | None:
        """Return the result that is shown if none is selected; None without results."""
        return next(iter(self.cases or self.all), None)

    def next_unreviewed(self, case: StoredTestCase) -> StoredTestCase | None:
        """Return the next result after `case` without a review; after the last, begin again. None if none exists."""
        shown = self.cases if any(other.review is None and other.id != case.id for other in self.cases) else self.all
        # The filter may hide `case` itself, so its place among all results decides which one is next.
        order = [other.id for other in self.all]
        here = order.index(case.id)
        waiting = [other for other in shown if other.review is None and other.id != case.id]
        return min(waiting, key=lambda other: (order.index(other.id) - here) % len(order), default=None)


def strip_of(state: RunState, comparison: ModelComparison, only: str) -> Strip:
    """Return the results of a run, newest first. `only` is the name of the filter in `FILTERS`."""
    every = tuple(reversed(state.run.test_cases))
    chosen = FILTERS.get(only)
    if chosen is None:
        return Strip(every, every, "")
    return Strip(every, tuple(case for case in every if chosen(case, comparison)), only)


def strip(
    state: RunState, results: Strip, case: StoredTestCase, comparison: ModelComparison, drawing: Html | None, on: bool
) -> Html:
    """Return the strip of results: their number, the filters, and a small picture of each result. If `on` is True, the
    page shows the image being drawn, whose thumbnail is `drawing`. Otherwise the page shows the result `case`.
    """
    found = {name: [case.id for case in results.all if holds(case, comparison)] for name, holds in FILTERS.items()}
    return render(
        "explore/strip.html",
        state=state,
        held=results,
        shown=case,
        following=on,
        drawing=drawing,
        filters=[(name, *WORDS[name], found[name]) for name in FILTERS],
        next_case=results.next_unreviewed(case),
        accepted=len(accepted_of(state.run)),
        fails=comparison.newly_misclassified,
        edit_words=edit_words,
        verdict_words=verdict_words,
    )


def picture_column(state: RunState, view: View, comparison: ModelComparison) -> Html:
    """Return the column with one picture and its facts. It shows a result, the image being drawn, or the source."""
    results = strip_of(state, comparison, view.only)
    case = next((result for result in results.all if result.id == view.case), results.first)
    followed = case is not None and (view.follow or view.mode == MODE)
    drawing, drawn = drawing_of(state, followed)
    if case is None:
        card = under_test_card(state, None, comparison)
        figure = drawn or source_picture(state)
        return render("explore/source_only.html", figure=figure, drawing=drawing, under_test=card)
    mode = usable_mode(view.mode, state, case, comparison)
    drawn = drawn if followed else None
    # An unfinished image can be neither checked nor reviewed.
    viewer = [mode_bar(state, case, comparison, MODE), drawn]
    if drawn is None:
        viewer = [
            mode_bar(state, case, comparison, mode),
            large_picture(state, case, comparison, mode),
            findings(state, case, comparison),
            review_bar(state.run, case, results.next_unreviewed(case)),
        ]
    return render(
        "explore/pictures.html",
        run=state.run,
        case=case,
        viewer=viewer,
        strip=strip(state, results, case, comparison, drawing, drawn is not None),
        under_test=under_test_card(state, case, comparison),
        pieces=shortened(word_diff(state.caption, case.lineage.counterfactual.text)),
        notes=[check.note for check in failed(comparison.checks(case)) if check.note],
        model_names=state.model_names,
    )


def review_bar(run: Run, case: StoredTestCase, following: StoredTestCase | None = None) -> Html:
    """Return the verdict on a result, with buttons to review it. `following` is the next result to review."""
    decided = verdict_words(case.review, case.task, run.task) if case.review is not None else ""
    reasons = REASONS[case.task.kind]
    return render("explore/review.html", case=case, decided=decided, following=following, reasons=reasons)


def verdict_words(review: Review, task: Task, now: Task) -> str:
    """Return the verdict of a review as text. It also names the reviewed `task` if the run's task `now` differs."""
    of_task = task.label if task.kind == "classification" else "other classes"
    return review.verdict if task == now else f"{review.verdict} for {of_task}"
