"""Trains the segmenter that checks generated images, a `small-unet`, on road scenes under every weather and hour.

It says whether what the task protects is still there, so it must see it in rain and at night too, as the segmenter
under test does not. It shares nothing with the generator, and nothing with the judges that say how good it is.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch.nn import functional

from demo.scene import SEMANTIC_CLASSES
from demo.train.batches import soften
from demo.train.common import Run, arguments, device, half_precision
from demo.train.dataset import SceneSet, open_scenes
from demo.under_test.fair import save_checkpoint
from evaluation.small import SmallUNet

SCENES = 6000
"""Rendered scenes; half of them are roads."""
_RARE = torch.tensor([1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 1.0])
"""Weight of each class in the loss: thin things would be given up for their background otherwise."""


class RoadScenes:
    """The road scenes of a set and their twins, half of them mirrored."""

    def __init__(self, scenes: SceneSet, seed: int) -> None:
        self._scenes, self._rng = scenes, random.Random(seed)
        self._rows = [index for index in range(scenes.count) if scenes.scene(index).family == "road"]

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images in -1..1 (count, 3, 128, 128), softened as a generator might give them; masks (count, 128, 128)."""
        rows = [
            (self._rng.choice(self._rows), self._rng.random() < 0.5, self._rng.choice((1, -1))) for _ in range(count)
        ]
        held = (self._scenes.images, self._scenes.twins)
        images = np.stack([held[other][index][:, ::step] for index, other, step in rows])
        masks = np.stack([self._scenes.masks[index][:, ::step] for index, _, step in rows])
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        return soften(pixels, self._rng), torch.from_numpy(masks).long()


def main() -> None:
    options = arguments("segmenter for the checks", 15)
    scenes = RoadScenes(open_scenes(options.work, SCENES), seed=11)
    net = SmallUNet(len(SEMANTIC_CLASSES)).to(device(), memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-2)
    run = Run("checker", options, optimizer, net=net)
    for _ in run:
        images, masks = scenes.draw(16)
        images = images.to(device(), memory_format=torch.channels_last)
        with half_precision():
            logits = net(images)
        loss = functional.cross_entropy(logits.float(), masks.to(device()), _RARE.to(device()))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        run.report(loss=loss.item())
    save_checkpoint(net, options.out / "checker.safetensors", "small-unet", SEMANTIC_CLASSES)


if __name__ == "__main__":
    main()
