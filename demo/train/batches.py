"""Batches of training scenes with their labels, for training vision models.

`demo.train.dataset` has the pictures, masks and twins (same geometry, another look). Labels come from the scenes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import cv2
import numpy as np
import torch

from demo.judges import CLASSES
from demo.scene import COLOURS, SEMANTIC_CLASSES, TIMES, WEATHERS, Scene
from demo.train.dataset import SceneSet

VEHICLE, OBJECT = SEMANTIC_CLASSES.index("vehicle"), SEMANTIC_CLASSES.index("object")


@dataclass(frozen=True)
class Batch:
    """A batch of pictures with their masks and scenes."""

    images: torch.Tensor
    """Pictures: uint8 (count, 3, 128, 128), channels last in memory."""
    masks: torch.Tensor
    """Masks: int64 (count, 128, 128), indices into `SEMANTIC_CLASSES`."""
    scenes: tuple[Scene, ...]

    def labels(self) -> dict[str, torch.Tensor]:
        """Return each picture's class, weather and time of day as indices, by name: int64 (count,) each."""
        return {
            "class": torch.tensor([CLASSES.index(scene.label or "road") for scene in self.scenes]),
            "weather": torch.tensor([WEATHERS.index(scene.look.weather) for scene in self.scenes]),
            "time": torch.tensor([TIMES.index(scene.look.time) for scene in self.scenes]),
        }


class Batches:
    """Draws random batches. About half of the pictures are twins: they show a training scene's geometry with another
    weather, time of day and colours. Each picture is mirrored at random, since captions do not tell left from right.
    """

    def __init__(self, scenes: SceneSet, seed: int, roads: float = 0.5) -> None:
        """Draw from `scenes`. `roads` is the share of road scenes in a batch."""
        self._scenes, self._rng, self._roads = scenes, random.Random(seed), roads

    def draw(self, count: int) -> Batch:
        coin = self._rng.random
        chosen = [self._index("road" if coin() < self._roads else "object") for _ in range(count)]
        rows = [(i, coin() < 0.5, 1 if coin() < 0.5 else -1) for i in chosen]
        pictures = {False: self._scenes.images, True: self._scenes.twins}
        images = np.stack([pictures[other][i][:, ::step] for i, other, step in rows])
        masks = np.stack([self._scenes.masks[i][:, ::step] for i, _, step in rows])
        described = tuple(self._scenes.twin(i) if other else self._scenes.scene(i) for i, other, _ in rows)
        return Batch(torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(masks).long(), described)

    def _index(self, family: str) -> int:
        while True:
            index = self._rng.randrange(self._scenes.count)
            if self._scenes.scene(index).family == family:
                return index


def coloured_things(mask: np.ndarray, scene: Scene) -> list[tuple[np.ndarray, int]]:
    """Return the pixels, bool (height, width), of each coloured object in `mask`, with its index in `COLOURS`.

    Return an empty list if vehicles touch, since a mask cannot separate them then.
    """
    if scene.family == "object":
        things = mask == OBJECT
        return [(things, COLOURS.index(scene.look.colours[0]))] if things.any() else []
    count, numbered, stats, _ = cv2.connectedComponentsWithStats((mask == VEHICLE).astype(np.uint8), connectivity=8)
    parts = [number for number in range(1, count) if stats[number, cv2.CC_STAT_AREA] >= 8]
    if len(parts) != scene.vehicles:
        return []
    # The nearer a vehicle, the lower it is in the picture; colours are listed nearest first.
    parts.sort(key=lambda number: -(stats[number, cv2.CC_STAT_TOP] + stats[number, cv2.CC_STAT_HEIGHT]))
    return [(numbered == n, COLOURS.index(c)) for n, c in zip(parts, scene.look.colours, strict=True)]


def soften(images: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return pictures in -1..1 with random defects like a generator's: blur, blotches, noise, other brightness."""
    size = images.shape[-1]
    if rng.random() < 0.5:
        blotches = torch.randn(len(images), 3, 16, 16) * rng.uniform(0, 0.12)
        images = images + torch.nn.functional.interpolate(blotches, size=size, mode="bilinear", align_corners=False)
    if rng.random() < 0.6:
        smaller = rng.choice((32, 40, 48, 64, 80, 96))
        images = torch.nn.functional.interpolate(images, size=smaller, mode="area")
        images = torch.nn.functional.interpolate(images, size=size, mode="bilinear", align_corners=False)
    spread = [rng.uniform(0.0, 0.06) for _ in range(len(images))]
    gain = [rng.uniform(0.93, 1.07) for _ in range(len(images))]
    shift = [[rng.uniform(-0.05, 0.05) for _ in range(3)] for _ in range(len(images))]
    images = images * torch.tensor(gain)[:, None, None, None] + torch.tensor(shift)[:, :, None, None]
    images = images + torch.randn_like(images) * torch.tensor(spread)[:, None, None, None]
    return images.clamp(-1, 1)


def hits(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of right predictions, 0 to 1: rows whose largest logit is at the target's index."""
    return float((logits.argmax(-1) == targets).float().mean())
