"""Which images a model may learn from, and which it is measured on: sources are parted first, and whatever is made of a
source stays on its side. Pure; what a picture looks like comes in as a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from core.perceptual_hashes import NearHashes

Side = Literal["train", "tune", "test"]
SIDES: tuple[Side, ...] = get_args(Side)
SHARES: Mapping[Side, float] = {"train": 0.6, "tune": 0.15, "test": 0.25}
"""Of the sources."""


@dataclass(frozen=True)
class Pictured:
    """An image that is on a side."""

    name: str
    """For people."""
    source: str
    """The hash of its source image: its side hangs on it alone."""
    sha: str
    look: int
    """Its `perceptual_hash`."""


@dataclass(frozen=True)
class Shared:
    """Two images of different sides that are one picture, or look like one."""

    one: Pictured
    other: Pictured
    sides: tuple[Side, Side]
    bits: int | None
    """In how many bits their looks differ; None where they are the same file."""


def side_of(source: str, seed: int, shares: Mapping[Side, float] = SHARES) -> Side:
    """The side of a source: it hangs on its hash and the seed alone, so that a source that is added or taken away
    changes the side of no other one. `shares` add up to 1.
    """
    drawn = hashlib.blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()
    place, below = int.from_bytes(drawn, "big") / 2**64, 0.0
    for side in SIDES:
        below += shares.get(side, 0.0)
        if place < below:
            return side
    return next(side for side in reversed(SIDES) if shares.get(side, 0.0))


def sides_together(alike: Iterable[tuple[str, str]], sources: Iterable[str]) -> dict[str, str]:
    """A name for each group of sources that belong together, such as frames of one video: the smallest of them. `alike`
    are pairs of sources that look alike. The side of a group is that of its name.
    """
    parent = {source: source for source in sources}

    def root(source: str) -> str:
        while parent[source] != source:
            parent[source] = parent[parent[source]]
            source = parent[source]
        return source

    for one, other in alike:
        if one in parent and other in parent:
            low, high = sorted((root(one), root(other)))
            parent[high] = low
    return {source: root(source) for source in parent}


def shared(sides: Mapping[Side, Sequence[Pictured]], most: int = 20) -> list[Shared]:
    """Images that are on two sides, by their hashes or because they look alike; at most so many. Empty where the sides
    are disjoint: only then does a figure of one say something of the others.
    """
    found: list[Shared] = []
    held: dict[Side, tuple[dict[str, Pictured], NearHashes, dict[int, Pictured]]] = {}
    for side in SIDES:
        own: tuple[dict[str, Pictured], NearHashes, dict[int, Pictured]] = ({}, NearHashes(), {})
        for image in sides.get(side, ()):
            for other_side, (by_sha, near, by_look) in held.items():
                if len(found) >= most:
                    return found
                if image.sha in by_sha:
                    found.append(Shared(by_sha[image.sha], image, (other_side, side), None))
                elif close := near.near(image.look):
                    look, bits = min(close.items(), key=lambda one: (one[1], one[0]))
                    found.append(Shared(by_look[look], image, (other_side, side), bits))
            own[0].setdefault(image.sha, image)
            own[1].add(image.look)
            own[2].setdefault(image.look, image)
        held[side] = own
    return found
