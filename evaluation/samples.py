"""Samples of images for people to judge: sample sizes, and tests whether judged images are a random sample. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.figures import Figure, Flags, Numbers
from evaluation.by_source import CONFIDENCE

FEWEST_OF_STRATUM = 5
"""Minimum number of judged images to estimate a stratum's valid share separately. Others are pooled."""
PROPORTIONAL = 0.01
"""Minimum p-value for judged images to count as a random sample, in tests of how evenly they are spread."""


def in_proportion(images: Numbers, judged: Numbers) -> bool:
    """Return True if the judged images may be a random sample of all. The number of judged images in each part is
    compared with simulated samples, by Pearson's statistic and by the size of the parts without a judged image.
    """
    images, judged = images[images > 0], judged[images > 0]
    if len(images) == 1:
        return True
    drawn = np.random.default_rng(0).multivariate_hypergeometric(images, int(judged.sum()), 2000, "marginals")
    drawn = np.vstack([judged, drawn])
    expected = images * judged.sum() / images.sum()
    for far in (((drawn - expected) ** 2 / expected).sum(axis=1), (drawn == 0) @ images):
        if (far >= far[0] * (1 - 1e-9)).mean() < PROPORTIONAL / 2:
            return False
    return True


def all_of_a_part(part: Flags, judged: Flags) -> bool:
    """Return True if only images of this part were judged, which is very unlikely for a random sample."""
    from scipy import stats

    n, inside = int(judged.sum()), int(part.sum())
    if not n or not part[judged].all():
        return False
    return float(stats.hypergeom.pmf(n, len(part), inside, n)) < PROPORTIONAL


def expected_width(
    shares: Sequence[float], sizes: Sequence[int], valid: float = 0.8, error: Figure | None = None
) -> float:
    """Return the expected width, 0 to 1, of the interval of the share of images that are both valid and wrong. `shares`
    has each stratum's share of all images, `sizes` its number of images to judge. A stratum with no image to judge adds
    its whole share. `valid` is the assumed valid share. The interval of `error`, the error rate, adds to the width.
    """
    from scipy import stats

    pairs = list(zip(shares, sizes, strict=True))
    variance = sum(share**2 * valid * (1 - valid) / size for share, size in pairs if size)
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    if error is not None and error.low is not None and error.high is not None:
        variance += (valid * (error.high - error.low) / (2 * reach)) ** 2
    return float(2 * reach * variance**0.5) + sum(share for share, size in pairs if not size)


def sample_sizes(images: Sequence[int], judged: int, wrong: Sequence[bool] | None = None) -> tuple[int, ...]:
    """Return how many images of each stratum to judge, at most `judged` in all. Each gets `FEWEST_OF_STRATUM`, and the
    rest is divided in proportion to size. If `judged` is too small, `wrong` strata come first, the largest first.
    """
    important = wrong or [True] * len(images)
    sizes, left = [0] * len(images), judged
    for place in sorted(range(len(images)), key=lambda one: (not important[one], -images[one])):
        sizes[place] = min(images[place], FEWEST_OF_STRATUM, left)
        left -= sizes[place]
    while left > 0 and (open_ones := [place for place, number in enumerate(images) if sizes[place] < number]):
        total = sum(images[place] for place in open_ones)
        wished = {place: left * images[place] / total for place in open_ones}
        for place in sorted(open_ones, key=lambda one: -wished[one]):
            more = min(images[place] - sizes[place], max(1, int(wished[place])), left)
            sizes[place] += more
            left -= more
    return tuple(sizes)
