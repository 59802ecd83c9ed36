"""What a model under test sees in one image. Plain frozen dataclasses; no torch, no files."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from PIL import Image

from pipeline.masks import colour
from pipeline.types import from_plain, to_plain

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
class Reading:
    """What a model under test sees in one image: guesses, or a class for every pixel."""

    kind: Literal["classification", "segmentation"]
    model: str
    """What the page calls the model."""
    top: tuple[Guess, ...] = ()
    """Likeliest first, at most `TOP`; classification only."""
    classes: tuple[str, ...] = ()
    """The names behind the numbers of `class_map`; segmentation only."""
    class_map: str = ""
    """A PNG of class numbers with a palette, in base64, in the image's aspect; segmentation only."""

    def plain(self) -> dict[str, Any]:
        """JSON-ready data, for `Workspace.append_reading`."""
        return dict(to_plain(self))


def reading_from(data: Mapping[str, Any]) -> Reading:
    """The reading of `Reading.plain()`. Raises pydantic.ValidationError when the data do not fit."""
    reading = from_plain(Reading, dict(data))
    assert isinstance(reading, Reading)
    return reading


def encode_map(numbers: Image.Image) -> str:
    """`Reading.class_map` of an image whose pixels are class numbers (mode L): shrunk to `LARGEST_MAP`, coloured."""
    small = numbers.copy()
    if max(small.size) > LARGEST_MAP:
        scale = LARGEST_MAP / max(small.size)
        size = (max(1, round(small.width * scale)), max(1, round(small.height * scale)))
        small = small.resize(size, Image.Resampling.NEAREST)
    coloured = Image.new("P", small.size)
    coloured.putdata(list(small.tobytes()))
    coloured.putpalette([part for number in range(256) for part in colour(number)])
    file = io.BytesIO()
    coloured.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def decode_map(class_map: str) -> Image.Image:
    """The class numbers (mode L) of a `Reading.class_map`."""
    with Image.open(io.BytesIO(base64.b64decode(class_map))) as opened:
        opened.load()
        return Image.frombytes("L", opened.size, opened.tobytes())
