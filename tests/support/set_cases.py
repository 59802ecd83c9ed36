"""Runs with test cases for tests of test sets. Their pictures are noise, and each number gives its own picture."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from core.test_sets import SetEntry
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from storage.workspace import Workspace
from tests.support.cases import made_case

CAPTION = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))


def picture(number: int, size: tuple[int, int] = (32, 32)) -> Image.Image:
    """Return soft noise. Pictures of different numbers do not look alike."""
    noise = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def as_jpeg(image: Image.Image, quality: int = 60) -> Image.Image:
    """Return the image after saving it as JPEG."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(io.BytesIO(file.getvalue())).convert("RGB")


def run_of(
    workspace: Workspace,
    source: Image.Image | int,
    images: Sequence[int],
    label: str = "bird",
    accepted: bool = True,
) -> tuple[int, ...]:
    """Create a run whose generated images are the pictures of these numbers. Return its test cases."""
    task = Task("classification", label)
    shown = picture(source) if isinstance(source, int) else source
    run = workspace.runs.create(shown, task, "demo", "A run", {})
    workspace.runs.append_value(run, "caption", StageValue(Caption("A red bird."), Trace("model"), "k"))
    made = [made_case(picture(number), seed=number, counterfactual=CAPTION, task=task) for number in images]
    cases = workspace.test_cases.extend(run, None, made)
    for case in cases if accepted else ():
        workspace.test_cases.review(case, "accepted")
    return cases


def by_image(entries: Sequence[SetEntry]) -> dict[str, SetEntry]:
    return {entry.image: entry for entry in entries}
