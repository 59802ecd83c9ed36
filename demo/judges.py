"""The judges: a small network that recognises class, weather, time of day, colours and places of objects in images.

The network is trained on rendered scenes only. It shares nothing with the generator or its CLIP, so it is an
independent judge of generated images. `demo.train.judges` trains it, and `experiments.demo_report.report` uses it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from demo.scene import COLOURS, OBJECT_CLASSES, SEMANTIC_CLASSES, TIMES, WEATHERS

WEIGHTS = Path(__file__).resolve().parent / "weights" / "judges.safetensors"
CLASSES = (*OBJECT_CLASSES, "road")


@dataclass(frozen=True)
class Reading:
    """The judges' findings on one image."""

    label: str
    """The recognised class, one of `CLASSES`."""
    weather: str
    time: str
    mask: np.ndarray
    """The recognised class of each pixel: indices into `SEMANTIC_CLASSES`, uint8 (128, 128)."""
    colour_scores: np.ndarray
    """Score of each colour in `COLOURS` at each pixel: float32 (len(COLOURS), 128, 128)."""

    def colour(self, pixels: np.ndarray) -> str:
        """Return the colour of the object that covers `pixels` (bool, (128, 128), at least one of them)."""
        return COLOURS[int(self.colour_scores[:, pixels].mean(1).argmax())]


class JudgeNet(nn.Module):
    """A U-Net for images of 128 x 128 pixels. Some outputs are per pixel (semantic class, colour), some per image."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        widths = (width, width * 2, width * 3, width * 4)
        self.stem = _block(3, widths[0], stride=2)
        self.down = nn.ModuleList(
            nn.Sequential(_block(a, b, stride=2), _block(b, b)) for a, b in itertools.pairwise(widths)
        )
        self.up = nn.ModuleList(
            _block(a + b, b) for a, b in zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True)
        )
        self.fine = nn.Sequential(nn.Conv2d(widths[0] + 3, 16, 3, padding=1), nn.ReLU(inplace=True))
        self.semantic = nn.Conv2d(16, len(SEMANTIC_CLASSES), 1)
        self.colours = nn.Conv2d(widths[0], len(COLOURS), 1)
        self.whole = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(widths[-1] * 2 + widths[0], 64), nn.ReLU(), nn.Linear(64, count))
                for name, count in (("class", len(CLASSES)), ("weather", len(WEATHERS)), ("time", len(TIMES)))
            }
        )

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return logits for images in -1..1, (count, 3, 128, 128): "class", "weather", "time" as (count, classes),
        "semantic" as (count, classes, 128, 128), "colours" as (count, colours, 64, 64)."""
        levels = [self.stem(images)]
        for step in self.down:
            levels.append(step(levels[-1]))
        deep = levels[-1]
        # Rain and stars are thin. The average of the finest level keeps such details, which deep levels smooth away.
        pooled = torch.cat([deep.mean((2, 3)), deep.amax((2, 3)), levels[0].mean((2, 3))], 1)
        logits = {name: head(pooled) for name, head in self.whole.items()}
        x = deep
        for step, skip in zip(self.up, reversed(levels[:-1]), strict=True):
            x = step(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skip], 1))
        logits["colours"] = self.colours(x)
        full = nn.functional.interpolate(x, scale_factor=2.0)
        logits["semantic"] = self.semantic(self.fine(torch.cat([full, images], 1)))
        return logits


class Judges:
    """The trained network of the judges. Raises FileNotFoundError if its weights are missing."""

    def __init__(self, weights: Path = WEIGHTS) -> None:
        state = load_file(weights)
        self._net = JudgeNet(state["stem.0.weight"].shape[0]).eval()
        self._net.load_state_dict(state)  # fp16 in the file, fp32 in the network

    @torch.inference_mode()
    def read(self, image: np.ndarray) -> Reading:
        """Return the judges' findings on one RGB image, uint8 (128, 128, 3)."""
        if image.shape != (128, 128, 3) or image.dtype != np.uint8:
            raise ValueError(f"the judges take uint8 images of 128 x 128 x 3, not {image.dtype} {image.shape}")
        tensor = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
        logits = self._net(tensor)
        scores = nn.functional.interpolate(logits["colours"], scale_factor=2.0)[0]
        return Reading(
            label=CLASSES[int(logits["class"].argmax())],
            weather=WEATHERS[int(logits["weather"].argmax())],
            time=TIMES[int(logits["time"].argmax())],
            mask=logits["semantic"][0].argmax(0).to(torch.uint8).numpy(),
            colour_scores=scores.numpy(),
        )


def _block(inward: int, outward: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, stride, 1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(inplace=True)
    )
