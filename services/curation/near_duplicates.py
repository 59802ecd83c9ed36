"""Finds the near-duplicates of one image, and groups of near-duplicates among the images of a filter.

Two images are near-duplicates if both their vectors and their perceptual hashes are close. One criterion alone is not
enough: all images of one source have close hashes, since their geometry is the same, and different streets at dusk may
have close vectors. The limits are stricter for two images of one source: two test cases may differ only a little.

Measured with the embedded CLIP on 2,000 different drawn scenes of the demo, with the limits `BETWEEN`:
- None of 999,000 pairs of different scenes is judged a near-duplicate. By vectors alone, 12 pairs would be.
- Of further pairs of scenes, with the same objects in the same light, 3 % are judged near-duplicates.
- All 600 slightly changed copies are found. The changes are: JPEG of quality 60 or 85, 10 % brighter, scaled to three
  quarters and back, cropped by 4 of 256 pixels, noise of 4 levels.
- Strongly changed copies are found less often: 98 % (mirrored), 94 % (JPEG of quality 30), 82 % (shifted by 3 %), 68 %
  (with a word written across), 62 % (cropped by 5 % at each edge), 5 % (cropped by 10 % at each edge).
Measured on images of one source, with the limits `WITHIN`:
- Images with an edit are rarely judged near-duplicates: 0 % (other time of day), 0.1 % (other weather), 2.4 % (an
  object in another colour), 6.5 % (other ground, of which little is visible).
- Copies are mostly found: 100 % (JPEG or scaled), 99 % (noise), 95 % (brighter), 54 % (cropped).
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
    """Number of images still to compare: those without a vector, and those with close vectors but without a hash."""
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
