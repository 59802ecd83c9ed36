"""Helps a vision transformer to learn from few pictures, with good first filters and additional training tasks.

A transformer that learns from captions alone needs far more pictures than a CPU can show it. Here it begins with patch
filters taken from the pictures themselves. While it trains, small heads predict what each patch and the whole picture
show. The heads are discarded afterwards.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from demo.language import CAR_PLACES
from demo.scene import (
    BACKGROUNDS,
    COLOURS,
    GROUNDS,
    HILLS,
    MAX_PEDESTRIANS,
    MAX_VEHICLES,
    SEMANTIC_CLASSES,
    TIMES,
    TREES,
    WALLS,
    WATER_CLASSES,
    WATERS,
    WEATHERS,
    Scene,
)
from demo.train.batches import CLASSES, Batch, coloured_things

WHOLE = {
    "class": len(CLASSES),
    "weather": len(WEATHERS),
    "time": len(TIMES),
    "ground": len(GROUNDS),
    "vehicles": MAX_VEHICLES + 1,
    "pedestrians": MAX_PEDESTRIANS + 1,
    "background": len(BACKGROUNDS),
    "trees": len(TREES),
    "walls": len(WALLS),
    "water": len(WATERS),
    "hills": len(HILLS),
    **{f"colour {i}": len(COLOURS) for i in range(MAX_VEHICLES)},
}
"""Questions about the whole picture, each with the number of its possible answers."""
_WEIGHTS = {"pedestrians": 3.0, "colour 1": 2.0, "colour 2": 3.0}
"""Weights of questions that are hard (pedestrians are thin) or rare (few scenes have three vehicles)."""
_PEDESTRIAN = SEMANTIC_CLASSES.index("pedestrian")
_UNASKED = -100
_NO_THING = len(COLOURS)


def whole_answers(scene: Scene) -> list[int]:
    """Return the index of the right answer to each question in `WHOLE`; `_UNASKED` if no answer can be seen."""
    look, road = scene.look, scene.family == "road"
    shows_ground = look.weather != "snowy" and scene.label not in WATER_CLASSES
    colours = [COLOURS.index(colour) for colour in look.colours] + [_UNASKED] * (MAX_VEHICLES - len(look.colours))
    return [
        CLASSES.index(scene.label or "road"),
        WEATHERS.index(look.weather),
        TIMES.index(look.time),
        GROUNDS.index(look.ground) if shows_ground else _UNASKED,
        scene.vehicles if road else _UNASKED,
        scene.pedestrians if road else _UNASKED,
        BACKGROUNDS.index(scene.background) if road else _UNASKED,
        TREES.index(look.trees) if "trees" in scene.background else _UNASKED,
        WALLS.index(look.walls) if "buildings" in scene.background else _UNASKED,
        WATERS.index(look.water) if scene.label in WATER_CLASSES else _UNASKED,
        HILLS.index(look.hills) if not road else _UNASKED,
        *colours,
    ]


class Lessons(nn.Module):
    """Small networks for additional tasks. From each patch they predict what it shows (class, paint colour, which
    vehicle), and from the class token the answers to `WHOLE`.
    """

    def __init__(self, hidden: int, patch: int) -> None:
        super().__init__()
        self._patch = patch
        self.patches = nn.ModuleDict(
            {
                "semantic": nn.Linear(hidden, len(SEMANTIC_CLASSES)),
                "colour": nn.Linear(hidden, len(COLOURS) + 1),
                "place": nn.Linear(hidden, max(CAR_PLACES) + 1),
            }
        )
        self.whole = nn.Linear(hidden, sum(WHOLE.values()))

    def forward(self, states: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss and shares of right answers. `states` is (count, 1 + patches, hidden), class token first."""
        states = states.float()
        loss = states.new_zeros(())
        for name, shares in self._patch_shares(batch).items():
            shares = shares.to(states.device)
            logits = self.patches[name](states[:, 1:])
            if name == "semantic":  # the few patches with a pedestrian must not be outweighed by the others
                weight = 1 + 5.0 * (shares[..., _PEDESTRIAN] > 0.02)
            else:
                weight = 0.3 + 4 * (1 - shares[..., -1])
            known = shares.sum((1, 2), keepdim=True)[..., 0] > 0
            loss = loss - ((shares * logits.log_softmax(-1)).sum(-1) * weight * known).mean()
        answers = torch.tensor([whole_answers(scene) for scene in batch.scenes], device=states.device)
        figures = {}
        logits_of_questions = self.whole(states[:, 0]).split(list(WHOLE.values()), -1)
        for (name, logits), targets in zip(zip(WHOLE, logits_of_questions, strict=True), answers.T, strict=True):
            known = targets != _UNASKED
            if known.any():
                # Divided by the size of the batch, so that questions asked about few pictures have less weight.
                missed = functional.cross_entropy(logits, targets, reduction="sum") / len(targets)
                loss = loss + 0.4 * _WEIGHTS.get(name, 1.0) * missed
                figures[name] = float((logits.argmax(-1) == targets)[known].float().mean())
        return loss, figures

    def _patch_shares(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return arrays (count, patches, answers) for the keys "semantic" (class), "colour" and "place". A value is the
        share of a patch's pixels with this answer. Shares of colours and places are 0 in images whose vehicles touch.
        """
        masks = batch.masks.numpy()
        colours = np.full(masks.shape, _NO_THING, np.int64)
        places = np.full(masks.shape, max(CAR_PLACES), np.int64)
        known = np.ones((len(masks), 1, 1), np.float32)
        for row, scene in enumerate(batch.scenes):
            things = coloured_things(masks[row], scene)
            known[row] = len(things) == len(scene.look.colours)
            for place, (pixels, colour) in enumerate(things):
                colours[row][pixels] = colour
                places[row][pixels] = place
        counted = {
            "semantic": self._shares(masks, len(SEMANTIC_CLASSES)),
            "colour": self._shares(colours, len(COLOURS) + 1) * known,
            "place": self._shares(places, max(CAR_PLACES) + 1) * known,
        }
        return {name: torch.from_numpy(shares) for name, shares in counted.items()}

    def _shares(self, values: np.ndarray, answers: int) -> np.ndarray:
        count, side, _ = values.shape
        cells = side // self._patch
        rows = np.arange(side) // self._patch
        cell = np.arange(count)[:, None, None] * cells**2 + rows[:, None] * cells + rows[None, :]
        counts = np.bincount((cell * answers + values).ravel(), minlength=count * cells**2 * answers)
        return (counts / self._patch**2).astype(np.float32).reshape(count, cells**2, answers)


@torch.no_grad()
def start_from_pictures(patch_embedding: nn.Conv2d, pictures: torch.Tensor) -> None:
    """Set the patch filters to the principal components of the pictures' patches. Filter outputs get variance 1.

    `pictures` is (count, 3, side, side) in -1..1, a few hundred of them. With random filters, most of a short training
    would be spent on finding such filters.
    """
    side = patch_embedding.kernel_size[0]
    patches = functional.unfold(pictures, side, stride=side).transpose(1, 2).reshape(-1, 3 * side * side)
    middle = patches.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((patches - middle).T).double())
    count = patch_embedding.out_channels
    # The floor keeps the faintest components from turning into noise.
    scale = (values[-count:].clamp(min=0) + 1e-3).rsqrt()
    filters = (vectors[:, -count:] * scale).T.float()
    patch_embedding.weight.copy_(filters.reshape(patch_embedding.weight.shape))
    if patch_embedding.bias is not None:
        patch_embedding.bias.copy_(-filters @ middle)


def grid_positions(cells: int, hidden: int) -> torch.Tensor:
    """Return sines and cosines of each patch's row and column, (1 + cells², hidden). The class token has 0."""
    quarter = hidden // 4
    frequencies = math.pi / cells * 2 ** torch.linspace(0, math.log2(cells), quarter)
    angles = (torch.arange(cells) + 0.5)[:, None] * frequencies[None, :]
    wave = torch.cat([angles.sin(), angles.cos()], 1)
    rows, columns = wave[:, None].expand(-1, cells, -1), wave[None, :].expand(cells, -1, -1)
    grid = torch.cat([rows, columns], -1).reshape(cells * cells, 4 * quarter)
    return torch.cat([torch.zeros(1, hidden), functional.pad(grid, (0, hidden - 4 * quarter))])
