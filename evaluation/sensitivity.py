"""Which edits hurt a model under test: the signed change of the probability of the true class, edit by edit (LANCE,
Prabhu et al. 2023, section 3.3, which takes its size alone). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import FEWEST_CASES, Weighing
from core.figures import Figure, Floats
from evaluation.by_source import adjusted, means_of_groups


@dataclass(frozen=True)
class Changes:
    """The probability of the true class on test cases, column by column; all columns have one length."""

    source: NDArray[np.int64]
    """The number of the source of each test case."""
    after: Floats
    """On the test case, 0 to 1; NaN where it is not known."""
    before: Floats
    """What it is compared with: on the reconstruction of its source, or on the source itself; NaN as above."""
    newly_wrong: NDArray[np.bool_]
    """Whether the model is wrong here alone."""


@dataclass(frozen=True)
class SensitivityRow:
    """One kind of edit."""

    name: str
    n: int
    """Test cases with this edit."""
    sources: int
    change: Figure
    """The mean change of the probability of the true class, -1 to 1: below 0 the edit hurts."""
    newly_wrong: float | None
    """The share of the test cases that are wrong here alone, weighed as the change; None where there are too few."""
    newly_wrong_cases: int
    """Number of test cases that are wrong here alone, also where there are too few for a share."""
    p_value: float | None
    p_adjusted: float | None
    """For all rows of the table, by Holm's way."""

    @property
    def hurts(self) -> bool:
        """Whether it lowers the probability, as sure as all of the table together can be."""
        low_enough = self.p_adjusted is not None and self.p_adjusted < 0.05
        return low_enough and self.change.value is not None and self.change.value < 0


def sensitivity(
    changes: Changes,
    case: NDArray[np.int64],
    group: NDArray[np.int64],
    names: Sequence[str],
    weighing: Weighing = "source",
) -> tuple[SensitivityRow, ...]:
    """A row for each name, what hurts most first. Rows of too few test cases come last, with most newly wrong ones
    first. `case` is the place of a test case, and `group` the number among `names` of an edit of it; a pair that is
    there twice counts once. What is not known of a test case leaves it out. `weighing` says what weighs the same in the
    mean of a row.
    """
    known = np.isfinite(changes.after) & np.isfinite(changes.before)
    inside = known[case]
    pairs = np.sort(case[inside] * max(1, len(names)) + group[inside])
    if not len(pairs):
        return ()
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # numpy's own `unique` takes several times as long
    case, group = np.divmod(pairs, len(names))
    there, group = np.unique(group, return_inverse=True)
    sources = int(changes.source.max()) + 1
    cell, place, count = np.unique(group * sources + changes.source[case], return_inverse=True, return_counts=True)
    total = np.bincount(place, weights=changes.after[case] - changes.before[case])
    n = np.bincount(group, minlength=len(there))
    weights = count.astype(np.float64) if weighing == "case" else np.ones(len(count))
    figures, p_values = means_of_groups(total / count, weights, cell // sources, len(there), n, lowest=-1.0)
    wrong_cases = np.bincount(group, weights=changes.newly_wrong[case]).astype(np.int64)
    newly = np.bincount(place, weights=changes.newly_wrong[case]) / count
    wrong = np.bincount(cell // sources, weights=weights * newly) / np.bincount(cell // sources, weights=weights)
    p_values[n < FEWEST_CASES] = np.nan
    rows = list[SensitivityRow]()
    few_cases = n < FEWEST_CASES
    for at, figure, few, *tests in zip(there.tolist(), figures, few_cases, p_values, adjusted(p_values), strict=True):
        share = None if few else float(wrong[len(rows)])
        if few:
            figure = Figure(None, n=figure.n, sources=figure.sources, why=f"fewer than {FEWEST_CASES} test cases")
        p_value, p_adjusted = (None if np.isnan(p) else float(p) for p in tests)
        number = int(wrong_cases[len(rows)])
        rows.append(SensitivityRow(names[at], figure.n, figure.sources, figure, share, number, p_value, p_adjusted))
    return tuple(sorted(rows, key=_place))


def _place(row: SensitivityRow) -> tuple[float | str, ...]:
    if row.change.value is not None:
        return False, row.change.value, row.name
    return True, -row.newly_wrong_cases, row.n, row.name
