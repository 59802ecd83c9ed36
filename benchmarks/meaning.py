"""Speed of searching images by content in a large workspace, and of the map of images.

Random vectors in groups replace the vectors that a model would compute of images. `python -m benchmarks.meaning` runs
this alone, at 125,000 images. `--large` also measures a million images, which takes 1 GB of disk.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.catalogue import resident, timed
from benchmarks.figures import Figure, reported
from pipeline.profiles.profile import load_profile
from services.curation.map import ImageMap
from services.curation.meaning import MOST_FOUND, Meaning
from services.jobs import JobQueue
from storage.curation import entry_sets
from storage.workspace import Workspace

SIZES = (125_000, 1_000_000)
DIMENSIONS = 512
GROUPS = 300
"""Number of groups of vectors. Each group has a random direction. Its vectors are that direction plus random noise."""
BOUNDS = {125_000: 60.0, 1_000_000: 200.0}
"""Maximum milliseconds of a search, by number of images. Encoding the text is not included."""
MEGABYTES = 600
TIMES = 40
_AT_ONCE = 50_000


class _NoModels:
    """Takes the place of the models, which this benchmark does not need. Raises AssertionError if a model is used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the {name} was asked for")


def measure(sizes: Sequence[int] = SIZES[:1]) -> list[Figure]:
    """Measure workspaces of these sizes. Raises AssertionError if searching needs too much memory."""
    figures: list[Figure] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder, Workspace(Path(folder)) as workspace:
            jobs = JobQueue()
            meaning = Meaning(load_profile("demo"), _NoModels(), workspace, jobs)  # type: ignore[arg-type]
            directions = fill(workspace, meaning.embedder, size)
            figures += searches(meaning, directions, size)
            figures += places(workspace, meaning, size)
            jobs.close()
    return figures


def fill(workspace: Workspace, embedder: str, size: int) -> np.ndarray:
    """Add `size` random vectors in groups, without image files. Return the direction of each group."""
    fate = np.random.default_rng(size)
    directions = fate.standard_normal((GROUPS, DIMENSIONS), np.float32)
    for first in range(0, size, _AT_ONCE):
        number = min(_AT_ONCE, size - first)
        near = directions[fate.integers(0, GROUPS, number)]
        vectors = near + 0.8 * fate.standard_normal((number, DIMENSIONS), np.float32)
        workspace.vectors.add(embedder, range(first + 1, first + number + 1), vectors)
    return directions


def searches(meaning: Meaning, directions: np.ndarray, size: int) -> list[Figure]:
    """Measure three kinds of searches: by a direction (for a text), by one of the images, and with a filter."""
    fate, name = random.Random(3), f", {size:,} images"
    chunks = (size >> entry_sets.CHUNK_BITS) + 1
    everything = entry_sets.of_entries(range(1, size + 1), chunks)
    some = entry_sets.of_entries(fate.sample(range(1, size + 1), size // 50), chunks)

    def like_text(allowed: entry_sets.Bits) -> Callable[[], object]:
        text = f"text {fate.randrange(GROUPS)}"
        vector = directions[int(text.split()[1])]
        meaning._wanted.put((meaning.embedder, text), vector / np.linalg.norm(vector))
        return lambda: meaning.ranked(text, allowed)

    def like_entry() -> Callable[[], object]:
        entry = fate.randrange(1, size + 1)
        return lambda: meaning.ranked(entry, everything)

    like_text(everything)()  # the first search loads torch, and the vectors from the disk
    before = resident()
    bound = BOUNDS.get(size, max(BOUNDS.values()))
    figures = [
        timed(f"the {MOST_FOUND:,} images nearest to a text{name}",
              (like_text(everything) for _ in range(TIMES)), bound),
        timed(f"the {MOST_FOUND:,} images most like one of them{name}", (like_entry() for _ in range(TIMES)), bound),
        timed(f"the images nearest to a text, in a filter of a fiftieth{name}",
              (like_text(some) for _ in range(TIMES)), bound),
    ]  # fmt: skip
    grown = resident() - before
    print(f"{size:,} vectors: searching took {grown:.0f} MB more memory", flush=True)
    assert grown <= MEGABYTES, f"{grown:.0f} MB"
    return figures


def places(workspace: Workspace, meaning: Meaning, size: int) -> list[Figure]:
    """Measure the computation of the PCA map, and a search for the images in a region of the map."""
    allowed = entry_sets.of_entries(range(1, size + 1), (size >> entry_sets.CHUNK_BITS) + 1)
    image_map = ImageMap(workspace, meaning)
    image_map.layout("pca")
    angles = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    ring = [(0.5 + 0.2 * float(np.cos(a)), 0.5 + 0.3 * float(np.sin(a))) for a in angles]

    def anew() -> Iterator[Callable[[], object]]:
        for _ in range(5):
            yield lambda: ImageMap(workspace, meaning).layout("pca")

    factor = size / SIZES[0]
    return [
        timed(f"the map of all images from nothing, {size:,} images", anew(), 1000.0 * factor),
        timed(f"the images in a region of the map, {size:,} images",
              ((lambda: image_map.inside(ring, allowed)) for _ in range(20)), 100.0 * factor),
    ]  # fmt: skip


def main() -> int:
    """Measure, print the tables, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.meaning", description="Measures search by meaning.")
    parser.add_argument("--large", action="store_true", help="a million images as well")
    options = parser.parse_args()
    return reported(
        measure(SIZES if options.large else SIZES[:1]),
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
    )


if __name__ == "__main__":
    raise SystemExit(main())
