"""How well a check of images agrees with people's votes: precision and recall of its failures. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from core.figures import Figure, Flags, Numbers
from evaluation.by_source import MeansOfSources, shares_of_sources


@dataclass(frozen=True)
class CheckAgreement:
    """Agreement of a check with the votes on judged images. Images on which it cannot tell are only counted."""

    precision: Figure
    """Share of the images that fail the check which people find invalid, with an interval over sources."""
    recall: Figure
    """Share of the images that people find invalid which fail the check, with an interval over sources."""
    judged: int
    """Number of images with votes on which the check passed or failed."""
    cannot_tell: int
    """Number of images with votes on which the check cannot tell."""


def check_agreement(
    failed: Flags, passed: Flags, valid: Flags, source: Numbers, cannot_tell: int = 0
) -> CheckAgreement:
    """Compare a check with votes; all columns have an element for each judged image, `source` the number of its
    source. Images that neither failed nor passed are left out.
    """
    told = failed | passed
    return CheckAgreement(
        _share(~valid, failed, source), _share(failed, told & ~valid, source), int(told.sum()), cannot_tell
    )


def _share(counted: Flags, among: Flags, source: Numbers) -> Figure:
    """Return the share of `counted` images among others. Each image weighs the same, and sources are resampled."""
    means = MeansOfSources(*shares_of_sources([counted[among]], source[among]))
    return means.figure(lambda of: of[..., 0], int(among.sum()))
