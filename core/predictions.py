"""What a model under test says of one image. Plain frozen dataclasses; no torch, no files."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from core.masks import colour
from core.types import Task, TaskKind
from core.words import classes_in

TOP = 5
"""How many guesses of a classifier are kept."""
LARGEST_MAP = 512
"""Longest side of a class map that is kept, in pixels: enough for its figures and its picture."""


@dataclass(frozen=True)
class Guess:
    """One class that a classifier sees in an image."""

    label: str
    probability: float
    """0 to 1."""


@dataclass(frozen=True)
class Prediction:
    """What a model under test says of one image: guesses, or a class for every pixel."""

    kind: TaskKind
    model: str
    """What the page calls the model."""
    top: tuple[Guess, ...] = ()
    """Likeliest first, at most `TOP`; classification only."""
    classes: tuple[str, ...] = ()
    """The names behind the numbers of `class_map`; segmentation only."""
    class_map: bytes = b""
    """A PNG of class numbers (mode L) in the image's aspect, at most `LARGEST_MAP` wide and high; segmentation only."""


@dataclass(frozen=True)
class Doubt:
    """How unsure a segmenter is of an image: means over its pixels, as of a classifier over its one answer."""

    entropy: float
    """In nats, 0 to the logarithm of the number of classes."""
    gini: float
    """DeepGini, from 0 up to below 1: 1 - the sum of the squares of the probabilities."""


@dataclass(frozen=True, eq=False)
class PredictedBatch:
    """What a model under test says of some images that follow one another."""

    first: int
    """The place of the first of them among all that were asked about, from 0."""
    predictions: tuple[Prediction, ...]
    probabilities: np.ndarray | None = None
    """(images, classes), float32, in the order of the model's classes; classification only."""
    doubts: tuple[Doubt, ...] = ()
    """Of each image, segmentation only; () where the model does not tell."""


def names_label(guess: str, label: str) -> bool:
    """Whether a model's class is the label of the task, in other letters or as a kind of it."""
    return guess.casefold() == label.casefold() or bool(classes_in(guess, Task("classification", label=label)))


def map_size(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the class map that is kept of an image of that width and height."""
    scale = min(1.0, LARGEST_MAP / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def encode_map(numbers: Image.Image) -> bytes:
    """`Prediction.class_map` of an image whose pixels are class numbers (mode L), shrunk to `LARGEST_MAP`."""
    small = numbers.resize(map_size(numbers.size), Image.Resampling.NEAREST)
    file = io.BytesIO()
    small.save(file, "PNG")
    return file.getvalue()


def decode_map(class_map: bytes) -> Image.Image:
    """The class numbers (mode L) of a `Prediction.class_map`."""
    with Image.open(io.BytesIO(class_map)) as opened:
        opened.load()
        return Image.frombytes("L", opened.size, opened.tobytes())


@lru_cache(maxsize=32)
def coloured_map(class_map: bytes) -> bytes:
    """A picture (PNG) of a `Prediction.class_map`: each class number in its colour, as masks have it."""
    numbers = decode_map(class_map)
    coloured = Image.frombytes("P", numbers.size, numbers.tobytes())
    coloured.putpalette([part for number in range(256) for part in colour(number)])
    file = io.BytesIO()
    coloured.save(file, "PNG")
    return file.getvalue()
