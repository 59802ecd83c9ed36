"""The strip of a run's results: which of them are shown, which is next to be judged, and what is marked on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.stored_runs import StoredTestCase
from core.types import Task, failed
from core.words import count_of
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from services.runs.words import edit_words
from ui.explore.drawing import drawing_thumb
from ui.explore.large import image_url
from ui.explore.parts import button, icon, key, press, small
from ui.explore.review import review_badge
from ui.explore.saving import save_accepted
from ui.markup import Child, Html, el


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
    thumbs: list[Child] = [drawing_thumb(state, following)]
    thumbs += [_thumb(case, state, comparison, case.id == shown.id and not following) for case in held.cases]
    if not held.cases:
        thumbs.append(small("None of the results.", id="none-of-them"))
    number = len(held.all)
    following_case = held.next_unreviewed(shown)
    onward = button(
        ["Next", el("span", "unreviewed", class_="word"), key("N")],
        look="s q",
        id="next-unreviewed",
        title="The next result that nobody has accepted or rejected",
        data_view_case=following_case.id if following_case is not None else None,
        disabled=following_case is None,
    )
    head = el(
        "header",
        el("h2", _count(held, state.run.task), id="results-count"),
        _filters(held, shown, comparison) if number > 1 else None,
        el("span", class_="grow"),
        onward if number > 1 else None,
        save_accepted(state.run),
        el("span", key("←"), " ", key("→"), class_="mut arrows") if number > 1 else None,
    )
    return el("section", head, el("div", thumbs, class_="thumbs", id="results"), class_="results")


def _filters(held: Strip, shown: StoredTestCase, comparison: ModelComparison) -> Html:
    chips: list[Child] = []
    for name, known in FILTERS.items():
        found = [case.id for case in held.all if known.holds(case, comparison)]
        on = name == held.only
        # With a filter goes what it lets through: what is shown, or else the first.
        first = shown.id if shown.id in found or not found else found[0]
        chips.append(
            press(
                f"{known.words} ",
                el("b", len(found)),
                class_=f"chip{' on' if on else ''}",
                data_view_only="" if on else name,
                data_first=shown.id if on else first,
                data_key=f"only-{name}",
                aria_pressed="true" if on else "false",
                disabled=not found and not on,
                title=known.explanation,
            )
        )
    return el("span", chips, class_="filters", role="group", aria_label="Which results are shown")


def _thumb(case: StoredTestCase, state: RunState, comparison: ModelComparison, on: bool) -> Html:
    verdict = case.review.verdict if case.review is not None else ""
    looks = f"thumb{' on' if on else ''}{' old' if case.id in state.outdated else ''} {verdict}"
    failure = None
    if case.id in comparison.newly_misclassified:
        words = "The model under test fails here"
        failure = el("span", icon("target"), class_="model-fails", title=words, role="img", aria_label=words)
    return press(
        el("img", src=image_url(case.image_sha), alt=f"Generated image: {case.lineage.counterfactual.text}"),
        review_badge(case, state.run.task),
        failure,
        el("span", edit_words(case), class_="words"),
        class_=looks.strip(),
        data_view_case=case.id,
        data_key=f"case-{case.id}",
        title=case.lineage.counterfactual.text,
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
