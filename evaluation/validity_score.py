"""How likely people find an image valid, foretold from its checks: learnt from votes, and held against votes that it
has not seen. Pure but for scikit-learn, which fits it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats, ratio
from core.validity_score import FEWEST, Agreement, ValidityScore

FOLDS = 5
BINS = 10
RESAMPLES = 2000


def learn(names: Sequence[str], checks: Floats, valid: NDArray[np.bool_]) -> ValidityScore:
    """Fit a score to votes; `checks` is (images, checks). Raises ValueError below `FEWEST` images of either kind."""
    from sklearn.linear_model import LogisticRegression

    if min(int(valid.sum()), int((~valid).sum())) < FEWEST:
        raise ValueError(f"a score is learnt from at least {FEWEST} valid images and {FEWEST} that are not")
    there = ~np.isnan(checks)
    some = there.any(axis=0)
    middle = np.zeros(checks.shape[1])
    middle[some] = np.nanmedian(checks[:, some], axis=0)
    filled = np.where(there, checks, middle)
    spread = filled.std(axis=0)
    mean, spread = filled.mean(axis=0), np.where(spread > 0, spread, 1.0)
    columns = np.concatenate([(filled - mean) / spread, ~there], axis=1)
    fitted = LogisticRegression(max_iter=1000).fit(columns, valid)
    numbers = [tuple(float(each) for each in one) for one in (middle, mean, spread, fitted.coef_[0])]
    return ValidityScore(tuple(names), numbers[0], numbers[1], numbers[2], numbers[3], float(fitted.intercept_[0]))


def cross_fitted(
    names: Sequence[str], checks: Floats, valid: NDArray[np.bool_], source: NDArray[np.int64], folds: int = FOLDS
) -> Floats:
    """Score each image by the votes on other sources. Raises ValueError as `learn`, also for too small a fold."""
    from sklearn.model_selection import StratifiedGroupKFold

    found = np.full(len(valid), np.nan)
    parts = StratifiedGroupKFold(min(folds, len(np.unique(source))), shuffle=True, random_state=0)
    for others, own in parts.split(checks, valid, source):
        found[own] = learn(names, checks[others], valid[others])(checks[own])
    return found


def agreement(
    score: Floats, valid: NDArray[np.bool_], source: NDArray[np.int64], threshold: float = 0.5, seed: int = 0
) -> Agreement:
    """How far a score agrees with votes."""
    chosen = score >= threshold
    hits = int((chosen & valid).sum())
    place = np.minimum((score * BINS).astype(int), BINS - 1)
    bins = tuple(
        (float(score[own].mean()), float(valid[own].mean()), int(own.sum()))
        for own in (place == number for number in range(BINS))
        if own.any()
    )
    return Agreement(
        len(valid),
        int(valid.sum()),
        _auc(score, valid, source, seed),
        bins,
        threshold,
        hits / int(chosen.sum()) if chosen.any() else None,
        hits / int(valid.sum()) if valid.any() else None,
    )


def _auc(score: Floats, valid: NDArray[np.bool_], source: NDArray[np.int64], seed: int) -> Figure:
    _, number = np.unique(source, return_inverse=True)
    sources, n = (int(number.max()) + 1 if len(number) else 0), len(valid)
    if valid.all() or not valid.any():
        return Figure(None, n=n, sources=sources, why="all images are alike to people")
    order = np.argsort(score, kind="stable")
    _, tied = np.unique(score[order], return_inverse=True)
    ones = valid[order].astype(np.float64)
    chance = np.random.default_rng(seed)
    times = chance.multinomial(sources, np.full(sources, 1 / sources), size=RESAMPLES)[:, number][:, order]
    figures = _area(times.astype(np.float64), ones, tied)
    figures = figures[np.isfinite(figures)]
    low, high = np.quantile(figures, [0.025, 0.975])
    value = float(_area(np.ones((1, n)), ones, tied)[0])
    return Figure(value, float(low), float(high), n, sources)


def _area(times: Floats, ones: Floats, tied: NDArray[np.int64]) -> Floats:
    """Area under the curve of images in rising order of score, by counts of each: (resamples,). Ties count half."""
    firsts = np.flatnonzero(np.diff(tied, prepend=-1))
    valid = np.add.reduceat(times * ones, firsts, axis=1)
    other = np.add.reduceat(times * (1 - ones), firsts, axis=1)
    below = np.cumsum(other, axis=1) - other
    area = (valid * (below + 0.5 * other)).sum(axis=1)
    pairs = valid.sum(axis=1) * other.sum(axis=1)
    return ratio(area, pairs)
