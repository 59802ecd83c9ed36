"""Write drawn scenes as a data set that a batch reads in place: `make demo-data`, or `python -m demo.data_set`.

The scenes show sunny or cloudy days, on which the demo's models under test do well. So edits can make them fail.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from PIL import Image

from core.progress import OnCount
from core.types import TaskKind
from demo.render import render
from demo.scene import OBJECT_CLASSES, PROTECTED_ROAD_CLASSES, SEMANTIC_CLASSES, Scene, fair, random_scene

TABLE = "sources.csv"
FIRST_SEED, SEEDS = 6_100_000, 900_000
"""First seed of the scenes, and number of possible seeds. Nothing else in this project uses these seeds."""
COUNT = 60
"""Default number of scenes."""
_PLAN = """name = "{name}"

[data]
root = {root}
layout = "csv"

[task]
{task}

[make]
profile = "demo"

[edits]
captions_a_source = 2       # test cases of one image
"""


def _quiet(_done: int, _total: int) -> None:
    """Ignore the progress."""


def write_scenes(folder: Path, kind: TaskKind, count: int, seed: int, on_count: OnCount = _quiet) -> None:
    """Write `count` scenes: objects with a label for classification, or streets with a mask for segmentation.

    The same seed gives the same scenes. An exception from `on_count` stops the writing.
    """
    start = random.Random(f"scenes {seed}").randrange(SEEDS)
    family = "object" if kind == "classification" else "road"
    seeds = [FIRST_SEED + (start + place) % SEEDS for place in range(count)]
    write_data_set(folder, [(fair_scene(one, family, place), {}) for place, one in enumerate(seeds)], on_count)


def write_data_set(folder: Path, scenes: Sequence[tuple[Scene, Mapping[str, str]]], on_count: OnCount = _quiet) -> None:
    """Write scenes as a data set of the layout "csv": images, masks of the streets, and a table.

    Each scene comes with additional columns for its row of the table. Existing images are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(_written(folder, scenes, on_count))
    half = folder / f"{TABLE}.half"
    with half.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    half.replace(folder / TABLE)  # the table is written last, so all files that it names are complete


def _written(
    folder: Path, scenes: Sequence[tuple[Scene, Mapping[str, str]]], on_count: OnCount
) -> Iterator[Mapping[str, str]]:
    """Write the files of each scene and yield its row."""
    classes = json.dumps(dict(enumerate(SEMANTIC_CLASSES)))
    for place, (scene, more) in enumerate(scenes):
        on_count(place, len(scenes))
        image, mask = image_name(place), image_name(place, "masks")
        if not (folder / image).exists():
            write_scene(scene, folder / image, folder / mask)
        truth = {"label": scene.label} if scene.label else {"mask": mask, "mask_classes": classes}
        yield {"image": image, **truth, **more}


def write_scene(scene: Scene, image: Path, mask: Path) -> None:
    """Write the mask of a street scene, then the scene's picture. So if the picture exists, both files are complete."""
    pixels, numbers = render(scene)
    image.parent.mkdir(parents=True, exist_ok=True)
    if not scene.label:
        mask.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbers).save(mask)
    half = image.with_suffix(".half")
    Image.fromarray(pixels).save(half, "PNG")
    half.replace(image)


def image_name(place: int, folder: str = "images") -> str:
    """Return the name of the image file of the scene `place` in a data set."""
    return f"{folder}/{place:04}.png"


def fair_scene(seed: int, family: str, place: int) -> Scene:
    """Return the seed's scene of a sunny or cloudy day. In the family "object", `place` chooses the label."""
    label = OBJECT_CLASSES[place % len(OBJECT_CLASSES)] if family == "object" else None
    return fair(random_scene(seed, family, label), random.Random(f"fair {seed}"))


def plan_text(root: str, kind: TaskKind) -> str:
    """Return a batch plan (TOML) for a data set that this module wrote. `root` is the data set's folder in the plan."""
    task, name = f'kind = "{kind}"', "Drawn things"
    if kind == "segmentation":
        task += f"\nprotected = {json.dumps(PROTECTED_ROAD_CLASSES)}"
        name = "Drawn streets"
    return _PLAN.format(name=name, root=json.dumps(root), task=task)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a data set and print its path."""
    kinds = get_args(TaskKind)
    parser = argparse.ArgumentParser(prog="python -m demo.data_set", description=__doc__)
    parser.add_argument("--kind", choices=kinds, default=kinds[0], help="labels or masks (default: %(default)s)")
    parser.add_argument("--count", type=_number, default=COUNT, help="number of scenes (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same scenes (default: a fresh one)")
    parser.add_argument("--out", type=Path, help="folder of the data set (default: demo-data/KIND-SEED)")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder: Path = (options.out or Path("demo-data") / f"{options.kind}-{seed}").absolute()
    write_scenes(folder, options.kind, options.count, seed)
    plan = folder / "plan.toml"
    plan.write_text(plan_text(str(folder), options.kind), encoding="utf-8")  # an absolute path, for pages
    print(f"{options.count:,} drawn scenes, seed {seed}: {folder}")
    print(f"Plan a batch of them: {sys.executable} -m pipeline batch plan {plan}")
    print("Or open Batches, press New batch, and give this plan.toml to Take a file.")


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= SEEDS:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 to {SEEDS:,}, not {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
