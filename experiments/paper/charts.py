"""Draws the pictures of the report: charts of figures with their intervals, and sheets of example images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

INK, GREY, FAINT = "#1d2733", "#68737f", "#e3e7eb"
COLOURS = ("#2f6db3", "#c8553d", "#3d8b5f")
_LABEL, _PLOT, _END, _ROW, _TOP, _FOOT = 270, 380, 90, 22, 34, 34
"""Lengths in pixels of a chart's parts. Labels wider than `_LABEL` make the picture wider."""


@dataclass(frozen=True)
class Bar:
    """One figure of a chart."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    colour: int = 0
    """Index in `COLOURS`."""


def forest(title: str, bars: Sequence[Bar], low: float, high: float, file: Path, unit: str = "%") -> None:
    """Draw each figure with its interval on a common axis from `low` to `high`, shares in per cent. A figure without a
    value says “cannot tell”.
    """
    font, bold = ImageFont.load_default(13), ImageFont.load_default(15)
    left = max(_LABEL, *(math.ceil(font.getlength(bar.name)) + 20 for bar in bars))
    height = _TOP + _ROW * len(bars) + _FOOT
    image = Image.new("RGB", (left + _PLOT + _END, height), "white")
    draw = ImageDraw.Draw(image)
    draw.text((10, 8), title, INK, bold)

    def x(value: float) -> float:
        return left + _PLOT * (min(max(value, low), high) - low) / (high - low)

    for step in range(6):
        value = low + (high - low) * step / 5
        draw.line((x(value), _TOP, x(value), height - _FOOT + 4), FAINT)
        draw.text((x(value), height - _FOOT + 8), f"{100 * value:.0f} {unit}", GREY, font, anchor="ma")
    for place, bar in enumerate(bars):
        y = _TOP + _ROW * place + _ROW / 2
        draw.text((left - 10, y), bar.name, INK, font, anchor="rm")
        if bar.value is None:
            draw.text((left + 6, y), "cannot tell", GREY, font, anchor="lm")
            continue
        colour = COLOURS[bar.colour]
        if bar.low is not None and bar.high is not None:
            draw.line((x(bar.low), y, x(bar.high), y), colour, 3)
        draw.ellipse((x(bar.value) - 5, y - 5, x(bar.value) + 5, y + 5), colour)
        draw.text((left + _PLOT + 12, y), f"{100 * bar.value:.1f} {unit}", INK, font, anchor="lm")
    image.save(file, optimize=True)


def sheet(pairs: Sequence[tuple[Path, Path, str]], file: Path, columns: int = 4) -> None:
    """Draw pairs of a source and a generated image side by side, with the edit below each pair."""
    side, line, gap = 96, 18, 8
    width, height = 2 * side + gap, side + line + gap
    rows = (len(pairs) + columns - 1) // columns
    image = Image.new("RGB", (columns * width + gap, rows * height + gap), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(11)
    for place, (source, made, words) in enumerate(pairs):
        left, top = gap + place % columns * width, gap + place // columns * height
        for column, one in enumerate((source, made)):
            with Image.open(one) as opened:
                image.paste(opened.convert("RGB").resize((side, side)), (left + column * side, top))
        draw.text((left, top + side + 2), words, INK, font)
    image.save(file, optimize=True)
