"""Order in which to look at test cases, so that the first ones show as many different valid faults as possible. A fault
is a class, the predicted class, and the edit that causes it. Orders are judged by APFD, and by the number of faults
among the first few images. Pure.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from functools import cache

import numpy as np

from core.evaluation_results import BUDGETS, Order
from core.figures import Floats, Numbers

PRIOR = 4.0
"""Number of images as which the general estimate counts beside the images of one kind of edit on one class."""


def deep_gini(probabilities: Floats) -> Floats:
    """Return 1 minus the sum of squared probabilities (images, classes): uncertainty (Feng et al. 2020)."""
    return 1.0 - (probabilities**2).sum(axis=-1)


def entropy(probabilities: Floats) -> Floats:
    """Return the entropy of probabilities (images, classes), in nats."""
    safe = np.clip(probabilities, 1e-12, 1.0)
    return -(probabilities * np.log(safe)).sum(axis=-1)


def by_score(score: Floats) -> Numbers:
    """Return the order with the largest score first; images with equal scores keep their order."""
    return np.argsort(-score, kind="stable")


def by_new_faults(wrong: Floats, valid: Floats, cell: Sequence[Hashable]) -> Numbers:
    """Return the studio's order: by the chance that an image shows a valid fault that no image before it has shown.
    `wrong` and `valid` are the chances, 0 to 1, that the model is wrong on it and that people find it valid. Images of
    one `cell`, such as a class, an alternative and a predicted class, are likely to show the same fault.
    """
    chance = np.clip(wrong * valid, 0.0, 1.0)
    cells: dict[Hashable, list[int]] = {}
    for place in np.argsort(-chance, kind="stable"):
        cells.setdefault(cell[place], []).append(int(place))
    heap = [(-float(chance[own[0]]), number, 0, 1.0) for number, own in enumerate(cells.values())]
    members = list(cells.values())
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        _, number, at, unseen = heapq.heappop(heap)
        places = members[number]
        order.append(places[at])
        unseen *= 1.0 - float(chance[places[at]])
        if at + 1 < len(places):
            heapq.heappush(heap, (-unseen * float(chance[places[at + 1]]), number, at + 1, unseen))
    return np.array(order, dtype=np.int64)


def chance_wrong(known: Mapping[tuple[str, ...], tuple[int, int]], features: Sequence[tuple[str, ...]]) -> Floats:
    """Return the probability that the model is wrong on images that are not made yet, from the outcomes of others:
    `known` maps the features of past images to (number wrong, number of all). Features go from general to particular,
    such as (edit type, alternative, class). Each level's estimate weighs as `PRIOR` images in the next one (an
    empirical Bayes estimate level by level).
    """
    levels: dict[tuple[str, ...], tuple[int, int]] = {}
    for feature, (wrong, of) in known.items():
        for length in range(len(feature) + 1):
            before = levels.get(feature[:length], (0, 0))
            levels[feature[:length]] = (before[0] + wrong, before[1] + of)

    @cache
    def estimate(feature: tuple[str, ...]) -> float:
        wrong, of = levels.get(feature, (0, 0))
        general = estimate(feature[:-1]) if feature else 0.5
        return (wrong + PRIOR * general) / (of + PRIOR)

    return np.array([estimate(feature) for feature in features], dtype=np.float64)


def combined(one: Floats, other: Floats, share: float) -> Floats:
    """Combine two independent probabilities of an event that holds for a `share` of images, by their odds (Bayes)."""

    def odds(chance: Floats) -> Floats:
        safe = np.clip(chance, 1e-6, 1 - 1e-6)
        return safe / (1 - safe)

    both = odds(one) * odds(other) / odds(np.array(share))
    return both / (1 + both)


def judge(name: str, order: Numbers, fault: Sequence[Hashable | None], budgets: Sequence[float] = BUDGETS) -> Order:
    """Judge an order of all images. `fault` is the valid fault that each image shows, or None."""
    seen: dict[Hashable, int] = {}
    for rank, place in enumerate(order, 1):
        cell = fault[place]
        if cell is not None:
            seen.setdefault(cell, rank)
    n, k = len(order), len(seen)
    apfd = None
    if k:
        best = _apfd(range(1, k + 1), n)
        apfd = _apfd(list(seen.values()), n) / best
    images = {budget: max(1, round(budget * n)) if n else 0 for budget in budgets}
    ranks = tuple(sorted(seen.values()))
    faults = {budget: bisect_right(ranks, number) for budget, number in images.items()}
    return Order(name, apfd, faults, k, images, ranks)


def _apfd(ranks: Sequence[int] | range, n: int) -> float:
    return 1.0 - sum(ranks) / (len(ranks) * n) + 1.0 / (2 * n)
