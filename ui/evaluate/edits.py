"""Which edits hurt: the tables of edits of an evaluation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.evaluation_results import FEWEST_CASES
from services.evaluation.types import EditTable, Evaluated
from ui.evaluate.plots import change_axis, change_plot

NAMED_FEW = 3
"""Rows of too few test cases that the line names which unfolds them."""
SHOWN_ROWS = 10
"""Rows of a table that stand in sight; the rest unfolds."""
MOST_ROWS = 100
"""Rows of a table that are on the page: of a thousand, nobody reads the last ones, and they take seconds to lay out."""
_TABS: dict[EditTable, str] = {"alternative": "What came", "edit type": "Edit type", "keyword": "What was there"}
"""The tables of edits in the order in which they stand, with their words."""


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
