"""A small segmentation network, named `small-unet` in checkpoint files. Libraries have none below a megabyte."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class SmallUNet(nn.Module):
    """A U-Net of four levels for pictures whose sides are multiples of 16."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        widths = (16, 32, 48, 64)
        self.stem = _block(3, widths[0], stride=2)
        self.down = nn.ModuleList(
            nn.Sequential(_block(a, b, stride=2), _block(b, b)) for a, b in itertools.pairwise(widths)
        )
        self.up = nn.ModuleList(
            _block(a + b, b) for a, b in zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True)
        )
        # The picture enters again at full size, or thin things would be lost.
        self.fine = _block(widths[0] + 3, 16)
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (count, classes, height, width) of normalised images (count, 3, height, width)."""
        levels = [self.stem(images)]
        for step in self.down:
            levels.append(step(levels[-1]))
        x = levels[-1]
        for step, skip in zip(self.up, reversed(levels[:-1]), strict=True):
            x = step(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skip], 1))
        x = nn.functional.interpolate(x, scale_factor=2.0)
        return self.head(self.fine(torch.cat([x, images], 1)))


def _block(inward: int, outward: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, stride, 1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(inplace=True)
    )
