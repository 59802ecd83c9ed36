"""A small network that segments the demo's drawn scenes. It compares each pixel with all phrases in one pass."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (32, 48, 72, 96, 112)
MULTIPLE = 2 ** len(WIDTHS)
"""Sides of pictures are multiples of this number of pixels."""


class PhraseNet(nn.Module):
    """A U-Net that gives each pixel a logit for each word; a phrase is a set of words. It reads each block of 2 x 2
    pixels as one position with four times the channels. This quarters the work and keeps outlines exact.
    """

    def __init__(self, words: int) -> None:
        super().__init__()
        first, last = WIDTHS[0], WIDTHS[-1]
        self.stem = nn.Sequential(_block(12, first), _block(first, first))
        self.down = nn.ModuleList(
            nn.Sequential(_block(a, b, stride=2), _block(b, b)) for a, b in itertools.pairwise(WIDTHS)
        )
        self.whole = nn.Linear(last, last)
        self.up = nn.ModuleList(
            _block(a + b, b) for a, b in zip(reversed(WIDTHS[1:]), reversed(WIDTHS[:-1]), strict=True)
        )
        self.fine = _block(first, first)
        self.words = nn.Conv2d(first, words * 4, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (count, words, height, width) of images in -1..1 (count, 3, height, width)."""
        levels = [self.stem(functional.pixel_unshuffle(images, 2))]
        for step in self.down:
            levels.append(step(levels[-1]))
        x = levels[-1]
        x = x + self.whole(x.mean((2, 3)))[:, :, None, None]
        for step, skip in zip(self.up, reversed(levels[:-1]), strict=True):
            x = step(torch.cat([functional.interpolate(x, scale_factor=2.0), skip], 1))
        return functional.pixel_shuffle(self.words(self.fine(x)), 2)


def _block(inward: int, outward: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, stride, 1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(inplace=True)
    )
