"""Speed of exporting a test set, compared with copying its images. Both times end when all data are on the disk.

`python -m benchmarks.exporting` runs this alone. `--images 10000` needs 10 GB of disk.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Comparison, reported
from benchmarks.study import picture
from core.images import png_of
from core.png import with_texts
from core.types import Edit
from formats.exporting import export
from formats.types import Example, TestSet

IMAGES, DRAWN, SIDE = 2000, 100, 512
"""Number of image files, number of different pictures in them, and their side in pixels. No two files are equal."""
ROUNDS = 5
LEAST, AIM = 0.5, 0.9
"""Minimum and goal for the time of a copy divided by the time of an export. A copy keeps one core busy. An export also
hashes the files, and keeps two cores busy. So this ratio depends on the load of the machine. Within an hour, the ratio
on one machine was 0.55 to 0.95."""
LAYOUT = "imagefolder"


def measure(images: int = IMAGES) -> list[Comparison]:
    """Return one comparison: the time of a copy divided by the time of an export."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        examples = list(prepared(folder / "images", images))
        header = TestSet("A benchmark", "0" * 64)
        rounds = [
            (
                _seconds(folder, lambda into: export(header, examples, into, LAYOUT)),
                _seconds(folder, lambda into: _copied(folder / "images", into)),
            )
            for _ in range(ROUNDS)
        ]
        size = sum(example.image.stat().st_size for example in examples) / 1e6
    exported, copied = (sorted(taken)[ROUNDS // 2] for taken in zip(*rounds, strict=True))
    words = f"{size:,.0f} MB, {copied:.1f} s to copy and {exported:.1f} s to export, on the disk"
    ratios = tuple(copy / taken for taken, copy in rounds)
    what = f"export of {images:,} images, in the speed of copying them"
    return [Comparison(what, ratios, least=LEAST, aim=AIM, words=words)]


def prepared(folder: Path, images: int) -> Iterator[Example]:
    """Write `images` different image files into the folder, and yield an example of a test set for each."""
    folder.mkdir()
    drawn = [png_of(picture(number).resize((SIDE, SIDE))) for number in range(min(images, DRAWN))]
    for number in range(images):
        data = with_texts(drawn[number % len(drawn)], {"number": str(number)})
        sha = hashlib.sha256(data).hexdigest()
        path = folder / f"{sha}.png"
        path.write_bytes(data)
        yield Example(
            name=f"bird-{sha[:16]}",
            image=path,
            sha=sha,
            label=f"bird {number % 20}",
            split="test",
            source=sha,
            caption="A bird sits on a branch.",
            new_caption="A red bird sits on a branch at night.",
            edits=(Edit("bird", "red bird", "attribute"), Edit("day", "night", "time of day")),
            edit_types=("attribute", "time of day"),
            facts={
                "lineage": {"method": "controlnet", "model": "sd", "seed": number, "prompt": "A red bird." * 20},
                "checks": [{"name": "label seen", "passed": True, "value": 0.3}] * 6,
            },
        )


def _copied(images: Path, into: Path) -> None:
    subprocess.run(["cp", "-r", images, into], check=True)


def _seconds(folder: Path, write: Callable[[Path], object]) -> float:
    """Return the seconds that `write` takes to write a new folder, until all data are on the disk."""
    into = folder / "into"
    os.sync()
    began = time.perf_counter()
    write(into)
    os.sync()
    taken = time.perf_counter() - began
    shutil.rmtree(into)
    return taken


def main() -> int:
    """Measure the export and print the result. Return the exit code: 1 if the bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exporting", description="Measures an export.")
    parser.add_argument("--images", type=int, default=IMAGES, help=f"of the set ({IMAGES})")
    return reported(measure(parser.parse_args().images), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    raise SystemExit(main())
