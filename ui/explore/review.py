"""What a person decides about a result: accept it, reject it with a reason, take that back, or try again."""

from __future__ import annotations

from core.stored_runs import Review, Run, StoredTestCase
from core.types import Task
from ui.markup import Html
from ui.templating import render

REASONS: dict[str, tuple[str, ...]] = {
    "classification": ("label no longer right", "edit does not show", "not realistic", "other"),
    "segmentation": ("protected class lost", "edit does not show", "not realistic", "other"),
}
"""The usual reasons for a rejection, by the kind of task; the keys 1 to 4 stand for them while they are shown."""


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
