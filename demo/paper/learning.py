"""One training of a model under test further, and what it says of each set of images afterwards. Kept in a folder, so
that it is done once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from demo.paper.reading import WEIGHTS
from demo.paper.world import Family
from demo.scene import SEMANTIC_CLASSES
from evaluation.architectures import Network, find_network
from evaluation.by_source import Floats
from evaluation.retraining import Arm, Example, TrainingRecipe, train
from evaluation.segmentation import confusion
from pipeline.settings import UnderTestSettings
from pipeline.types import TaskKind

KINDS: Mapping[Family, TaskKind] = {"object": "classification", "road": "segmentation"}
TOGETHER = 50
"""Images that a net is asked about at once."""
_SAID = "said.npz"


@dataclass(frozen=True)
class Training:
    """What is learnt, and what it is measured on."""

    family: Family
    arm: Arm
    seed: int
    recipe: TrainingRecipe
    tune: tuple[Example, ...]
    """By which the best state is chosen."""
    sets: Mapping[str, tuple[Example, ...]]
    folder: Path


def learnt(training: Training) -> dict[str, Floats]:
    """What the trained model says of each set: of a classifier whether it is right about each image, (images,); of a
    segmenter the pixels of each class and what it says of them, (images, classes, classes + 1).
    """
    file = training.folder / _SAID
    if not file.exists():
        said = _measured(training)
        half = file.with_suffix(".half.npz")
        named: dict[str, Any] = {f"{place}": one for place, one in enumerate(said.values())}
        np.savez_compressed(half, **named)
        half.replace(file)
    with np.load(file) as held:
        return {name: held[f"{place}"] for place, name in enumerate(training.sets)}


def _measured(training: Training) -> dict[str, Floats]:
    import torch
    from safetensors.torch import load_file

    # What chance there is beside the order of the images, such as dropout, hangs on the seed too.
    torch.manual_seed(training.seed)
    network = under_test(training.family)
    kind = KINDS[training.family]

    def score(net: Any) -> float:
        return accuracy(kind, said_of(net, network, kind, training.tune))

    found = train(
        network.net, kind, network.prepare, training.arm, training.recipe, training.seed, score, training.folder
    )
    network.net.load_state_dict(load_file(found.weights))
    network.net.eval()
    return {name: said_of(network.net, network, kind, examples) for name, examples in training.sets.items()}


def under_test(family: Family) -> Network:
    """The model under test of a family, as it is shipped."""
    return find_network(UnderTestSettings(source="file", file=str(WEIGHTS[family])))


def accuracy(kind: TaskKind, said: Floats) -> float:
    """The share of images, or of pixels, that are right; 0 without any."""
    return float(right_of(kind, said).mean()) if len(said) else 0.0


def right_of(kind: TaskKind, said: Floats) -> Floats:
    """How much of each image is right, 0 to 1: all or nothing of a classifier, pixels of a segmenter."""
    if kind == "classification":
        return said
    right: Floats = np.diagonal(said, axis1=1, axis2=2).sum(axis=1) / said.sum(axis=(1, 2))
    return right


def said_of(net: Any, network: Network, kind: TaskKind, examples: Sequence[Example]) -> Floats:
    """What a net says of examples, as `learnt` has it. It is in its evaluating mode already."""
    import torch

    found: list[Floats] = []
    for begin in range(0, len(examples), TOGETHER):
        some = examples[begin : begin + TOGETHER]
        with torch.inference_mode():
            pixels = torch.stack([network.prepare(_opened(one.image, "RGB")) for one in some])
            numbers = net(pixels).argmax(1).cpu().numpy()
        for one, own in zip(some, numbers, strict=True):
            if isinstance(one.target, int):
                found.append(np.array(float(int(own) == one.target)))
            else:
                mask = np.asarray(_opened(one.target, "L"), np.uint8)
                found.append(confusion(mask, own.astype(np.uint8), len(SEMANTIC_CLASSES)))
    return np.stack(found) if found else np.zeros(0)


def _opened(file: Path, mode: str) -> Image.Image:
    with Image.open(file) as opened:
        return opened.convert(mode)
