"""Shares and means with intervals: Wilson intervals, a bootstrap over images, and bounds for discarded images."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

from core.figures import Bounds, Mean, Proportion, percent
from core.words import count_of

CONFIDENCE = 0.95
SAMPLES = 4000
"""Number of samples that a bootstrap interval draws."""


def wilson(count: int, n: int, nothing: str = "nothing was counted yet") -> Proportion:
    """Return count / n with its Wilson score interval (`wilson_ends`).

    The n things must be independent, so count images instead of votes on them. If n is 0, the figure is undefined and
    `nothing` is the reason. Raises ValueError unless 0 <= count <= n.
    """
    if not 0 <= count <= n:
        raise ValueError(f"A share needs a count between 0 and n: {count} of {n}.")
    if n == 0:
        return Proportion(0, 0, None, None, None, f"undefined: {nothing}")
    value = count / n
    low, high = wilson_ends(value, n)
    words = (
        f"{percent(value)} ({count} of {n}; {100 * CONFIDENCE:.4g} % Wilson interval {_ends(low, high)} %)"
        if n > 1
        else f"{count} of 1: one image says next to nothing"
    )
    return Proportion(count, n, value, low, high, words)


def wilson_ends(share: float, n: float) -> tuple[float, float]:
    """Return the ends of the Wilson score interval for a share of n things. n may have a fraction.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n), z the normal quantile of the confidence (Wilson 1927, Journal of
    the American Statistical Association 22; `scipy.stats.binomtest(...).proportion_ci(method="wilson")`).
    """
    # Computed here, as a page may show thousands, and `binomtest` takes 0.4 ms because it also runs a test.
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    scale = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2) / scale
    return 0.0 if share == 0 else max(0.0, middle - half), 1.0 if share == 1 else min(1.0, middle + half)


def bootstrap(images: Sequence[tuple[int, int]], seed: int = 0) -> Proportion:
    """Return a share of votes with a bootstrap percentile interval. `images` are pairs: good votes, all votes.

    value = Σ good / Σ all. The votes on one image are not independent, so whole images are drawn. Each of the `SAMPLES`
    samples has as many images as `images`, drawn with replacement. The interval ends are quantiles of the samples'
    shares (Efron 1979, Annals of Statistics 7; clusters: Davison and Hinkley 1997, section 3.8). Images without a vote
    are left out. Without any vote the share is undefined. If all images have the same share there is no interval.
    `words` says so.
    """
    seen = [(good, votes) for good, votes in images if votes > 0]
    if any(not 0 <= good <= votes for good, votes in seen):
        raise ValueError("An image cannot have more votes for it than votes.")
    count, n = sum(good for good, _ in seen), sum(votes for _, votes in seen)
    if not seen:
        return Proportion(0, 0, None, None, None, "undefined: no vote counts yet")
    value = count / n
    sentence = f"{percent(value)} of {n} votes on {count_of(len(seen), 'image')}"
    if len({good / votes for good, votes in seen}) == 1:
        why = "because all images have the same share"
        return Proportion(count, n, value, None, None, f"{sentence}; no interval, {why}")
    low, high = _percentiles(seen, seed, lambda totals: totals[:, 0] / totals[:, 1])
    words = f"{sentence} ({100 * CONFIDENCE:.4g} % bootstrap interval over images {_ends(low, high)} %)"
    return Proportion(count, n, value, low, high, words)


def bootstrap_mean(values: Sequence[float], seed: int = 0) -> Mean:
    """Return the mean of one value per image (such as its mean rating), with a bootstrap percentile interval.

    As in `bootstrap`, images are drawn with replacement (Efron 1979). Without an image the mean is undefined. With one
    image, or if all values are equal, there is no interval.
    """
    n = len(values)
    if n == 0:
        return Mean(None, None, None, 0, "undefined: no vote counts yet")
    value = sum(values) / n
    if len(set(values)) == 1:
        why = "because there is one image only" if n == 1 else "because all images have the same mean"
        return Mean(value, None, None, n, f"{value:.2f} on {count_of(n, 'image')}; no interval, {why}")
    low, high = _percentiles(values, seed, lambda totals: totals / n)
    words = f"{value:.2f} on {n} images ({100 * CONFIDENCE:.4g} % bootstrap interval {low:.2f} to {high:.2f})"
    return Mean(value, low, high, n, words)


def _percentiles(images: Sequence[Any], seed: int, statistic: Callable[[Any], Any]) -> tuple[float, float]:
    """Return the bootstrap percentile interval of a statistic. `statistic` is called with the sums over each sample."""
    import numpy as np

    kinds = Counter(images)  # draw equal images together, which is faster
    shares = np.array(list(kinds.values())) / len(images)
    drawn = np.random.default_rng(abs(seed)).multinomial(len(images), shares, size=SAMPLES)
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(statistic(drawn @ np.array(list(kinds), dtype=float)), ends)
    return float(low), float(high)


def bounds(valid: int, decided: int, missing: int) -> Bounds:
    """Return the share of valid images if none of the `missing` were valid, and if all of them were."""
    if not 0 <= valid <= decided or missing < 0:
        raise ValueError(f"Bounds need valid <= decided and nothing below 0: {valid}, {decided}, {missing}.")
    n = decided + missing
    if n == 0:
        return Bounds(None, None, 0, "undefined: nothing was counted yet")
    worst, best = valid / n, (valid + missing) / n
    if not missing:
        return Bounds(worst, best, 0, "no image was discarded, so there is nothing to bound")
    all_of_them = {1: "the discarded image was", 2: "both discarded images were"}
    were = all_of_them.get(missing, f"all {missing} discarded images were")
    return Bounds(worst, best, missing, f"{percent(worst)} if {were} invalid, {percent(best)} if {were} valid")


def _ends(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"
