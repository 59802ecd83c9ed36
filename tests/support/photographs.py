"""Photographs from libraries, for notices on pictures and for control images."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def _folder_of(package: str) -> Path:
    """Return the folder of a package without importing it, since the import takes a second."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def of_skimage(name: str) -> Path:
    """Return the path of a photograph that scikit-image brings along."""
    return _folder_of("skimage") / "data" / name


TWO_PHOTOGRAPHS = tuple(sorted((_folder_of("sklearn") / "datasets" / "images").glob("*.jpg")))
PHOTOGRAPHS = (
    *TWO_PHOTOGRAPHS,
    *map(of_skimage, ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")),
)
BLURRED = _folder_of("skimage") / "data" / "clock_motion.png"
"""A clock, blurred by motion. Nearly nothing of it is sharp."""
