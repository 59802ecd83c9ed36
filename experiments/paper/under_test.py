"""Train the small networks that the paper's experiments test. Training is brief, shows only fair (sunny or cloudy)
days, and has some wrong labels. So the networks also err on originals, and we know where and why.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from core.types import TaskKind
from demo.render import render
from demo.scene import OBJECT_CLASSES, SEMANTIC_CLASSES
from evaluation.retraining.training import BEST, Arm, Example, TrainingRecipe, train
from experiments.paper.size import Family, Size
from experiments.paper.world import lesson

KINDS: dict[Family, TaskKind] = {"object": "classification", "road": "segmentation"}
CLASSES: dict[Family, tuple[str, ...]] = {"object": OBJECT_CLASSES, "road": SEMANTIC_CLASSES}
ARCHITECTURES: dict[Family, str] = {"object": "test_resnet", "road": "small-unet"}
_BATCH: dict[Family, int] = {"object": 32, "road": 16}
_RATE = 3e-3
_MIDDLE = (0.5, 0.5, 0.5)
"""Mean and standard deviation for scaling pixels to -1..1, the range of the networks' inputs."""


def under_test(family: Family, folder: Path, size: Size) -> Path:
    """Train a family's model under test in `folder` and return its weights. A stopped training resumes."""
    import torch

    torch.manual_seed(0)
    lessons, updates = size.lessons[family]
    recipe = TrainingRecipe("fair days", updates, _BATCH[family], "adam", _RATE, falls=1, looks=1)
    arm = Arm("fair days", tuple(_written(family, number, folder / "lessons") for number in range(lessons)))
    header = {"format": "pt", "architecture": ARCHITECTURES[family], "classes": json.dumps(CLASSES[family])}
    header |= {"size": "128", "mean": json.dumps(_MIDDLE), "std": json.dumps(_MIDDLE)}
    # A constant score keeps the last state, not the best: the model should be trained briefly, not well.
    train(_network(family), KINDS[family], _pixels, arm, recipe, 0, lambda net: 0.0, folder, header=header)
    return folder / BEST


def _network(family: Family) -> Any:
    if family == "road":
        from evaluation.adapters.small_unet import SmallUNet

        return SmallUNet(len(SEMANTIC_CLASSES))
    import timm

    return timm.create_model(ARCHITECTURES[family], pretrained=False, num_classes=len(OBJECT_CLASSES))


def _pixels(image: Image.Image) -> Any:
    import torch

    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 127.5 - 1


def _written(family: Family, number: int, folder: Path) -> Example:
    """Write the image and the mask of a training scene, if missing. The image is blurred like a generated one."""
    scene, wrong = lesson(family, number)
    image, mask = folder / f"{number:05}.png", folder / f"{number:05}.mask.png"
    if not image.exists():
        folder.mkdir(parents=True, exist_ok=True)
        picture, numbers = render(scene)
        if wrong is not None and family == "road":
            taught, shown = SEMANTIC_CLASSES.index(wrong.taught), SEMANTIC_CLASSES.index(wrong.label)
            numbers = np.where(numbers == shown, np.uint8(taught), numbers)
        Image.fromarray(numbers).save(mask)
        half = image.with_suffix(".half")
        _softened(picture, number).save(half, "PNG")
        half.replace(image)
    if family == "road":
        return Example(image, mask)
    return Example(image, OBJECT_CLASSES.index(wrong.taught if wrong is not None else scene.label))


def _softened(picture: np.ndarray, number: int) -> Image.Image:
    import torch

    from demo.train.batches import soften

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        soft = soften(_pixels(Image.fromarray(picture))[None], random.Random(number))
    return Image.fromarray(((soft[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy())
