"""Finds the near-duplicates of one image, and groups of near-duplicates among the images of a filter.

Two images are near-duplicates if both their vectors and their perceptual hashes are close. One of the two is not
enough: images of one source have the same geometry and so close hashes, and two streets at dusk may have close vectors.
The limits are stricter for images of one source, since two test cases may differ only by a small change.

Measured with the embedded CLIP on 2,000 different scenes of the drawn world (limits `BETWEEN`): of 999,000 pairs of
scenes, none is judged a near-duplicate; by vectors alone, 12 pairs would be. Of 600 copies, all are found. They were
saved as JPEG of quality 60 or 85, made 10 % brighter, scaled to three quarters and back, cropped by 4 of 256 pixels, or
given noise of 4 levels. Of stronger changes to 200 scenes, these shares are found: mirrored 98 %; JPEG of quality 30:
94 %; shifted by 3 %: 82 %; with a word written across: 68 %; cropped by 5 % at each edge: 62 %; cropped by 10 %: 5 %.
Of pairs of different scenes with the same objects in the same light, 3 % are judged near-duplicates.

Between images of one source (limits `WITHIN`), these shares are judged near-duplicates: other weather 0.1 %, other time
of day none, an object in another colour 2.4 %, other ground 6.5 % (little ground is visible). All copies saved as JPEG
or scaled are found, 99 % of those with noise, 95 % of the brighter ones, and 54 % of the cropped ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from core.csv_tables import facts
from core.errors import UserError
from core.image_filter import ImageFilter
from core.perceptual_hashes import mirrored
from core.test_sets import ImageHashes
from pipeline.models.nearest import close_pairs, nearest
from services.commands import does
from services.curation.meaning import Meaning
from services.edit_conflicts import Id
from services.queries import ImageQuery, Plain, entry_facts
from services.test_sets.hashes import hashes_of
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits
from storage.workspace import Workspace

log = logging.getLogger(__name__)


WITHIN, BETWEEN = (0.98, 3), (0.97, 10)
"""Limits for near-duplicates: `WITHIN` for two images of one source, `BETWEEN` for any other two. The cosine of their
vectors must be above the first number, and their perceptual hashes may differ in at most the second number of bits.
"""
MOST_OF_ONE = 200
"""Maximum number of images compared with one image by their hashes: those with the most similar vectors."""
MOST_COMPARED = 20_000
"""Maximum number of images among which groups are searched, since each image is compared with all others."""
MOST_PAIRS = 100_000


@dataclass(frozen=True)
class Alike:
    """A near-duplicate of an image."""

    entry: int
    similarity: float
    """Cosine of the vectors of the two images."""
    distance: int
    """Number of differing bits of the perceptual hashes. If the sources differ, mirror images count as alike."""
    same_source: bool


@dataclass(frozen=True)
class AlikeGroups:
    """Groups of near-duplicates, the largest first. Each image is a near-duplicate of another image of its group."""

    groups: tuple[tuple[int, ...], ...]
    compared: int
    """Number of images that were compared with each other."""
    waiting: int
    """Number of images without a vector, plus similar ones without a hash. Both are computed later."""
    complete: bool
    """True if all pairs with close vectors were checked, False if there are more than `MOST_PAIRS`."""
    unreadable: int = 0
    """Number of similar images that were left out, since their files are missing or damaged."""


class NearDuplicates:
    """Finds near-duplicates. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, meaning: Meaning) -> None:
        self._workspace, self._meaning = workspace, meaning

    @does("near-duplicates", looks=True)
    def list_of(self, entry: Annotated[Id, Field(ge=1, description="The entry of the catalogue")]) -> Plain:
        """List the near-duplicates of a test case, including equal images, the most similar first."""
        near = self.of(entry)
        listed = self._workspace.catalogue.listed([one.entry for one in near])
        rows = [
            entry_facts(entry) | facts(one, "distance same_source", similarity=round(one.similarity, 4))
            for entry, one in zip(listed, near, strict=True)
        ]
        return {"test_cases": rows}

    @does("near-duplicate-groups", ImageQuery)
    def list_groups(self, filter: ImageFilter) -> Plain:
        """Find groups of near-duplicates among the test cases (at most 20,000) of a filter. Takes seconds."""
        return facts(self.groups(self._workspace.catalogue.bits(filter)), "groups compared waiting complete unreadable")

    def of(self, entry: int) -> tuple[Alike, ...]:
        """Return the near-duplicates of an entry, the most similar first. Raises UserError for an unknown entry."""
        vector, table = self._meaning.vector_of(entry), self._meaning.table()
        inside = entry_sets.has(self._workspace.catalogue.bits(), table.entries) & (table.entries != entry)
        rows, cosines = nearest(table.rows, vector, MOST_OF_ONE, inside)
        near = dict(zip(table.entries[rows].tolist(), cosines.tolist(), strict=True))
        pairs = [(entry, other, cosine) for other, cosine in near.items() if cosine > BETWEEN[0]]
        images = self._workspace.vectors.images_of({other for pair in pairs for other in pair[:2]})
        hashes = self._hashes_now(set(images.values()))
        return tuple(alike for _, alike in self._judged(pairs, images, hashes))

    def groups(self, allowed: Bits) -> AlikeGroups:
        """Return the groups of near-duplicates among the `allowed` entries. Missing perceptual hashes are computed
        later in the background, so that no image file is opened now.

        Raises UserError for more than `MOST_COMPARED` images.
        """
        from scipy.cluster.hierarchy import DisjointSet

        table = self._meaning.table()
        rows = np.flatnonzero(entry_sets.has(allowed, table.entries))
        if len(rows) > MOST_COMPARED:
            raise UserError(
                f"The filter matches {len(rows):,} images, but at most {MOST_COMPARED:,} can be compared: "
                "narrow the filter."
            )
        entries = table.entries[rows].tolist()
        shas = self._workspace.vectors.images_of(entries)
        groups, first = DisjointSet(entries), dict[str, int]()
        for entry, sha in shas.items():
            groups.merge(entry, first.setdefault(sha, entry))
        distinct = rows[np.isin(table.entries[rows], list(first.values()))]
        pairs = close_pairs(np.asarray(table.rows[distinct], np.float32), BETWEEN[0], MOST_PAIRS)
        shown = table.entries[distinct].tolist()
        close = [(shown[one], shown[other], cosine) for one, other, cosine in pairs]
        images = {entry: shas[entry] for pair in close for entry in pair[:2]}
        hashes = self._workspace.test_sets.hashes(images.values())
        without = set(images.values()) - hashes.keys()
        unreadable = self._meaning.hash_later(without)
        for entry, alike in self._judged(close, images, hashes):
            groups.merge(alike.entry, entry)
        alike_groups = sorted(
            (tuple(sorted(group)) for group in groups.subsets() if len(group) > 1), key=lambda g: (-len(g), g)
        )
        waiting = entry_sets.size(allowed) - len(entries) + len(without) - unreadable
        return AlikeGroups(tuple(alike_groups), len(entries), waiting, len(pairs) < MOST_PAIRS, unreadable)

    def _hashes_now(self, images: set[str]) -> dict[str, ImageHashes]:
        hashes = self._workspace.test_sets.hashes(images)
        for sha in sorted(images - hashes.keys()):
            try:
                hashes |= hashes_of(self._workspace, [sha])
            except (UserError, OSError, ValueError):
                log.exception("the image %s cannot be compared", sha)
        return hashes

    def _judged(
        self, pairs: list[tuple[int, int, float]], images: Mapping[int, str], hashes: Mapping[str, ImageHashes]
    ) -> list[tuple[int, Alike]]:
        """Return (first entry, second as `Alike`) for each near-duplicate pair in `pairs` (first, second, cosine)."""
        sources = self._workspace.vectors.sources_of(images)
        judged = []
        for one, other, cosine in pairs:
            same = one in sources and sources[one] == sources.get(other)
            least, most = WITHIN if same else BETWEEN
            here, there = hashes.get(images[one]), hashes.get(images[other])
            if images[one] == images[other]:
                distance = 0
            elif here is not None and there is not None:
                hashes_here = [here.perceptual] if same else [here.perceptual, mirrored(here.perceptual)]
                distance = min((value ^ there.perceptual).bit_count() for value in hashes_here)
            else:
                continue
            if images[one] == images[other] or (cosine > least and distance <= most):
                judged.append((one, Alike(other, cosine, distance, same)))
        return judged
