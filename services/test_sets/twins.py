"""Twins among the pictures of a workspace: what `core.twins` finds of stored images, by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from core.progress import OnCount
from core.twins import SHAPE, Looks, twins_among, twins_between
from storage.workspace import Workspace

MOST_TWINS = 20_000
"""Pictures among which twins are looked for: it takes the square of their number. Beyond, hashes alone are compared."""
Twins = tuple[tuple[str, str], ...]


def looks_of(workspace: Workspace, images: Sequence[str], on_count: OnCount | None = None) -> Looks:
    """The looks of stored images, in their order. Raises UserError for one whose file is missing or damaged."""
    found = np.empty((len(images), *SHAPE), np.uint8)
    for place, sha in enumerate(images):
        found[place] = workspace.thumbnails.look(sha)
        if on_count is not None:
            on_count(place + 1, len(images))
    return found


def twins_of(workspace: Workspace, images: Iterable[str], on_count: OnCount | None = None) -> Twins:
    """The pairs of twins among images; none where there are more than `MOST_TWINS`. Raises UserError as `looks_of`."""
    wanted = sorted(set(images))  # the order decides nothing
    if len(wanted) > MOST_TWINS:
        return ()
    pairs = twins_among(looks_of(workspace, wanted, on_count), on_count)
    return tuple((wanted[one], wanted[other]) for one, other in pairs.tolist())


def twins_in(workspace: Workspace, images: Sequence[str], others: Sequence[str]) -> frozenset[str]:
    """Those of the images that have a twin among the others; none where there are more than `MOST_TWINS`."""
    if max(len(images), len(others)) > MOST_TWINS:
        return frozenset()
    pairs = twins_between(looks_of(workspace, images), looks_of(workspace, others))
    return frozenset(images[place] for place in np.unique(pairs[:, 0]).tolist())
