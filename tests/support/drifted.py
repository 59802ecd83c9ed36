"""Drawn scenes whose edited image was shifted or zoomed as a whole, with the true masks of both.

`python -m tests.support.drifted --scenes 100` prints the measured drifts by planted drift and number of edits.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from demo.render import render
from demo.scene import COLOURS, GROUNDS, TIMES, TREES, WEATHERS, Scene, random_scene
from pipeline.checks.drift import IN_PLACE, Drift, can_move_back, drift_of

SHIFTS, ZOOMS = (0.01, 0.02, 0.05, 0.1, 0.2), (0.9, 0.95, 1.05, 1.1)
_BEYOND = 1.6
"""Factor by which the scene is larger than its picture, so that a shifted picture shows more of the scene."""
_WORDS = {"weather": WEATHERS, "time": TIMES, "ground": GROUNDS, "trees": TREES, "colours": COLOURS}
_FROM_IMAGE = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP


@dataclass(frozen=True)
class Drifted:
    """A source, its ideal edit with a drift, and the masks of both."""

    source: Image.Image
    image: Image.Image
    source_mask: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    planted: Drift

    def overlap(self, found: Drift) -> float:
        """Return the mean IoU of both masks after undoing `found`, within the part of the source that the image
        shows.
        """
        size = self.source.size
        back = cv2.warpAffine(self.mask, found.matrix(size), size, flags=_FROM_IMAGE, borderValue=254)
        lost = cv2.warpAffine(
            np.zeros_like(self.mask), self.planted.matrix(size), size, flags=_FROM_IMAGE, borderValue=1
        )
        there: NDArray[np.bool_] = (np.asarray(back) != 254) & (np.asarray(lost) == 0)
        pairs = [
            ((self.source_mask == one) & there, (back == one) & there) for one in np.unique(self.source_mask[there])
        ]
        return float(np.mean([(own & other).sum() / (own | other).sum() for own, other in pairs]))


def edited(scene: Scene, edits: int, fate: random.Random) -> Scene:
    """Return the scene with `edits` changes of its weather, time, ground, trees or colours."""
    changes: dict[str, object] = {}
    for name in fate.sample(sorted(_WORDS), edits):
        present = getattr(scene.look, name)
        if isinstance(present, tuple):
            changes[name] = tuple(fate.choice([one for one in COLOURS if one != own]) for own in present)
        else:
            changes[name] = fate.choice([one for one in _WORDS[name] if one != present])
    return scene.with_look(**changes)


def drifted(seed: int, edits: int, shift: float = 0.0, zoom: float = 1.0, side: int = 256) -> Drifted:
    """Draw a scene, and shift its edit in a random direction by `shift` times its side. Objects and roads alternate.

    In every other pair the shifted picture shows more of the scene. In the rest it repeats its border.
    """
    fate = random.Random(f"drift {seed}")
    scene = random_scene(seed, "road" if seed % 2 else "object")
    angle = fate.uniform(0, 2 * np.pi)
    planted = Drift(zoom=zoom, right=shift * np.cos(angle), down=shift * np.sin(angle))
    drawn = round(side * _BEYOND) if seed % 4 < 2 else side
    (before, before_mask), (after, after_mask) = render(scene, drawn), render(edited(scene, edits, fate), drawn)
    first = (drawn - side) // 2
    own = slice(first, first + side)
    matrix = np.vstack([planted.matrix((side, side)), [0, 0, 1]])
    back = np.linalg.inv(matrix)[:2] + np.array([[0, 0, first], [0, 0, first]])
    image, mask = (
        cv2.warpAffine(pixels, back, (side, side), flags=flags | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE)
        for pixels, flags in ((after, cv2.INTER_CUBIC), (after_mask, cv2.INTER_NEAREST))
    )
    source = Image.fromarray(np.ascontiguousarray(before[own, own]))
    return Drifted(source, Image.fromarray(np.asarray(image)), before_mask[own, own], np.asarray(mask), planted)


@dataclass(frozen=True)
class Found:
    """Findings on many pairs with one planted drift."""

    moved: float
    """Share of the pairs with a reported drift."""
    unclear: float
    """Share of the pairs whose drift could not be measured."""
    overlaps: Sequence[float]
    """`Drifted.overlap` of the pairs with a reported drift."""


def found(seeds: Sequence[int], edits: int, shift: float = 0.0, zoom: float = 1.0, side: int = 256) -> Found:
    """Measure the drift of a pair for each seed."""
    pairs = [drifted(seed, edits, shift, zoom, side) for seed in seeds]
    drifts = [drift_of(pair.source, pair.image) for pair in pairs]
    moved = [(pair, one) for pair, one in zip(pairs, drifts, strict=True) if one is not None and one.moved > IN_PLACE]
    overlaps = [pair.overlap(one) for pair, one in moved]
    return Found(len(moved) / len(pairs), sum(one is None for one in drifts) / len(pairs), overlaps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--first", type=int, default=8_000_000, help="seed of the first scene")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--edits", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.scenes)
    print("edits  shift  zoom  told  cannot tell  IoU of masks (5th percentile)")
    for edits in options.edits:
        for shift, zoom in ((0.0, 1.0), *((one, 1.0) for one in SHIFTS), *((0.0, one) for one in ZOOMS)):
            one = found(seeds, edits, shift, zoom, options.side)
            ious = f"{np.mean(one.overlaps):.3f} ({np.quantile(one.overlaps, 0.05):.3f})" if one.overlaps else ""
            print(f"{edits:5} {shift:6.2f} {zoom:5.2f} {one.moved:5.3f} {one.unclear:12.3f}  {ious}", flush=True)
    roads = range(seeds.start + 1, seeds.start + 1 + 2 * options.scenes, 2)
    others = [(drifted(seed, 1, side=options.side), drifted(seed + 500_000, 1, side=options.side)) for seed in roads]
    drifts = [drift_of(one.source, other.image) for one, other in others]
    back = sum(can_move_back(one) for one in drifts)
    print(f"another road: told of {sum(one is not None for one in drifts)} of {len(drifts)}, {back} moved back")


if __name__ == "__main__":
    main()
