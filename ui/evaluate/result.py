"""The result of an evaluation. `Links` tell where its numbers lead; a report that stands alone has none. Pure."""

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
from ui.evaluate.plots import change_axis, change_plot, confusion
from ui.evaluate.render import render
from ui.evaluate.words import Links, clipped
from ui.markup import Html

MOST_LABELS = 14
"""Labels of a confusion matrix: of more, those that lose most."""
MOST_NARROW = 6
"""Labels up to which two of them stand side by side on a laptop."""
_WRONG = {"classification": "wrong", "segmentation": "loses a class"}
"""What a model does to a test case that it is wrong about."""
NAMED_FEW = 3
"""Rows of too few test cases that the line names which unfolds them."""
SHOWN_ROWS = 10
"""Rows of a table that stand in sight; the rest unfolds."""
MOST_ROWS = 100
"""Rows of a table that are on the page: of a thousand, nobody reads the last ones, and they take seconds to lay out."""
_TABS: dict[EditTable, str] = {"alternative": "What came", "edit type": "Edit type", "keyword": "What was there"}
"""The tables of edits in the order in which they stand, with their words."""


def result_part(found: Evaluated, links: Links) -> Html:
    """The answer, and the figures behind it."""
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


def _of_classifier(found: Evaluated, held: Effectiveness, links: Links) -> dict[str, Any]:
    before, after = held.confusion
    there = [number for number in range(len(after.labels)) if after.images[number]]
    # An interval of a few sources may reach beyond what a difference of shares can be.
    rows = sorted((replace(row, difference=clipped(row.difference)) for row in held.classes), key=_class_place)
    axis = change_axis([row.difference for row in rows])
    together = held.together
    return {
        "classes": [(row.cases, (row, change_plot([row.difference], axis))) for row in rows],
        "worst_classes": worst_few("wrong", [(row.label, row.wrong_cases, row.cases) for row in rows]),
        "confusions": _confusions(after.labels, (before.shares, after.shares), there),
        "sources": together.all_wrong + together.some_wrong + together.none_wrong,
        "columns": _columns(found, rows_standing(one.cases for one in held.classes), len(there)),
    }


def _class_place(row: ClassRow) -> tuple[float | str, ...]:
    """The order of classes: those that lose most first, those without a figure last, by their wrong test cases."""
    if row.difference.value is not None:
        return False, -row.difference.value, row.label
    return True, -row.wrong_cases, row.cases, row.label


def _of_segmenter(found: Evaluated, held: SegmentationEffect, losses: LossEffect, links: Links) -> dict[str, Any]:
    matrices = (held.confusion_original, held.confusion_generated)
    there = [number for number in range(len(held.classes)) if np.isfinite(held.confusion_generated[number]).any()]
    lost = {one.name: one for one in losses.classes}
    changes = {one.name: change_of(one) for one in held.classes}
    ordered = sorted(held.classes, key=lambda one: (changes[one.name].value is None, changes[one.name].value, one.name))
    axis = change_axis(changes.values())
    rows: list[tuple[int, tuple[object, ...]]] = []
    for one in ordered:
        change, its_loss = changes[one.name], lost.get(one.name)
        cases = held.cases if its_loss is None else its_loss.cases
        rows.append((cases, (one, change, change_plot([change], axis), its_loss)))
    # A class that is protected by a name of several classes of the masks.
    rows += [(one.cases, (None, None, None, one)) for one in lost.values() if one.name not in changes]
    most_lost = sorted(losses.classes, key=lambda one: -one.lost)
    return {
        "classes": rows,
        "worst_classes": worst_few("lost in", [(one.name, one.lost, one.cases) for one in most_lost]),
        "confusions": _confusions(found.labels, matrices, there),
        "columns": _columns(found, len(held.classes), len(there)),
    }


def change_of(one: SegmentedClass) -> Figure:
    """The IoU of a class on generated images less that on originals, without an interval."""
    if one.iou_original is None or one.iou_generated is None:
        return Figure(None, why="it is not there")
    return Figure(one.iou_generated - one.iou_original)


def _confusions(labels: Sequence[str], shares: tuple[Floats, Floats], there: Sequence[int]) -> dict[str, object]:
    """Confusion matrices of originals and generated images, for the labels `there`; of many, those that lose most."""
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
    """The class names of three columns: tables with `classes` rows, matrices with `labels` rows, and what stands below
    the shorter of these two.
    """
    wide, laptop = (_left_is_shorter(found, classes, min(labels, MOST_LABELS), beside) for beside in (True, False))
    return f"eval-columns three{' left-wide' if wide else ''}{' left-laptop' if laptop else ''}"


def _left_is_shorter(found: Evaluated, classes: int, labels: int, beside: bool) -> bool:
    """Estimate whether the tables take less height than the matrices, which stand `beside` each other or not."""
    table = first_table(found)
    edits = rows_standing(one.row.n for one in found.edits[table]) if table else 0
    tables = 2 * (edits + min(classes, SHOWN_ROWS)) + 8
    matrices = (1 if beside or labels <= MOST_NARROW else 2) * (labels + 4) + 3
    return tables <= matrices + 10 + (12 if found.validity is not None else 0)


def worst_few(what: str, rows: Sequence[tuple[str, int, int]]) -> str:
    """The worst rows of too few test cases, to stand behind the words that unfold them; "" for none. `rows` are the
    name of each row, its wrong test cases and all of its test cases, and `what` is counted, such as "newly wrong".
    """
    few = [f"{name} {wrong} of {cases}" for name, wrong, cases in rows if wrong and cases < FEWEST_CASES]
    return f"; {what}: {', '.join(few[:NAMED_FEW])}" if few else ""


def rows_standing(sizes: Iterable[int]) -> int:
    """Number of rows that stand in sight, of a table whose rows have so many test cases."""
    held = list(sizes)
    return min(sum(size >= FEWEST_CASES for size in held) or len(held), SHOWN_ROWS)


def first_table(found: Evaluated) -> EditTable | None:
    """The table that is shown first: the first one with figures, else the one whose rows have most test cases. None
    without an edit.
    """
    there = [table for table in _TABS if found.edits.get(table)]
    told = [table for table in there if any(one.row.change.value is not None for one in found.edits[table])]
    largest = sorted(there, key=lambda table: -max(one.row.n for one in found.edits[table]))
    return next(iter(told or largest), None)


def newly_wrong(found: Evaluated) -> str:
    """What the tables of edits count."""
    return "newly wrong" if found.kind == "classification" else "loses a class"


def edit_tables(found: Evaluated) -> list[dict[str, object]]:
    """What came, which kind of edit, and what was there before: the values of a table each."""
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
                "rows": [(one.row.n, (one, change_plot([one.row.change], axis))) for one in rows],
                "worst": worst_few(newly_wrong(found), counts),
                "further": len(found.edits[table]) - len(rows),
            }
        )
    return tables
