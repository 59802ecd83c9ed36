"""Trains the segmenter that checks generated images, a `small-unet`, on road scenes in every weather.

The segmenter tests whether the protected classes are still there. So it must recognise them in rain and at night too,
unlike the segmenter under test. It shares nothing with the generator, nor with the judges of the generator's quality.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from demo.scene import SEMANTIC_CLASSES
from demo.train.batches import soften
from demo.train.common import arguments
from demo.train.dataset import SceneSet, open_scenes
from demo.under_test.fair import save_checkpoint
from demo.under_test.train_segmenter import ARCHITECTURE, trained


class RoadScenes:
    """Road scenes to train on. An image shows a scene or its twin (same geometry, other weather), mirrored or not."""

    def __init__(self, scenes: SceneSet, seed: int) -> None:
        self._scenes, self._rng = scenes, random.Random(seed)
        self._rows = [index for index in range(scenes.count) if scenes.scene(index).family == "road"]

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return images in -1..1 (count, 3, 128, 128), with the defects of `soften`, and masks (count, 128, 128)."""
        rows = [
            (self._rng.choice(self._rows), self._rng.random() < 0.5, self._rng.choice((1, -1))) for _ in range(count)
        ]
        pictures = (self._scenes.images, self._scenes.twins)
        images = np.stack([pictures[other][index][:, ::step] for index, other, step in rows])
        masks = np.stack([self._scenes.masks[index][:, ::step] for index, _, step in rows])
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        return soften(pixels, self._rng), torch.from_numpy(masks).long()


def main() -> None:
    options = arguments("segmenter for the checks", 15)
    scenes = RoadScenes(open_scenes(options.work), seed=11)
    net = trained("checker", options, scenes.draw)
    save_checkpoint(net, options.out / "checker.safetensors", ARCHITECTURE, SEMANTIC_CLASSES)


if __name__ == "__main__":
    main()
