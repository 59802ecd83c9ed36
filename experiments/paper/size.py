"""Sizes of the experiment on the paper's questions: the full one, and a small one that shows that every part works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Family = Literal["object", "road"]
FAMILIES: tuple[Family, ...] = get_args(Family)


@dataclass(frozen=True)
class Size:
    """Numbers of sources, images, studies and trainings of a run."""

    name: str
    sources: int
    """Number of sources of each task."""
    workers: int
    """Number of processes. With one, everything is done in the calling process."""
    lessons: Mapping[Family, tuple[int, int]]
    """Number of training scenes and of optimiser updates, for each model under test."""
    steps: int
    """Number of denoising steps for drawing an image."""
    shift: int
    """Number of rendered scenes per task in fog and at night, for the shift set."""
    judged: int
    """Number of images that the annotators of one simulated study judge."""
    studies: int
    """Number of simulated studies whose intervals are compared with the truth."""
    study_sources: int
    """Number of sources in each simulated study that `studies` counts."""
    seeds: int
    """Number of times that each arm (way to train) is trained, each with another random seed."""
    updates: int
    """Number of optimiser updates of every training."""
    renders: int
    """Number of rendered scenes per cell (a class under a condition) to decide whether the model is weak on it."""


FULL = Size(
    "full",
    sources=500,
    workers=2,
    lessons={"object": (1500, 300), "road": (500, 200)},
    steps=5,
    shift=200,
    judged=300,
    studies=1000,
    study_sources=200,
    seeds=5,
    updates=200,
    renders=30,
)
SMALL = Size(
    "small",
    sources=12,
    workers=1,
    lessons={"object": (40, 2), "road": (20, 2)},
    steps=2,
    shift=4,
    judged=30,
    studies=8,
    study_sources=10,
    seeds=2,
    updates=2,
    renders=2,
)
