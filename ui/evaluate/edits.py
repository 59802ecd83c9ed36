"""Which edits hurt: the tables of edits of an evaluation, with the worst images of each row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.evaluation_results import FEWEST_CASES, OF_PIXELS, OF_TRUE_CLASS
from services.evaluation.types import Cell, EditRow, EditTable, Evaluated
from ui.evaluate.explained import explained
from ui.evaluate.plots import change_axis, change_plot
from ui.evaluate.words import Links, ends_of, linked, p_words, per_cent, signed
from ui.explore.parts import first_rows, more_line, muted, named_row, press, small
from ui.markup import Attribute, Child, Html, el
from ui.study.plots import Axis

FEW_ALONE = f"Each has fewer than {FEWEST_CASES} test cases, so a difference may be chance. More images make it sure."
NAMED_FEW = 3
"""Rows of too few test cases that the line names which unfolds them."""
SHOWN_ROWS = 10
"""Rows of a table that stand in sight; the rest unfolds."""
MOST_ROWS = 100
"""Rows of a table that are on the page: of a thousand, nobody reads the last ones, and they take seconds to lay out."""
TOO_FEW = f"None has {FEWEST_CASES} test cases: figures of fewer say little."
_TABS: dict[EditTable, str] = {"alternative": "What came", "edit type": "Edit type", "keyword": "What was there"}
"""The tables of edits in the order in which they stand, with their words."""


SizedRow = tuple[int, Html]
"""A row of a table, and of how many test cases it is."""


class Counts(NamedTuple):
    """Wrong test cases of the rows of a table."""

    what: str
    """What is counted, such as "newly wrong"."""
    rows: Sequence[tuple[str, int, int]]
    """The name of each row, its wrong test cases, and all of its test cases, in the order of the table."""


def rows_in_sight(
    head: Sequence[Child], rows: Sequence[SizedRow], told: Counts | None = None, **attributes: Attribute
) -> list[Child]:
    """A table whose first rows stand in sight; further ones unfold, and so do those of too few test cases. With `told`
    the line that unfolds the latter names the worst of them, and they stand in sight where there are no others. `head`
    may be empty.
    """
    enough = [row for cases, row in rows if cases >= FEWEST_CASES]
    few = [row for cases, row in rows if cases < FEWEST_CASES]
    if few and not enough and told is not None:
        return [small(FEW_ALONE), *first_rows(head, few, SHOWN_ROWS, **attributes)]
    shown: list[Child] = [*first_rows(head, enough, SHOWN_ROWS, **attributes)] if enough else [muted(TOO_FEW)]
    if few:
        words = f"{len(few):,}{' more' if enough else ''} with fewer than {FEWEST_CASES} test cases{_worst_few(told)}"
        shown.append(more_line(words, first_rows(head, few, len(few), **attributes), data_few=True))
    return shown


def _worst_few(told: Counts | None) -> str:
    few = [one for one in told.rows if one[1] and one[2] < FEWEST_CASES] if told is not None else []
    named = ", ".join(f"{name} {wrong} of {cases}" for name, wrong, cases in few[:NAMED_FEW])
    return f"; {told.what}: {named}" if told is not None and few else ""


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


def edits_part(found: Evaluated, links: Links) -> Html:
    """What came, which kind of edit, and what was there before: a table each, behind tabs."""
    there = [table for table in _TABS if found.edits.get(table)]
    against = "reconstruction" if found.against_control else "original"
    what = OF_TRUE_CLASS if found.kind == "classification" else OF_PIXELS
    head = [
        el("h2", "Which edits hurt"),
        muted(f"change of {what}, against the {against} of the same source"),
    ]
    if not there:
        empty = muted("No test case has an edit whose effect is known.")
        return el("section", head, empty, class_="card box", id="edits")
    first = first_table(found)
    tabs = [
        press(
            _TABS[table],
            class_="btn s on" if table == first else "btn s",
            data_tab=table,
            aria_pressed="true" if table == first else "false",
        )
        for table in there
    ]
    tables = [el("div", _edit_table(found, table, links), data_table=table, hidden=table != first) for table in there]
    return el("section", head, el("div", tabs, class_="tab-row", role="group"), tables, class_="card box", id="edits")


def _edit_table(found: Evaluated, table: EditTable, links: Links) -> list[Child]:
    rows = found.edits[table][:MOST_ROWS]
    axis = change_axis([one.row.change for one in rows])
    drawn = [(one.row.n, _edit_row(one, axis, found, links)) for one in rows]
    head = [
        table,
        el("th", "hurts ← 0 → helps", scope="col", class_="plot-cell"),
        el("th", explained("change", "change by an edit"), scope="col", class_="n"),
        el("th", "n", scope="col", class_="n"),
        el("th", explained(_wrong(found)), scope="col", class_="n"),
        "worst ones",
    ]
    counts = Counts(_wrong(found), [(one.row.name, one.row.newly_wrong_cases, one.row.n) for one in rows])
    body = rows_in_sight(head, drawn, counts, class_="edits stacks")
    further = len(found.edits[table]) - len(rows)
    if further:
        words = f"{further:,} further rows, which hurt less or have too few test cases, are in the report as CSV."
        body.append(small(words))
    return body


def _wrong(found: Evaluated) -> str:
    return "newly wrong" if found.kind == "classification" else "loses a class"


def _edit_row(one: EditRow, axis: Axis, found: Evaluated, links: Links) -> Html:
    row, link = one.row, links.opened(one.cell)
    wrong_cell = Cell(one.cell.kind, one.cell.name, one.cell.said, only_wrong=True)
    wrong_link = links.opened(wrong_cell) if row.newly_wrong_cases else None
    if row.change.value is None:
        plot: Child = el("span", row.change.why, class_="mut small") if row.n >= FEWEST_CASES else None
        value: Child = "–"
    else:
        plot = change_plot([row.change], axis)
        value = [signed(row.change.value), el("small", ends_of(row.change, form=".2f"), class_="mut")]
    pictures = [_worst(entry, one.cell, found, links) for entry in one.worst[:4]]
    share = per_cent(row.newly_wrong) if row.newly_wrong is not None else f"{row.newly_wrong_cases} of {row.n}"
    sure = f"p = {p_words(row.p_adjusted)}, corrected over the table" if row.p_adjusted is not None else None
    return named_row(
        linked(row.name, link),
        el("td", plot, class_="plot-cell"),
        el("td", value, class_="n", title=sure),
        el("td", linked(f"{row.n:,}", link), class_="n", data_what="n"),
        el("td", linked(share, wrong_link), class_="n", data_what=_wrong(found)),
        el("td", el("span", pictures, class_="worst")) if any(pictures) else el("td"),
        class_="hurts" if row.hurts else "untold" if row.change.value is None else None,
    )


def _worst(entry: int, cell: Cell, found: Evaluated, links: Links) -> Html | None:
    sha = found.thumbnails.get(entry)
    src = links.picture(sha) if sha else None
    if src is None:
        return None
    picture = el("img", src=src, width=36, height=36, alt="", loading="lazy")
    link = links.image(entry, cell)
    return el("a", picture, href=link, aria_label=f"image {entry}") if link else picture
