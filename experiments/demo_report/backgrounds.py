"""Measure images of the recipe `aga`, which puts a new background behind a subject: `python -m
experiments.demo_report.backgrounds --results FILE`.

The recipe finds the subject of each drawn scene by its label, with the demo's models. The renderer knows the subject's
true pixels, and judge models read the images. The file gets a line per scene, so that a stopped run can resume.
With `--bank`, the command measures only the time for one and for ten images per source, with reused backgrounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from core.errors import UserError
from core.settings import SettingsWithBackgrounds
from core.types import Task, failed
from demo.judges import Judges
from demo.render import render
from demo.scene import SEMANTIC_CLASSES, random_scene
from experiments.demo_report.rows import Row, missed, percent, share, table
from experiments.demo_report.speed import processor_seconds
from experiments.resumable import measure_each
from pipeline.checks.images import BACKGROUND_FREE, SUBJECT_KEPT
from pipeline.driver import Driver
from pipeline.methods.background import BEHIND, SUBJECT_MASK
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import AGA
from pipeline.request import MemoryStore, Request

FIRST_SEED = 8_000_000
"""First seed of the scenes. Neither training nor calibration uses these seeds."""
SUBJECT = SEMANTIC_CLASSES.index("object")
PHANTOM = 0.05
"""Maximum share of the background that the judges may read as an object. Above it, the background counts as showing
one. Of 60 rendered scenes without an object, none is above it and three are above 0.03."""
WHOLE = 0.9
"""Minimum overlap (intersection over union) with the true subject for a kept subject to count as whole."""
CAPTIONS = 4
BANK, TIMES = 500, (1, 10)


def settings(captions: int, **backgrounds: Any) -> SettingsWithBackgrounds:
    """Return the demo's settings of the recipe AGA, with `captions` backgrounds for each source."""
    own = AGA.settings_in(load_profile("demo"))
    assert isinstance(own, SettingsWithBackgrounds)
    changed = own.backgrounds.model_copy(update={"captions": captions, **backgrounds})
    return own.model_copy(update={"backgrounds": changed})


def measured(number: int, driver: Driver, judges: Judges) -> dict[str, Any]:
    """Make and judge images of the scene `number`, and return one line of the results."""
    scene = random_scene(FIRST_SEED + number, "object")
    picture, numbers = render(scene)
    truth, store = numbers == SUBJECT, MemoryStore(Image.fromarray(picture))
    line: dict[str, Any] = {"number": number, "label": scene.label, "overlap": 0.0, "images": []}
    try:
        driver.run(Request(Task("classification", label=scene.label), settings(CAPTIONS), AGA.name, number), store)
    except UserError as error:
        return line | {"why": str(error)}
    readable = judges.read(picture).label == scene.label
    for case in store.cases:
        mask, image = np.asarray(case.artifacts[SUBJECT_MASK]) > 0, np.asarray(case.image)
        behind = np.asarray(case.artifacts[BEHIND].convert("RGB").resize((picture.shape[1], picture.shape[0])))
        overlap = float((mask & truth).sum() / (mask | truth).sum())
        line["overlap"] = overlap
        label = judges.read(image).label == scene.label
        phantom = float((judges.read(behind).mask == SUBJECT)[~mask].mean())
        line["images"].append(
            {
                "failed": [check.name for check in failed(case.checks)],
                "equal": bool((image == picture)[mask].all()),
                "label": label or not readable,
                "phantom": phantom,
                "valid": (label or not readable) and overlap >= WHOLE and phantom <= PHANTOM,
            }
        )
    return line


def rows(lines: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the figures of the results with their required minima."""
    images = [image for line in lines for image in line["images"]]
    passing = [image for image in images if not image["failed"]]
    why = {name: sum(name in image["failed"] for image in images) for name in (SUBJECT_KEPT, BACKGROUND_FREE)}
    others = sum(bool(set(image["failed"]) - set(why)) for image in images)
    reasons = ", ".join(f"{name} {count}" for name, count in (why | {"others": others}).items())
    free = [image["phantom"] <= PHANTOM for image in images]
    return [
        share("the subject is found by its label", [bool(line["images"]) for line in lines], 0.95),
        share("pixels of the subject are equal", [image["equal"] for image in images], 1.0),
        share("images kept by the checks", [not image["failed"] for image in images], 0.85, f"failed: {reasons}"),
        share(
            "kept backgrounds show no object",
            [image["phantom"] <= PHANTOM for image in passing],
            0.99,
            f"of all backgrounds {percent(free)}",
        ),
        share("the label is read in kept images", [image["label"] for image in passing], 0.99),
        share("kept images are valid", [image["valid"] for image in passing], 0.95),
    ]


class Kept:
    """A store of drawn backgrounds in memory."""

    def __init__(self) -> None:
        self._stored: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self._stored.get(key)

    def save(self, key: str, content: bytes) -> None:
        self._stored[key] = content


def bank(sources: int) -> str:
    """Return a sentence on the CPU seconds for one and for ten images per source, with `BANK` backgrounds to reuse."""
    profile, seconds = load_profile("demo"), dict[int, float]()
    for times in TIMES:
        driver, begun = Driver(profile, load_models(profile), inversions=Kept()), 0.0
        for number in range(-1, sources):
            if number == 0:  # number -1 loads the models and does not count
                driver, begun = Driver(profile, driver.models, inversions=Kept()), processor_seconds()
            scene = random_scene(FIRST_SEED + max(0, number), "object")
            own = settings(times, bank=BANK)
            own = own.model_copy(update={"composite": own.composite.model_copy(update={"layout": "text"})})
            task = Task("classification", label=scene.label)
            store = MemoryStore(Image.fromarray(render(scene)[0]))
            try:
                driver.run(Request(task, own, AGA.name, number), store)
            except UserError as error:
                print(f"{number}: {error}", file=sys.stderr)
        seconds[times] = processor_seconds() - begun
    text = ", ".join(f"{times}x {own:.0f} CPU seconds" for times, own in seconds.items())
    return f"{sources} sources: {text}, {seconds[TIMES[1]] / seconds[TIMES[0]]:.2f} times"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo_report.backgrounds", description=__doc__)
    parser.add_argument("--results", type=Path, help="file of the results, one line per scene")
    parser.add_argument("--scenes", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--bank", action="store_true", help="measure time instead")
    options = parser.parse_args()
    if options.bank:
        print(bank(options.scenes))
        return 0
    profile = load_profile("demo")
    driver, judges = Driver(profile, load_models(profile)), Judges()
    lines = measure_each(
        {(number,): number for number in range(options.scenes)},
        lambda number: measured(number, driver, judges),
        options.results,
    )
    found = rows(lines)
    print(table(found))
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
