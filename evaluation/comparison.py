"""Two models under test on the same test cases: which of them is wrong more often, and how sure that is. Pure.

Each source weighs the same and shares that weight among its test cases, or each test case weighs the same. Both models
answer for the same images, so their difference is taken source by source: what makes a source hard for both falls out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import PairedDifference, Weighing
from core.figures import Figure
from evaluation.by_source import MeansOfSources
from evaluation.effectiveness import UNKNOWN, WRONG
from evaluation.report import TEMPLATES


def paired_difference(
    source: NDArray[np.int64],
    first: NDArray[np.int8],
    second: NDArray[np.int8],
    weighing: Weighing = "source",
) -> PairedDifference:
    """Compare two models on test cases: the source of each, and `RIGHT`, `WRONG` or `UNKNOWN` of either model.

    Only test cases count that can be compared with both. `weighing` says what weighs the same.
    """
    known = (first != UNKNOWN) & (second != UNKNOWN)
    wrong = np.stack([first[known] == WRONG, second[known] == WRONG]).astype(np.float64)
    _, place = np.unique(source[known], return_inverse=True)
    cases = np.bincount(place).astype(np.float64)
    shares = np.stack([np.bincount(place, weights=own) / cases for own in wrong], axis=1)
    means = MeansOfSources(shares, cases if weighing == "case" else None)
    n = int(known.sum())
    return PairedDifference(
        weighing=weighing,
        first=means.figure(lambda of: of[..., 0], n),
        second=means.figure(lambda of: of[..., 1], n),
        difference=means.figure(lambda of: of[..., 1] - of[..., 0], n),
        only_first=int((wrong[0] > wrong[1]).sum()),
        only_second=int((wrong[1] > wrong[0]).sum()),
        sources=len(cases),
        cases=n,
        left_out=len(source) - n,
    )


def comparison_answer(names: tuple[str, str], found: PairedDifference, wrong: str = "is wrong") -> str:
    """Which model is better, or why that cannot be told, in a few sentences; `wrong` says what an error of both is."""
    gap = found.difference
    turned = None
    if gap.value is not None and gap.low is not None and gap.high is not None:
        turned = Figure(-gap.value, -gap.high, -gap.low, gap.n, gap.sources)
    return TEMPLATES.paragraph(
        "comparison.txt", first=names[0], second=names[1], found=found, wrong=wrong, turned=turned
    )
