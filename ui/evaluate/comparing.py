"""Two evaluations side by side: two models on the same images, or one model on two versions of a test set. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from core.data_files import DataTable
from core.figures import Figure
from services.evaluation.types import EDIT_TABLES, EditTable, Evaluated, ModelComparison
from ui.evaluate.plots import change_axis
from ui.evaluate.render import render
from ui.evaluate.result import SHOWN_ROWS, change_of
from ui.evaluate.words import Place, ends_of, per_cent, points, signed
from ui.markup import Html, el
from ui.study.plots import Axis

Pair = tuple[Evaluated, Evaluated]
Unit = Literal["share", "points", "times"]
_ROWS = {kind: DataTable(__file__, tuple[str, Unit], kind) for kind in ("effectiveness", "segmentation")}
Dots = tuple[str, list[tuple[int, tuple[str, tuple[Figure, ...], Axis, list[tuple[str, str]]]]]]
"""The title of a table, and its rows. A row has its number of test cases, its name, the figures of both models, and the
axis of the plot. Last come the figures as text, each with the reason if it has no interval."""


def comparison_part(pair: Pair, places: tuple[Place, Place], compared: ModelComparison | None = None) -> Html:
    """Return the section that compares two evaluations: the better model (`compared`), the figures of both, and the
    effect of edits and classes on each.
    """
    first, second = pair
    if first.kind != second.kind:
        words = "One is a classifier and the other a segmenter, so there is nothing to compare."
        return el("section", el("p", words, class_="notice"), id="part-compared", class_="card box")
    tables = [_edits(pair, table) for table in EDIT_TABLES if table != "class"]
    sizes = [evaluated.effectiveness or evaluated.segmentation for evaluated in pair]
    return render(
        "comparison",
        # If both have the same model, the versions name the columns.
        names=[one.model if first.model != second.model else one.subject.title for one in pair],
        alone=[place.to(beside="", other=None) for place in places],
        compared=compared,
        by_error=first.effectiveness is not None,
        answer=second.answer,
        figures=_figures(pair),
        same=first.subject.subject == second.subject.subject,
        cases=[size.cases if size is not None else 0 for size in sizes],
        sources=sizes[0].sources if sizes[0] is not None else 0,
        tables=[table for table in (*tables, _classes(pair)) if table is not None],
        SHOWN_ROWS=SHOWN_ROWS,
    )


def _figures(pair: Pair) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each figure that both models have: its name, and for each model the value and the interval as text."""
    for kind, rows in _ROWS.items():
        if all(getattr(evaluated, kind) is not None for evaluated in pair):
            return [
                (words, [_cell(_figure_of(evaluated, place), unit) for evaluated in pair])
                for words, (place, unit) in rows.items()
            ]
    return []


def _figure_of(evaluated: Evaluated, place: str) -> Figure | None:
    part, name = place.split(".")
    return getattr(getattr(evaluated, part), name, None)


def _cell(figure: Figure | None, unit: Unit) -> tuple[str, str]:
    """Return a figure and its interval as text. A missing figure is "", a missing interval the reason for it."""
    if figure is None or figure.value is None:
        return "", figure.why if figure is not None else ""
    if unit == "share":
        return per_cent(figure.value), ends_of(figure)
    if unit == "points":
        return f"{points(figure.value)} points", ends_of(figure, True)
    known = figure.low is not None and figure.high is not None
    return f"{figure.value:.1f}", f"{figure.low:.1f} to {figure.high:.1f}" if known else figure.why


def _edits(pair: Pair, table: EditTable) -> Dots | None:
    rows = [{effect.row.name: effect.row for effect in evaluated.edits.get(table, ())} for evaluated in pair]
    if not rows[0] or not rows[1]:
        return None
    nothing = Figure(None, why="no test case has it")
    both = {
        name: tuple(by_name[name].change if name in by_name else nothing for by_name in rows)
        for name in dict.fromkeys([*rows[0], *rows[1]])
    }
    cases = {name: max(by_name[name].n for by_name in rows if name in by_name) for name in both}
    return _dots(f"Which edits hurt, by {table}", both, cases, signed)


def _classes(pair: Pair) -> Dots | None:
    rows = [_class_changes(evaluated) for evaluated in pair]
    nothing = Figure(None, why="it has no such class")
    names = dict.fromkeys([*rows[0], *rows[1]])
    both = {name: tuple(figures_of.get(name, nothing) for figures_of in rows) for name in names}
    what = "error" if pair[0].effectiveness is not None else "IoU"
    sizes = [_class_sizes(evaluated) for evaluated in pair]
    cases = {name: max(of.get(name, 0) for of in sizes) for name in both}
    return _dots(f"By class, {what} generated less original", both, cases, points) if both else None


def _class_changes(evaluated: Evaluated) -> dict[str, Figure]:
    if evaluated.effectiveness is not None:
        return {row.label: row.difference for row in evaluated.effectiveness.classes}
    found = evaluated.segmentation.classes if evaluated.segmentation is not None else ()
    return {one.name: change_of(one) for one in found}


def _class_sizes(evaluated: Evaluated) -> dict[str, int]:
    """Return the number of test cases of each class. For a segmenter, each class gets the number of the whole set,
    since its figures count pixels of all images.
    """
    if evaluated.effectiveness is not None:
        return {row.label: row.cases for row in evaluated.effectiveness.classes}
    effect = evaluated.segmentation
    return {one.name: effect.cases for one in effect.classes} if effect is not None else {}


def _dots(
    title: str,
    both: Mapping[str, tuple[Figure, ...]],
    cases: Mapping[str, int],
    say: Callable[[float | None], str],
) -> Dots:
    """Return a row for each name with a dot for each model. `cases` are numbers of test cases by name, `say` writes a
    figure as text.
    """
    axis = change_axis([one for figures in both.values() for one in figures])
    return title, [
        (cases[name], (name, figures, axis, [(say(one.value), one.why) for one in figures]))
        for name, figures in both.items()
    ]
