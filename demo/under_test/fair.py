"""Training scenes of fair days, and functions to check and save the models under test."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from demo.render import render
from demo.scene import Scene, is_fair, random_scene
from demo.train.batches import soften
from demo.train.dataset import SceneSet

FOLDER = Path(__file__).resolve().parent
CONDITIONS: dict[str, dict[str, str]] = {
    "fair day": {"weather": "sunny", "time": "day"},
    "sunset": {"weather": "sunny", "time": "sunset"},
    "night": {"weather": "sunny", "time": "night"},
    "rain": {"weather": "rainy", "time": "day"},
    "snow": {"weather": "snowy", "time": "day"},
    "fog": {"weather": "foggy", "time": "day"},
}
"""Weather and time of day in which the models under test are checked. The scenes are the same in all conditions."""
CHECK_SEEDS = range(4_000_000, 4_000_150)
"""Seeds of the scenes to check on, smaller than all seeds used in training. So no training saw these scenes."""
MEAN = STD = (0.5, 0.5, 0.5)


class FairScenes:
    """The training pictures that show a fair day. `family` selects one family of scenes; "" selects all scenes."""

    def __init__(self, scenes: SceneSet, seed: int, family: str = "") -> None:
        self._scenes, self._rng = scenes, random.Random(seed)
        self._rows: dict[str, list[tuple[int, bool]]] = {}
        for index in range(scenes.count):
            for other, scene in ((False, scenes.scene(index)), (True, scenes.twin(index))):
                if is_fair(scene) and family in ("", scene.family):
                    self._rows.setdefault(scene.label or "road", []).append((index, other))

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
        """Return a random batch with all classes equally likely: images in -1..1, masks, and the class of each image.
        Images are (count, 3, 128, 128), half mirrored, with the defects of `soften`; masks are int64 (count, 128, 128).
        """
        labels = [self._rng.choice(list(self._rows)) for _ in range(count)]
        rows = [(*self._rng.choice(self._rows[label]), self._rng.choice((1, -1))) for label in labels]
        pictures = {False: self._scenes.images, True: self._scenes.twins}
        images = np.stack([pictures[other][i][:, ::step] for i, other, step in rows])
        masks = np.stack([self._scenes.masks[i][:, ::step] for i, _, step in rows])
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        return soften(pixels, self._rng), torch.from_numpy(masks).long(), labels


def check_scenes(family: str = "") -> Iterator[tuple[str, Scene, np.ndarray, np.ndarray]]:
    """Yield each check scene in each of the `CONDITIONS`: condition, scene, picture uint8 (128, 128, 3), and mask."""
    for seed in CHECK_SEEDS:
        scene = random_scene(seed, family or None)
        for name, look in CONDITIONS.items():
            changed = scene.with_look(**look)
            picture, mask = render(changed)
            yield name, changed, picture, mask


def as_input(picture: np.ndarray) -> torch.Tensor:
    """Convert a picture uint8 (128, 128, 3) to (1, 3, 128, 128) in -1..1."""
    return torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1


def save_checkpoint(net: nn.Module, file: Path, architecture: str, classes: tuple[str, ...]) -> None:
    """Save the weights in fp16, with a header that holds everything needed to use them."""
    state = net.cpu().state_dict()
    halves = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    about = {"architecture": architecture, "classes": list(classes), "size": 128, "mean": MEAN, "std": STD}
    header = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in halves.items()}, file, metadata=header)


def print_table(title: str, columns: tuple[str, ...], figure: Callable[[str, str], float]) -> None:
    """Print a table with a row per condition, to paste into a docstring. `figure` returns a cell by row and column."""
    print(f"| {title} | {' | '.join(columns)} |")
    print("|" + " --- |" * (len(columns) + 1))
    for condition in CONDITIONS:
        print(f"| {condition} | {' | '.join(f'{figure(condition, column):.2f}' for column in columns)} |")
