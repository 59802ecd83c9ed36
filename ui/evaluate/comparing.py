"""Two evaluations side by side: two models on the same images, or one model on two versions of a test set. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
"""The title of a table, and its rows. A row is (number of test cases, content). The content is (name of the row,
figures of both models, axis of the plot, texts of the figures). A text is (figure, reason if it has no interval)."""


def comparison_part(pair: Pair, places: tuple[Place, Place], compared: ModelComparison | None = None) -> Html:
    """Return the section that compares two evaluations. It says which model is better (`compared`), and shows
    the figures of each evaluation: for all images, by edit, and by class.
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
    """Return (name, cells) of each figure that both models have. A cell is a model's value and interval, as text."""
    for kind, rows in _ROWS.items():
        if all(getattr(evaluated, kind) is not None for evaluated in pair):
            return [
                (words, [_cell(evaluated, place, unit) for evaluated in pair]) for words, (place, unit) in rows.items()
            ]
    return []


def _cell(evaluated: Evaluated, place: str, unit: Unit) -> tuple[str, str]:
    """Return a figure and its interval as text. Without a figure: "". Without an interval: the reason for that."""
    part, name = place.split(".")
    figure: Figure | None = getattr(getattr(evaluated, part), name, None)
    if figure is None or figure.value is None:
        return "", figure.why if figure is not None else ""
    if unit == "share":
        return per_cent(figure.value), ends_of(figure)
    if unit == "points":
        return f"{points(figure.value)} points", ends_of(figure, True)
    known = figure.low is not None and figure.high is not None
    return f"{figure.value:.1f}", f"{figure.low:.1f} to {figure.high:.1f}" if known else figure.why


def _edits(pair: Pair, table: EditTable) -> Dots | None:
    rows = [
        {effect.row.name: (effect.row.change, effect.row.n) for effect in evaluated.edits.get(table, ())}
        for evaluated in pair
    ]
    return _dots(f"Which edits hurt, by {table}", rows, "no test case has it", signed) if all(rows) else None


def _classes(pair: Pair) -> Dots | None:
    rows = [_class_changes(evaluated) for evaluated in pair]
    what = "error" if pair[0].effectiveness is not None else "IoU"
    title = f"By class, {what} generated less original"
    return _dots(title, rows, "it has no such class", points) if any(rows) else None


def _class_changes(evaluated: Evaluated) -> dict[str, tuple[Figure, int]]:
    """Return each class's change between originals and generated images, and its number of test cases. For a segmenter
    this is the number of all test cases, since the IoU of a class counts the pixels of all of them.
    """
    if evaluated.effectiveness is not None:
        return {row.label: (row.difference, row.cases) for row in evaluated.effectiveness.classes}
    effect = evaluated.segmentation
    return {one.name: (change_of(one), effect.cases) for one in effect.classes} if effect is not None else {}


def _dots(
    title: str, rows: Sequence[Mapping[str, tuple[Figure, int]]], lacks: str, say: Callable[[float | None], str]
) -> Dots:
    """Return a row for each name, such as a class, with a dot for each model. `rows` has one mapping for each model,
    from a name to (figure, number of test cases). `lacks` is the text for a missing figure. `say` formats a figure.
    """
    nothing = Figure(None, why=lacks), 0
    both = {name: [of.get(name, nothing) for of in rows] for name in dict.fromkeys([*rows[0], *rows[1]])}
    axis = change_axis([figure for pairs in both.values() for figure, _ in pairs])
    lines = []
    for name, pairs in both.items():
        figures, cases = zip(*pairs, strict=True)
        lines.append((max(cases), (name, figures, axis, [(say(one.value), one.why) for one in figures])))
    return title, lines
