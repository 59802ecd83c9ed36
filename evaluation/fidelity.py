"""Measure how far generated images as a set are from original images: KID with an interval, and FID. Also measure the
perplexity of changed captions relative to original captions. Compare figures only if the feature extractor and the
number of images are the same. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.figures import Figure, Floats, Numbers
from evaluation.by_source import CONFIDENCE, FEWEST_SOURCES

BLOCKS = 8
"""Number of blocks into which sources are divided. The interval comes from the spread of the blocks' distances."""
FEWEST_OF_BLOCK = 10
"""Minimum number of sources of a block. With fewer than `BLOCKS` times this number, there is no figure."""


@dataclass(frozen=True)
class Fidelity:
    """Distances between a set of original and a set of generated images."""

    extractor: str
    kid: Figure
    """Kernel distance (KID): 0 if both sets have the same distribution. Chance may make it slightly negative."""
    fid: Figure
    """Fréchet distance (FID), at least 0, higher with fewer images. Without interval; `n` is the size of each set."""


def kid(originals: Floats, generated: Floats, original_source: Numbers, generated_source: Numbers) -> Figure:
    """Return the kernel distance (KID) of two sets of unit vectors, (images, dimensions): the squared maximum mean
    discrepancy with the kernel (x y + 1)³ (Bińkowski et al., Demystifying MMD GANs, ICLR 2018). The authors divide x y
    by the number of dimensions. Unit vectors need no such division, since their x y is at most 1.

    Images of one source are similar. So only images of different sources are compared, which keeps the estimate
    unbiased. The sources are divided into blocks. The figure is the mean of the blocks' distances, with a t interval.
    This interval also holds if both sets have the same distribution (Zaremba, Gretton, Blaschko: B-test, NeurIPS 2013).
    """
    shared = np.intersect1d(original_source, generated_source)
    n = int(np.isin(generated_source, shared).sum())
    if len(shared) < BLOCKS * FEWEST_OF_BLOCK:
        why = f"too few to say: {len(shared)} sources with both, of at least {BLOCKS * FEWEST_OF_BLOCK}"
        return Figure(None, n=n, sources=len(shared), why=why)
    from scipy import stats

    distances = []
    for block in np.array_split(np.random.default_rng(0).permutation(shared), BLOCKS):
        before, after = np.isin(original_source, block), np.isin(generated_source, block)
        one, other = (originals[before], original_source[before]), (generated[after], generated_source[after])
        distances.append(_alike(*one, *one) + _alike(*other, *other) - 2 * _alike(*one, *other))
    value = float(np.mean(distances))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, BLOCKS - 1) * np.std(distances, ddof=1) / np.sqrt(BLOCKS))
    return Figure(value, value - half, value + half, n, len(shared))


def fid(originals: Floats, generated: Floats) -> Figure:
    """Return the Fréchet distance (FID; Heusel et al., NeurIPS 2017): |m - m'|² + tr(S + S' - 2 (S S')^½), for means m
    and covariances S. Both sets contribute equally many images, drawn at random with a fixed seed.
    """
    from scipy import linalg

    n, dimensions = min(len(originals), len(generated)), originals.shape[1]
    if n <= dimensions:
        return Figure(None, n=n, why=f"too few to say: {n} images in one set, but {dimensions} dimensions of a vector")
    fate = np.random.default_rng(0)
    one, other = (each[fate.permutation(len(each))[:n]].astype(np.float64) for each in (originals, generated))
    spread, other_spread = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    values, axes = linalg.eigh(spread)
    root = (axes * np.sqrt(np.maximum(values, 0))) @ axes.T
    both = np.sqrt(np.maximum(linalg.eigvalsh(root @ other_spread @ root), 0)).sum()
    means = float(((one.mean(axis=0) - other.mean(axis=0)) ** 2).sum())
    value = max(0.0, means + float(np.trace(spread) + np.trace(other_spread) - 2 * both))
    return Figure(value, n=n, why="no interval: its bias depends on the number of images")


def perplexity_ratio(before: Floats, after: Floats) -> Figure:
    """Return the factor by which edits raise the perplexity of captions: the geometric mean over sources, with a t
    interval. `before` and `after` are mean negative log-likelihoods, one of each per source.
    """
    n = len(before)
    if n < FEWEST_SOURCES:
        return Figure(None, n=n, sources=n, why="too few pairs of captions")
    from scipy import stats

    mean = float((after - before).mean())
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(after - before, ddof=1) / np.sqrt(n))
    return Figure(float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)), n, n)


def _alike(one: Floats, source: Numbers, other: Floats, other_source: Numbers) -> float:
    """Return the mean of the kernel over all pairs of vectors whose sources differ."""
    apart = source[:, None] != other_source[None, :]
    return float(((one.astype(np.float64) @ other.astype(np.float64).T + 1) ** 3)[apart].mean())
