"""Images that look alike: those of one, and the groups among all that a filter means.

Two images look alike where their vectors and their perceptual hashes both say so. Either alone would not do: hashes
take the images of one source for each other, whose geometry is the same, and vectors take two streets at dusk for each
other. Images of one source are compared more strictly: a small change of one may be all that makes it a test case.

Measured with the embedded CLIP on 2,000 scenes of the drawn world, of which none is like another (`BETWEEN`): of
999,000 pairs none is taken for alike, where the vectors alone take 12 pairs; and of 600 copies (saved as JPEG of
quality 60 or 85, 10 % brighter, scaled to three quarters and back, cut off by 4 of 256 pixels, with noise of 4 levels)
all are found. Of other copies of 200 scenes 98 % are found that were mirrored, 94 % saved as JPEG of quality 30, 82 %
shifted by 3 %, 68 % with a word across them, 62 % cropped by 5 % at each edge, and 5 % cropped by 10 %; of pairs of
scenes with the same things in the same light, 3 % are taken for alike. Between images of one source (`WITHIN`), of
those that differ in the weather 0.1 % are taken for alike, in the time of day none, in the colour of one thing 2.4 %,
in the ground 6.5 % (little of it shows); of the copies, all that were saved as JPEG or scaled are found, 99 % of those
with noise, 95 % of the brighter ones, 54 % of those cut off.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from core.csv_tables import facts
from core.errors import UserError
from core.perceptual_hashes import Groups, mirrored
from core.test_sets import ImageHashes
from pipeline.models.nearest import close_pairs, nearest
from services.commands import Command, does
from services.curation.meaning import Meaning
from services.edit_conflicts import LARGEST_ID
from services.queries import ImageQuery, Plain, entry_facts
from services.test_sets.hashes import hashes_of
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits
from storage.workspace import Workspace

log = logging.getLogger(__name__)


WITHIN, BETWEEN = (0.98, 3), (0.97, 10)
"""Two images of one source, or of different sources or none, look alike where the cosine of their vectors is above the
first number, and their perceptual hashes differ in so many bits at most as the second one says.
"""
MOST_OF_ONE = 200
"""Near-duplicates of one image that are looked at."""
MOST_COMPARED = 20_000
"""Images among which groups are looked for: each is compared with each."""
MOST_PAIRS = 100_000


@dataclass(frozen=True)
class Alike:
    """An image that looks like another one."""

    entry: int
    similarity: float
    """The cosine of their vectors."""
    distance: int
    """Bits by which their perceptual hashes differ; of images of different sources also when one is mirrored."""
    same_source: bool


@dataclass(frozen=True)
class AlikeGroups:
    """Groups of entries that look alike, directly or through others: the largest first, each in order."""

    groups: tuple[tuple[int, ...], ...]
    compared: int
    """Images that were compared with each other."""
    waiting: int
    """Images that are not embedded yet, and those that may look like others and have no hash yet; both come."""
    complete: bool
    """Whether all pairs were looked at; there are very many of them where it is not."""
    unreadable: int = 0
    """Images that may look like others, and whose files are missing or damaged: they were left out."""


class NearDuplicatesOf(Command, name="near-duplicates", looks=True):
    """List the test cases that look like one of them, near-duplicates and equal images, the most similar first."""

    entry: int = Field(ge=1, le=LARGEST_ID, description="The entry of the catalogue")


class NearDuplicateGroups(ImageQuery, name="near-duplicate-groups"):
    """Find the groups of test cases that look alike among those of a filter: at most 20,000, in seconds."""


class NearDuplicates:
    """Finds them. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, meaning: Meaning) -> None:
        self._workspace, self._meaning = workspace, meaning

    @does
    def list_of(self, asked: NearDuplicatesOf) -> Plain:
        found = self.of(asked.entry)
        listed = self._workspace.catalogue.listed([one.entry for one in found])
        rows = [
            entry_facts(entry) | facts(one, "distance same_source", similarity=round(one.similarity, 4))
            for entry, one in zip(listed, found, strict=True)
        ]
        return {"test_cases": rows}

    @does
    def list_groups(self, asked: NearDuplicateGroups) -> Plain:
        return facts(
            self.groups(self._workspace.catalogue.bits(asked.filter)), "groups compared waiting complete unreadable"
        )

    def of(self, entry: int) -> tuple[Alike, ...]:
        """Return what looks like an entry, the most similar first. Raises UserError for an unknown entry."""
        vector, table = self._meaning.vector_of(entry), self._meaning.table()
        inside = entry_sets.has(self._workspace.catalogue.bits(), table.entries) & (table.entries != entry)
        rows, cosines = nearest(table.rows, vector, MOST_OF_ONE, inside)
        near = dict(zip(table.entries[rows].tolist(), cosines.tolist(), strict=True))
        pairs = [(entry, other, cosine) for other, cosine in near.items() if cosine > BETWEEN[0]]
        images = self._workspace.vectors.images_of({other for pair in pairs for other in pair[:2]})
        hashes = self._hashes_now(set(images.values()))
        return tuple(alike for _, alike in self._judged(pairs, images, hashes))

    def groups(self, allowed: Bits) -> AlikeGroups:
        """The groups among the `allowed` entries. No file is opened: what has no hash yet gets one in the background.

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
        kept = np.array([entry in first for entry in entries], bool)
        wide = np.asarray(table.rows[rows[kept]], np.float32)
        pairs = close_pairs(wide, BETWEEN[0], MOST_PAIRS)
        shown = table.entries[rows[kept]].tolist()
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
        found = sorted((tuple(sorted(held)) for held in members.values() if len(held) > 1), key=lambda g: (-len(g), g))
        waiting = entry_sets.size(allowed) - len(entries) + len(without) - unreadable
        return AlikeGroups(tuple(found), len(entries), waiting, len(pairs) < MOST_PAIRS, unreadable)

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
        """Return the pairs that look alike, of those whose vectors are close. Equal images need no hashes."""
        sources = self._workspace.vectors.sources_of(images)
        found = []
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
                found.append((one, Alike(other, cosine, distance, same)))
        return found
