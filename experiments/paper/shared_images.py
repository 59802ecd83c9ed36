"""Finds equal images in different splits of a data set, by their hashes, and images that look alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.perceptual_hashes import NearHashes, mirrored
from evaluation.retraining.data_split import SIDES, Side


@dataclass(frozen=True)
class Pictured:
    """An image, as needed to compare it with images of other splits."""

    name: str
    """File name, shown to people."""
    source: str
    """Number or other name of the image's source. Images of one source belong to the same split."""
    sha: str
    look: int
    """Perceptual hash: similar images have similar hashes (`perceptual_hash`)."""


@dataclass(frozen=True)
class Shared:
    """Two images in different splits that are the same picture, or look alike."""

    one: Pictured
    other: Pictured
    sides: tuple[Side, Side]
    bits: int | None
    """Smallest number of bits by which the perceptual hashes differ, plain or mirrored. None for equal files."""


def shared(sides: Mapping[Side, Sequence[Pictured]], most: int = 20) -> list[Shared]:
    """Return at most `most` pairs of equal or similar images in different splits. Figures on unseen images are right
    only if there is no such pair.
    """
    pairs: list[Shared] = []
    by_side: dict[Side, tuple[dict[str, Pictured], NearHashes, dict[int, Pictured]]] = {}
    for side in SIDES:
        own: tuple[dict[str, Pictured], NearHashes, dict[int, Pictured]] = ({}, NearHashes(), {})
        for image in sides.get(side, ()):
            for other_side, (by_sha, near, by_look) in by_side.items():
                if len(pairs) >= most:
                    return pairs
                if image.sha in by_sha:
                    pairs.append(Shared(by_sha[image.sha], image, (other_side, side), None))
                elif close := near.near(mirrored(image.look)) | near.near(image.look):
                    look, bits = min(close.items(), key=lambda one: (one[1], one[0]))
                    pairs.append(Shared(by_look[look], image, (other_side, side), bits))
            own[0].setdefault(image.sha, image)
            own[1].add(image.look)
            own[2].setdefault(image.look, image)
        by_side[side] = own
    return pairs
