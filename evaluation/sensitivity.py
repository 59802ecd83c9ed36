"""Measure how edits change a model's probability of the true class, edit by edit. The change has a sign; LANCE (Prabhu
et al. 2023, section 3.3) takes only its size. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.evaluation_results import FEWEST_CASES, Weighing
from core.figures import Figure, Flags, Floats, Numbers
from evaluation.by_source import adjusted, means_of_groups


@dataclass(frozen=True)
class Changes:
    """The true class's probability before and after edits, column by column; all columns have one length."""

    source: Numbers
    after: Floats
    """Probability of the true class on the test case, 0 to 1; NaN if unknown."""
    before: Floats
    """Probability of the true class on the reconstruction of the source, or on the source; NaN if unknown."""
    newly_wrong: Flags
    """True if the model is wrong on the test case, and was right before the edit."""


@dataclass(frozen=True)
class SensitivityRow:
    """Effect of one kind of edit: a row of a table."""

    name: str
    n: int
    sources: int
    change: Figure
    """Mean change of the true class's probability, -1 to 1. Below 0, the edit hurts."""
    newly_wrong: float | None
    """Share of newly wrong test cases, with the weights used for `change`. None with too few test cases."""
    newly_wrong_cases: int
    """Number of newly wrong test cases. It is counted even with too few test cases for a share."""
    p_value: float | None
    p_adjusted: float | None
    """P-value adjusted by Holm's method for all rows of the table; None without a p-value."""

    @property
    def hurts(self) -> bool:
        """True if the edit lowers the probability significantly, corrected for all tests of the table."""
        low_enough = self.p_adjusted is not None and self.p_adjusted < 0.05
        return low_enough and self.change.value is not None and self.change.value < 0


def sensitivity(
    changes: Changes, case: Numbers, group: Numbers, names: Sequence[str], weighing: Weighing = "source"
) -> tuple[SensitivityRow, ...]:
    """Return a row for each edit that a test case has, the most harmful edit first. For each i, the test case `case[i]`
    has the edit `names[group[i]]`. Repeated pairs count once. Test cases with unknown values are left out. Rows with
    too few test cases come last, sorted by their number of newly wrong test cases, the largest number first.
    """
    known = np.isfinite(changes.after) & np.isfinite(changes.before)
    inside = known[case]
    pairs = np.sort(case[inside] * max(1, len(names)) + group[inside])
    if not len(pairs):
        return ()
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # numpy's own `unique` takes several times as long
    case, group = np.divmod(pairs, len(names))
    present, group = np.unique(group, return_inverse=True)
    sources = int(changes.source.max()) + 1
    cell, place, count = np.unique(group * sources + changes.source[case], return_inverse=True, return_counts=True)
    total = np.bincount(place, weights=changes.after[case] - changes.before[case])
    n = np.bincount(group, minlength=len(present))
    weights = count.astype(np.float64) if weighing == "case" else np.ones(len(count))
    figures, p_values = means_of_groups(total / count, weights, cell // sources, len(present), n, lowest=-1.0)
    wrong_cases = np.bincount(group, weights=changes.newly_wrong[case]).astype(np.int64)
    newly = np.bincount(place, weights=changes.newly_wrong[case]) / count
    wrong = np.bincount(cell // sources, weights=weights * newly) / np.bincount(cell // sources, weights=weights)
    p_values[n < FEWEST_CASES] = np.nan
    rows, columns = list[SensitivityRow](), (present, wrong, wrong_cases, p_values, adjusted(p_values))
    for figure, at, share, number, *tests in zip(figures, *(column.tolist() for column in columns), strict=True):
        few, of = figure.n < FEWEST_CASES, (names[at], figure.n, figure.sources)
        if few:
            figure = Figure(None, n=figure.n, sources=figure.sources, why=f"fewer than {FEWEST_CASES} test cases")
        p_value, p_adjusted = (None if np.isnan(p) else p for p in tests)
        rows.append(SensitivityRow(*of, figure, None if few else share, number, p_value, p_adjusted))
    return tuple(sorted(rows, key=_place))


def _place(row: SensitivityRow) -> tuple[float | str, ...]:
    if row.change.value is not None:
        return False, row.change.value, row.name
    return True, -row.newly_wrong_cases, row.n, row.name
