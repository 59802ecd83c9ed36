"""Group the edits of each class by their meaning, and measure how each group changes the true class's probability.
LANCE (Prabhu et al. 2023, section 3.3) takes five groups per class by K-means. Here HDBSCAN finds the number of groups,
and a permutation test shows whether an effect may be chance. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from core.figures import Figure, Floats, Numbers
from evaluation.by_source import FEWEST_SOURCES, adjusted, means_of_groups

SMALLEST, SMALLEST_SHARE = 5, 0.03
"""Minimum size of a group, as a number of test cases and as a share of the class's test cases. Both limits hold."""
PERMUTATIONS = 1_999
"""Number of random permutations in a test with fewer than five classes. With 5, 10, 15 or 20 classes there are 2, 3, 4
or 5 times as many permutations: more tests need smaller p-values."""


@dataclass(frozen=True)
class EditCluster:
    """A group of test cases of one class whose edits have the same meaning."""

    label: int
    cases: tuple[int, ...]
    """Indices of the test cases. Those with edits nearest to the group's mean come first."""
    change: Figure
    """Mean change of the true class's probability, -1 to 1. Sources weigh the same. Below 0 the edits hurt."""
    p_value: float | None
    """P-value under the hypothesis that the edit has no influence on the change; None with too few sources."""
    p_adjusted: float | None
    """P-value adjusted by Holm's method for all groups of all classes; None without a p-value."""


def edit_clusters(differences: Floats, change: Floats, source: Numbers, label: Numbers) -> tuple[EditCluster, ...]:
    """Group the test cases of each class by the meaning of their edits. Return all groups, the most harmful first.
    `differences`, (test cases, dimensions), are vectors of the new words minus vectors of the old words. Only their
    direction counts. A test case has no group if `change` is NaN, its difference is 0, or its edit is like no other.
    """
    length = np.linalg.norm(differences, axis=1)
    usable = np.isfinite(change) & (length > 1e-9)
    clusters, classes = list[EditCluster](), np.unique(label[usable]).tolist()
    exchanges = PERMUTATIONS * min(5, 1 + len(classes) // 5)
    for one in classes:
        cases = np.flatnonzero(usable & (label == one))
        directions = differences[cases] / length[cases, None]
        clusters += _of_class(one, cases, directions, change[cases], source[cases], exchanges)
    p_adjusted = adjusted(np.array([np.nan if each.p_value is None else each.p_value for each in clusters]))
    with_all = [
        replace(each, p_adjusted=None if np.isnan(p) else float(p))
        for each, p in zip(clusters, p_adjusted, strict=True)
    ]
    return tuple(sorted(with_all, key=lambda each: (each.change.value or 0.0, each.label, each.cases)))


def _of_class(
    label: int, cases: Numbers, directions: Floats, change: Floats, source: Numbers, exchanges: int
) -> Iterator[EditCluster]:
    from sklearn.cluster import HDBSCAN

    if len(cases) < 2 * SMALLEST:  # too few for two groups
        return
    least = max(SMALLEST, round(SMALLEST_SHARE * len(cases)))
    # Leaf clusters: otherwise all kinds of weather form one group, since they are nearer to each other than to others.
    finder = HDBSCAN(min_cluster_size=least, cluster_selection_method="leaf", copy=False)
    group = finder.fit_predict(directions.copy())
    groups = int(group.max()) + 1
    inside = np.flatnonzero(group >= 0)
    if not groups:
        return
    _, number = np.unique(source, return_inverse=True)
    sources = int(number.max()) + 1
    cell, place, count = np.unique(group[inside] * sources + number[inside], return_inverse=True, return_counts=True)
    of_cell = cell // sources
    means = np.bincount(place, weights=change[inside]) / count
    n = np.bincount(group[inside], minlength=groups)
    figures, _ = means_of_groups(means, np.ones(len(cell)), of_cell, groups, n, lowest=-1.0)
    weights = np.zeros((groups, len(cases)))
    weights[group[inside], inside] = 1 / (count * np.bincount(of_cell)[of_cell])[place]
    p_values = _permuted(weights, change, number, np.random.default_rng((0, label)), exchanges)
    for each, figure in enumerate(figures):
        members = np.flatnonzero(group == each)
        typical = members[np.argsort(-directions[members] @ directions[members].mean(axis=0), kind="stable")]
        p_value = float(p_values[each]) if figure.sources >= FEWEST_SOURCES else None
        yield EditCluster(label, tuple(cases[typical].tolist()), figure, p_value, None)


def _permuted(weights: Floats, change: Floats, source: Numbers, fate: np.random.Generator, exchanges: int) -> Floats:
    """Return a p-value for each group. `weights`, (groups, test cases), has a group's weights in each row. Changes are
    exchanged at random between test cases. The p-value is the share of exchanges after which the group's weighted mean
    change is at least as far from its expected value as the actual mean is.

    Test cases of one source are similar. So each exchange shuffles changes within sources, and swaps sources with
    equally many test cases (Winkler et al. 2015, NeuroImage 123). A group of all test cases of a class gets p = 1.
    """
    _, size = np.unique(source, return_counts=True)
    by_source = np.split(np.argsort(source, kind="stable"), np.cumsum(size)[:-1])
    blocks = [np.array([one for one in by_source if len(one) == each]) for each in np.unique(size)]
    expected = np.zeros(len(weights))
    for block in blocks:  # the mean over all exchanges: each test case of a block may get each change
        expected += weights[:, block.ravel()].sum(axis=1) * change[block].mean()
    away = np.abs(weights @ change - expected)
    further = np.ones(len(weights))
    exchanged = np.empty_like(change)
    for _ in range(exchanges):
        for block in blocks:
            exchanged[block] = fate.permuted(change[fate.permutation(block)], axis=1)
        further += np.abs(weights @ exchanged - expected) >= away - 1e-12
    return np.asarray(further / (exchanges + 1))
