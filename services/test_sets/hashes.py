"""Stored hashes of the workspace's pictures, and twins: pairs of a picture and an edited copy (`core.twins`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from core.images import image_sha
from core.perceptual_hashes import perceptual_hash
from core.progress import OnCount
from core.test_sets import ImageHashes, SetEntry
from core.twins import SHAPE, Looks, twins_among, twins_between
from storage.workspace import Workspace

_AT_ONCE = 200
"""Number of images whose hashes are saved together. An interruption loses at most this many."""
MOST_TWINS = 20_000
"""Maximum number of pictures to search for edited copies, as time grows quadratically. Larger sets are only hashed."""
Twins = tuple[tuple[str, str], ...]


def hashes_of(workspace: Workspace, images: Iterable[str], on_count: OnCount | None = None) -> dict[str, ImageHashes]:
    """Return the hashes of stored images, computed if missing. Raises UserError for a missing or damaged file."""
    shas = list(dict.fromkeys(images))
    hashes = workspace.test_sets.hashes(shas)
    new: dict[str, ImageHashes] = {}
    missing = [sha for sha in shas if sha not in hashes]
    for number, sha in enumerate(missing, start=1):
        new[sha] = hashes_in(workspace.images.load(sha))
        if len(new) == _AT_ONCE or number == len(missing):
            workspace.test_sets.keep_hashes(new)
            hashes |= new
            new = {}
        if on_count is not None:
            on_count(number, len(missing))
    return hashes


def hashes_in(picture: Image.Image) -> ImageHashes:
    return ImageHashes(image_sha(picture), perceptual_hash(picture))


def compared_of(workspace: Workspace, entries: Sequence[SetEntry]) -> tuple[str, ...]:
    """Return the pictures to compare for grouping: all sources, and each image whose source the workspace lacks."""
    here = images_here(workspace, (entry.source for entry in entries))
    known = frozenset(here)
    return tuple(dict.fromkeys([*here, *(entry.image for entry in entries if entry.source not in known)]))


def images_here(workspace: Workspace, images: Iterable[str]) -> tuple[str, ...]:
    """Return the images that the workspace has, in order. It may lack the source images of imported images."""
    shas = list(dict.fromkeys(images))
    here = workspace.images.sizes(shas)
    return tuple(sha for sha in shas if sha in here)


def looks_of(workspace: Workspace, images: Sequence[str], on_count: OnCount | None = None) -> Looks:
    """Return small copies of `images`, in which to find twins. Raises UserError for a missing or damaged file."""
    looks = np.empty((len(images), *SHAPE), np.uint8)
    for place, sha in enumerate(images):
        looks[place] = workspace.thumbnails.look(sha)
        if on_count is not None:
            on_count(place + 1, len(images))
    return looks


def twins_of(workspace: Workspace, images: Iterable[str], on_count: OnCount | None) -> Twins:
    """Return the pairs of twins among images; () for more than `MOST_TWINS`. Raises UserError for an unreadable one."""
    shas = sorted(set(images))  # sorted, so that the result does not depend on the caller's order
    if len(shas) > MOST_TWINS:
        return ()
    pairs = twins_among(looks_of(workspace, shas, on_count), on_count)
    return tuple((shas[one], shas[other]) for one, other in pairs.tolist())


def twins_in(workspace: Workspace, images: Sequence[str], others: Sequence[str]) -> frozenset[str]:
    """Return the images that have a twin in `others`; empty if there are more than `MOST_TWINS` of either."""
    if max(len(images), len(others)) > MOST_TWINS:
        return frozenset()
    pairs = twins_between(looks_of(workspace, images), looks_of(workspace, others))
    return frozenset(images[place] for place in np.unique(pairs[:, 0]).tolist())
