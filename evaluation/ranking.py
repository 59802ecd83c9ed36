"""Sort test cases so that the first ones show as many different valid faults as possible. Two faults are the same if
true class, predicted class and edit are equal. Orders are measured by APFD (average percentage of faults detected), and
by the number of faults among the first images. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache

import numpy as np

from core.evaluation_results import BUDGETS, Order
from core.figures import Floats, Numbers

PRIOR = 4.0
"""Weight of a general estimate in a more particular estimate, as a number of images (see `chance_wrong`)."""


def deep_gini(probabilities: Floats) -> Floats:
    """Return the uncertainty of each image: 1 minus the sum of its squared class probabilities (Feng et al. 2020)."""
    return 1.0 - (probabilities**2).sum(axis=-1)


def entropy(probabilities: Floats) -> Floats:
    """Return the entropy of each image's class probabilities, in nats. `probabilities` are (images, classes)."""
    safe = np.clip(probabilities, 1e-12, 1.0)
    return -(probabilities * np.log(safe)).sum(axis=-1)


def by_score(score: Floats) -> Numbers:
    """Return the indices of images, the largest score first. Images with equal scores keep their order."""
    return np.argsort(-score, kind="stable")


def by_new_faults(wrong: Floats, valid: Floats, cell: Sequence[Hashable]) -> Numbers:
    """Return the studio's order of images. The next image is the one most likely to show a new valid fault. `wrong` and
    `valid` are the chances, 0 to 1, that the model is wrong on an image, and that people find it valid. Images of one
    `cell`, such as a class, an alternative and a predicted class, are likely to show the same fault.
    """
    chance = np.clip(wrong * valid, 0.0, 1.0).tolist()
    unseen: dict[Hashable, float] = {}
    numbers: dict[Hashable, int] = {}
    news = list[tuple[float, int, int]]()
    # Within a cell, an image after another one never has a larger chance to show something new.
    for place in by_score(np.array(chance)).tolist():
        before = unseen.get(cell[place], 1.0)
        news.append((-before * chance[place], numbers.setdefault(cell[place], len(numbers)), place))
        unseen[cell[place]] = before * (1.0 - chance[place])
    return np.array([place for *_, place in sorted(news, key=lambda new: new[:2])], dtype=np.int64)


def chance_wrong(known: Mapping[tuple[str, ...], tuple[int, int]], features: Sequence[tuple[str, ...]]) -> Floats:
    """Return the probability that the model will be wrong on images not made yet. `known` maps features of past images
    to (number wrong, number of all). Features are ordered from general to particular, such as (edit type, alternative,
    class). The estimate for all features but the last counts like `PRIOR` additional images (empirical Bayes).
    """
    number_wrong, number = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for feature, (wrong, of) in known.items():
        for length in range(len(feature) + 1):
            number_wrong[feature[:length]] += wrong
            number[feature[:length]] += of

    @cache
    def estimate(feature: tuple[str, ...]) -> float:
        general = estimate(feature[:-1]) if feature else 0.5
        return (number_wrong[feature] + PRIOR * general) / (number[feature] + PRIOR)

    return np.array([estimate(feature) for feature in features], dtype=np.float64)


def combined(one: Floats, other: Floats, share: float) -> Floats:
    """Combine two independent estimates of a probability by their odds (Bayes). `share` is the probability's mean."""

    def odds(chance: Floats) -> Floats:
        safe = np.clip(chance, 1e-6, 1 - 1e-6)
        return safe / (1 - safe)

    both = odds(one) * odds(other) / odds(np.array(share))
    return both / (1 + both)


def judge(name: str, order: Numbers, fault: Sequence[Hashable | None], budgets: Sequence[float] = BUDGETS) -> Order:
    """Measure how early an order of images shows faults. `fault` is a key of each image's valid fault, or None."""
    first = {fault[place]: rank for rank, place in reversed([*enumerate(order, 1)]) if fault[place] is not None}
    ranks, n, k = tuple(sorted(first.values())), len(order), len(first)
    apfd = _apfd(ranks, n) / _apfd(range(1, k + 1), n) if k else None
    images = {budget: max(1, round(budget * n)) if n else 0 for budget in budgets}
    faults = {budget: bisect_right(ranks, number) for budget, number in images.items()}
    return Order(name, apfd, faults, k, images, ranks)


def _apfd(ranks: Sequence[int] | range, n: int) -> float:
    return 1.0 - sum(ranks) / (len(ranks) * n) + 1.0 / (2 * n)
