"""What a profile says of a picture that its models were not made for. Page and command line ask here.

It goes by what a picture shows, whatever it is called: one that looks like a sample of the profile is known.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from core.images import read_image
from pipeline.profiles.profile import Profile

_SIDE = 32
_NEAR = 15.0
"""Mean difference of the small copies, of 255. A sample that was scaled or saved as JPEG came to 11 at most; another
picture to 27 or more, one of a single colour among them.
"""


def notice_for(profile: Profile, image: Image.Image) -> str:
    """The notice of the profile; "" for a picture that looks like one of its samples, and where it has none to say."""
    folder = profile.samples_folder()
    if not profile.notice or folder is None:
        return profile.notice
    small = _small(image)
    return "" if any(np.abs(small - sample).mean() < _NEAR for sample in _samples(folder)) else profile.notice


@lru_cache(maxsize=8)
def _samples(folder: Path) -> tuple[np.ndarray, ...]:
    files = sorted(file for file in folder.glob("*.png") if file.with_suffix(".json").is_file())
    return tuple(_small(read_image(file).image) for file in files)


def _small(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BOX), np.float64)
