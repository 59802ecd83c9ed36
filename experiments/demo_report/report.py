"""Measures the demo profile on scenes that no training saw: `python -m experiments.demo_report.report`, or `--part` for
a part of it.

Prints a table and writes it to docs/demo-report.md. The exit code is 1 if a figure misses its floor (required minimum).
The pipeline is the real one. A renderer draws the scenes, so their true content is known. Judge models, which are
trained only on rendered scenes, recognise what a generated image shows.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from core.errors import UserError
from core.lineage import TestCase
from core.types import CounterfactualCaptions
from demo.facts import facts_of_scene, names_in
from demo.judges import WEIGHTS as JUDGES
from demo.language import caption, keywords
from experiments.demo_report.images import FOUND
from experiments.demo_report.rows import Row, missed, percent, share, table
from experiments.demo_report.walk import FIRST_SEED, ListeningModels, Walk, start_walk, walk_text
from experiments.driving import draw, produce
from pipeline.driver import Driver
from pipeline.models import load_models
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import DILLEMA

PARTS = ("captions", "language", "images", "speed")
SCENES = 240
NEW = 60
"""Number of additional scenes, whose captions do not occur in the training."""
SHOWN = 12
"""Number of images that the report shows."""
REPORT = Path(__file__).resolve().parents[2] / "docs" / "demo-report.md"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.demo_report.report", description="Measure the embedded models."
    )
    parser.add_argument("--part", choices=PARTS, help="only this part; writes no file (default: all)")
    parser.add_argument("--scenes", type=int, default=SCENES, help="how many unseen scenes (default: %(default)s)")
    parser.add_argument(
        "--new", type=int, default=NEW, help="how many scenes whose captions are new too (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=REPORT, help="where the report goes (default: %(default)s)")
    options = parser.parse_args()
    start = time.monotonic()
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        sheet = None if options.part else options.out.with_suffix(".png")
        measured = measure((options.part,) if options.part else PARTS, options.scenes, options.new, sheet)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(measured.rows))
    if measured.new_rows:
        print(f"\nWith captions that no training picture has:\n{table(measured.new_rows)}")
    if not options.part:
        text = document(measured, time.monotonic() - start, options.out.with_suffix(".png").name)
        options.out.write_text(text, encoding="utf-8")  # experiments.demo_report.checks appends its own part later
    for sentence in measured.missed():
        print(f"Floor missed: {sentence}", file=sys.stderr)
    return 1 if measured.missed() else 0


@dataclass(frozen=True)
class Measured:
    """Figures of the report."""

    rows: list[Row]
    """Rows for scenes that no training saw."""
    new_rows: list[Row]
    """Rows for unseen scenes whose captions are also new to the models."""
    scenes: int
    new_scenes: int
    known_captions: int
    """Number of `scenes` whose caption also occurs in the training."""

    def missed(self) -> list[str]:
        """Return one sentence for each figure that misses its required minimum."""
        return missed(self.rows) + [f"with new captions, {sentence}" for sentence in missed(self.new_rows)]


def measure(parts: tuple[str, ...], count: int, new: int, sheet: Path | None = None) -> Measured:
    """Measure parts of the report and return their rows. The first images go into the file `sheet`. Raises UserError if
    weights are missing.
    """
    profile = load_profile("demo")
    loaded = load_models(profile)
    if parts == PARTS:
        loaded.check()  # a single part loads what it needs, and says itself what is missing
    rows, new_rows, known = list[Row](), list[Row](), 0
    if parts != ("speed",):
        models = ListeningModels(loaded)
        driver = Driver(profile, models)
        in_training = training_captions()
        known = sum(caption(start_walk(number, profile).scene) in in_training for number in range(count))
        rows = walk_rows(parts, list(range(count)), profile, driver, models, sheet)
        if new:
            others = (n for n in itertools.count(count) if caption(start_walk(n, profile).scene) not in in_training)
            numbers = list(itertools.islice(others, new))
            walked_rows = walk_rows(parts, numbers, profile, driver, models, None)
            new_rows = [row for row in walked_rows if not math.isnan(row.value)]  # roads have no label
    if "images" in parts:
        from demo.judges import Judges
        from experiments.demo_report import free as report_free

        rows += report_free.rows(profile, Judges())
    if "speed" in parts:
        from experiments.demo_report import speed as report_speed

        rows += report_speed.rows()
    return Measured(rows, new_rows, count, new, known)


def training_captions() -> set[str]:
    """Return the captions of all pictures that the models were trained on."""
    from demo.train.dataset import DEFAULT_COUNT, train_scene, twin

    scenes = [train_scene(index) for index in range(DEFAULT_COUNT)]
    return {caption(scene) for scene in (*scenes, *map(twin, scenes))}


def walk_rows(
    parts: tuple[str, ...],
    numbers: list[int],
    profile: Profile,
    driver: Driver,
    models: ListeningModels,
    sheet: Path | None,
) -> list[Row]:
    """Measure all parts of the report except speed, on the scenes with these numbers, and return their rows."""
    rows: list[Row] = []
    walks = [start_walk(number, profile) for number in numbers]
    for walk in tqdm(walks, "captions", mininterval=2):
        walk.caption = produce(driver, DILLEMA, "caption", walk.image, walk.task, {}, seed=walk.number).value.text
    if "captions" in parts:
        rows += caption_rows(walks)
    if "language" in parts or "images" in parts:
        for walk in tqdm(walks, "language", mininterval=2):
            walk_text(walk, driver, models)
    if "language" in parts:
        rows += language_rows(walks)
    if "images" in parts:
        rows += image_rows(walks, driver, sheet)
    return rows


def caption_rows(walks: list[Walk]) -> list[Row]:
    """Measure how often the captions state the right facts about their scenes."""
    pairs = [(walk.facts, facts_of_scene(walk.scene)) for walk in walks]
    roads = [(stated, shown) for stated, shown in pairs if shown.label == "road"]
    colours = [
        place < len(stated.colours) and stated.colours[place] == colour
        for stated, shown in pairs
        for place, colour in enumerate(shown.colours)
    ]
    around = [
        bool(names_in(walk.caption, keyword.text))
        for walk in walks
        for keyword in keywords(walk.scene)
        if keyword.edit_type == "background"
    ]
    vehicles = [stated.vehicles == shown.vehicles for stated, shown in roads]
    pedestrians = [stated.pedestrians == shown.pedestrians for stated, shown in roads]
    return [
        share("caption names the right class", [stated.label == shown.label for stated, shown in pairs], 0.90),
        share("caption names the right colour", colours, 0.90, "of each object and each vehicle"),
        share("caption names the right weather", [stated.weather == shown.weather for stated, shown in pairs], 0.90),
        share("caption names the right time of day", [stated.time == shown.time for stated, shown in pairs], 0.90),
        share("caption names the right ground, trees, walls, water and hills", around, 0.90),
        share("caption gives the number of vehicles", vehicles, 0.90),
        share("caption gives the number of pedestrians", pedestrians, 0.90),
    ]


def language_rows(walks: list[Walk]) -> list[Row]:
    """Measure how often replies are readable, and how often keywords and captions leave protected words unchanged."""
    parsed = [read for walk in walks for read in walk.first_replies_read]
    free = [bool(walk.keywords_free) for walk in walks if walk.keywords_free is not None]
    edits = [right for walk in walks for right in walk.edits_right]
    changed = {text for walk in walks for text in walk.keywords}
    offered = {text for walk in walks for text in walk.alternatives}
    one_edit = [walk.edits_right[0] for walk in walks if walk.edits_right]
    return [
        Row("different keywords", len(changed), 60, ""),
        Row("different alternatives", len(offered), 80, ""),
        share("language reply parses at the first try", parsed, 0.99),
        share("keywords leave out the label and the protected classes", free, 0.99, "first replies, nothing filtered"),
        share(
            "counterfactual caption carries the chosen edits and keeps everything protected",
            edits,
            0.97,
            f"one or two edits, all other facts kept too; one edit: {percent(one_edit)}",
        ),
    ]


def image_rows(walks: list[Walk], driver: Driver, sheet: Path | None) -> list[Row]:
    """Draw and judge one image for each planned edit. The first images, good or bad, are put into the file `sheet`."""
    from demo.judges import Judges
    from experiments.demo_report.images import ImageFindings, contact_sheet

    if not JUDGES.exists():
        raise UserError(f"The judges' weights are missing: {JUDGES}. Train them with python -m demo.train.judges.")
    judges, findings, shown = Judges(), ImageFindings(), list[tuple[Walk, TestCase]]()
    for walk in tqdm([walk for walk in walks if walk.planned], "images", mininterval=2):
        assert walk.planned is not None
        chosen = CounterfactualCaptions((walk.planned,))
        for case in draw(driver, walk.image, walk.task, chosen, seed=walk.number):
            findings.add(walk, case, judges)
            shown += [(walk, case)] if len(shown) < SHOWN else []
    if sheet is not None and shown:
        contact_sheet(shown).save(sheet)
    return findings.rows()


def document(measured: Measured, seconds: float, sheet: str) -> str:
    """Return the report as Markdown. `seconds` is how long measuring took. `sheet` is the image file to show."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    failed = measured.missed()
    result = "Every floor is reached." if not failed else "**Not reached:** " + "; ".join(failed) + "."
    return f"""# What the embedded models reach

Written by `make demo-report`; every figure comes from a run on this machine. {result}

{table(measured.rows)}

- {measured.scenes} scenes of the drawn world, seeds {FIRST_SEED} and up. Training draws its scenes from larger seeds:
  it saw none of their pictures, but captions have few words, and {measured.known_captions} of the {measured.scenes}
  stand word for word under a training picture too. The second table is about others.
- Each scene goes through the real pipeline with the demo profile: the captioner's own caption, the language model's
  own keywords and alternatives, one planned edit (weather, time of day, a colour and the background in turns), one
  image from it.
- What a generated image shows is read by judges (`demo/judges.py`) that were trained on rendered scenes only and share
  nothing with the generator or its CLIP. Beside it stands what they make of the untouched scenes.
- A colour edit of a word for several vehicles counts when all of them show it. IoU is over the pixels of
  all road scenes together, source mask against the judges' reading; pavement, lane markings and pedestrians are
  wanted within 0.06, 0.10 and 0.10 of the untouched scenes.
- A thing (vehicle, pedestrian, labelled object; those that touch are one) is lost when less than {FOUND:.0%} of its
  pixels are read as its class, and added where there was nothing of its class. What the judges miss or imagine in the
  ideal image too (the edited scene as the drawn world draws it) counts as neither; the figures without that are given
  beside. Ground, trees, walls, water and hills show an edit when what it changes is nearer to the edited scene's mean
  colour than to that before. Percentages carry their 95 % interval (Wilson).
- The picture shows the first {SHOWN} scenes, not chosen by anyone: source, control image, generated image, edit.
- Machine: {machine}. The whole report took {seconds / 60:.0f} minutes.

## Captions that no training picture has

The first {measured.new_scenes} of the following scenes with such captions. They are roads, most with three cars: the
captions of single objects, and most of those of roads with fewer cars, stand under training pictures too.

{table(measured.new_rows)}

![The first scenes of the report]({sheet})
"""


if __name__ == "__main__":
    sys.exit(main())
