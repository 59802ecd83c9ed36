"""The result of an evaluation as HTML. `Links` lead to the images behind each number; a report has none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from core.evaluation_results import (
    FEWEST_CASES,
    ClassRow,
    Effectiveness,
    LossEffect,
    SegmentationEffect,
    SegmentedClass,
)
from core.figures import Figure, Floats
from core.words import count_of
from services.evaluation.types import EditTable, Evaluated
from ui.evaluate.plots import change_axis, confusion
from ui.evaluate.render import render
from ui.evaluate.words import Links, clipped
from ui.markup import Html

MOST_LABELS = 14
"""Maximum number of labels in a confusion matrix. Beyond it, the labels whose accuracy falls most are shown."""
MOST_NARROW = 6
"""Maximum number of labels for which two matrices fit side by side on a laptop."""
_WRONG = {"classification": "wrong", "segmentation": "loses a class"}
NAMED_FEW = 3
"""Maximum number of rows that the text of `worst_few` names. The text describes hidden rows with few test cases."""
SHOWN_ROWS = 10
"""Maximum number of visible rows of a table; the rest unfolds."""
MOST_ROWS = 100
"""Maximum number of rows of a table. A browser needs seconds for the layout of a thousand."""
_TABS: dict[EditTable, str] = {"alternative": "New words", "edit type": "Edit type", "keyword": "Replaced words"}


def result_part(found: Evaluated, links: Links) -> Html:
    """Return the answer of an evaluation as a sentence, and all its figures."""
    values: dict[str, Any] = {}
    if found.effectiveness is not None:
        values = _of_classifier(found, found.effectiveness, links)
    elif found.segmentation is not None and found.losses is not None:
        values = _of_segmenter(found, found.segmentation, found.losses, links)
    plan = links.study
    return render(
        "result",
        found=found,
        links=links,
        wrong=_WRONG[found.kind],
        newly_wrong=newly_wrong(found),
        edits=edit_tables(found),
        judged=count_of(found.validity.judged + found.validity.discarded, "image") if found.validity else "",
        within=f"{50 * plan.width:.1f}" if plan is not None and not isinstance(plan, str) else "",
        SHOWN_ROWS=SHOWN_ROWS,
        **values,
    )


def _of_classifier(found: Evaluated, effect: Effectiveness, links: Links) -> dict[str, Any]:
    before, after = effect.confusion
    present = [number for number in range(len(after.labels)) if after.images[number]]
    # An interval of few sources may exceed the range of a difference of shares.
    rows = sorted((replace(row, difference=clipped(row.difference)) for row in effect.classes), key=_class_place)
    axis = change_axis([row.difference for row in rows])
    together = effect.together
    return {
        "classes": [(row.cases, (row, axis)) for row in rows],
        "worst_classes": worst_few("wrong", [(row.label, row.wrong_cases, row.cases) for row in rows]),
        "confusions": _confusions(after.labels, (before.shares, after.shares), present),
        "sources": together.all_wrong + together.some_wrong + together.none_wrong,
        "columns": _columns(found, rows_standing(one.cases for one in effect.classes), len(present)),
    }


def _class_place(row: ClassRow) -> tuple[float | str, ...]:
    """Return a sort key: largest loss first. Classes of unknown loss come last, sorted by wrong test cases."""
    if row.difference.value is not None:
        return False, -row.difference.value, row.label
    return True, -row.wrong_cases, row.cases, row.label


def _of_segmenter(found: Evaluated, effect: SegmentationEffect, losses: LossEffect, links: Links) -> dict[str, Any]:
    matrices = (effect.confusion_original, effect.confusion_generated)
    present = [number for number in range(len(effect.classes)) if np.isfinite(effect.confusion_generated[number]).any()]
    lost = {one.name: one for one in losses.classes}
    changes = {one.name: change_of(one) for one in effect.classes}
    ordered = sorted(
        effect.classes, key=lambda one: (changes[one.name].value is None, changes[one.name].value, one.name)
    )
    axis = change_axis(changes.values())
    rows: list[tuple[int, tuple[object, ...]]] = []
    for one in ordered:
        change, its_loss = changes[one.name], lost.get(one.name)
        cases = effect.cases if its_loss is None else its_loss.cases
        rows.append((cases, (one, change, axis, its_loss)))
    # A protected name may represent several classes of the masks. Such a name gets a row of its own.
    rows += [(one.cases, (None, None, None, one)) for one in lost.values() if one.name not in changes]
    most_lost = sorted(losses.classes, key=lambda one: -one.lost)
    return {
        "classes": rows,
        "worst_classes": worst_few("lost in", [(one.name, one.lost, one.cases) for one in most_lost]),
        "confusions": _confusions(found.labels, matrices, present),
        "columns": _columns(found, len(effect.classes), len(present)),
    }


def change_of(one: SegmentedClass) -> Figure:
    """Return the change in the IoU of a class, generated images minus originals, without an interval."""
    if one.iou_original is None or one.iou_generated is None:
        return Figure(None, why="these images lack the class")
    return Figure(one.iou_generated - one.iou_original)


def _confusions(labels: Sequence[str], shares: tuple[Floats, Floats], there: Sequence[int]) -> dict[str, object]:
    """Return the confusion matrices of original and generated images. `there` has the numbers of the labels to show. If
    these are more than `MOST_LABELS`, show only those whose share of right answers falls most.
    """
    before, after = shares
    chosen, left_out = list(there), ""
    if len(there) > MOST_LABELS:
        lost = np.nan_to_num(np.diagonal(before) - np.diagonal(after), nan=-1.0)
        chosen = sorted(sorted(there, key=lambda number: -lost[number])[:MOST_LABELS])
        left_out = f"; the {MOST_LABELS} of {len(there)} classes that lose most"
    tables = [
        confusion("original", labels, before, chosen, "confusion before"),
        confusion("generated", labels, after, chosen),
    ]
    return {"tables": tables if there else (), "left_out": left_out, "wide": len(chosen) > MOST_NARROW}


def _columns(found: Evaluated, classes: int, labels: int) -> str:
    """Return the CSS classes for three columns: tables, matrices, and a third column below the shorter of these two.
    `classes` is the number of rows in the table of classes. `labels` is the number of rows in a matrix.
    """
    wide, laptop = (_left_is_shorter(found, classes, min(labels, MOST_LABELS), adjacent) for adjacent in (True, False))
    return f"eval-columns three{' left-wide' if wide else ''}{' left-laptop' if laptop else ''}"


def _left_is_shorter(found: Evaluated, classes: int, labels: int, adjacent: bool) -> bool:
    """Return True if the tables are probably shorter than both matrices. `adjacent` means matrices side by side."""
    table = first_table(found)
    edits = rows_standing(one.row.n for one in found.edits[table]) if table else 0
    tables = 2 * (edits + min(classes, SHOWN_ROWS)) + 8
    matrices = (1 if adjacent or labels <= MOST_NARROW else 2) * (labels + 4) + 3
    return tables <= matrices + 10 + (12 if found.validity is not None else 0)


def worst_few(what: str, rows: Sequence[tuple[str, int, int]]) -> str:
    """Return text on hidden rows, which have few test cases, such as "; newly wrong: fog 2 of 3, rain 1 of 4". The text
    names the first rows with a wrong test case. Without such rows, it is "". Each of `rows` has a name, the number of
    wrong test cases, and the number of all test cases. `what` names the error.
    """
    few = [f"{name} {wrong} of {cases}" for name, wrong, cases in rows if wrong and cases < FEWEST_CASES]
    return f"; {what}: {', '.join(few[:NAMED_FEW])}" if few else ""


def rows_standing(sizes: Iterable[int]) -> int:
    """Return the number of rows of a table that are visible at first. `sizes` has each row's number of test cases."""
    counts = list(sizes)
    return min(sum(size >= FEWEST_CASES for size in counts) or len(counts), SHOWN_ROWS)


def first_table(found: Evaluated) -> EditTable | None:
    """Return the table of edits to open first: one with figures, or the one with the most test cases in a row."""
    present = [table for table in _TABS if found.edits.get(table)]
    with_figures = [table for table in present if any(one.row.change.value is not None for one in found.edits[table])]
    largest = sorted(present, key=lambda table: -max(one.row.n for one in found.edits[table]))
    return next(iter(with_figures or largest), None)


def newly_wrong(found: Evaluated) -> str:
    """Return a column title for the tables of edits, such as "newly wrong"."""
    return "newly wrong" if found.kind == "classification" else "loses a class"


def edit_tables(found: Evaluated) -> list[dict[str, object]]:
    """Return the values for each table of edits: by new words, by edit type, by replaced words."""
    tables: list[dict[str, object]] = []
    for table in (table for table in _TABS if found.edits.get(table)):
        rows = found.edits[table][:MOST_ROWS]
        axis = change_axis([one.row.change for one in rows])
        counts = [(one.row.name, one.row.newly_wrong_cases, one.row.n) for one in rows]
        tables.append(
            {
                "table": table,
                "tab": _TABS[table],
                "first": table == first_table(found),
                "rows": [(one.row.n, (one, axis)) for one in rows],
                "worst": worst_few(newly_wrong(found), counts),
                "further": len(found.edits[table]) - len(rows),
            }
        )
    return tables
