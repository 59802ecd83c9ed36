"""Predict how likely people are to find an image valid, from the results of the image's checks. This score is learnt
from votes, and tested on other votes. Also measure how well a single check agrees with votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.figures import Figure, Flags, Floats, Numbers
from core.types import TaskKind
from core.validity_score import FEWEST, Agreement, ValidityScore
from evaluation.by_source import CONFIDENCE, MeansOfSources, shares_of_sources

FOLDS = 5
BINS = 10
FEWEST_SOURCES = 10
"""Minimum number of sources with valid images, and with invalid images, to give an interval."""


def learn(names: Sequence[str], checks: Floats, valid: Flags, task: TaskKind | None = None) -> ValidityScore:
    """Fit a score. `checks` is (images, checks). Raises ValueError if valid or invalid images are below `FEWEST`."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    if min(int(valid.sum()), int((~valid).sum())) < FEWEST:
        raise ValueError(f"a score is learnt from at least {FEWEST} valid images and {FEWEST} that are not")
    filler, scaler = SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    columns = np.concatenate([scaler.fit_transform(filler.fit_transform(checks)), np.isnan(checks)], axis=1)
    fitted = LogisticRegression(max_iter=1000).fit(columns, valid)
    learnt = (filler.statistics_, scaler.mean_, scaler.scale_, fitted.coef_[0])
    middle, mean, spread, weights = (tuple(one.tolist()) for one in learnt)
    return ValidityScore(tuple(names), middle, mean, spread, weights, float(fitted.intercept_[0]), task)


def cross_fitted(names: Sequence[str], checks: Floats, valid: Flags, source: Numbers) -> Floats:
    """Score each image by a fit to votes on other sources. Raises ValueError for too few images (see `learn`)."""
    from sklearn.model_selection import StratifiedGroupKFold

    scores = np.full(len(valid), np.nan)
    parts = StratifiedGroupKFold(min(FOLDS, len(np.unique(source))), shuffle=True, random_state=0)
    for others, own in parts.split(checks, valid, source):
        scores[own] = learn(names, checks[others], valid[others])(checks[own])
    return scores


def agreement(score: Floats, valid: Flags, source: Numbers, threshold: float = 0.5) -> Agreement:
    """Return how well a score agrees with votes. A score of at least `threshold` predicts "valid"."""
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
        _auc(score, valid, source),
        bins,
        threshold,
        hits / int(chosen.sum()) if chosen.any() else None,
        hits / int(valid.sum()) if valid.any() else None,
    )


def _auc(score: Floats, valid: Flags, source: Numbers) -> Figure:
    """Return the area under the ROC curve, with an interval over sources. A jackknife of the area's log odds leaves out
    each source in turn (Miller 1974, Biometrika 61). With one image per source, this is the method of DeLong et al.
    1988 (Hanley and Hajian-Tilaki 1997). Student's t has m - 1 degrees of freedom. m is the smaller of two numbers:
    sources with a valid image, and sources with an invalid image. `experiments.coverage.of_score` tests the interval.
    """
    from scipy import special, stats

    _, number = np.unique(source, return_inverse=True)
    sources, n = (int(number.max()) + 1 if len(number) else 0), len(valid)
    if valid.all() or not valid.any():
        return Figure(None, n=n, sources=sources, why="all images are alike to people")
    ones, others = np.sort(score[valid]), np.sort(score[~valid])
    # For each image, the number of images of the other kind that the score ranks on the right side of it.
    won = np.where(valid, _below(score, others), len(ones) - _below(score, ones))
    whole = float(won[valid].sum())
    area = whole / (len(ones) * len(others))
    kinds = [np.bincount(number[kind], minlength=sources) for kind in (valid, ~valid)]
    fewest = min(np.count_nonzero(kind) for kind in kinds)
    if fewest < FEWEST_SOURCES:
        why = f"too few to say: an interval takes {FEWEST_SOURCES} sources of valid images and of others"
        return Figure(area, n=n, sources=sources, why=why)
    twice = np.zeros(sources)  # pairs within a source
    for one in np.flatnonzero(kinds[0] * kinds[1]).tolist():
        own = number == one
        twice[one] = _below(score[own & valid], np.sort(score[own & ~valid])).sum()
    without = whole - np.bincount(number, weights=won, minlength=sources) + twice
    odds = special.logit(without / ((len(ones) - kinds[0]) * (len(others) - kinds[1])))
    if not np.isfinite(odds).all() or area in (0.0, 1.0):
        why = "too few to say: images of one source alone have a score on the wrong side"
        return Figure(area, n=n, sources=sources, why=why)
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, fewest - 1) * np.sqrt((sources - 1) * odds.var())
    low, high = special.expit(special.logit(area) + np.array([-reach, reach]))
    return Figure(area, float(low), float(high), n, sources)


def _below(score: Floats, ordered: Floats) -> Floats:
    """Return for each score how many of the `ordered` scores are smaller. Equal ones count half."""
    return (np.searchsorted(ordered, score, "left") + np.searchsorted(ordered, score, "right")) / 2


@dataclass(frozen=True)
class CheckAgreement:
    """Agreement of a check with people's votes. Images that the check cannot decide are only counted."""

    precision: Figure
    """Share of images that people find invalid, among the images that fail the check. The interval is over sources."""
    recall: Figure
    """Share of images that fail the check, among the images that people find invalid. The interval is over sources."""
    judged: int
    """Number of judged images that passed or failed the check."""
    cannot_tell: int
    """Number of judged images that the check could not decide."""


def check_agreement(
    failed: Flags, passed: Flags, valid: Flags, source: Numbers, cannot_tell: int = 0
) -> CheckAgreement:
    """Compare a check with votes, one flag per judged image. Images that neither failed nor passed are ignored."""
    known = failed | passed
    return CheckAgreement(
        _share(~valid, failed, source), _share(failed, known & ~valid, source), int(known.sum()), cannot_tell
    )


def _share(counted: Flags, among: Flags, source: Numbers) -> Figure:
    """Return the share of `counted` images among those in `among`. Images weigh the same; sources are resampled."""
    means = MeansOfSources(*shares_of_sources([counted[among]], source[among]))
    return means.figure(lambda of: of[..., 0], int(among.sum()))
