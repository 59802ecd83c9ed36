"""Near-duplicates of one image, and groups of near-duplicates among the images of a filter.

Two images are near-duplicates if both their vectors and their perceptual hashes are close. Neither is enough alone:
hashes confuse images of one source, whose geometry is the same, and vectors confuse two streets at dusk. Images of one
source are compared more strictly: a small change may be all that makes a test case.

Measured with the embedded CLIP on 2,000 different scenes of the drawn world (`BETWEEN`): of 999,000 pairs, none is
taken for a near-duplicate, while vectors alone take 12 pairs. Of 600 copies (JPEG of quality 60 or 85, 10 % brighter,
scaled to three quarters and back, cut off by 4 of 256 pixels, with noise of 4 levels), all are found. Of other copies
of 200 scenes, these shares are found: mirrored 98 %; as JPEG of quality 30: 94 %; shifted by 3 %: 82 %; with a word
across: 68 %; cropped by 5 % at each edge: 62 %; cropped by 10 %: 5 %. Of pairs of scenes with the same things in the
same light, 3 % are taken. Between images of one source (`WITHIN`), these shares are taken: other weather 0.1 %, other
time of day none, one thing in another colour 2.4 %, other ground 6.5 % (little of it shows). Of the copies, all saved
as JPEG or scaled are found, 99 % of those with noise, 95 % of the brighter ones, 54 % of those cut off.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from core.csv_tables import facts
from core.errors import UserError
from core.image_filter import ImageFilter
from core.perceptual_hashes import Groups, mirrored
from core.test_sets import ImageHashes
from pipeline.models.nearest import close_pairs, nearest
from services.commands import does
from services.curation.meaning import Meaning
from services.edit_conflicts import LARGEST_ID
from services.queries import ImageQuery, Plain, entry_facts
from services.test_sets.hashes import hashes_of
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits
from storage.workspace import Workspace

log = logging.getLogger(__name__)


WITHIN, BETWEEN = (0.98, 3), (0.97, 10)
"""Limits for two images of one source, and for two others, to be near-duplicates: the cosine of their vectors is above
the first number, and their perceptual hashes differ in at most the second number of bits."""
MOST_OF_ONE = 200
"""Maximum near-duplicates of one image to check."""
MOST_COMPARED = 20_000
"""Maximum images to search for groups: each is compared with each."""
MOST_PAIRS = 100_000


@dataclass(frozen=True)
class Alike:
    """An image that looks like another one."""

    entry: int
    similarity: float
    """Cosine of their vectors."""
    distance: int
    """Number of differing bits of their perceptual hashes; for different sources, also against the mirror image."""
    same_source: bool


@dataclass(frozen=True)
class AlikeGroups:
    """Groups of entries that look alike, directly or through others: the largest first, each sorted."""

    groups: tuple[tuple[int, ...], ...]
    compared: int
    """Number of images compared."""
    waiting: int
    """Number of images without a vector, plus candidates without a hash. Both are computed in the background."""
    complete: bool
    """True if all pairs were checked; False if there are too many."""
    unreadable: int = 0
    """Number of candidates whose files are missing or damaged: left out."""


class NearDuplicates:
    """Finds near-duplicates. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, meaning: Meaning) -> None:
        self._workspace, self._meaning = workspace, meaning

    @does("near-duplicates", looks=True)
    def list_of(
        self, entry: Annotated[int, Field(ge=1, le=LARGEST_ID, description="The entry of the catalogue")]
    ) -> Plain:
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
        """Find groups of near-duplicates among the test cases of a filter: at most 20,000, in seconds."""
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
        """Return the groups among the `allowed` entries. Opens no file: missing hashes are computed in the background.

        Raises UserError for more than `MOST_COMPARED` images.
        """
        table = self._meaning.table()
        rows = np.flatnonzero(entry_sets.has(allowed, table.entries))
        if len(rows) > MOST_COMPARED:
            raise UserError(
                f"These are {len(rows):,} images, and at most {MOST_COMPARED:,} can be compared with each other: "
                "narrow the filter."
            )

        entries = table.entries[rows].tolist()
        groups = Groups[int]()
        by_image: dict[str, list[int]] = defaultdict(list)
        for entry, sha in self._workspace.vectors.images_of(entries).items():
            by_image[sha].append(entry)
        for equal in by_image.values():
            for entry in equal[1:]:
                groups.join(entry, equal[0])
        first = {equal[0] for equal in by_image.values()}
        is_first = np.array([entry in first for entry in entries], bool)
        wide = np.asarray(table.rows[rows[is_first]], np.float32)
        pairs = close_pairs(wide, BETWEEN[0], MOST_PAIRS)
        shown = table.entries[rows[is_first]].tolist()
        close = [(shown[one], shown[other], cosine) for one, other, cosine in pairs]
        images = self._workspace.vectors.images_of({entry for pair in close for entry in pair[:2]})
        hashes = self._workspace.test_sets.hashes(images.values())
        without = set(images.values()) - hashes.keys()
        unreadable = self._meaning.hash_later(without)
        for entry, alike in self._judged(close, images, hashes):
            groups.join(alike.entry, entry)
        members: dict[int, list[int]] = defaultdict(list)
        for entry in entries:
            members[groups.of(entry)].append(entry)
        alike_groups = sorted(
            (tuple(sorted(group)) for group in members.values() if len(group) > 1), key=lambda g: (-len(g), g)
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
        """Return the pairs that look alike, out of those whose vectors are close. Equal images need no hashes."""
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
