"""Predictions of models under test. Plain frozen dataclasses; no torch, no files."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from PIL import Image

from core.images import png_of
from core.masks import colour
from core.types import Task, TaskKind
from core.words import classes_in

DROPPED = 0.15
"""Minimum loss at which a person should look at an image: a segmenter's figure (0 to 1) on the source minus that on the
image. If a border is redrawn one pixel off, a small object loses nearly as much. On 60 street scenes of fair days, the
demo's segmenter has a mean figure of 0.89. The mean is 0.83 in rain, 0.79 at sunset, 0.59 in snow, 0.43 at night, 0.05
in fog, and 0.23 on images of other scenes. In rain and at sunset, 98 to 100 % of the losses are below `DROPPED`."""

Standing = Literal["right", "fails here", "wrong before too", "right only here", "cannot tell"]

TOP = 5
"""Number of a classifier's guesses that are stored for each image."""
LARGEST_MAP = 512
"""Maximum width and height of a stored class map, in pixels. This is enough for its figures and its picture."""


@dataclass(frozen=True)
class Guess:
    """One class that a classifier predicts for an image."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model under test for one image: guesses, or a class for every pixel."""

    kind: TaskKind
    model: str
    top: tuple[Guess, ...] = ()
    """Classifier's guesses, likeliest first, at most `TOP`; empty for segmentation."""
    classes: tuple[str, ...] = ()
    """Names of the class numbers in `class_map`; empty for classification."""
    class_map: bytes = b""
    """A PNG of class numbers (mode L) in the image's aspect, at most `LARGEST_MAP` wide and high; segmentation only."""


@dataclass(frozen=True)
class Doubt:
    """Uncertainty of a segmenter about an image. Each figure is the mean over the image's pixels."""

    entropy: float
    """Entropy in nats, from 0 to the logarithm of the number of classes."""
    gini: float
    """DeepGini: 1 minus the sum of the squares of the probabilities. 0 is certain; it is always below 1."""


@dataclass(frozen=True, eq=False)
class PredictedBatch:
    """Predictions for several consecutive images, computed together."""

    predictions: tuple[Prediction, ...]
    probabilities: np.ndarray | None = None
    """Probability of each class: (images, classes), float32, in the order of the model's classes. Classifiers only."""
    doubts: tuple[Doubt, ...] = ()
    """Uncertainty of each image; segmentation only. Empty if the model gives no probabilities."""


def names_label(guess: str, label: str) -> bool:
    """Return True if the class `guess` of a model is `label` or a kind of it. Case does not matter."""
    return guess.casefold() == label.casefold() or bool(classes_in(guess, Task("classification", label=label)))


def map_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return width and height of the stored class map of an image of `size`."""
    scale = min(1.0, LARGEST_MAP / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def encode_map(numbers: Image.Image) -> bytes:
    """Encode class numbers (mode L) as a `Prediction.class_map`, shrunk to `LARGEST_MAP`."""
    return png_of(numbers.resize(map_size(numbers.size), Image.Resampling.NEAREST))


def decode_map(class_map: bytes) -> Image.Image:
    """Decode a `Prediction.class_map` to class numbers (mode L)."""
    with Image.open(io.BytesIO(class_map)) as opened:
        opened.load()
        return Image.frombytes("L", opened.size, opened.tobytes())


@lru_cache(maxsize=32)
def coloured_map(class_map: bytes) -> bytes:
    """Return a PNG of a `Prediction.class_map` in the colours of masks."""
    numbers = decode_map(class_map)
    coloured = Image.frombytes("P", numbers.size, numbers.tobytes())
    coloured.putpalette([part for number in range(256) for part in colour(number)])
    return png_of(coloured)


@dataclass(frozen=True)
class ClassFigures:
    """Figures of a segmenter for a protected class on two images, 0 to 1; None if neither image has the class."""

    name: str
    source: float | None
    generated: float | None

    @property
    def found(self) -> bool:
        """True if the model under test finds the class in the source. Otherwise it has no class to lose."""
        return self.source is not None and self.source >= DROPPED

    @property
    def dropped(self) -> bool:
        return self.source is not None and self.generated is not None and self.source - self.generated >= DROPPED
