"""Speed of a model under test on many images, compared with only its network on the same images.

The bare network gets prepared batches. The model under test gets decoded images and prepares them itself, in threads
that run while the network works. `python -m benchmarks.predicting` runs this alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.figures import Comparison, reported
from core.settings import UnderTestSettings
from evaluation.models import ModelUnderTest

ROUNDS = 3
LEAST = 0.9
"""Minimum ratio of speeds: images per second of the model under test, divided by those of its bare network."""
CASES = (("resnet50", 64, 384), ("deeplabv3_resnet50", 4, 512))
"""Architecture, number of images, and their longer side in pixels. First a classifier, then a segmenter."""
CLASSES = 20


def measure() -> list[Comparison]:
    """Return a comparison of speeds (images per second) for each of `CASES`."""
    return [_compared(*case) for case in CASES]


def _compared(name: str, count: int, side: int) -> Comparison:
    with tempfile.TemporaryDirectory() as place:
        model = ModelUnderTest(_random_weights(Path(place), name))
    images = [_photograph(seed, side) for seed in range(count)]
    ask, bare = _asked(model, images), _bare(model, images)
    ask()
    bare()
    ratios, seconds = [], []
    for _ in range(ROUNDS):
        network_alone, ours = bare(), ask()
        ratios.append(network_alone / ours)
        seconds.append((ours, network_alone))
    ours, network_alone = sorted(seconds)[len(seconds) // 2]
    pixels = f"{side} × {side * 3 // 4} pixels"
    words = f"{count / ours:.1f} images per second of {pixels}, the network alone {count / network_alone:.1f}"
    return Comparison(f"rate of {name} under test, by its bare network's", tuple(ratios), least=LEAST, words=words)


def _asked(model: ModelUnderTest, images: Sequence[Image.Image]) -> Callable[[], float]:
    """Return a function that predicts all images and returns the seconds for it."""

    def ask() -> float:
        began = time.perf_counter()
        answered = sum(len(batch.predictions) for batch in model.predict_many(images))
        assert answered == len(images)
        return time.perf_counter() - began

    return ask


def _bare(model: ModelUnderTest, images: Sequence[Image.Image]) -> Callable[[], float]:
    """Return a function that runs only the network, on prepared batches, and returns the seconds for it."""
    import torch

    adapter: Any = model._adapter
    pixels = torch.stack([adapter.prepare(image) for image in images])
    net, device = adapter.net, adapter._device

    def run() -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            for batch in pixels.split(model.at_once):
                found = net(batch.to(device))
                (found["out"] if isinstance(found, dict) else found).cpu()
        return time.perf_counter() - began

    return run


def _random_weights(folder: Path, name: str) -> UnderTestSettings:
    import torch

    from evaluation.adapters.architectures import _empty

    torch.manual_seed(0)
    net, _ = _empty(name, CLASSES, auxiliary=False)
    torch.save(net.state_dict(), folder / "model.pt")
    classes = ", ".join(f"class {number}" for number in range(CLASSES))
    return UnderTestSettings(source="file", file=str(folder / "model.pt"), name=name, classes=classes)


def _photograph(seed: int, side: int) -> Image.Image:
    """Return a picture of enlarged random noise, `side` pixels wide. It has about as much detail as a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (side // 10, side // 8, 3), np.uint8)
    return Image.fromarray(coarse).resize((side, side * 3 // 4), Image.Resampling.BICUBIC)


if __name__ == "__main__":
    raise SystemExit(reported(measure()))
