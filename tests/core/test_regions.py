"""Tests for regions: from a mask to text and back, and refusals of invalid texts."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from core import rle
from core.errors import UserError
from core.regions import WHOLE, Region, region_of


def mask(*, width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
    """Return a mask with a rectangle and noise, which gives long and short runs."""
    pixels = np.where(np.random.default_rng(seed).random((height, width)) < 0.05, np.uint8(255), np.uint8(0))
    pixels[10:40, 20:70] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("seed", range(3))
def test_a_mask_comes_back_as_it_was(seed: int) -> None:
    painted = mask(seed=seed)
    region = region_of(painted)
    again = region.mask((96, 64))
    assert again is not None and again.mode == "L" and again.tobytes() == painted.tobytes()
    assert region.share == pytest.approx(np.asarray(painted).mean() / 255)
    assert region_of(again) == region and region.text.startswith("96x64 ")


def test_counts_come_back_from_their_text() -> None:
    for counts in ([0, 4], [5], [3, 1, 2], [0, 1, 70_000, 3, 69_999, 1, 2, 900, 4]):
        assert rle.unpacked(rle.packed(counts)) == counts


def test_no_region_is_the_whole_image() -> None:
    everything = region_of(Image.new("L", (5, 4), 255))
    assert everything == WHOLE and WHOLE.whole and WHOLE.share == 1
    assert WHOLE.mask((5, 4)) is None and WHOLE.describe() == "the whole picture"
    half = Image.new("L", (10, 10))
    half.paste(200, (0, 0, 10, 5))
    assert region_of(half).describe() == "50.0 % of the picture"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (region_of(mask(width=64, height=96)).text, "of 64x96 pixels, but this picture has 96x64 pixels: paint"),
        (region_of(Image.new("L", (96, 64))).text, "Nothing is painted"),
        ("96x64 ", "do not add up"),
        ("96x64 0", "do not add up"),
        ("96x64 " + rle.packed([10, 5]), "do not add up"),
        ("96x64 " + rle.packed([96 * 64 + 1]), "do not add up"),
        ("96x64 " + rle.packed([-4, 4, 96 * 64]), "do not add up"),
        ("96x64 ~~~", "do not add up"),
        ("96x64 ü", "do not add up"),
        ("96x64 " + "o" * 40, "do not add up"),
        ("9999x9999 " + rle.packed([9999 * 9999]), "do not add up"),
        ("sky", "do not add up"),
    ],
)
def test_a_text_that_is_no_region_of_the_image_is_refused_in_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Region(text).mask((96, 64))
    assert isinstance(Region(text).describe(), str), "a page that shows it does not fail"
