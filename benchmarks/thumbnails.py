"""Time to make a thumbnail from pixels in memory or from a file, and its cost when a test case is saved."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from PIL import Image, ImageFilter

from benchmarks.catalogue import made
from benchmarks.figures import Comparison, Figure, reported
from benchmarks.study import picture
from core.images import StoredImage
from core.lineage import TestCase
from core.types import Task
from pipeline.methods.controlnet import CONTROL_IMAGE
from storage.thumbnails import Thumbnails, thumbnail
from storage.workspace import Workspace

SIDE = 512
PICTURES = 40
FROM_MEMORY, FROM_FILE = 15.0, 30.0
"""Maximum milliseconds for a thumbnail: from pixels in memory, and from a file."""
MOST = 1.2
"""Maximum time for saving a test case with its thumbnail, relative to saving it without."""


def measure() -> list[Figure | Comparison]:
    """Measure thumbnails, and return two figures and a comparison."""
    pictures = [picture(number).resize((SIDE, SIDE)) for number in range(PICTURES)]
    with tempfile.TemporaryDirectory() as folder, Workspace(Path(folder)) as workspace:
        in_memory = [milliseconds(lambda one=one: thumbnail(one)) for one in pictures]  # type: ignore[misc]
        shas = [workspace.images.add(one) for one in pictures]
        asked_for = [milliseconds(lambda sha=sha: workspace.thumbnails.webp(sha)) for sha in shas]  # type: ignore[misc]
        return [
            Figure(f"a thumbnail of {SIDE} pixels, from memory", tuple(in_memory), FROM_MEMORY),
            Figure("one that is missing, from its PNG as it is asked for", tuple(asked_for), FROM_FILE),
            saving(workspace, pictures),
        ]


def saving(workspace: Workspace, pictures: Sequence[Image.Image]) -> Comparison:
    """Compare the time to save a new test case and its thumbnail with the time to save a new test case alone."""
    fate = random.Random(7)
    run = workspace.runs.create(pictures[0], Task("classification", "bird"), "demo", "A bird", {})

    def save(image: Image.Image) -> float:
        edges = image.convert("L").filter(ImageFilter.FIND_EDGES).point(lambda value: 255 * (value > 60))
        case: TestCase = replace(made(fate, image, 0), artifacts={CONTROL_IMAGE: edges})
        return milliseconds(lambda: workspace.test_cases.append(run, None, case))

    def without(self: Thumbnails, image: Image.Image, settled: bool = True) -> StoredImage:
        return self._images.save(image, settled)

    ratios = []
    for number, one in enumerate(pictures):
        once, again = one.rotate(90), one.rotate(180)
        if number % 2:
            with_it = save(once)
        with patch.object(Thumbnails, "save", without):
            bare = save(again)
        if not number % 2:
            with_it = save(once)
        ratios.append(with_it / bare)
    return Comparison("a test case saved with its thumbnail, by one saved without", tuple(ratios), most=MOST)


def milliseconds(work: Callable[[], object]) -> float:
    """Return the milliseconds of one call."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    raise SystemExit(reported(measure()))
