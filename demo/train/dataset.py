"""Renders the training scenes once, into memory-mapped files that all training programs read.

Each scene has a twin: the same geometry with another look. From such pairs the ControlNet learns that rain, snow,
clouds and shadows in the source's edges need not reappear.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from tqdm import tqdm

from demo.render import SIZE, render
from demo.scene import Scene, random_look, random_scene
from demo.train.common import TRAIN_SEEDS

DEFAULT_COUNT = 30_000
_CHUNK = 100


def train_scene(index: int) -> Scene:
    """Return the training scene with this index."""
    return random_scene(TRAIN_SEEDS + index)


def twin(scene: Scene) -> Scene:
    """Return the twin of a scene: the same geometry with another look, determined by the scene's seed."""
    rng = random.Random(f"twin {scene.seed}")
    return Scene(**{**scene.__dict__, "look": random_look(rng, len(scene.look.colours))})


@dataclass(frozen=True)
class SceneSet:
    """The training scenes. `images` and `twins` are uint8 (count, 128, 128, 3), `masks` uint8 (count, 128, 128)."""

    count: int
    images: np.ndarray
    twins: np.ndarray
    masks: np.ndarray

    def scene(self, index: int) -> Scene:
        """Return the description of the scene in `images[index]`."""
        return train_scene(index)

    def twin(self, index: int) -> Scene:
        """Return the description of the scene in `twins[index]`."""
        return twin(train_scene(index))


def open_scenes(work: Path, count: int = DEFAULT_COUNT) -> SceneSet:
    """Return the training scenes in the folder `work`. If they are missing, render them first (a few minutes)."""
    folder = work / "scenes"
    done = folder / f"{count}.done"
    if not done.exists():
        _render_all(folder, count)
        done.touch()
    return SceneSet(
        count, *(np.load(folder / f"{count}-{name}.npy", mmap_mode="r") for name in ("images", "twins", "masks"))
    )


def _render_all(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape in (("images", (SIZE, SIZE, 3)), ("twins", (SIZE, SIZE, 3)), ("masks", (SIZE, SIZE))):
        open_memmap(folder / f"{count}-{name}.npy", mode="w+", dtype=np.uint8, shape=(count, *shape)).flush()
    jobs = [(folder, count, start) for start in range(0, count, _CHUNK)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        for _ in tqdm(
            pool.imap_unordered(_render_chunk, jobs), total=len(jobs), desc="rendering scenes", mininterval=5
        ):
            pass


def _render_chunk(job: tuple[Path, int, int]) -> None:
    folder, count, start = job
    images, twins, masks = (
        np.load(folder / f"{count}-{name}.npy", mmap_mode="r+") for name in ("images", "twins", "masks")
    )
    for index in range(start, min(start + _CHUNK, count)):
        scene = train_scene(index)
        images[index], masks[index] = render(scene)
        twins[index], _ = render(twin(scene))


def main() -> None:
    parser = argparse.ArgumentParser(description="Render the training scenes.")
    parser.add_argument("--work", type=Path, default=Path("build/train"))
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT)
    options = parser.parse_args()
    open_scenes(options.work, options.count)


if __name__ == "__main__":
    main()
