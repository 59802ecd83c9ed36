"""What a profile says of a picture that its models were not made for. Every page and command asks here.

It goes by what a picture shows, whatever it is called: one that looks like a sample of the profile, or has one of the
skies that its models know, is known.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from core.images import read_image
from pipeline.profiles.profile import Profile

SKIES = "skies.png"
"""In the folder of the samples: a column of colours for each sky that the models know, from the top down."""
SKY_ROWS = 20
_SIDE = 32
_NEAR = 15.0
"""Mean difference of the small copies, of 255. A sample that was scaled or saved as JPEG came to 11 at most; another
picture to 27 or more, one of a single colour among them.
"""
_SKY_SIDE = 64
_SAME_COLOUR = 4.0
"""Largest difference of a channel, of 255."""
_SKY_SHARE = 0.03
"""Share of the upper third that must have the colours of one sky. Of 160 drawn scenes none had less than 0.086;
of 80 saved as JPEG of quality 60 none less than 0.034; of 35 photographs and graphics none more than 0.019.
"""


def notice_for(profile: Profile, image: Image.Image) -> str:
    """Return the notice of the profile, or "" for a picture that its models know and where it has none to say."""
    folder = profile.samples_folder()
    if not profile.notice or folder is None:
        return profile.notice
    return "" if _is_a_sample(folder, image) or _has_a_known_sky(folder, image) else profile.notice


def sky_of(image: Image.Image) -> np.ndarray:
    """Return the upper third of a picture in small, without rain and snow: (SKY_ROWS, 64, 3)."""
    small = image.convert("RGB").resize((_SKY_SIDE, _SKY_SIDE), Image.Resampling.BOX)
    return np.asarray(small.filter(ImageFilter.MedianFilter(3)), np.float64)[:SKY_ROWS]


def _is_a_sample(folder: Path, image: Image.Image) -> bool:
    small = _small(image)
    return any(np.abs(small - sample).mean() < _NEAR for sample in _samples(folder))


def _has_a_known_sky(folder: Path, image: Image.Image) -> bool:
    top = sky_of(image)
    near = np.abs(top[:, :, None] - _skies(folder)[:, None]).max(3) <= _SAME_COLOUR  # row, pixel, sky
    return bool((near.mean((0, 1)) >= _SKY_SHARE).any())


@lru_cache(maxsize=8)
def _samples(folder: Path) -> tuple[np.ndarray, ...]:
    files = sorted(file for file in folder.glob("*.png") if file.with_suffix(".json").is_file())
    return tuple(_small(read_image(file).image) for file in files)


@lru_cache(maxsize=8)
def _skies(folder: Path) -> np.ndarray:
    """The skies that are known: (SKY_ROWS, skies, 3)."""
    if not (folder / SKIES).is_file():
        return np.empty((SKY_ROWS, 0, 3))
    return np.asarray(read_image(folder / SKIES).image, np.float64)


def _small(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BOX), np.float64)
